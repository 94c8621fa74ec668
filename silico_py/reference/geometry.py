"""Sizes of the primitives in closed form, from the definition of the set."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.spatial import HalfspaceIntersection

from silico_py import primitives


@singledispatch
def reach(shape: Any, d: np.ndarray) -> np.ndarray:
    """Largest d.(x - center) over the shape for directions d (..., 3) in its frame [m].

    Raises:
        ValueError: for a half-space, which reaches infinitely far, and for non-convex shapes.
    """
    raise ValueError(f"shape: expected a bounded convex primitive, got {type(shape).__name__}")


@reach.register
def _(shape: primitives.Box, d: np.ndarray) -> np.ndarray:
    return np.abs(d) @ np.asarray(shape.half_extents, float)


@reach.register
def _(shape: primitives.Polytope, d: np.ndarray) -> np.ndarray:
    return np.max(d @ corners(shape).T, axis=-1)


@reach.register
def _(shape: primitives.PaddedPolytope, d: np.ndarray) -> np.ndarray:
    return reach(shape.core, d) + float(shape.radius) * np.linalg.norm(d, axis=-1)


@reach.register
def _(shape: primitives.Sphere, d: np.ndarray) -> np.ndarray:
    return float(shape.radius) * np.linalg.norm(d, axis=-1)


@reach.register
def _(shape: primitives.Ellipsoid, d: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.asarray(shape.radii, float) * d, axis=-1)


@reach.register
def _(shape: primitives.Capsule, d: np.ndarray) -> np.ndarray:
    ball = float(shape.radius) * np.linalg.norm(d, axis=-1)
    return ball + float(shape.length) / 2 * np.abs(d[..., 2])


@reach.register
def _(shape: primitives.Cylinder, d: np.ndarray) -> np.ndarray:
    disc = float(shape.radius) * np.linalg.norm(d[..., :2], axis=-1)
    return disc + float(shape.length) / 2 * np.abs(d[..., 2])


@reach.register
def _(shape: primitives.Cone, d: np.ndarray) -> np.ndarray:
    up, disc = float(shape.height) * d[..., 2], np.linalg.norm(d[..., :2], axis=-1)
    return np.maximum(0.75 * up, float(shape.radius) * disc - up / 4)


@reach.register
def _(shape: primitives.MinkowskiSum, d: np.ndarray) -> np.ndarray:
    return reach(shape.first, d) + reach(shape.second, d)


@singledispatch
def center(shape: Any) -> np.ndarray:
    """Centre of the scaling by alpha, in the frame of the shape [m].

    Half-spaces do not scale: theirs is a point of the surface.
    """
    return np.zeros(3)


@center.register
def _(shape: primitives.HalfSpace) -> np.ndarray:
    return float(shape.offset) * np.array(shape.normal, float)


@center.register
def _(shape: primitives.Polytope) -> np.ndarray:
    return np.array(shape.reference, float)


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
    """Radius of a ball about the centre of the scaling that lies in the shape [m].

    Raises:
        ValueError: for what is not a convex primitive.
    """
    raise ValueError(f"shape: expected a convex primitive, got {type(shape).__name__}")


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
