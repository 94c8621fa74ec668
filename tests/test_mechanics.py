"""Energy and momentum against those of point masses and against closed forms."""

import dataclasses
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from stepping import rolled, turned

import silico_py as sp

SIZE, MASS, ARM = np.array([0.1, 0.2, 0.4]), 2.0, np.array([0.3, -0.1, 0.2])
G = 9.81
IDENTITY = (1.0, 0.0, 0.0, 0.0)


def bricks(timestep=0.02, gravity=(0.0, 0.0, -G)):
    """Two that never meet, the second with its centre of mass off the origin of its frame."""
    shapes = [sp.Box(SIZE), [(sp.Box(SIZE), ARM, IDENTITY)]]
    bodies = [sp.Body(name, shape, mass=MASS) for name, shape in zip("ab", shapes, strict=True)]
    scene = sp.Scene(bodies, timestep=timestep, gravity=gravity, exclude=[("a", "b")])
    rng = np.random.default_rng(0)
    state = scene.state(
        rng.normal(size=(2, 3)), turned(rng, 2), rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    )
    return scene, state


def points(state):
    """Mass, positions and velocities of eight points in each brick that have its moments."""
    corners = np.array(list(product((-1, 1), repeat=3))) * SIZE / np.sqrt(3)
    places, velocities = [], []
    for k, arm in enumerate((np.zeros(3), ARM)):
        turn = Rotation.from_quat(np.asarray(state.orientation[k]), scalar_first=True)
        local = corners + arm
        places.append(state.position[k] + turn.apply(local))
        sweep = turn.apply(np.cross(state.angular_velocity[k], local))
        velocities.append(state.velocity[k] + sweep)
    return MASS / 8, np.concatenate(places), np.concatenate(velocities)


def test_energy_is_that_of_point_masses():
    scene, state = bricks(gravity=(1.0, -2.0, -3.0))
    mass, place, velocity = points(state)
    expected = mass * np.sum(velocity**2) / 2 - mass * np.sum(place @ scene.gravity)
    np.testing.assert_allclose(sp.energy(scene, state), expected, rtol=1e-12)


def test_momentum_is_that_of_point_masses():
    scene, state = bricks(timestep=1e-9)
    mass, place, velocity = points(state)
    found = sp.momentum(scene, state)
    np.testing.assert_allclose(found.linear, mass * velocity.sum(axis=0), rtol=1e-12)
    expected = mass * np.cross(place, velocity).sum(axis=0)
    np.testing.assert_allclose(found.angular, expected, atol=1e-9)


def test_free_flight_keeps_what_it_should():
    """Weight adds h m g and, about where the centres of mass are before the step, its moment."""
    scene, state = bricks()
    trajectory = rolled(scene, state, 20, relaxation=1e-6).state
    linear, angular = jax.vmap(partial(sp.momentum, scene))(trajectory)
    lost = np.array([MASS * (G * 0.02) ** 2 / 2]) * 2 * np.arange(1, 21)
    np.testing.assert_allclose(
        linear[:, 2], sp.momentum(scene, state).linear[2] - 2 * MASS * G * 0.02 * np.arange(1, 21)
    )
    first = jax.tree.map(lambda v: v[None], state)
    before = jax.tree.map(lambda a, b: np.concatenate([a, b[:-1]]), first, trajectory)
    moments = [
        np.cross(points(jax.tree.map(lambda v, k=k: v[k], before))[1], scene.gravity).sum(axis=0)
        for k in range(20)
    ]
    expected = sp.momentum(scene, state).angular + 0.02 * MASS / 8 * np.cumsum(moments, axis=0)
    np.testing.assert_allclose(angular, expected, atol=1e-9)

    still = dataclasses.replace(state, angular_velocity=jnp.zeros((2, 3)))
    falling = rolled(scene, still, 20, relaxation=1e-6).state
    energies = jax.vmap(partial(sp.energy, scene))(falling)
    np.testing.assert_allclose(energies, sp.energy(scene, still) - lost, atol=1e-9)


def test_energy_is_differentiated():
    """By velocity the linear momentum of each body, by position its weight."""
    scene, state = bricks()
    slopes = jax.jit(jax.grad(partial(sp.energy, scene)))(state)
    np.testing.assert_allclose(slopes.position, [[0, 0, MASS * G]] * 2, rtol=1e-12)
    linear = sp.momentum(scene, state).linear
    np.testing.assert_allclose(slopes.velocity.sum(axis=0), linear, rtol=1e-12)


@pytest.mark.parametrize("function", [sp.energy, sp.momentum])
def test_states_of_other_scenes_are_refused(function):
    scene, state = bricks()
    with pytest.raises(ValueError, match="state: position"):
        function(scene, jax.tree.map(lambda v: v[:1], state))
