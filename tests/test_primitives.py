"""Primitives: every property is checked against an independent definition, on the whole table."""

import dataclasses
from functools import cache, partial

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conic import rules
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation
from shapes import (
    BOUNDED,
    CLOSED_FORM,
    CONVEX,
    ITERATIVE,
    OBLIQUE_A,
    OBLIQUE_B,
    PYRAMID,
    SHAPES,
    SOLIDS,
    TETRAHEDRON,
    TWIST,
    scaled,
)

from silico_py import Body
from silico_py.primitives import (
    Box,
    Bundle,
    Capsule,
    Cone,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    MinkowskiSum,
    PaddedPolytope,
    Polytope,
    Sphere,
)
from silico_py.primitives._conic_gauge import solve
from silico_py.solver.compilation import UNOPTIMIZED

POINTS = 24
CHUNK = 64


def _conic(shape, x):
    return solve(shape, x)


def _gauge_and_gradient(shape, x):
    return jax.value_and_grad(lambda y: shape.gauge(y))(x)


@cache
def compiled(method):
    """A method of a shape, over a batch of points or directions; compiled once for each class."""
    special = {"conic": _conic, "gauge_and_gradient": _gauge_and_gradient}
    one = special.get(method) or (lambda shape, *args: getattr(shape, method)(*args))
    return jax.jit(
        lambda shape, *args: jax.vmap(lambda *a: one(shape, *a))(*args),
        compiler_options=UNOPTIMIZED,
    )


def call(method, name, *args):
    """The method at every row of `args`, in chunks of one size so that nothing compiles twice."""
    shape = SHAPES[name] if isinstance(name, str) else name
    args = [np.asarray(a, float) for a in args]
    count = len(args[0])
    chunks = []
    for start in range(0, count, CHUNK):
        rows = np.minimum(np.arange(start, start + CHUNK), count - 1)
        chunks.append(compiled(method)(shape, *(jnp.asarray(a[rows]) for a in args)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *chunks)


def gauge_of(name, x):
    return call("gauge_and_gradient", name, x)[0]


def gradient_of(name, x):
    return call("gauge_and_gradient", name, x)[1]


def mass_of(shape):
    return _mass_properties(shape)


_mass_properties = jax.jit(lambda shape: shape.mass_properties(), compiler_options=UNOPTIMIZED)


def points_around(name, count=POINTS, seed=0):
    """Points inside and outside of the shape, on the scale of its own extents."""
    rng = np.random.default_rng(seed)
    draw = rng.normal(size=(count, 3))
    if name == "half_space":
        return jnp.asarray(draw)
    ends = np.asarray(call("support", name, directions(100)))
    middle = np.asarray(getattr(SHAPES[name], "reference", np.zeros(3)))
    return jnp.asarray(middle + draw * ends.std(axis=0))


def directions(count, seed=1):
    rng = np.random.default_rng(seed)
    d = rng.normal(size=(count, 3))
    return jnp.asarray(d / np.linalg.norm(d, axis=1, keepdims=True))


# ---------------------------------------------------------------- slack, cone, interior


@pytest.mark.parametrize("name", CONVEX)
def test_slack_is_affine_and_fills_its_cone(name):
    shape = SHAPES[name]
    rng = np.random.default_rng(2)
    n = shape.n_aux
    batch = rng.normal(size=(3, 4 + n))
    batch[2] = 0.3 * batch[0] + 0.7 * batch[1]
    values = call("slack", name, batch[:, :3], batch[:, 3], batch[:, 4:])
    assert values.shape == (3, shape.cone.dim)
    np.testing.assert_allclose(values[2], 0.3 * values[0] + 0.7 * values[1], atol=1e-12)


@pytest.mark.parametrize("name", CONVEX)
def test_interior_is_strictly_inside(name):
    shape = SHAPES[name]
    x = points_around(name)
    bound, eps = call("interior", name, x)
    keep = np.isfinite(bound)
    assert keep.sum() > 3
    for factor in (1.001, 1.5, 30.0):
        slack = call("slack", name, x, factor * bound, eps)
        assert np.all(np.asarray(shape.cone.margin(slack))[keep] > 0)


@pytest.mark.parametrize("name", SOLIDS)
def test_slack_grows_into_the_cone_with_alpha(name):
    """So that any alpha above the bound of `interior` is feasible, and at the reference too."""
    shape = SHAPES[name]
    zeros, eps = jnp.zeros(1), jnp.zeros((1, shape.n_aux))
    rate = call("slack", name, jnp.zeros((1, 3)), zeros + 1, eps)
    rate = rate - call("slack", name, jnp.zeros((1, 3)), zeros, eps)
    assert shape.cone.margin(rate)[0] > 0
    bound, eps = call("interior", name, shape.reference[None])
    assert bound[0] == 0
    slack = call("slack", name, shape.reference[None], bound + 1e-3, eps)
    assert shape.cone.margin(slack)[0] > 0


# ---------------------------------------------------------------- gauge


@pytest.mark.parametrize("name", SOLIDS)
def test_gauge_has_a_primal_and_a_dual_certificate(name):
    """gauge(x) = max_d d.(x-r) / (h(d) - d.r): none does better, its gradient attains it."""
    shape = SHAPES[name]
    x = points_around(name)
    r = shape.reference
    gauge = gauge_of(name, x)

    d = directions(400)
    reach = np.sum(np.asarray(d) * np.asarray(call("support", name, d) - r), axis=1)
    assert np.all(reach > 0)
    lower = np.max(np.asarray(x - r) @ np.asarray(d).T / reach, axis=1)
    assert np.all(lower <= gauge * (1 + 1e-8))

    d = gradient_of(name, x)
    reach = np.sum(np.asarray(d) * np.asarray(call("support", name, d) - r), axis=1)
    np.testing.assert_allclose(reach, 1, rtol=1e-6)
    np.testing.assert_allclose(np.sum(np.asarray(d) * np.asarray(x - r), axis=1), gauge, rtol=1e-6)


@pytest.mark.parametrize("name", CLOSED_FORM)
def test_gauge_is_the_edge_of_feasibility(name):
    """Feasible just above (interior's eps), infeasible just below for any eps (conic program)."""
    shape = SHAPES[name]
    x = points_around(name)
    gauge = gauge_of(name, x)
    bound, eps = call("interior", name, x)
    np.testing.assert_allclose(bound, gauge, rtol=1e-12)
    if shape.n_aux == 0:
        below = call("slack", name, x, gauge * (1 - 1e-9), eps)
        assert np.all(np.asarray(shape.cone.margin(below)) < 0)
    else:
        conic, _, _ = call("conic", name, x)
        np.testing.assert_allclose(conic, gauge, rtol=1e-9)


@pytest.mark.parametrize("name", ITERATIVE)
def test_iterative_gauge_is_feasible_below_its_bound_and_tight(name):
    shape = SHAPES[name]
    x = points_around(name)
    alpha, eps, dual = call("conic", name, x)
    slack = call("slack", name, x, alpha, eps)
    gap = np.sum(np.asarray(slack * dual), axis=1)
    assert np.all(np.asarray(shape.cone.margin(slack)) >= -1e-12)
    assert np.all(np.asarray(shape.cone.margin(dual)) >= -1e-9 * np.linalg.norm(dual, axis=1))
    assert np.all(gap < 1e-9 * np.asarray(alpha))
    bound, _ = call("interior", name, x)
    assert np.all(np.asarray(alpha) <= np.asarray(bound) * (1 + 1e-12))


@pytest.mark.parametrize("name", ["cone", "capsule", "padded_on_face", "sum_nested"])
def test_gauge_agrees_with_cvxpy(name):
    shape = SHAPES[name]
    size = 1 + shape.n_aux
    probe = np.concatenate([np.zeros((1, size)), np.eye(size)])
    for x in points_around(name, count=3, seed=5):
        rows = call("slack", name, np.tile(x, (size + 1, 1)), probe[:, 0], probe[:, 1:])
        offset, matrix = rows[0], (rows[1:] - rows[0]).T
        y = cp.Variable(size)
        program = cp.Problem(cp.Minimize(y[0]), rules(offset + matrix @ y, shape.cone))
        value = program.solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(gauge_of(name, x[None])[0], value, rtol=1e-6)


@pytest.mark.parametrize("name", SOLIDS)
def test_gauge_gradient_matches_finite_differences(name):
    shape = SHAPES[name]
    x = points_around(name, count=POINTS, seed=3)
    gradient = gradient_of(name, x)
    h = 1e-6 * float(shape.characteristic_length)
    if name in ITERATIVE:
        h *= 100
    here = np.asarray(gauge_of(name, x))
    ahead, behind = (
        np.stack([np.asarray(gauge_of(name, x + step)) - here for step in sign * h * np.eye(3)], 1)
        for sign in (1, -1)
    )
    size = np.linalg.norm(gradient, axis=1)
    # Some points happen to sit on an edge of the gauge: slopes differ on its two sides.
    smooth = np.linalg.norm(ahead + behind, axis=1) / h < 1e-3 * size
    error = np.linalg.norm(gradient - (ahead - behind) / (2 * h), axis=1)
    assert smooth.mean() > 0.8
    assert np.all(error[smooth] < 1e-4 * size[smooth])
    at_reference = gradient_of(name, shape.reference[None])
    assert np.all(np.isfinite(at_reference))
    assert gauge_of(name, shape.reference[None])[0] == 0


@pytest.mark.parametrize("name", ["polytope_far", "padded", "capsule", "cone", "sum_box_ellipsoid"])
def test_gauge_derivative_in_the_parameters(name):
    shape = SHAPES[name]
    x = points_around(name, count=1, seed=7)[0]
    rng = np.random.default_rng(8)
    tangent = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shape)
    gauge = jax.jit(jax.value_and_grad(lambda s: s.gauge(x)), compiler_options=UNOPTIMIZED)
    products = jax.tree.map(lambda g, t: jnp.sum(g * t), gauge(shape)[1], tangent)
    h = 1e-6
    plus, minus = (
        gauge(jax.tree.map(lambda a, t, s=s: a + s * h * t, shape, tangent))[0] for s in (1, -1)
    )
    exact = sum(jax.tree.leaves(products))
    np.testing.assert_allclose(exact, (plus - minus) / (2 * h), rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- support, mesh, radius


@cache
def mesh(name, resolution=32):
    return SHAPES[name].surface_mesh(resolution)


@pytest.mark.parametrize("name", BOUNDED)
def test_support_is_furthest_and_in_the_shape(name):
    shape = SHAPES[name]
    d = directions(60)
    s = call("support", name, d)
    vertices, _ = mesh(name)
    reach = np.sum(np.asarray(s * d), axis=1)
    size = float(shape.bounding_radius)
    assert np.all(np.max(vertices @ np.asarray(d).T, axis=0) <= reach + 1e-9 * size)
    if name in SOLIDS:
        np.testing.assert_allclose(gauge_of(name, s), 1, atol=1e-7)
    np.testing.assert_allclose(call("support", name, 7.0 * d), s, atol=1e-9 * size)
    assert np.all(np.isfinite(call("support", name, np.concatenate([np.eye(3), np.zeros((1, 3))]))))


@pytest.mark.parametrize("name", BOUNDED)
def test_mesh_is_closed_and_faces_outward(name):
    trimesh = pytest.importorskip("trimesh")
    vertices, faces = mesh(name)
    solid = trimesh.Trimesh(vertices, faces, process=False)
    assert solid.is_watertight and solid.is_winding_consistent
    assert np.all(solid.area_faces > 0)
    assert solid.volume > 0
    if name in SOLIDS:
        outward = (solid.triangles_center - np.asarray(SHAPES[name].reference)) * solid.face_normals
        assert np.all(outward.sum(axis=1) > 0)
        np.testing.assert_allclose(gauge_of(name, vertices[:200]), 1, atol=1e-6)


@pytest.mark.parametrize("resolution", [1, 3])
def test_half_space_patch(resolution):
    vertices, faces = SHAPES["half_space"].surface_mesh(resolution, extent=2.0)
    np.testing.assert_allclose(vertices @ np.array([0, 0.6, 0.8]), 0.3, atol=1e-12)
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    areas = np.cross(b - a, c - a) @ np.array([0, 0.6, 0.8]) / 2
    np.testing.assert_allclose(areas, 16 / (2 * resolution**2))  # of a square of side 4
    with pytest.raises(ValueError, match="infinite volume"):
        SHAPES["half_space"].mass_properties()
    with pytest.raises(ValueError, match="unbounded"):
        SHAPES["half_space"].support(jnp.ones(3))


def test_surfaces_belong_to_their_shapes():
    ground, box = SHAPES["half_space"], SHAPES["box"]
    on_ground = 0.25 * np.array([0.0, 0.6, 0.8])
    ground = HalfSpace(ground.normal, 0.25)
    assert ground.gauge(on_ground) == 0 and np.isinf(ground.gauge(1.01 * on_ground))
    assert ground.contains(on_ground) and not ground.contains(1.01 * on_ground)
    assert np.isinf(ground.interior(on_ground)[0])  # nothing strictly inside holds it
    corner = np.asarray(box.half_extents)
    assert box.contains(corner) and not box.contains(corner * [1, 1, 1.01])
    # And that furthest across a face is a corner, or an end: never the middle between them.
    for axis in np.eye(3):
        np.testing.assert_array_equal(np.abs(box.support(axis)), corner)
    for shape in (Capsule(0.1, 0.5), Cylinder(0.1, 0.5)):
        ends = np.abs(shape.support(np.array([1.0, 0.0, 0.0])))
        np.testing.assert_allclose(ends, [0.1, 0.0, 0.25])


@pytest.mark.parametrize("name", BOUNDED)
def test_bounding_radius(name):
    shape = SHAPES[name]
    vertices, _ = mesh(name)
    furthest = np.max(np.linalg.norm(vertices, axis=1))
    assert furthest <= float(shape.bounding_radius) * (1 + 1e-9)
    if name in CLOSED_FORM or name.startswith("padded"):
        np.testing.assert_allclose(shape.bounding_radius, furthest, rtol=0.02)
    if name in SOLIDS:
        about = np.max(np.linalg.norm(vertices - np.asarray(shape.reference), axis=1))
        assert about <= float(shape.characteristic_length) * (1 + 1e-9)


# ---------------------------------------------------------------- mass properties

# Relative; the sums' own quadrature is approximate, and so is their mesh.
MASS_TOLERANCE = {
    "sum_box_ellipsoid": 5e-3,
    "sum_nested": 5e-3,
}


def _mesh_properties(trimesh, name, resolution):
    body = trimesh.Trimesh(*mesh(name, resolution), process=False)
    return np.concatenate([[body.volume], body.center_mass, np.ravel(body.moment_inertia)])


@pytest.mark.parametrize("name", BOUNDED)
def test_mass_properties_match_the_mesh(name):
    """trimesh's integrals over inscribed meshes, extrapolated (the error is quadratic)."""
    trimesh = pytest.importorskip("trimesh")
    coarse, fine = (_mesh_properties(trimesh, name, n) for n in (32, 64))
    expected = (4 * fine - coarse) / 3
    volume, center, inertia = mass_of(SHAPES[name])
    size = float(SHAPES[name].characteristic_length)
    tolerance = MASS_TOLERANCE.get(name, 1e-4)
    np.testing.assert_allclose(volume, expected[0], rtol=tolerance)
    np.testing.assert_allclose(center, expected[1:4], atol=tolerance * size)
    scale = np.max(np.abs(np.diag(inertia)))
    np.testing.assert_allclose(
        np.ravel(inertia), expected[4:], rtol=2 * tolerance, atol=2 * tolerance * scale
    )


@pytest.mark.parametrize("name", ["cone", "capsule", "cylinder", "polytope_far", "bundle"])
def test_mass_properties_match_monte_carlo(name):
    """Points drawn in a box around the shape, within five standard errors."""
    shape = SHAPES[name]
    vertices, _ = mesh(name)
    low, high = vertices.min(axis=0) - 0.02, vertices.max(axis=0) + 0.02
    count = 20_000
    x = np.random.default_rng(9).uniform(low, high, size=(count, 3))
    inside = np.asarray(compiled("contains")(shape, jnp.asarray(x)))
    volume, center, inertia = mass_of(shape)
    offset = x - np.asarray(center)
    outer = np.einsum("ki,kj->kij", offset, offset)
    turning = np.trace(outer, axis1=1, axis2=2)[:, None, None] * np.eye(3) - outer
    box = np.prod(high - low)
    for expected, sample in (
        (volume, np.ones(count)),
        (np.zeros(3), offset),
        (inertia, turning),
    ):
        weighted = np.where(inside.reshape(-1, *[1] * (sample.ndim - 1)), box * sample, 0)
        error = 5 * weighted.std(axis=0) / np.sqrt(count)
        assert np.all(np.abs(weighted.mean(axis=0) - np.asarray(expected)) <= error + 1e-12)


def test_padded_polytope_is_exact():
    """Box: Steiner's formula; any core: the limit of a large ball; derivatives by differences."""
    h, r = np.array([0.2, 0.3, 0.1]), 0.07
    A, b = np.concatenate([np.eye(3), -np.eye(3)]), np.concatenate([h, h])
    padded = PaddedPolytope(A, b, r)
    volume, center, inertia = mass_of(padded)
    sides = 8 * (h[0] * h[1] + h[1] * h[2] + h[2] * h[0])
    exact = 8 * np.prod(h) + sides * r + 2 * np.pi * r**2 * h.sum() + 4 / 3 * np.pi * r**3
    np.testing.assert_allclose(volume, exact, rtol=1e-13)
    np.testing.assert_allclose(center, 0, atol=1e-14)
    np.testing.assert_allclose(inertia - np.diag(np.diag(inertia)), 0, atol=1e-15)

    tiny = PaddedPolytope(core=scaled(SHAPES["polytope_on_face"], 1e-6), radius=1.0)
    ball = mass_of(Sphere(1.0))
    np.testing.assert_allclose(mass_of(tiny).inertia, ball.inertia, atol=1e-4)

    shape = SHAPES["padded"]

    def inertia_of(s):
        return mass_of(s).inertia

    rng = np.random.default_rng(1)
    tangent = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shape)
    _, exact = jax.jvp(inertia_of, (shape,), (tangent,))
    plus, minus = (
        inertia_of(jax.tree.map(lambda a, t, s=s: a + s * 1e-6 * t, shape, tangent))
        for s in (1, -1)
    )
    np.testing.assert_allclose(exact, (plus - minus) / 2e-6, rtol=1e-5, atol=1e-8)


def test_sum_quadrature_accuracy():
    """Against the exact layer around a polytope, and the exact sum of two boxes."""
    exact = mass_of(SHAPES["padded"])
    core = Polytope(OBLIQUE_A, OBLIQUE_B)
    found = mass_of(MinkowskiSum(core, Sphere(0.1)))
    np.testing.assert_allclose(found.volume, exact.volume, rtol=1e-3)
    np.testing.assert_allclose(found.center_of_mass, exact.center_of_mass, atol=1e-4)
    np.testing.assert_allclose(
        found.inertia, exact.inertia, atol=2e-3 * float(jnp.max(exact.inertia))
    )
    boxes = mass_of(MinkowskiSum(Box((0.1, 0.2, 0.3)), Box((0.3, 0.01, 0.1))))
    np.testing.assert_allclose(boxes.volume, 8 * 0.4 * 0.21 * 0.4, rtol=1e-3)
    smooth = mass_of(MinkowskiSum(Sphere(0.1), Sphere(0.2)))
    np.testing.assert_allclose(smooth.inertia, Sphere(0.3).mass_properties().inertia, atol=1e-6)


@pytest.mark.parametrize(
    "pair", [("box", "sphere"), ("box", "cylinder"), ("capsule", "box"), ("cylinder", "sphere")]
)
def test_moments_of_a_symmetric_sum_are_symmetric(pair):
    made = {
        "box": Box((0.2, 0.1, 0.3)),
        "sphere": Sphere(0.1),
        "cylinder": Cylinder(0.2, 0.3),
        "capsule": Capsule(0.1, 0.3),
    }
    found = mass_of(MinkowskiSum(*(made[name] for name in pair)))
    np.testing.assert_allclose(found.center_of_mass, 0, atol=1e-15)
    inertia = np.asarray(found.inertia)
    np.testing.assert_allclose(inertia, np.diag(np.diag(inertia)), atol=1e-15)


# ---------------------------------------------------------------- jax: batches, jit, derivatives

FAMILIES = {
    "box": lambda t: Box((t, 0.2, 0.3)),
    "ellipsoid": lambda t: Ellipsoid((0.2, t, 0.3)),
    "capsule": lambda t: Capsule(t, 0.4),
    "cylinder": lambda t: Cylinder(0.3, t),
    "cone": lambda t: Cone(t, 0.4),
    "sphere": Sphere,
    "polytope": lambda t: Polytope(OBLIQUE_A, OBLIQUE_B * (1 + 0 * t) + 0.1 * t),
    "padded": lambda t: PaddedPolytope(OBLIQUE_A, OBLIQUE_B, t),
    "sum": lambda t: MinkowskiSum(Box((0.1, 0.2, 0.3)), Sphere(t)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_stacked_shapes_batch(family):
    shapes = [FAMILIES[family](t) for t in (0.15, 0.2, 0.35)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *shapes)
    x = jnp.array([0.1, -0.25, 0.2])

    def report(shape):
        bound, eps = shape.interior(x)
        gauge = bound if family == "sum" else shape.gauge(x)
        return gauge, bound, shape.slack(x, 2.0, eps), shape.support(x)

    together = jax.jit(jax.vmap(report), compiler_options=UNOPTIMIZED)(stacked)
    one = jax.jit(report, compiler_options=UNOPTIMIZED)
    for k, shape in enumerate(shapes):
        for batched, single in zip(together, one(shape), strict=True):
            np.testing.assert_allclose(batched[k], single, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_construction_under_grad_and_jit(family):
    x = jnp.array([0.3, 0.25, 0.2])
    build = FAMILIES[family]

    def value(t):
        return jnp.sum(build(t).support(x) ** 2)

    t = jnp.asarray(0.2)
    expected = (value(t + 1e-6) - value(t - 1e-6)) / 2e-6
    np.testing.assert_allclose(jax.grad(value)(t), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(t), expected, rtol=1e-6, atol=1e-8)


def test_polytope_structure_is_kept_by_replace_inside_jit():
    shape = SHAPES["polytope_oblique"]
    volume = jax.jit(lambda b: dataclasses.replace(shape, b=b).mass_properties().volume)
    np.testing.assert_allclose(volume(shape.b), shape.mass_properties().volume, rtol=1e-13)
    with pytest.raises(ValueError, match="traced"):
        jax.jit(lambda b: Polytope(OBLIQUE_A, b).mass_properties().volume)(shape.b)
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda v: Polytope.from_vertices(v).b)(jnp.asarray(TETRAHEDRON))
    middle = jnp.array([0.05, 0.02, -0.01])
    kept = jax.jit(lambda b: Polytope(OBLIQUE_A, b, reference=middle).reference)(shape.b)
    np.testing.assert_array_equal(kept, middle)


CUBE = np.stack(np.meshgrid(*3 * [[-0.5, 0.5]]), axis=-1).reshape(-1, 3)
SMALL_CLOUD = np.random.default_rng(0).uniform(-0.05, 0.05, (12, 3))


@pytest.mark.parametrize("kind", ["polytope", "padded", "sum"])
def test_mass_properties_far_from_the_origin_of_the_frame(kind):
    def at(offset):
        core = Polytope.from_vertices(SMALL_CLOUD + offset)
        padded, added = PaddedPolytope(core=core, radius=0.02), MinkowskiSum(core, Sphere(0.02))
        return mass_of({"polytope": core, "padded": padded, "sum": added}[kind])

    offset = np.array([1e4, -3e3, 30.0])
    near, far = at(0.0), at(offset)
    np.testing.assert_allclose(far.volume, near.volume, rtol=1e-8)
    np.testing.assert_allclose(far.center_of_mass - offset, near.center_of_mass, atol=1e-9)
    np.testing.assert_allclose(far.inertia, near.inertia, atol=1e-8 * np.abs(near.inertia).max())


@pytest.mark.parametrize("distance", [1e4, 3e6, 1e8])
def test_hulls_far_from_the_origin_of_the_frame(distance):
    """Corners of a cube are rounded there, so that those of a face lie in no plane."""
    turns = Rotation.random(10, random_state=0).as_matrix()
    for turn in turns:
        corners = CUBE @ turn.T + distance * np.array([1.0, -0.7, 0.4])
        shape = Polytope.from_vertices(corners)
        assert len(shape.b) == 6
        gaps = np.linalg.norm(np.array(shape.vertices)[:, None] - corners, axis=-1)
        assert gaps.min(axis=0).max() < 10 * np.finfo(float).eps * distance
        assert gaps.min(axis=1).max() < 10 * np.finfo(float).eps * distance


def test_the_gauge_of_a_padded_hull_is_one_on_its_surface():
    rng = np.random.default_rng(4)
    points, directions = rng.normal(size=(20, 3)) * [0.1, 0.2, 0.05], rng.normal(size=(50, 3))
    shape = PaddedPolytope(core=Polytope.from_vertices(points), radius=0.03)
    surface = jax.vmap(shape.support)(jnp.asarray(directions))
    gauges = jax.jit(jax.vmap(shape.gauge), compiler_options=UNOPTIMIZED)(surface)
    np.testing.assert_allclose(gauges, 1, atol=1e-9)


def test_bodies_of_shapes_in_single_precision():
    points = SMALL_CLOUD.astype(np.float32)
    turn = np.array([0.8, 0.6, 0, 0], np.float32)
    for shapes in (
        [Polytope.from_vertices(points)],
        [(Box(points[0] ** 2 + 0.1), (0, 0, 0), turn)],
    ):
        inertia = Body("b", shapes, mass=1.0).inertia
        np.testing.assert_array_equal(inertia, inertia.T)


def test_polytope_from_vertices_follows_its_vertices():
    def volume(v):
        return Polytope.from_vertices(v).mass_properties().volume

    points = jnp.asarray(TETRAHEDRON)
    a, b, c, d = TETRAHEDRON
    np.testing.assert_allclose(
        volume(points), abs(np.linalg.det([b - a, c - a, d - a])) / 6, rtol=1e-12
    )
    gradient = jax.grad(volume)(points)
    # Moving one corner of a tetrahedron changes the volume by a third of the opposite area.
    opposite = np.cross(TETRAHEDRON[1] - TETRAHEDRON[0], TETRAHEDRON[2] - TETRAHEDRON[0]) / 6
    np.testing.assert_allclose(np.abs(gradient[3]), np.abs(opposite), atol=1e-12)


UP = jnp.array([0.0, 0.0, 1.0])
OCTAHEDRON = np.array([[x, y, z] for x in (1, -1) for y in (1, -1) for z in (1, -1)], float)
CLOUD = np.random.default_rng(3).normal(size=(12, 3)) * [0.3, 0.2, 0.1] + [0.1, 0.0, 0.05]
CROWDED = {  # more than three faces meet in a vertex
    "octahedron": Polytope(OCTAHEDRON, 0.3 * np.ones(8)),
    "pyramid": SHAPES["polytope_on_face"],
    "hull": Polytope.from_vertices(CLOUD),
}


@pytest.mark.parametrize("name", CROWDED)
def test_volume_grows_by_the_area_of_each_face(name):
    shape = CROWDED[name]
    planes, points = np.asarray(shape.A), np.asarray(shape.vertices)
    areas = []
    for normal, height in zip(planes, np.asarray(shape.b), strict=True):
        across = np.linalg.svd(normal[None])[2][1:]
        ring = points[np.abs(points @ normal - height) < 1e-9]
        areas.append(ConvexHull(ring @ across.T).volume)
    rates = jax.grad(lambda b: dataclasses.replace(shape, b=b).mass_properties().volume)(shape.b)
    np.testing.assert_allclose(rates, areas, rtol=1e-9)


@pytest.mark.parametrize("solid", ["core", "padded", "sum"])
@pytest.mark.parametrize("name", CROWDED)
def test_mass_follows_each_face(name, solid):
    """By A and b, against differences of the core whose structure is found anew.

    A padding of 1e-5 counts for nothing: corners of more than three faces have no derivative.
    """
    shape = CROWDED[name]
    rounded = {
        "core": lambda core: core,
        "padded": lambda core: PaddedPolytope(core=core, radius=1e-5),
        "sum": lambda core: MinkowskiSum(core, Sphere(1e-5)),
    }

    def values(solid, A, b):
        mass = rounded[solid](dataclasses.replace(shape, A=A, b=b)).mass_properties()
        return jnp.concatenate([mass.volume[None], mass.center_of_mass, mass.inertia.ravel()])

    rng = np.random.default_rng(0)
    start = (shape.A, shape.b)
    way = tuple(jnp.asarray(rng.normal(size=v.shape)) for v in start)
    _, found = jax.jvp(partial(values, solid), start, way)
    ends = ([v + s * 1e-6 * w for v, w in zip(start, way, strict=True)] for s in (1, -1))
    plus, minus = (values("core", *end) for end in ends)
    atol = 1e-7 if solid == "core" else 5e-4
    np.testing.assert_allclose(found, (plus - minus) / 2e-6, atol=atol * np.abs(found).max())


@pytest.mark.parametrize("kind", ["core", "padded", "sum"])
def test_derivatives_keep_their_precision(kind):
    """In float32, where x64 is on, too; and numbers of two kinds never meet."""
    core = jax.tree.map(jnp.float32, CROWDED["pyramid"])
    shape = {
        "core": core,
        "padded": PaddedPolytope(core=core, radius=0.1),
        "sum": MinkowskiSum(core, Sphere(jnp.float32(0.1))),
    }[kind]

    def rates(shape):
        return jax.jvp(lambda s: s.mass_properties().inertia, (shape,), (shape,))[1]

    with jax.numpy_dtype_promotion("strict"):
        assert jax.eval_shape(rates, shape).dtype == jnp.float32


def test_padding_follows_faces_edges_and_corners():
    """Of a solid with three faces in each corner: by A, b and the radius, and twice by b."""
    shape = PaddedPolytope(core=SHAPES["polytope_tetrahedron"], radius=0.1)

    def inertia(A, b, radius):
        core = dataclasses.replace(shape.core, A=A, b=b)
        return PaddedPolytope(core=core, radius=radius).mass_properties().inertia

    start, rng = (shape.A, shape.b, shape.radius), np.random.default_rng(0)
    for k, value in enumerate(start):
        way = jnp.asarray(rng.normal(size=value.shape))

        def along(t, k=k, way=way):
            return inertia(*(v + t * way if j == k else v for j, v in enumerate(start)))

        for function in [along, jax.jacfwd(along)] if k == 1 else [along]:
            value = jax.jit(function, compiler_options=UNOPTIMIZED)
            expected = (value(1e-5) - value(-1e-5)) / 2e-5
            found = jax.jit(jax.jacfwd(function), compiler_options=UNOPTIMIZED)(0.0)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_pieces_of_a_bundle_can_be_replaced():
    shape, moved = SHAPES["bundle"], jnp.array([[0.0, 0.0, 0.1], [0.0, 0.0, 0.5]])
    changed = dataclasses.replace(shape, positions=moved)
    np.testing.assert_array_equal(changed.positions, moved)
    np.testing.assert_array_equal(changed.orientations, shape.orientations)
    lift = jax.grad(lambda z: dataclasses.replace(shape, positions=moved + z).support(UP)[2])(0.0)
    assert lift == 1
    with pytest.raises(ValueError, match="equally many"):
        dataclasses.replace(shape, shapes=shape.shapes[:1])


def test_polytope_rows_are_normalised_and_the_frame_kept():
    lengths = np.linspace(0.5, 3, len(OBLIQUE_B))
    shape = Polytope(OBLIQUE_A * lengths[:, None], OBLIQUE_B * lengths)
    np.testing.assert_allclose(np.linalg.norm(shape.A, axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(shape.vertices, SHAPES["polytope_oblique"].vertices, atol=1e-13)
    far, near = SHAPES["polytope_far"], SHAPES["polytope_on_face"]
    shift = np.array([2.0, -1.0, 0.5])
    np.testing.assert_allclose(far.reference, near.reference + shift, atol=1e-12)
    np.testing.assert_allclose(
        far.gauge(near.reference + shift + 0.1), near.gauge(near.reference + 0.1)
    )
    assert not np.any(np.asarray(SHAPES["polytope_oblique"].reference))
    # An octahedron has four faces at each vertex; redundant and repeated rows change nothing.
    octahedron = Polytope.from_vertices(np.concatenate([np.eye(3), -np.eye(3)]))
    assert octahedron.A.shape == (8, 3) and octahedron.vertices.shape == (6, 3)
    np.testing.assert_allclose(octahedron.mass_properties().volume, 4 / 3, rtol=1e-13)
    extra = Polytope(
        np.r_[OBLIQUE_A, [[0, 0, 1.0]], [[0, 1.0, 0]]], np.r_[OBLIQUE_B, 9.0, OBLIQUE_B[1]]
    )
    np.testing.assert_allclose(
        extra.mass_properties().inertia,
        SHAPES["polytope_oblique"].mass_properties().inertia,
        atol=1e-14,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_pytree(name):
    shape = SHAPES[name]
    leaves, structure = jax.tree.flatten(shape)
    for leaf in leaves:
        assert leaf.dtype == jnp.float64 and not leaf.weak_type
    again = jax.tree.unflatten(structure, leaves)
    assert jax.tree.structure(again) == structure
    jax.tree.unflatten(structure, [None] * len(leaves))  # validation does not run here
    jax.tree.unflatten(structure, [-leaf for leaf in leaves])
    assert all(path for path, _ in jax.tree_util.tree_leaves_with_path(shape))
    assert repr(shape).startswith(type(shape).__name__ + "(")
    assert "Traced" not in repr(shape)
    for placeholder in (None, True, jax.ShapeDtypeStruct((), float)):
        assert repr(jax.tree.map(lambda leaf, p=placeholder: p, shape)).startswith(
            type(shape).__name__
        )
    with pytest.raises(dataclasses.FrozenInstanceError):
        shape.extra = 1


def test_dtype_follows_the_arrays_given():
    assert Sphere(jnp.float32(0.1)).dtype == Sphere(np.float32(0.1)).dtype == jnp.float32
    assert Cone(np.float32(0.1), 0.2).dtype == jnp.float32
    assert Box(jnp.ones(3, jnp.float32)).mass_properties().inertia.dtype == jnp.float32
    assert Capsule(1, 2).dtype == jnp.float64
    single = PaddedPolytope(OBLIQUE_A.astype(np.float32), OBLIQUE_B.astype(np.float32), 0.1)
    x = jnp.array([0.5, 0.4, 0.1], jnp.float32)
    gauge = jax.jit(lambda s, x: s.gauge(x), compiler_options=UNOPTIMIZED)(single, x)
    assert gauge.dtype == jnp.float32
    np.testing.assert_allclose(gauge, gauge_of("padded", x[None])[0], rtol=1e-4)


# ---------------------------------------------------------------- scaling

FACTORS = st.floats(1e-3, 1e3)


@cache
def _scaling_report(name):
    shape = SHAPES[name]
    x = jnp.array([0.13, -0.21, 0.17])

    @partial(jax.jit, compiler_options=UNOPTIMIZED)
    def report(factor):
        grown = scaled(shape, factor)
        mass = grown.mass_properties()
        if name == "bundle":
            return mass, jnp.zeros(4)
        about = shape.reference
        gauges = jnp.stack(
            [
                grown.gauge(factor * x),
                shape.gauge(about + factor * (x - about)) / factor,
                grown.bounding_radius / factor,
                grown.characteristic_length / factor,
            ]
        )
        return mass, gauges

    return report, report(1.0)


@pytest.mark.parametrize(
    "name",
    [
        "box",
        "ellipsoid",
        "sphere",
        "capsule",
        "cylinder",
        "cone",
        "polytope_far",
        "padded",
        "bundle",
    ],
)
@settings(max_examples=25, deadline=None)
@given(factor=FACTORS)
def test_scaling(name, factor):
    report, (mass, gauges) = _scaling_report(name)
    grown, grown_gauges = report(factor)
    np.testing.assert_allclose(grown_gauges, gauges, rtol=1e-8)
    np.testing.assert_allclose(grown.volume, factor**3 * mass.volume, rtol=1e-9)
    np.testing.assert_allclose(
        grown.center_of_mass, factor * mass.center_of_mass, rtol=1e-9, atol=1e-12 * factor
    )
    np.testing.assert_allclose(
        grown.inertia, factor**5 * mass.inertia, rtol=1e-8, atol=1e-12 * factor**5
    )


# ---------------------------------------------------------------- bundles


def test_bundle_flattens_nested_pieces():
    nested = SHAPES["bundle_nested"]
    pieces = nested.pieces
    assert [type(shape) for shape, _, _ in pieces] == [Cylinder, Box, Sphere]
    for _, _, orientation in pieces:
        np.testing.assert_allclose(np.linalg.norm(orientation), 1, rtol=1e-12)
    inner = SHAPES["bundle"]
    # A point of the inner bundle, moved as the outer one moves it.
    w, v = TWIST[0], np.array(TWIST[1:])
    point = np.array([0.02, 0.01, 0.45])
    moved = point + 2 * np.cross(v, np.cross(v, point) + w * point) + np.array([0.3, 0.1, -0.2])
    for shift in (np.zeros(3), np.array([0.0, 0.0, 0.3])):
        turned = moved + shift
        back = turned - np.array([0.3, 0.1, -0.2])
        back = back + 2 * np.cross(-v, np.cross(-v, back) + w * back)
        assert bool(nested.contains(jnp.asarray(turned))) == bool(inner.contains(jnp.asarray(back)))
    assert bool(nested.contains(jnp.asarray(moved)))


def test_no_derivative_of_a_bundle_is_along_the_length_of_a_quaternion():
    bundle = Bundle([(Box((0.3, 0.2, 0.1)), (0.1, 0, 0), (0.5, 0.5, -0.5, 0.5))])

    def furthest(length):
        turned = dataclasses.replace(bundle, orientations=length * bundle.orientations)
        return turned.support(jnp.array([1.0, 2.0, 3.0]))

    point, slope = jax.jvp(furthest, (1.0,), (1.0,))
    np.testing.assert_allclose(point, bundle.support(jnp.array([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(slope, 0, atol=1e-15)


def test_bundle_mass_counts_overlaps_twice():
    ball = Sphere(0.2)
    identity = (1.0, 0.0, 0.0, 0.0)
    twice = Bundle([(ball, (0, 0, 0), identity), (ball, (0, 0, 0), identity)]).mass_properties()
    np.testing.assert_allclose(twice.inertia, 2 * ball.mass_properties().inertia, rtol=1e-14)


@pytest.mark.parametrize("counts", [(2, 2, 1), (1, 1, 1), (3, 1, 2)])
def test_a_split_box_is_the_box(counts):
    box = Box((0.25, 0.3, 0.2))
    split = box.split(counts)
    assert len(split.pieces) == np.prod(counts)
    for ours, theirs in zip(split.mass_properties(), box.mass_properties(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-16)
    points = np.random.default_rng(0).uniform(-0.35, 0.35, (400, 3))
    inside = (np.abs(points) <= box.half_extents).all(axis=1)
    np.testing.assert_array_equal(jax.vmap(split.contains)(points), inside)
    np.testing.assert_allclose(
        jax.vmap(split.support)(points), jax.vmap(box.support)(points), atol=1e-15
    )


def test_a_box_splits_inside_of_derivatives():
    def volumes(half_extents):
        pieces = Box(half_extents).split().pieces
        return jnp.stack([piece.mass_properties().volume for piece, _, _ in pieces])

    sizes = jnp.array([0.1, 0.2, 0.4])
    slopes = jax.jit(jax.jacfwd(volumes))(sizes)
    np.testing.assert_allclose(slopes, np.tile(2 * np.prod(sizes) / sizes, (4, 1)), rtol=1e-14)
    assert Box(np.float32([0.1, 0.2, 0.3])).split().dtype == np.float32


# ---------------------------------------------------------------- bad input

IDENTITY = (1.0, 0.0, 0.0, 0.0)
CUBE_A = np.concatenate([np.eye(3), -np.eye(3)])
BAD = {
    "negative radius": (lambda: Sphere(-1.0), "radius: must be positive"),
    "zero radius": (lambda: Capsule(0.0, 1.0), "radius: must be positive"),
    "zero length": (lambda: Capsule(0.1, 0.0), "length: must be positive"),
    "nan length": (lambda: Cylinder(0.1, np.nan), "length: has NaN"),
    "infinite height": (lambda: Cone(0.1, np.inf), "height: has NaN or inf"),
    "two radii": (lambda: Ellipsoid((1.0, 2.0)), r"radii: expected shape \(3,\)"),
    "ragged": (lambda: Ellipsoid((1.0, (2.0, 3.0), 1.0)), "radii: expected numbers"),
    "text": (lambda: Sphere("big"), "radius: expected real numbers"),
    "none": (lambda: Sphere(None), "radius: expected"),
    "complex": (lambda: Sphere(1j), "radius: expected real"),
    "flat box": (lambda: Box((1.0, 0.0, 1.0)), "half_extents: must be positive"),
    "split into two": (lambda: Box((1, 1, 1)).split((2, 2)), "counts: expected three ints"),
    "split by a number": (lambda: Box((1, 1, 1)).split(2), "counts: expected ints"),
    "split into none": (lambda: Box((1, 1, 1)).split((2, 0, 1)), r"counts\[1\]: must be an int"),
    "split by halves": (lambda: Box((1, 1, 1)).split((2, 2, 0.5)), r"counts\[2\]: must be an int"),
    "scalar box": (lambda: Box(1.0), "half_extents: expected shape"),
    "long normal": (lambda: HalfSpace((0.0, 0.0, 2.0), 0.0), "normal: must have norm 1"),
    "zero normal": (lambda: HalfSpace((0.0, 0.0, 0.0), 0.0), "normal: must have norm 1"),
    "nan offset": (lambda: HalfSpace((0.0, 0.0, 1.0), np.nan), "offset: has NaN"),
    "A of shape (3, 2)": (lambda: Polytope(np.ones((3, 2)), np.ones(3)), "A: expected shape"),
    "b too short": (lambda: Polytope(CUBE_A, np.ones(5)), "b: expected shape"),
    "zero row": (lambda: Polytope(np.r_[CUBE_A, np.zeros((1, 3))], np.ones(7)), "row 6 is zero"),
    "nan row": (lambda: Polytope(CUBE_A * np.nan, np.ones(6)), "A: has NaN"),
    "empty polytope": (lambda: Polytope(CUBE_A, -np.ones(6)), "empty"),
    "flat polytope": (lambda: Polytope(CUBE_A, [1, 1, 0, 1, 1, 0]), "no volume"),
    "unbounded below": (lambda: Polytope(CUBE_A[:5], np.ones(5)), "unbounded"),
    "one row": (lambda: Polytope([[1.0, 0, 0]], [1.0]), "unbounded"),
    "slab": (lambda: Polytope([[1.0, 0, 0], [-1.0, 0, 0]], [1.0, 1.0]), "unbounded"),
    "prism": (lambda: Polytope(CUBE_A[[0, 1, 3, 4]], np.ones(4)), "unbounded"),
    "reference outside": (
        lambda: Polytope(CUBE_A, np.ones(6), reference=(3.0, 0, 0)),
        "reference: must lie strictly inside",
    ),
    "three vertices": (lambda: Polytope.from_vertices(np.eye(3)), "at least 4"),
    "coplanar vertices": (
        lambda: Polytope.from_vertices([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0]]),
        "one plane",
    ),
    "flat hull": (
        lambda: Polytope.from_vertices(PYRAMID * [1, 1, 1e-9]),
        "v: the hull is too flat",
    ),
    "hull too far away": (lambda: Polytope.from_vertices(PYRAMID + 1e9), "v: the hull is too flat"),
    "nan vertex": (lambda: Polytope.from_vertices(PYRAMID * np.nan), "v: has NaN"),
    "padding below zero": (lambda: PaddedPolytope(CUBE_A, np.ones(6), -0.1), "radius"),
    "padding missing": (lambda: PaddedPolytope(CUBE_A, np.ones(6)), "radius: missing"),
    "padding without core": (lambda: PaddedPolytope(radius=0.1), "A, b: give both"),
    "two cores": (
        lambda: PaddedPolytope(CUBE_A, np.ones(6), 0.1, core=SHAPES["polytope_oblique"]),
        "core: give either",
    ),
    "reference on a face": (
        lambda: Polytope(CUBE_A, np.ones(6), reference=(1.0, 0, 0)),
        "reference: must lie strictly inside",
    ),
    "topology of more faces": (
        lambda: jax.jit(lambda b: Polytope(CUBE_A, b, topology=CROWDED["octahedron"].topology).b)(
            np.ones(6)
        ),
        "topology: has more faces",
    ),
    "pieces of two precisions": (
        lambda: Bundle([(Sphere(r), (0, 0, 0), IDENTITY) for r in (0.1, np.float32(0.1))]),
        r"pieces\[1\]: has dtype float32",
    ),
    "sum of two precisions": (
        lambda: MinkowskiSum(Sphere(0.1), Sphere(np.float32(0.1))),
        "second: has dtype float32",
    ),
    "padded box": (lambda: PaddedPolytope(core=Box((1, 1, 1)), radius=0.1), "core: expected"),
    "sum with ground": (
        lambda: MinkowskiSum(Sphere(1.0), HalfSpace((0, 0, 1.0), 0.0)),
        "second: .* unbounded",
    ),
    "sum with bundle": (
        lambda: MinkowskiSum(SHAPES["bundle"], Sphere(1.0)),
        "first: expected a convex primitive",
    ),
    "sum with number": (lambda: MinkowskiSum(Sphere(1.0), 2.0), "second: expected a convex"),
    "empty bundle": (lambda: Bundle([]), "at least one piece"),
    "bundle twice": (
        lambda: Bundle([(Sphere(1.0), (0, 0, 0), IDENTITY)], shapes=[Sphere(2.0)]),
        "pieces: give either",
    ),
    "bundle of a number": (
        lambda: Bundle(shapes=3, positions=[(0, 0, 0)], orientations=[IDENTITY]),
        "shapes: expected",
    ),
    "bundle of places": (lambda: Bundle([(0, 0, 0)]), r"pieces\[0\]: expected a shape or \(shape"),
    "bundle of numbers": (lambda: Bundle([(1.0, (0, 0, 0), IDENTITY)]), r"pieces\[0\]"),
    "ground in bundle": (
        lambda: Bundle([(HalfSpace((0, 0, 1.0), 0.0), (0, 0, 0), IDENTITY)]),
        "bounded primitive",
    ),
    "zero quaternion": (
        lambda: Bundle([(Sphere(1.0), (0, 0, 0), (0, 0, 0, 0))]),
        r"pieces\[0\] orientation: must have norm 1",
    ),
    "long quaternion": (
        lambda: Bundle([(Sphere(1.0), (0, 0, 0), (1, 0, 0, 1e-2))]),
        "orientation: must have norm 1",
    ),
    "nan position": (
        lambda: Bundle([(Sphere(1.0), (0, np.nan, 0), IDENTITY)]),
        "position: has NaN",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    build, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        build()


def test_wrong_shape_is_refused_under_jit_too():
    with pytest.raises(ValueError, match="radii: expected shape"):
        jax.jit(lambda r: Ellipsoid(r).radii)(jnp.ones(2))
