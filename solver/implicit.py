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
from silico_py.solver.fusion import in_kernel
from silico_py.solver.kkt import SystemVector
from silico_py.solver.problem import Problem, Variables, conditions, identity

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
    here = problem.with_data(data).prepared(w.y)
    _, rows = jax.jvp(lambda d: conditions(here.with_data(d), w), (data,), (d_data,))
    target = jax.tree.map(lambda e, r: (d_rho * e - r)[..., None], identity(problem, rows), rows)
    rhs = kkt.without_slack_rows(problem, w.cells, target)
    change = kkt.add_slack_rows(newton_inverse(here, w, rhs), target)
    return jax.tree.map(lambda v: v[..., 0], change)


def newton_inverse(problem: Problem, w: Variables, rhs: SystemVector) -> Variables:
    """F_w^-1 rhs column by column, differentiable in both modes.

    Slack rows are not part of `rhs`: their changes belong to the complementarity products.
    """
    factor = kkt.factorize(problem, w, jnp.zeros((), w.y.dtype))
    if in_kernel():  # which nobody differentiates
        found = kkt.solve(problem, factor, rhs, _accuracy(w))
        return kkt.with_slacks(problem, factor, found)
    # One flat vector: transposition needs every part of the right-hand side to be linear.
    flat_rhs, unflatten = ravel_pytree(rhs)

    def flat(function: Callable) -> Callable:
        return lambda v: ravel_pytree(function(unflatten(v)))[0]

    exact, _ = kkt.system(problem, factor)
    pair = kkt.system(problem, jax.lax.stop_gradient(factor))

    def solve(_: object, b: Array) -> Array:
        return ravel_pytree(krylov.solve(*pair, unflatten(b), _accuracy(w)))[0]

    def transposed(_: object, b: Array) -> Array:
        exact_t, inverse_t = (_transpose(flat(function), b) for function in pair)
        found = krylov.solve(
            lambda v: unflatten(exact_t(ravel_pytree(v)[0])),
            lambda v: unflatten(inverse_t(ravel_pytree(v)[0])),
            unflatten(b),
            _accuracy(w),
        )
        return ravel_pytree(found)[0]

    found = jax.lax.custom_linear_solve(flat(exact), flat_rhs, solve, transposed)
    return kkt.with_slacks(problem, factor, unflatten(found))


def _transpose(function: Callable, like: Array) -> Callable:
    turned = jax.linear_transpose(function, like)
    return lambda v: turned(v)[0]


def _accuracy(w: Variables) -> float:
    return ACCURACY * float(jnp.finfo(w.y.dtype).eps)
