"""Dense algebra of small matrices in operations that compile into the loops around them.

Up to a few dozen rows a call to a linear algebra library costs more than its arithmetic, and
it splits a program that could run as one kernel (see `fusion`).
"""

from __future__ import annotations

from functools import partial, reduce
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int, Shaped

from silico_py.solver.fusion import (
    abreast,
    fused,
    in_kernel,
    is_available,
    materialized,
)
from silico_py.solver.outlining import outlined
from silico_py.solver.rows import MANY, are_many

LARGEST_SYSTEM = 20  # rows of a system that is factorised here; larger programs compile slowly
LARGEST_SUBSTITUTION = 128  # rows of a factor that is substituted here
MATERIALIZED = 4000  # products of entries up to which a matrix product is one sum over them
ONE_LOOP = 1000  # the same inside a kernel, where adding a few terms at a time is faster beyond
UNROLLED = 4  # terms of a sum that is written term by term
MISSING = 4  # entries of a table of terms, over the terms, from which on it is cut
SCATTERED = 2000  # entries of a sum by target from which on a scatter takes less time
# Rows of a matrix whose elimination is unrolled where members of a batch are evaluated at once.
WRITTEN_OUT = 12
FEW_COLUMNS = 2  # of a product that is taken column by column
NARROW = 4  # terms or columns of a product that costs less than a call to a library


def matmul(a: Float[Array, "... m k"], b: Float[Array, "... k n"] | Float[Array, " k"]) -> Array:
    """`a @ b`; a one-dimensional `b` is a vector."""
    if b.ndim == 1:
        return dot(a, b) if a.size <= MATERIALIZED else matmul(a, b[:, None])[..., 0]
    terms, columns = a.shape[-1], b.shape[-1]
    shape = (*jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], columns)
    products = prod(shape) * terms
    one_loop = products <= MATERIALIZED
    if not in_kernel():
        many = are_many() or prod(shape[:-2]) >= MANY
        if many and 0 < columns <= FEW_COLUMNS and not abreast():
            return _by_column(a, b)
        narrow = min(terms, columns) <= NARROW and one_loop
        return _sum_of_products(a, b) if narrow else a @ b

    def term(i: Array | int) -> Array:
        return entry(a, i, -1, keepdims=True) * entry(b, i, -2, keepdims=True)

    if terms <= UNROLLED or products <= ONE_LOOP or (columns < NARROW and one_loop):
        return _sum_of_products(a, b)

    def more(k: Array, so_far: Array) -> Array:
        return reduce(jax.lax.add, [term(UNROLLED * k + i) for i in range(UNROLLED)], so_far)

    whole, rest = divmod(terms, UNROLLED)
    start = reduce(jax.lax.add, map(term, range(terms - rest, terms)), jnp.zeros(shape, a.dtype))
    return jax.lax.fori_loop(0, whole, more, start)


def _by_column(a: Array, b: Array) -> Array:
    """XLA multiplies many matrices faster by one vector after another than by a few columns at
    once: 48 of 29 x 23 by two columns in 7 instead of 16 us (in 126 us as a sum of products)."""
    columns = (jnp.matvec(a, entry(b, k, -1)) for k in range(b.shape[-1]))
    return jnp.stack(list(columns), axis=-1)


def _sum_of_products(a: Array, b: Array) -> Array:
    return dot(a[..., :, :, None], b[..., None, :, :], axis=-2)


def dot(a: Array, b: Array, axis: int = -1) -> Array:
    """Sum of a b over an axis."""
    return total(a * b, axis)


def total(x: Array, axis: int = -1) -> Array:
    """Sum over an axis.

    A few terms are written out inside a kernel: XLA makes a function of every sum, and on the CPU
    each of these costs 0.4 us at every call of a program, whether it runs or not. Outside of one
    that would make reverse derivatives slower.
    """
    terms = x.shape[axis]
    if not in_kernel() or not 0 < terms <= UNROLLED:
        return jnp.sum(x, axis=axis)
    parts = [jax.lax.index_in_dim(x, k, axis) for k in range(terms)]
    return jnp.squeeze(reduce(jax.lax.add, parts), axis)


def norm(x: Array, axis: int = -1) -> Array:
    """Euclidean norms along an axis."""
    return jnp.sqrt(dot(x, x, axis))


def safe_norm(x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """Euclidean norm on the last axis with derivative 0, not NaN, at the origin."""
    square = dot(x, x)
    # Both branches of a `where` are differentiated, so the root must never see 0.
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def safe_unit(x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """x / |x|, and 0 at the origin."""
    norm = safe_norm(x)
    return x / jnp.where(norm > 0, norm, 1)[..., None]


def transposed(a: Float[Array, "*batch m n"]) -> Float[Array, "*batch n m"]:
    """`a.mT` in memory, for products that are taken more than once.

    XLA would make the transposition a part of each product, which then takes up to four times as
    long on the CPU.
    """
    return a.mT if in_kernel() else jax.lax.optimization_barrier(a.mT)


class Factor(NamedTuple):
    """P A = L U: both factors in one matrix, and the row permutation."""

    lu: Float[Array, "n n"]
    permutation: Int[Array, " n"]


@outlined
def factorize(matrix: Float[Array, "n n"]) -> Factor:
    """LU factorisation with partial pivoting."""
    if not in_kernel() or len(matrix) > LARGEST_SYSTEM:
        lu, pivots, permutation = jax.lax.linalg.lu(matrix)
        return Factor(lu, _permutation(pivots) if is_available() else permutation)
    rows = jnp.arange(len(matrix), dtype=np.int32)

    def eliminate(k: Array, factor: Factor) -> Factor:
        swapped = _pivoted(k, factor.lu)
        a, permutation = factor.lu[swapped], factor.permutation[swapped]
        below, row = (rows > k)[:, None], entry(a, k)
        multiplier = jnp.where(below, entry(a, k, 1)[:, None] / entry(row, k), 0)
        reduced = a - multiplier * jnp.where(rows > k, row, 0)
        return Factor(jnp.where(below & (rows == k), multiplier, reduced), permutation)

    return jax.lax.fori_loop(0, len(matrix), eliminate, Factor(matrix, rows))


def _pivoted(k: Array, a: Float[Array, "n n"]) -> Int[Array, " n"]:
    """The rows, row k exchanged for that of the largest entry of column k from there on."""
    rows = jnp.arange(len(a), dtype=np.int32)
    pivot = jnp.argmax(jnp.where(rows >= k, jnp.abs(entry(a, k, 1)), -1)).astype(np.int32)
    return jnp.where(rows == k, pivot, jnp.where(rows == pivot, k, rows))


@custom_vmap
def _permutation(pivots: Int[Array, " n"]) -> Int[Array, " n"]:
    """The permutation that exchanges of rows amount to, in one kernel: XLA starts several a row."""

    def ordered(pivots: Array) -> Array:
        rows = jnp.arange(len(pivots), dtype=pivots.dtype)

        def exchange(k: Array, order: Array) -> Array:
            moved = jnp.where(rows == pivots[k], order[k], order)
            return jnp.where(rows == k, order[pivots[k]], moved)

        return jax.lax.fori_loop(0, len(rows), exchange, rows)

    return fused(ordered)(pivots)


@_permutation.def_vmap
def _permutations(size: int, in_batched: list, pivots: Array) -> tuple[Array, bool]:
    return jax.lax.linalg.lu_pivots_to_permutation(pivots, pivots.shape[-1]), True


@outlined
def solve(factor: Factor, rhs: Float[Array, "n columns"]) -> Float[Array, "n columns"]:
    """A^-1 rhs."""
    lu, n = factor.lu, len(factor.lu)
    rhs = rhs[factor.permutation]
    if not in_kernel() or n > LARGEST_SUBSTITUTION:
        substitute = jax.lax.linalg.triangular_solve
        lower = substitute(lu, rhs, left_side=True, lower=True, unit_diagonal=True)
        return substitute(lu, lower, left_side=True, lower=False)
    rows = jnp.arange(n, dtype=np.int32)

    def forward(k: Array, x: Array) -> Array:
        return x - jnp.where(rows > k, entry(lu, k, 1), 0)[:, None] * entry(x, k)

    def backward(i: Array, x: Array) -> Array:
        k = n - 1 - i
        column = entry(lu, k, 1)
        found = entry(x, k) / entry(column, k)
        x = x - jnp.where(rows < k, column, 0)[:, None] * found
        return jnp.where((rows == k)[:, None], found, x)

    return jax.lax.fori_loop(0, n, backward, jax.lax.fori_loop(0, n, forward, rhs))


@outlined
def solve_transposed(factor: Factor, rhs: Float[Array, "n columns"]) -> Float[Array, "n columns"]:
    """A^-T rhs."""
    lu, n = factor.lu, len(factor.lu)
    rows = jnp.arange(n, dtype=np.int32)
    if not in_kernel() or n > LARGEST_SUBSTITUTION:
        substitute = partial(jax.lax.linalg.triangular_solve, left_side=True, transpose_a=True)
        upper = substitute(lu, rhs, lower=False)
        found = substitute(lu, upper, lower=True, unit_diagonal=True)
    else:

        def forward(k: Array, x: Array) -> Array:
            row = entry(lu, k)
            found = entry(x, k) / entry(row, k)
            x = x - jnp.where(rows > k, row, 0)[:, None] * found
            return jnp.where((rows == k)[:, None], found, x)

        def backward(i: Array, x: Array) -> Array:
            k = n - 1 - i
            return x - jnp.where(rows < k, entry(lu, k), 0)[:, None] * entry(x, k)

        found = jax.lax.fori_loop(0, n, backward, jax.lax.fori_loop(0, n, forward, rhs))
    return matmul((factor.permutation == rows[:, None]).astype(lu.dtype), found)


def inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse by Gauss-Jordan elimination without exchanging rows: the leading blocks must be
    regular.

    A batch is a few loops over all members, where a library would be called for each.
    """
    if not matrix.size:
        return matrix
    if abreast() and len(matrix) <= WRITTEN_OUT:
        for k in range(len(matrix)):
            matrix = materialized(_eliminated(k, matrix))
        return matrix
    return jax.lax.fori_loop(0, len(matrix), _eliminated, matrix)


def pivoted_inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse by Gauss-Jordan elimination with partial pivoting, a few loops as `inverse`."""
    if not matrix.size:
        return matrix
    rows = jnp.arange(len(matrix), dtype=np.int32)

    def eliminate(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, order = carry
        swapped = _pivoted(k, a)
        return _eliminated(k, a[swapped]), order[swapped]

    found, order = jax.lax.fori_loop(0, len(matrix), eliminate, (matrix, rows))
    return found[:, jnp.argsort(order)]


def _eliminated(k: Array | int, a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Row and column k replaced by those of the inverse."""
    here = jnp.arange(len(a), dtype=np.int32) == k
    own = entry(a, k)
    row = jnp.where(here, 1, own) / entry(own, k)
    column = jnp.where(here, 0, entry(a, k, 1))[:, None]
    return jnp.where(here[:, None], row, jnp.where(here, 0, a) - column * row)


def accumulate(
    values: Float[Array, "terms *shape"], targets: Int[np.ndarray | Array, " terms"], size: int
) -> Float[Array, "size *shape"]:
    """Sum the values of each target: a scatter as a gather, for targets known in advance."""
    if not isinstance(targets, np.ndarray):
        return _scattered(values, targets, size)
    if np.array_equal(targets, np.arange(size)):
        return values
    padded = jnp.concatenate([values, jnp.zeros_like(values, shape=(1, *values.shape[1:]))])
    members, tables = _terms_by_target(targets, size)
    sums = [total(padded[table], axis=1) for table in tables]
    return taken(jnp.concatenate(sums), np.argsort(np.concatenate(members)))


def _terms_by_target(
    targets: Int[np.ndarray, " terms"], size: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Targets, and a table of the terms of each, one row a target; the missing term is the last.

    Of one table most would be missing where a few targets have many terms: those that have
    about as many are then a table of their own.
    """
    order = np.argsort(targets, kind="stable")
    counts = np.bincount(targets, minlength=size)
    rank = np.arange(len(targets)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((size, max(counts.max(initial=0), 1)), len(targets))
    table[targets[order], rank] = order
    if table.size <= MISSING * len(targets):
        return [np.arange(size)], [table]
    widths = 2 ** np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
    members = [np.flatnonzero(widths == width) for width in np.unique(widths)]
    return members, [table[rows, : counts[rows].max(initial=1)] for rows in members]


def taken(v: Shaped[Array, "size *shape"], rows: Int[np.ndarray | Array, "*rows"]) -> Array:
    """`v[rows]`; rows known in advance that are neighbours, or all the same, need no gather."""
    if not isinstance(rows, np.ndarray) or not rows.size:
        return v[rows]
    flat = rows.reshape(-1)
    first, last = int(flat[0]), int(flat[-1])
    if np.array_equal(flat, np.arange(first, last + 1)):
        part = jax.lax.slice_in_dim(v, first, last + 1)
    elif np.all(flat == first):
        one = jax.lax.slice_in_dim(v, first, first + 1)
        part = jnp.broadcast_to(one, (len(flat), *v.shape[1:]))
    else:
        return v[rows.astype(np.int32)]
    return part.reshape(*rows.shape, *v.shape[1:])


def entry(v: Array, k: Array | int, axis: int = 0, keepdims: bool = False) -> Array:
    """The k-th part along an axis, for a loop counter k: it is in bounds, and not negative."""
    if isinstance(k, int):
        return jax.lax.index_in_dim(v, k, axis, keepdims)
    return jax.lax.dynamic_index_in_dim(v, k, axis, keepdims, allow_negative_indices=False)


def _scattered(values: Array, targets: Int[Array, " terms"], size: int) -> Array:
    """The sum for targets known at run time alone; as a product where that is less work."""
    flat = values.reshape(len(values), prod(values.shape[1:]))
    if in_kernel() or size * flat.shape[1] <= SCATTERED:
        chosen = (targets == jnp.arange(size, dtype=targets.dtype)[:, None]).astype(values.dtype)
        sums = matmul(chosen, flat)
    else:
        sums = jnp.zeros((size, flat.shape[1]), values.dtype).at[targets].add(flat)
    return sums.reshape(size, *values.shape[1:])
