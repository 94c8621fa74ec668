"""How far a shape reaches in a direction, in closed form, and what that proves about alpha.

Two scaled shapes that share a point p satisfy, for every unit vector n,

    n.(c_a - c_b) = n.(p - c_b) - n.(p - c_a) <= alpha (reach_b(n) + reach_a(-n)),

with centres c and reach(n) = max n.(x - c) over the shape. So any direction bounds alpha from
below and any shared point bounds it from above: together they prove a collision result
without solving anything.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import HalfspaceIntersection
from scipy.spatial.transform import Rotation

from silico_py import primitives

Pose = tuple[Any, Any]


class Placed(NamedTuple):
    """A shape in the world.

    Attributes:
        shape: a convex primitive.
        position: of its frame [m].
        turn: (3, 3) from its frame to the world.
    """

    shape: primitives.ConvexShape
    position: np.ndarray
    turn: np.ndarray

    @classmethod
    def at(cls, shape: primitives.ConvexShape, pose: Pose) -> Placed:
        """Place a shape at (position, unit quaternion wxyz)."""
        position, orientation = (np.asarray(part, float) for part in pose)
        turn = Rotation.from_quat(orientation, scalar_first=True).as_matrix()
        return cls(shape, position, turn)

    @property
    def center(self) -> np.ndarray:
        """World point about which the shape is scaled [m]."""
        return self.position + self.turn @ center(self.shape)

    def reach(self, direction: np.ndarray) -> float:
        """Largest direction.(x - center) over the shape, `direction` in the world [m]."""
        return float(reach(self.shape, self.turn.T @ direction))

    def plane(self) -> tuple[np.ndarray, float]:
        """Outward normal and offset of a half-space in the world."""
        normal = self.turn @ np.asarray(self.shape.normal, float)
        return normal, float(self.shape.offset) + normal @ self.position


@singledispatch
def reach(shape: Any, d: np.ndarray) -> float:
    """Largest d.(x - center) over the shape, both in its frame [m].

    Raises:
        TypeError: for a half-space, which reaches infinitely far, and for non-convex shapes.
    """
    raise TypeError(f"shape: expected a bounded convex primitive, got {type(shape).__name__}")


@reach.register
def _(shape: primitives.Box, d: np.ndarray) -> float:
    return np.asarray(shape.half_extents, float) @ np.abs(d)


@reach.register
def _(shape: primitives.Polytope, d: np.ndarray) -> float:
    return np.max(corners(shape) @ d)


@reach.register
def _(shape: primitives.PaddedPolytope, d: np.ndarray) -> float:
    return reach(shape.core, d) + float(shape.radius) * np.linalg.norm(d)


@reach.register
def _(shape: primitives.Sphere, d: np.ndarray) -> float:
    return float(shape.radius) * np.linalg.norm(d)


@reach.register
def _(shape: primitives.Ellipsoid, d: np.ndarray) -> float:
    return np.linalg.norm(np.asarray(shape.radii, float) * d)


@reach.register
def _(shape: primitives.Capsule, d: np.ndarray) -> float:
    return float(shape.radius) * np.linalg.norm(d) + float(shape.length) / 2 * abs(d[2])


@reach.register
def _(shape: primitives.Cylinder, d: np.ndarray) -> float:
    return float(shape.radius) * np.hypot(d[0], d[1]) + float(shape.length) / 2 * abs(d[2])


@reach.register
def _(shape: primitives.Cone, d: np.ndarray) -> float:
    height = float(shape.height)
    rim = float(shape.radius) * np.hypot(d[0], d[1]) - height / 4 * d[2]
    return max(0.75 * height * d[2], rim)


@reach.register
def _(shape: primitives.MinkowskiSum, d: np.ndarray) -> float:
    return reach(shape.first, d) + reach(shape.second, d)


@singledispatch
def center(shape: Any) -> np.ndarray:
    """Centre of the scaling by alpha, in the frame of the shape [m]."""
    return np.zeros(3)


@center.register
def _(shape: primitives.Polytope) -> np.ndarray:
    return np.asarray(shape.reference, float)


@center.register
def _(shape: primitives.PaddedPolytope) -> np.ndarray:
    return center(shape.core)


@center.register
def _(shape: primitives.MinkowskiSum) -> np.ndarray:
    return center(shape.first) + center(shape.second)


def corners(shape: primitives.Polytope) -> np.ndarray:
    """(n, 3) corners of A x <= b from its centre, by qhull [m]."""
    A, b, middle = np.asarray(shape.A, float), np.asarray(shape.b, float), center(shape)
    rows = np.column_stack([A, A @ middle - b])
    return HalfspaceIntersection(rows, np.zeros(3)).intersections


def sensitivity(a: Placed, b: Placed, normal: np.ndarray) -> float:
    """|d alpha / d x_a| of a pair whose unit normal (from b to a) is given [1/m]."""
    reaches = [p.reach(d) for p, d in ((a, -normal), (b, normal)) if p.shape.scaled]
    return 1 / sum(reaches)


def certified_bound(
    shape_a: primitives.ConvexShape,
    pose_a: Pose,
    shape_b: primitives.ConvexShape,
    pose_b: Pose,
    normal: Any,
) -> float:
    """A lower bound of alpha, proved by the direction `normal`; tight at the true normal.

    A half-space proves a bound by its own normal only, which is used instead.

    Args:
        shape_a, shape_b: convex primitives; at most one half-space.
        pose_a, pose_b: (position (3,) [m], orientation (4,) unit quaternion wxyz).
        normal: (3,) from b to a, of any length, world.
    """
    a, b = Placed.at(shape_a, pose_a), Placed.at(shape_b, pose_b)
    return bound(a, b, np.asarray(normal, float))


def bound(a: Placed, b: Placed, normal: np.ndarray) -> float:
    """As `certified_bound`, of placed shapes."""
    if not a.shape.scaled:
        return bound(b, a, -normal)
    if not b.shape.scaled:
        outward, offset = b.plane()
        return max((outward @ a.center - offset) / a.reach(-outward), 0.0)
    size = np.linalg.norm(normal)
    if not size > 0:
        return 0.0
    return normal @ (a.center - b.center) / (a.reach(-normal) + b.reach(normal))
