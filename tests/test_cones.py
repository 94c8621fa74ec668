"""Jordan algebra of the product cones, against dense matrices and brute force."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silico_py.solver import ProductCone

CONE = ProductCone.orthant(2) + ProductCone.second_order(4) + ProductCone.second_order(3)
SEEDS = st.integers(0, 10_000)
EPS = float(np.finfo(float).eps)


def anywhere(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=CONE.dim)


def interior(seed: int, cone: ProductCone = CONE) -> np.ndarray:
    """A point whose eigenvalues lie between 0.05 and a few units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=cone.dim)
    for kind, part in cone.slices():
        if kind == "orthant":
            x[part] = np.abs(x[part]) + 0.1
        else:
            x[part.start] = np.linalg.norm(x[part][1:]) + rng.uniform(0.05, 2)
    return x


def arrow(x: np.ndarray, cone: ProductCone = CONE) -> np.ndarray:
    """The dense matrix L(x) of y -> x o y, written from the definition of the product."""
    matrix = np.zeros((cone.dim, cone.dim))
    for kind, part in cone.slices():
        block = x[part]
        if kind == "orthant":
            matrix[part, part] = np.diag(block)
        else:
            matrix[part, part] = block[0] * np.eye(len(block))
            matrix[part.start, part] = block
            matrix[part, part.start] = block
    return matrix


def eigenvalues(x: np.ndarray, cone: ProductCone = CONE) -> np.ndarray:
    """Of L(x): x itself on an orthant, x0 -+ |x1| (and x0) on a second-order cone."""
    return np.linalg.eigvalsh(arrow(x, cone))


def test_addition_merges_orthants_and_counts():
    cone = ProductCone.orthant(2) + ProductCone.orthant(3) + ProductCone.second_order(4)
    assert cone.blocks == (("orthant", 5), ("second_order", 4))
    assert (cone.dim, cone.degree) == (9, 6)
    assert (ProductCone.orthant(0) + cone).blocks == cone.blocks
    with pytest.raises(ValueError, match="dim"):
        ProductCone.second_order(1)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_product_is_the_arrow_matrix_and_symmetric(seed):
    x, y = anywhere(seed), anywhere(seed + 1)
    # Sums of at most 4 products of size below 20: rounding below 100 eps.
    np.testing.assert_allclose(CONE.product(x, y), arrow(x) @ y, rtol=0, atol=400 * EPS)
    np.testing.assert_array_equal(CONE.product(x, y), CONE.product(y, x))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3))
def test_product_margin_and_inverse_scale(seed, factor):
    x, y = anywhere(seed), anywhere(seed + 1)
    scale = factor * 100 * EPS
    np.testing.assert_allclose(
        CONE.product(factor * x, y), factor * np.asarray(CONE.product(x, y)), rtol=0, atol=4 * scale
    )
    np.testing.assert_allclose(
        CONE.margin(factor * x), factor * float(CONE.margin(x)), rtol=0, atol=scale
    )
    inside = interior(seed)
    # The condition of the inverse is the ratio of eigenvalues, below 200 here.
    np.testing.assert_allclose(
        CONE.inverse(factor * inside), np.asarray(CONE.inverse(inside)) / factor, rtol=1e-12
    )
    # Where a ray leaves the cone does not depend on the unit of length.
    np.testing.assert_allclose(
        CONE.step_length(factor * inside, factor * x), CONE.step_length(inside, x), rtol=1e-10
    )


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_inverse_and_identity(seed):
    x = interior(seed)
    e = np.asarray(CONE.identity(float))
    expected = np.linalg.solve(arrow(x), e)
    # Condition below 400, entries below 20.
    np.testing.assert_allclose(CONE.inverse(x), expected, rtol=0, atol=1e4 * EPS * 20)
    np.testing.assert_array_equal(arrow(e), np.eye(CONE.dim))
    assert np.array_equal(CONE.product(x, e), x)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_margin_is_the_smallest_eigenvalue(seed):
    for x in (anywhere(seed), interior(seed)):
        np.testing.assert_allclose(
            CONE.margin(x), eigenvalues(x).min(), rtol=0, atol=100 * EPS * np.linalg.norm(x)
        )


def leaving_time(x: np.ndarray, dx: np.ndarray, longest: float) -> float:
    """Bisection on the smallest eigenvalue: a line leaves a convex set once."""
    if eigenvalues(x + longest * dx).min() >= 0:
        return np.inf
    low, high = 0.0, longest
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if eigenvalues(x + middle * dx).min() >= 0 else (low, middle)
    return low


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from(["any", "into", "out"]))
def test_step_length_against_bisection(seed, kind):
    x = interior(seed)
    dx = {"any": anywhere, "into": interior, "out": lambda s: -interior(s)}[kind](seed + 1)
    expected = leaving_time(x, dx, 1e6)
    found = float(CONE.step_length(x, dx))
    if np.isinf(expected):
        assert found > 1e6
        assert kind != "out"
    else:
        # x and dx are of size 1 and x is 0.05 inside; the rate at which the margin falls where
        # the ray leaves is at least 0.05 / found (the margin is concave along the ray), so
        # rounding of 1e-14 (1 + found) in the margin moves the time by a relative 1e-10.
        np.testing.assert_allclose(found, expected, rtol=1e-10 * (1 + expected))
        assert kind != "into"


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([1e-6, 1e-10, 1e-13]))
def test_step_length_through_the_cone_from_close_to_its_boundary(seed, margin):
    rng = np.random.default_rng(seed)
    z, dz = rng.normal(size=(2, 3))
    z, dz = z / np.linalg.norm(z), dz / np.linalg.norm(dz)
    x, inwards = np.array([1 + margin, *z]), np.array([z @ dz + 0.05, *dz])
    dx = inwards if inwards[0] < 0.95 else np.array([0.0, *-z])
    t = float(ProductCone.second_order(4).step_length(x, dx))

    def inside(t: float) -> bool:
        head, *tail = np.longdouble(x) + np.longdouble(t) * np.longdouble(dx)
        return head > np.linalg.norm(tail)

    assert inside((1 - 1e-8) * t)
    assert not inside((1 + 1e-8) * t)


@pytest.mark.parametrize(
    ("dx", "expected"),
    [
        ([-1.0, 0.0, 0.0], 2.0),  # down the axis, through the apex
        ([0.0, 0.0, 0.0], np.inf),
        ([1.0, 1.0, 0.0], np.inf),  # along the boundary
        ([-1.0, 1.0, 0.0], 1.0),  # straight at the boundary, against a generator
        ([0.0, 0.0, -4.0], 0.5),
    ],
)
def test_step_length_in_special_directions(dx, expected):
    cone, x = ProductCone.second_order(3), jnp.array([2.0, 0.0, 0.0])
    assert float(cone.step_length(x, jnp.array(dx))) == pytest.approx(expected, rel=4 * EPS)


@pytest.mark.parametrize("cone", [ProductCone.orthant(3), ProductCone.second_order(3)])
@pytest.mark.parametrize("dx", [[np.nan] * 3, [1.0, np.nan, 1.0]])
def test_there_is_no_step_along_a_direction_that_is_not_finite(cone, dx):
    """It must not pass for one that may be taken in full."""
    assert np.isnan(cone.step_length(jnp.array([2.0, 0.5, 0.5]), jnp.array(dx)))


def test_inverse_keeps_its_digits_near_the_boundary():
    """x = (t, |z|) with t - |z| = 1e-12: the exact inverse is (t, -z) / ((t - r)(t + r))."""
    gap = 2.0**-40  # so that t - |z| is exact
    x = np.array([1 + gap, 1.0, 0.0])
    expected = np.array([1 + gap, -1.0, 0.0]) / (gap * (2 + gap))
    np.testing.assert_allclose(ProductCone.second_order(3).inverse(x), expected, rtol=8 * EPS)


def test_methods_work_on_the_last_axis():
    x = np.stack([interior(k) for k in range(6)]).reshape(2, 3, CONE.dim)
    y = np.stack([anywhere(k) for k in range(6)]).reshape(2, 3, CONE.dim)
    for method in (CONE.product, CONE.step_length):
        found = np.asarray(method(x, y))
        for i, j in np.ndindex(2, 3):
            np.testing.assert_allclose(found[i, j], method(x[i, j], y[i, j]), rtol=1e-13)
    for method in (CONE.inverse, CONE.margin):
        found = np.asarray(method(x))
        for i, j in np.ndindex(2, 3):
            np.testing.assert_allclose(found[i, j], method(x[i, j]), rtol=1e-13)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 1e-7, 1e-2]))
def test_scaling_against_dense_arrow_matrices(seed, delta):
    s, z = interior(seed), interior(seed + 1)
    matrix = np.random.default_rng(seed + 2).normal(size=(CONE.dim, 5))
    scaling = CONE.scaling(jnp.asarray(s), jnp.asarray(z), delta)
    left = arrow(s + delta * z)
    # Entries of the result: at most |matrix| |L(z)| / 0.05 < 1e3; condition below 400.
    bound = 1e3 * 400 * EPS * 10
    np.testing.assert_allclose(
        scaling.divide(jnp.asarray(matrix)), np.linalg.solve(left, matrix), rtol=0, atol=bound
    )
    expected = np.linalg.solve(left, arrow(z) @ matrix)
    np.testing.assert_allclose(scaling.apply(jnp.asarray(matrix)), expected, rtol=0, atol=bound)


def test_regularised_scaling_is_bounded_at_the_boundary():
    """On the orthant z / (s + delta z) <= 1 / delta, however small the slack."""
    delta = 1e-7
    cone = ProductCone.orthant(3)
    s, z = jnp.array([1e-30, 1e-12, 1.0]), jnp.array([1.0, 1e3, 1e-9])
    diagonal = jnp.diag(cone.scaling(s, z, delta).apply(jnp.eye(3)))
    assert float(diagonal.max()) <= (1 + 4 * EPS) / delta
    np.testing.assert_allclose(diagonal, z / (s + delta * z), rtol=4 * EPS)


@settings(deadline=None)
@given(SEEDS, st.floats(1e-12, 10))
def test_central_pair_has_the_difference_and_the_product(seed, product):
    difference, expected = 10 * anywhere(seed), product * np.asarray(CONE.identity(float))
    s, z = (np.asarray(v) for v in CONE.central_pair(jnp.asarray(difference), expected))
    np.testing.assert_allclose(s - z, difference, atol=1e-13 * np.max(np.abs(difference)))
    rounding = 10 * EPS * np.linalg.norm(s) * np.linalg.norm(z)
    np.testing.assert_allclose(CONE.product(s, z), expected, atol=rounding + 1e-12 * product)
    assert CONE.margin(s) > 0 and CONE.margin(z) > 0


@pytest.mark.parametrize("head", [3.0, 0.0, -3.0])
def test_central_pair_of_a_difference_along_the_axis(head):
    """Which has no direction to turn to: s and z lie on the axis, s z = 1 and s - z = head."""
    cone, difference = ProductCone.second_order(4), jnp.array([head, 0.0, 0.0, 0.0])
    s, z = cone.central_pair(difference, cone.identity(float))
    root = np.sqrt(head**2 + 4)
    np.testing.assert_allclose(s, [(root + head) / 2, 0, 0, 0], rtol=1e-14)
    np.testing.assert_allclose(z, [(root - head) / 2, 0, 0, 0], rtol=1e-14)


@pytest.mark.parametrize("row", [0, 1, 2, 5, 6])
def test_a_scaling_in_two_parts_is_the_whole(row):
    cone = ProductCone.orthant(2) + ProductCone.second_order(3) + ProductCone.orthant(1)
    slack, dual = jnp.arange(1.0, 7.0), cone.identity() + 0.1
    slack = slack.at[2].set(20.0)
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)))
    whole = cone.scaling(slack, dual, 1e-6)
    for name in ("apply", "divide"):
        rows = (matrix[:row], matrix[row:])
        parts = [getattr(s, name)(v) for s, v in zip(whole.split_at(row), rows, strict=True)]
        np.testing.assert_allclose(jnp.concatenate(parts), getattr(whole, name)(matrix), rtol=1e-14)


def test_no_second_order_cone_is_cut():
    cone = ProductCone.orthant(2) + ProductCone.second_order(3)
    scaling = cone.scaling(cone.identity(), cone.identity(), 0.0)
    with pytest.raises(ValueError, match="split: row 3"):
        scaling.split_at(3)
