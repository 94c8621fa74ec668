"""Every primitive as the constraints of a convex program, from the definition of the set."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from silico_py import primitives

try:
    import cvxpy as cp
except ImportError as error:
    raise ImportError(
        "silico_py.reference models in cvxpy: pip install 'silico-py[reference]'"
    ) from error

Constraints = list[cp.Constraint]


def number(value: Any) -> np.ndarray:
    """A parameter of a shape as a float64 array."""
    return np.asarray(value, dtype=float)


@singledispatch
def scaled_set(shape: Any, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    """Constraints that hold x (3,) in the shape scaled by alpha about its own centre.

    Args:
        shape: a convex primitive.
        x: point in the frame of the shape [m].
        alpha: scaling.

    Raises:
        TypeError: for anything that is not a convex primitive.
    """
    raise TypeError(f"shape: expected a convex primitive, got {type(shape).__name__}")


@scaled_set.register
def _(shape: primitives.HalfSpace, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    return [number(shape.normal) @ x <= number(shape.offset)]


@scaled_set.register
def _(shape: primitives.Box, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    half = number(shape.half_extents)
    return [x <= alpha * half, -x <= alpha * half]


@scaled_set.register
def _(shape: primitives.Polytope, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    A, b, center = number(shape.A), number(shape.b), number(shape.reference)
    return [A @ (x - center) <= alpha * (b - A @ center)]


@scaled_set.register
def _(shape: primitives.PaddedPolytope, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    core = cp.Variable(3)
    ball = cp.SOC(alpha * number(shape.radius), x - core)
    return [*scaled_set(shape.core, core, alpha), ball]


@scaled_set.register
def _(shape: primitives.Sphere, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    return [cp.SOC(alpha * number(shape.radius), x)]


@scaled_set.register
def _(shape: primitives.Ellipsoid, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    return [cp.SOC(alpha, cp.multiply(1 / number(shape.radii), x))]


@scaled_set.register
def _(shape: primitives.Capsule, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    half, height = alpha * number(shape.length) / 2, cp.Variable()
    ball = cp.SOC(alpha * number(shape.radius), x - height * np.array([0.0, 0.0, 1.0]))
    return [height <= half, -height <= half, ball]


@scaled_set.register
def _(shape: primitives.Cylinder, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    half = alpha * number(shape.length) / 2
    return [x[2] <= half, -x[2] <= half, cp.SOC(alpha * number(shape.radius), x[:2])]


@scaled_set.register
def _(shape: primitives.Cone, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    radius, height = number(shape.radius), number(shape.height)
    below_apex = alpha * 0.75 * height - x[2]
    return [x[2] >= -alpha * height / 4, cp.SOC(radius / height * below_apex, x[:2])]


@scaled_set.register
def _(shape: primitives.MinkowskiSum, x: cp.Expression, alpha: cp.Expression) -> Constraints:
    part = cp.Variable(3)
    return scaled_set(shape.first, part, alpha) + scaled_set(shape.second, x - part, alpha)


def degree(shape: Any) -> int:
    """Number of rows and second-order cones in the definition of the set."""
    constraints = scaled_set(shape, cp.Variable(3), cp.Variable())
    return sum(1 if isinstance(c, cp.SOC) else c.size for c in constraints)
