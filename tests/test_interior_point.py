"""The solver on problems without contact, against cvxpy and known solutions."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

from silico_py.solver import (
    CellGroup,
    CellResidual,
    CellVariables,
    Options,
    Problem,
    ProductCone,
    Status,
    Variables,
    solve,
)

RHO = 1e-9


def options(rho: float = RHO) -> Options:
    return Options(jnp.asarray(rho), jnp.asarray(rho / 10), 60)


def conic_program(q, c, a, b, g, h, cone):
    """Minimise x'Qx/2 + c'x with A x = b and h - G x in the cone: one node, one cell."""
    n, m = len(c), len(b)

    def node(y, _):
        x, nu = y[:n], y[n:]
        return jnp.concatenate([q @ x + c + a.T @ nu, a @ x - b])

    def cell(y, x, z, _):
        force = jnp.concatenate([g.T @ z, jnp.zeros(m)])
        return CellResidual(force[None], jnp.zeros(0), h - g @ y[0, :n])

    group = CellGroup(cone, jnp.zeros((1, 1), int), cell, jnp.zeros(1), split=cone.dim)
    problem = Problem(node, jnp.zeros(1), (group,), jnp.ones((1, n + m)))
    e = cone.identity(float)[None]
    start = Variables(jnp.zeros((1, n + m)), (CellVariables(jnp.zeros((1, 0)), e, e),))
    return problem, start


def random_program(seed: int, cone: ProductCone):
    """A strictly feasible, bounded program: slack and multiplier inside the cone exist."""
    rng = np.random.default_rng(seed)
    n, m = 6, 2
    root = rng.normal(size=(n, n))
    q, c = root @ root.T + 0.1 * np.eye(n), rng.normal(size=n)
    a, g = rng.normal(size=(m, n)), rng.normal(size=(cone.dim, n))
    x = rng.normal(size=n)
    h = g @ x + np.asarray(cone.identity(float)) * rng.uniform(0.5, 2)
    return q, c, a, a @ x, g, h


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "cone",
    [
        ProductCone.orthant(8),
        ProductCone.second_order(4) + ProductCone.orthant(3) + ProductCone.second_order(3),
    ],
    ids=["quadratic", "second_order"],
)
def test_convex_programs_agree_with_cvxpy(seed, cone):
    q, c, a, b, g, h = random_program(seed, cone)
    problem, start = conic_program(*map(jnp.asarray, (q, c, a, b, g, h)), cone)
    solution = solve(problem, start, options())
    assert solution.status == Status.CONVERGED

    x = cp.Variable(len(c))
    slack = h - g @ x
    rules = [a @ x == b]
    for kind, part in cone.slices():
        s = slack[part]
        rules.append(s >= 0 if kind == "orthant" else cp.SOC(s[0], s[1:]))
    cp.Problem(cp.Minimize(cp.quad_form(x, cp.psd_wrap(q)) / 2 + c @ x), rules).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )
    # Strong convexity 0.1: an objective gap of degree * rho bounds |dx|^2 by 20 degree rho.
    bound = np.sqrt(20 * cone.degree * RHO) + 1e-5
    assert np.max(np.abs(np.asarray(solution.variables.y[0, : len(c)]) - x.value)) < bound


def test_linear_complementarity_problem_with_known_solution():
    """z >= 0, M z + q >= 0, complementary; q is built from a chosen solution."""
    matrix = jnp.array([[2.0, 1.0, 0.0], [-1.0, 2.0, 1.0], [0.0, -1.0, 2.0]])
    known = jnp.array([1.0, 0.0, 2.0])
    slack = jnp.array([0.0, 3.0, 0.0])
    q = slack - matrix @ known
    cone = ProductCone.orthant(3)

    def cell(y, x, z, _):
        return CellResidual(-z[None], jnp.zeros(0), matrix @ y[0] + q)

    group = CellGroup(cone, jnp.zeros((1, 1), int), cell, jnp.zeros(1), split=3)
    problem = Problem(lambda y, _: y, jnp.zeros(1), (group,), jnp.ones((1, 3)))
    one = jnp.ones((1, 3))
    start = Variables(one, (CellVariables(jnp.zeros((1, 0)), one, one),))
    solution = solve(problem, start, options())
    assert solution.converged
    # Products are rho, the smallest strictly positive partner is 1.
    np.testing.assert_allclose(solution.variables.cells[0].dual[0], known, atol=10 * RHO)


def test_infeasible_program_says_so_and_stays_finite():
    """x <= -1 and x >= 1."""
    one = jnp.ones((1, 1))
    problem, start = conic_program(
        one, jnp.zeros(1), jnp.zeros((0, 1)), jnp.zeros(0),
        jnp.array([[1.0], [-1.0]]), jnp.array([-1.0, -1.0]), ProductCone.orthant(2),
    )  # fmt: skip
    solution = solve(problem, start, options())
    assert not solution.converged
    assert int(solution.status) in (Status.MAX_ITERATIONS, Status.STALLED)
    assert np.all(np.isfinite(solution.variables.y))
    assert "relaxation" in Status.STALLED.message
