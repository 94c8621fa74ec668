"""One shape starts inside another that lies on the floor: how many runs fail.

The centre of the one lies anywhere in the ball around the other, so that most are deep in each
other, and some in the floor: a step has to throw them apart. Counted as in the robustness of pairs.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness
from benchmarks.robustness_pairs import height_at_rest, pair_on_floor

SECONDS = 0.8
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
MEMBERS = 12
QUICK_PAIRS = (("box", "box"), ("capsule", "cylinder"), ("cone", "ellipsoid"))


def run(quick: bool, console: Console) -> bool:
    """Every pair of shapes; True when no run fails."""
    names = list(sp.scenes.SHAPES)
    pairs = QUICK_PAIRS if quick else [(a, b) for a in names for b in names]
    starts = {f"{a} in {b}": partial(overlaps_of, a, b, MEMBERS) for a, b in pairs}
    return harness.failures(
        "robustness_overlaps", starts, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def overlaps_of(upper: str, lower: str, members: int) -> tuple[sp.Scene, sp.State]:
    """The scene of one pair, and so many states."""
    scene = pair_on_floor(upper, lower)
    return scene, random_overlaps(scene, members, seed=0)


def random_overlaps(scene: sp.Scene, members: int, seed: int) -> sp.State:
    """The lower body upright on the floor, the upper one in it, in any orientation."""
    rng = np.random.default_rng(seed)
    lower, _ = scene.bodies
    away = rng.normal(size=(members, 3))
    distance = harness.reach(lower) * np.cbrt(rng.uniform(size=(members, 1)))
    away *= distance / np.linalg.norm(away, axis=1, keepdims=True)
    position = np.zeros((members, 2, 3))
    position[:, 0, 2] = height_at_rest(lower)
    position[:, 1] = position[:, 0] + away
    position[:, 1, 2] = np.maximum(position[:, 1, 2], position[:, 0, 2] / 2)  # above the floor
    orientation = np.tile([1.0, 0.0, 0.0, 0.0], (members, 2, 1))
    orientation[:, 1:] = harness.random_turns(rng, members)
    velocity, spin = rng.uniform(-1, 1, (2, members, 2, 3))
    return sp.State(*(jnp.asarray(v) for v in (position, orientation, velocity, spin)))
