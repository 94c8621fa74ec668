"""The step against closed-form mechanics and conservation laws."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import rolled, rolled_each

import silico_py as sp
from silico_py import rotation
from silico_py.integrator import cayley_momentum

G = 9.81


def incline(angle: float) -> tuple[float, float, float]:
    """Gravity seen from a floor tilted by `angle` about y."""
    return (G * np.sin(angle), 0.0, -G * np.cos(angle))


def floor() -> sp.HalfSpace:
    return sp.HalfSpace(normal=(0, 0, 1), offset=0.0)


def test_free_flight_keeps_momentum():
    body = sp.Body("brick", sp.Box(half_extents=(0.1, 0.2, 0.4)), mass=2.0)
    scene = sp.Scene([body], timestep=0.02)
    state = scene.state(velocity=[[1.0, 2.0, 3.0]], angular_velocity=[[4.0, -0.3, 0.5]])
    trajectory = rolled(scene, state, 300).state
    times = 0.02 * np.arange(1, 301)
    np.testing.assert_allclose(trajectory.velocity[:, 0, :2], [[1.0, 2.0]] * 300, atol=1e-9)
    np.testing.assert_allclose(trajectory.velocity[:, 0, 2], 3.0 - G * times, atol=1e-9)

    def angular(q, w):
        return rotation.rotate(q, cayley_momentum(-0.02 * w, body.inertia @ w))

    momenta = jax.vmap(angular)(trajectory.orientation[:, 0], trajectory.angular_velocity[:, 0])
    start = angular(state.orientation[0], state.angular_velocity[0])
    np.testing.assert_allclose(momenta, jnp.broadcast_to(start, momenta.shape), atol=1e-9)


def test_body_frame_away_from_the_centre_of_mass_changes_nothing():
    shape = sp.Box(half_extents=(0.1, 0.2, 0.3))
    arm = jnp.array([0.3, -0.1, 0.2])
    centred = sp.Scene([sp.Body("a", shape, mass=1.0)])
    shifted = sp.Scene([sp.Body("a", [(shape, arm, (1.0, 0, 0, 0))], mass=1.0)])
    w = jnp.array([[1.0, 2.0, -0.5]])
    first = rolled(centred, centred.state(angular_velocity=w), 50).state
    origin = shifted.state(
        position=-arm[None], angular_velocity=w, velocity=-jnp.cross(w, arm[None])
    )
    second = rolled(shifted, origin, 50).state
    centre = second.position + rotation.rotate(second.orientation, arm)
    np.testing.assert_allclose(centre, first.position, atol=1e-10)


def test_sliding_box_stops_where_friction_says_in_every_heading():
    """v falls by mu g h a step; the distance is the sum of those velocities."""
    mu, h, v0 = 0.3, 0.01, 1.0
    body = sp.Body("box", sp.Box(half_extents=(0.2, 0.2, 0.05)), mass=1.0)
    scene = sp.Scene([body], [floor()], timestep=h, friction=mu)
    angles = np.arange(8) * (2 * np.pi / 8)
    headings = np.stack([np.cos(angles), np.sin(angles), np.zeros(8)], axis=1)
    still = scene.state(position=[[0.0, 0.0, 0.05]])
    starts = jax.tree.map(lambda v: jnp.tile(v, (8, 1, 1)), still)
    starts = dataclasses.replace(starts, velocity=v0 * jnp.array(headings)[:, None])
    ends = rolled_each(scene, starts, 60, relaxation=1e-8).state.position[:, -1, 0]
    distance = np.sum(ends * headings, axis=1)
    speeds = np.maximum(v0 - mu * G * h * np.arange(1, 61), 0)
    # The limit carries rho / 100 of smoothing and the gap rho / impulse of height.
    np.testing.assert_allclose(distance, h * speeds.sum(), atol=1e-5)
    assert np.ptp(distance) < 1e-6


def test_each_contact_has_its_own_friction():
    h, v0, frictions = 0.01, 1.0, {"smooth": 0.3, "rough": 0.8}
    bodies = [sp.Body(name, sp.Box((0.2, 0.2, 0.05)), mass=1.0) for name in frictions]
    scene = sp.Scene(bodies, [floor()], timestep=h, exclude=[tuple(frictions)])
    own = [frictions[scene.bodies[pair.body_a].name] for pair in scene.pairs]
    scene = dataclasses.replace(scene, friction=own)
    start = scene.state([[0, 0, 0.05], [0, 2, 0.05]], velocity=[[v0, 0, 0]] * 2)
    distance = rolled(scene, start, 40, relaxation=1e-8).state.position[-1, :, 0]
    for mu, found in zip(frictions.values(), distance, strict=True):
        speeds = np.maximum(v0 - mu * G * h * np.arange(1, 41), 0)
        np.testing.assert_allclose(found, h * speeds.sum(), atol=1e-5)


@pytest.mark.parametrize(("excess", "slides"), [(1e-3, True), (-1e-3, False)])
def test_stick_and_slip_at_the_friction_angle(excess, slides):
    mu, seconds = 0.4, 1.0
    angle = np.arctan(mu * (1 + excess))
    body = sp.Body("box", sp.Box(half_extents=(0.2, 0.2, 0.02)), mass=1.0)
    scene = sp.Scene([body], [floor()], timestep=0.02, friction=mu, gravity=incline(angle))
    state = scene.state(position=[[0.0, 0.0, 0.02]])
    speed = float(rolled(scene, state, 50, relaxation=1e-9).state.velocity[-1, 0, 0])
    excess_speed = G * (np.sin(angle) - mu * np.cos(angle)) * seconds
    if slides:
        np.testing.assert_allclose(speed, excess_speed, rtol=0.05)
    else:
        assert abs(speed) < 0.05 * abs(excess_speed)


@pytest.mark.parametrize(("timestep", "rho"), [(0.02, 1e-3), (0.02, 1e-6), (0.005, 1e-5)])
def test_a_sticking_box_creeps_as_relaxed_friction_says(timestep, rho):
    mu, angle = 0.4, 0.2
    body = sp.Body("box", sp.Box(half_extents=(0.2, 0.2, 0.02)), mass=1.0)
    scene = sp.Scene([body], [floor()], timestep, friction=mu, gravity=incline(angle))
    state = scene.state(position=[[0.0, 0.0, 0.02]])
    speed = float(rolled(scene, state, 50, relaxation=rho).state.velocity[-1, 0, 0])
    tangent, pressed = np.tan(angle), G * np.cos(angle) * timestep
    assert speed == pytest.approx(rho * tangent / ((mu**2 - tangent**2) * pressed), rel=0.02)


def test_what_touches_without_a_load_parts_at_the_root_of_the_relaxation():
    body = sp.Body("box", sp.Box(half_extents=(0.2, 0.2, 0.02)), mass=1.0)
    scene = sp.Scene([body], [floor()], 0.02, gravity=(0.0, 0.0, 0.0))
    state = scene.state(position=[[0.0, 0.0, 0.02]])
    speeds = [
        rolled(scene, state, 30, relaxation=rho).state.velocity[-1, 0, 2] for rho in (1e-4, 1e-6)
    ]
    assert speeds[0] / speeds[1] == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("friction", [0.8, 30.0, 1e4])
def test_rolling_sphere_accelerates_at_five_sevenths(friction):
    angle, h = 0.2, 0.01
    ball = sp.Body("sphere", sp.Sphere(radius=0.1), mass=1.0)
    scene = sp.Scene([ball], [floor()], timestep=h, friction=friction, gravity=incline(angle))
    state = scene.state(position=[[0.0, 0.0, 0.1]])
    trajectory = rolled(scene, state, 100, relaxation=1e-8)
    assert trajectory.info.converged.all() and trajectory.info.iterations.max() <= 30
    velocity = trajectory.state.velocity[:, 0, 0]
    expected = 5 / 7 * G * np.sin(angle)
    # Drop the first steps, where the ball settles on the floor.
    measured = (velocity[-1] - velocity[19]) / (80 * h)
    np.testing.assert_allclose(measured, expected, rtol=2e-3)


def test_a_spring_that_is_commanded_nothing_yields_to_a_load():
    """It starts anew in each step: k h times the velocity balances the weight on it."""
    crate = sp.Body("crate", sp.Box((0.1, 0.1, 0.1)), mass=1.0)
    plate = sp.Body("plate", sp.Box((0.5, 0.5, 0.05)), mass=5.0, stiffness=[1e4] * 6)
    scene = sp.Scene([crate, plate], timestep=0.01)
    state = scene.state(position=[[0.0, 0.0, 0.15], [0.0, 0.0, 0.0]])
    velocity = rolled(scene, state, 60).state.velocity[-1, 1]
    np.testing.assert_allclose(velocity, [0, 0, -G / (1e4 * 0.01)], atol=1e-5)


def test_a_split_box_stops_turning():
    """Friction of a quarter of the weight at the middle of each piece: a constant torque."""
    size, spin, friction, h = 0.1, 5.0, 0.5, 0.01
    block = sp.Body("block", sp.Box((size, size, 0.05)).split(), mass=1.0)
    scene = sp.Scene([block], [floor()], timestep=h, friction=friction)
    state = scene.state(position=[[0.0, 0.0, 0.05]], angular_velocity=[[0.0, 0.0, spin]])
    found = rolled(scene, state, 15, relaxation=1e-8).state.angular_velocity[:, 0, 2]
    square = 2 / 3 * size**2  # of the radius of gyration
    rate = friction * G * size * np.sqrt(0.5) / square
    expected = np.maximum(0, spin - rate * h * np.arange(1, 16))
    np.testing.assert_allclose(found, expected, atol=0.005)


def test_collision_without_friction_conserves_momenta():
    """Linear momentum to 10 rho; angular momentum up to the integrator's own first-order term.

    Impulses act at the arm p - x+ (with arms that start from x spheres would begin to spin without
    friction), so a step changes the total by exactly -h (v_a+ - v_b+) x impulse.
    """
    rho = 1e-6
    scene, state = sp.scenes.collision()
    h = float(scene.timestep)
    trajectory = rolled(scene, state, 100, relaxation=rho)
    linear, angular = jax.vmap(partial(sp.momentum, scene))(trajectory.state)
    start_linear, start_angular = sp.momentum(scene, state)
    assert float(jnp.min(trajectory.info.contacts.alpha)) < 1.001  # they did meet
    np.testing.assert_allclose(linear, jnp.tile(start_linear, (100, 1)), atol=10 * rho)
    slip = trajectory.state.velocity[:, 0] - trajectory.state.velocity[:, 1]
    impulse = h * trajectory.info.contacts.force[:, 0]
    expected = start_angular - h * jnp.cumsum(jnp.cross(slip, impulse), axis=0)
    np.testing.assert_allclose(angular, expected, atol=10 * rho)


@pytest.fixture(scope="module")
def resting():
    """(scene, trajectory) of four blocks."""
    scene, state = sp.scenes.stack(4, timestep=0.1)
    return scene, rolled(scene, state, 10, relaxation=1e-6)


def test_resting_stack_keeps_still(resting):
    """The paper's single-level figure for two blocks at 10 Hz and 1e-6."""
    velocity = resting[1].state.velocity
    assert float(jnp.mean(jnp.linalg.norm(velocity, axis=-1))) < 6.4e-7


def test_contacts_carry_the_weight_above(resting):
    scene, trajectory = resting
    lifts = trajectory.info.contacts.force[-1, :, 2] * float(scene.timestep)
    carried = {}
    for pair, lift in zip(scene.pairs, lifts, strict=True):
        lower = -1 if pair.body_b is None else pair.body_a
        carried[lower] = carried.get(lower, 0.0) + abs(float(lift))
    for lower in range(-1, 3):
        weight = (3 - lower) * G * float(scene.timestep)
        assert abs(carried[lower] - weight) < 10 * 1e-6


def test_true_penetration_is_within_four_rho():
    rho = 1e-6
    scene, state = sp.scenes.drop("box", timestep=0.1)
    trajectory = rolled(scene, state, 12, relaxation=rho)
    shape, pose = scene.bodies[0].pieces[0][0], ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    for x, q in zip(trajectory.state.position, trajectory.state.orientation, strict=True):
        exact = sp.collide(shape, (x[0], q[0]), floor(), pose)
        assert bool(exact.converged)
        assert float(exact.alpha) > 1 - 4 * rho


@pytest.mark.parametrize("relaxation", [1e-3, 1e-5])
def test_a_resting_sphere_hovers_by_the_relaxation_over_its_impulse(relaxation):
    """In closed form: the exact gap times the impulse of gravity is the relaxation."""
    scene, _ = sp.scenes.drop("sphere")
    radius = float(scene.bodies[0].pieces[0][0].radius)
    gap = radius * relaxation / (9.81 * 0.01)
    state = scene.state(position=[[0.0, 0.0, radius + gap]])
    height = float(rolled(scene, state, 20, relaxation=relaxation).state.position[-1, 0, 2])
    assert height - radius == pytest.approx(gap, rel=5 * relaxation / (9.81 * 0.01))
