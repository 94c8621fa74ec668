"""The levels of a graph, and LU block by block along them.

Level k are the nodes at distance k from one end of the graph. A node has neighbours in its own
level and in the two next to it alone, so a matrix with this graph is block tridiagonal: a chain of
n nodes costs n small factorisations. Where everything touches everything there is one level, and
nothing is gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from silico_py.solver import dense
from silico_py.solver.dense import matmul


class Links(NamedTuple):
    """Which nodes each of many cells touches, perhaps known at run time alone."""

    nodes: Int[np.ndarray | Array, "cells arity"]
    graph: Int[np.ndarray, "links arity"]  # every row that `nodes` may have


class Blocks(NamedTuple):
    """A block tridiagonal matrix; `lower[k]` and `upper[k]` join the levels k and k + 1."""

    diagonal: Float[Array, "levels size size"]
    lower: Float[Array, "joints size size"]
    upper: Float[Array, "joints size size"]


class Factor(NamedTuple):
    """Block LU: the pivots, the blocks below them, and pivot^-1 times the blocks beside them."""

    pivots: dense.Factor  # one for each level
    lower: Float[Array, "joints size size"]
    share: Float[Array, "joints size size"]


def factorize(matrix: Blocks) -> Factor:
    """LU with rows exchanged within the levels only."""
    if len(matrix.diagonal) == 1:
        pivot = dense.factorize(matrix.diagonal[0])
        return Factor(jax.tree.map(lambda v: v[None], pivot), matrix.lower, matrix.upper)

    def eliminate(share: Array, level: Blocks) -> tuple:
        pivot = dense.factorize(level.diagonal - matmul(level.lower, share))
        share = dense.solve(pivot, level.upper)
        return share, (pivot, share)

    none = jnp.zeros_like(matrix.diagonal[:1])
    padded = Blocks(matrix.diagonal, *_padded(none, matrix.lower, matrix.upper))
    found: tuple[dense.Factor, Array] = jax.lax.scan(eliminate, none[0], padded)[1]
    return Factor(found[0], matrix.lower, found[1][:-1])


def solve(
    factor: Factor, rhs: Float[Array, "levels size columns"]
) -> Float[Array, "levels size columns"]:
    """A^-1 rhs."""
    if len(rhs) == 1:
        return dense.solve(jax.tree.map(lambda v: v[0], factor.pivots), rhs[0])[None]

    def forward(before: Array, level: tuple) -> tuple:
        pivot, lower, own = level
        found = dense.solve(pivot, own - matmul(lower, before))
        return found, found

    def backward(after: Array, level: tuple) -> tuple:
        share, own = level
        found = own - matmul(share, after)
        return found, found

    nothing = jnp.zeros_like(rhs[0])
    lower, share = _padded(jnp.zeros_like(factor.lower[:1]), factor.lower, factor.share)
    found: Array = jax.lax.scan(forward, nothing, (factor.pivots, lower, rhs))[1]
    return jax.lax.scan(backward, nothing, (share, found), reverse=True)[1]


def solve_transposed(
    factor: Factor, rhs: Float[Array, "levels size columns"]
) -> Float[Array, "levels size columns"]:
    """A^-T rhs."""
    if len(rhs) == 1:
        pivot = jax.tree.map(lambda v: v[0], factor.pivots)
        return dense.solve_transposed(pivot, rhs[0])[None]

    def forward(before: Array, level: tuple) -> tuple:
        share, own = level
        found = own - matmul(share.T, before)
        return found, found

    def backward(after: Array, level: tuple) -> tuple:
        pivot, lower, own = level
        found = dense.solve_transposed(pivot, own - matmul(lower.T, after))
        return found, found

    nothing = jnp.zeros_like(rhs[0])
    share, lower = _padded(jnp.zeros_like(factor.lower[:1]), factor.share, factor.lower)
    found: Array = jax.lax.scan(forward, nothing, (share, rhs))[1]
    return jax.lax.scan(backward, nothing, (factor.pivots, lower, found), reverse=True)[1]


def _padded(none: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """One block for each level: the first has nothing before it, the last nothing after it."""
    return jnp.concatenate([none, lower]), jnp.concatenate([upper, none])


def levels(count: int, links: Sequence[Int[np.ndarray, "links arity"]]) -> Int[np.ndarray, " n"]:
    """The level of each of `count` nodes; connected parts of the graph follow each other.

    Args:
        count: number of nodes.
        links: sets of nodes that are neighbours of each other, by their number.
    """
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for members in (set(row) for group in links for row in group.tolist()):
        for node in members:
            neighbours[node] |= members
    level, start = np.full(count, -1), 0
    for node in range(count):
        if level[node] < 0:
            end = int(np.argmax(_distances(neighbours, node)))
            distance = _distances(neighbours, end)
            level = np.where(distance >= 0, start + distance, level)
            start = level.max() + 1
    return level


def _distances(neighbours: list[set[int]], node: int) -> Int[np.ndarray, " n"]:
    """Number of edges from `node` to each one, -1 where there is no way."""
    found, front, distance = np.full(len(neighbours), -1), {node}, 0
    while front:
        found[list(front)] = distance
        distance += 1
        front = {k for member in front for k in neighbours[member] if found[k] < 0}
    return found
