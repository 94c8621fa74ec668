"""Ready scenes, batching, difficult starts and precision."""

import dataclasses
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import members_of, rolled, stepped, stepped_each

import silico_py as sp
from silico_py import reference


@pytest.fixture(scope="module")
def drop():
    return sp.scenes.drop("box")


@pytest.mark.parametrize("name", ["sphere", "cone"])
def test_drops_come_to_rest_on_the_floor(name):
    trajectory = rolled(*sp.scenes.drop(name, timestep=0.02), 100)
    assert abs(float(trajectory.state.velocity[-1, 0, 2])) < 1e-3
    assert float(jnp.min(trajectory.info.contacts.alpha)) > 1 - 1e-9  # the relaxed alpha


def test_ready_scenes_are_as_is_asked_for():
    for name in sp.scenes.SCENES.keys() - {"heap"}:
        scene, _ = sp.scenes.SCENES[name](timestep=0.03, friction=0.7)
        assert (float(scene.timestep), float(scene.friction)) == (0.03, 0.7), name
    scene, state = sp.scenes.planar_push(gap=0.3)
    pieces = [(body.pieces[0][0], state.position[k, 0]) for k, body in enumerate(scene.bodies)]
    (box, x), (ball, y) = pieces
    np.testing.assert_allclose((x - box.half_extents[0]) - (y + ball.radius), 0.3)
    scene, state = sp.scenes.peg_in_hole(clearance=0.02, angle=0.3)
    peg, (left, right, *_) = scene.bodies[0].pieces[0][0], scene.environment[1:]
    hole = (right.position[0] - right.shape.half_extents[0]) - (
        left.position[0] + left.shape.half_extents[0]
    )
    np.testing.assert_allclose(hole - 2 * peg.half_extents[0], 2 * 0.02)
    np.testing.assert_allclose(state.orientation[0], sp.rotation.about((0.0, 1.0, 0.0), 0.3))


def test_pairs_are_named_by_bodies_and_their_pieces():
    scene, _ = sp.scenes.grasp()
    expected = ("tee[0] - left", "tee[1] - left", "tee[0] - right", "tee[1] - right")
    assert scene.pair_names == expected
    scene, _ = sp.scenes.drop("sphere")
    assert scene.pair_names == ("sphere - environment[0]",)


def test_what_a_place_leaves_out_is_the_origin_and_no_turn():
    shape, place = sp.Box((0.1, 0.2, 0.3)), (1.0, 2.0, 3.0)
    origin, upright = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    short = [shape, (shape, place), [shape, place, upright]]
    whole = [(shape, origin, upright), (shape, place, upright), (shape, place, upright)]
    same = partial(jax.tree.map, np.testing.assert_array_equal)
    same(sp.Bundle(short), sp.Bundle(whole))
    one, other = (sp.Scene([sp.Body("a", p, mass=1.0)], environment=p) for p in (short, whole))
    same(one, other)
    assert len(one.environment) == 3


def test_states_of_a_trajectory_have_an_index():
    scene, state = sp.scenes.drop("sphere")
    states = rolled(scene, state, 4).state
    positions = [float(one.position[0, 2]) for one in states]
    assert positions == states.position[:, 0, 2].tolist() and len(positions) == 4
    assert states[-1].velocity.shape == (1, 3) and states[1:3].velocity.shape == (2, 1, 3)
    np.testing.assert_array_equal(states[-1].velocity, states[3].velocity)
    assert stepped(scene, jax.tree.map(jnp.asarray, states[2]))[1].converged
    for wrong in (4, -5):
        with pytest.raises(IndexError, match=f"there are 4, got {wrong}"):
            states[wrong]
    with pytest.raises(IndexError, match="single"):
        state[0]
    with pytest.raises(ValueError, match=r"got \(4, 1, 3\); map over .* with jax\.vmap"):
        sp.energy(scene, states)
    taken = jax.jit(lambda states, k: states[k].position)(states, 2)
    np.testing.assert_array_equal(taken, states[2].position)


def test_peg_ends_in_the_hole_at_10_hz():
    trajectory = rolled(*sp.scenes.peg_in_hole(timestep=0.1), 50)
    assert abs(float(trajectory.state.position[-1, 0, 2]) - 0.5) < 1e-4


def test_a_heap_of_all_kinds_starts_apart_and_stays_in_its_bin():
    scene, state = sp.scenes.heap(5)
    trajectory = rolled(scene, state, 40)
    assert float(trajectory.info.contacts.alpha[0].min()) > 1
    assert trajectory.info.contacts.force.shape == (40, len(scene.pairs), 3)
    last = trajectory.state.position[-1]
    assert np.abs(last[:, :2]).max() < 1.1 and last[:, 2].min() > 0


def test_vmap_over_states_and_parameters_equals_a_loop(drop):
    scene, state = drop
    heights = jnp.array([0.3, 0.45, 2.0])
    frictions = jnp.array([0.0, 0.2, 1.0])

    def moved(height):
        position = state.position.at[0, 2].set(height)
        return dataclasses.replace(state, position=position)

    def rubbed(friction):
        body = scene.bodies[0]
        return sp.Scene([body], [sp.HalfSpace((0, 0, 1), 0.0)], scene.timestep, friction)

    one = [stepped(rubbed(f), moved(z))[0] for f, z in zip(frictions, heights, strict=True)]
    many = jax.jit(jax.vmap(lambda f, z: sp.step(rubbed(f), moved(z))[0]))(frictions, heights)
    for k, expected in enumerate(one):
        for found, value in zip(jax.tree.leaves(many), jax.tree.leaves(expected), strict=True):
            # Both solve to rho / 10; iterates may differ in rounding before that.
            np.testing.assert_allclose(found[k], value, atol=2e-6)


def test_a_body_may_be_changed():
    shapes = [sp.Sphere(0.1), (sp.Box((0.1, 0.2, 0.3)), (0.5, 0, 0), (1.0, 0, 0, 0))]
    body = sp.Body("body", shapes, mass=1.0)
    heavier = dataclasses.replace(body, mass=2.0)
    assert (heavier.name, float(heavier.mass)) == ("body", 2.0)
    for name in ("inertia", "center_of_mass", "shapes"):
        before, after = (jax.tree.leaves(getattr(b, name)) for b in (body, heavier))
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(heavier) == jax.tree.structure(body)
    ball = dataclasses.replace(body, shapes=sp.Sphere(0.2), inertia=None, center_of_mass=None)
    np.testing.assert_allclose(ball.inertia, 0.4 * 0.2**2 * np.eye(3), atol=1e-12)


@pytest.mark.parametrize(
    ("height", "least", "most"),
    [(0.1, 0.25, 0.5), (0.25, 0.25, 0.25 + 1e-5), (50.0, *[50 - 9.81 * 0.01**2] * 2)],
    ids=["overlapping", "touching", "far"],
)
def test_difficult_starts_converge(drop, height, least, most):
    """A body in the floor is pushed out, one on it hovers by rho over the impulse of its weight."""
    scene, _ = drop
    state = scene.state(position=[[0.0, 0.0, height]])
    following, info = stepped(scene, state)
    assert bool(info.converged)
    assert least - 1e-6 < float(following.position[0, 2]) < most + 1e-6


def test_boxes_that_start_in_each_other_part():
    """Centres within a half side, any orientation, some on the floor."""
    scene, _ = sp.scenes.stack(2)
    members, rng = 24, np.random.default_rng(3)
    way = rng.normal(size=(members, 3))
    way *= rng.uniform(0, 0.25, (members, 1)) / np.linalg.norm(way, axis=1, keepdims=True)
    position = np.zeros((members, 2, 3))
    position[:, :, 2] = rng.uniform(0.2, 0.4, (members, 1))
    position[:, 1] += way
    orientation = rng.normal(size=(members, 2, 4))
    orientation /= np.linalg.norm(orientation, axis=2, keepdims=True)
    still = jnp.zeros((members, 2, 3))
    starts = sp.State(jnp.asarray(position), jnp.asarray(orientation), still, still)
    following, info = stepped_each(scene, starts)
    assert info.converged.all(), np.flatnonzero(~info.converged)
    assert (info.iterations > 30).mean() < 0.1  # nearly all in the usual units
    shape, _, _ = scene.bodies[0].pieces[0]
    for k, start in enumerate(members_of(starts)):
        end = jax.tree.map(lambda v, k=k: v[k], (following, info))
        report = reference.check_step(scene, start, None, *end)
        assert report.ok, report
        poses = zip(following.position[k], following.orientation[k], strict=True)
        assert float(sp.collide(shape, next(poses), shape, next(poses)).alpha) > 1 - 4e-6


@pytest.mark.parametrize("apart", [0.0, 1e-14, 1e-9, 1e-4])
def test_boxes_that_start_as_one_part(apart):
    """There is no normal between them: each may go anywhere, but the other way."""
    scene, _ = sp.scenes.stack(2)
    way = np.array([0.6, 0.64, 0.48])
    start = scene.state(position=[[0.0, 0.0, 0.3], apart * way + [0.0, 0.0, 0.3]])
    following, info = stepped(scene, start)
    assert bool(info.converged)
    report = reference.check_step(scene, start, None, following, info)
    assert report.ok, report
    shape, _, _ = scene.bodies[0].pieces[0]
    poses = zip(following.position, following.orientation, strict=True)
    assert float(sp.collide(shape, next(poses), shape, next(poses)).alpha) > 1 - 4e-6


def test_states_can_be_donated(drop):
    scene, _ = drop
    moved = jax.jit(lambda state: jax.tree.map(lambda v: v + 1, state), donate_argnums=0)
    np.testing.assert_array_equal(moved(scene.state()).angular_velocity, np.ones((1, 3)))


@pytest.mark.parametrize("n", [2, 4])
def test_a_state_with_nothing_given_can_be_stepped(n):
    """Boxes at the origin, half in the floor; also where rounding has moved them."""
    scene, _ = sp.scenes.stack(n)
    rounding = 1e-13 * np.random.default_rng(0).normal(size=(3, n, 3))
    for position in np.concatenate([0 * rounding[:1], rounding]):
        _, info = stepped(scene, scene.state(position))
        assert bool(info.converged)
        assert float(info.contacts.alpha.min()) > 1 - 1e-9


@pytest.fixture(scope="module")
def small_on_large():
    """1 g and 1 cm on a tonne and 10 m."""
    light = sp.Body("block0", sp.Box((0.005, 0.005, 0.005)), mass=1e-3)
    heavy = sp.Body("block1", sp.Box((5.0, 5.0, 5.0)), mass=1e3)
    return sp.Scene([light, heavy], [sp.HalfSpace((0, 0, 1), 0.0)])


@pytest.mark.parametrize("timestep", [0.01, 0.1])
@pytest.mark.parametrize(
    "start", [[1.0, 2.0, 10.005], [0.0, 0.0, 10.1], [4.9, 2.0, 10.055], [1.0, -2.0, 10.004]]
)
def test_mass_and_size_do_not_need_tuning(small_on_large, start, timestep):
    scene = dataclasses.replace(small_on_large, timestep=jnp.asarray(timestep))
    state = scene.state(position=[start, [0.0, 0.0, 5.0]])
    trajectory = rolled(scene, state, 50)
    # What rests on the floor hovers by rho over its impulse, in units of its size.
    hover = 1e-6 * np.sqrt(75.0) / (9.81 * timestep)
    place = [*start[:2], 10.005 + hover]
    np.testing.assert_allclose(trajectory.state.position[-1, 0], place, atol=1e-6)
    force = trajectory.info.contacts.force[-1]
    weight = [0.0, 0.0, 9.81e-3]
    lies_on = scene.pairs.index(sp.scene.ContactPair(0, 0, 1, 0))
    np.testing.assert_allclose(force[lies_on], weight, atol=1e-5)
    before, last = (jax.tree.map(lambda v, k=k: v[k], trajectory) for k in (-2, -1))
    report = reference.check_step(scene, before.state, None, last.state, last.info)
    assert report.ok, report


def test_polishing_goes_on_where_a_step_makes_it_worse_first(small_on_large):
    """One of two blocks stops turning in this step."""
    blocks = [sp.Body(f"block{i}", sp.Box((0.4, 0.15, 0.1)), mass=1.0) for i in range(2)]
    scene = dataclasses.replace(small_on_large, bodies=blocks, timestep=0.1)
    state = scene.state(
        position=[[0.0013, 0.0328, 0.1], [-0.0145, 0.394, 0.1]],
        orientation=[[np.cos(half), 0.0, 0.0, np.sin(half)] for half in (-0.0545, -0.0909)],
        velocity=[[-0.0012, -0.0021, 0.0], [-0.0935, 0.1093, 0.0]],
        angular_velocity=[[0.0, 0.0, 0.0321], [0.0, 0.0, -1.9892]],
    )
    _, info = stepped(scene, state)
    assert max(info.residual, info.complementarity) < 1e-14


def test_controls_of_less_precision_have_gradients_of_theirs():
    scene, state = sp.scenes.drop("sphere")
    summed = lambda c: sp.rollout(scene, state, c).state.position.sum()  # noqa: E731
    controls = jnp.zeros((2, 1, 6), jnp.float32)
    assert jax.jit(jax.grad(summed)).lower(controls).out_info.dtype == jnp.float32


@pytest.mark.parametrize(("kind", "far"), [(jnp.float32, 1e4), (jnp.float64, 1e8)])
def test_a_slope_is_as_well_slid_down_far_from_the_origin(kind, far):
    """As well as the precision of positions lets it: contacts are seen from their bodies."""
    normal, down = np.array([0.6, 0.0, 0.8]), np.array([0.8, 0.0, -0.6])
    sliding = sp.Body("box", sp.Box((0.1, 0.1, 0.1)), mass=1.0)
    scene = sp.Scene([sliding], [sp.HalfSpace(normal, 0.0)], timestep=0.02, friction=0.2)
    # Its z along the normal: the turn about y that takes (0, 0, 1) there.
    lean = [[np.cos(np.arctan2(0.6, 0.8) / 2), 0.0, np.sin(np.arctan2(0.6, 0.8) / 2), 0.0]]
    runs = []
    for at in (0.0, far):
        state = scene.state(position=[at * down + 0.1 * normal], orientation=lean)
        single = jax.tree.map(lambda v: jnp.asarray(v, kind), (scene, state))
        run = sp.rollout(*single, 20, sp.SolverOptions(relaxation=1e-3))
        assert bool(run.info.converged.all())
        runs.append(np.asarray(run.state.position - single[1].position, float)[-1, 0] @ down)
    near, away = runs
    slid = 0.5 * 9.81 * (0.6 - 0.2 * 0.8) * 0.4**2 * 1.05  # first order: 21 / 20 of the parabola
    np.testing.assert_allclose(near, slid, rtol=0.02)
    np.testing.assert_allclose(away, near, atol=20 * np.finfo(kind).eps * far)


STRICT = {
    "a rollout": lambda scene, state: sp.rollout(scene, state, 2),
    "its gradient": jax.grad(lambda scene, state: sp.rollout(scene, state, 2).state.position.sum()),
    "derivatives of a step": lambda scene, state: sp.linearize(scene, state, None, [1e-2, 1e-3]),
    "a batch": jax.vmap(
        lambda scene, state: sp.step(scene, state)[0], in_axes=(None, 0), axis_size=2
    ),
    "the nearest contacts": partial(sp.step, options=sp.SolverOptions(max_contacts=1)),
}


@pytest.mark.parametrize("name", STRICT)
def test_programs_mix_no_kinds_of_numbers(name):
    """Which `jax_numpy_dtype_promotion` as strict refuses."""
    scene, state = sp.scenes.stack(2)
    if name == "a batch":
        state = jax.tree.map(lambda v: jnp.stack([v, v]), state)
    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(STRICT[name], scene, state)


def test_scenes_of_single_precision_beside_double_precision():
    single = lambda v: np.asarray(v, np.float32)  # noqa: E731
    ball, floor = sp.Sphere(single(0.1)), sp.HalfSpace(single((0, 0, 1)), single(0))
    numbers = (single(v) for v in (0.01, 0.5, (0, 0, -9.81)))
    scene = sp.Scene(
        [sp.Body("ball", ball, single(1))], [floor, (floor, (0, 0, -1), (1, 0, 0, 0))], *numbers
    )
    assert {v.dtype for v in jax.tree.leaves((scene, scene.state()))} == {np.dtype("float32")}


FLOAT32 = """
import jax.numpy as jnp
import silico_py as sp
scene, state = sp.scenes.drop("box", timestep=0.05)
trajectory = sp.rollout(scene, state, 20, sp.SolverOptions(relaxation=1e-5))
assert trajectory.state.position.dtype == jnp.float32
assert bool(trajectory.info.converged.all()), trajectory.info
try:
    sp.step(scene, state, options=sp.SolverOptions(relaxation=1e-6))
except ValueError as error:
    assert "relaxation" in str(error)
else:
    raise AssertionError("a relaxation that float32 cannot carry was accepted")
for name in ("padded_polytope", "minkowski_sum", "polytope", "bundle"):
    sp.scenes.drop(name)  # inertia is symmetric to the precision at hand
sp.scenes.heap(5)
ball, pose = sp.Sphere(0.1), ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
apart = sp.collide(ball, pose, ball, ((0.3, 0.0, 0.0), pose[1]))
assert apart.converged and abs(apart.alpha - 1.5) < 1e-4, apart
"""


def test_float32_carries_1e_5_and_refuses_less():
    done = subprocess.run([sys.executable, "-c", FLOAT32], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
