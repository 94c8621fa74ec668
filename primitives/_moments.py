"""Volume and first and second moments of solids bounded by triangles, exact and differentiable."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from silico_py.primitives._base import MassProperties, Matrix3, Scalar, Vector3

Triangles = Int[np.ndarray, "faces 3"]


class Moments(NamedTuple):
    """Integrals over a solid of 1, x and x x^T.

    Far from the solid differences of large numbers would be left of them: shapes take them about a
    point inside.
    """

    volume: Scalar
    first: Vector3
    second: Matrix3

    def plus(self, other: Moments) -> Moments:
        """Moments of the union of two disjoint solids."""
        return Moments(*(a + b for a, b in zip(self, other, strict=True)))

    def mass_properties(self, origin: Vector3) -> MassProperties:
        """About the centre of mass, of integrals about `origin`; inertia = trace(S) I - S."""
        center = self.first / self.volume
        spread = self.second - self.volume * jnp.outer(center, center)
        inertia = jnp.trace(spread) * jnp.eye(3, dtype=spread.dtype) - spread
        return MassProperties(self.volume, origin + center, inertia)


def middle_of(points: Float[Array, "n 3"]) -> Vector3:
    """Where moments of a hull are taken about; nothing depends on how it moves."""
    return jax.lax.stop_gradient(jnp.mean(points, axis=0))


def solid_moments(points: Float[Array, "n 3"], triangles: Triangles) -> Moments:
    """Sum over the signed tetrahedra between the origin and each triangle of a closed mesh."""
    corner = points[triangles]
    a, b, c = corner[:, 0], corner[:, 1], corner[:, 2]
    volume = jnp.sum(a * jnp.cross(b, c), axis=-1) / 6
    total = a + b + c
    first = volume @ total / 4
    # int x x^T over a tetrahedron (0, a, b, c) = V/20 (sum v v^T + (sum v)(sum v)^T).
    second = jnp.einsum("f,fki,fkj->ij", volume, corner, corner)
    second = (second + jnp.einsum("f,fi,fj->ij", volume, total, total)) / 20
    return Moments(jnp.sum(volume), first, second)


def edges(triangles: Triangles) -> tuple[np.ndarray, np.ndarray]:
    """Each edge once: (start, end) as the first triangle runs through it, and its two triangles."""
    owner = {(int(t[k]), int(t[(k + 1) % 3])): f for f, t in enumerate(triangles) for k in range(3)}
    ends = [(i, j) for i, j in owner if i < j]
    return np.array(ends), np.array([(owner[i, j], owner[j, i]) for i, j in ends])


def _outer_sum(weight: Array, u: Array, v: Array) -> Matrix3:
    return jnp.einsum("k,ki,kj->ij", weight, u, v)


def padding_moments(points: Float[Array, "n 3"], triangles: Triangles, radius: Scalar) -> Moments:
    """Moments of the layer within `radius` outside a convex polyhedron (Steiner's decomposition).

    The layer is a slab on each face, a wedge of a cylinder along each edge and a sector of a
    ball at each vertex. With n over the vertex's cone of normals, whose boundary arcs have
    angle theta, outward conormal nu (plus or minus the edge's direction) and
    int n dl = tan(theta/2) (n1 + n2), the divergence theorem on the sphere gives
    int n = -1/2 sum theta nu and 3 int n n^T = omega I - sum nu (int n dl)^T;
    the solid angle omega is the angle defect of the vertex.
    """
    r = radius
    dtype = points.dtype
    corner = points[triangles]
    a, b, c = corner[:, 0], corner[:, 1], corner[:, 2]
    cross = jnp.cross(b - a, c - a)
    double_area = jnp.linalg.norm(cross, axis=-1)
    normal, area, center = cross / double_area[:, None], double_area / 2, (a + b + c) / 3

    # Slabs: x = y + h n, 0 <= h <= r.
    volume = r * jnp.sum(area)
    first = r * (area @ center) + r**2 / 2 * (area @ normal)
    mixed = _outer_sum(area, center, normal)
    surface = jnp.einsum("f,fki,fkj->ij", area, corner, corner)
    surface = (surface + 9 * _outer_sum(area, center, center)) / 12
    second = r * surface + r**2 / 2 * (mixed + mixed.T)
    second = second + r**3 / 3 * _outer_sum(area, normal, normal)

    # Wedges: x = y + h u, u on the arc from n1 to n2.
    ends, sides = edges(triangles)
    start, end = points[ends[:, 0]], points[ends[:, 1]]
    span = end - start
    length = jnp.linalg.norm(span, axis=-1)
    along = span / length[:, None]
    n1, n2 = normal[sides[:, 0]], normal[sides[:, 1]]
    # The signed angle is smooth at 0, where a flat face was cut in two.
    theta = jnp.arctan2(jnp.sum(along * jnp.cross(n1, n2), axis=-1), jnp.sum(n1 * n2, axis=-1))
    arc = jnp.tan(theta / 2)[:, None] * (n1 + n2)
    bisector = (n1 + n2) / jnp.linalg.norm(n1 + n2, axis=-1, keepdims=True)
    across = jnp.cross(along, bisector)
    middle = (start + end) / 2
    wedge = length * theta * r**2 / 2
    volume = volume + jnp.sum(wedge)
    first = first + wedge @ middle + r**3 / 3 * (length @ arc)
    mixed = _outer_sum(length, middle, arc)
    second = (
        second
        + _outer_sum(wedge, middle, middle)
        + _outer_sum(wedge / 12, span, span)
        + r**3 / 3 * (mixed + mixed.T)
        + r**4 / 8 * _outer_sum(length * (theta + jnp.sin(theta)), bisector, bisector)
        + r**4 / 8 * _outer_sum(length * (theta - jnp.sin(theta)), across, across)
    )

    # Sectors: x = v + h n. Gather the arcs of each vertex from its edges.
    count = points.shape[0]
    nu = jnp.concatenate([along, -along])
    at = np.concatenate([ends[:, 0], ends[:, 1]])
    mean = (
        jnp.zeros((count, 3), dtype)
        .at[at]
        .add(-0.5 * jnp.concatenate([theta, theta])[:, None] * nu)
    )
    boundary = jnp.einsum("ki,kj->ij", nu, jnp.concatenate([arc, arc]))
    legs = [(b - a, c - a), (c - b, a - b), (a - c, b - c)]
    angles = jnp.stack(
        [
            jnp.arctan2(jnp.linalg.norm(jnp.cross(u, v), axis=-1), jnp.sum(u * v, axis=-1))
            for u, v in legs
        ],
        axis=1,
    )
    omega = jnp.full(count, 2 * jnp.pi, dtype).at[triangles.reshape(-1)].add(-angles.reshape(-1))
    volume = volume + r**3 / 3 * jnp.sum(omega)
    first = first + r**3 / 3 * (omega @ points) + r**4 / 4 * jnp.sum(mean, axis=0)
    mixed = points.T @ mean
    normals = (jnp.sum(omega) * jnp.eye(3, dtype=dtype) - boundary) / 3
    second = (
        second
        + r**3 / 3 * _outer_sum(omega, points, points)
        + r**4 / 4 * (mixed + mixed.T)
        + r**5 / 5 * normals
    )
    return Moments(volume, first, second)
