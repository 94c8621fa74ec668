"""The solver on problems without contact, against cvxpy and known solutions."""

import dataclasses
from functools import partial

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conic import rules

from silico_py.solver import (
    CellGroup,
    CellResidual,
    CellVariables,
    Guess,
    Options,
    Problem,
    ProductCone,
    Status,
    Variables,
    implicit,
    solve,
)

RHO = 1e-8
CLARABEL_GAP = 1e-10  # absolute and relative, asked of the reference


def options(rho: float = RHO, max_iterations: int = 60) -> Options:
    return Options(jnp.asarray(rho), jnp.asarray(rho / 10), max_iterations)


def conic_program(q, c, a, b, g, h, cone):
    """Minimise x'Qx/2 + c'x with A x = b and h - G x in the cone: one node, one cell.

    Stationarity of the Lagrangian: Q x + c + A'nu + G'z = 0.
    """
    n, m = len(c), len(b)

    def node(y, data):
        (q, c, a, b), (x, nu) = data, (y[:n], y[n:])
        return jnp.concatenate([q @ x + c + a.T @ nu, a @ x - b])

    def cell(y, x, z, data):
        g, h = data
        force = jnp.concatenate([g.T @ z, jnp.zeros(m)])
        return CellResidual(force[None], jnp.zeros(0), h - g @ y[0, :n])

    of_node, of_cell = jax.tree.map(lambda v: v[None], ((q, c, a, b), (g, h)))
    group = CellGroup(cone, np.zeros((1, 1), int), cell, of_cell, split=cone.dim)
    problem = Problem(node, of_node, (group,), jnp.ones((1, n + m)))
    e = cone.identity(float)[None]
    start = Variables.of(jnp.zeros((1, n + m)), (CellVariables(jnp.zeros((1, 0)), e, e),))
    return problem, start


SOLVERS = {}


def solved(data, cone, quadratic):
    """One compiled program for each cone and kind of objective."""

    def run(*data):
        return solve(*conic_program(*data, cone), options())

    compiled = SOLVERS.setdefault((cone, quadratic), jax.jit(run))
    return compiled(*map(jnp.asarray, data))


def minimum(objective, constraints) -> float:
    problem = cp.Problem(cp.Minimize(objective), constraints)
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), CLARABEL_GAP)
    value = problem.solve(solver=cp.CLARABEL, **tolerances)
    assert problem.status == cp.OPTIMAL
    return float(value)


def random_program(seed: int, cone: ProductCone, quadratic: bool):
    """Strictly feasible in the primal and in the dual, hence bounded with a central path."""
    rng = np.random.default_rng(seed)
    n, m = 6, 2
    e = np.asarray(cone.identity(float))
    root = rng.normal(size=(n, n))
    q = root @ root.T + 0.1 * np.eye(n) if quadratic else np.zeros((n, n))
    a, g = rng.normal(size=(m, n)), rng.normal(size=(cone.dim, n))
    x, nu = rng.normal(size=n), rng.normal(size=m)
    h = g @ x + e * rng.uniform(0.5, 2)
    c = -q @ x - a.T @ nu - g.T @ (e * rng.uniform(0.5, 2))
    return q, c, a, a @ x, g, h


MIXED = ProductCone.second_order(4) + ProductCone.orthant(3) + ProductCone.second_order(3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("quadratic", [True, False], ids=["quadratic", "linear"])
@pytest.mark.parametrize("cone", [ProductCone.orthant(8), MIXED], ids=["orthant", "mixed"])
def test_convex_programs_agree_with_cvxpy(seed, quadratic, cone):
    data = q, c, a, b, g, h = random_program(seed, cone, quadratic)
    solution = solved(data, cone, quadratic)
    assert solution.status == Status.CONVERGED
    y = np.asarray(solution.variables.y[0])
    cell = jax.tree.map(lambda v: np.asarray(v[0]), solution.variables.cells[0])
    found, nu = y[: len(c)], y[len(c) :]

    x = cp.Variable(len(c))
    objective = cp.quad_form(x, cp.psd_wrap(q)) / 2 + c @ x
    best = minimum(objective, [a @ x == b, *rules(h - g @ x, cone)])

    # On the central path the duality gap s.z is rho for each orthant row and each
    # second-order cone. Rows are solved to rho / 10 each, products too; a residual r in a row
    # with multiplier y moves the value by y r.
    value = found @ q @ found / 2 + c @ found
    sizes = np.abs(nu).sum() + np.abs(cell.dual).sum() + np.abs(found - x.value).sum()
    rounding = CLARABEL_GAP * (1 + abs(best) + sizes)
    slop = RHO / 10 * (cone.degree + sizes) + rounding
    assert -slop < value - best < cone.degree * RHO + slop
    np.testing.assert_allclose(cell.slack @ cell.dual, cone.degree * RHO, rtol=0.1)
    if quadratic:
        # Strong convexity m: a gap d bounds the distance by sqrt(2 d / m), for both solvers.
        convexity = np.linalg.eigvalsh(q)[0]
        reach = np.sqrt(2 * (cone.degree * RHO + slop) / convexity)
        reach += np.sqrt(2 * rounding / convexity)
        assert np.linalg.norm(found - x.value) < reach


def test_chain_of_nodes_and_local_unknowns_agrees_with_cvxpy():
    """Masses on springs, neighbours pushed apart through a soft layer x of each cell.

    Minimise sum k y^2 / 2 + f y + sum x^2 / 2 with y[j] - y[i] + x >= d for each cell (i, j).
    """
    rng = np.random.default_rng(0)
    nodes, pairs = 5, np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [1, 3]])
    k, f = rng.uniform(0.5, 2, nodes), rng.normal(size=nodes)
    d = rng.uniform(-0.5, 1.0, len(pairs))

    def cell(y, x, z, d):
        return CellResidual(jnp.stack([z, -z]), x - z, y[1] - y[0] + x - d)

    cone = ProductCone.orthant(1)
    # Two groups, so that more than one kind of cell has to find its place.
    groups = tuple(
        CellGroup(cone, np.asarray(pairs[part]), cell, jnp.asarray(d[part]), split=1)
        for part in (slice(0, 4), slice(4, 6))
    )
    problem = Problem(
        lambda y, data: data[0] * y + data[1],
        (jnp.asarray(k), jnp.asarray(f)),
        groups,
        jnp.ones((nodes, 1)),
    )
    ones = [jnp.ones((len(group.nodes), 1)) for group in groups]
    start = Variables.of(jnp.zeros((nodes, 1)), tuple(CellVariables(0 * e, e, e) for e in ones))
    solution = jax.jit(lambda start: solve(problem, start, options()))(start)
    assert solution.converged

    y, x = cp.Variable(nodes), cp.Variable(len(pairs))
    objective = cp.sum_squares(cp.multiply(np.sqrt(k), y)) / 2 + f @ y + cp.sum_squares(x) / 2
    minimum(objective, [y[pairs[:, 1]] - y[pairs[:, 0]] + x >= d])
    local = np.concatenate([np.asarray(cell.x[:, 0]) for cell in solution.variables.cells])
    # Strong convexity 0.5; six rows with rho of gap each, the rest of the slop is smaller.
    reach = np.sqrt(2 * 12 * RHO / 0.5)
    assert np.linalg.norm(np.asarray(solution.variables.y[:, 0]) - y.value) < reach
    assert np.linalg.norm(local - x.value) < reach


@pytest.mark.parametrize("rows", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4)), 7])
def test_programs_are_batched_and_differentiated(rows):
    """By the right-hand sides of the inequalities, against one by one and differences."""
    cone = ProductCone.orthant(rows)
    *data, h = map(jnp.asarray, random_program(1, cone, quadratic=True))

    def solution(h):
        at = options()._replace(polish=3)
        problem, start = conic_program(*data, h, cone)
        found = solve(problem, start, at)
        return implicit(problem, found.variables, at.relaxation).y[0], found.converged

    alone = jax.jit(solution)
    near = h + 1e-5 * jnp.concatenate([jnp.eye(rows), -jnp.eye(rows)])
    together, converged = jax.jit(jax.vmap(solution))(near)
    assert converged.all()
    np.testing.assert_allclose(together[0], alone(near[0])[0], atol=1e-12)
    slope = jax.jit(jax.jacfwd(lambda h: solution(h)[0]))(h)
    differences = (together[:rows] - together[rows:]) / 2e-5
    np.testing.assert_allclose(slope.T, differences, atol=1e-6)


def test_functions_that_hold_tracers_are_refused():
    """They would end the process, or fail an assertion of jax."""
    data = random_program(1, ProductCone.orthant(4), quadratic=True)
    problem, start = conic_program(*map(jnp.asarray, data), ProductCone.orthant(4))

    def solution(scale):
        (group,) = problem.groups

        def cell(y, x, z, data):
            rows = group.function(y, x, z, data)
            return rows._replace(slack=scale * rows.slack)

        held = dataclasses.replace(problem, groups=(dataclasses.replace(group, function=cell),))
        return solve(held, start, options()).variables.y

    np.testing.assert_array_equal(solution(1.0), jax.jit(lambda: solution(1.0))())
    for over in (jax.jit, jax.vmap, jax.jacfwd):
        with pytest.raises(ValueError, match="function: closes over an array that is traced"):
            over(solution)(jnp.ones(2 if over is jax.vmap else ()))


def test_a_cone_without_rows_is_refused():
    data = random_program(1, ProductCone.orthant(4), quadratic=True)
    problem, start = conic_program(*map(jnp.asarray, data), ProductCone.orthant(4))
    (group,) = problem.groups
    empty = dataclasses.replace(problem, groups=(dataclasses.replace(group, cone=ProductCone()),))
    with pytest.raises(ValueError, match="cone: a group of cells needs one with rows"):
        solve(empty, start, options())


KNOWN = jnp.array([1.0, 0.0, 2.0])
OFFSET_SLACK = jnp.array([0.0, 3.0, 0.0])
MATRIX = jnp.array([[2.0, 1.0, 0.0], [-1.0, 2.0, 1.0], [0.0, -1.0, 2.0]])  # not symmetric


def complementary(function, y, slack):
    """z >= 0, function(z) >= 0, complementary; the node reads y = z. From z = y and the slack."""
    n = y.shape[1]

    def cell(y, x, z, _):
        return CellResidual(-z[None], jnp.zeros(0), function(y[0]))

    cone = ProductCone.orthant(n)
    group = CellGroup(cone, np.zeros((1, 1), int), cell, jnp.zeros(1), split=n)
    problem = Problem(lambda y, _: y, jnp.zeros(1), (group,), jnp.ones((1, n)))
    return problem, Variables.of(y, (CellVariables(jnp.zeros((1, 0)), y, slack),))


def test_products_end_at_their_share_of_the_relaxation():
    """z (z + 1) = share rho, in closed form."""
    problem, start = complementary(lambda y: y + 1, *jnp.ones((2, 1, 3)))
    shares = np.array([1, 0.1, 0.01])
    group = dataclasses.replace(problem.groups[0], shares=jnp.asarray(shares)[None])
    problem = dataclasses.replace(problem, groups=(group,))

    def solution(rho):
        found = solve(problem, start, options(rho)._replace(polish=3)).variables
        return implicit(problem, found, rho).y[0]

    found, slope = jax.jit(partial(jax.jvp, solution))((jnp.asarray(1e-3),), (jnp.ones(()),))
    exact = (np.sqrt(1 + 4 * shares * 1e-3) - 1) / 2
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    np.testing.assert_allclose(slope, shares / (2 * exact + 1), rtol=1e-9)


def complementarity_problem():
    """z >= 0, M z + q >= 0, complementary, with q from a chosen solution."""
    q = OFFSET_SLACK - MATRIX @ KNOWN
    one = jnp.ones((1, 3))
    return complementary(lambda y: MATRIX @ y + q, one, one)


def test_linear_complementarity_problem_with_known_solution():
    solution = solve(*complementarity_problem(), options())
    assert solution.converged
    # To first order z_i = rho / s_i where z vanishes and s_i = rho / z_i where s does: below
    # rho / 1 each, carried by the inverse of the active block [[2, 0], [0, 2]] and its
    # coupling of size 1 to the passive row; 10 % more from the tolerance.
    cell = solution.variables.cells[0]
    np.testing.assert_allclose(cell.dual[0], KNOWN, atol=2 * RHO)
    np.testing.assert_allclose(cell.slack[0], OFFSET_SLACK, atol=6 * RHO)
    np.testing.assert_allclose(cell.slack * cell.dual, jnp.full((1, 3), RHO), rtol=0.11)


def test_solution_lies_on_the_central_path_asked_for():
    """One variable, minimise x with x >= 1: z = 1 and x = 1 + rho exactly."""
    for rho in (1e-2, 1e-5, 1e-10):
        problem, start = conic_program(
            jnp.zeros((1, 1)), jnp.ones(1), jnp.zeros((0, 1)), jnp.zeros(0),
            -jnp.ones((1, 1)), -jnp.ones(1), ProductCone.orthant(1),
        )  # fmt: skip
        solution = solve(problem, start, options(rho))
        assert solution.converged
        # Slack and product rows are within rho / 10 each.
        assert abs(float(solution.variables.y[0, 0]) - 1 - rho) < 0.3 * rho


def infeasible():
    """x <= -1 and x >= 1."""
    one = jnp.ones((1, 1))
    return conic_program(
        one, jnp.zeros(1), jnp.zeros((0, 1)), jnp.zeros(0),
        jnp.array([[1.0], [-1.0]]), jnp.array([-1.0, -1.0]), ProductCone.orthant(2),
    )  # fmt: skip


def unbounded():
    """Minimise -x with x >= 0."""
    return conic_program(
        jnp.zeros((1, 1)), -jnp.ones(1), jnp.zeros((0, 1)), jnp.zeros(0),
        -jnp.ones((1, 1)), jnp.zeros(1), ProductCone.orthant(1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("monotone", "outcome"), [(False, Status.MAX_ITERATIONS), (True, Status.STALLED)]
)
@pytest.mark.parametrize("hopeless", [infeasible, unbounded])
def test_hopeless_program_says_so_and_stays_finite(hopeless, monotone, outcome):
    problem, start = hopeless()
    solution = solve(dataclasses.replace(problem, monotone=monotone), start, options())
    assert not solution.converged
    assert solution.status == outcome  # what is not monotone sets out again where it stalls
    assert int(solution.iterations) <= 60
    assert all(np.all(np.isfinite(v)) for v in jax.tree.leaves(solution.variables))
    assert max(float(solution.residual), float(solution.complementarity)) > RHO / 10


def test_iteration_limit_is_kept_and_reported():
    solution = solve(*complementarity_problem(), options(max_iterations=3))
    assert solution.status == Status.MAX_ITERATIONS
    assert int(solution.iterations) == 3
    assert not solution.converged


def test_start_that_is_not_finite_is_reported():
    problem, start = complementarity_problem()
    solution = solve(problem, Variables.of(start.y.at[0, 1].set(jnp.nan), start.cells), options())
    assert solution.status == Status.NOT_FINITE
    assert not solution.converged
    assert int(solution.iterations) <= 1  # no other attempt can do better


def test_batched_members_stop_on_their_own():
    """A member that fails leaves the others alone: they are the same as one by one."""
    problem, start = complementarity_problem()
    scales = jnp.array([1.0, 1e-3, jnp.nan, 1e3])

    @jax.jit
    def run(scale):
        cells = tuple(c._replace(dual=scale * c.dual, slack=scale * c.slack) for c in start.cells)
        return solve(problem, Variables.of(scale * start.y, cells), options())

    together = jax.vmap(run)(scales)
    for k, scale in enumerate(scales):
        alone = run(scale)
        expected = Status.CONVERGED if jnp.isfinite(scale) else Status.NOT_FINITE
        assert together.status[k] == alone.status == expected
        assert together.iterations[k] == alone.iterations
        # Both within rho / 10 of the same central point.
        np.testing.assert_allclose(together.variables.y[k], alone.variables.y, atol=RHO)


@pytest.mark.parametrize(
    ("scale", "usable", "relative"),
    [(1, True, 0.5), (1, False, 1), (np.nan, False, 1), (1e3, True, 1)],
)
def test_a_guess_is_tried_if_it_is_usable_and_close(scale, usable, relative):
    """y^3 - 3 y - 1 is not monotone."""
    start = jnp.full((1, 1), 3.0)
    problem, start = complementary(lambda y: y**3 - 3 * y - 1, start, 3 * start)
    limits = options(max_iterations=100)
    cold = solve(problem, start, limits)
    guess = Guess(jax.tree.map(lambda v: scale * v, cold.variables), jnp.asarray(usable))
    found = solve(problem, start, limits, guess)
    assert cold.status == found.status == Status.CONVERGED
    assert found.iterations <= relative * cold.iterations
    np.testing.assert_allclose(found.variables.y, cold.variables.y, rtol=1e-9)


def projection(point):
    """Onto the second-order cone of three dimensions, as a program."""
    cone, none = ProductCone.second_order(3), jnp.zeros((0, 3))
    return conic_program(jnp.eye(3), -point, none, jnp.zeros(0), -jnp.eye(3), jnp.zeros(3), cone)


def outside(angle):
    """A point that is projected to the boundary, and its projection."""
    direction = np.array([np.cos(angle), np.sin(angle)])
    return jnp.array([0.3, *direction]), np.array([0.65, *0.65 * direction])


@pytest.mark.parametrize(("angle", "most"), [(0.01, 2), (0.1, 3), (3, 6)])
def test_a_solution_at_the_boundary_of_a_cone_turns_in_few_steps(angle, most):
    """Straight steps are cut after an angle of about sqrt(rho): they need up to twice as many."""
    limits = options(rho=1e-10)
    before = solve(*projection(outside(0)[0]), limits)
    point, expected = outside(angle)
    after = solve(*projection(point), limits, Guess(before.variables, before.converged))
    assert before.converged and after.converged
    assert int(after.iterations) <= most
    np.testing.assert_allclose(after.variables.y[0], expected, atol=1e-9)


def test_steps_hardly_depend_on_the_relaxation():
    """Down to a millionth of it; straight steps alone need 80 % more."""
    points = np.random.default_rng(0).normal(size=(40, 3))
    run = jax.jit(lambda point, rho: solve(*projection(point), options(rho)))
    rough, tight = (np.array([run(p, rho).iterations for p in points]) for rho in (1e-4, 1e-10))
    assert tight.mean() < 1.5 * rough.mean()
