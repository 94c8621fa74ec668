"""Functions of one row, mapped over many.

What is fast for a few rows may be slow for many: a function mapped by `each` can ask `are_many`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from silico_py.solver.fusion import switched
from silico_py.solver.leaves import of_all

MANY = 24  # rows

R = TypeVar("R")

_are_many: ContextVar[bool] = ContextVar("are_many", default=False)


def are_many() -> bool:
    """Whether what is traced is mapped over many rows."""
    return _are_many.get()


def each(function: Callable[..., R], axes: Any = 0) -> Callable[..., R]:
    """`jax.vmap(function, in_axes=axes)` with one axis, 0 or None, for each whole argument.

    A single row is not batched: it takes less time to trace.
    """

    def call(*args: Any) -> Any:
        own = axes if isinstance(axes, tuple) else len(args) * (axes,)
        batched = [arg for arg, axis in zip(args, own, strict=True) if axis == 0]
        rows = max((len(v) for v in jax.tree.leaves(batched)), default=1)
        if rows != 1:
            with switched(_are_many) if rows >= MANY else nullcontext():
                return jax.vmap(function, in_axes=axes)(*args)
        first = (
            arg if axis is None else jax.tree.map(lambda v: jax.lax.squeeze(v, (0,)), arg)
            for arg, axis in zip(args, own, strict=True)
        )
        return jax.tree.map(lambda v: jnp.expand_dims(v, 0), function(*first))

    return call


def written(
    shape: tuple[int, int], corners: Sequence[tuple[int, int]], blocks: Sequence[Array]
) -> Float[Array, "rows columns"]:
    """A zero matrix with blocks written into it, the first entry of each at its corner.

    A batch of such matrices takes less time than one of concatenated blocks: a kernel that
    concatenates looks up, for each entry, the block it belongs to.
    """

    def into(lead: tuple[int, ...], blocks: Sequence[Array]) -> Array:
        # XLA would make pads and sums of what is written into zeros that it knows.
        nothing = jnp.zeros((*lead, *shape), jnp.result_type(*blocks))
        matrix = jax.lax.optimization_barrier(nothing)
        for corner, block in zip(corners, blocks, strict=True):
            first = (*(0 for _ in lead), *corner)
            matrix = jax.lax.dynamic_update_slice(matrix, block.astype(matrix.dtype), first)
        return matrix

    # jax's rule would make scatters of a batch.
    @custom_vmap
    def one(*blocks: Array) -> Array:
        return into((), blocks)

    @one.def_vmap
    def many(size: int, in_batched: list[bool], *blocks: Array) -> tuple[Array, bool]:
        return into((size,), of_all(size, in_batched, blocks)), True

    return one(*blocks)
