"""Shapes of ten and a hundred metres fall and tumble on a floor: how many runs fail.

Heights and speeds are those of a body of one metre, in units of the size and of the speed of a
fall over it. Counted as in the robustness on a floor.
"""

from __future__ import annotations

import math
from functools import partial

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness

SIZES = (10.0, 100.0)  # [m]
SECONDS = 10.0
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 10, 100
KINDS = {
    "box": lambda size: sp.Box((size, 0.6 * size, 0.4 * size)),
    "cone": lambda size: sp.Cone(0.7 * size, 2 * size),
    "ellipsoid": lambda size: sp.Ellipsoid((size, 0.6 * size, 0.4 * size)),
}


def run(quick: bool, console: Console) -> bool:
    """All shapes of all sizes; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    drops = {
        f"{name}, {size:g} m": partial(drops_of, name, size, members)
        for name in KINDS
        for size in SIZES
    }
    return harness.failures(
        "robustness_large", drops, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def drops_of(name: str, size: float, members: int) -> tuple[sp.Scene, sp.State]:
    """The scene of one shape of one size, and so many states."""
    body = sp.Body(name, KINDS[name](size), mass=1.0)
    scene = sp.Scene([body], [sp.scenes.floor()], friction=0.2)
    return scene, random_falls(body, size, members, seed=0)


def random_falls(body: sp.Body, size: float, members: int, seed: int) -> sp.State:
    """Random poses above the floor, moving."""
    rng, speed = np.random.default_rng(seed), math.sqrt(size)
    position, velocity, spin = np.zeros((3, members, 1, 3))
    position[:, 0, 2] = harness.reach(body) + size * rng.uniform(0.2, 0.8, members)
    velocity[:, 0] = speed * rng.uniform((-1, -1, -2), (1, 1, 0), (members, 3))
    spin[:, 0] = speed / size * rng.uniform(-1, 1, (members, 3))
    turns = harness.random_turns(rng, members)
    return sp.State(*(jnp.asarray(v) for v in (position, turns, velocity, spin)))
