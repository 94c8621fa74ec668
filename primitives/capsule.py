"""Capsule."""

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
from silico_py.primitives._mesh import revolve, sphere_profile
from silico_py.primitives._pytree import assign
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import safe_norm, safe_unit


@primitive
class Capsule(ConvexShape):
    """The points within `radius` of a segment of `length` along local z, centred at the origin.

    Args:
        radius: [m]
        length: of the segment, without the two half balls [m]

    Raises:
        ValueError: if either is not a positive finite number (a length of 0 is a `Sphere`).

    Source: single-level contact simulation, appendix B, eq. 50, as a second-order cone. The
    mass properties are derived here (the formulas printed with DCOL are wrong).
    """

    radius: Float[Array, ""]
    length: Float[Array, ""]

    cone: ClassVar[ProductCone] = ProductCone.orthant(2) + ProductCone.second_order(4)
    n_aux: ClassVar[int] = 1

    def __init__(self, radius: ArrayLike, length: ArrayLike) -> None:
        dtype = float_dtype(radius, length)
        assign(
            self,
            radius=parameter("radius", radius, (), dtype, positive=True),
            length=parameter("length", length, (), dtype, positive=True),
        )

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "1"]) -> Float[Array, "6"]:
        """(alpha length/2 -+ eps) and (alpha radius, x - eps z); eps is a point of the segment."""
        half = (alpha * self.length / 2)[None]
        axial = x[2:] - eps
        return jnp.concatenate([half - eps, half + eps, (alpha * self.radius)[None], x[:2], axial])

    def gauge(self, x: Vector3) -> Scalar:
        """rho/R on the side; on the caps the root of rho^2 + (z - alpha h)^2 = alpha^2 R^2."""
        rho, z, half = safe_norm(x[:2]), jnp.abs(x[2]), self.length / 2
        side = rho / self.radius
        on_cap = z * self.radius > rho * half
        square = rho**2 + z**2
        # In this form the root keeps its digits for either sign of R - h.
        discriminant = self.radius**2 * square - (half * rho) ** 2
        root = jnp.sqrt(jnp.where(on_cap, discriminant, 1))
        cap = square / jnp.where(on_cap, z * half + root, 1)
        return jnp.where(on_cap, cap, side)

    def interior(self, x: Vector3) -> tuple[Scalar, Float[Array, "1"]]:
        """The gauge, with eps the closest point of the scaled segment."""
        alpha = self.gauge(x)
        reach = (alpha * self.length / 2)[None]
        return alpha, jnp.clip(x[2:], -reach, reach)

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`."""
        end = jnp.zeros(3, self.dtype).at[2].set(sign(direction[2]) * self.length / 2)
        return end + self.radius * safe_unit(direction)

    def mass_properties(self) -> MassProperties:
        """Exact: a cylinder and two half balls, whose centroids lie 3/8 radius beyond the ends."""
        r, length = self.radius, self.length
        tube = jnp.pi * r**2 * length
        ball = 4 / 3 * jnp.pi * r**3
        axial = tube * r**2 / 2 + ball * 0.4 * r**2
        across = tube * (length**2 / 12 + r**2 / 4) + ball * (
            0.4 * r**2 + length**2 / 4 + 3 / 8 * r * length
        )
        return MassProperties(
            tube + ball, jnp.zeros(3, self.dtype), jnp.diag(jnp.stack([across, across, axial]))
        )

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Inscribed mesh with `resolution` segments around z."""
        # An even number of steps puts a ring at the equator, where the two halves part.
        radius, height = sphere_profile(4 * max(resolution // 4, 1))
        middle = len(radius) // 2
        order = np.r_[0 : middle + 1, middle : len(radius)]
        shift = np.where(np.arange(len(order)) <= middle, -0.5, 0.5) * float(self.length)
        r = float(self.radius)
        return revolve(r * radius[order], r * height[order] + shift, resolution)

    @property
    def bounding_radius(self) -> Scalar:
        """length/2 + radius [m]."""
        return self.length / 2 + self.radius
