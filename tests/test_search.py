"""Solutions that Newton's method does not reach from the start, approached along a family."""

from dataclasses import replace

import jax.numpy as jnp
import pytest
from folding import folded, root_of, start_at

from silico_py.solver import Options, Status, search, solve
from silico_py.solver.problem import conditions, product_norm, remainder, residual_norm

RHO = jnp.asarray(1e-8)


@pytest.mark.parametrize("constant", [2.5, 3.0, 6.0])
@pytest.mark.parametrize("start", [2.0, 2.5, 3.0])
def test_family_leads_to_a_root_behind_a_minimum(constant, start, monkeypatch):
    monkeypatch.setattr(search, "LONGESTS", (0, 0, 0, 0, 0, 10, 0, 10))  # nothing else may
    problem = folded(constant)
    found = solve(problem, start_at(start), Options(RHO, RHO / 10, 300, 3))
    assert bool(found.converged), found.iterations
    assert float(found.variables.y[0, 0]) == pytest.approx(root_of(constant), abs=1e-7)


def test_without_a_family_the_last_attempt_goes_on():
    problem = replace(folded(6.0), homotopy=None)
    found = solve(problem, start_at(1.0), Options(RHO, RHO / 10, 300, 3))  # a singular start
    assert bool(found.converged), found.iterations


@pytest.mark.parametrize("limit", range(5, 60, 9))
def test_what_ends_early_is_judged_by_the_problem_itself(limit):
    problem = folded(6.0)
    found = solve(problem, start_at(2.0), Options(RHO, RHO / 10, limit))
    c = conditions(problem, found.variables)
    assert int(found.iterations) <= limit
    assert float(found.residual) == pytest.approx(float(residual_norm(problem, c)), rel=1e-9)
    off = float(product_norm(remainder(problem, c, RHO)))
    assert float(found.complementarity) == pytest.approx(off, rel=1e-9)
    solved = max(float(found.residual), off) <= RHO / 10
    assert (found.status == Status.CONVERGED) == solved
