"""Sphere."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
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
class Sphere(ConvexShape):
    """The points within `radius` of the origin.

    Args:
        radius: [m]

    Raises:
        ValueError: if `radius` is not a positive finite number.

    Source: single-level contact simulation, appendix B, eq. 48 with equal half axes.
    """

    radius: Float[Array, ""]

    cone: ClassVar[ProductCone] = ProductCone.second_order(4)

    def __init__(self, radius: ArrayLike) -> None:
        dtype = float_dtype(radius)
        assign(self, radius=parameter("radius", radius, (), dtype, positive=True))

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, "4"]:
        """(alpha radius, x)."""
        return jnp.concatenate([(alpha * self.radius)[None], x])

    def gauge(self, x: Vector3) -> Scalar:
        """|x| / radius."""
        return safe_norm(x) / self.radius

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`."""
        return self.radius * safe_unit(direction)

    def mass_properties(self) -> MassProperties:
        """Exact: volume 4/3 pi r^3, inertia 2/5 V r^2."""
        volume = 4 / 3 * jnp.pi * self.radius**3
        inertia = 0.4 * volume * self.radius**2 * jnp.eye(3, dtype=self.dtype)
        return MassProperties(volume, jnp.zeros(3, self.dtype), inertia)

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Inscribed mesh with `resolution` segments around z."""
        vertices, faces = revolve(*sphere_profile(resolution), resolution)
        return vertices * float(self.radius), faces

    @property
    def bounding_radius(self) -> Scalar:
        """The radius [m]."""
        return self.radius
