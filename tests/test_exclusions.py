"""Pairs that a scene excludes never collide: bodies with bodies and with the environment."""

import dataclasses

import numpy as np
import pytest
from stepping import rolled

import silico_py as sp

UPRIGHT = (1.0, 0.0, 0.0, 0.0)


def ball(name):
    return sp.Body(name, sp.Sphere(radius=0.1), mass=1.0)


def touching(scene):
    """Names, or a name and an index into the environment, of every pair."""
    return {
        (
            scene.bodies[pair.body_a].name,
            pair.piece_b if pair.body_b is None else scene.bodies[pair.body_b].name,
        )
        for pair in scene.pairs
    }


def make_scene(exclude):
    """Two balls, and an environment of a floor, a bench of two boxes, and a box."""
    box = sp.Box((0.1, 0.1, 0.1))
    bench = sp.Bundle([(box, (x, 0.0, 0.0), UPRIGHT) for x in (-1.0, 1.0)])
    environment = [sp.scenes.floor(), bench, (box, (0.0, 3.0, 0.0), UPRIGHT)]
    return sp.Scene([ball("a"), ball("b")], environment, exclude=exclude)


EVERYTHING = {("a", "b"), *((name, k) for name in "ab" for k in range(4))}


@pytest.mark.parametrize(
    ("exclude", "gone"),
    [
        ([], set()),
        ([("b", "a")], {("a", "b")}),
        ([("a", 0)], {("a", 0)}),
        ([(0, "a")], {("a", 0)}),
        ([("b", 1)], {("b", 1), ("b", 2)}),  # both boxes of the bench
        ([("b", np.int64(2)), ("a", "b")], {("b", 3), ("a", "b")}),
    ],
)
def test_excluded_pairs_are_gone(exclude, gone):
    scene = make_scene(exclude)
    assert touching(scene) == EVERYTHING - gone
    changed = dataclasses.replace(scene, friction=0.1)
    assert changed.pairs == scene.pairs and changed.exclude == scene.exclude


def test_a_ball_falls_through_the_floor_it_is_excluded_from():
    scene = sp.Scene(
        [ball("stays"), ball("falls")],
        [sp.scenes.floor()],
        timestep=0.05,
        exclude=[("stays", "falls"), ("falls", 0)],
    )
    state = scene.state(position=[[0.0, 0.0, 0.1], [1.0, 0.0, 0.1]])
    trajectory = rolled(scene, state, 10)
    height = trajectory.state.position[:, :, 2]
    np.testing.assert_allclose(height[:, 0], 0.1, atol=1e-4)
    steps = np.arange(1, 11)
    fallen = 9.81 * 0.05**2 * steps * (steps + 1) / 2  # each step moves by its last velocity
    np.testing.assert_allclose(height[:, 1], 0.1 - fallen, atol=1e-9)
