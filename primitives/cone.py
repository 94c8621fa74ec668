"""Cone (the solid; the sets of optimisation are in `silico_py.solver.cones`)."""

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
)
from silico_py.primitives._checks import float_dtype, parameter
from silico_py.primitives._mesh import revolve
from silico_py.primitives._pytree import assign
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import safe_norm, safe_unit


@primitive
class Cone(ConvexShape):
    """A solid circular cone, apex up along local z, origin at its centre of mass.

    The apex is at z = 3/4 height, the base at z = -1/4 height; the half angle nu at the apex
    has tan nu = radius / height.

    Args:
        radius: of the base [m]
        height: from base to apex [m]

    Raises:
        ValueError: if either is not a positive finite number.

    Source: single-level contact simulation, appendix B, eqs. 54-55, in the body frame and as
    a second-order cone (the norm of eq. 55 is not smooth on the axis).
    """

    radius: Float[Array, ""]
    height: Float[Array, ""]

    cone: ClassVar[ProductCone] = ProductCone.orthant(1) + ProductCone.second_order(3)

    def __init__(self, radius: ArrayLike, height: ArrayLike) -> None:
        dtype = float_dtype(radius, height)
        assign(
            self,
            radius=parameter("radius", radius, (), dtype, positive=True),
            height=parameter("height", height, (), dtype, positive=True),
        )

    @property
    def slope(self) -> Scalar:
        """tan nu, the tangent of the half angle at the apex."""
        return self.radius / self.height

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, "4"]:
        """alpha height/4 + z and (tan nu (3/4 alpha height - z), x, y)."""
        base = alpha * self.height / 4 + x[2:]
        side = self.slope * (0.75 * alpha * self.height - x[2:])
        return jnp.concatenate([base, side, x[:2]])

    def gauge(self, x: Vector3) -> Scalar:
        """The larger of what the base and the side ask for."""
        base = -4 * x[2] / self.height
        side = 4 / 3 * (safe_norm(x[:2]) / self.radius + x[2] / self.height)
        return jnp.maximum(base, side)

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`: the apex or a point of the rim."""
        apex = jnp.zeros(3, self.dtype).at[2].set(0.75 * self.height)
        rim = jnp.concatenate([self.radius * safe_unit(direction[:2]), (-self.height / 4)[None]])
        return jnp.where(jnp.dot(direction, apex) > jnp.dot(direction, rim), apex, rim)

    def mass_properties(self) -> MassProperties:
        """Exact: inertia 3/10 V R^2 about z and V (3/20 R^2 + 3/80 H^2) across."""
        volume = jnp.pi * self.radius**2 * self.height / 3
        axial = 0.3 * volume * self.radius**2
        across = volume * (3 / 20 * self.radius**2 + 3 / 80 * self.height**2)
        return MassProperties(
            volume, jnp.zeros(3, self.dtype), jnp.diag(jnp.stack([across, across, axial]))
        )

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Inscribed mesh with `resolution` segments around z."""
        r, h = float(self.radius), float(self.height)
        return revolve(np.array([0, r, 0]), np.array([-h / 4, -h / 4, 0.75 * h]), resolution)

    @property
    def bounding_radius(self) -> Scalar:
        """The larger distance of apex and rim from the centre of mass [m]."""
        rim = jnp.sqrt(self.radius**2 + self.height**2 / 16)
        return jnp.maximum(0.75 * self.height, rim)
