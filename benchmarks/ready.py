"""The ready scenes, for benchmarks that go through all of them."""

from __future__ import annotations

from collections.abc import Callable

import silico_py as sp

QUICK = ("drop:box", "drop:capsule", "planar_push")


def chosen(quick: bool) -> dict[str, Callable[..., tuple[sp.Scene, sp.State]]]:
    """All, or a few with few kinds of contact."""
    return {name: sp.scenes.SCENES[name] for name in (QUICK if quick else sp.scenes.SCENES)}
