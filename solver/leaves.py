"""Lists of leaves, some of which have a flag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def replaced(leaves: Sequence[Any], flags: Sequence[bool], own: Iterable[Any]) -> list[Any]:
    """The leaves, those with a flag replaced by one of `own` after another."""
    rest = iter(own)
    return [next(rest) if flag else v for v, flag in zip(leaves, flags, strict=True)]
