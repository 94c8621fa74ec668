"""Products of the symmetric cones R+^n (orthant) and SOC(n) (second-order cone).

A point of SOC(n) is `(t, z)` with `t >= |z|`. The Jordan product is `x * y` on the
orthant and `(x.y, x0 y1 + y0 x1)` on a second-order cone; its identity `e` is one on
the orthant and `(1, 0)` on a second-order cone. Every method works on the last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver.dense import dot, matmul, norm

Vector = Float[Array, "*batch dim"]
Matrix = Float[Array, "*batch dim columns"]
Scalar = Float[Array, "*batch"]
Eigenvalues = Float[Array, "*batch degree"]  # one for each entry of an orthant and each SOC

ORTHANT = "orthant"
SECOND_ORDER = "second_order"


@dataclass(frozen=True)
class ProductCone:
    """Cartesian product of cones, in the order of `blocks` = `((kind, dimension), ...)`."""

    blocks: tuple[tuple[str, int], ...] = ()

    @classmethod
    def orthant(cls, dim: int) -> ProductCone:
        """The non-negative orthant R+^dim."""
        return cls(((ORTHANT, dim),) if dim else ())

    @classmethod
    def second_order(cls, dim: int) -> ProductCone:
        """The second-order cone of full dimension `dim` (scalar part included).

        Raises:
            ValueError: for a dimension below 2.
        """
        if dim < 2:
            raise ValueError(f"dim: a second-order cone needs dimension >= 2, got {dim}")
        return cls(((SECOND_ORDER, dim),))

    def __add__(self, other: ProductCone) -> ProductCone:
        """Product with `other`; neighbouring orthants are merged."""
        first, second = self.blocks, other.blocks
        if first and second and first[-1][0] == second[0][0] == ORTHANT:
            merged = (ORTHANT, first[-1][1] + second[0][1])
            return ProductCone(first[:-1] + (merged,) + second[1:])
        return ProductCone(first + second)

    @property
    def dim(self) -> int:
        """Dimension of the ambient space."""
        return sum(size for _, size in self.blocks)

    @property
    def degree(self) -> int:
        """What s . z is divided by for the mean product: 1 for each row of an orthant and for each
        second-order cone."""
        return sum(size if kind == ORTHANT else 1 for kind, size in self.blocks)

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Yield `(kind, slice)` for each block."""
        start = 0
        for kind, size in self.blocks:
            yield kind, slice(start, start + size)
            start += size

    def _blockwise(self, orthant: Callable, second_order: Callable, *vectors: Vector) -> Any:
        parts = [
            (orthant if kind == ORTHANT else second_order)(*(v[..., part] for v in vectors))
            for kind, part in self.slices()
        ]
        return jax.tree.map(lambda *blocks: jnp.concatenate(blocks, axis=-1), *parts)

    def identity(self, dtype: jnp.dtype | None = None) -> Float[Array, " dim"]:
        """The Jordan identity e."""
        parts = [
            np.ones(size) if kind == ORTHANT else np.eye(size)[0] for kind, size in self.blocks
        ]
        return jnp.asarray(np.concatenate(parts), dtype)

    def product(self, x: Vector, y: Vector) -> Vector:
        """Jordan product x o y."""
        return self._blockwise(jnp.multiply, _soc_product, x, y)

    def products(self, x: Vector, columns: Matrix) -> Matrix:
        """Jordan products of x with every column."""
        parts = [
            (jnp.multiply if kind == ORTHANT else _soc_products)(
                x[..., part, None], columns[..., part, :]
            )
            for kind, part in self.slices()
        ]
        return jnp.concatenate(parts, axis=-2)

    def inverse(self, x: Vector) -> Vector:
        """Jordan inverse: x o inverse(x) = e."""
        return self._blockwise(jnp.reciprocal, _soc_inverse, x)

    def margin(self, x: Vector) -> Scalar:
        """Smallest eigenvalue of x: positive strictly inside the cone."""
        return jnp.min(self.margins(x), axis=-1)

    def margins(self, x: Vector) -> Eigenvalues:
        """The entries of each orthant, the smallest eigenvalue of each second-order cone."""
        return self._blockwise(lambda v: v, _soc_margin, x)

    def step_length(self, x: Vector, dx: Vector) -> Scalar:
        """Largest t with x + t dx in the cone: infinite if the ray stays in it, NaN if dx is."""
        return jnp.min(self.step_lengths(x, dx), axis=-1)

    def step_lengths(self, x: Vector, dx: Vector) -> Eigenvalues:
        """`step_length` of each entry of an orthant and of each second-order cone."""
        return self._blockwise(_orthant_steps, _soc_step, x, dx)

    def central_pair(self, difference: Vector, product: Vector) -> tuple[Vector, Vector]:
        """The interior points s and z with s - z = difference and this s o z.

        `product` is a positive multiple of the identity of each second-order cone, and any
        positive vector on the orthants.
        """
        return self._blockwise(_orthant_pair, _soc_pair, difference, product)

    def scaling(
        self, slack: Vector, dual: Vector, regularization: Vector | Scalar | float
    ) -> Scaling:
        """Linearised complementarity at (slack, dual); see `Scaling`.

        The regularisation, if it is a vector, is the same within each cone.
        """
        maps, regular = [], slack + regularization * dual
        for kind, part in self.slices():
            s, z = regular[part], dual[part]
            if kind == ORTHANT:
                inverse = 1 / s
                maps.append((inverse, inverse * z))
            else:
                inverse = _arrow_inverse(s)
                maps.append((inverse, matmul(inverse, _arrow(z))))
        return Scaling(self, tuple(maps))

    def nesterov_todd(self, slack: Vector, dual: Vector, matrix: Matrix) -> Matrix:
        """H @ matrix with the symmetric H, H slack = dual, that maps the cone onto itself.

        On a second-order cone, H = (2 v v^T - J) sqrt(det dual / det slack), J = diag(1, -1, ...),
        v = (J s + z) / |.|_J of the slack s and dual z scaled to determinant 1.

        Source: Nesterov and Todd, Self-scaled barriers and interior-point methods, 1997.
        """
        parts = []
        for kind, part in self.slices():
            s, z, m = slack[part], dual[part], matrix[part]
            if kind == ORTHANT:
                parts.append((z / s)[:, None] * m)
                continue
            root_s, root_z = (jnp.sqrt(_soc_determinant(x)) for x in (s, z))
            s, z = s / root_s, z / root_z
            v = (_reflected(s) + z) / jnp.sqrt(2 * (1 + jnp.dot(s, z)))
            h = 2 * jnp.outer(v, v @ m) - _reflected(m.T).T
            parts.append(root_z / root_s * h)
        return jnp.concatenate(parts)


@dataclass(frozen=True)
class Scaling:
    """Complementarity `L(s) dz + L(z) ds = c` solved for dz, cone by cone.

    With the regularised `L(s + delta z)` in place of `L(s)`:
    `dz = divide(c) - apply(ds)`. The regularisation bounds `apply` by 1/delta, so that
    rows whose slack vanishes do not drown the others in rounding.
    """

    cone: ProductCone
    maps: tuple[tuple[Array, Array], ...]

    def divide(self, matrix: Float[Array, "dim columns"]) -> Float[Array, "dim columns"]:
        """L(s + delta z)^-1 @ matrix."""
        return self._product(0, matrix)

    def apply(self, matrix: Float[Array, "dim columns"]) -> Float[Array, "dim columns"]:
        """L(s + delta z)^-1 L(z) @ matrix."""
        return self._product(1, matrix)

    def split_at(self, row: int) -> tuple[Scaling, Scaling]:
        """The scalings of the rows before this one, and of those from it on.

        Raises:
            ValueError: for a row inside a second-order cone.
        """
        before: list[tuple[str, tuple[Array, Array]]] = []
        after: list[tuple[str, tuple[Array, Array]]] = []
        for (kind, part), (first, second) in zip(self.cone.slices(), self.maps, strict=True):
            if not part.start < row < part.stop:
                (before if part.stop <= row else after).append((kind, (first, second)))
                continue
            if kind != ORTHANT:
                raise ValueError(f"split: row {row} is inside a second-order cone")
            cut = row - part.start
            before.append((kind, (first[:cut], second[:cut])))
            after.append((kind, (first[cut:], second[cut:])))
        return Scaling._of(before), Scaling._of(after)

    @classmethod
    def _of(cls, parts: list[tuple[str, tuple[Array, Array]]]) -> Scaling:
        """The scaling from the kind and the maps of each block."""
        cone = ProductCone(tuple((kind, len(maps[0])) for kind, maps in parts))
        return cls(cone, tuple(maps for _, maps in parts))

    @property
    def transposed(self) -> Scaling:
        """The scaling with transposed matrices."""
        maps = [tuple(m.T for m in pair) for pair in self.maps]  # a vector is a diagonal
        return Scaling(self.cone, tuple(maps))

    def _product(
        self, which: int, matrix: Float[Array, "dim columns"]
    ) -> Float[Array, "dim columns"]:
        parts = [
            m[which][:, None] * matrix[part] if kind == ORTHANT else matmul(m[which], matrix[part])
            for (kind, part), m in zip(self.cone.slices(), self.maps, strict=True)
        ]
        return jnp.concatenate(parts) if parts else matrix[:0]


def _soc_product(x: Vector, y: Vector) -> Vector:
    head = dot(x, y)[..., None]
    return jnp.concatenate([head, x[..., :1] * y[..., 1:] + y[..., :1] * x[..., 1:]], axis=-1)


def _soc_products(x: Float[Array, "*batch dim 1"], y: Matrix) -> Matrix:
    head = dot(x, y, axis=-2)[..., None, :]
    tail = x[..., :1, :] * y[..., 1:, :] + y[..., :1, :] * x[..., 1:, :]
    return jnp.concatenate([head, tail], axis=-2)


def _soc_determinant(x: Vector) -> Scalar:
    # (t - |z|)(t + |z|) keeps the digits that t^2 - |z|^2 loses near the boundary.
    size = norm(x[..., 1:])
    return (x[..., 0] - size) * (x[..., 0] + size)


def _soc_inverse(x: Vector) -> Vector:
    return _reflected(x) / _soc_determinant(x)[..., None]


def _reflected(x: Vector) -> Vector:
    """(t, -z)."""
    sign = np.ones(x.shape[-1])
    sign[1:] = -1
    return x * jnp.asarray(sign, x.dtype)


def _soc_margin(x: Vector) -> Float[Array, "*batch 1"]:
    return (x[..., 0] - norm(x[..., 1:]))[..., None]


def _orthant_steps(x: Vector, dx: Vector) -> Vector:
    return jnp.where(dx >= 0, jnp.inf, -x / jnp.where(dx >= 0, -1, dx))  # NaN where dx is


def _soc_step(x: Vector, dx: Vector) -> Float[Array, "*batch 1"]:
    """Smallest positive root of det(x + t dx) = a + 2 b t + c t^2, without cancellation."""
    a = _soc_determinant(x)
    b = x[..., 0] * dx[..., 0] - dot(x[..., 1:], dx[..., 1:])
    c = dx[..., 0] ** 2 - dot(dx[..., 1:], dx[..., 1:])
    root = jnp.sqrt(jnp.maximum(b * b - a * c, 0))
    # Of two forms of the same root that whose terms have the same sign.
    above, below = jnp.where(b > 0, b + root, a), jnp.where(b > 0, -c, root - b)
    stays = below <= 0  # not where dx is NaN
    return jnp.where(stays, jnp.inf, above / jnp.where(stays, 1, below))[..., None]


def _orthant_pair(
    difference: Vector, product: Float[Array, "*batch #dim"]
) -> tuple[Vector, Vector]:
    root = jnp.sqrt(difference**2 + 4 * product)
    larger = (jnp.abs(difference) + root) / 2
    smaller = product / larger  # its difference to `larger` would cancel
    positive = difference > 0
    return jnp.where(positive, larger, smaller), jnp.where(positive, smaller, larger)


def _soc_pair(difference: Vector, product: Vector) -> tuple[Vector, Vector]:
    """Eigenvalue by eigenvalue: t + |z| and t - |z|."""
    head, tail = difference[..., :1], difference[..., 1:]
    size = norm(tail)[..., None]
    pairs = _orthant_pair(jnp.concatenate([head + size, head - size], axis=-1), product[..., :1])
    direction = tail / jnp.where(size > 0, size, 1)

    def point(eigenvalues: Float[Array, "*batch 2"]) -> Vector:
        high, low = eigenvalues[..., :1], eigenvalues[..., 1:]
        return jnp.concatenate([(high + low) / 2, (high - low) / 2 * direction], axis=-1)

    first, second = map(point, pairs)
    return first, second


def _arrow(x: Float[Array, " n"]) -> Float[Array, "n n"]:
    """L(x) = [[x0, x1^T], [x1, x0 I]], so that L(x) y = x o y."""
    identity = jnp.eye(len(x), dtype=x.dtype)
    first, tail = identity[0], x * (1 - identity[0])
    return x[0] * identity + jnp.outer(first, tail) + jnp.outer(tail, first)


def _arrow_inverse(x: Float[Array, " n"]) -> Float[Array, "n n"]:
    """L(x)^-1 in closed form."""
    det = _soc_determinant(x)
    reflected = _reflected(x)
    body = np.diag([0.0] + [1.0] * (len(x) - 1))
    return jnp.outer(reflected, reflected) / (det * x[0]) + jnp.asarray(body, x.dtype) / x[0]
