"""The combinatorics of {x : A x <= b}, found once on concrete numbers, and its geometry in jax.

Which faces meet at which vertex is structure; where the vertices lie is a smooth function of
(A, b) as long as that structure holds. So the first is static and computed by Qhull, the
second is jnp and differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, QhullError

from silico_py.primitives._base import Vector3

ROUNDINGS = 4.0  # of the largest coordinate, by which points are uncertain


@dataclass(frozen=True)
class Topology:
    """Static structure of a polytope.

    Attributes:
        vertices: for each vertex, three rows of A whose planes meet there
        triangles: vertex indices of a closed outward mesh (faces are cut into fans), or None
            where (A, b) were traced at construction and `vertices` lists every triple of rows
    """

    vertices: tuple[tuple[int, int, int], ...]
    triangles: tuple[tuple[int, int, int], ...] | None

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
    if radius <= 1e-9 * max(np.max(np.abs(b)), 1e-300):
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
    found: list[Corner] = []
    for point in corners:
        if not any(np.linalg.norm(point - other.point) <= near for other in found):
            touching = np.flatnonzero(np.abs(A @ point - room) <= near)
            found.append(Corner(_triple(A, touching.tolist()), point, set(touching.tolist())))
    found.sort(key=lambda corner: corner.triple)
    triples = tuple(corner.triple for corner in found)
    points = np.array([corner.point for corner in found])
    return Topology(triples, _triangles(A, points, found)), points + center


class Corner(NamedTuple):
    """A vertex: three rows that define it, where it is, and all rows that touch it."""

    triple: tuple[int, int, int]
    point: np.ndarray
    touching: set[int]


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
    if np.max(polar.equations[:, 3]) > -1e-9 * np.max(np.linalg.norm(polar.points, axis=1)):
        raise unbounded
    return polar.equations[:, :3] / -polar.equations[:, 3:]


def _triple(A: np.ndarray, touching: list[int]) -> tuple[int, int, int]:
    """The first well-conditioned triple of rows: stable under small changes of (A, b)."""
    choices = list(combinations(touching, 3))
    volumes = np.array([abs(np.linalg.det(A[list(rows)])) for rows in choices])
    return choices[int(np.argmax(volumes >= 0.5 * volumes.max()))]


def _triangles(
    A: np.ndarray, points: np.ndarray, corners: Sequence[Corner]
) -> tuple[tuple[int, int, int], ...]:
    """Each face as a fan of triangles that run counter-clockwise, seen from outside."""
    triangles, seen = [], set()
    for row in range(len(A)):
        ring = [k for k in range(len(points)) if row in corners[k].touching]
        if len(ring) < 3 or frozenset(ring) in seen:  # redundant, or a copy of another row
            continue
        seen.add(frozenset(ring))
        first = np.cross(A[row], np.eye(3)[np.argmin(np.abs(A[row]))])
        second = np.cross(A[row], first)
        offset = points[ring] - points[ring].mean(axis=0)
        angle = np.arctan2(offset @ second, offset @ first)
        ring = [ring[k] for k in np.argsort(angle)]
        start = ring.index(min(ring))
        ring = ring[start:] + ring[:start]
        triangles += [(ring[0], ring[k], ring[k + 1]) for k in range(1, len(ring) - 1)]
    return tuple(triangles)


def vertices(
    A: Float[Array, "m 3"], b: Float[Array, " m"], topology: Topology, inside: Vector3
) -> Float[Array, "n 3"]:
    """Vertices by Cramer's rule on each triple of planes.

    Where the structure is unknown, triples that do not meet in a vertex give `inside`, which
    is never the furthest point of anything.
    """
    rows = np.array(topology.vertices)
    a1, a2, a3 = (A[rows[:, k]] for k in range(3))
    b1, b2, b3 = (b[rows[:, k]][:, None] for k in range(3))
    c23, c31, c12 = jnp.cross(a2, a3), jnp.cross(a3, a1), jnp.cross(a1, a2)
    volume = jnp.sum(a1 * c23, axis=-1, keepdims=True)
    if topology.triangles is not None:
        return (b1 * c23 + b2 * c31 + b3 * c12) / volume
    regular = jnp.abs(volume) > 1e-6
    points = (b1 * c23 + b2 * c31 + b3 * c12) / jnp.where(regular, volume, 1)
    tolerance = 100 * jnp.finfo(A.dtype).eps * jnp.max(jnp.abs(b))
    feasible = jnp.all(points @ A.T <= b[None, :] + tolerance, axis=-1, keepdims=True)
    return jnp.where(regular & feasible, points, inside[None, :])


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
    """Of each flat face of the hull of points of this size, counter-clockwise from outside; faces
    whose normals, or offsets in sizes, differ by no more than a tolerance are one."""
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
