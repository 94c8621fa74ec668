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


class Faces(NamedTuple):
    """The triangles of a closed mesh."""

    corners: Float[Array, "faces 3 3"]
    normal: Float[Array, "faces 3"]
    area: Float[Array, " faces"]

    @classmethod
    def of(cls, points: Float[Array, "n 3"], triangles: Triangles) -> Faces:
        """Outward normals of triangles that run counter-clockwise."""
        corners = points[triangles]
        a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
        cross = jnp.cross(b - a, c - a)
        double_area = jnp.linalg.norm(cross, axis=-1)
        return cls(corners, cross / double_area[:, None], double_area / 2)


class Edges(NamedTuple):
    """Each edge once, with the arc of unit normals between those of its two triangles.

    Attributes:
        ends: indices of its points, start and end.
        middle, along, length: of the edge; its direction is a unit vector.
        angle: of the arc; signed, so that it is smooth at 0, where a flat face was cut in two.
        sum: of the normals at the ends of the arc.
    """

    ends: Int[np.ndarray, "edges 2"]
    middle: Float[Array, "edges 3"]
    along: Float[Array, "edges 3"]
    length: Float[Array, " edges"]
    angle: Float[Array, " edges"]
    sum: Float[Array, "edges 3"]

    @classmethod
    def of(cls, points: Float[Array, "n 3"], triangles: Triangles, faces: Faces) -> Edges:
        """Of a closed mesh."""
        ends, sides = edges(triangles)
        start, end = points[ends[:, 0]], points[ends[:, 1]]
        n1, n2 = faces.normal[sides[:, 0]], faces.normal[sides[:, 1]]
        length = jnp.linalg.norm(end - start, axis=-1)
        along = (end - start) / length[:, None]
        sine = jnp.sum(along * jnp.cross(n1, n2), axis=-1)
        angle = jnp.arctan2(sine, jnp.sum(n1 * n2, axis=-1))
        return cls(ends, (start + end) / 2, along, length, angle, n1 + n2)

    @property
    def arc(self) -> Float[Array, "edges 3"]:
        """The integral of the normals along each arc."""
        return jnp.tan(self.angle / 2)[:, None] * self.sum


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
    ball at each vertex.
    """
    faces = Faces.of(points, triangles)
    sides = Edges.of(points, triangles, faces)
    layer = _slabs(faces, radius).plus(_wedges(sides, radius))
    return layer.plus(_sectors(points, triangles, faces, sides, radius))


def _slabs(faces: Faces, r: Scalar) -> Moments:
    """On the faces: x = y + h n with 0 <= h <= r."""
    corners, normal, area = faces
    center = jnp.sum(corners, axis=1) / 3
    mixed = _outer_sum(area, center, normal)
    surface = jnp.einsum("f,fki,fkj->ij", area, corners, corners)
    surface = (surface + 9 * _outer_sum(area, center, center)) / 12
    second = r * surface + r**2 / 2 * (mixed + mixed.T)
    second = second + r**3 / 3 * _outer_sum(area, normal, normal)
    first = r * (area @ center) + r**2 / 2 * (area @ normal)
    return Moments(r * jnp.sum(area), first, second)


def _wedges(sides: Edges, r: Scalar) -> Moments:
    """Along the edges: x = y + h u with u on the arc between two normals."""
    _, middle, along, length, angle, normals = sides
    bisector = normals / jnp.linalg.norm(normals, axis=-1, keepdims=True)
    across, arc = jnp.cross(along, bisector), sides.arc
    wedge = length * angle * r**2 / 2
    mixed = _outer_sum(length, middle, arc)
    second = (
        _outer_sum(wedge, middle, middle)
        + _outer_sum(wedge * length**2 / 12, along, along)
        + r**3 / 3 * (mixed + mixed.T)
        + r**4 / 8 * _outer_sum(length * (angle + jnp.sin(angle)), bisector, bisector)
        + r**4 / 8 * _outer_sum(length * (angle - jnp.sin(angle)), across, across)
    )
    return Moments(jnp.sum(wedge), wedge @ middle + r**3 / 3 * (length @ arc), second)


def _sectors(
    points: Float[Array, "n 3"], triangles: Triangles, faces: Faces, sides: Edges, r: Scalar
) -> Moments:
    """At the vertices: x = v + h n.

    With n over the vertex's cone of normals, whose boundary arcs have angle theta, outward
    conormal nu (plus or minus the edge's direction) and int n dl = tan(theta/2) (n1 + n2), the
    divergence theorem on the sphere gives int n = -1/2 sum theta nu and
    3 int n n^T = omega I - sum nu (int n dl)^T, with omega the solid angle.
    """
    omega = _solid_angles(len(points), triangles, faces)
    conormal = jnp.concatenate([sides.along, -sides.along])
    turn = jnp.concatenate([sides.angle, sides.angle])[:, None] * conormal
    at = np.concatenate([sides.ends[:, 0], sides.ends[:, 1]])
    mean = jnp.zeros_like(points).at[at].add(-0.5 * turn)
    boundary = jnp.einsum("ki,kj->ij", conormal, jnp.concatenate([sides.arc, sides.arc]))
    normals = (jnp.sum(omega) * jnp.eye(3, dtype=points.dtype) - boundary) / 3
    mixed = points.T @ mean
    second = (
        r**3 / 3 * _outer_sum(omega, points, points)
        + r**4 / 4 * (mixed + mixed.T)
        + r**5 / 5 * normals
    )
    first = r**3 / 3 * (omega @ points) + r**4 / 4 * jnp.sum(mean, axis=0)
    return Moments(r**3 / 3 * jnp.sum(omega), first, second)


def _solid_angles(count: int, triangles: Triangles, faces: Faces) -> Float[Array, " n"]:
    """Of the normals at each vertex: what the angles of its triangles lack of a full turn."""
    a, b, c = (faces.corners[:, k] for k in range(3))
    legs = [(b - a, c - a), (c - b, a - b), (a - c, b - c)]
    angles = [
        jnp.arctan2(jnp.linalg.norm(jnp.cross(u, v), axis=-1), jnp.sum(u * v, axis=-1))
        for u, v in legs
    ]
    full = jnp.full(count, 2 * jnp.pi, faces.area.dtype)
    return full.at[triangles.reshape(-1)].add(-jnp.stack(angles, axis=1).reshape(-1))
