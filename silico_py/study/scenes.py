"""Scenes of the study, each with a sampler of starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from silico_py import scenes
from silico_py.body import Body
from silico_py.primitives import Box, Polytope
from silico_py.scene import Scene, State
from silico_py.study.starts import random_drops

PLANE_LOCK = 1e10  # stiffness that keeps a body in the x-z plane [N/m, N m/rad]
PLANAR = 3 * (0.0, PLANE_LOCK)
FACES = ((1.0, 0.2), (0.0, 1.0), (-1.0, -0.3), (0.0, -1.0), (0.8, -0.8))  # of the paper, x and z
OFFSET, THICKNESS = 0.4, 0.4
HALF_SIDE = 0.25


class Experiment(NamedTuple):
    """A scene and `(seed, n) -> n starts`, a `State` with a leading axis."""

    scene: Scene
    starts: Callable[[int, int], State]


Columns = Sequence[np.ndarray] | np.ndarray  # one array of n numbers a coordinate


def planar_polytope() -> Experiment:
    """The five-sided polytope of the paper's Fig. 9 as a prism that stays in its plane."""
    normals = np.array([(x, 0.0, z) for x, z in FACES])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    normals = np.concatenate([normals, [(0.0, 1.0, 0.0), (0.0, -1.0, 0.0)]])
    offsets = np.array([OFFSET] * len(FACES) + [THICKNESS] * 2)
    body = Body(
        "prism",
        Polytope(normals, offsets),
        mass=1.0,
        inertia=0.2 * np.eye(3),
        center_of_mass=(0.0, 0.0, 0.0),
        stiffness=PLANAR,
    )
    scene = Scene([body], [scenes.floor()], friction=0.2)

    def starts(seed: int, n: int) -> State:
        rng = np.random.default_rng(seed)
        angle = rng.uniform(0, 2 * np.pi, n)
        zero = np.zeros(n)
        height = rng.uniform(0.707, 1.5, n)
        velocity = (rng.uniform(-1, 1, n), zero, rng.uniform(-2, 0, n))
        quaternion = (np.cos(angle / 2), zero, np.sin(angle / 2), zero)
        spin = (zero, rng.uniform(-1, 1, n), zero)
        return _states((zero, zero, height), quaternion, velocity, spin)

    return Experiment(scene, starts)


def drop(shape: str) -> Experiment:
    """Any ready shape thrown at the floor in 3D, every orientation alike."""
    scene, _ = scenes.drop(shape, friction=0.2)
    (body,) = scene.bodies
    return Experiment(scene, lambda seed, n: random_drops(body, n, seed))


def jittered(name: str) -> Experiment:
    """A ready scene whose bodies start with small random velocities."""
    scene, state = {"peg_in_hole": scenes.peg_in_hole, "stack": scenes.stack}[name]()

    def starts(seed: int, n: int) -> State:
        rng = np.random.default_rng(seed)
        shape = (n, *state.velocity.shape)
        still = jax.tree.map(lambda v: jnp.broadcast_to(v, (n, *v.shape)), state)
        velocity = jnp.asarray(rng.uniform(-0.01, 0.01, shape))
        return State(still.position, still.orientation, velocity, still.angular_velocity)

    return Experiment(scene, starts)


def two_blocks() -> Experiment:
    """Two blocks on each other, the upper one 0.02 i off (Fig. 10); planar."""
    cube = Box(half_extents=(HALF_SIDE,) * 3)
    bodies = [Body(name, cube, mass=1.0, stiffness=PLANAR) for name in ("lower", "upper")]
    scene = Scene(bodies, [scenes.floor()], friction=0.5)

    def starts(_: int, n: int) -> State:
        offset = 0.02 * np.arange(1, n + 1)
        position = np.zeros((n, 2, 3))
        position[:, :, 2] = HALF_SIDE, 3 * HALF_SIDE
        position[:, 1, 0] = offset
        zero = jnp.zeros((n, 2, 3))
        orientation = jnp.zeros((n, 2, 4)).at[..., 0].set(1)
        return State(jnp.asarray(position), orientation, zero, zero)

    return Experiment(scene, starts)


def _states(position: Columns, quaternion: Columns, velocity: Columns, spin: Columns) -> State:
    parts = (position, quaternion, velocity, spin)
    return State(*(jnp.asarray(np.moveaxis(np.asarray(part), 0, -1))[:, None] for part in parts))
