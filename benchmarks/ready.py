"""The ready scenes, for benchmarks that go through all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import silico_py as sp

QUICK = ("drop:box", "drop:capsule", "planar_push")


def chosen(
    quick: bool, names: Sequence[str] = ()
) -> dict[str, Callable[..., tuple[sp.Scene, sp.State]]]:
    """The scenes of these names, or without any all, or a few with few kinds of contact."""
    return {
        name: sp.scenes.SCENES[name] for name in names or (QUICK if quick else sp.scenes.SCENES)
    }
