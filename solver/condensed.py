"""The condensed matrix of a problem: rows of all nodes, then of the cells' local primals.

Local primals are eliminated first, cell by cell. What is left has the rows of the nodes alone and
is as sparse as the graph of nodes and cells. It is cut into the levels of the graph (see `levels`)
where that is less work than one dense factorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from silico_py.solver import dense, levels
from silico_py.solver.dense import accumulate, matmul, taken
from silico_py.solver.levels import Blocks, Links
from silico_py.solver.outlining import outlined

FEWEST_ROWS = 60  # of a matrix that is cut into levels
OVERHEAD = 6.0  # of many small factorisations: their time over that of their operations


class Elimination(NamedTuple):
    """The local primals of a group of cells: dx = inverse rhs - share dy."""

    inverse: Float[Array, "cells nx nx"]
    share: Float[Array, "cells nx own"]
    force: Float[Array, "cells own nx"]  # of dx on the nodes


class Factor(NamedTuple):
    """What each cell eliminates, and the rows of the nodes factorised."""

    cells: tuple[Elimination, ...]
    nodes: levels.Factor


def factorize(
    links: Sequence[Links],
    own: Float[Array, "nodes ny ny"],
    added: Sequence[Float[Array, "cells v v"]],
    pivoted: bool = False,
) -> Factor:
    """LU factorisation.

    Args:
        links: of each group, the nodes that its cells touch.
        own: the nodes' own blocks.
        added: of each group, what its cells add to the rows of their nodes and local primals.
            The block of the local primals is eliminated without exchanging rows, so its leading
            blocks must be regular. Those of a convex program are negative semidefinite, which is
            enough.
        pivoted: whether that block is eliminated with pivoting instead, and not regularised.
    """
    n, ny, _ = own.shape
    known = _known(links, n)
    blocks, pairs, cells = [own], [np.arange(n) * (n + 1)], []
    for (touched, _), matrix in zip(links, added, strict=True):
        m, arity = touched.shape
        cell, reduced = outlined(_eliminate, arity * ny, pivoted, axes=0, whole=True)(matrix)
        part = reduced.reshape(m, arity, ny, arity, ny)
        blocks.append(part.swapaxes(2, 3).reshape(-1, ny, ny))
        pairs.append(_pairs(touched, n))
        cells.append(cell)
    joint = accumulate(jnp.concatenate(blocks), _places(pairs, known, n), len(known))
    nodes = _block_tridiagonal(joint, known, rows_by_level(links, n, ny), n)
    return Factor(tuple(cells), levels.factorize(nodes))


def _known(links: Sequence[Links], n: int) -> Int[np.ndarray, " pairs"]:
    """Pairs of nodes (number n i + j) that a cell may join, and each node with itself."""
    joined = [_pairs(link.graph, n) for link in links]
    return np.unique(np.concatenate([np.arange(n) * (n + 1), *joined]))


def _pairs(touched: Array | np.ndarray, n: int) -> Any:
    return (touched[:, :, None] * n + touched[:, None, :]).reshape(-1)


def _places(pairs: list[Any], known: Int[np.ndarray, " pairs"], n: int) -> Any:
    """Index of each pair among the known ones; a numpy array if none is traced."""
    table = np.zeros(n * n, np.int32)
    table[known] = np.arange(len(known))
    if all(isinstance(part, np.ndarray) for part in pairs):
        return table[np.concatenate(pairs)]
    return jnp.asarray(table)[jnp.concatenate(pairs)]


def _eliminate(own: int, pivoted: bool, matrix: Float[Array, "v v"]) -> tuple[Elimination, Array]:
    """The local primals of one cell, and what is left in the rows of its nodes."""
    block = matrix[own:, own:]
    inverse = dense.pivoted_inverse(block) if pivoted else dense.inverse(_regularized(block))
    share, force = matmul(inverse, matrix[own:, :own]), matrix[:own, own:]
    return Elimination(inverse, share, force), matrix[:own, :own] - matmul(force, share)


def _regularized(matrix: Float[Array, "nx nx"]) -> Float[Array, "nx nx"]:
    """Slightly more negative, in case there is no curvature; refinement corrects for it.

    2e-12 in float64: where the constraints of a cell are degenerate its curvature falls to the
    relaxation, and at 1e-10 chains of twenty nodes take more iterations with 1e-11 and above.
    """
    least = float(jnp.finfo(matrix.dtype).eps) ** 0.75
    return matrix - least * jnp.eye(len(matrix), dtype=matrix.dtype)


def solve(
    links: Sequence[Links],
    factor: Factor,
    own: Float[Array, "nodes ny columns"],
    local: Sequence[Array],
) -> tuple[Array, list[Array]]:
    """A^-1 times rows of the nodes and `(cells, nx, columns)` of each group, in the same parts."""
    alone = [matmul(cell.inverse, rows) for cell, rows in zip(factor.cells, local, strict=True)]
    for (touched, _), cell, moves in zip(links, factor.cells, alone, strict=True):
        own = own - on_nodes(matmul(cell.force, moves), touched, own)
    y = _solved_by_level(links, partial(levels.solve, factor.nodes), own)
    moved = [
        moves - matmul(cell.share, of_cells(y, touched))
        for (touched, _), cell, moves in zip(links, factor.cells, alone, strict=True)
    ]
    return y, moved


def transposed(factor: Factor) -> Factor:
    """The factor with the matrices of the cells transposed, as `solve_transposed` takes it."""
    cells = [Elimination(*map(dense.transposed, cell)) for cell in factor.cells]
    return factor._replace(cells=tuple(cells))


def solve_transposed(
    links: Sequence[Links],
    factor: Factor,
    own: Float[Array, "nodes ny columns"],
    local: Sequence[Array],
) -> tuple[Array, list[Array]]:
    """A^-T times what `solve` is given, for a factor that went through `transposed`.

    It takes the steps of `solve` in reverse order, so that both are rounded alike.
    """
    for (touched, _), cell, rows in zip(links, factor.cells, local, strict=True):
        own = own - on_nodes(matmul(cell.share, rows), touched, own)
    y = _solved_by_level(links, partial(levels.solve_transposed, factor.nodes), own)
    moved = []
    for (touched, _), cell, rows in zip(links, factor.cells, local, strict=True):
        left = rows - matmul(cell.force, of_cells(y, touched))
        moved.append(matmul(cell.inverse, left))
    return y, moved


def of_cells(y: Float[Array, "nodes ny columns"], touched: Array | np.ndarray) -> Array:
    """The rows of each cell's own nodes."""
    m, arity = touched.shape
    return taken(y, touched).reshape(m, arity * y.shape[1], y.shape[-1])


def on_nodes(
    rows: Float[Array, "cells own columns"], touched: Array | np.ndarray, like: Array
) -> Array:
    """The sum of what the cells add to each node."""
    return accumulate(rows.reshape(-1, *like.shape[1:]), touched.reshape(-1), len(like))


def _solved_by_level(
    links: Sequence[Links], solve: Callable[[Array], Array], own: Float[Array, "nodes ny columns"]
) -> Float[Array, "nodes ny columns"]:
    """`solve`, which takes and returns rows level by level, for the rows of the nodes."""
    n, ny, columns = own.shape
    flat, rows = own.reshape(-1, columns), rows_by_level(links, n, ny)
    if len(rows) == 1:
        return solve(flat[None])[0].reshape(own.shape)
    found = solve(jnp.pad(flat, ((0, 1), (0, 0)))[rows]).reshape(-1, columns)
    return found[np.argsort(rows.reshape(-1))[: len(flat)]].reshape(own.shape)


def rows_by_level(links: Sequence[Links], n: int, ny: int) -> Int[np.ndarray, "levels size"]:
    """The rows of each level, padded with the index of a row that does not exist."""
    level = np.repeat(levels.levels(n, [link.graph for link in links]), ny)
    total, counts = len(level), np.bincount(level)
    work = OVERHEAD * len(counts) * counts.max() ** 3
    if total < FEWEST_ROWS or work > total**3:
        return np.arange(total)[None]
    rows = np.full((len(counts), counts.max()), total)
    for k, count in enumerate(counts):
        rows[k, :count] = np.flatnonzero(level == k)
    return rows


def _block_tridiagonal(
    joint: Float[Array, "pairs ny ny"],
    known: Int[np.ndarray, " pairs"],
    rows: Int[np.ndarray, "levels size"],
    n: int,
) -> Blocks:
    """The matrix of the blocks of known pairs of nodes (number n i + j), cut into levels."""
    constants = jnp.arange(2, dtype=joint.dtype)
    values = jnp.concatenate([constants, joint.reshape(-1)])
    entries = _entries(known, n, joint.shape[-1])
    missing = (rows == len(entries) - 1)[:, :, None] & np.eye(rows.shape[1], dtype=bool)
    here, below, above = (v[:, :, None] for v in (rows, rows[1:], rows[:-1]))
    return Blocks(
        values[np.where(missing, 1, entries[here, here.swapaxes(1, 2)])],
        values[entries[below, above.swapaxes(1, 2)]],
        values[entries[above, below.swapaxes(1, 2)]],
    )


def _entries(known: Int[np.ndarray, " pairs"], n: int, ny: int) -> Int[np.ndarray, "rows rows"]:
    """Index of each entry of the matrix into 0, 1 and the blocks of the known pairs; zero in an
    additional last row and column."""
    table = np.zeros((n * ny + 1, n * ny + 1), np.int32)
    at = np.arange(ny)
    rows, columns = (ny * k[:, None] + at for k in (known // n, known % n))
    block = 2 + np.arange(len(known) * ny * ny).reshape(-1, ny, ny)
    table[rows[:, :, None], columns[:, None, :]] = block
    return table
