"""What functions hold besides their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax


def holds_tracers(function: Any) -> bool:
    """Whether a function closes over an array that is traced: it must not outlive that trace."""
    return any(isinstance(value, jax.core.Tracer) for value in _held(function, set()))


def _held(value: Any, seen: set[int]) -> Iterator[Any]:
    """Leaves of all that a function, or a pytree of functions and arrays, holds."""
    if id(value) in seen:
        return
    seen.add(id(value))
    parts = jax.tree.leaves(value)
    if len(parts) == 1 and parts[0] is value:
        yield value
        parts = _bound(value) if callable(value) else []
    for part in parts:
        yield from _held(part, seen)


def _bound(function: Any) -> list[Any]:
    """What is bound to a function."""
    if isinstance(function, partial):
        return [function.func, *function.args, *function.keywords.values()]
    names = ("__self__", "__func__", "__wrapped__")
    parts = [getattr(function, name) for name in names if hasattr(function, name)]
    cells = getattr(function, "__closure__", None) or ()
    return parts + [cell.cell_contents for cell in cells if _is_filled(cell)]


def _is_filled(cell: Any) -> bool:
    """Whether a closure's variable has a value by now."""
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
