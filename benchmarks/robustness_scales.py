"""Shapes of 3 mm, 10 m and 100 m fall and tumble on a floor: how many runs fail.

Heights and speeds are those of a body of one metre, in units of the size and of the speed of a
fall over it. Counted as in the robustness on a floor.
"""

from __future__ import annotations

from functools import partial

from rich.console import Console

import silico_py as sp
from benchmarks import harness

SIZES = (0.003, 10.0, 100.0)  # [m]
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
        f"{name}, {size:g} m": partial(
            harness.drops_on_floor, name, KINDS[name](size), members, size
        )
        for name in KINDS
        for size in SIZES
    }
    return harness.failures(
        "robustness_scales", drops, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )
