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


def measured(value: Any, unit: float = 1.0) -> np.ndarray:
    """A parameter of a shape as a float64 array, in this unit."""
    return np.asarray(value, dtype=float) / unit


@singledispatch
def scaled_set(shape: Any, x: cp.Expression, alpha: cp.Expression, unit: float) -> Constraints:
    """Constraints that hold x (3,) in the shape scaled by alpha about its own centre.

    Args:
        shape: a convex primitive.
        x: point in the frame of the shape, in this unit of length.
        alpha: scaling.
        unit: of length, about the size of the shape: the tolerances of solvers are absolute [m].

    Raises:
        ValueError: for anything that is not a convex primitive.
    """
    raise ValueError(f"shape: expected a convex primitive, got {type(shape).__name__}")


@scaled_set.register
def _(
    shape: primitives.HalfSpace, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    return [measured(shape.normal) @ x <= measured(shape.offset, unit)]


@scaled_set.register
def _(shape: primitives.Box, x: cp.Expression, alpha: cp.Expression, unit: float) -> Constraints:
    half = measured(shape.half_extents, unit)
    return [x <= alpha * half, -x <= alpha * half]


@scaled_set.register
def _(
    shape: primitives.Polytope, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    A, b, center = measured(shape.A), measured(shape.b, unit), measured(shape.reference, unit)
    return [A @ (x - center) <= alpha * (b - A @ center)]


@scaled_set.register
def _(
    shape: primitives.PaddedPolytope, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    core = cp.Variable(3)
    ball = cp.SOC(alpha * measured(shape.radius, unit), x - core)
    return [*scaled_set(shape.core, core, alpha, unit), ball]


@scaled_set.register
def _(shape: primitives.Sphere, x: cp.Expression, alpha: cp.Expression, unit: float) -> Constraints:
    return [cp.SOC(alpha * measured(shape.radius, unit), x)]


@scaled_set.register
def _(
    shape: primitives.Ellipsoid, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    return [cp.SOC(alpha, cp.multiply(1 / measured(shape.radii, unit), x))]


@scaled_set.register
def _(
    shape: primitives.Capsule, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    half, height = alpha * measured(shape.length, unit) / 2, cp.Variable()
    ball = cp.SOC(alpha * measured(shape.radius, unit), x - height * np.array([0.0, 0.0, 1.0]))
    return [height <= half, -height <= half, ball]


@scaled_set.register
def _(
    shape: primitives.Cylinder, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    half = alpha * measured(shape.length, unit) / 2
    return [x[2] <= half, -x[2] <= half, cp.SOC(alpha * measured(shape.radius, unit), x[:2])]


@scaled_set.register
def _(shape: primitives.Cone, x: cp.Expression, alpha: cp.Expression, unit: float) -> Constraints:
    radius, height = measured(shape.radius, unit), measured(shape.height, unit)
    below_apex = alpha * 0.75 * height - x[2]
    return [x[2] >= -alpha * height / 4, cp.SOC(radius / height * below_apex, x[:2])]


@scaled_set.register
def _(
    shape: primitives.MinkowskiSum, x: cp.Expression, alpha: cp.Expression, unit: float
) -> Constraints:
    part = cp.Variable(3)
    return [
        *scaled_set(shape.first, part, alpha, unit),
        *scaled_set(shape.second, x - part, alpha, unit),
    ]


def degree(shape: Any) -> int:
    """Number of rows and second-order cones in the definition of the set."""
    constraints = scaled_set(shape, cp.Variable(3), cp.Variable(), 1.0)
    return sum(1 if isinstance(c, cp.SOC) else c.size for c in constraints)
