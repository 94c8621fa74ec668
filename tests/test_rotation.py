"""Quaternions against those of scipy."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from silico_py import rotation
from silico_py.scene import State
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
