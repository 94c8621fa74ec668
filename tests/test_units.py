"""Large and fast bodies, which are measured in units of their own speed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import rolled, rolled_each, stepped, thrown, turned

import silico_py as sp
from silico_py import reference
from silico_py.tangents import difference, perturb

FLOOR = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)
LIMIT = 30  # Newton steps


def box_and_cone(size, speed):
    """A tilted box that falls with a cone onto the floor, in units of `size` and `speed`."""
    bodies = [
        sp.Body("box", [sp.Box((1.2 * size, size, 0.8 * size))], mass=2.0),
        sp.Body("cone", [sp.Cone(0.9 * size, 2.0 * size)], mass=1.0),
    ]
    scene = sp.Scene(bodies, [FLOOR], timestep=0.03 * size / speed, friction=0.4)
    turn = sp.rotation.normalize(jnp.array([[1.0, 0.1, 0.3, 0.0], [1.0, 0.4, 0.0, 0.2]]))
    state = scene.state(
        size * np.array([[0, 0, 1.6], [0.3, 0.1, 4.2]]),
        turn,
        speed * np.array([[0.3, 0, -1.0], [0, 0.2, -2.0]]),
        speed / size * np.array([[0, 0.5, 0.1], [0.2, 0, 0]]),
    )
    return scene, state


@pytest.mark.parametrize("rho", [1e-3, 1e-6])
def test_a_fall_is_similar_at_any_size(rho):
    how = {"relaxation": rho, "polish": 5}
    small, large = (rolled(*box_and_cone(*unit), 40, **how) for unit in ((1, 1), (25.0, 5.0)))
    assert float(small.info.contacts.force[:, :, 2].max()) > 5  # they do hit the floor
    for name, unit in [("position", 25.0), ("velocity", 5.0), ("angular_velocity", 0.2)]:
        own, scaled = getattr(small.state, name), getattr(large.state, name) / unit
        np.testing.assert_allclose(scaled, own, rtol=0, atol=1e-6)
    alphas = (t.info.contacts.alpha for t in (large, small))
    np.testing.assert_allclose(*alphas, rtol=0, atol=1e-6)
    scene, _ = box_and_cone(25.0, 5.0)
    before, last = (jax.tree.map(lambda v, k=k: v[k], large) for k in (-2, -1))
    options = sp.SolverOptions(**how)
    report = reference.check_step(scene, before.state, None, last.state, last.info, options)
    assert report.ok, report


def test_boxes_of_ten_metres_land_in_few_iterations():
    box = sp.Body("box", [sp.Box((10.0, 6.0, 4.0))], mass=1.0)
    scene = sp.Scene([box], [FLOOR], timestep=1 / 30, friction=0.2)
    rng, members = np.random.default_rng(7), 16
    turn = turned(rng, members, 1)
    place = np.zeros((members, 1, 3))
    place[..., 2] = 12.5 + rng.uniform(0, 5, (members, 1))
    states = sp.State(
        jnp.array(place),
        turn,
        jnp.array(rng.uniform(-3, 3, (members, 1, 3))),
        jnp.array(rng.uniform(-0.3, 0.3, (members, 1, 3))),
    )
    info = rolled_each(scene, states, 90, relaxation=1e-6).info
    assert int(info.iterations.max()) <= LIMIT


@pytest.mark.parametrize("press", [30.0, 1e3, 1e5])
@pytest.mark.parametrize("rho", [1e-4, 1e-8])
def test_bodies_that_are_pressed_onto_the_floor(press, rho):
    """In a step that would send them up to a thousand sizes into it."""
    scene, _ = sp.scenes.drop("box")
    state = scene.state([[0, 0, -float(scene.bodies[0].shapes.support([0, 0, -1.0])[2])]])
    control = jnp.array([[0.0, 0.0, -press / float(scene.timestep), 0.0, 0.0, 0.0]])
    following, info = stepped(scene, state, control, relaxation=rho)
    assert info.converged and info.iterations <= 2 * LIMIT
    assert np.abs(following.velocity).max() < 20 * rho * max(1, press)
    weight = 9.81 * float(scene.bodies[0].mass)
    np.testing.assert_allclose(info.contacts.force[0, 2], weight - control[0, 2], rtol=1e-3)
    options = sp.SolverOptions(relaxation=rho)
    assert reference.check_step(scene, state, control, following, info, options).ok


def test_derivatives_of_fast_bodies():
    scene, state = thrown(speed=5.0, seed=1)
    rho, length = 1e-3, 1e-4

    def step(at):
        return stepped(scene, at, relaxation=rho)

    following, info = step(state)
    assert info.converged
    assert float(jnp.min(info.contacts.alpha)) < 1.1

    def end(change):
        return difference(step(perturb(state, change))[0], following)

    columns = []
    for column in jnp.eye(24).reshape(24, 2, 12):
        near, far = (end(k * length * column) - end(-k * length * column) for k in (1, 2))
        columns.append(((8 * near - far) / (12 * length)).ravel())
    found, _ = sp.linearize(scene, state, None, rho)
    np.testing.assert_allclose(found, jnp.stack(columns, axis=1), rtol=0, atol=1e-6)


def test_steps_of_fast_bodies_meet_their_conditions():
    scene, states = thrown(speed=20.0, seed=2, members=8)
    for k in range(8):
        state = jax.tree.map(lambda v, k=k: v[k], states)
        following, info = stepped(scene, state)
        assert info.converged
        report = reference.check_step(scene, state, None, following, info)
        assert report.ok, report


def test_boxes_that_hit_the_floor_at_a_hundred_metres_a_second():
    box = sp.Body("box", [sp.Box((0.3, 0.18, 0.12))], mass=1.0)
    scene, members = sp.Scene([box], [FLOOR], friction=0.3), 20
    rng = np.random.default_rng(5)
    turn = turned(rng, members, 1)
    place = np.zeros((members, 1, 3))
    place[..., 2] = 0.4 + rng.uniform(0.2, 0.8, (members, 1))
    velocity = 100 * rng.uniform((-1, -1, -2), (1, 1, 0), (members, 1, 3))
    starts = sp.State(
        jnp.array(place),
        turn,
        jnp.array(velocity),
        jnp.array(rng.uniform(-1, 1, (members, 1, 3))),
    )
    for timestep in (0.1, 0.01):
        at = dataclasses.replace(scene, timestep=timestep)
        assert rolled_each(at, starts, 60, relaxation=1e-6).info.converged.all()
