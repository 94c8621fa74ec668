"""Jordan algebra of the product cones."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silico_py.solver import ProductCone

CONE = ProductCone.orthant(2) + ProductCone.second_order(4) + ProductCone.second_order(3)


def interior(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=CONE.dim)
    for kind, part in CONE.slices():
        if kind == "orthant":
            x[part] = np.abs(x[part]) + 0.1
        else:
            x[part.start] = np.linalg.norm(x[part][1:]) + rng.uniform(0.05, 2)
    return x


def test_addition_merges_orthants_and_counts():
    cone = ProductCone.orthant(2) + ProductCone.orthant(3) + ProductCone.second_order(4)
    assert cone.blocks == (("orthant", 5), ("second_order", 4))
    assert (cone.dim, cone.degree) == (9, 6)
    with pytest.raises(ValueError, match="dim"):
        ProductCone.second_order(1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_inverse_and_identity(seed):
    x = jnp.asarray(interior(seed))
    e = CONE.identity(float)
    np.testing.assert_allclose(CONE.product(x, CONE.inverse(x)), e, atol=1e-10)
    np.testing.assert_allclose(CONE.product(x, e), x, atol=1e-13)
    assert float(CONE.margin(x)) > 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_step_length_is_where_the_ray_leaves(seed):
    x = jnp.asarray(interior(seed))
    dx = jnp.asarray(np.random.default_rng(seed + 1).normal(size=CONE.dim))
    t = float(CONE.step_length(x, dx))
    if np.isfinite(t):
        assert float(CONE.margin(x + 0.999 * t * dx)) > 0
        assert float(CONE.margin(x + 1.001 * t * dx)) < 0
    else:
        assert float(CONE.margin(x + 1e6 * dx)) > 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e-7, 1e-2]))
def test_scaling_solves_linearised_complementarity(seed, delta):
    """L(s + delta z) dz + L(z) ds = c, checked with the Jordan product itself."""
    s, z = jnp.asarray(interior(seed)), jnp.asarray(interior(seed + 1))
    rng = np.random.default_rng(seed + 2)
    ds, c = (jnp.asarray(rng.normal(size=CONE.dim)) for _ in range(2))
    scaling = CONE.scaling(s, z, delta)
    dz = (scaling.divide(c[:, None]) - scaling.apply(ds[:, None]))[:, 0]
    residual = CONE.product(s + delta * z, dz) + CONE.product(z, ds) - c
    assert float(jnp.max(jnp.abs(residual))) < 1e-8 * (1 + float(jnp.max(jnp.abs(dz))))
