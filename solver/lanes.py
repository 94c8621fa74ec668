"""Batches of loops that differ in length, all members at once.

A loop under `jax.vmap` runs until its last member has ended, while all others wait. Here a batch
goes through a limited number of lanes in rounds: the first members that have not ended take a few
steps and make room for others. When few are left, they go on in fewer lanes. A batch then costs
the steps of its members, not those of the slowest times their number, and needs the memory of its
lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from silico_py.solver.leaves import replaced

IN_FLIGHT = 2**24  # numbers in the states of all members in lanes, enough to keep a GPU busy
FEWER = 8  # times fewer lanes go on when no more are needed


class Rounds(NamedTuple):
    """A loop in pieces; `args` is what one member is given.

    Attributes:
        begin: `(*args) -> state`.
        advance: `(live, state, *args) -> state`, after a few steps: none where not `live`.
        unfinished: `(state, *args) -> bool`.
        result: `(state, *args) -> output`.
    """

    begin: Callable[..., Any]
    advance: Callable[..., Any]
    unfinished: Callable[..., Any]
    result: Callable[..., Any]


def in_lanes(rounds: Rounds) -> Callable[[int, Any, tuple], Any]:
    """`(size, in_batched, args) -> outputs` of a batch, as a rule of `custom_vmap` needs it."""

    def run(size: int, in_batched: Any, args: tuple) -> Any:
        leaves, structure = jax.tree.flatten(args)
        batch = _Batch(structure, tuple(jax.tree.leaves(in_batched)), size)
        return _evaluated(rounds, batch)(*leaves)

    return run


def rows_of(batch: Any) -> tuple[Array, Callable[[Array], Any]]:
    """A batch of pytrees as one vector a member, and a function from such a vector to a pytree.

    To slice or gather leaf by leaf would cost as much as many steps.
    """
    member = jax.tree.map(lambda v: jnp.zeros(v.shape[1:], v.dtype), batch)
    with jax.numpy_dtype_promotion("standard"):  # numbers of all kinds share a vector
        return jax.vmap(lambda v: ravel_pytree(v)[0])(batch), ravel_pytree(member)[1]


def members_of(
    leaves: Sequence[Array], flags: Sequence[bool]
) -> tuple[Array, Callable[[Array], list[Array]]]:
    """The flagged leaves as one vector a member, and a function from such a vector to all."""
    rows, whole = rows_of([v for v, flag in zip(leaves, flags, strict=True) if flag])

    return rows, lambda row: replaced(leaves, flags, whole(row))


class _Batch(NamedTuple):
    """Structure of all arguments, which of their leaves are batched, and the number of members."""

    structure: Any
    flags: tuple[bool, ...]
    size: int


def _evaluated(rounds: Rounds, batch: _Batch) -> Callable:
    @custom_vmap
    def run(*leaves: Array) -> Any:
        return _run(rounds, batch, leaves)

    @run.def_vmap
    def of_batches(outer: int, in_batched: list, *leaves: Array) -> tuple[Any, Any]:
        """A batch of batches is a larger one."""
        flags = list(zip(in_batched, batch.flags, strict=True))
        shape = outer, batch.size
        merged = [_merged(v, shape, *both) for v, both in zip(leaves, flags, strict=True)]
        whole = batch._replace(flags=tuple(map(any, flags)), size=outer * batch.size)
        out = _evaluated(rounds, whole)(*merged)
        out = jax.tree.map(lambda v: v.reshape(*shape, *v.shape[1:]), out)
        return out, jax.tree.map(lambda _: True, out)

    return run


def _merged(v: Array, shape: tuple[int, int], in_outer: bool, in_inner: bool) -> Array:
    """The array with both batch axes as one, for an array that has either of them."""
    if not (in_outer or in_inner):
        return v
    own = v.shape[in_outer + in_inner :]
    lead = [n if flag else 1 for n, flag in zip(shape, (in_outer, in_inner), strict=True)]
    whole = jnp.broadcast_to(v.reshape(*lead, *own), (*shape, *own))
    return whole.reshape(-1, *own)


def _run(rounds: Rounds, batch: _Batch, leaves: tuple) -> Any:
    each, args = _over_members(batch, leaves)
    begun = each(rounds.begin, args)
    states, state = rows_of(begun)

    def advance(lanes: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        states, left = carry
        chosen = jnp.nonzero(left, size=lanes, fill_value=batch.size)[0]
        own, before = (v.at[chosen].get(mode="clip") for v in (args, states))
        live = chosen < batch.size
        after = each(rounds.advance, own, live, jax.vmap(state)(before))
        states = states.at[chosen].set(rows_of(after)[0], mode="drop")
        return states, left.at[chosen].set(each(rounds.unfinished, own, after), mode="drop")

    carry = states, each(rounds.unfinished, args, begun)
    widths = _widths(batch.size, IN_FLIGHT // states.shape[1])
    for lanes, enough in zip(widths, [*widths[1:], 0], strict=True):
        wanted = partial(_more_than, enough)
        carry = jax.lax.while_loop(wanted, partial(advance, lanes), carry)
    return each(rounds.result, args, jax.vmap(state)(carry[0]))


def _widths(members: int, most: int) -> list[int]:
    """Numbers of lanes, one after another: the last few members do not need all of them."""
    few = max(1, most // FEWER)
    return [min(members, most), few] if few < min(members, most) else [min(members, few)]


def _more_than(lanes: int, carry: tuple[Array, Array]) -> Array:
    """Whether so many lanes would not hold the members that are left."""
    return jnp.sum(carry[1]) > lanes


def _over_members(batch: _Batch, leaves: tuple) -> tuple[Callable, Array]:
    """A map of functions of `(*more, *args)` over members, and the members' arguments as rows."""
    rows, leaves_of = members_of(leaves, batch.flags)

    def each(function: Callable, rows: Array, *more: Any) -> Any:
        def member(row: Array, *more: Any) -> Any:
            return function(*more, *batch.structure.unflatten(leaves_of(row)))

        return jax.vmap(member)(rows, *more)

    return each, rows
