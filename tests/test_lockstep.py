"""Loops whose batches go on in step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silico_py.solver.lockstep import in_step


@pytest.fixture
def abreast(monkeypatch):
    """Batches as elsewhere than on a CPU."""
    monkeypatch.setattr("silico_py.solver.fusion.in_turn", lambda: False)


def doubled(x, weight, limit):
    """x doubled while it is below the limit, its values on the way, and a weighted sum of them."""

    def advance(k, state):
        x, total, history = state
        going = x < limit
        after = jnp.where(going, 2 * x, x)
        total = jnp.where(going, total + weight * after, total)
        return after, total, history.at[k].set(after)

    start = x, 0 * x * weight, jnp.zeros(8)
    x, total, _ = in_step(lambda k, s: (k < 8) & (s[0] < limit), advance, start)
    return x, total


STARTS, WEIGHTS = jnp.array([1.0, 3.0, 40.0, 0.01]), jnp.array([1.0, -2.0, 0.5, 3.0])


def expected(x, weight, limit=20.0):
    total, passes = 0.0, 0
    while x < limit and passes < 8:
        x, passes = 2 * x, passes + 1
        total += weight * x
    return x, total


@pytest.mark.parametrize("shared", ["nothing", "weight", "start"])
def test_members_end_as_they_would_alone(abreast, shared):
    axes = {"nothing": (0, 0), "weight": (0, None), "start": (None, 0)}[shared]
    args = STARTS, WEIGHTS
    given = [v if axis == 0 else v[0] for v, axis in zip(args, axes, strict=True)]
    out = jax.jit(jax.vmap(lambda x, w: doubled(x, w, 20.0), axes))(*given)
    whole = [jnp.broadcast_to(v, 4) for v in given]
    rows = [expected(float(x), float(w)) for x, w in zip(*whole, strict=True)]
    np.testing.assert_allclose(np.stack(out, axis=1), rows, rtol=1e-14)


def test_what_a_batch_has_seen_is_kept_in_place(abreast):
    """The histories of a batch are never chosen between."""
    program = str(jax.make_jaxpr(jax.vmap(lambda x: doubled(x, 1.0, 20.0)))(STARTS))
    chosen = [line for line in program.splitlines() if "select_n" in line]
    assert chosen
    assert not [line for line in chosen if "[4,8]" in line]


def test_batches_of_batches(abreast):
    both = jax.vmap(jax.vmap(lambda x, w: doubled(x, w, 20.0), (0, None)), (None, 0))
    out = both(STARTS, WEIGHTS)
    for i, j in np.ndindex(4, 4):
        row = expected(float(STARTS[j]), float(WEIGHTS[i]))
        np.testing.assert_allclose([v[i, j] for v in out], row, rtol=1e-14)


def test_derivatives(abreast):
    """Of the sum by start and weight, both in one pass."""

    def total(x, weight):
        return doubled(x, weight, 20.0)[1]

    value, slope = jax.jvp(total, (3.0, -2.0), (1.0, 1.0))
    # -2 (6 + 12 + 24), with three terms that double the start.
    np.testing.assert_allclose([value, slope], [-84, -2 * 14 + 42])
