"""Volume and first and second moments of solids bounded by triangles, exact and differentiable."""

from __future__ import annotations

from typing import NamedTuple

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
        sides: indices of its two triangles.
        middle, along, length: of the edge; its direction is a unit vector.
        angle: of the arc; signed, so that it is smooth at 0, where a flat face was cut in two.
        sum: of the normals at the ends of the arc.
    """

    ends: Int[np.ndarray, "edges 2"]
    sides: Int[np.ndarray, "edges 2"]
    middle: Float[Array, "edges 3"]
    along: Float[Array, "edges 3"]
    length: Float[Array, " edges"]
    angle: Float[Array, " edges"]
    sum: Float[Array, "edges 3"]

    @classmethod
    def of(cls, points: Float[Array, "n 3"], triangles: Triangles, faces: Faces) -> Edges:
        """Edges of a closed mesh."""
        ends, sides = edges(triangles)
        start, end = points[ends[:, 0]], points[ends[:, 1]]
        n1, n2 = faces.normal[sides[:, 0]], faces.normal[sides[:, 1]]
        length = jnp.linalg.norm(end - start, axis=-1)
        along = (end - start) / length[:, None]
        sine = jnp.sum(along * jnp.cross(n1, n2), axis=-1)
        angle = jnp.arctan2(sine, jnp.sum(n1 * n2, axis=-1))
        return cls(ends, sides, (start + end) / 2, along, length, angle, n1 + n2)

    @property
    def arc(self) -> Float[Array, "edges 3"]:
        """The integral of the normals n along each arc."""
        return jnp.tan(self.angle / 2)[:, None] * self.sum

    @property
    def arc_second(self) -> Float[Array, "edges 3 3"]:
        """The integral of n n^T along each arc."""
        bisector = self.sum / jnp.linalg.norm(self.sum, axis=-1, keepdims=True)
        across, sine = jnp.cross(self.along, bisector), jnp.sin(self.angle)
        return jnp.einsum("k,ki,kj->kij", (self.angle + sine) / 2, bisector, bisector) + jnp.einsum(
            "k,ki,kj->kij", (self.angle - sine) / 2, across, across
        )


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
    """Integrals over the slabs on the faces: x = y + h n with 0 <= h <= r."""
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
    middle, along, length, arc = sides.middle, sides.along, sides.length, sides.arc
    wedge = length * sides.angle * r**2 / 2
    mixed = _outer_sum(length, middle, arc)
    second = (
        _outer_sum(wedge, middle, middle)
        + _outer_sum(wedge * length**2 / 12, along, along)
        + r**3 / 3 * (mixed + mixed.T)
        + r**4 / 4 * jnp.einsum("k,kij->ij", length, sides.arc_second)
    )
    return Moments(jnp.sum(wedge), wedge @ middle + r**3 / 3 * (length @ arc), second)


class Normals(NamedTuple):
    """Integrals of 1, n and n n^T over the cone of unit normals n at each vertex.

    On the sphere, with the arcs of angle theta that bound the cone, their outward conormal nu (plus
    or minus the edge's direction) and int n dl = tan(theta/2) (n1 + n2), the divergence theorem
    gives int n = -1/2 sum theta nu and 3 int n n^T = omega I - sum nu (int n dl)^T, with omega the
    solid angle.
    """

    solid_angle: Float[Array, " n"]
    first: Float[Array, "n 3"]
    second: Float[Array, "n 3 3"]

    @classmethod
    def of(
        cls, points: Float[Array, "n 3"], triangles: Triangles, faces: Faces, sides: Edges
    ) -> Normals:
        """Normals at the vertices of a closed mesh of a convex polyhedron."""
        count = len(points)
        omega = _solid_angles(count, triangles, faces)
        turn = sides.angle[:, None] * sides.along
        arcs = jnp.einsum("ki,kj->kij", sides.along, sides.arc)
        whole = omega[:, None, None] * jnp.eye(3, dtype=points.dtype)
        boundary = _around(count, sides, arcs, arcs)
        return cls(omega, -_around(count, sides, turn, turn) / 2, (whole - boundary) / 3)


def _around(
    count: int,
    sides: Edges,
    at_start: Float[Array, "edges *shape"],
    at_end: Float[Array, "edges *shape"],
) -> Float[Array, "n *shape"]:
    """Sums at the vertices of what their edges bring; those that end there bring minus it."""
    zero = jnp.zeros((count, *at_start.shape[1:]), at_start.dtype)
    return zero.at[sides.ends[:, 0]].add(at_start).at[sides.ends[:, 1]].add(-at_end)


def _sectors(
    points: Float[Array, "n 3"], triangles: Triangles, faces: Faces, sides: Edges, r: Scalar
) -> Moments:
    """Integrals over the sectors at the vertices: x = v + h n."""
    omega, mean, normals = Normals.of(points, triangles, faces, sides)
    mixed = points.T @ mean
    second = (
        r**3 / 3 * _outer_sum(omega, points, points)
        + r**4 / 4 * (mixed + mixed.T)
        + r**5 / 5 * jnp.sum(normals, axis=0)
    )
    first = r**3 / 3 * (omega @ points) + r**4 / 4 * jnp.sum(mean, axis=0)
    return Moments(r**3 / 3 * jnp.sum(omega), first, second)


def sector_rates(
    points: Float[Array, "n 3"],
    motion: Float[Array, "n 3"],
    normals: Normals,
    sides: Edges,
    r: Scalar,
    growth: Scalar,
) -> Moments:
    """Integrals of n . motion + growth, the speed of x = v + r n, times 1, x and x x^T over these.

    Again by the divergence theorem,
    4 int n n^T (n . w) = w (int n)^T + (int n) w^T - sum (nu . w) int n n^T dl.
    """
    omega, first, second = normals
    crossing = (jnp.sum(sides.along * motion[sides.ends[:, k]], axis=-1) for k in range(2))
    arcs = (across[:, None, None] * sides.arc_second for across in crossing)
    mixed = jnp.einsum("ni,nj->nij", motion, first)
    third = (mixed + mixed.swapaxes(1, 2) - _around(len(points), sides, *arcs)) / 4
    speed = jnp.sum(first * motion, axis=-1) + growth * omega
    turned = jnp.einsum("nij,nj->ni", second, motion) + growth * first
    spread = points.T @ turned
    rates = (
        _outer_sum(speed, points, points)
        + r * (spread + spread.T)
        + r**2 * jnp.sum(third + growth * second, axis=0)
    )
    return Moments(
        r**2 * jnp.sum(speed),
        r**2 * (speed @ points + r * jnp.sum(turned, axis=0)),
        r**2 * rates,
    )


def _solid_angles(count: int, triangles: Triangles, faces: Faces) -> Float[Array, " n"]:
    """Solid angles of the normals at each vertex: what the angles of its triangles lack of a full
    turn."""
    a, b, c = (faces.corners[:, k] for k in range(3))
    legs = [(b - a, c - a), (c - b, a - b), (a - c, b - c)]
    angles = [
        jnp.arctan2(jnp.linalg.norm(jnp.cross(u, v), axis=-1), jnp.sum(u * v, axis=-1))
        for u, v in legs
    ]
    full = jnp.full(count, 2 * jnp.pi, faces.area.dtype)
    return full.at[triangles.reshape(-1)].add(-jnp.stack(angles, axis=1).reshape(-1))
