"""What a step says of its outcome."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import stepped

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


def told(scene, converged, status, alpha):
    """An `Info` that says this of its steps."""
    nothing = np.zeros((*np.shape(alpha), 3))
    contacts = sp.ContactInfo(np.asarray(alpha), nothing, nothing, nothing)
    sizes = np.zeros((3, *np.shape(converged)))
    return sp.Info(np.asarray(converged), np.asarray(status), *sizes, contacts, None)


def balls():
    """Two on a floor."""
    bodies = [sp.Body(name, sp.Sphere(0.1), mass=1.0) for name in "ab"]
    return sp.Scene(bodies, [sp.scenes.floor()])


def test_failures_say_which_steps_why_and_where():
    """Of two members with two steps."""
    scene, none = balls(), np.nan
    converged = [[True, False], [False, False]]
    status = [[0, sp.Status.MAX_ITERATIONS], [sp.Status.UNLOCATED, sp.Status.NOT_FINITE]]
    alpha = [[[1, 1, 1], [2, 1, 3]], [[1, none, none], [none, none, none]]]
    a_b, a_floor, b_floor = "a - b", "a - environment[0]", "b - environment[0]"
    found = sp.failures(scene, told(scene, converged, status, alpha), contacts=2)
    assert found == [
        ((0, 1), sp.Status.MAX_ITERATIONS, (a_floor, a_b)),
        ((1, 0), sp.Status.UNLOCATED, (a_floor, b_floor)),
        ((1, 1), sp.Status.NOT_FINITE, ()),
    ]
    assert found[0].message == f"{sp.Status.MAX_ITERATIONS.message}; nearest: {a_floor}, {a_b}"
    assert found[2].message == sp.Status.NOT_FINITE.message
    (single,) = sp.failures(scene, told(scene, False, 1, [1.0, 2.0, 3.0]))
    assert single.at == () and single.contacts == (a_b, a_floor, b_floor)


def test_failures_of_a_step_that_is_given_too_few_iterations():
    scene, state = sp.scenes.drop("sphere")
    state = replace(state, velocity=jnp.array([[0.0, 0.0, -5.0]]))
    _, info = stepped(scene, state, max_iterations=1)
    expected = sp.Failure((), sp.Status.MAX_ITERATIONS, ("sphere - environment[0]",))
    assert sp.failures(scene, info) == [expected]
    assert sp.failures(scene, stepped(scene, state)[1]) == []
