"""The gauge of a convex primitive as a small conic program, where no closed form exists."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py.primitives._base import Scalar, Vector3
from silico_py.solver.compilation import once
from silico_py.solver.cones import ProductCone

ITERATIONS = 40  # those after the gap is closed change nothing
START_MARGIN = 1.5  # scaling of the start, over the bound above which it is feasible
BOUNDARY = 0.95  # fraction of the step to the boundary of the cones


@once
def conic_gauge(shape: Any, x: Vector3) -> Scalar:
    """min alpha subject to slack(x, alpha, eps) in the cone, over (alpha, eps).

    A primal-dual interior point of a fixed number of iterations from the strictly feasible
    `shape.interior(x)`: it never leaves the feasible set, so the value is an upper bound of
    the gauge, with a gap of about 1e-9 (float64) or 1e-4 (float32) of itself.

    Derivatives of first order are those of the value function, -dual . d slack at a fixed
    solution; second derivatives are not given.
    """
    fixed_shape, fixed_x = jax.lax.stop_gradient((shape, x))
    alpha, eps, dual = jax.lax.stop_gradient(solve(fixed_shape, fixed_x))
    slack = shape.slack(x, alpha, eps)
    # At the reference itself the gauge has a kink; the zero dual found there gives 0.
    return alpha - jnp.dot(dual, slack - jax.lax.stop_gradient(slack))


class Point(NamedTuple):
    """A point of the program: y = (alpha, eps), slack = matrix y + constant, and the dual."""

    y: Float[Array, " columns"]
    slack: Float[Array, " dim"]
    dual: Float[Array, " dim"]


def solve(shape: Any, x: Vector3) -> tuple[Scalar, Array, Array]:
    """Solution (alpha, eps, dual), with dual . d slack / d alpha = 1; dual = 0 at the reference."""
    cone, dtype = shape.cone, x.dtype
    bound, eps = shape.interior(x)
    at_reference = bound <= 0
    alpha = jnp.where(at_reference, 1, START_MARGIN * bound).astype(dtype)
    gap_tolerance = jnp.finfo(dtype).eps ** 0.75 * alpha
    by_alpha, by_eps = jax.jacfwd(shape.slack, argnums=(1, 2))(x, alpha, eps)
    matrix = jnp.concatenate([by_alpha[:, None], by_eps], axis=1)
    slack = shape.slack(x, alpha, eps)
    dual = cone.inverse(slack)
    start = Point(jnp.concatenate([alpha[None], eps]), slack, dual / jnp.dot(dual, by_alpha))

    def iterate(_: Array, at: Point) -> Point:
        new = _step(cone, matrix, at)
        finite = jnp.all(jnp.isfinite(jnp.concatenate(new)))
        go = (jnp.dot(at.slack, at.dual) > gap_tolerance) & finite
        return Point(*(jnp.where(go, after, before) for after, before in zip(new, at, strict=True)))

    y, _, dual = jax.lax.fori_loop(0, ITERATIONS, iterate, start)
    dual = dual / jnp.dot(dual, by_alpha)
    return (
        jnp.where(at_reference, 0, y[0]),
        jnp.where(at_reference, eps, y[1:]),
        jnp.where(at_reference, jnp.zeros_like(dual), dual),
    )


def _step(cone: ProductCone, matrix: Float[Array, "dim columns"], at: Point) -> Point:
    """A predictor, and a step to the products that it makes possible."""
    gap = jnp.dot(at.slack, at.dual)
    inverse = cone.inverse(at.slack)
    scaled = cone.nesterov_todd(at.slack, at.dual, matrix)
    factor = jax.scipy.linalg.cho_factor(matrix.T @ scaled)
    objective = jnp.zeros(matrix.shape[1], gap.dtype).at[0].set(1)

    def direction(target: Scalar) -> Point:
        dy = jax.scipy.linalg.cho_solve(factor, target * (matrix.T @ inverse) - objective)
        return Point(dy, matrix @ dy, target * inverse - at.dual - scaled @ dy)

    def moved(change: Point) -> Point:
        lengths = cone.step_length(at.slack, change.slack), cone.step_length(at.dual, change.dual)
        step = jnp.minimum(BOUNDARY * jnp.minimum(*lengths), 1)
        return Point(*(v + step * dv for v, dv in zip(at, change, strict=True)))

    ahead = moved(direction(jnp.zeros((), gap.dtype)))
    left = jnp.clip(jnp.dot(ahead.slack, ahead.dual) / gap, 0, 1)
    return moved(direction(left**2 * gap / cone.degree))
