"""Flat and slender shapes fall on a floor: how many runs fail.

What lies straight below such a shape is far outside of it once it is tilted, its sensitivities are
ten times those of a compact one, and a step can turn it from its rim onto its face. Counted as in
the robustness on a floor.
"""

from __future__ import annotations

from functools import partial

from rich.console import Console

import silico_py as sp
from benchmarks import harness

SECONDS = 1.5
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 10, 100
KINDS = {
    "coin": lambda: sp.Cylinder(0.25, 0.02),
    "tile": lambda: sp.Box((0.25, 0.25, 0.0125)),
    "plank": lambda: sp.Box((0.5, 0.08, 0.02)),
    "lens": lambda: sp.Ellipsoid((0.3, 0.3, 0.03)),
    "hat": lambda: sp.Cone(0.4, 0.08),
    "needle": lambda: sp.Ellipsoid((0.5, 0.03, 0.03)),
    "spike": lambda: sp.Cone(0.05, 0.6),
    "rod": lambda: sp.Capsule(0.02, 0.5),
    "sheet": lambda: sp.Box((0.25, 0.25, 0.005)),
    "wire": lambda: sp.Capsule(0.005, 0.5),
}


def run(quick: bool, console: Console) -> bool:
    """All shapes; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    drops = {
        name: partial(harness.drops_on_floor, name, make(), members) for name, make in KINDS.items()
    }
    return harness.failures(
        "robustness_slender", drops, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )
