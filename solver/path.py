"""Following the solutions of a family of problems around the folds of its path.

An iterate that solves nothing yet solves the problem H(w, t) = F(w) - rho e - t A = 0 at t = 1,
with A what the conditions F miss there. Its solutions form a path that leads to the problem
itself, t = 0. Where the path turns back, Newton's method with t prescribed must fail: the
matrix F_w is singular. Followed by its length, with t one more unknown, the path is smooth.
Two solves with F_w give its tangent and the way back to it.

The products of A are moved to a multiple of e cone by cone, so that the path keeps away from the
boundary of the cones. Every step ends with the products that belong to its t: s - z goes where the
tangent leads it, s and z follow from it and from the products. Those that became smaller would
leave no room to turn, and only the rows can be off the path.

Source: Allgower and Georg, Numerical Continuation Methods, 1990 (pseudo-arclength continuation).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from silico_py.solver.problem import (
    Problem,
    boundary_step,
    centred,
    identity,
    mean_product,
    product_norm,
    remainder,
    residual_norm,
    targets,
)
from silico_py.solver.vectors import Conditions, Variables

# Product of the anchor, as a share of its mean product or its residual, at least: less would leave
# second-order cones no room to turn.
LEAST_PRODUCT = 0.005
BOUNDARY = 0.9  # fraction of the way to the boundary of the cones
NEIGHBOURHOOD = 0.9  # largest distance of a row from the path, in the size of t A
NARROWEST = 0.3  # the neighbourhood of the rows does not shrink below this t
# Of a path that is followed closely, and the fraction of the way to the boundary along it: a step
# lands with products of its own, so it may lead out of the cones. The smaller the products are, the
# less a second-order cone lets s and z turn inside.
NARROWEST_CLOSELY, BEYOND = 1e-3, 2.7
CLOSER = 0.7  # a step may end further off if it reduces the distance to this fraction
FIRST_REACH = 3.0  # length of the first step, at most
GROWTH = 3.0  # of the next step after one that was not shortened
CAUTION = 1.5  # the same after one that was shortened
STRAIGHT = 0.5  # fraction of the full Newton step to t = 0 at which Newton's method takes over
ARRIVED = 1e-9  # t below which the path has ended
ASTRAY = 2.0  # t beyond which a path seldom comes back


class Path(NamedTuple):
    """Where an iterate is on the path it follows, if it follows one."""

    active: Bool[Array, ""]
    closely: Bool[Array, ""]  # to its end if need be, rather than past its next folds
    anchor: Conditions  # A
    size: Float[Array, ""]  # of A
    t: Float[Array, ""]  # falls from 1 to 0
    tangent: Variables  # zero before the first step
    rise: Float[Array, ""]  # of t along the tangent
    reach: Float[Array, ""]  # length of the next step, at most
    turned: Bool[Array, ""]  # whether t has gone up


class Step(NamedTuple):
    """A step along the path, to be shortened until it stays close to it."""

    change: Variables
    rise: Float[Array, ""]  # of t
    length: Float[Array, ""]
    tangent: Variables
    slope: Float[Array, ""]  # of t along the tangent
    straight: Float[Array, ""]  # how far the full Newton step to t = 0 can go


def by_mode(problem: Problem, path: Path, follow: Callable, newton: Callable) -> Any:
    """`follow()` where a path is followed, else `newton()`; monotone problems follow none."""
    return newton() if problem.monotone else jax.lax.cond(path.active, follow, newton)


def inactive(w: Variables, conditions: Conditions) -> Path:
    """No path, in the shape of one."""
    zero, none = jnp.zeros((), w.y.dtype), jnp.zeros((), bool)
    empty, tangent = (jax.tree.map(jnp.zeros_like, v) for v in (conditions, w))
    return Path(none, none, empty, zero, zero, tangent, zero, zero, none)


def begin(
    problem: Problem, w: Variables, conditions: Conditions, closely: Array, rho: Array
) -> Path:
    """The path from `w`, where `conditions` were evaluated."""
    anchor = _anchor(problem, w, conditions, rho)
    size = _norm(problem, anchor)
    one, yes = jnp.ones((), w.y.dtype), jnp.ones((), bool)
    path = inactive(w, conditions)
    reach = FIRST_REACH * one
    return path._replace(active=yes, closely=closely, anchor=anchor, size=size, t=one, reach=reach)


def missing(problem: Problem, conditions: Conditions, path: Path, rho: Array) -> Conditions:
    """H where `conditions` were evaluated, at the t of the path."""
    left = remainder(problem, conditions, rho)
    return jax.tree.map(lambda r, a: r - path.t * a, left, path.anchor)


def distance(problem: Problem, conditions: Conditions, path: Path, rho: Array) -> Array:
    """How far the rows of `conditions` are from the path; at most 1 in its neighbourhood."""
    left = missing(problem, conditions, path, rho)
    narrowest = jnp.where(path.closely, NARROWEST_CLOSELY, NARROWEST)
    width = NEIGHBOURHOOD * jnp.maximum(path.t, narrowest) * path.size
    return residual_norm(problem, left) / width


def predict(problem: Problem, w: Variables, path: Path, back: Variables, along: Variables) -> Step:
    """A step along the tangent and back to the path.

    Args:
        problem: the problem.
        w: the iterate.
        path: its path.
        back: the Newton step to the path at the same t.
        along: the derivative of the path by t.
    """
    square = 1 + _dot(along, along)
    forth = _dot(along, path.tangent) + path.rise > 0
    slope = jnp.where(forth, 1, -1) / jnp.sqrt(square)  # the first step goes down
    tangent = _scaled(slope, along)
    # The shortest way back to the path is at right angles to its tangent.
    rise = -_dot(along, back) / square
    back_on = jax.tree.map(lambda b, a: b + rise * a, back, along)
    part = jnp.minimum(1, BOUNDARY * boundary_step(problem, w, back_on))
    back_on, rise = _scaled(part, back_on), part * rise
    here = jax.tree.map(jnp.add, w, back_on)
    furthest = jnp.where(path.closely, BEYOND, BOUNDARY) * boundary_step(problem, here, tangent)
    length = jnp.minimum(path.reach, furthest)
    to_end = jnp.maximum(path.t + rise, 0) / jnp.where(slope < 0, -slope, 1)
    length = jnp.where(slope < 0, jnp.minimum(length, to_end), length)
    full = jax.tree.map(lambda b, a: b - path.t * a, back, along)
    return Step(
        change=jax.tree.map(lambda b, t: b + length * t, back_on, tangent),
        rise=rise + length * slope,
        length=length,
        tangent=tangent,
        slope=slope,
        straight=boundary_step(problem, w, full),
    )


def shortened(path: Path, step: Step, fraction: Array) -> Path:
    """The path after a fraction of `step`."""
    t = path.t + fraction * step.rise
    t = jnp.where(t < ARRIVED, 0, t)
    growth = jnp.where(fraction < 1, CAUTION, GROWTH)
    return path._replace(
        t=t,
        tangent=step.tangent,
        rise=step.slope,
        reach=growth * fraction * step.length,
        turned=path.turned | (step.slope > 0),
    )


def landing(problem: Problem, w: Variables, path: Path, rho: Array) -> Variables:
    """`w` with the products of the path."""
    centre = targets(problem, rho, rho)
    products = [
        path.t * cell.product + e for cell, e in zip(path.anchor.cells, centre, strict=True)
    ]
    return centred(problem, w, products)


def is_close(distance: Array, before: Array) -> Bool[Array, ""]:
    """Whether a step that ends at this distance from the path may be taken."""
    return distance <= jnp.maximum(1, CLOSER * before)


def _anchor(problem: Problem, w: Variables, conditions: Conditions, rho: Array) -> Conditions:
    """A, with products that are no less than `LEAST_PRODUCT` says: off-centre iterates, and those
    whose products vanish long before the residual, would leave no room to move."""
    mean = jnp.maximum(mean_product(problem, w), residual_norm(problem, conditions))
    aim = rho * identity(problem, conditions).products
    least = jnp.maximum(LEAST_PRODUCT * mean, aim)
    products = jnp.where(aim > 0, jnp.maximum(conditions.products, least) - aim, 0)
    return Conditions(jnp.concatenate([conditions.rows, products]), conditions.layout)


def _norm(problem: Problem, c: Conditions) -> Array:
    return jnp.maximum(residual_norm(problem, c), product_norm(c))


def _dot(a: Variables, b: Variables) -> Array:
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return sum(jax.tree.leaves(products))


def _scaled(factor: Array, w: Variables) -> Variables:
    return jax.tree.map(lambda v: factor * v, w)
