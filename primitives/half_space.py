"""Half-space n.x <= d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.primitives._base import (
    ConvexShape,
    MassProperties,
    Mesh,
    Scalar,
    Vector3,
    primitive,
)
from silico_py.primitives._checks import float_dtype, parameter, unit
from silico_py.primitives._pytree import assign
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import dot


@primitive
class HalfSpace(ConvexShape):
    """The points with `normal . x <= offset`: the ground, a wall.

    The only primitive that is not scaled by alpha (`scaled` is False), so a pair of two
    half-spaces is meaningless.

    Args:
        normal: (3,) outward unit normal, in the shape's frame
        offset: signed distance of the plane from the origin, along `normal` [m]

    Raises:
        ValueError: if `normal` is not of norm 1 within 1e-6, or a value is not finite.

    Source: single-level contact simulation, appendix B, eq. 42 (which has no alpha either).
    """

    normal: Float[Array, "3"]
    offset: Float[Array, ""]

    scaled: ClassVar[bool] = False
    cone: ClassVar[ProductCone] = ProductCone.orthant(1)

    def __init__(self, normal: ArrayLike | Sequence[ArrayLike], offset: ArrayLike) -> None:
        dtype = float_dtype(normal, offset)
        assign(
            self,
            normal=unit("normal", normal, (3,), dtype),
            offset=parameter("offset", offset, (), dtype),
        )

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, "1"]:
        """offset - normal . x; alpha does not enter."""
        return (self.offset - dot(self.normal, x))[None]

    def gauge(self, x: Vector3) -> Scalar:
        """0 for a point of the half-space, infinite outside: no alpha would reach it."""
        outside = dot(self.normal, x) > self.offset
        return jnp.where(outside, jnp.inf, 0).astype(self.dtype)

    def interior(self, x: Vector3) -> tuple[Scalar, Float[Array, "0"]]:
        """Bound 0 strictly below the surface, infinite elsewhere."""
        inside = dot(self.normal, x) < self.offset
        return jnp.where(inside, 0, jnp.inf).astype(self.dtype), jnp.zeros(0, self.dtype)

    def contains(self, x: Vector3) -> Array:
        """Whether normal . x <= offset."""
        return dot(self.normal, x) <= self.offset

    def support(self, direction: Vector3) -> Vector3:
        """Refused: a half-space has no furthest point.

        Raises:
            ValueError: always.
        """
        raise ValueError("HalfSpace: unbounded, it has no support point")

    def mass_properties(self) -> MassProperties:
        """Refused: a half-space has no finite volume.

        Raises:
            ValueError: always.
        """
        raise ValueError("HalfSpace: infinite volume; use it in the environment, not on a body")

    def surface_mesh(self, resolution: int = 1, extent: float = 10.0) -> Mesh:
        """A square patch of the plane of side 2 `extent` [m], facing outward (not closed)."""
        normal = np.asarray(self.normal, float)
        first = np.cross(normal, np.eye(3)[np.argmin(np.abs(normal))])
        first /= np.linalg.norm(first)
        second = np.cross(normal, first)
        ticks = np.linspace(-extent, extent, resolution + 1)
        u, v = (grid.reshape(-1, 1) for grid in np.meshgrid(ticks, ticks, indexing="ij"))
        vertices = float(self.offset) * normal + u * first + v * second
        corner = (np.arange(resolution)[:, None] * (resolution + 1) + np.arange(resolution)).ravel()
        next_row = corner + resolution + 1
        faces = np.concatenate(
            [
                np.stack([corner, next_row, next_row + 1], axis=1),
                np.stack([corner, next_row + 1, corner + 1], axis=1),
            ]
        )
        return vertices, faces

    @property
    def bounding_radius(self) -> Scalar:
        """Infinite."""
        return jnp.full((), jnp.inf, self.dtype)

    @property
    def characteristic_length(self) -> Scalar:
        """1 m: a half-space has no length of its own."""
        return jnp.ones((), self.dtype)
