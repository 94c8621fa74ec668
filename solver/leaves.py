"""Lists of leaves, some of which have a flag or are batched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array


def replaced(leaves: Sequence[Any], flags: Sequence[bool], own: Iterable[Any]) -> list[Any]:
    """The leaves, those with a flag replaced by one of `own` after another."""
    rest = iter(own)
    return [next(rest) if flag else v for v, flag in zip(leaves, flags, strict=True)]


def axes_first(args: Sequence[Array], axes: Sequence[int | None]) -> tuple[int, list[Array]]:
    """Size of a batch, and its arguments with the axes of the batch, where they have one, first."""
    size = next(v.shape[k] for v, k in zip(args, axes, strict=True) if k is not None)
    return size, [
        v if k is None else jnp.moveaxis(v, k, 0) for v, k in zip(args, axes, strict=True)
    ]


def of_all(size: int, flags: Iterable[bool], values: Sequence[Array]) -> list[Array]:
    """Values with a leading axis of so many members: one without a flag is the same for all."""
    return [
        v if flag else jnp.broadcast_to(v, (size, *v.shape))
        for v, flag in zip(values, flags, strict=True)
    ]
