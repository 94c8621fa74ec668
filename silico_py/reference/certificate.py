"""How far a shape reaches in a direction, in closed form, and what that proves about alpha.

Two scaled shapes that share a point p satisfy, for every unit vector n,

    n.(c_a - c_b) = n.(p - c_b) - n.(p - c_a) <= scale_b reach_b(n) + scale_a reach_a(-n),

with centres c, reach(n) = max n.(x - c) over the shape and scale = 1 + growth (alpha - 1); the
growth is 1 but in contacts of very different sizes. So any direction bounds alpha from
below and any shared point bounds it from above: together they prove a collision result
without solving anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.primitives import ConvexShape, HalfSpace
from silico_py.reference.geometry import center, reach

Pose = tuple[Any, Any]


class Placed(NamedTuple):
    """A shape in the world.

    Attributes:
        shape: a convex primitive.
        position: of its frame [m].
        turn: (3, 3) from its frame to the world.
        growth: of its scaling with alpha.
    """

    shape: ConvexShape
    position: np.ndarray
    turn: np.ndarray
    growth: float = 1.0

    @classmethod
    def at(cls, shape: ConvexShape, pose: Pose) -> Placed:
        """Place a shape at (position, unit quaternion wxyz)."""
        position, orientation = (np.array(part, float) for part in pose)
        turn = Rotation.from_quat(orientation, scalar_first=True).as_matrix()
        return cls(shape, position, turn)

    @property
    def center(self) -> np.ndarray:
        """World point about which the shape is scaled; of the surface of a half-space [m]."""
        return self.position + self.turn @ center(self.shape)

    def scaling(self, alpha: Any) -> Any:
        """How far the shape is scaled."""
        return 1 + self.growth * (alpha - 1)

    def reach(self, direction: np.ndarray) -> float:
        """Largest direction.(x - center) over the shape, `direction` in the world [m]."""
        return float(reach(self.shape, self.turn.T @ direction))

    @property
    def outward(self) -> np.ndarray:
        """Normal of a half-space, in the world.

        Raises:
            ValueError: for any other shape.
        """
        if not isinstance(self.shape, HalfSpace):
            raise ValueError(f"shape: only a half-space has one normal, not {self.shape}")
        return self.turn @ np.array(self.shape.normal, float)


def check_convex(name: str, shape: Any) -> None:
    """Refuse what is not a convex primitive.

    Raises:
        ValueError: for anything else.
    """
    if not isinstance(shape, ConvexShape):
        kind = type(shape).__name__
        raise ValueError(f"{name}: expected a convex primitive, got {kind}; take its pieces")


def check_pair(shape_a: Any, shape_b: Any) -> None:
    """Refuse shapes that have no collision program.

    Raises:
        ValueError: for two half-spaces, and shapes that are not convex primitives.
    """
    check_convex("shape_a", shape_a)
    check_convex("shape_b", shape_b)
    if not (shape_a.scaled or shape_b.scaled):
        raise ValueError("shape_b: two half-spaces have no collision program")


def pair_length(a: Placed, b: Placed) -> float:
    """Length of the smaller shape [m]."""
    return min(float(side.shape.characteristic_length) for side in (a, b) if side.shape.scaled)


def sensitivity(a: Placed, b: Placed, normal: np.ndarray) -> float:
    """|d alpha / d x_a| of a pair whose unit normal (from b to a) is given [1/m]."""
    reaches = [p.growth * p.reach(d) for p, d in ((a, -normal), (b, normal)) if p.shape.scaled]
    return 1 / sum(reaches)


def certified_bound(
    shape_a: ConvexShape,
    pose_a: Pose,
    shape_b: ConvexShape,
    pose_b: Pose,
    normal: Any,
) -> float:
    """A lower bound of alpha, proved by the direction `normal`; tight at the true normal.

    A half-space proves a bound by its own normal only, which is used instead.

    Args:
        shape_a, shape_b: convex primitives; at most one half-space.
        pose_a, pose_b: (position (3,) [m], orientation (4,) unit quaternion wxyz).
        normal: (3,) from b to a, of any length, world.

    Raises:
        ValueError: for two half-spaces, and shapes that are not convex primitives.
    """
    check_pair(shape_a, shape_b)
    a, b = Placed.at(shape_a, pose_a), Placed.at(shape_b, pose_b)
    return bound(a, b, np.asarray(normal, float))


def bound(a: Placed, b: Placed, normal: np.ndarray) -> float:
    """`certified_bound` of placed shapes."""
    if not a.shape.scaled:
        return bound(b, a, -normal)
    if not b.shape.scaled:
        height = float(b.outward @ (a.center - b.center))
        return max(1 + (height / a.reach(-b.outward) - 1) / a.growth, 0.0)
    size = np.linalg.norm(normal)
    if not size > 0:
        return 0.0
    reach_a, reach_b = a.reach(-normal), b.reach(normal)
    apart = float(normal @ (a.center - b.center)) - reach_a - reach_b
    return 1 + apart / (a.growth * reach_a + b.growth * reach_b)
