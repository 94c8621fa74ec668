"""The condensed matrix of a problem: rows of all nodes, then of the cells' local primals.

It is as sparse as the graph of nodes and cells. Where that is less work than one dense
factorisation, it is cut into the levels of the graph (see `levels`).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from silico_py.solver import levels
from silico_py.solver.dense import accumulate
from silico_py.solver.levels import Blocks, Factor

FEWEST_ROWS = 60  # of a matrix that is cut
OVERHEAD = 6.0  # of many small factorisations: what they cost over their share of the rows

Nodes = Sequence[Int[np.ndarray, "cells arity"]]  # of each group of cells


def factorize(
    nodes: Nodes,
    own: Float[Array, "nodes ny ny"],
    added: Sequence[Float[Array, "cells v v"]],
) -> Factor:
    """LU factorisation.

    Args:
        nodes: those that each cell touches.
        own: the nodes' own blocks.
        added: of each group, what its cells add to the rows of their nodes and local primals.
    """
    n, ny, _ = own.shape
    blocks, pairs = [own], [np.arange(n) * (n + 1)]
    for touched, matrix in zip(nodes, added, strict=True):
        m, arity = touched.shape
        part = matrix[:, : arity * ny, : arity * ny].reshape(m, arity, ny, arity, ny)
        blocks.append(part.swapaxes(2, 3).reshape(-1, ny, ny))
        pairs.append((touched[:, :, None] * n + touched[:, None, :]).reshape(-1))
    known, targets = np.unique(np.concatenate(pairs), return_inverse=True)
    joint = accumulate(jnp.concatenate(blocks), targets, len(known))
    constants = jnp.arange(2, dtype=own.dtype)
    values = jnp.concatenate([constants, joint.reshape(-1), *(m.reshape(-1) for m in added)])
    sizes = [m.shape[1] - touched.shape[1] * ny for touched, m in zip(nodes, added, strict=True)]
    entries = _entries(nodes, n, ny, sizes, known)
    rows = rows_by_level(nodes, n, ny, sizes)
    missing = (rows == len(entries) - 1)[:, :, None] & np.eye(rows.shape[1], dtype=bool)
    here, below, above = (v[:, :, None] for v in (rows, rows[1:], rows[:-1]))
    return levels.factorize(
        Blocks(
            values[np.where(missing, 1, entries[here, here.swapaxes(1, 2)])],
            values[entries[below, above.swapaxes(1, 2)]],
            values[entries[above, below.swapaxes(1, 2)]],
        )
    )


def solve(
    nodes: Nodes, factor: Factor, own: Float[Array, "nodes ny columns"], local: Sequence[Array]
) -> tuple[Array, list[Array]]:
    """A^-1 times rows of the nodes and `(cells, nx, columns)` of each group, in the same parts."""
    n, ny, columns = own.shape
    parts = [own, *local]
    flat = jnp.concatenate([part.reshape(-1, columns) for part in parts])
    rows = rows_by_level(nodes, n, ny, [part.shape[1] for part in local])
    if len(rows) == 1:
        found = levels.solve(factor, flat[None])[0]
    else:
        by_level = levels.solve(factor, jnp.pad(flat, ((0, 1), (0, 0)))[rows])
        found = by_level.reshape(-1, columns)[np.argsort(rows.reshape(-1))[: len(flat)]]
    cuts = np.cumsum([part.shape[0] * part.shape[1] for part in parts])[:-1]
    pieces = zip(jnp.split(found, cuts), parts, strict=True)
    y, *moves = (piece.reshape(part.shape) for piece, part in pieces)
    return y, moves


def rows_by_level(nodes: Nodes, n: int, ny: int, sizes: Sequence[int]) -> Int[np.ndarray, "l size"]:
    """The rows of each level, filled up with one that does not exist.

    A cell's own rows belong to the highest level that it touches.
    """
    level = levels.levels(n, nodes)
    own = [
        np.repeat(level[touched].max(axis=1), nx) for touched, nx in zip(nodes, sizes, strict=True)
    ]
    level = np.concatenate([np.repeat(level, ny), *own])
    total, counts = len(level), np.bincount(level)
    work = OVERHEAD * len(counts) * counts.max() ** 3
    if total < FEWEST_ROWS or work > total**3:
        return np.arange(total)[None]
    rows = np.full((len(counts), counts.max()), total)
    for k, count in enumerate(counts):
        rows[k, :count] = np.flatnonzero(level == k)
    return rows


def _entries(
    nodes: Nodes, n: int, ny: int, sizes: Sequence[int], known: Int[np.ndarray, " pairs"]
) -> Int[np.ndarray, "rows rows"]:
    """Where each entry of the matrix stands among 0, 1, the blocks of the known pairs of nodes and
    those of the cells. One row more than there are is zero."""
    total = n * ny + sum(len(t) * nx for t, nx in zip(nodes, sizes, strict=True))
    table = np.zeros((total + 1, total + 1), np.int32)
    used, start = 2, n * ny
    at = np.arange(ny)
    rows, columns = (ny * k[:, None] + at for k in (known // n, known % n))
    size = len(known) * ny * ny
    block = np.arange(used, used + size).reshape(-1, ny, ny)
    table[rows[:, :, None], columns[:, None, :]] = block
    used += size
    for touched, nx in zip(nodes, sizes, strict=True):
        m, own = len(touched), touched.shape[1] * ny
        at_nodes = (touched[:, :, None] * ny + at).reshape(m, own)
        place = np.concatenate([at_nodes, start + np.arange(m * nx).reshape(m, nx)], axis=1)
        block = np.arange(used, used + m * (own + nx) ** 2).reshape(m, own + nx, own + nx)
        rows, columns = place[:, :, None], place[:, None, :]
        table[rows[:, own:], columns] = block[:, own:]
        table[rows[:, :own], columns[:, :, own:]] = block[:, :own, own:]
        start, used = start + m * nx, used + block.size
    return table
