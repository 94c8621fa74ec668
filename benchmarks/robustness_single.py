"""Random drops of every primitive in single precision: how many runs fail.

Counted as in the robustness on a floor; violations are measured in double precision.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from rich.console import Console

import silico_py as sp
from benchmarks import harness

SECONDS = 1.5
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-4, 1e-5)
QUICK_MEMBERS, FULL_MEMBERS = 20, 100


def run(quick: bool, console: Console) -> bool:
    """All primitives; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    drops = {name: partial(_drops, name, members) for name in sp.scenes.SHAPES}
    return harness.failures(
        "robustness_single", drops, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def _drops(name: str, members: int) -> tuple[sp.Scene, sp.State]:
    double = harness.drops_on_floor(name, sp.scenes.SHAPES[name](), members)
    return jax.tree.map(jnp.float32, double)
