"""Gaps of contacts, against the corners of their shapes and closed forms."""

from functools import partial

import jax
import numpy as np
from scipy.spatial.transform import Rotation
from shapes import PYRAMID
from stepping import rolled, turned

import silico_py as sp


def crowd():
    """A body of two kinds of pieces, another, and a fixed box and a half-space, all turned."""
    rng = np.random.default_rng(0)
    turns = [*turned(rng, 4)]
    pieces = [(sp.Box((0.1, 0.2, 0.3)), rng.normal(size=3), turns[0])]
    pieces.append((sp.Polytope.from_vertices(PYRAMID), rng.normal(size=3), turns[1]))
    bodies = [sp.Body("both", pieces, mass=1.0), sp.Body("box", sp.Box((0.3, 0.2, 0.1)), mass=1.0)]
    fixed = [(sp.Box((0.2, 0.1, 0.1)), rng.normal(size=3), turns[2])]
    fixed.append((sp.HalfSpace((0.0, 0.6, 0.8), 0.3), rng.normal(size=3), turns[3]))
    scene = sp.Scene(bodies, fixed)
    return scene, scene.state(rng.normal(size=(2, 3)), turned(rng, 2))


def placed(shape, *poses):
    """Corners in the world, through one pose after another."""
    points = np.array(shape.surface_mesh()[0])
    for position, orientation in poses:
        points = Rotation.from_quat(np.array(orientation), scalar_first=True).apply(points)
        points = points + np.asarray(position)
    return points


def corners(scene, state, body, piece):
    """Of one of the pieces of a body."""
    shape, *pose = scene.bodies[body].pieces[piece]
    return placed(shape, pose, (state.position[body], state.orientation[body]))


def expected(scene, state, pair, normal):
    """Between the nearest corners along the normal."""
    first = corners(scene, state, pair.body_a, pair.piece_a)
    if pair.body_b is not None:
        return np.min(first @ normal) - np.max(
            corners(scene, state, pair.body_b, pair.piece_b) @ normal
        )
    fixture = scene.environment[pair.piece_b]
    pose = fixture.position, fixture.orientation
    if fixture.shape.scaled:
        return np.min(first @ normal) - np.max(placed(fixture.shape, pose) @ normal)
    turn = Rotation.from_quat(np.array(fixture.orientation), scalar_first=True)
    outward = turn.apply(np.array(fixture.shape.normal))
    return np.min((first - fixture.position) @ outward) - fixture.shape.offset


def test_gaps_are_those_of_corners_along_the_normal():
    scene, state = crowd()
    normal = np.random.default_rng(1).normal(size=(len(scene.pairs), 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    nothing = np.zeros_like(normal)
    contacts = sp.ContactInfo(nothing[:, 0], nothing, normal, nothing)
    wanted = [expected(scene, state, *own) for own in zip(scene.pairs, normal, strict=True)]
    np.testing.assert_allclose(sp.gaps(scene, state, contacts), wanted, atol=1e-12)


def test_a_ball_that_falls_on_the_floor_has_its_height():
    scene, state = sp.scenes.drop("sphere")
    states, info = rolled(scene, state, 40, relaxation=1e-6)
    found = jax.vmap(partial(sp.gaps, scene))(states, info.contacts)
    ((ball, _, _),) = scene.bodies[0].pieces
    np.testing.assert_allclose(found[:, 0], states.position[:, 0, 2] - ball.radius, atol=1e-12)
