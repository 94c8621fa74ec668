"""What a step says of its outcome."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import silico_py as sp
from silico_py import solver
from silico_py.one_step import begin, info_of
from silico_py.simulate import checked_control


def test_every_outcome_of_a_search_is_one_of_a_step():
    for outcome in set(solver.Status) - {solver.Status.STALLED}:  # of monotone problems alone
        assert sp.Status(outcome).name == outcome.name


def test_every_status_advises():
    messages = [status.message for status in sp.Status]
    assert len(set(messages)) == len(sp.Status)
    assert "max_iterations" in sp.Status.MAX_ITERATIONS.message
    assert "relaxation" in sp.Status.MAX_ITERATIONS.message
    assert "time step" in sp.Status.MAX_ITERATIONS.message
    assert "collision_relaxation" in sp.Status.UNLOCATED.message
    assert "finite" in sp.Status.NOT_FINITE.message
    assert "max_contacts" in sp.Status.INCOMPLETE.message


@pytest.mark.parametrize(
    ("solved", "expected"),
    [
        (solver.Status.CONVERGED, sp.Status.UNLOCATED),
        (solver.Status.MAX_ITERATIONS, sp.Status.MAX_ITERATIONS),
    ],
)
def test_a_contact_that_was_not_found_is_told_where_the_step_was_solved(solved, expected):
    scene, state = sp.scenes.drop("sphere")
    formulation = sp.SolverOptions().formulation

    def nowhere(*at):
        return formulation.touch(*at)._replace(alpha=jnp.asarray(jnp.nan))

    @jax.jit
    def info(state):
        rho, control = jnp.asarray(1e-6), checked_control(scene, state, None)
        begun = begin(scene, state, control, rho, None, sp.SolverOptions())
        solution = solver.Solution(begun.start, jnp.asarray(int(solved)), 0, 0.0, 0.0)
        return info_of(begun.batches, solution, None, replace(formulation, touch=nowhere))

    found = info(state)
    assert not found.converged and found.status == expected
