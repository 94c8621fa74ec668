"""A box that moves by many times its size in a step, or turns by more than a radian.

Counted as in the robustness on a floor.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax.numpy as jnp
from rich.console import Console

import silico_py as sp
from benchmarks import harness

HALF_SIDE = 0.15  # [m]
SPEEDS, SPINS = (20.0, 100.0), (30.0, 100.0)  # [m/s], [rad/s]
SECONDS = 1.5
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 20, 100


def run(quick: bool, console: Console) -> bool:
    """Thrown along the floor, and spinning about a random axis; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    starts = {f"at {v:g} m/s": partial(drops, members, speed=v) for v in SPEEDS}
    starts |= {f"at {w:g} rad/s": partial(drops, members, spin=w) for w in SPINS}
    return harness.failures(
        "robustness_fast", starts, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def drops(members: int, speed: float = 0.0, spin: float = 0.0) -> tuple[sp.Scene, sp.State]:
    """Random drops of the box, `speed` added along x, or turned at `spin` as it would turn."""
    scene, states = harness.drops_on_floor("box", sp.Box(3 * (HALF_SIDE,)), members)
    velocity, turning = states.velocity.at[..., 0].add(speed), states.angular_velocity
    if spin:
        turning *= spin / jnp.linalg.norm(turning, axis=-1, keepdims=True)
    return scene, replace(states, velocity=velocity, angular_velocity=turning)
