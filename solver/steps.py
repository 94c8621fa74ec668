"""The next step of an attempt: of Newton's method, or along a path.

Far from a solution centring asks the products of all cells to shrink by the same share, each from
its own mean: one target for all would throw cells with small products off course for the sake of
one with large ones. Close to a solution it is the other way round. Where the conditions of several
cells are nearly dependent their unknowns depend on the ratios of their products, all the way to
the end, and a second-order cone leaves the less room to turn the smaller its product is: an iterate
that is off centre when products are small comes back in hundreds of tiny steps. There all cells
share one target, and products shrink the less, the more the path curves.

Steps are corrected for what the linearised conditions miss. Of the rows that is what they leave
where the step ends; of the products it is Mehrotra's term of the whole step (On the implementation
of a primal-dual interior point method, 1992), which does more harm than good far from a solution
where problems are not monotone. With many nodes some cone is always
in the way, steps are short, and the term pays everywhere; the rows are then not worth their
evaluation. Nor are they where that needs a memo.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from silico_py.solver import kkt
from silico_py.solver import path as paths
from silico_py.solver.iterate import Iterate, Options, is_central, moved
from silico_py.solver.path import by_mode
from silico_py.solver.problem import (
    Problem,
    boundary_step,
    choose,
    conditions,
    excess,
    in_one,
    mean_product,
    product_norm,
    remainder,
)
from silico_py.solver.vectors import Conditions, Variables

# Of Newton directions: close to a solution more would not save an iteration, far from it small
# products would drown in the error of large residuals.
ACCURACY, ACCURACY_NEAR = 1e-6, 1e-3
BOUNDARY = 0.97  # fraction of the step to the boundary of the cones
# Exponent of the predicted reduction that sets the centring: for monotone problems and those with
# memos, for others with one node, with several. A larger one saves monotone problems an eighth of
# their iterations; others fail less often with a smaller one.
EXPONENT_EAGER, EXPONENT_ALONE, EXPONENT = 3, 1, 2
# Products that vanish long before the residual leave the iterate stuck to the boundary.
FLOOR = 0.2  # least centring target at full easing, in residuals
# The same of a monotone problem, in what the affine step leaves of the residual, and the step from
# which on it leaves too little to matter.
BEHIND, LONG_STEP = 0.1, 0.9
CURVED = 0.5  # share of products kept where paths curve, in what is off after the affine step
# Of those kept for that reason: convex programs need some of it where faces nearly touch.
LARGEST_SHARE = 0.03
LEAST_CURVATURE = 1e-2  # in mean products, below which a step is not corrected for it


class Step(NamedTuple):
    """A step of Newton's method or along a path."""

    change: Variables
    length: Float[Array, ""]  # of its first trial, as a multiple of `change`
    along: paths.Step
    leaps: Bool[Array, ""]  # whether a leap is tried first
    leap: Variables  # its change
    product: Float[Array, ""]  # where it ends


class _Plan(NamedTuple):
    """A step of Newton's method before its correction."""

    step: Variables
    longest: Float[Array, ""]  # multiple of it that stays in the cones
    product: Float[Array, ""]  # where it ends
    wanted: Bool[Array, ""]  # whether it is to be corrected


def next_step(problem: Problem, factor: kkt.Factor, it: Iterate, options: Options) -> Step:
    """The next step of Newton's method, or along the path if one is followed."""
    problem = problem.eased(it.easing)
    c, path, rho = it.measures.conditions, it.path, options.relaxation
    target, other = by_mode(
        problem,
        path,
        lambda: (paths.missing(problem, c, path, rho), path.anchor),
        lambda: (remainder(problem, c, rho), excess(problem, it.w, c, rho, is_central(it))),
    )
    first, second = kkt.directions(problem, factor, _accuracy(it), _negative(target), other)

    def follow() -> Step:
        step = paths.predict(problem, it.w, path, first, second)
        no = jnp.zeros((), bool)
        return Step(step.change, jnp.ones_like(rho), step, no, step.change, rho)

    def newton() -> Step:
        return _newton_step(problem, factor, it, first, second, options)

    return by_mode(problem, path, follow, newton)


def _newton_step(
    problem: Problem,
    factor: kkt.Factor,
    it: Iterate,
    affine: Variables,
    centring: Variables,
    options: Options,
) -> Step:
    """Towards a lower target, corrected where that does not shorten the step."""
    plan = _planned(problem, it, affine, centring, options.relaxation)

    def correct() -> tuple[Variables, Float[Array, ""]]:
        missing = _missing(problem, it, plan.step, jnp.minimum(1, BOUNDARY * plan.longest))
        (more,) = kkt.directions(problem, factor, _accuracy(it), _negative(missing))
        return _corrected(problem, it, plan, more, missing)

    uncorrected = plan.step, plan.longest
    step, longest = jax.lax.cond(plan.wanted, correct, lambda: uncorrected)
    length = jnp.minimum(1, BOUNDARY * longest)
    leaps = (length < 1) & is_central(it)
    return Step(step, length, _nowhere(it.w, longest), leaps, plan.step, plan.product)


@in_one
def _planned(
    problem: Problem, it: Iterate, affine: Variables, centring: Variables, rho: Array
) -> _Plan:
    """The affine step and a share of centring, and whether that is to be corrected."""
    w, c = it.w, it.measures.conditions
    mean = mean_product(problem, w)
    curvature = product_norm(_second_order(problem, c, affine)) / jnp.maximum(mean, rho)
    share = _share(problem, it, affine, curvature, rho)
    step = moved(affine, centring, share)
    longest = boundary_step(problem, w, step)
    wanted = (BOUNDARY * longest < 1) | (curvature > LEAST_CURVATURE)
    wanted &= is_central(it) | _counts_products(problem) | _counts_rows(problem)
    return _Plan(step, longest, rho + share * jnp.maximum(mean - rho, 0), wanted)


@in_one
def _corrected(
    problem: Problem, it: Iterate, plan: _Plan, more: Variables, missing: Conditions
) -> tuple[Variables, Float[Array, ""]]:
    """The step with its correction and how far it leads, if that is further."""
    other = jax.tree.map(jnp.add, plan.step, more)
    further = boundary_step(problem, it.w, other)
    better = (further > plan.longest) | (BOUNDARY * further >= 1)
    better &= _leaves_little(problem, it, other, missing)
    return choose(better, (other, further), (plan.step, plan.longest))


def _nowhere(w: Variables, like: Array) -> paths.Step:
    zero, still = jnp.zeros_like(like), jax.tree.map(jnp.zeros_like, w)
    return paths.Step(still, zero, zero, still, zero, zero)


def _share(
    problem: Problem, it: Iterate, affine: Variables, curvature: Array, rho: Array
) -> Float[Array, ""]:
    """How much of its excess over rho each cell is to keep: the less the affine step would leave,
    the less, and enough to make up for its curvature."""
    above = mean_product(problem, it.w) - rho
    length = jnp.minimum(1, boundary_step(problem, it.w, affine))
    left = mean_product(problem, moved(it.w, affine, length)) - rho
    floor = _floor(problem, it, length) * it.measures.residual
    ratios = jnp.stack([left, floor]) / jnp.where(above > 0, above, jnp.inf)
    affine_share, least = jnp.clip(ratios, 0, 1)
    curved = jnp.where(is_central(it), jnp.minimum(CURVED * curvature, LARGEST_SHARE), 0)
    return jnp.maximum(affine_share ** _exponent(problem), jnp.maximum(least, curved))


def _floor(problem: Problem, it: Iterate, length: Float[Array, ""]) -> Float[Array, ""]:
    """Least centring target, in residuals, where the affine step has this length.

    Of a monotone problem whose optimum is not unique, as that of parallel faces, what rows lack
    over the products says how far the next step goes: once a leap has left them behind products
    that are far smaller, it would end at the boundary, and no later one would go further.
    (Wright, Primal-Dual Interior-Point Methods, 1997, chapter 6.)
    """
    if problem.monotone:
        return jnp.where(length < LONG_STEP, BEHIND * (1 - length), 0)
    return FLOOR * jnp.abs(it.easing.share)


def _exponent(problem: Problem) -> int:
    if problem.monotone or problem.has_memos:
        return EXPONENT_EAGER
    return EXPONENT_ALONE if problem.is_single else EXPONENT


@in_one
def _missing(problem: Problem, it: Iterate, step: Variables, part: Array) -> Conditions:
    """What the linearised conditions miss of a step of which so much is taken."""
    before = it.measures.conditions
    second = _second_order(problem, before, step)
    if not _counts_rows(problem):
        return second
    after = conditions(problem, moved(it.w, step, part))
    rows = after.rows - (1 - part) * before.rows
    products = jnp.where(is_central(it), second.products, 0)
    return Conditions(jnp.concatenate([rows, products]), before.layout)


def _leaves_little(
    problem: Problem, it: Iterate, step: Variables, corrected: Conditions
) -> Bool[Array, ""]:
    """Whether a step leaves no more of the products than was corrected, or than is wrong now.

    A pair that carries nothing may be so far off balance that correcting it explodes.
    """
    left = jax.tree.map(jnp.subtract, _second_order(problem, corrected, step), corrected)
    before = product_norm(corrected)  # zero where products are not corrected
    return (before == 0) | (product_norm(left) <= jnp.maximum(before, it.measures.error))


def _counts_products(problem: Problem) -> bool:
    """Whether steps far from a solution are corrected for products too."""
    return problem.monotone or problem.has_many_nodes


def _counts_rows(problem: Problem) -> bool:
    """Whether steps are corrected for rows."""
    return not (_counts_products(problem) or problem.has_memos)


def _second_order(problem: Problem, like: Conditions, step: Variables) -> Conditions:
    """Zero rows, and the products ds o dz that Newton's method leaves out."""
    products = [
        group.cone.product(change.slack, change.dual)
        for group, change in zip(problem.groups, step.cells, strict=True)
    ]
    return like.of_products(products)


def _accuracy(it: Iterate) -> Float[Array, ""]:
    """Relative accuracy that directions need."""
    return jnp.where(is_central(it), ACCURACY_NEAR, ACCURACY)


def _negative(c: Conditions) -> Conditions:
    return jax.tree.map(jnp.negative, c)
