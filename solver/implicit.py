"""Derivatives of a solution with respect to everything in its problem, implicitly.

At a point of the central path the relaxed conditions F(w, theta) = 0 define w(theta), and
dw = -F_w^-1 F_theta dtheta. Derivatives of any order and mode follow from this one rule.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from silico_py.solver import dense, kkt
from silico_py.solver.kkt import CellRightHandSide, RightHandSide
from silico_py.solver.problem import CellVariables, Problem, Variables, residual


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
    point = w if at is None else at

    @jax.custom_jvp
    def attach(data: tuple, rho: Array, value: Variables, point: Variables) -> Variables:
        return value

    @attach.defjvp
    def attach_jvp(primals: tuple, tangents: tuple) -> tuple[Variables, Variables]:
        data, rho, value, point = primals
        # The point carries its own derivative, so that this rule can be differentiated again.
        point = attach(data, rho, point, point)
        direction = _direction(problem, data, point, tangents[0], tangents[1])
        return attach(data, rho, value, point), direction

    return attach(problem.data, relaxation, *jax.lax.stop_gradient((w, point)))


def _direction(
    problem: Problem, data: tuple, w: Variables, d_data: tuple, d_rho: Array
) -> Variables:
    """-F_w^-1 (F_data d_data + F_rho d_rho)."""
    here = problem.with_data(data)
    _, rows = jax.jvp(lambda d: residual(problem.with_data(d), w), (data,), (d_data,))
    cells = []
    for group, cell, row in zip(problem.groups, w.cells, rows.cells, strict=True):
        target = d_rho * group.cone.identity(cell.dual.dtype)
        product = target - group.cone.product(cell.dual, row.slack)
        cells.append(CellRightHandSide(-row.local[..., None], product[..., None]))
    rhs = RightHandSide(-rows.nodes[..., None], tuple(cells))
    direction = jax.tree.map(lambda v: v[..., 0], newton_inverse(here, w, rhs))
    return kkt.add_slack_rows(direction, rows)


def newton_inverse(problem: Problem, w: Variables, rhs: RightHandSide) -> Variables:
    """F_w^-1 rhs column by column, differentiable in both modes.

    Slack rows are not part of `rhs`: their changes belong to the complementarity products.
    """
    factor = kkt.factorize(problem, w, jnp.zeros((), w.y.dtype))
    if dense.in_kernel():  # which nobody differentiates
        return kkt.with_slacks(problem, factor, kkt.solve(problem, factor, rhs))
    frozen = jax.lax.stop_gradient(factor)
    # One flat vector: transposition needs every part of the right-hand side to be linear.
    flat_rhs, unflatten = ravel_pytree(rhs)

    def matrix(d: Array) -> Array:
        return ravel_pytree(kkt.apply(problem, factor, direction(d)))[0]

    def solve(_: object, b: Array) -> Array:
        found = kkt.solve(problem, frozen, unflatten(b))
        cells = (CellRightHandSide(cell.x, cell.dual) for cell in found.cells)
        return ravel_pytree(RightHandSide(found.y, tuple(cells)))[0]

    def transposed(_: object, b: Array) -> Array:
        return jax.linear_transpose(lambda c: solve(None, c), b)(b)[0]

    def direction(d: Array) -> Variables:
        nodes, cells = unflatten(d)
        cells = (CellVariables(c.local, c.product, c.product) for c in cells)
        return kkt.with_slacks(problem, factor, Variables(nodes, tuple(cells)))

    found = jax.lax.custom_linear_solve(matrix, flat_rhs, solve, transposed)
    return direction(found)
