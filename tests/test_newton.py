"""Newton directions, against derivatives of the conditions themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import tower

from silico_py.solver import dense, kkt
from silico_py.solver.problem import centred, conditions, no_easing, targets
from silico_py.solver.vectors import Conditions, Variables


def boundary_point(problem, w, product, noise):
    """Half of the rows are active, and products are alike."""
    cells = [
        cell._replace(slack=cell.dual + part) for cell, part in zip(w.cells, noise, strict=True)
    ]
    product = jnp.asarray(product)
    return centred(problem, Variables.of(w.y, cells), targets(problem, product, product))


def defects(problem, start, seeds):
    """Of a direction that is to change the conditions by random numbers, as a function of the
    mean product, for each seed."""
    like = jax.eval_shape(lambda: conditions(problem, start))

    @jax.jit
    def defect(data, start, product, noise, wanted):
        here = problem.with_data(data)
        w = boundary_point(here, start, product, noise)
        factor = kkt.factorize(here, w, no_easing(jnp.float64))
        target = Conditions(wanted, like.layout)
        (direction,) = kkt.directions(here, factor, jnp.asarray(1e-9), target)
        _, change = jax.jvp(lambda w: conditions(here, w), (w,), (direction,))
        return abs(change.flat - wanted).max()

    def of_seed(product, seed):
        rng = np.random.default_rng(seed)
        noise = [rng.normal(size=cell.slack.shape) for cell in start.cells]
        return defect(problem.data, start, product, noise, rng.normal(size=like.flat.shape))

    return lambda product: np.array([of_seed(product, seed) for seed in seeds])


def test_directions_change_the_conditions_as_asked(monkeypatch):
    """With many nearly dependent rows at 1e-8 too, if they are eliminated with pivoting: no number
    of passes is enough for the regularised factorisation."""
    problem, start = tower(4)
    regularised = defects(problem, start, range(3))
    assert regularised(1e-3).max() < 1e-7
    assert regularised(1e-8)[1:].min() > 1
    monkeypatch.setattr(kkt, "MANY_CELLS", 1)
    assert defects(problem, start, (1, 2))(1e-8).max() < 1e-2


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_pivoted_inverse(size):
    matrix = np.random.default_rng(size).normal(size=(size, size))
    matrix[:-1, 0] = 0  # no leading block is regular
    expected = np.linalg.inv(matrix)
    np.testing.assert_allclose(
        dense.pivoted_inverse(jnp.asarray(matrix)), expected, atol=1e-10 * abs(expected).max()
    )
