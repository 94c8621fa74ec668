"""Forces at points of bodies, against the work they do and the centre of percussion."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from stepping import stepped, turned

import silico_py as sp
from silico_py.tangents import perturb

ARM, POINT = np.array([0.3, -0.1, 0.2]), np.array([0.2, 0.4, -0.1])


def bricks():
    """Two that are turned, with their centres of mass off the origins of their frames."""
    piece = (sp.Box((0.1, 0.2, 0.4)), ARM, (1.0, 0.0, 0.0, 0.0))
    scene = sp.Scene([sp.Body(name, [piece], mass=2.0) for name in "ab"])
    rng = np.random.default_rng(0)
    return scene, scene.state(rng.normal(size=(2, 3)), turned(rng, 2))


def place(state, point):
    """A point of the second body, in the world."""
    turn = Rotation.from_quat(np.array(state.orientation[1]), scalar_first=True)
    return turn.apply(point) + np.array(state.position[1]), turn


@pytest.mark.parametrize("frame", ["world", "body"])
def test_a_force_does_the_work_of_its_point(frame):
    """However the body moves, and a torque that of its turn."""
    scene, state = bricks()
    force, torque = np.array([1.0, -2.0, 3.0]), np.array([0.5, 0.4, -0.3])
    control = np.array(sp.force_at(scene, state, "b", POINT, force, torque, frame))
    assert not control[0].any()
    _, turn = place(state, POINT)
    if frame == "body":
        force, torque = turn.apply(force), turn.apply(torque)
    small = 1e-6
    for move in np.eye(12)[:6]:  # and turns
        ends = [perturb(state, jnp.zeros((2, 12)).at[1].set(s * move)) for s in (-small, small)]
        way, center = (
            (place(ends[1], p)[0] - place(ends[0], p)[0]) / (2 * small) for p in (POINT, ARM)
        )
        turned_by = turn.apply(move[3:6])
        work = force @ way + torque @ turned_by
        np.testing.assert_allclose(control[1] @ [*center, *turned_by], work, atol=1e-9)


def test_a_rod_that_is_struck_turns_about_its_centre_of_percussion():
    """At its end: two thirds of its length from there, if it is thin."""
    half, thick = 0.5, 0.05
    scene = sp.Scene([sp.Body("rod", sp.Box((half, thick, thick)), mass=2.0)], gravity=(0, 0, 0))
    state = scene.state()
    push = sp.force_at(scene, state, "rod", (half, 0, 0), (0, 3.0, 0))
    following, _ = stepped(scene, state, push)
    behind = (half**2 + thick**2) / 3 / half  # of the centre of mass
    velocity = following.velocity[0] + np.cross(following.angular_velocity[0], [-behind, 0, 0])
    assert following.velocity[0, 1] > 0.01
    np.testing.assert_allclose(velocity, 0, atol=1e-7)
