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
    p, alpha, constraints = cp.Variable(3), cp.Variable(), []
    for k, shape in enumerate((a, b)):
        eps = cp.Variable(shape.n_aux) if shape.n_aux else np.zeros(0)
        to_x, to_alpha, to_eps, constant = map(np.asarray, affine(shape))
        turn = Rotation.from_quat(q[k], scalar_first=True).as_matrix()
        slack = constant + to_x @ turn.T @ (p - x[k]) + to_alpha * alpha
        slack = slack + to_eps @ eps if shape.n_aux else slack
        constraints += rules(slack, shape.cone)
    problem = cp.Problem(cp.Minimize(alpha), constraints)
    return problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
