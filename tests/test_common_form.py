"""Shapes of several kinds in one cone: the same solutions as in their own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conic import conic_optimum
from shapes import SHAPES

import silico_py as sp
from silico_py import assembly, rotation
from silico_py.collision import solve_collision
from silico_py.collision_program import Piece, SlackMap, pair_length
from silico_py.common_form import common, split
from silico_py.one_step import motions_of

NAMES = ("polytope_oblique", "padded", "ellipsoid", "capsule_slender", "cylinder", "cone")
SUM = sp.MinkowskiSum(sp.MinkowskiSum(sp.Box((0.2, 0.1, 0.1)), sp.Sphere(0.05)), sp.Cone(0.1, 0.2))
KINDS = {name: SHAPES[name] for name in NAMES} | {"nested sum": SUM}


@pytest.fixture(scope="module")
def together():
    """All kinds as one batch."""
    batches = [jax.tree.map(lambda v: v[None], shape) for shape in KINDS.values()]
    return jax.jit(common)(batches)


def placed(shape, slack_map, pose):
    return Piece(shape, slack_map, pose[0], rotation.matrix(pose[1]))


@jax.jit
def solve(a, b, pose_a, pose_b, relaxation):
    a, b = placed(*a, pose_a), placed(*b, pose_b)
    return solve_collision(a, b, pair_length(a.shape, b.shape), relaxation, 50)


def random_pose(rng):
    orientation = rng.normal(size=4)
    return rng.normal(size=3) * rng.uniform(0.05, 0.8), orientation / np.linalg.norm(orientation)


@jax.jit
def member(together, k):
    return jax.tree.map(lambda v: v[k], together)


@pytest.mark.parametrize("first", range(len(KINDS)), ids=list(KINDS))
def test_alpha_of_every_pair_agrees_with_cvxpy(together, first):
    rng, shapes = np.random.default_rng(first), list(KINDS.values())
    for second in range(first, len(shapes)):
        poses = random_pose(rng), random_pose(rng)
        found = solve(member(together, first), member(together, second), *poses, 1e-11)
        assert found.converged
        exact = conic_optimum(
            shapes[first], shapes[second], *map(np.stack, zip(*poses, strict=True))
        )
        np.testing.assert_allclose(found.alpha, exact, rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize("relaxation", [1e-2, 1e-6])
def test_relaxed_solution_is_that_of_the_own_cones(together, relaxation):
    names, rng = list(KINDS), np.random.default_rng(3)
    for pair in (("capsule_slender", "padded"), ("nested sum", "cylinder")):
        poses = random_pose(rng), random_pose(rng)
        own = [(KINDS[name], SlackMap.of(KINDS[name])) for name in pair]
        wide = [member(together, names.index(name)) for name in pair]
        expected, found = (solve(*sides, *poses, relaxation) for sides in (own, wide))
        for name in ("alpha", "point", "normal"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-7, atol=1e-9
            )


def test_what_a_kind_lacks_is_inert(together):
    shape, maps = together
    names = list(KINDS)
    capsule = names.index("capsule_slender")
    rows = shape.form.rows_of(KINDS["capsule_slender"].cone)
    free = np.setdiff1d(np.arange(shape.cone.dim), rows)
    np.testing.assert_array_equal(maps.constant[capsule, free], shape.cone.identity()[free])
    for values in (maps.to_x, maps.to_alpha, maps.to_eps):
        assert not np.any(values[capsule, free])
    assert int(maps.held[capsule].sum()) == shape.n_aux - KINDS["capsule_slender"].n_aux


def test_forms_hold_each_other(together):
    joint = together[0].form
    for shape in KINDS.values():
        rows = joint.rows_of(shape.cone)
        assert len(set(rows)) == shape.cone.dim
        # Rows of a cone go to rows of one cone, its scalar part first.
        for own, there in zip(split(shape.cone)[1], split(joint.cone)[1], strict=False):
            np.testing.assert_array_equal(rows[own], there[: len(own)])


def mixed_scene():
    bodies = [sp.Body(name, shape, mass=1.0) for name, shape in KINDS.items()]
    floor = sp.HalfSpace((0.0, 0.0, 1.0), 0.0)
    scene = sp.Scene(bodies, [floor], friction=0.5)
    height = np.arange(len(bodies))[:, None] * [0.3, 0.0, 0.0] + [0.0, 0.0, 0.7]
    return scene, scene.state(position=height)


def batches(scene, state):
    """Traced, not evaluated."""
    found = []

    def trace(state):
        motions = motions_of(scene, state, jnp.zeros((len(scene.bodies), 6)))
        found.extend(assembly.pair_batches(scene, motions))

    jax.eval_shape(trace, state)
    return found


def test_shapes_of_many_kinds_make_few_batches():
    scene, state = mixed_scene()
    found = batches(scene, state)
    assert len(found) <= 2 * 3  # with the sum and without, and the floor
    indices = np.sort(np.concatenate([batch.indices for batch in found]))
    np.testing.assert_array_equal(indices, np.arange(len(scene.pairs)))


def test_shapes_of_one_kind_keep_their_own_cone():
    scene, state = sp.scenes.stack(3)
    cones = {batch.contacts.a.shape.cone for batch in batches(scene, state)}
    assert cones == {sp.Box((1.0, 1.0, 1.0)).cone}


@pytest.mark.slow
def test_gradient_by_a_radius_in_a_mixed_scene():
    scene, state = sp.scenes.planar_push(gap=0.0005)
    options = sp.SolverOptions(relaxation=1e-4)

    @jax.jit
    @jax.value_and_grad
    def speed(radius):
        ball = sp.Body("pusher", sp.Sphere(radius), mass=1.0)
        following, _ = sp.step(
            dataclasses.replace(scene, bodies=(scene.bodies[0], ball)), state, options=options
        )
        return following.velocity[0, 0]

    h = 1e-6
    slope = (speed(0.1 + h)[0] - speed(0.1 - h)[0]) / (2 * h)
    assert abs(slope) > 1
    np.testing.assert_allclose(speed(0.1)[1], slope, rtol=1e-5)
