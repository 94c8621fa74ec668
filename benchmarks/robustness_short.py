"""Random drops of every primitive in steps of 3 and 1 ms: how many runs fail.

In so short a step bodies hardly press on each other, so that friction is tight long before the gap
is settled, and slip ends or turns round within one. Counted as in the robustness on a floor.
"""

from __future__ import annotations

from functools import partial

from rich.console import Console

import silico_py as sp
from benchmarks import harness

SECONDS = 1.5
FREQUENCIES = (300, 1000)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 20, 100


def run(quick: bool, console: Console) -> bool:
    """All primitives; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    drops = {
        name: partial(harness.drops_on_floor, name, make(), members)
        for name, make in sp.scenes.SHAPES.items()
    }
    return harness.failures(
        "robustness_short", drops, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )
