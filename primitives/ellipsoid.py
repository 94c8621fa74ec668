"""Ellipsoid."""

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
from silico_py.primitives._checks import float_dtype, parameter
from silico_py.primitives._mesh import revolve, sphere_profile
from silico_py.primitives._pytree import assign
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import safe_norm, safe_unit


@primitive
class Ellipsoid(ConvexShape):
    """The points with |x / radii| <= 1; axes and origin are those of the shape's frame.

    Args:
        radii: (3,) half axes [m]

    Raises:
        ValueError: if `radii` is not three positive finite numbers.

    Source: single-level contact simulation, appendix B, eq. 48, as a second-order cone.
    """

    radii: Float[Array, "3"]

    cone: ClassVar[ProductCone] = ProductCone.second_order(4)

    def __init__(self, radii: ArrayLike | Sequence[ArrayLike]) -> None:
        dtype = float_dtype(radii)
        assign(self, radii=parameter("radii", radii, (3,), dtype, positive=True))

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, "4"]:
        """rbar (alpha, x / radii), with rbar the mean radius: slacks are lengths."""
        mean = jnp.mean(self.radii)
        return jnp.concatenate([(mean * alpha)[None], mean * x / self.radii])

    def gauge(self, x: Vector3) -> Scalar:
        """|x / radii|."""
        return safe_norm(x / self.radii)

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`."""
        return self.radii * safe_unit(self.radii * direction)

    def mass_properties(self) -> MassProperties:
        """Exact: volume 4/3 pi r1 r2 r3, inertia V/5 (r2^2 + r3^2, ...)."""
        volume = 4 / 3 * jnp.pi * jnp.prod(self.radii)
        square = self.radii**2
        inertia = jnp.diag(volume / 5 * (jnp.sum(square) - square))
        return MassProperties(volume, jnp.zeros(3, self.dtype), inertia)

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Inscribed mesh with `resolution` segments around z."""
        vertices, faces = revolve(*sphere_profile(resolution), resolution)
        return vertices * np.asarray(self.radii, float), faces

    @property
    def bounding_radius(self) -> Scalar:
        """The largest half axis [m]."""
        return jnp.max(self.radii)
