"""Pytrees as one vector each, between kernels.

A loop copies every array of its state that a kernel computes, and XLA's runtime hands work to other
threads where more than eight operations are ready at once. For a state of dozens of small arrays
both take longer than the arithmetic. Kernels therefore give and take such a state as one vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Form(NamedTuple):
    """What a pytree of arrays consists of."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]


@partial(jax.tree_util.register_dataclass, data_fields=["flat"], meta_fields=["form"])
@dataclass(frozen=True)
class Packed:
    """The entries of a pytree of arrays, and how to make it of them."""

    flat: Float[Array, " entries"]
    form: Form


def pack(tree: Any) -> Packed:
    """A pytree of arrays and numbers as one vector; integers must be exact in its precision."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    floats = [v.dtype for v in arrays if jnp.issubdtype(v.dtype, jnp.floating)]
    dtype = jnp.result_type(*floats) if floats else jnp.result_type(float)
    flat = jnp.concatenate([jnp.zeros(0, dtype), *(v.reshape(-1).astype(dtype) for v in arrays)])
    shapes, dtypes = (tuple(getattr(v, name) for v in arrays) for name in ("shape", "dtype"))
    return Packed(flat, Form(structure, shapes, dtypes))


def unpack(value: Any) -> Any:
    """The pytree that was packed; anything else as it is."""
    if not isinstance(value, Packed):
        return value
    form, ends = value.form, [0, *accumulate(map(prod, value.form.shapes))]
    leaves = [
        value.flat[start:end].reshape(shape).astype(dtype)
        for start, end, shape, dtype in zip(ends, ends[1:], form.shapes, form.dtypes, strict=False)
    ]
    return jax.tree.unflatten(form.structure, leaves)
