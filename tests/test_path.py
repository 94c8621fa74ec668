"""Paths that fold, of problems whose solutions are known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from folding import folded, root_of, start_at

from silico_py.solver import CellVariables, Options, Variables, kkt, search, solve, stages
from silico_py.solver import path as paths
from silico_py.solver.iterate import moved
from silico_py.solver.problem import conditions, no_easing
from silico_py.solver.stages import Stage

RHO = 1e-8


def found(problem, start, monkeypatch):
    """By the path from the start alone."""
    first = jnp.asarray(Stage.FOLLOW), stages.FIRST_PART  # before all else
    monkeypatch.setattr(stages, "_without_guess", lambda problem: first)
    longests = [50 if stage == Stage.FOLLOW else 0 for stage in Stage]
    monkeypatch.setattr(search, "_longests", lambda problem: longests)
    options = Options(jnp.asarray(RHO), jnp.asarray(RHO / 10), 100, 3)
    return solve(replace(problem, homotopies=()), start_at(start), options)


@pytest.mark.parametrize("constant", [2.5, 3.0, 6.0])
@pytest.mark.parametrize("start", [2.0, 2.5, 3.0])
def test_path_from_the_start_leads_around_a_fold(constant, start, monkeypatch):
    solution = found(folded(constant), start, monkeypatch)
    assert bool(solution.converged)
    assert float(solution.variables.y[0, 0]) == pytest.approx(root_of(constant), abs=1e-7)


def test_t_rises_between_two_folds_and_ends_at_zero():
    """On y^3 - 3 y + 3 = t A it falls until y = 1, rises until y = -1, and falls to the root."""
    problem, rho = folded(3.0), jnp.asarray(RHO)
    cell = CellVariables(jnp.zeros((1, 0)), jnp.full((1, 1), 1e-3), jnp.full((1, 1), 12.0))
    w = Variables.of(jnp.array([[2.0]]), (cell,))
    path = paths.begin(problem, w, conditions(problem, w), jnp.asarray(False), rho)

    @jax.jit
    def onwards(w, path):
        c = conditions(problem, w)
        back = jax.tree.map(jnp.negative, paths.missing(problem, c, path, rho))
        factor = kkt.factorize(problem, w, no_easing(jnp.float64))
        found = kkt.directions(problem, factor, 1e-6, back, path.anchor)
        step = paths.predict(problem, w, path, *found)
        fraction = jnp.minimum(1.0, 0.2 / step.length)  # short: to see the turns
        return moved(w, step.change, fraction), paths.shortened(path, step, fraction)

    places = [(2.0, 1.0)]
    while float(path.t) > 0:
        w, path = onwards(w, path)
        places.append((float(w.y[0, 0]), float(path.t)))
        assert len(places) < 200
    y, t = np.array(places).T
    assert np.all(np.diff(y) < 0)
    rising = np.diff(t) > 0
    assert y[1:][rising].max() == pytest.approx(1, abs=0.3)
    assert y[1:][rising].min() == pytest.approx(-1, abs=0.3)
    assert np.ptp(np.flatnonzero(rising)) == rising.sum() - 1  # one stretch
    assert y[-1] == pytest.approx(-2.1038, abs=0.05)
