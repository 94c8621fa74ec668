"""Convex pieces of meshes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from silico_py.models.optional import coacd
from silico_py.primitives import Polytope, assign
from silico_py.primitives._polyhedron import find_topology, planes_of_vertices
from silico_py.validation import count

# Mesh files and MuJoCo keep vertices in single precision: flat faces are flat to about 1e-7.
FLATNESS = 3e-7
MAX_VERTICES = 64
# What a coarser hull may leave out without a word, in sizes of the mesh.
NEGLIGIBLE = 1e-6


class Hull(NamedTuple):
    """A convex polytope around points.

    Attributes:
        polytope: in the frame of the points.
        corners: number of vertices of the exact hull.
        missed: how far the furthest point sticks out of `polytope` [m].
    """

    polytope: Polytope
    corners: int
    missed: float

    @property
    def remark(self) -> str:
        """What the polytope lacks, empty if nothing."""
        if not self.missed:
            return ""
        return f"hull of {self.corners} vertices cut, up to {self.missed:.2g} m inside it"


def hull(points: np.ndarray, max_vertices: int | None) -> Hull:
    """Convex hull of points (k, 3) [m], exact or of at most `max_vertices` of them.

    Raises:
        ValueError: if the points span no volume.
    """
    points = np.asarray(points, float)
    try:
        exact = points[ConvexHull(points).vertices]
        chosen = exact
        if max_vertices is not None and len(exact) > max_vertices:
            # Qhull adds the furthest point first, so what it leaves out is near the hull.
            stop = f"Qt Q9 TA{max_vertices - 4}"
            chosen = exact[ConvexHull(exact, qhull_options=stop).vertices]
    except (QhullError, ValueError) as error:
        raise ValueError(f"{len(points)} points span no volume, so they have no hull") from error
    rows, offsets = planes_of_vertices(jnp.asarray(chosen, float), chosen, FLATNESS)
    outside = np.max(exact @ np.asarray(rows).T - np.asarray(offsets))
    missed = max(float(outside), 0.0)
    size = np.max(np.ptp(exact, axis=0))
    polytope = _with_corners(Polytope(rows, offsets), len(chosen))
    return Hull(polytope, len(exact), missed if missed > NEGLIGIBLE * size else 0.0)


def _with_corners(polytope: Polytope, count: int) -> Polytope:
    """The polytope with no more than so many vertices: where four faces or more meet in one that is
    rounded, each three have their own."""
    if len(polytope.vertices) > count:
        planes = np.asarray(polytope.A), np.asarray(polytope.b)
        assign(polytope, topology=find_topology(*planes, FLATNESS)[0])
    return polytope


def check_limit(max_hull_vertices: int | None) -> None:
    """Refuse a number of vertices that makes no solid."""
    if max_hull_vertices is not None:
        count("max_hull_vertices", max_hull_vertices, 4)


def pieces(
    vertices: np.ndarray, faces: np.ndarray, decompose: bool, max_vertices: int | None
) -> list[Hull]:
    """The hull of a mesh, or those of its approximate convex decomposition (coacd).

    Raises:
        ValueError: if the mesh spans no volume.
        ImportError: to decompose without coacd.
    """
    if not decompose:
        return [hull(vertices, max_vertices)]
    coacd.set_log_level("error")
    parts = coacd.run_coacd(coacd.Mesh(np.asarray(vertices, float), np.asarray(faces, int)))
    return [hull(points, max_vertices) for points, _ in parts]
