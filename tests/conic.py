"""Conic programs in cvxpy, for tests of their solutions."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.solver.cones import ORTHANT


def rules(slack, cone) -> list:
    """cvxpy constraints `slack in cone`."""
    parts = [(kind, slack[part]) for kind, part in cone.slices()]
    return [s >= 0 if kind == ORTHANT else cp.SOC(s[0], s[1:]) for kind, s in parts]


@jax.jit
def affine(shape):
    """The slack of a shape: derivatives by point, alpha and auxiliaries, and where all are 0."""
    zero = (jnp.zeros(3), jnp.zeros(()), jnp.zeros(shape.n_aux))
    return *jax.jacfwd(shape.slack, (0, 1, 2))(*zero), shape.slack(*zero)


def conic_optimum(a, b, x, q) -> float:
    """Least alpha of shapes at poses, from their slacks, by Clarabel."""
    p, alpha = cp.Variable(3), cp.Variable()
    sides = zip((a, b), x, q, strict=True)
    return _least(alpha, [rule for side in sides for rule in _scaled(p, alpha, *side)])


def conic_distance(a, b, x, q) -> float:
    """Distance of shapes at poses, 0 where they overlap, from their slacks, by Clarabel."""
    points, sides = cp.Variable((2, 3)), zip((a, b), x, q, strict=True)
    constraints = [rule for k, side in enumerate(sides) for rule in _scaled(points[k], 1.0, *side)]
    return _least(cp.norm(points[0] - points[1]), constraints)


def _scaled(p, alpha, shape, x, q) -> list:
    """Constraints: a point lies in a shape scaled by alpha at a pose."""
    eps = cp.Variable(shape.n_aux) if shape.n_aux else np.zeros(0)
    to_x, to_alpha, to_eps, constant = map(np.asarray, affine(shape))
    turn = Rotation.from_quat(q, scalar_first=True).as_matrix()
    slack = constant + to_x @ turn.T @ (p - x) + to_alpha * alpha
    slack = slack + to_eps @ eps if shape.n_aux else slack
    return rules(slack, shape.cone)


def _least(value, constraints) -> float:
    problem = cp.Problem(cp.Minimize(value), constraints)
    return problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
