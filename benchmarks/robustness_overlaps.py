"""One shape starts inside another that lies on the floor: how many runs fail.

The centre of the one lies anywhere in the ball around the other, so that most are deep in each
other, and some in the floor: a step has to throw them apart. Counted as in the robustness of pairs.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness
from benchmarks.robustness_pairs import (
    FREQUENCIES,
    RELAXATIONS,
    every_pair,
    height_at_rest,
    starts_of,
    upper_turned,
)

SECONDS = 0.8
MEMBERS = 12
QUICK_PAIRS = (("box", "box"), ("capsule", "cylinder"), ("cone", "ellipsoid"))


def run(quick: bool, console: Console) -> bool:
    """Every pair of shapes; True when no run fails."""
    starts = starts_of(QUICK_PAIRS if quick else every_pair(), "in", random_overlaps, MEMBERS)
    return harness.failures(
        "robustness_overlaps", starts, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def random_overlaps(scene: sp.Scene, members: int, seed: int) -> sp.State:
    """The lower body upright on the floor, the upper one in it, in any orientation."""
    rng = np.random.default_rng(seed)
    lower, _ = scene.bodies
    away = rng.normal(size=(members, 3))
    distance = float(lower.shapes.bounding_radius) * np.cbrt(rng.uniform(size=(members, 1)))
    away *= distance / np.linalg.norm(away, axis=1, keepdims=True)
    position = np.zeros((members, 2, 3))
    position[:, 0, 2] = height_at_rest(lower)
    position[:, 1] = position[:, 0] + away
    position[:, 1, 2] = np.maximum(position[:, 1, 2], position[:, 0, 2] / 2)  # above the floor
    orientation = upper_turned(rng, members)
    velocity, spin = rng.uniform(-1, 1, (2, members, 2, 3))
    return sp.State(*(jnp.asarray(v) for v in (position, orientation, velocity, spin)))
