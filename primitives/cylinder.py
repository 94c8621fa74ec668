"""Cylinder."""

from __future__ import annotations

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
from silico_py.primitives._checks import float_dtype, parameter
from silico_py.primitives._mesh import revolve
from silico_py.primitives._pytree import assign
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import safe_norm, safe_unit


@primitive
class Cylinder(ConvexShape):
    """A solid cylinder along local z, centred at the origin.

    Args:
        radius: [m]
        length: along z, from one flat end to the other [m]

    Raises:
        ValueError: if either is not a positive finite number.

    Source: single-level contact simulation, appendix B, eq. 52, without its redundant
    auxiliary and as a second-order cone.
    """

    radius: Float[Array, ""]
    length: Float[Array, ""]

    cone: ClassVar[ProductCone] = ProductCone.orthant(2) + ProductCone.second_order(3)

    def __init__(self, radius: ArrayLike, length: ArrayLike) -> None:
        dtype = float_dtype(radius, length)
        assign(
            self,
            radius=parameter("radius", radius, (), dtype, positive=True),
            length=parameter("length", length, (), dtype, positive=True),
        )

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, "5"]:
        """(alpha length/2 -+ z) and (alpha radius, x, y)."""
        half = (alpha * self.length / 2)[None]
        return jnp.concatenate([half - x[2:], half + x[2:], (alpha * self.radius)[None], x[:2]])

    def gauge(self, x: Vector3) -> Scalar:
        """The larger of |(x, y)| / radius and 2 |z| / length."""
        return jnp.maximum(safe_norm(x[:2]) / self.radius, 2 * jnp.abs(x[2]) / self.length)

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`."""
        end = sign(direction[2:]) * self.length / 2
        return jnp.concatenate([self.radius * safe_unit(direction[:2]), end])

    def mass_properties(self) -> MassProperties:
        """Exact: inertia V R^2 / 2 about z and V (3 R^2 + L^2) / 12 across."""
        volume = jnp.pi * self.radius**2 * self.length
        axial = volume * self.radius**2 / 2
        across = volume * (3 * self.radius**2 + self.length**2) / 12
        return MassProperties(
            volume, jnp.zeros(3, self.dtype), jnp.diag(jnp.stack([across, across, axial]))
        )

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Inscribed mesh with `resolution` segments around z."""
        r, half = float(self.radius), float(self.length) / 2
        return revolve(np.array([0, r, r, 0]), np.array([-half, -half, half, half]), resolution)

    @property
    def bounding_radius(self) -> Scalar:
        """Distance of a rim from the centre [m]."""
        return jnp.sqrt(self.radius**2 + self.length**2 / 4)
