"""Quaternions against those of scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax.scipy.spatial.transform import Rotation as JaxRotation
from scipy.spatial.transform import Rotation

from silico_py import rotation
from silico_py.body import Body
from silico_py.primitives import Box, Bundle
from silico_py.scene import Scene, State
from silico_py.scenes import tilt
from silico_py.tangents import difference, perturb

VECTORS = arrays(float, 3, elements=st.floats(-3, 3))
AXES = VECTORS.filter(lambda v: np.linalg.norm(v) > 1e-3)
ANGLES = st.floats(-3.0, 3.0)


def theirs(axis, angle):
    return Rotation.from_rotvec(angle * axis / np.linalg.norm(axis))


@settings(deadline=None)
@given(AXES, ANGLES, VECTORS)
def test_a_turn_about_an_axis(axis, angle, v):
    q, same = rotation.about(axis, angle), theirs(axis, angle)
    np.testing.assert_allclose(rotation.matrix(q), same.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(rotation.rotate(q, jnp.asarray(v)), same.apply(v), atol=1e-13)


@settings(deadline=None)
@given(AXES, ANGLES, AXES, ANGLES)
def test_turns_one_after_another(axis, angle, other, more):
    p, q = rotation.about(axis, angle), rotation.about(other, more)
    both = theirs(axis, angle) * theirs(other, more)
    np.testing.assert_allclose(
        rotation.matrix(rotation.multiply(p, q)), both.as_matrix(), atol=1e-14
    )
    between = theirs(axis, angle).inv() * theirs(other, more)
    found = rotation.between(p, q)
    np.testing.assert_allclose(rotation.matrix(found), between.as_matrix(), atol=1e-14)


def test_the_difference_of_states_leads_from_one_to_the_other():
    """By turns of up to half a turn; its length is twice the tangent of half the angle."""
    turns = Rotation.random(40, rng=0), Rotation.random(40, rng=1)
    rng, states = np.random.default_rng(0), []
    for turn in turns:
        orientation = jnp.asarray(turn.as_quat(scalar_first=True))
        states.append(State(rng.normal(size=(40, 3)), orientation, *rng.normal(size=(2, 40, 3))))
    first, second = states
    change = difference(second, first)
    found = perturb(first, change)
    np.testing.assert_allclose(rotation.matrix(found.orientation), turns[1].as_matrix(), atol=1e-12)
    np.testing.assert_allclose(found.position, second.position, atol=1e-14)
    angle = (turns[0].inv() * turns[1]).magnitude()
    assert angle.max() > 3
    np.testing.assert_allclose(np.linalg.norm(change[:, 3:6], axis=1), 2 * np.tan(angle / 2))


@settings(deadline=None)
@given(AXES.filter(lambda v: np.linalg.norm(v) < 3))
def test_the_cayley_map_turns_about_its_argument(t):
    size = np.linalg.norm(t)
    expected = theirs(t, 2 * np.arctan(size / 2)).as_matrix()
    np.testing.assert_allclose(rotation.matrix(rotation.cayley(t)), expected, atol=1e-14)


@pytest.mark.parametrize("axis", range(3))
def test_tilts_are_turns_about_coordinate_axes(axis):
    np.testing.assert_allclose(tilt(axis, 0.7), rotation.about(np.eye(3)[axis], 0.7), atol=1e-15)


def as_many(turns):
    """Some turns in all the ways in which they may be given."""
    quaternions = turns.as_quat(scalar_first=True)
    theirs = JaxRotation.from_quat(jnp.asarray(turns.as_quat()))
    return [quaternions, turns, theirs, list(turns), [quaternions[0], *turns[1:]]]


@pytest.mark.parametrize("way", range(5))
def test_orientations_may_be_rotations(way):
    turns = Rotation.random(2, rng=0)
    given, box = as_many(turns)[way], Box((0.1, 0.2, 0.3))
    scene = Scene([Body(name, box, mass=1.0) for name in "ab"])
    found = scene.state(orientation=given).orientation
    np.testing.assert_allclose(rotation.matrix(found), turns.as_matrix(), atol=1e-14)

    bundle = Bundle(shapes=[box, box], positions=np.zeros((2, 3)), orientations=given)
    corners = [turn.apply([[0.1, 0.2, 0.3]])[0] for turn in turns]
    assert all(bundle.contains(0.999 * corner) for corner in corners)
    assert not any(bundle.contains(1.001 * corner) for corner in corners)


def test_one_rotation_places_one_shape_or_one_body():
    turn, box = Rotation.from_euler("zx", [0.3, 0.4]), Box((0.1, 0.2, 0.3))
    scene = Scene([Body("a", [(box, (0, 0, 1), turn)], mass=1.0)], [(box, (0, 0, 0), turn)])
    for found in (
        scene.state(orientation=turn).orientation[0],
        scene.bodies[0].pieces[0][2],
        scene.environment[0].orientation,
    ):
        np.testing.assert_allclose(rotation.matrix(found), turn.as_matrix(), atol=1e-14)
    both = Scene([Body(name, box, mass=1.0) for name in "ab"])
    with pytest.raises(ValueError, match=r"orientation: expected shape \(2, 4\)"):
        both.state(orientation=turn)


def test_rotations_of_jax_may_be_traced():
    scene = Scene([Body("a", Box((0.1, 0.2, 0.3)), mass=1.0)])

    def cosine(angle):
        turn = JaxRotation.from_euler("z", angle)
        return rotation.matrix(scene.state(orientation=turn).orientation)[0, 0, 0]

    value, slope = jax.jit(jax.value_and_grad(cosine))(0.3)
    np.testing.assert_allclose([value, slope], [np.cos(0.3), -np.sin(0.3)], rtol=1e-12)
