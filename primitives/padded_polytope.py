"""Padded polytope: the Minkowski sum of a polytope and a ball."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.primitives._base import (
    ACTIVE_EXCESS,
    ConvexShape,
    MassProperties,
    Mesh,
    Scalar,
    Vector3,
    fraction,
    primitive,
)
from silico_py.primitives._checks import parameter
from silico_py.primitives._conic_gauge import conic_gauge
from silico_py.primitives._mesh import hull_mesh, revolve, sphere_profile
from silico_py.primitives._moments import edges
from silico_py.primitives._pytree import assign
from silico_py.primitives._transport import about_middle, padded_moments
from silico_py.primitives.polytope import Polytope
from silico_py.solver.compilation import once
from silico_py.solver.cones import SECOND_ORDER, ProductCone
from silico_py.solver.dense import safe_norm, safe_unit


@primitive
class PaddedPolytope(ConvexShape):
    """The points within `radius` of the polytope A x <= b: a polytope with rounded edges.

    Polytope and ball are both scaled by alpha, about the polytope's reference.

    Args:
        A: (m, 3) outward normals of the polytope, rows of any length
        b: (m,) offsets [m]
        radius: of the ball [m]
        core: a `Polytope` instead of A and b

    Raises:
        ValueError: as `Polytope`, or if `radius` is not a positive finite number.

    Source: single-level contact simulation, appendix B, eq. 46, as a second-order cone.
    """

    core: Polytope
    radius: Float[Array, ""]

    n_aux: ClassVar[int] = 3

    def __init__(
        self,
        A: ArrayLike | None = None,
        b: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        *,
        core: Polytope | None = None,
    ) -> None:
        if core is None:
            if A is None or b is None:
                raise ValueError("A, b: give both (or core, a Polytope)")
            core = Polytope(A, b)
        elif A is not None or b is not None:
            raise ValueError("core: give either A and b or core, not both")
        if not isinstance(core, Polytope):
            raise ValueError(f"core: expected a Polytope, got {type(core).__name__}")
        if radius is None:
            raise ValueError("radius: missing; give a positive number")
        dtype = core.dtype
        assign(self, core=core, radius=parameter("radius", radius, (), dtype, positive=True))

    @property
    def A(self) -> Float[Array, "m 3"]:
        """Unit outward normals of the polytope."""
        return self.core.A

    @property
    def b(self) -> Float[Array, " m"]:
        """Offsets of the polytope [m]."""
        return self.core.b

    @property
    def reference(self) -> Vector3:
        """Centre of the scaling by alpha, that of the polytope [m]."""
        return self.core.reference

    @property
    def cone(self) -> ProductCone:
        """One slack for each face and a second-order cone for the ball."""
        return self.core.cone + ProductCone.second_order(4)

    @property
    def least_excess(self) -> float:
        """The sum of those of core and ball: each carries the whole force."""
        return self.core.least_excess + ACTIVE_EXCESS[SECOND_ORDER]

    def slack(self, x: Vector3, alpha: Scalar, eps: Vector3) -> Float[Array, " m+4"]:
        """The polytope's slack at x - eps, and (alpha radius, eps)."""
        core = self.core.slack(x - eps, alpha, jnp.zeros(0, self.dtype))
        return jnp.concatenate([core, (alpha * self.radius)[None], eps])

    def gauge(self, x: Vector3) -> Scalar:
        """The gauge by the fixed-iteration interior point of `conic_gauge`, to about 1e-9 in
        float64."""
        return conic_gauge(self, x)

    def interior(self, x: Vector3) -> tuple[Scalar, Vector3]:
        """An upper bound g1 g2 / (g1 + g2) of the gauge: x shared between polytope and ball."""
        offset = x - self.reference
        core, ball = self.core.gauge(x), safe_norm(offset) / self.radius
        share = fraction(core, ball)
        return share * ball, share * offset

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`."""
        return self.core.support(direction) + self.radius * safe_unit(direction)

    @once
    def mass_properties(self) -> MassProperties:
        """Exact: the polytope and the layer around it (Steiner's decomposition)."""
        faces = self.core.faces
        middle, planes = about_middle(self.A, self.b, faces)
        return padded_moments(planes, self.radius, faces).mass_properties(middle)

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Inscribed mesh with `resolution` segments around an edge's full circle."""
        corners, triangles = self.core.surface_mesh()
        radius = float(self.radius)
        ball, _ = revolve(*sphere_profile(resolution), resolution)
        # Only points of the surface itself: ball points where they belong, then every arc.
        points = [corners[np.argmax(ball @ corners.T, axis=1)] + radius * ball]
        a, b, c = (corners[triangles[:, k]] for k in range(3))
        normals = np.cross(b - a, c - a)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        for (start, end), (one, two) in zip(*edges(triangles), strict=True):
            n1, n2 = normals[one], normals[two]
            angle = np.arctan2(np.linalg.norm(np.cross(n1, n2)), n1 @ n2)
            across = n2 - (n1 @ n2) * n1
            across /= max(np.linalg.norm(across), 1e-12)
            turn = np.linspace(0, angle, int(np.ceil(angle * resolution / (2 * np.pi))) + 1)
            arc = radius * (np.cos(turn)[:, None] * n1 + np.sin(turn)[:, None] * across)
            points += [corners[start] + arc, corners[end] + arc]
        return hull_mesh(np.concatenate(points))

    @property
    def bounding_radius(self) -> Scalar:
        """That of the polytope plus `radius` [m]."""
        return self.core.bounding_radius + self.radius

    @property
    def characteristic_length(self) -> Scalar:
        """That of the polytope plus `radius` [m]."""
        return self.core.characteristic_length + self.radius
