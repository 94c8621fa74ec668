"""Whether two shapes overlap, asked of coal (the collision library of Pinocchio and HPP).

Coal measures distances by GJK and EPA: another definition, another algorithm, other code. Only
the sign can agree with alpha - 1. Shapes coal has natively are exact; of a Minkowski sum it
sees two meshes, one inside it and one around it, and where those disagree the sign is 0.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull

from silico_py import primitives
from silico_py.reference.certificate import Placed, Pose, check_pair, pair_length
from silico_py.reference.geometry import center, corners, reach

try:
    import coal
except ImportError:  # it is large, and only `separation_sign` needs it
    coal = None

UNDECIDED = 1e-6  # distances below this share of the size have no sign
# Of the meshes of Minkowski sums. On a finer one a vertex of a flat face has more neighbours than
# coal can count, 255.
RESOLUTION = 16

Geometry = tuple[Any, np.ndarray]  # of coal, and the place of its origin in the shape's frame


def separation_sign(
    shape_a: primitives.ConvexShape,
    pose_a: Pose,
    shape_b: primitives.ConvexShape,
    pose_b: Pose,
) -> int:
    """The sign of the distance between two shapes: 1 apart, -1 overlapping, 0 undecided.

    Args:
        shape_a, shape_b: convex primitives; at most one half-space.
        pose_a, pose_b: (position (3,) [m], orientation (4,) unit quaternion wxyz).

    Raises:
        ValueError: for two half-spaces, and shapes that are not convex primitives.
        ImportError: without the extra `separation`.
    """
    if coal is None:
        raise ImportError("separation_sign asks coal: pip install 'silico-py[separation]'")
    check_pair(shape_a, shape_b)
    a, b = Placed.at(shape_a, pose_a), Placed.at(shape_b, pose_b)
    undecided = UNDECIDED * pair_length(a, b)
    if _distance(a, b, outer=True) > undecided:
        return 1
    return -1 if _distance(a, b, outer=False) < -undecided else 0


def _distance(a: Placed, b: Placed, outer: bool) -> float:
    """Signed distance of what coal has instead of the shapes [m]."""
    objects = []
    for side in (a, b):
        geometry, origin = coal_geometry(side.shape, outer)
        place = coal.Transform3s(side.turn, side.position + side.turn @ origin)
        objects += [geometry, place]
    request = coal.DistanceRequest()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-9
    return coal.distance(*objects, request, coal.DistanceResult())


@singledispatch
def coal_geometry(shape: Any, outer: bool) -> Geometry:
    """The shape in coal and where its origin lies in the shape's frame.

    `outer` asks for a mesh around a shape coal does not have, else one inside it.

    Raises:
        ValueError: for what is not a convex primitive.
    """
    raise ValueError(f"shape: expected a convex primitive, got {type(shape).__name__}")


@coal_geometry.register
def _(shape: primitives.HalfSpace, outer: bool) -> Geometry:
    return coal.Halfspace(np.array(shape.normal, float), float(shape.offset)), np.zeros(3)


@coal_geometry.register
def _(shape: primitives.Box, outer: bool) -> Geometry:
    # Coal takes whole sides.
    return coal.Box(*(2 * np.array(shape.half_extents, float))), np.zeros(3)


@coal_geometry.register
def _(shape: primitives.Polytope, outer: bool) -> Geometry:
    return _hull(corners(shape)), center(shape)


@coal_geometry.register
def _(shape: primitives.PaddedPolytope, outer: bool) -> Geometry:
    hull = _hull(corners(shape.core))
    hull.setSweptSphereRadius(float(shape.radius))
    return hull, center(shape)


@coal_geometry.register
def _(shape: primitives.Sphere, outer: bool) -> Geometry:
    return coal.Sphere(float(shape.radius)), np.zeros(3)


@coal_geometry.register
def _(shape: primitives.Ellipsoid, outer: bool) -> Geometry:
    return coal.Ellipsoid(*np.array(shape.radii, float)), np.zeros(3)


@coal_geometry.register
def _(shape: primitives.Capsule, outer: bool) -> Geometry:
    return coal.Capsule(float(shape.radius), float(shape.length)), np.zeros(3)


@coal_geometry.register
def _(shape: primitives.Cylinder, outer: bool) -> Geometry:
    return coal.Cylinder(float(shape.radius), float(shape.length)), np.zeros(3)


@coal_geometry.register
def _(shape: primitives.Cone, outer: bool) -> Geometry:
    # Coal's origin is at half the height, ours at the centre of mass.
    lift = np.array([0.0, 0.0, float(shape.height) / 4])
    return coal.Cone(float(shape.radius), float(shape.height)), lift


@coal_geometry.register
def _(shape: primitives.MinkowskiSum, outer: bool) -> Geometry:
    middle = center(shape)
    points = shape.surface_mesh(RESOLUTION)[0] - middle
    if outer:
        # Stretched until no face of the mesh cuts the sum.
        planes = ConvexHull(points).equations
        points = points * np.max(reach(shape, planes[:, :3]) / -planes[:, 3])
    return _hull(points), middle


def _hull(points: np.ndarray) -> Any:
    """Convex mesh of coal, its faces by qhull and turned outward."""
    hull = ConvexHull(points)
    p, q, r = (points[hull.simplices[:, k]] for k in range(3))
    inward = np.sum(np.cross(q - p, r - p) * hull.equations[:, :3], axis=1) < 0
    simplices = np.where(inward[:, None], hull.simplices[:, ::-1], hull.simplices)
    faces = coal.StdVec_Triangle()
    faces.extend([coal.Triangle(*face) for face in simplices.tolist()])
    vertices = coal.StdVec_Vec3s()
    vertices.extend(list(points))
    return coal.Convex(vertices, faces)
