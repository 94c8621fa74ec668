"""Unknowns and conditions, each as one vector.

What is done to all of them alike (steps, sums, choices between two points) is then one operation
and not one for each part. The parts are views of the vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver.fusion import materialized

_registered = partial(
    jax.tree_util.register_dataclass, data_fields=["flat"], meta_fields=["layout"]
)


class Layout(NamedTuple):
    """What a vector is made of.

    Attributes:
        nodes: number of nodes, and unknowns of one.
        groups: of each group the number of cells, and local primals and dimension of the cone of
            one.
        columns: whether several vectors stand side by side, on a last axis that the shapes of
            parts below leave out.
    """

    nodes: tuple[int, int]
    groups: tuple[tuple[int, int, int], ...]
    columns: bool = False

    @property
    def rows(self) -> int:
        """Number of conditions that are no products."""
        return prod(self.nodes) + sum(cells * (nx + dim) for cells, nx, dim in self.groups)


@dataclass(frozen=True)
class _Vector:
    flat: Float[Array, "*batch size"]
    layout: Layout

    @classmethod
    def side_by_side(cls, vectors: Sequence[Self]) -> Self:
        """Several, as the columns of one."""
        flat = jnp.stack([v.flat for v in vectors], axis=-1)
        return cls(flat, vectors[0].layout._replace(columns=True))

    def column(self, k: int) -> Self:
        """The k-th one of those side by side."""
        return type(self)(self.flat[..., k], self.layout._replace(columns=False))

    def _parts(self, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        """As many parts from the front as there are shapes, reshaped to them."""
        shape, axis = self.flat.shape, self.flat.ndim - 1 - self.layout.columns
        ends = np.cumsum([prod(part) for part in shapes])
        parts = jnp.split(self.flat, ends, axis)[:-1]
        return [
            part.reshape(*shape[:axis], *own, *shape[axis + 1 :])
            for part, own in zip(parts, shapes, strict=True)
        ]


class CellVariables(NamedTuple):
    """Unknowns of a group of cells, batched over the cells."""

    x: Float[Array, "*batch cells nx"]
    dual: Float[Array, "*batch cells dim"]
    slack: Float[Array, "*batch cells dim"]


class CellConditions(NamedTuple):
    """Conditions of a group of cells, batched over the cells: own equations, slacks, products."""

    local: Float[Array, "*batch cells nx"]
    slack: Float[Array, "*batch cells dim"]
    product: Float[Array, "*batch cells dim"]


@_registered
@dataclass(frozen=True)
class Variables(_Vector):
    """All unknowns: vectors of the nodes, then local primals, duals and slacks of each group."""

    @classmethod
    def of(
        cls,
        y: Float[Array, "*batch nodes ny"],
        cells: Sequence[CellVariables],
        columns: bool = False,
    ) -> Variables:
        """The variables from the vectors of the nodes and the unknowns of each group."""
        layout = _layout(y, [(cell.x, cell.dual) for cell in cells], columns)
        return cls(_joined([y, *(part for cell in cells for part in cell)], columns), layout)

    @property
    def y(self) -> Float[Array, "*batch nodes ny"]:
        """Vectors of the nodes."""
        return self._parts([self.layout.nodes])[0]

    @property
    def cells(self) -> tuple[CellVariables, ...]:
        """Unknowns of each group."""
        shapes = [s for m, nx, dim in self.layout.groups for s in ((m, nx), (m, dim), (m, dim))]
        parts = iter(self._parts([self.layout.nodes, *shapes])[1:])
        return tuple(CellVariables(*(next(parts) for _ in range(3))) for _ in self.layout.groups)

    @property
    def pairs(self) -> list[Float[Array, "*batch 2 cells dim"]]:
        """Duals and slacks of each group."""
        shapes = [s for m, nx, dim in self.layout.groups for s in ((m, nx), (2, m, dim))]
        return self._parts([self.layout.nodes, *shapes])[2::2]


@_registered
@dataclass(frozen=True)
class Conditions(_Vector):
    """What the relaxed conditions compare: rows that vanish at a solution, and products s o z.

    Rows of the nodes, own equations and slacks of one group after another, then all products.
    """

    @classmethod
    def of(cls, nodes: Float[Array, "nodes ny"], cells: Sequence[CellConditions]) -> Conditions:
        """The conditions from the rows of the nodes and the conditions of each group."""
        rows = [part for cell in cells for part in (cell.local, cell.slack)]
        products = [cell.product for cell in cells]
        layout = _layout(nodes, [(cell.local, cell.slack) for cell in cells])
        return cls(_joined([nodes, *rows, *products]), layout)

    def of_products(self, products: Sequence[Float[Array, "cells dim"]]) -> Conditions:
        """Zero rows, and these products of each group."""
        parts = [jnp.zeros_like(self.rows), *(p.reshape(-1) for p in products)]
        return Conditions(jnp.concatenate(materialized(parts)), self.layout)

    @property
    def rows(self) -> Float[Array, "rows *columns"]:
        """All conditions but the products."""
        return self.flat[: self.layout.rows]

    @property
    def nodes(self) -> Float[Array, "nodes ny *columns"]:
        """Rows of the nodes."""
        return self._parts([self.layout.nodes])[0]

    @property
    def own(self) -> Float[Array, "own *columns"]:
        """Rows of all cells."""
        return self.flat[prod(self.layout.nodes) : self.layout.rows]

    @property
    def products(self) -> Float[Array, "products *columns"]:
        """Products of all cells."""
        return self.flat[self.layout.rows :]

    @property
    def cells(self) -> tuple[CellConditions, ...]:
        """Conditions of each group."""
        groups = self.layout.groups
        rows = [shape for m, nx, dim in groups for shape in ((m, nx), (m, dim))]
        parts = self._parts([self.layout.nodes, *rows, *((m, dim) for m, _, dim in groups)])
        own, products = parts[1 : len(rows) + 1], parts[len(rows) + 1 :]
        triples = zip(own[::2], own[1::2], products, strict=True)
        return tuple(CellConditions(*triple) for triple in triples)


def _layout(nodes: Array, cells: Sequence[tuple[Array, Array]], columns: bool = False) -> Layout:
    """Layout of vectors with these parts; of each group one as wide as x, and one as the cone."""
    lead = nodes.ndim - 2 - columns
    groups = tuple((*x.shape[lead : lead + 2], dual.shape[lead + 1]) for x, dual in cells)
    return Layout(nodes.shape[lead : lead + 2], groups, columns)


def _joined(parts: Sequence[Array], columns: bool = False) -> Array:
    lead = parts[0].ndim - 2 - columns
    flat = [p.reshape(*p.shape[:lead], -1, *p.shape[lead + 2 :]) for p in parts]
    return jnp.concatenate(materialized(flat), axis=lead)
