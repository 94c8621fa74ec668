"""Sizes of the primitives in closed form, from the definition of the set."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.spatial import HalfspaceIntersection

from silico_py import primitives


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


@singledispatch
def inner_radius(shape: Any) -> float:
    """Radius of a ball about the centre of the scaling that lies in the shape [m]."""
    raise TypeError(f"shape: expected a convex primitive, got {type(shape).__name__}")


@inner_radius.register
def _(shape: primitives.HalfSpace) -> float:
    return float(shape.characteristic_length)


@inner_radius.register
def _(shape: primitives.Box) -> float:
    return float(np.min(shape.half_extents))


@inner_radius.register
def _(shape: primitives.Polytope) -> float:
    return float(np.min(np.asarray(shape.b) - np.asarray(shape.A) @ center(shape)))


@inner_radius.register
def _(shape: primitives.PaddedPolytope) -> float:
    return inner_radius(shape.core) + float(shape.radius)


@inner_radius.register
def _(shape: primitives.Sphere) -> float:
    return float(shape.radius)


@inner_radius.register
def _(shape: primitives.Ellipsoid) -> float:
    return float(np.min(shape.radii))


@inner_radius.register
def _(shape: primitives.Capsule) -> float:
    return float(shape.radius)


@inner_radius.register
def _(shape: primitives.Cylinder) -> float:
    return min(float(shape.radius), float(shape.length) / 2)


@inner_radius.register
def _(shape: primitives.Cone) -> float:
    radius, height = float(shape.radius), float(shape.height)
    return min(height / 4, 0.75 * height * radius / math.hypot(radius, height))


@inner_radius.register
def _(shape: primitives.MinkowskiSum) -> float:
    return inner_radius(shape.first) + inner_radius(shape.second)
