"""Random starts of thrown bodies."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from silico_py.body import Body
from silico_py.scene import State


def random_drops(body: Body, members: int, seed: int, size: float = 1.0) -> State:
    """Random poses above the floor: any orientation, 0.2 to 0.8 m of clearance, moving.

    Of another `size` [m] it is the same, in units of that and of the speed of a fall over it.
    """
    rng, speed = np.random.default_rng(seed), math.sqrt(size)
    orientation = random_turns(rng, members)
    position = np.zeros((members, 1, 3))
    position[:, 0, 2] = float(body.shapes.bounding_radius) + size * rng.uniform(0.2, 0.8, members)
    velocity = rng.uniform(-1, 1, (members, 1, 3))
    velocity[..., 2] = rng.uniform(-2, 0, (members, 1))
    spin = rng.uniform(-1, 1, (members, 1, 3))
    parts = position, orientation, speed * velocity, speed / size * spin
    return State(*(jnp.asarray(v) for v in parts))


def random_turns(rng: np.random.Generator, members: int) -> np.ndarray:
    """(members, 1, 4) uniform orientations."""
    q = rng.normal(size=(members, 1, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)
