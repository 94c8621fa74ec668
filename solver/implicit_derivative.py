"""Derivatives of a solution with respect to everything in its problem, implicitly.

At a point of the central path the relaxed conditions F(w, theta) = 0 define w(theta), and
dw = -F_w^-1 F_theta dtheta. Derivatives of any order and mode follow from this one rule.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from silico_py.solver import kkt, krylov
from silico_py.solver.custom_derivative import attached, instantiated
from silico_py.solver.kkt import SystemVector
from silico_py.solver.problem import (
    Problem,
    ProblemData,
    conditions,
    identity,
    mean_product,
    no_easing,
)
from silico_py.solver.rows import each
from silico_py.solver.rules import jvp_of_active
from silico_py.solver.vectors import Conditions, Variables

ACCURACY = 100.0  # of the linear solve, in roundings


def implicit(
    problem: Problem,
    w: Variables,
    relaxation: Float[Array, ""],
    at: Variables | None = None,
) -> Variables:
    """`w` unchanged, with derivatives with respect to the data of `problem` and `relaxation`.

    Args:
        problem: the problem that `w` solves at `relaxation`.
        w: a solution; its own derivatives are ignored.
        relaxation: rho.
        at: another point of the central path of the same problem, where the derivative is
            taken instead; larger relaxations give smoother derivatives.
    """
    value, point = jax.lax.stop_gradient((w, w if at is None else at))
    form = problem.without_data()

    def rule(_: Variables, at: tuple, changes: tuple) -> Variables:
        data, _, point = at
        # The point carries its own derivative, so that this rule can be differentiated again.
        point = attached(point, rule, at)
        return _direction(form.with_data(data), point, *changes[:2])

    return attached(value, rule, (problem.data, relaxation, point))


def _direction(problem: Problem, w: Variables, d_data: ProblemData, d_rho: Array) -> Variables:
    """-F_w^-1 (F_data d_data + F_rho d_rho)."""
    here, d_rho = problem.prepared(w.y), instantiated(d_rho)
    _, rows = jvp_of_active(lambda d: conditions(here.with_data(d), w), (here.data,), (d_data,))
    target = jax.tree.map(lambda e, r: d_rho * e - r, identity(here, rows), rows)
    return _newton_inverse(here, w, Conditions.side_by_side([target])).column(0)


def node_sensitivity(
    problem: Problem, w: Variables, weights: Float[Array, "nodes ny columns"]
) -> tuple[Float[Array, "nodes ny columns"], list[Float[Array, "cells rows columns"]]]:
    """How weighted sums of the nodes' unknowns at a solution change with every row of the
    conditions.

    Column k is F_w^-T times column k of the weights.

    Returns:
        For the rows of the nodes, and of each group for what its cells add: rows of the cell's
        nodes, local and slack rows.
    """
    factor = _factor(problem, w)
    columns = weights.shape[-1]
    nothing = [
        kkt.CellVector(*(jnp.zeros((*v.shape, columns), v.dtype) for v in (cell.x, cell.dual)))
        for cell in w.cells
    ]
    rhs = SystemVector(weights, tuple(nothing))
    matrix, inverse = kkt.transposed_system(problem, factor)
    found, _ = krylov.solve(matrix, inverse, rhs, _accuracy(w), krylov.PATIENT)
    return found.nodes, kkt.row_weights(problem, w.cells, found)


def separate_rows(
    problem: Problem, w: Variables
) -> tuple[Float[Array, "nodes ny"], list[Float[Array, "cells rows"]]]:
    """The rows that `node_sensitivity` weights, cell by cell; the slack rows without `- s`."""
    parts = [g.residual(w.y, cell) for g, cell in zip(problem.groups, w.cells, strict=True)]
    cells = [
        jnp.concatenate([part.nodes.reshape(len(part.local), -1), part.local, part.slack], axis=1)
        for part in parts
    ]
    return each(problem.node_residual)(w.y, problem.node_data), cells


def _newton_inverse(problem: Problem, w: Variables, target: Conditions) -> Variables:
    """F_w^-1 target column by column, differentiable in both modes."""
    rhs = kkt.without_slack_rows(problem, w.cells, target)
    factor = _factor(problem, w)
    fixed = jax.lax.stop_gradient(factor)
    # One flat vector: transposition needs every part of the right-hand side to be linear.
    flat_rhs, unflatten = ravel_pytree(rhs)

    def solver(system: Callable) -> Callable:
        def solve(_: object, b: Array) -> Array:
            matrix, inverse = system(problem, fixed)
            efforts = krylov.USUAL, krylov.THOROUGH
            found, _ = krylov.solve(matrix, inverse, unflatten(b), _accuracy(w), *efforts)
            return ravel_pytree(found)[0]

        return solve

    def exact(v: Array) -> Array:
        return ravel_pytree(kkt.system(problem, factor)[0](unflatten(v)))[0]

    solvers = solver(kkt.system), solver(kkt.transposed_system)
    found = jax.lax.custom_linear_solve(exact, flat_rhs, *solvers)
    return kkt.with_slacks(problem, factor, unflatten(found), target)


def _factor(problem: Problem, w: Variables) -> kkt.Factor:
    """The factor at a point of the central path."""
    product = jax.lax.stop_gradient(mean_product(problem, w))
    return kkt.factorize(problem, w, no_easing(w.y.dtype), product)


def _accuracy(w: Variables) -> float:
    return ACCURACY * float(jnp.finfo(w.y.dtype).eps)
