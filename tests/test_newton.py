"""Newton directions, against derivatives of the conditions themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_transposed import problem_of

from silico_py.solver import dense, kkt
from silico_py.solver.problem import centred, conditions, multiples
from silico_py.solver.vectors import Conditions, Variables


def boundary_point(problem, w, product, rng):
    """Half of the rows are active, and products are alike."""
    cells = [
        cell._replace(slack=cell.dual + jnp.asarray(rng.normal(size=cell.slack.shape)))
        for cell in w.cells
    ]
    return centred(problem, Variables.of(w.y, cells), multiples(problem, jnp.asarray(product)))


def defect(problem, start, product, seed):
    """Of a direction that is to change the conditions by random numbers."""
    rng = np.random.default_rng(seed)
    w = boundary_point(problem, start, product, rng)
    like = conditions(problem, w)
    target = Conditions(jnp.asarray(rng.normal(size=like.flat.shape)), like.layout)

    @jax.jit
    def change(data, w):
        here = problem.with_data(data)
        factor = kkt.factorize(here, w, jnp.zeros(()))
        (direction,) = kkt.directions(here, factor, jnp.asarray(1e-9), target)
        return jax.jvp(lambda w: conditions(here, w), (w,), (direction,))[1]

    return abs(change(problem.data, w).flat - target.flat).max()


@pytest.mark.parametrize("seed", range(3))
def test_directions_change_the_conditions_as_asked(seed):
    assert defect(*problem_of(2), 1e-3, seed) < 1e-7


@pytest.mark.parametrize("seed", [1, 2])
def test_many_nearly_dependent_rows_are_eliminated_with_pivoting(seed, monkeypatch):
    """At 1e-8 no number of passes is enough for the regularised factorisation."""
    problem, start = problem_of(4)
    assert defect(problem, start, 1e-8, seed) > 1
    monkeypatch.setattr(kkt, "MANY_CELLS", 1)
    assert defect(problem, start, 1e-8, seed) < 1e-2


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_pivoted_inverse(size):
    matrix = np.random.default_rng(size).normal(size=(size, size))
    matrix[:-1, 0] = 0  # no leading block is regular
    expected = np.linalg.inv(matrix)
    np.testing.assert_allclose(
        dense.pivoted_inverse(jnp.asarray(matrix)), expected, atol=1e-10 * abs(expected).max()
    )
