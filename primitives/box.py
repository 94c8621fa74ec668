"""Box."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    sign,
)
from silico_py.primitives._checks import count, float_dtype, parameter, several
from silico_py.primitives._mesh import hull_mesh
from silico_py.primitives._pytree import assign
from silico_py.primitives.bundle import Bundle
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import norm


@primitive
class Box(ConvexShape):
    """The points with |x_i| <= half_extents_i: a polytope of six faces, centred at the origin.

    Args:
        half_extents: (3,) half of the length of each side [m]

    Raises:
        ValueError: if `half_extents` is not three positive finite numbers.

    Source: single-level contact simulation, appendix B, eq. 44.
    """

    half_extents: Float[Array, "3"]

    cone: ClassVar[ProductCone] = ProductCone.orthant(6)

    def __init__(self, half_extents: ArrayLike | Sequence[ArrayLike]) -> None:
        dtype = float_dtype(half_extents)
        assign(
            self,
            half_extents=parameter("half_extents", half_extents, (3,), dtype, positive=True),
        )

    def split(self, counts: Iterable[int] = (2, 2, 1)) -> Bundle:
        """This box as a `Bundle` of equal boxes side by side, with the same mass properties.

        Each piece has a contact point of its own, so that friction resists a turn about the normal
        of a face that several of them share. Each also adds pairs to a scene.

        Args:
            counts: how many boxes along x, y and z

        Raises:
            ValueError: if `counts` is not three positive ints.
        """
        numbers = several("counts", counts, "ints")
        if len(numbers) != 3:
            raise ValueError(f"counts: expected three ints, got {numbers}")
        along = np.array([count(f"counts[{k}]", number) for k, number in enumerate(numbers)])
        cells = np.stack(np.meshgrid(*map(np.arange, along), indexing="ij"), axis=-1).reshape(-1, 3)
        centers = np.asarray((2 * cells + 1) / along - 1, self.dtype) * self.half_extents
        piece = Box(self.half_extents / along.astype(self.dtype))
        unturned = np.array([1, 0, 0, 0], self.dtype)
        return Bundle([(piece, center, unturned) for center in centers])

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, "6"]:
        """alpha half_extents -+ x."""
        scaled = alpha * self.half_extents
        return jnp.concatenate([scaled - x, scaled + x])

    def gauge(self, x: Vector3) -> Scalar:
        """The largest |x_i| / half_extents_i."""
        return jnp.max(jnp.abs(x) / self.half_extents)

    def support(self, direction: Vector3) -> Vector3:
        """Furthest corner along `direction`."""
        return sign(direction) * self.half_extents

    def mass_properties(self) -> MassProperties:
        """Exact: volume 8 h1 h2 h3, inertia V/3 (h2^2 + h3^2, ...)."""
        volume = 8 * jnp.prod(self.half_extents)
        square = self.half_extents**2
        inertia = jnp.diag(volume / 3 * (jnp.sum(square) - square))
        return MassProperties(volume, jnp.zeros(3, self.dtype), inertia)

    def surface_mesh(self, resolution: int = 1) -> Mesh:
        """The eight corners; `resolution` has no effect."""
        corners = np.stack(np.meshgrid(*3 * [[-1.0, 1.0]], indexing="ij"), axis=-1).reshape(-1, 3)
        return hull_mesh(corners * np.asarray(self.half_extents, float))

    @property
    def bounding_radius(self) -> Scalar:
        """Distance of a corner from the centre [m]."""
        return norm(self.half_extents)
