"""The ready scenes, for benchmarks that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import silico_py as sp

Maker = Callable[[], tuple[sp.Scene, sp.State]]

SCENES: dict[str, Maker] = {
    **{f"drop:{shape}": partial(sp.scenes.drop, shape) for shape in sp.scenes.SHAPES},
    "planar_push": sp.scenes.planar_push,
    "collision": sp.scenes.collision,
    "peg_in_hole": sp.scenes.peg_in_hole,
    "grasp": sp.scenes.grasp,
    "stack": sp.scenes.stack,
    "jenga": sp.scenes.jenga,
    "bundle_drop": sp.scenes.bundle_drop,
}
QUICK = ("drop:box", "drop:capsule", "planar_push")


def chosen(quick: bool) -> dict[str, Maker]:
    """All, or a few with few kinds of contact."""
    return {name: SCENES[name] for name in QUICK} if quick else SCENES
