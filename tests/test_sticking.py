"""What friction holds: it stays where it is, however it turns, and never jams a step."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from stepping import rolled, stepped, turned

import silico_py as sp
from silico_py import rotation

FLOOR = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)


def about_y(angle):
    return jnp.array([[np.cos(angle / 2), 0, np.sin(angle / 2), 0]])


@pytest.mark.parametrize("tilt", [0.3, -0.3])
def test_a_box_tips_over_an_edge_that_stays(tilt):
    """It turns by up to a fifth of a radian a step: by the velocity at the end of a step alone the
    edge would drift by h^2 w^2 r / 2, up to a centimetre, in each."""
    half, h = np.array([0.1, 0.1, 0.5]), 0.05
    scene = sp.Scene([sp.Body("box", sp.Box(half), mass=1.0)], [FLOOR], h, friction=2.0)
    edge = jnp.array([np.sign(tilt) * half[0], 0, -half[2]])
    position = -rotation.rotate(about_y(tilt)[0], edge)[None]
    start = scene.state(position, about_y(tilt))
    start = dataclasses.replace(start, angular_velocity=jnp.array([[0, 4 * tilt, 0]]))
    arm = rotation.rotate(start.orientation[0], edge)
    spin = rotation.rotate(start.orientation[0], start.angular_velocity[0])
    start = dataclasses.replace(start, velocity=-jnp.cross(spin, arm)[None])
    states = rolled(scene, start, 8, relaxation=1e-8).state
    places = states.position[:, 0] + rotation.rotate(states.orientation[:, 0], edge)
    turn = 2 * h * np.abs(states.angular_velocity[:, 0, 1])
    assert turn.max() > 0.2  # it has turned fast
    np.testing.assert_allclose(places[:, [0, 2]], 0, atol=1e-5)


SHAPES = {"box": sp.Box((0.25, 0.25, 0.25)), "cylinder": sp.Cylinder(radius=0.2, length=0.5)}


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_jams_in_a_groove(name):
    """Sides within the friction cones of each other hold a body at any force: what pushes them
    apart has to be a motion that friction allows."""
    half = np.radians(103 / 2)
    sides = [sp.HalfSpace((s * np.cos(half), 0, np.sin(half)), 0.0) for s in (1, -1)]
    scene = sp.Scene([sp.Body(name, SHAPES[name], mass=1.0)], sides, 0.05, friction=2.0)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        velocity, spin = rng.normal(size=(1, 3)), 4 * rng.normal(size=(1, 3))
        start = scene.state([[0, 0, 0.6]], turned(rng, 1), velocity, spin)
        forces = rolled(scene, start, 25).info.contacts.force
        # That of an impact at 5 m/s within a step.
        assert np.linalg.norm(forces, axis=-1).max() < 5 / 0.05


@pytest.fixture(scope="module")
def grazing():
    """Two spinning bodies about to meet off their centres, with friction and without gravity."""
    names, masses = ("first", "second"), (1.0, 3.0)
    shapes = sp.Box((0.2, 0.15, 0.1)), sp.Box((0.2, 0.3, 0.25))
    bodies = [sp.Body(*own) for own in zip(names, shapes, masses, strict=True)]
    rng = np.random.default_rng(1)
    position = [[0.0, 0.0, 0.0], [0.4, 0.05, 0.02]]
    velocity, spin = [[1.0, 0.3, 0.0], [-1.0, -0.2, 0.1]], 3 * rng.normal(size=(2, 3))
    scene = sp.Scene(bodies, timestep=0.05, friction=0.8, gravity=(0, 0, 0))
    return scene, scene.state(position, turned(rng, 2), velocity, spin)


def test_friction_of_two_bodies_is_the_same_from_a_moving_frame(grazing):
    scene, state = grazing
    wind = np.array([3.0, -2.0, 1.5])
    moving = dataclasses.replace(state, velocity=state.velocity + wind)
    found, seen = (stepped(scene, s, relaxation=1e-6) for s in (state, moving))
    assert found[1].converged and seen[1].converged
    force = np.asarray(found[1].contacts.force)
    assert np.abs(force).max() > 1  # they have met
    np.testing.assert_allclose(seen[1].contacts.force, force, atol=1e-7 * np.abs(force).max())
    np.testing.assert_allclose(seen[0].velocity - wind, found[0].velocity, atol=1e-7)
    np.testing.assert_allclose(seen[0].angular_velocity, found[0].angular_velocity, atol=1e-7)


def test_friction_of_two_bodies_is_the_same_in_either_order(grazing):
    scene, state = grazing
    swapped = dataclasses.replace(scene, bodies=scene.bodies[::-1])
    back = dataclasses.replace(
        state, **{k: getattr(state, k)[::-1] for k in sp.State.__dataclass_fields__}
    )
    found, other = stepped(scene, state, relaxation=1e-6), stepped(swapped, back, relaxation=1e-6)
    assert found[1].converged and other[1].converged
    np.testing.assert_allclose(other[0].velocity[::-1], found[0].velocity, atol=1e-7)
    np.testing.assert_allclose(
        other[0].angular_velocity[::-1], found[0].angular_velocity, atol=1e-7
    )
