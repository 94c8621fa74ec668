"""Towers whose blocks are given random velocities: how many runs fail.

All blocks touch, some are pushed together, some apart, and all slide and tip over. Counted as in
the robustness of pairs.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness

HEIGHTS = (2, 3, 4, 6)
SECONDS = 0.5
FREQUENCIES = (20, 50, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 10, 100
FASTEST = 1.0  # each component of a velocity [m/s]


def run(quick: bool, console: Console) -> bool:
    """All heights; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    towers = {f"{n} blocks": partial(shaken, n, members) for n in HEIGHTS}
    return harness.failures(
        "robustness_towers", towers, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def shaken(blocks: int, members: int) -> tuple[sp.Scene, sp.State]:
    """A tower at rest but for its velocities, and so many states."""
    scene, state = sp.scenes.stack(blocks)
    states = jax.tree.map(lambda v: jnp.broadcast_to(v, (members, *v.shape)), state)
    rng = np.random.default_rng(0)
    velocity = jnp.asarray(rng.uniform(-FASTEST, FASTEST, states.velocity.shape))
    return scene, dataclasses.replace(states, velocity=velocity)
