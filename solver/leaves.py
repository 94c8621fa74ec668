"""Lists of leaves of which some are flagged or batched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array


def replaced(leaves: Sequence[Any], flags: Sequence[bool], own: Iterable[Any]) -> list[Any]:
    """The leaves, the flagged ones replaced by those of `own` in turn."""
    rest = iter(own)
    return [next(rest) if flag else v for v, flag in zip(leaves, flags, strict=True)]


def axes_first(args: Sequence[Array], axes: Sequence[int | None]) -> tuple[int, list[Array]]:
    """Size of a batch, and its arguments with their batch axis, if they have one, in front."""
    size = next(v.shape[k] for v, k in zip(args, axes, strict=True) if k is not None)
    return size, [
        v if k is None else jnp.moveaxis(v, k, 0) for v, k in zip(args, axes, strict=True)
    ]


def of_all(size: int, flags: Iterable[bool], values: Sequence[Array]) -> list[Array]:
    """Values with a leading axis of this size; one without a flag is repeated for all members."""
    return [
        v if flag else jnp.broadcast_to(v, (size, *v.shape))
        for v, flag in zip(values, flags, strict=True)
    ]
