"""Moments of polytopes, padded ones too, by their planes, with derivatives that follow the faces.

The derivative of an integral over a solid is an integral over its surface, of the integrand times
the speed along the normal (Reynolds' transport theorem). Each face moves with its own plane, and
so it stays right where more than three meet in a vertex: no motion of that one point is.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.primitives._base import Scalar, Vector3
from silico_py.primitives._moments import (
    Edges,
    Faces,
    Moments,
    Normals,
    padding_moments,
    sector_rates,
    solid_moments,
)
from silico_py.primitives._polyhedron import Topology, vertices

# Barycentric nodes and weights, exact up to the third degree.
TRIANGLE = np.array([[1, 1, 1], [1.8, 0.6, 0.6], [0.6, 1.8, 0.6], [0.6, 0.6, 1.8]]) / 3
TRIANGLE_WEIGHTS = np.array([-27.0, 25.0, 25.0, 25.0]) / 48
EDGE_NODES, ARC_NODES = 2, 12  # of Gauss and Legendre: exact, and to 1e-12 for any angle


class Planes(NamedTuple):
    """Planes A x = b, or how they change."""

    A: Float[Array, "m 3"]
    b: Float[Array, " m"]


def about_middle(
    A: Float[Array, "m 3"], b: Float[Array, " m"], topology: Topology
) -> tuple[Vector3, Planes]:
    """A point inside, where moments are taken about, and the planes as seen from there.

    Nothing depends on how the point moves.
    """
    points = vertices(A, b, topology, jnp.zeros(3, b.dtype))
    middle = jax.lax.stop_gradient(jnp.mean(points, axis=0))
    return middle, Planes(A, b - A @ middle)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def polytope_moments(planes: Planes, topology: Topology) -> Moments:
    """Moments of {x : A x <= b} with this structure."""
    return solid_moments(_corners(topology, planes), np.array(topology.triangles))


@polytope_moments.defjvp
def _polytope_rates(topology: Topology, primals: tuple, tangents: tuple) -> tuple:
    (planes,), (change,) = primals, tangents
    faces = Faces.of(_corners(topology, planes), np.array(topology.triangles))
    rates = _on_faces(faces, topology, _Speed(planes, change))
    return polytope_moments(planes, topology), rates


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def padded_moments(planes: Planes, radius: Scalar, topology: Topology) -> Moments:
    """Moments of what lies within `radius` of {x : A x <= b}."""
    points, triangles = _corners(topology, planes), np.array(topology.triangles)
    core = solid_moments(points, triangles)
    return core.plus(padding_moments(points, triangles, radius))


@padded_moments.defjvp
def _padded_rates(topology: Topology, primals: tuple, tangents: tuple) -> tuple:
    (planes, radius), (change, growth) = primals, tangents
    points, motion = jax.jvp(partial(_corners, topology), (planes,), (change,))
    triangles = np.array(topology.triangles)
    faces = Faces.of(points, triangles)
    sides = Edges.of(points, triangles, faces)
    normals = Normals.of(points, triangles, faces, sides)
    speed = _Speed(planes, change, growth)
    rates = _on_faces(faces, topology, speed, radius)
    rates = rates.plus(_on_edges(faces, sides, topology, speed, radius))
    rates = rates.plus(sector_rates(points, motion, normals, sides, radius, growth))
    return padded_moments(planes, radius, topology), rates


class _Speed(NamedTuple):
    """Speed of the surface along its normal, by how planes and radius change."""

    planes: Planes
    change: Planes
    growth: Scalar | float = 0.0

    def at(self, points: Float[Array, "k n 3"], rows: np.ndarray) -> Float[Array, "k n"]:
        """The speed at n points of each of these planes."""
        lengths = jnp.linalg.norm(self.planes.A[rows], axis=-1)
        turning = jnp.einsum("kni,ki->kn", points, self.change.A[rows])
        return (self.change.b[rows][:, None] - turning) / lengths[:, None]


def _corners(topology: Topology, planes: Planes) -> Float[Array, "n 3"]:
    return vertices(planes.A, planes.b, topology, jnp.zeros(3, planes.b.dtype))


def _rates(points: Float[Array, "*n 3"], weights: Float[Array, "*n"]) -> Moments:
    """Integrals over a surface of 1, x and x x^T, the weights times the speed."""
    points, weights = points.reshape(-1, 3), weights.reshape(-1)
    second = jnp.einsum("k,ki,kj->ij", weights, points, points)
    return Moments(jnp.sum(weights), weights @ points, second)


def _on_faces(
    faces: Faces, topology: Topology, speed: _Speed, radius: Scalar | float = 0.0
) -> Moments:
    """Rates by the motion of the faces, or of their copies a radius further out."""
    dtype = faces.area.dtype
    inner = jnp.einsum("qk,fki->fqi", TRIANGLE.astype(dtype), faces.corners)
    speeds = speed.at(inner, np.array(topology.rows)) + speed.growth
    weights = faces.area[:, None] * TRIANGLE_WEIGHTS.astype(dtype) * speeds
    return _rates(inner + radius * faces.normal[:, None], weights)


def _on_edges(
    faces: Faces, sides: Edges, topology: Topology, speed: _Speed, radius: Scalar
) -> Moments:
    """Rates by the motion of the pieces of cylinders along the edges, but for edges that only cut a
    face in two."""
    rows = np.array(topology.rows)[sides.sides]
    real = rows[:, 0] != rows[:, 1]
    dtype = faces.area.dtype
    (place, share), (turn, part) = _gauss(EDGE_NODES, dtype), _gauss(ARC_NODES, dtype)
    length, angle = sides.length[real, None], sides.angle[real, None]
    offset = length[..., None] * (place - 0.5)[:, None] * sides.along[real, None]
    y = sides.middle[real, None] + offset
    # A normal on the arc is so much of both that bound it, and moves as much with their planes.
    one, other = (jnp.sin(t * angle) / jnp.sin(angle) for t in (1 - turn, turn))
    n1, n2 = (faces.normal[sides.sides[real, k], None] for k in range(2))
    s1, s2 = (speed.at(y, rows[real, k])[..., None] for k in range(2))
    normals = one[..., None] * n1 + other[..., None] * n2
    speeds = one[:, None] * s1 + other[:, None] * s2 + speed.growth
    weights = (length * angle * radius)[..., None] * np.outer(share, part) * speeds
    return _rates(y[:, :, None] + radius * normals[:, None], weights)


def _gauss(count: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (1 + nodes.astype(dtype)) / 2, weights.astype(dtype) / 2
