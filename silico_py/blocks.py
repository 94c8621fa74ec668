"""Derivatives in blocks of named columns, put together last: most blocks of a contact are zero."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver.dense import matmul
from silico_py.solver.fusion import in_kernel, materialized
from silico_py.solver.rows import are_many, written

Matrix = Float[Array, "rows columns"]


@dataclass(frozen=True)
class Columns:
    """How many columns of a matrix each quantity has, in their order."""

    sizes: dict[str, int]

    def __or__(self, others: Columns) -> Columns:
        return Columns(self.sizes | others.sizes)

    def without(self, *names: str) -> Columns:
        """The columns of all other quantities."""
        return Columns({name: size for name, size in self.sizes.items() if name not in names})

    def blocks(self, rows: int, **named: Array) -> Blocks:
        """A derivative of so many rows, by those of the named quantities that have columns here."""
        kept = {name: block for name, block in named.items() if self.sizes.get(name)}
        return Blocks(rows, kept)

    def matrix(self, *parts: Blocks) -> Matrix:
        """Derivatives, one below the other."""
        if in_kernel() and are_many():
            return self._written(parts)
        dtype = next(block.dtype for part in parts for block in part.named.values())
        return jnp.concatenate([self._row(part, dtype) for part in parts])

    def _written(self, parts: tuple[Blocks, ...]) -> Matrix:
        left = dict(zip(self.sizes, accumulate(self.sizes.values(), initial=0), strict=False))
        *above, rows = accumulate((part.rows for part in parts), initial=0)
        placed = [
            ((first, left[name]), block)
            for first, part in zip(above, parts, strict=True)
            for name, block in part.named.items()
            if name in left
        ]
        return written((rows, sum(self.sizes.values())), *zip(*placed, strict=True))

    def _row(self, part: Blocks, dtype: jnp.dtype) -> Matrix:
        pieces, missing, named = [], 0, materialized(part.named)
        for name, size in self.sizes.items():
            if name not in named:
                missing += size
                continue
            pieces += [np.zeros((part.rows, missing), dtype), named[name]]
            missing = 0
        pieces += [np.zeros((part.rows, missing), dtype)]
        return jnp.concatenate([piece for piece in pieces if piece.size], axis=1)


@dataclass(frozen=True)
class Blocks:
    """Derivative of some rows by the named quantities; by all others it is zero."""

    rows: int
    named: dict[str, Matrix]

    def __add__(self, other: Blocks) -> Blocks:
        both = {k: block + other.named[k] for k, block in self.named.items() if k in other.named}
        return Blocks(self.rows, self.named | other.named | both)

    def __sub__(self, other: Blocks) -> Blocks:
        return self + other.times(-1)

    def times(self, factor: Array | float) -> Blocks:
        """Derivative of a multiple of the rows."""
        return Blocks(self.rows, {name: factor * block for name, block in self.named.items()})

    def mapped(self, matrix: Matrix) -> Blocks:
        """Derivative of a matrix times the rows."""
        found = {name: matmul(matrix, block) for name, block in self.named.items()}
        return Blocks(len(matrix), found)
