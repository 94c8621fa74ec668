"""Minkowski sum of two convex primitives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

from silico_py.primitives._base import (
    ConvexShape,
    MassProperties,
    Mesh,
    Scalar,
    Vector3,
    fraction,
    primitive,
)
from silico_py.primitives._conic_gauge import conic_gauge
from silico_py.primitives._mesh import hull_mesh, icosphere
from silico_py.primitives._moments import Moments, solid_moments
from silico_py.primitives._pytree import assign
from silico_py.solver.compilation import once
from silico_py.solver.cones import ProductCone

QUADRATURE_LEVEL = 4  # of the icosphere: 2562 directions
# Rotations of the quadrature's directions. A slight one, for along none of them two corners of a
# shape that is aligned with its frame should be furthest; and half turns about the axes, so that
# moments of a symmetric shape are symmetric.
_SLIGHT = Rotation.from_rotvec([1e-7, 2e-7, 3e-7]).as_matrix()
TURNS = [_SLIGHT * signs for signs in [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]]


@primitive
class MinkowskiSum(ConvexShape):
    """All x1 + x2 with x1 in `first` and x2 in `second`; sums may be nested.

    Both shapes keep their frames' axes; the sum's frame origin is the sum of theirs. It is
    scaled by alpha about the sum of the two references. Its centre of mass is in general
    not at the origin.

    Args:
        first, second: bounded convex primitives

    Raises:
        ValueError: if either is not a convex primitive, is a `HalfSpace`, or is of another
            float dtype than its partner.

    Source: single-level contact simulation, eqs. 23-25.
    """

    first: ConvexShape
    second: ConvexShape

    def __init__(self, first: ConvexShape, second: ConvexShape) -> None:
        for name, shape in (("first", first), ("second", second)):
            if not isinstance(shape, ConvexShape):
                raise ValueError(f"{name}: expected a convex primitive, got {type(shape).__name__}")
            if not shape.scaled:
                raise ValueError(f"{name}: a {type(shape).__name__} is unbounded; give a solid")
        if first.dtype != second.dtype:
            raise ValueError(
                f"second: has dtype {second.dtype}, first has {first.dtype}; "
                "build both with one float dtype"
            )
        assign(self, first=first, second=second)

    @property
    def cone(self) -> ProductCone:
        """The cone of `first` followed by that of `second`."""
        return self.first.cone + self.second.cone

    @property
    def least_excess(self) -> float:
        """The sum of those of both: each of them carries the whole force."""
        return self.first.least_excess + self.second.least_excess

    @property
    def usual_excess(self) -> float:
        """The sum of those of both, and 1 that is not sure.

        Rows fix the point of `first`, too: up to three more are active where edges or vertices
        touch, and none where faces do.
        """
        return self.first.usual_excess + self.second.usual_excess + 1.0

    @property
    def n_aux(self) -> int:
        """Auxiliaries of both, and the point of `first`."""
        return self.first.n_aux + self.second.n_aux + 3

    @property
    def reference(self) -> Vector3:
        """Centre of the scaling by alpha, the sum of the two references [m]."""
        return self.first.reference + self.second.reference

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, " n_aux"]) -> Float[Array, " dim"]:
        """Slack of `first` at x1 and of `second` at x - x1; eps = (eps1, eps2, x1)."""
        n1, n2 = self.first.n_aux, self.second.n_aux
        eps1, eps2, x1 = eps[:n1], eps[n1 : n1 + n2], eps[n1 + n2 :]
        return jnp.concatenate(
            [self.first.slack(x1, alpha, eps1), self.second.slack(x - x1, alpha, eps2)]
        )

    def gauge(self, x: Vector3) -> Scalar:
        """The gauge by the fixed-iteration interior point of `conic_gauge`, to about 1e-9 in
        float64."""
        return conic_gauge(self, x)

    def interior(self, x: Vector3) -> tuple[Scalar, Float[Array, " n_aux"]]:
        """An upper bound g1 g2 / (g1 + g2) of the gauge: x shared between the two shapes.

        The bounds scale with the offset from the reference, so shares in the ratio g2 : g1
        ask both shapes for the same alpha.
        """
        r1, r2 = self.first.reference, self.second.reference
        offset = x - (r1 + r2)
        g1, _ = self.first.interior(r1 + offset)
        g2, _ = self.second.interior(r2 + offset)
        share = fraction(g2, g1)
        x1 = r1 + share * offset
        _, eps1 = self.first.interior(x1)
        _, eps2 = self.second.interior(r2 + (1 - share) * offset)
        return share * g1, jnp.concatenate([eps1, eps2, x1])

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction`: the sum of the two."""
        return self.first.support(direction) + self.second.support(direction)

    @once
    def mass_properties(self) -> MassProperties:
        """Approximate: support-point quadrature with one Richardson extrapolation.

        The solid is inscribed: triangles between the support points of a refined icosahedron
        of directions (2562, stretched to the shape's own extents), integrated exactly by
        signed tetrahedra, then extrapolated with the next coarser level (642). Relative
        error a few 1e-4 for smooth pieces, up to about 1e-2 for sums with sharp edges; see
        the tests. Usable under `jit` and differentiable, to the accuracy of the value.
        """
        fine = self._inscribed_moments(QUADRATURE_LEVEL)
        coarse = self._inscribed_moments(QUADRATURE_LEVEL - 1)
        best = Moments(*((4 * f - c) / 3 for f, c in zip(fine, coarse, strict=True)))
        return best.mass_properties(jax.lax.stop_gradient(self.reference))

    def _inscribed_moments(self, level: int) -> Moments:
        directions, triangles = icosphere(level)
        points = _furthest(self, np.concatenate([directions @ turn for turn in TURNS]))
        points -= jax.lax.stop_gradient(self.reference)
        each = jax.vmap(solid_moments, (0, None))(points.reshape(len(TURNS), -1, 3), triangles)
        return jax.tree.map(lambda v: jnp.mean(v, axis=0), each)

    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Hull of support points, at least `resolution` around the equator."""
        level = max(int(np.ceil(np.log2(max(resolution, 8) / 5))), 1)
        directions, _ = icosphere(level)
        return hull_mesh(np.asarray(_furthest(self, directions), float))

    @property
    def bounding_radius(self) -> Scalar:
        """The sum of the two: an upper bound, reached when they reach furthest together [m]."""
        return self.first.bounding_radius + self.second.bounding_radius

    @property
    def characteristic_length(self) -> Scalar:
        """The sum of the two [m]."""
        return self.first.characteristic_length + self.second.characteristic_length


@once
def _furthest(
    shape: MinkowskiSum, directions: Float[np.ndarray | Array, "n 3"]
) -> Float[Array, "n 3"]:
    """Points along directions that are stretched to the extents of the shape; these directions do
    not follow it in derivatives."""
    half_extents = jax.lax.stop_gradient(_half_extents(shape))
    return jax.vmap(shape.support)(jnp.asarray(directions, shape.dtype) / half_extents[None, :])


def _half_extents(shape: Any) -> Vector3:
    """Half of the width along each axis of the frame [m]."""
    axes = jnp.eye(3, dtype=shape.dtype)
    support = jax.vmap(shape.support)
    return jnp.diagonal(support(axes) - support(-axes)) / 2
