"""Friction that resists turns: against closed-form mechanics, MuJoCo, differences and itself."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from stepping import rolled, stepped, stepped_each
from test_derivatives import LIMITS, derivative, differenced, in_both_modes, worst_column

import silico_py as sp
from silico_py import reference

G, MU, MASS, RADIUS = 9.81, 0.4, 2.0, 0.1
INERTIA = 0.4 * MASS * RADIUS**2
WEIGHT = MASS * G
TIGHT = 1e-8


def ball(torsional=0.0, rolling=0.0, gravity=(0, 0, -G), normal=(0, 0, 1)):
    """A ball on a floor, whatever resists its turns of one structure."""
    body = sp.Body("ball", sp.Sphere(RADIUS), mass=MASS)
    return sp.Scene(
        [body],
        [sp.HalfSpace(normal=normal, offset=0.0)],
        friction=MU,
        gravity=gravity,
        torsional_radius=torsional,
        rolling_radius=rolling,
    )


def lying(scene, normal=(0, 0, 1), **moving):
    """On the floor; velocities of one body."""
    moving = {name: np.reshape(value, (1, 3)) for name, value in moving.items()}
    return scene.state(position=RADIUS * np.reshape(normal, (1, 3)), **moving)


def after(spin, rate, steps, h=0.01):
    """Of a spin that falls at a constant rate until it is zero."""
    return np.maximum(0, spin - rate * h * np.arange(1, steps + 1))


@pytest.mark.parametrize("radius", [0.003, 0.05])
def test_a_spinning_ball_slows_down_at_a_constant_rate_and_stops(radius):
    scene = ball(torsional=radius)
    state = lying(scene, angular_velocity=(0, 0, 5))
    trajectory = rolled(scene, state, 20, relaxation=TIGHT)
    expected = after(5, MU * WEIGHT * radius / INERTIA, 20)
    found = trajectory.state.angular_velocity[:, 0]
    np.testing.assert_allclose(found[:, 2], expected, atol=0.02)
    np.testing.assert_allclose(found[:, :2], 0, atol=1e-9)
    torque = trajectory.info.contacts.torque[3, 0]
    np.testing.assert_allclose(torque, [0, 0, -MU * WEIGHT * radius], rtol=5e-3, atol=1e-9)


def test_a_rolling_ball_slows_down_at_a_constant_rate():
    """Friction f brakes it and the torque t turns it back, in the ratio of what they counter:
    f / (t / r) = slip / (r w), within the limit |(f, t / r)| = mu m g."""
    r, w = 0.02, 4.0
    scene = ball(rolling=r)
    share = 0.0  # of slip in r w
    for _ in range(50):
        lever = RADIUS + r * share  # v = lever w
        turning = INERTIA + MASS * RADIUS * lever  # t = turning w'
        share = r * MASS * lever / turning
    slowing = MU * WEIGHT / np.hypot(MASS * lever, turning / r)
    state = lying(scene, velocity=(lever * w, 0, 0), angular_velocity=(0, w, 0))
    trajectory = rolled(scene, state, 60, relaxation=TIGHT)
    spins = trajectory.state.angular_velocity[:, 0, 1]
    np.testing.assert_allclose(spins, w - slowing * 0.01 * np.arange(1, 61), atol=1e-3)
    np.testing.assert_allclose(trajectory.state.velocity[:, 0, 0], lever * spins, atol=2e-4)


@pytest.mark.parametrize(("load", "turns"), [(0.99, 0.0), (1.01, 0.01)])
def test_a_twist_turns_the_ball_beyond_the_limit_alone(load, turns):
    radius = 0.05
    scene = ball(torsional=radius)
    limit = MU * WEIGHT * radius
    control = np.array([[0, 0, 0, 0, 0, load * limit]])
    trajectory = rolled(scene, lying(scene), 40, control=control, relaxation=TIGHT)
    spin = trajectory.state.angular_velocity[:, 0, 2]
    assert (spin[-1] - spin[19]) / 0.2 * INERTIA == pytest.approx(turns * limit, abs=1e-3 * limit)


@pytest.mark.parametrize("side", [0.99, 1.01])
def test_a_ball_rolls_down_steep_slopes_alone(side):
    """To hold it takes the force m g sin and the torque m g sin R in one cone."""
    r = 0.02
    angle = np.arctan(side * MU / np.hypot(1, RADIUS / r))
    scene = ball(rolling=r, gravity=(G * np.sin(angle), 0, -G * np.cos(angle)))
    speed = rolled(scene, lying(scene), 100, relaxation=TIGHT).state.velocity[-1, 0, 0]
    assert speed < 1e-4 if side < 1 else speed > 2e-3


def test_two_balls_stop_each_others_spin():
    """They are pressed together and spin in opposite ways: what one loses the other gains."""
    radius, force = 0.02, 30.0
    bodies = [sp.Body(name, sp.Sphere(RADIUS), mass=MASS) for name in "ab"]
    scene = sp.Scene(bodies, friction=MU, gravity=(0, 0, 0), torsional_radius=radius)
    apart, spins = [[0, 0, 0], [2 * RADIUS, 0, 0]], [[6.0, 0, 0], [-2.0, 0, 0]]
    control = np.array([[force, 0, 0, 0, 0, 0], [-force, 0, 0, 0, 0, 0]])
    state = scene.state(apart, angular_velocity=spins)
    states = rolled(scene, state, 30, control=control, relaxation=TIGHT).state
    kept = jax.vmap(lambda at: sp.momentum(scene, at).angular)(states)
    np.testing.assert_allclose(kept, [sp.momentum(scene, state).angular] * 30, atol=1e-9)
    found, expected = states.angular_velocity, after(8, 2 * MU * force * radius / INERTIA, 30)
    np.testing.assert_allclose(found[:, 0, 0] - found[:, 1, 0], expected, atol=0.02)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_whatever_way_the_floor_faces(seed):
    rng = np.random.default_rng(seed)
    velocity, spin = rng.uniform(-1, 1, 3), rng.uniform(-5, 5, 3)
    turn = Rotation.random(random_state=rng)
    ends = []
    for r in (Rotation.identity(), turn):
        normal = r.apply([0, 0, 1])
        scene = ball(0.03, 0.01, gravity=-G * normal, normal=normal)
        state = lying(scene, normal, velocity=r.apply(velocity), angular_velocity=r.apply(spin))
        end, info = stepped(scene, state, relaxation=1e-6)
        assert info.converged
        vectors = end.velocity[0], info.contacts.force[0], info.contacts.torque[0]
        ends.append([r.inv().apply(np.array(v)) for v in vectors])
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-5)


def test_a_spinning_ball_of_an_exported_model_stops_in_mujoco_alike(tmp_path):
    scene = ball(torsional=0.02, rolling=0.001)
    state = lying(scene, angular_velocity=(0, 0, 8))
    path = tmp_path / "ball.xml"
    sp.save_model(scene, state, path)
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.timestep = 1e-3
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_step(model, data, 200)
    found = rolled(scene, state, 20, relaxation=TIGHT).state.angular_velocity[-1, 0, 2]
    assert 2 < found < 6
    assert found == pytest.approx(data.qvel[5], abs=0.1)


def test_a_dropped_box_comes_to_rest():
    scene, state = sp.scenes.drop("box")
    scene = dataclasses.replace(scene, torsional_radius=0.1)
    turn = Rotation.random(random_state=1).as_quat(scalar_first=True)[None]
    state = dataclasses.replace(state, orientation=jnp.asarray(turn))
    state = dataclasses.replace(state, angular_velocity=jnp.array([[0.5, 1.0, 4.0]]))
    last = rolled(scene, state, 200).state
    assert np.linalg.norm(last.angular_velocity[-1]) < 1e-4
    assert np.abs(last.angular_velocity).max() > 1


@pytest.fixture(scope="module")
def tumbling():
    """(scene, 4 states): an ellipsoid that slides, spins and rolls, with both radii."""
    scene, _ = sp.scenes.drop("ellipsoid", friction=0.3)
    scene = dataclasses.replace(scene, torsional_radius=0.04, rolling_radius=0.02)
    rng = np.random.default_rng(3)
    turn = Rotation.random(4, random_state=2)
    radii = np.asarray(scene.bodies[0].pieces[0][0].radii)
    position = np.zeros((4, 1, 3))
    position[:, 0, 2] = np.linalg.norm(radii * turn.as_matrix()[:, 2], axis=1) + 1e-3
    velocity, spin = rng.uniform(-1, 1, (2, 4, 1, 3)) * [[[[0.3]]], [[[4.0]]]]
    velocity[..., 2] = -0.5
    turn = turn.as_quat(scalar_first=True)[:, None]
    return scene, sp.State(*map(jnp.asarray, (position, turn, velocity, spin)))


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1e-3, 1e-6])
def test_both_methods_have_the_same_solutions(tumbling, rho):
    scene, states = tumbling
    bilevel = {"collision_relaxation": rho, "method": "bilevel"}
    single, info = stepped_each(scene, states, relaxation=rho)
    other, found = stepped_each(scene, states, relaxation=rho, **bilevel)
    assert info.converged.all() and found.converged.all()
    assert (np.linalg.norm(info.contacts.torque[:, 0], axis=-1) > 0.02).all()
    np.testing.assert_allclose(single.angular_velocity, other.angular_velocity, atol=20 * rho)
    scale = np.abs(info.contacts.torque).max()
    np.testing.assert_allclose(info.contacts.torque, found.contacts.torque, atol=1e-2 * scale)


@pytest.mark.parametrize("relaxation", [1e-3, 1e-6, 1e-9])
def test_steps_satisfy_every_condition(tumbling, relaxation):
    scene, states = tumbling
    options = sp.SolverOptions(relaxation=relaxation)
    for k in range(4):
        state = states[k]
        end, info = stepped(scene, state, relaxation=relaxation)
        report = reference.check_step(scene, state, None, end, info, options)
        assert report.ok, report
        contacts = info.contacts._replace(torque=3 * info.contacts.torque)
        wrong = info._replace(contacts=contacts)
        report = reference.check_step(scene, state, None, end, wrong, options)
        assert {"angular_momentum", "friction_cone"} <= set(report.failed), report


@pytest.mark.parametrize("rho", LIMITS)
def test_linearize_agrees_with_differences(tumbling, rho):
    scene, states = tumbling
    for k in range(2):
        at = scene, states[k], rho
        assert max(map(worst_column, derivative(*at), differenced(*at))) < LIMITS[rho]


@pytest.mark.slow
def test_derivatives_by_the_radii_in_both_modes(tumbling):
    scene, states = tumbling

    def outcome(at):
        mu, torsional, rolling = at
        radii = {"torsional_radius": torsional, "rolling_radius": rolling}
        changed = dataclasses.replace(scene, friction=mu, **radii)
        end, info = sp.step(changed, states[1], options=sp.SolverOptions(relaxation=1e-3))
        return jnp.concatenate([end.angular_velocity[0], info.contacts.torque[0] / 10])

    at, h = jnp.array([0.3, 0.04, 0.02]), 1e-5
    _, forward, reverse = in_both_modes(outcome)(at)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-9)
    several = jax.jit(jax.vmap(outcome))(at + h * np.concatenate([np.eye(3), -np.eye(3)]))
    expected = (several[:3] - several[3:]).T / (2 * h)
    np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_without_radii_nothing_changes(tumbling):
    scene, states = tumbling
    none = dataclasses.replace(scene, torsional_radius=None, rolling_radius=None)
    zero = dataclasses.replace(scene, torsional_radius=0.0, rolling_radius=0.0)
    one, info = stepped_each(none, states)
    other, found = stepped_each(zero, states)
    assert info.contacts.torque is None
    np.testing.assert_array_equal(found.contacts.torque, 0)
    np.testing.assert_allclose(one.angular_velocity, other.angular_velocity, atol=1e-6)


@pytest.mark.slow
def test_radii_of_pairs_and_of_the_nearest_contacts():
    """Three balls, each with radii of its own; two of them are far above the floor."""
    bodies = [sp.Body(f"{k}", sp.Sphere(RADIUS), mass=MASS) for k in range(3)]
    scene = sp.Scene(bodies, [sp.scenes.floor()], friction=MU)
    radii = [0.0] * 3 + [0.01, 0.02, 0.04]
    scene = dataclasses.replace(scene, torsional_radius=radii)
    assert scene.pair_names[3:] == tuple(f"{k} - environment[0]" for k in range(3))
    place = [[k, 0, RADIUS + (k == 2)] for k in range(3)]
    state = scene.state(place, angular_velocity=[[0, 0, 5.0]] * 3)
    for few in (None, (1, 2)):
        _, info = stepped(scene, state, relaxation=TIGHT, max_contacts=few)
        assert info.converged
        expected = -MU * WEIGHT * np.array([0.01, 0.02, 0.0])
        np.testing.assert_allclose(info.contacts.torque[3:, 2], expected, rtol=5e-3, atol=1e-6)
        np.testing.assert_array_equal(info.contacts.torque[:3], 0)
