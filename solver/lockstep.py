"""Loops whose batches advance in lockstep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array

from silico_py.solver.fusion import abreast, one_by_one
from silico_py.solver.leaves import of_all


def in_step(
    unfinished: Callable[[Array, Any], Array], advance: Callable[[Array, Any], Any], start: Any
) -> Any:
    """The state after passes k = 0, 1, ... of `advance(k, state)` while `unfinished(k, state)`.

    The members of a batch share k, and `advance` must leave one that has ended unchanged.
    `jax.vmap` would select between the old and the new state, number by number, in every pass;
    where most of the state is a history, that costs more than the passes.
    """
    leaves, structure = jax.tree.flatten(start)

    def flat(function: Callable) -> Callable[..., list[Array]]:
        return lambda k, *leaves: jax.tree.leaves(function(k, structure.unflatten(leaves)))

    if not abreast():
        return structure.unflatten(_passes(flat(unfinished), flat(advance), leaves))
    # What the functions close over becomes an argument, which may be batched.
    functions = [jax.make_jaxpr(flat(f))(np.int32(0), *leaves) for f in (unfinished, advance)]

    def loop(consts: list, leaves: list[Array]) -> list[Array]:
        ask, move = map(_with_constants, functions, consts)
        return _passes(ask, move, leaves)

    def of_batch(size: int, in_batched: list, args: tuple) -> list[Array]:
        (flags, begun), (consts, leaves) = in_batched, args
        ask, move = map(partial(_of_members, size), functions, consts, flags)
        return _passes(ask, move, of_all(size, begun, leaves))

    return structure.unflatten(one_by_one(loop, of_batch)([f.consts for f in functions], leaves))


def _passes(ask: Callable, move: Callable, leaves: list[Array]) -> list[Array]:
    def body(carry: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
        k, leaves = carry
        return k + 1, move(k, *leaves)

    def unfinished(carry: tuple[Array, list[Array]]) -> Array:
        return jnp.any(ask(carry[0], *carry[1])[0])

    return jax.lax.while_loop(unfinished, body, (jnp.zeros((), np.int32), leaves))[1]


def _with_constants(function: ClosedJaxpr, consts: list) -> Callable:
    return jaxpr_as_fun(ClosedJaxpr(function.jaxpr, consts))


def _of_members(size: int, function: ClosedJaxpr, consts: list, flags: list[bool]) -> Callable:
    def member(consts: list, k: Array, leaves: list[Array]) -> list[Array]:
        return _with_constants(function, consts)(k, *leaves)

    axes = [0 if flag else None for flag in flags]
    mapped = jax.vmap(member, in_axes=(axes, None, 0), axis_size=size)
    return lambda k, *leaves: mapped(consts, k, list(leaves))
