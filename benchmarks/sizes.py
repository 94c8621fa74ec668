"""A small box is thrown onto a box up to a thousand times its size: how many runs fail.

The small one has a half side of 5 mm and 1 g, the large one the same density but at most a
tonne, and both may touch the floor. Counted as in the robustness of pairs.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness
from silico_py.study.starts import random_turns

HALF_SIDE, LIGHT, HEAVIEST = 0.005, 1e-3, 1e3  # [m], [kg]
RATIOS = (1, 10, 100, 1000)
SECONDS = 0.4
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 10, 100


def run(quick: bool, console: Console) -> bool:
    """All ratios of sizes; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    throws = {f"{r}:1": partial(throws_of, r, members) for r in RATIOS}
    return harness.failures("sizes", throws, FREQUENCIES, RELAXATIONS, SECONDS, quick, console)


def throws_of(ratio: float, members: int) -> tuple[sp.Scene, sp.State]:
    """The scene of one ratio, and so many states."""
    return scene_of(ratio), random_throws(ratio, members, seed=0)


def scene_of(ratio: float) -> sp.Scene:
    """A small box and one `ratio` times its size."""
    mass = min(LIGHT * ratio**3, HEAVIEST)
    bodies = [
        sp.Body("small", sp.Box(3 * (HALF_SIDE,)), mass=LIGHT),
        sp.Body("large", sp.Box(3 * (ratio * HALF_SIDE,)), mass=mass),
    ]
    return sp.Scene(bodies, [sp.scenes.floor()], friction=0.5)


def random_throws(ratio: float, members: int, seed: int) -> sp.State:
    """The large box on the floor, the small one above it, turned and moving at random."""
    rng = np.random.default_rng(seed)
    half = ratio * HALF_SIDE
    position, velocity, spin = np.zeros((3, members, 2, 3))
    position[:, 0, :2] = half * rng.uniform(-0.8, 0.8, (members, 2))
    position[:, 0, 2] = 2 * half + HALF_SIDE * rng.uniform(2, 8, members)
    position[:, 1, 2] = half
    orientation = np.tile([1.0, 0.0, 0.0, 0.0], (members, 2, 1))
    orientation[:, :1] = random_turns(rng, members)
    velocity[:, 0] = rng.uniform(-0.3, 0.3, (members, 3))
    spin[:, 0] = rng.uniform(-3, 3, (members, 3))
    return sp.State(*(jnp.asarray(v) for v in (position, orientation, velocity, spin)))
