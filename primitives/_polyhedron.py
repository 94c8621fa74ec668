"""The combinatorics of {x : A x <= b}, found once on concrete numbers, and its geometry in jax.

Which faces meet at which vertex is structure; where the vertices lie is a smooth function of
(A, b) as long as that structure holds. So the first is static and computed by Qhull, the
second is jnp and differentiable. Where more than three faces meet, a vertex splits when they move;
its derivative then follows all of them as well as one point can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, QhullError

from silico_py.primitives._base import Vector3

ROUNDINGS = 4.0  # of the largest coordinate, by which points are uncertain
FLAT = 1e-9  # radius of the largest ball inside, over the largest offset, of what has no volume
UNBOUNDED = 1e-9  # distance of a facet of the polar from the origin, over its size, of such a set
PARALLEL = 1e-6  # determinant of three unit rows below which their planes meet in no vertex
WELL_CONDITIONED = 0.5  # share of the largest determinant that a triple needs to stand for a vertex


@dataclass(frozen=True)
class Topology:
    """Static structure of a polytope.

    Attributes:
        vertices: for each vertex, three rows of A whose planes meet there
        triangles: vertex indices of a closed outward mesh (faces are cut into fans), or None
            where (A, b) were traced at construction and `vertices` lists every triple of rows
        rows: of A, the face of each triangle
        meeting: for each vertex, all rows whose faces meet there, in their order around it
    """

    vertices: tuple[tuple[int, int, int], ...]
    triangles: tuple[tuple[int, int, int], ...] | None
    rows: tuple[int, ...] = ()
    meeting: tuple[tuple[int, ...], ...] = ()

    @property
    def simple(self) -> bool:
        """Whether three faces meet at each vertex."""
        return all(len(rows) == 3 for rows in self.meeting)

    @property
    def fans(self) -> Int[np.ndarray, "n triples 3"]:
        """For each vertex triples of rows whose normals span those of all that meet there."""
        longest = max(len(rows) for rows in self.meeting)
        padded = (rows + rows[-1:] * (longest - len(rows)) for rows in self.meeting)
        return np.array([[(r[0], *pair) for pair in pairwise(r[1:])] for r in padded])

    @classmethod
    def unknown(cls, rows: int) -> Topology:
        """Every triple of rows is a candidate."""
        return cls(tuple(combinations(range(rows), 3)), None)


def chebyshev_center(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """Centre and radius of the largest ball inside {x : A x <= b}, for unit rows.

    Raises:
        ValueError: if the set is empty, flat or unbounded.
    """
    objective = np.array([0.0, 0.0, 0.0, -1.0])
    rows = np.concatenate([A, np.ones((len(A), 1))], axis=1)
    found = linprog(objective, A_ub=rows, b_ub=b, bounds=[(None, None)] * 3 + [(0, None)])
    if found.status == 2:
        raise ValueError("A, b: the polytope A x <= b is empty; check the signs of the rows")
    if found.status != 0:
        raise ValueError("A, b: the polytope A x <= b is unbounded; add rows that close it")
    radius = found.x[3]
    if radius <= FLAT * max(np.max(np.abs(b)), 1e-300):
        raise ValueError("A, b: the polytope A x <= b has no volume; move its faces apart")
    return found.x[:3], radius


def find_topology(A: np.ndarray, b: np.ndarray, tolerance: float) -> tuple[Topology, np.ndarray]:
    """Structure and vertices of {x : A x <= b} for unit rows; `tolerance` is relative.

    Raises:
        ValueError: if the set is empty, flat or unbounded.
    """
    center, _ = chebyshev_center(A, b)
    # From here on as seen from the centre: far from the origin only b is rounded.
    room = b - A @ center
    corners = _corners(A, room)
    size = np.max(np.linalg.norm(corners, axis=1))
    near = 10 * tolerance * size + 1e3 * np.finfo(float).eps * np.max(np.abs(b))
    points: list[np.ndarray] = []
    for point in corners:
        if not any(np.linalg.norm(point - other) <= near for other in points):
            points.append(point)
    touches = np.abs(points @ A.T - room) <= near
    touches[:, _redundant(touches)] = False
    meeting = [_around(A, np.flatnonzero(rows)) for rows in touches]
    found = sorted(Corner(_triple(A, rows), rows, k) for k, rows in enumerate(meeting))
    order = [corner.place for corner in found]
    mesh = _triangles(A, np.array(points)[order], touches[order])
    topology = Topology(
        vertices=tuple(corner.triple for corner in found),
        triangles=tuple(triangle for _, triangle in mesh),
        rows=tuple(row for row, _ in mesh),
        meeting=tuple(corner.meeting for corner in found),
    )
    return topology, np.array(points)[order] + center


class Corner(NamedTuple):
    """A vertex: three rows that define it, all that meet there, where it is found."""

    triple: tuple[int, int, int]
    meeting: tuple[int, ...]
    place: int


def _redundant(touches: Bool[np.ndarray, "n m"]) -> list[int]:
    """Rows without a face of their own: they touch fewer than three vertices, or copy another."""
    redundant, seen = [], set()
    for row, ring in enumerate(touches.T):
        if np.sum(ring) < 3 or ring.tobytes() in seen:
            redundant.append(row)
        seen.add(ring.tobytes())
    return redundant


def _corners(A: np.ndarray, room: np.ndarray) -> Float[np.ndarray, "n 3"]:
    """The vertices of {x : A x <= room}, some of them more than once.

    Each is a facet of the polar of the set, the hull of the rows A_i / room_i.
    """
    unbounded = ValueError("A, b: the polytope A x <= b is unbounded; add rows that close it")
    try:
        polar = ConvexHull(A / room[:, None])
    except QhullError as error:
        raise unbounded from error
    # Offsets are minus the distance of the origin from each facet of the polar.
    if np.max(polar.equations[:, 3]) > -UNBOUNDED * np.max(np.linalg.norm(polar.points, axis=1)):
        raise unbounded
    return polar.equations[:, :3] / -polar.equations[:, 3:]


def _around(A: np.ndarray, rows: np.ndarray) -> tuple[int, ...]:
    """Rows whose faces meet in a vertex, in their order around it."""
    outward = A[rows].mean(axis=0)
    angle = _angles(outward / np.linalg.norm(outward), A[rows])
    return tuple(rows[np.argsort(angle)].tolist())


def _angles(axis: np.ndarray, vectors: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, " n"]:
    """Angles of vectors about an axis of length 1, counter-clockwise seen against it."""
    first = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    return np.arctan2(vectors @ np.cross(axis, first), vectors @ first)


def _triple(A: np.ndarray, meeting: tuple[int, ...]) -> tuple[int, int, int]:
    """The first well-conditioned triple of rows: stable under small changes of (A, b)."""
    choices = list(combinations(meeting, 3))
    volumes = np.array([abs(np.linalg.det(A[list(rows)])) for rows in choices])
    return choices[int(np.argmax(volumes >= WELL_CONDITIONED * volumes.max()))]


def _triangles(
    A: np.ndarray, points: np.ndarray, touches: Bool[np.ndarray, "n m"]
) -> list[tuple[int, tuple[int, int, int]]]:
    """The rows of the faces, each cut into a fan of triangles, counter-clockwise from outside."""
    triangles = []
    for row in np.flatnonzero(touches.any(axis=0)).tolist():
        ring = np.flatnonzero(touches[:, row])
        angle = _angles(A[row], points[ring] - points[ring].mean(axis=0))
        ring = ring[np.argsort(angle)]
        start, *others = np.roll(ring, -np.argmin(ring)).tolist()
        triangles += [(row, (start, one, two)) for one, two in pairwise(others)]
    return triangles


def vertices(
    A: Float[Array, "m 3"], b: Float[Array, " m"], topology: Topology, inside: Vector3
) -> Float[Array, "n 3"]:
    """Vertices by Cramer's rule on each triple of planes.

    Where the structure is unknown, triples that do not meet in a vertex give `inside`, which
    is never the furthest point of anything.
    """
    if topology.triangles is not None:
        return _meeting_points(A, b, topology)
    moments, volume = _cramer(A, b[np.array(topology.vertices)], np.array(topology.vertices))
    regular = jnp.abs(volume) > PARALLEL
    points = moments / jnp.where(regular, volume, 1)
    tolerance = 100 * jnp.finfo(A.dtype).eps * jnp.max(jnp.abs(b))
    feasible = jnp.all(points @ A.T <= b[None, :] + tolerance, axis=-1, keepdims=True)
    return jnp.where(regular & feasible, points, inside[None, :])


def _cramer(
    A: Float[Array, "m 3"], b: Float[Array, "n 3"], rows: Int[Array | np.ndarray, "n 3"]
) -> tuple[Float[Array, "n 3"], Float[Array, "n 1"]]:
    """Numerators and denominator of where each triple of planes meets, with these offsets."""
    a1, a2, a3 = (A[rows[:, k]] for k in range(3))
    c23, c31, c12 = jnp.cross(a2, a3), jnp.cross(a3, a1), jnp.cross(a1, a2)
    volume = jnp.sum(a1 * c23, axis=-1, keepdims=True)
    return b[:, :1] * c23 + b[:, 1:2] * c31 + b[:, 2:] * c12, volume


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _meeting_points(
    A: Float[Array, "m 3"], b: Float[Array, " m"], topology: Topology
) -> Float[Array, "n 3"]:
    """Points where the planes of each triple meet."""
    rows = np.array(topology.vertices)
    points, volume = _cramer(A, b[rows], rows)
    return points / volume


@_meeting_points.defjvp
def _moved(topology: Topology, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Each vertex follows its triple, then all that meet there in the sense of least squares."""
    (A, b), (dA, db) = primals, tangents
    points, rows = _meeting_points(A, b, topology), np.array(topology.vertices)
    speed = db - points @ dA.T
    moments, volume = _cramer(A, speed[np.arange(len(rows))[:, None], rows], rows)
    motion = moments / volume
    if topology.simple:
        return points, motion
    meets = np.zeros((len(points), len(A)), A.dtype)
    for k, meeting in enumerate(topology.meeting):
        meets[k, list(meeting)] = 1
    missed = meets * (speed - motion @ A.T)
    normal = jnp.einsum("nm,mi,mj->nij", meets, A, A)
    return points, motion + jnp.linalg.solve(normal, (missed @ A)[..., None])[..., 0]


def furthest(
    A: Float[Array, "m 3"], b: Float[Array, " m"], topology: Topology, direction: Vector3
) -> Vector3:
    """The vertex that reaches furthest along a direction.

    Of the faces that meet there it follows three between whose normals the direction lies: as those
    move, so does the plane across the direction that supports the solid.
    """
    points = _meeting_points(A, b, topology)
    best = jnp.argmax(points @ direction)
    if topology.simple:
        return points[best]
    rows = jnp.asarray(topology.fans)[best]
    a1, a2, a3 = (A[rows[:, k]] for k in range(3))
    shares = jnp.stack([jnp.cross(a2, a3), jnp.cross(a3, a1), jnp.cross(a1, a2)])
    volume = jnp.sum(a1 * shares[0], axis=-1)
    real = volume != 0  # not only there to make fans of one length
    least = jnp.min(shares @ direction / jnp.where(real, volume, 1), axis=0)
    least = jnp.where(real, least, -jnp.inf)
    chosen = rows[jnp.argmax(least)][None]
    moments, volume = _cramer(A, b[chosen], chosen)
    point = (moments / volume)[0]
    return jax.lax.stop_gradient(points[best] - point) + point


def planes_of_vertices(
    points: Float[Array, "k 3"], known: np.ndarray, tolerance: float
) -> tuple[Float[Array, "m 3"], Float[Array, " m"]]:
    """Unit rows and offsets of the convex hull of `points`, one row for each flat face.

    Each row is differentiated through three vertices of its face (its largest triangle).

    Raises:
        ValueError: if there are fewer than four points or all lie in one plane.
    """
    if len(known) < 4:
        raise ValueError(f"v: need at least 4 points, got {len(known)}")
    rounding = ROUNDINGS * float(jnp.finfo(points.dtype).eps) * np.max(np.abs(known))
    known = known - known.mean(axis=0)
    size = np.max(np.linalg.norm(known, axis=1))
    spread = np.linalg.svd(known, compute_uv=False)
    if spread[2] <= 10 * max(tolerance * spread[0], rounding):
        raise ValueError(
            "v: the points lie in one plane, or too close together for their distance from the "
            "origin; give a solid"
        )
    tolerance = max(tolerance, rounding / size)
    corners = _largest_triangles(known, size, 100 * tolerance)
    first, second, third = (points[corners[:, k]] for k in range(3))
    across = jnp.cross(second - first, third - first)
    rows = across / jnp.linalg.norm(across, axis=-1, keepdims=True)
    return rows, jnp.sum(rows * first, axis=-1)


def _largest_triangles(
    points: np.ndarray, size: float, tolerance: float
) -> Int[np.ndarray, "faces 3"]:
    """A triangle of each flat face of the hull of points of this size, counter-clockwise from
    outside; faces whose normals, or offsets in sizes, differ by no more than a tolerance are
    one."""
    hull = ConvexHull(points)
    equations = hull.equations / np.array([1.0, 1.0, 1.0, size])
    chosen: list[tuple[np.ndarray, float, np.ndarray]] = []
    for equation, corner in zip(equations, hull.simplices, strict=True):
        a, b, c = points[corner]
        normal = np.cross(b - a, c - a)
        area = float(np.linalg.norm(normal))
        if normal @ equation[:3] < 0:
            corner = corner[[0, 2, 1]]
        for k, (other, best, _) in enumerate(chosen):
            if np.max(np.abs(other - equation)) <= tolerance:
                if area > best:
                    chosen[k] = (other, area, corner)
                break
        else:
            chosen.append((equation, area, corner))
    return np.array([corner for _, _, corner in chosen])
