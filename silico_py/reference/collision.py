"""The collision program of two convex shapes, modelled in cvxpy and solved by a conic solver.

Source: single-level contact simulation, eq. 14.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from silico_py.primitives import ConvexShape
from silico_py.reference.certificate import (
    Placed,
    Pose,
    bound,
    check_convex,
    check_pair,
    pair_length,
)
from silico_py.reference.sets import cp, measured, scaled_set

TOLERANCES = {
    "CLARABEL": dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas", "tol_ktratio"), 1e-11),
    "ECOS": dict.fromkeys(("abstol", "reltol", "feastol"), 1e-11),
}


class Collision(NamedTuple):
    """Result of `collide`.

    Attributes:
        alpha: smallest scaling of both shapes at which they share a point.
        point: (3,) such a point, world [m]; where faces meet it is one of many.
        normal: (3,) unit vector from b to a, from the duals of the program; without
            meaning where alpha is 0.
        gap: alpha less the lower bound that `normal` proves in closed form.
    """

    alpha: float
    point: np.ndarray
    normal: np.ndarray
    gap: float


def collide(
    shape_a: ConvexShape,
    pose_a: Pose,
    shape_b: ConvexShape,
    pose_b: Pose,
    solver: str = "CLARABEL",
) -> Collision:
    """Minimise alpha >= 0 over a point of both scaled shapes.

    Args:
        shape_a, shape_b: convex primitives; at most one half-space.
        pose_a, pose_b: (position (3,) [m], orientation (4,) unit quaternion wxyz).
        solver: "CLARABEL" or "ECOS".

    Raises:
        ValueError: for two half-spaces, shapes that are not convex primitives, or a solver that is
            unknown or not installed.
        RuntimeError: if the solver returns no solution.
    """
    check_pair(shape_a, shape_b)
    return solve_pair(Placed.at(shape_a, pose_a), Placed.at(shape_b, pose_b), solver)


def solve_pair(a: Placed, b: Placed, solver: str = "CLARABEL") -> Collision:
    """`collide` of placed shapes."""
    alpha, point, local = cp.Variable(nonneg=True), cp.Variable(3), cp.Variable(3)
    unit = pair_length(a, b)
    # Measured from body a: far from the world's origin no digits are lost. Its frame has a
    # variable of its own because the dual of this equation is d alpha / d x_a.
    place = local == a.turn.T @ point
    from_b = b.turn.T @ (point + (a.position - b.position) / unit)
    inside = scaled_set(a.shape, local, a.scaling(alpha), unit)
    inside += scaled_set(b.shape, from_b, b.scaling(alpha), unit)
    found = _minimise(alpha, [place, *inside], solver)
    normal = _unit(a.turn @ place.dual_value)
    return Collision(
        found, a.position + unit * measured(point.value), normal, found - bound(a, b, normal)
    )


def gauge(shape: ConvexShape, pose: Pose, point: Any, solver: str = "CLARABEL") -> float:
    """Smallest alpha >= 0 at which the scaled shape holds a world point (3,) [m].

    Raises:
        ValueError: for a half-space, which does not scale, what is no convex primitive, or an
            unknown solver.
        RuntimeError: if the solver returns no solution.
    """
    check_convex("shape", shape)
    if not shape.scaled:
        raise ValueError("shape: a half-space does not scale, so it has no gauge")
    return gauge_placed(Placed.at(shape, pose), np.asarray(point, float), solver)


def gauge_placed(placed: Placed, point: np.ndarray, solver: str = "CLARABEL") -> float:
    """`gauge` of a placed shape."""
    alpha, local = cp.Variable(nonneg=True), cp.Variable(3)
    unit = float(placed.shape.characteristic_length)
    place = local == placed.turn.T @ (point - placed.position) / unit
    inside = scaled_set(placed.shape, local, placed.scaling(alpha), unit)
    return _minimise(alpha, [place, *inside], solver)


@cache
def solvers() -> tuple[str, ...]:
    """The solvers of CLARABEL and ECOS that are installed (ECOS needs Python below 3.13)."""
    return tuple(name for name in TOLERANCES if name in cp.installed_solvers())


def _minimise(alpha: cp.Variable, constraints: list, solver: str) -> float:
    """The least alpha; the variables and constraints then carry the solution."""
    if solver not in solvers():
        raise ValueError(f"solver: expected one of {solvers()} (installed), got {solver!r}")
    problem = cp.Problem(cp.Minimize(alpha), constraints)
    with warnings.catch_warnings():
        # The tolerances ask for the last digits; whether they were reached, the gap tells.
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        try:
            problem.solve(solver=solver, **TOLERANCES[solver])
        except cp.SolverError as error:
            raise RuntimeError(f"{solver} failed on the collision program") from error
    if alpha.value is None:
        raise RuntimeError(f"{solver} found no solution: {problem.status}")
    return float(alpha.value)


def _unit(vector: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(vector)
    return vector / size if size > 0 else vector
