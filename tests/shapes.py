"""The shape table: at least one of every primitive, with slender, oblique and off-centre ones."""

import dataclasses

import jax
import numpy as np

from silico_py.primitives import (
    Box,
    Bundle,
    Capsule,
    Cone,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    MinkowskiSum,
    PaddedPolytope,
    Polytope,
    Sphere,
)

# A box with one corner cut obliquely.
OBLIQUE_A = np.concatenate([np.eye(3), -np.eye(3), [[0.7, 1.1, 0.4]]])
OBLIQUE_B = np.array([0.3, 0.25, 0.2, 0.35, 0.2, 0.3, 0.33])

TETRAHEDRON = np.array([[0.4, 0.0, -0.1], [-0.2, 0.35, -0.1], [-0.2, -0.3, -0.15], [0.0, 0.1, 0.4]])
PYRAMID = np.array(
    [[0.3, 0.3, 0.0], [-0.3, 0.3, 0.0], [-0.3, -0.3, 0.0], [0.3, -0.3, 0.0], [0.05, 0.0, 0.5]]
)

HALF_TURN = (0.0, 1.0, 0.0, 0.0)
TILT = (np.cos(0.4), 0.0, np.sin(0.4), 0.0)
TWIST = tuple(np.array([0.5, -0.1, 0.7, 0.2]) / np.linalg.norm([0.5, -0.1, 0.7, 0.2]))


def _table():
    oblique = Polytope(OBLIQUE_A, OBLIQUE_B)
    hammer = Bundle(
        [
            (Cylinder(0.05, 0.6), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)),
            (Box((0.2, 0.08, 0.08)), (0.0, 0.0, 0.45), TILT),
        ]
    )
    return {
        "half_space": HalfSpace((0.0, 0.6, 0.8), 0.3),
        "box": Box((0.25, 0.3, 0.2)),
        "box_slender": Box((0.5, 0.01, 0.02)),
        "polytope_oblique": oblique,
        "polytope_tetrahedron": Polytope.from_vertices(TETRAHEDRON),
        # The origin lies on a face, and far outside: both are scaled about the centroid.
        "polytope_on_face": Polytope.from_vertices(PYRAMID),
        "polytope_far": Polytope.from_vertices(PYRAMID + np.array([2.0, -1.0, 0.5])),
        "padded": PaddedPolytope(OBLIQUE_A, OBLIQUE_B, 0.1),
        "padded_on_face": PaddedPolytope(core=Polytope.from_vertices(PYRAMID), radius=0.05),
        "sphere": Sphere(0.3),
        "ellipsoid": Ellipsoid((0.2, 0.35, 0.5)),
        "ellipsoid_slender": Ellipsoid((0.02, 0.6, 0.05)),
        "capsule": Capsule(0.1, 0.5),
        "capsule_slender": Capsule(0.02, 0.8),
        "capsule_short": Capsule(0.4, 0.1),
        "cylinder": Cylinder(0.2, 0.5),
        "cylinder_disc": Cylinder(0.5, 0.02),
        "cone": Cone(0.3, 0.5),
        "cone_flat": Cone(0.6, 0.1),
        "sum_box_ellipsoid": MinkowskiSum(Box((0.2, 0.15, 0.1)), Ellipsoid((0.05, 0.1, 0.08))),
        "sum_nested": MinkowskiSum(
            MinkowskiSum(Cone(0.2, 0.3), Capsule(0.05, 0.2)), Polytope.from_vertices(PYRAMID)
        ),
        "bundle": hammer,
        "bundle_nested": Bundle(
            [(hammer, (0.3, 0.1, -0.2), TWIST), (Sphere(0.1), (-0.5, 0.0, 0.0), HALF_TURN)]
        ),
    }


SHAPES = _table()
BUNDLES = ("bundle", "bundle_nested")
CONVEX = [name for name in SHAPES if name not in BUNDLES]
SOLIDS = [name for name in CONVEX if name != "half_space"]
BOUNDED = [name for name in SHAPES if name != "half_space"]
ITERATIVE = ("padded", "padded_on_face", "sum_box_ellipsoid", "sum_nested")
CLOSED_FORM = [name for name in SOLIDS if name not in ITERATIVE]


def scaled(shape, factor):
    """The shape `factor` times as large, about the origin of its frame."""
    if isinstance(shape, Polytope):
        return dataclasses.replace(shape, b=factor * shape.b, reference=factor * shape.reference)
    if isinstance(shape, PaddedPolytope):
        return PaddedPolytope(core=scaled(shape.core, factor), radius=factor * shape.radius)
    if isinstance(shape, MinkowskiSum):
        return MinkowskiSum(scaled(shape.first, factor), scaled(shape.second, factor))
    if isinstance(shape, Bundle):
        return Bundle(
            [
                (scaled(piece, factor), factor * position, orientation)
                for piece, position, orientation in zip(
                    shape.shapes, shape.positions, shape.orientations, strict=True
                )
            ]
        )
    return jax.tree.map(lambda leaf: factor * leaf, shape)
