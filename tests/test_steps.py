"""What steps are corrected for."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from folding import folded, start_at

from silico_py.solver import kkt, steps
from silico_py.solver.problem import conditions, no_easing, remainder, residual_norm

PROBLEM, START = folded(3.0), start_at(2.0)
RHO = jnp.asarray(1e-8)


@jax.jit
def newton_step():
    """(place and conditions there, Newton's step from it)."""
    found = conditions(PROBLEM, START)
    target = jax.tree.map(jnp.negative, remainder(PROBLEM, found, RHO))
    factor = kkt.factorize(PROBLEM, START, no_easing(jnp.float64))
    (step,) = kkt.directions(PROBLEM, factor, jnp.asarray(1e-12), target)
    return found, step


@jax.jit
def missing(error, part):
    """Of Newton's step from a place with this error."""
    found, step = newton_step()
    measures = SimpleNamespace(conditions=found, error=jnp.asarray(error))
    it = SimpleNamespace(w=START, measures=measures)
    return steps._missing(PROBLEM, it, step, jnp.asarray(part))


def test_rows_miss_what_is_of_second_order_in_the_part_of_the_step_that_is_taken():
    longer, shorter = (residual_norm(PROBLEM, missing(1.0, part)) for part in (2e-3, 1e-3))
    assert float(shorter) > 0
    assert float(longer / shorter) == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize(("error", "counted"), [(0.5, 0), (0.05, 1)], ids=["far", "near"])
def test_products_are_corrected_close_to_a_solution(error, counted):
    _, step = newton_step()
    (change,) = step.cells
    expected = counted * change.slack * change.dual  # of an orthant
    np.testing.assert_allclose(missing(error, 1.0).products, expected.ravel(), atol=1e-14)
