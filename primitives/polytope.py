"""Polytope A x <= b."""

from __future__ import annotations

from functools import partial

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
from silico_py.primitives._checks import concrete, float_dtype, parameter
from silico_py.primitives._polyhedron import (
    Topology,
    find_topology,
    furthest,
    planes_of_vertices,
    vertices,
)
from silico_py.primitives._pytree import assign, static
from silico_py.primitives._transport import about_middle, polytope_moments
from silico_py.solver.compilation import once
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import safe_norm

# An origin closer to a face than this share of the size is not a good centre to scale about.
REFERENCE_MARGIN = 1e-3


@primitive
class Polytope(ConvexShape):
    """The points with A x <= b: any convex solid with flat faces.

    Rows of any length are accepted and divided, with their b, by their norm: the set is the
    same. The frame stays where the rows put it. The shape is scaled by alpha about
    `reference`: the origin if it lies well inside, else the centroid, which is then a leaf
    like the others. Redundant rows are kept.

    Which faces meet at which vertex is found at construction and is static, and polytopes can
    be stacked for `vmap` when it is the same. Derivatives follow the faces; a vertex where more
    than three meet has none, and is given the least-squares one. Where A or b are known only as
    shapes (inside `jit`), `support` still works but the origin must lie inside and
    `mass_properties` is refused; `dataclasses.replace` on a polytope made outside keeps its
    structure and has neither limit.

    Args:
        A: (m, 3) outward normals
        b: (m,) offsets [m]
        reference: (3,) centre of the scaling [m]; chosen as above unless given
        topology: which faces meet at which vertex, where A and b are known only as shapes;
            where they are known it is found from them, whatever is given

    Raises:
        ValueError: on wrong shapes, NaN, rows of zeros, or a set that is empty, flat or
            unbounded, or a `reference` outside.

    Source: single-level contact simulation, appendix B, eq. 44.
    """

    A: Float[Array, "m 3"]
    b: Float[Array, " m"]
    # The value hides the property of the base class.
    reference: Float[Array, "3"] = None  # type: ignore[assignment]
    topology: Topology = static()

    def __init__(
        self,
        A: ArrayLike,
        b: ArrayLike,
        reference: ArrayLike | None = None,
        topology: Topology | None = None,
    ) -> None:
        dtype = float_dtype(A, b)
        normals = parameter("A", A, (None, 3), dtype)
        heights = parameter("b", b, (normals.shape[0],), dtype)
        center = None if reference is None else parameter("reference", reference, (3,), dtype)
        rows, offsets = concrete(A), concrete(b)
        length = None if rows is None else _lengths(rows)
        if not (topology is None or isinstance(topology, Topology)):
            raise ValueError(f"topology: expected that of a polytope, got {topology!r}")
        norm = jnp.linalg.norm(normals, axis=1)
        normals, heights = normals / norm[:, None], heights / norm
        origin = jnp.zeros(3, dtype)
        if length is None or offsets is None:
            topology = _checked(topology or Topology.unknown(len(normals)), len(normals))
            center = origin if center is None else center
        else:
            known = np.asarray(rows, float) / length[:, None], offsets / length
            topology, points = find_topology(*known, float(jnp.finfo(dtype).eps) ** 0.75)
            if center is None:
                inside = _holds_origin_well(known[1], points)
                center = origin if inside else _solid(normals, heights, topology).center_of_mass
            _check_inside(center, *known)
        assign(self, A=normals, b=heights, reference=center, topology=topology)

    @classmethod
    def from_vertices(cls, v: ArrayLike) -> Polytope:
        """The convex hull of points (k, 3) [m]; points inside it are ignored.

        Coplanar facets are merged. A and b are differentiable functions of the points: each
        face follows three of its corners, so a corner of a face with more than three may
        have a zero derivative on that face.

        Raises:
            ValueError: for fewer than 4 points, coplanar points, NaN, or points known only
                as a shape (inside `jit`).
        """
        dtype = float_dtype(v)
        points = parameter("v", v, (None, 3), dtype)
        known = concrete(v)
        if known is None:
            raise ValueError(
                "v: the hull needs concrete points; build the polytope outside jit, or give A and b"
            )
        tolerance = float(jnp.finfo(dtype).eps) ** 0.75
        planes = planes_of_vertices(points, np.asarray(known, float), tolerance)
        try:
            return cls(*planes)
        except ValueError as error:
            raise ValueError(
                "v: the hull is too flat, or too small for its distance from the origin"
            ) from error

    @property
    def cone(self) -> ProductCone:
        """One non-negative slack for each face."""
        return ProductCone.orthant(self.b.shape[-1])

    @property
    def vertices(self) -> Float[Array, "n 3"]:
        """Corner points, in the shape's frame [m]."""
        return vertices(self.A, self.b, self.topology, self.reference)

    @property
    def faces(self) -> Topology:
        """What is known of the faces.

        Raises:
            ValueError: where A and b were traced at construction.
        """
        if self.topology.triangles is None:
            raise ValueError(
                "Polytope: A and b were traced at construction, so its faces are unknown; "
                "build it outside jit and use dataclasses.replace inside"
            )
        return self.topology

    @property
    def triangles(self) -> np.ndarray:
        """(faces, 3) indices into `vertices` of a closed outward mesh."""
        return np.array(self.faces.triangles)

    @property
    def _room(self) -> Float[Array, " m"]:
        """Distance of each face from the reference, b - A r."""
        return self.b - jnp.sum(self.A * self.reference, axis=-1)

    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, "0"]) -> Float[Array, " m"]:
        """alpha (b - A r) - A (x - r), with r the reference."""
        return alpha * self._room - jnp.sum(self.A * (x - self.reference), axis=-1)

    def gauge(self, x: Vector3) -> Scalar:
        """The largest A_i (x - r) / (b_i - A_i r)."""
        return jnp.max(jnp.sum(self.A * (x - self.reference), axis=-1) / self._room)

    def support(self, direction: Vector3) -> Vector3:
        """Furthest vertex along `direction`."""
        if self.topology.triangles is not None:
            return furthest(self.A, self.b, self.topology, direction)
        points = self.vertices
        return points[jnp.argmax(points @ direction)]

    def mass_properties(self) -> MassProperties:
        """Exact, by signed tetrahedra over the faces; its derivatives follow each face."""
        return _solid(self.A, self.b, self.faces)

    def surface_mesh(self, resolution: int = 1) -> Mesh:
        """The faces cut into triangles; `resolution` has no effect."""
        return np.asarray(_corners(self), float), self.triangles

    @property
    def bounding_radius(self) -> Scalar:
        """Distance of the furthest vertex from the origin of the frame [m]."""
        return jnp.max(safe_norm(self.vertices))

    @property
    def characteristic_length(self) -> Scalar:
        """Distance of the furthest vertex from the reference [m]."""
        return jnp.max(safe_norm(self.vertices - self.reference[None, :]))


def _lengths(rows: np.ndarray) -> Float[np.ndarray, " m"]:
    """Norms of the rows, none of which may be zero."""
    lengths = np.linalg.norm(np.asarray(rows, float), axis=1)
    if np.any(lengths == 0):
        raise ValueError(f"A: row {int(np.argmin(lengths))} is zero; remove it")
    return lengths


def _checked(topology: Topology, rows: int) -> Topology:
    """The topology, refused where it is that of more planes."""
    if max(row for triple in topology.vertices for row in triple) >= rows:
        raise ValueError("topology: has more faces than A has rows")
    return topology


def _holds_origin_well(offsets: np.ndarray, vertices: np.ndarray) -> bool:
    """Whether no face is closer to the origin than `REFERENCE_MARGIN`."""
    size = np.max(np.linalg.norm(vertices - vertices.mean(axis=0), axis=1))
    return bool(np.min(offsets) >= REFERENCE_MARGIN * size)


def _check_inside(center: Vector3, rows: np.ndarray, offsets: np.ndarray) -> None:
    """Refuse a centre that is known not to lie strictly inside."""
    known = concrete(center)
    if known is not None and np.min(offsets - rows @ known) <= 0:
        raise ValueError("reference: must lie strictly inside A x <= b; move it inside")


@once
def _corners(shape: Polytope) -> Float[Array, "n 3"]:
    return shape.vertices


@partial(once, static_argnames="faces")
def _solid(A: Float[Array, "m 3"], b: Float[Array, " m"], faces: Topology) -> MassProperties:
    middle, planes = about_middle(A, b, faces)
    return polytope_moments(planes, faces).mass_properties(middle)
