"""Primal-dual interior point with a predictor that sets the centring.

Newton directions on the relaxed conditions, a fraction of the step to the boundary, and a
step halved until the residual or the complementarity error goes down. Far from a solution centring
asks the products of all cells to shrink by the same share, each from its own mean: one target for
all would throw cells with small products off course for the sake of one with large ones. Mehrotra's
second-order term is that of the whole step, and does more harm than good there, for these problems
are not monotone.

Close to a solution it is the other way round. Where cells share a load (two faces on one floor)
their unknowns depend on the ratios of their products, all the way to the end, and a second-order
cone leaves the less room to turn the smaller its product is: an iterate that is off centre when
products are small comes back in hundreds of tiny steps. There all cells share one target, steps
are corrected to second order, and products shrink the less, the more the path curves.

A straight step ends where it meets the boundary of a cone, and close to a solution that can be
soon: a face that is to carry load, or a direction of friction that is to turn by more than the
square root of the product. The linearised conditions often hold much further than that. The whole
step is then tried as a leap: with all of y, x and s - z where Newton's method wants them, and s
and z themselves back on the central path. It is kept only if it pays much more than a straight
step could, for it undoes what products have gained where it does not.

Where a problem is not monotone its central path folds, and Newton steps shrink to nothing
before a fold. Each iterate therefore carries an easing, from 0 (the problem itself) to 1 (a
tamer relative that the cells offer, see `CellGroup`): a short step sets it to 1, every other
step halves it until the problem itself is back. Where that stalls, the attempt is over; `search`
says what comes next. One kind of attempt follows a path (see `path`) from the start until that
has turned and Newton's method takes a long step again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver import kkt
from silico_py.solver import path as paths
from silico_py.solver.path import Path
from silico_py.solver.problem import (
    Problem,
    boundary_step,
    centred,
    choose,
    conditions,
    excess,
    is_interior,
    mean_product,
    multiples,
    product_norm,
    remainder,
    residual_norm,
)
from silico_py.solver.vectors import Conditions, Variables

HALVINGS = 4
BOUNDARY = 0.97  # fraction of the step to the boundary of the cones
NEAR = 0.1  # error below which steps are corrected to second order, and directions less exact
# Of Newton directions: close to a solution more would not save an iteration, far from it small
# products would drown in the error of large residuals.
ACCURACY, ACCURACY_NEAR = 1e-6, 1e-3
EXPONENT = 3  # of the predicted reduction that sets the centring
CENTRAL = 0.3  # error below which the iterate is kept close to the central path
CURVED = 0.5  # share of the products that is kept there, in what is off after the affine step
LARGEST_SHARE = 0.3  # of those kept for that reason
NEGLIGIBLE = 1e-2  # curvature, in mean products, that a step need not be corrected for
SHORT_STEP = 0.3  # shorter steps are a fold
STALLED_STEP = 0.1
LEAP = 0.2  # error that a leap has to leave at most, in errors before
PATIENCE = 3  # steps in a row shorter than STALLED_STEP that are a stall
DECAY = 0.5  # of the easing
LEAST_EASING = 0.05  # below it the problem itself is solved
# Products that vanish long before the residual leave the iterate stuck to the boundary.
FLOOR = 0.5  # least centring target at full easing, in residuals
LONGER = 1.5  # times as many where it is close to a solution
NO_FOLD = 1e-4  # error that is close to a solution: below it a short step is no fold
LEAST_REACH = 1e-8  # of a step along a path
EXACT = 1e-2  # error, in tolerances, that leaves nothing to do without polishing
POLISHED = 1e-8  # error, in relaxations, that polishing is content with


class Attempt(NamedTuple):
    """How to walk.

    Attributes:
        easing: of the first step.
        longest: number of steps.
        follow: whether to follow a path until it has turned.
        timid: whether it gives up where easing would begin.
        endless: whether it never gives up.
    """

    easing: Float[Array, ""]
    longest: Int[Array, ""]
    follow: Bool[Array, ""]
    timid: Bool[Array, ""]
    endless: Bool[Array, ""]


class Options(NamedTuple):
    """Where to stop.

    Attributes:
        relaxation: rho, the target of every complementarity product.
        tolerance: largest scaled residual row and largest error of s o z = rho e.
        max_iterations: Newton steps, all attempts together.
        polish: largest number of further Newton steps once both tolerances are met. Each
            squares the error: two or three take it to rounding.
        accept: whether a guess that meets both tolerances is a solution as it is. Otherwise it
            takes a step, so that what changes by less than the tolerance still moves, unless
            that would add nothing (see `is_exact`).
    """

    relaxation: Float[Array, ""]
    tolerance: Float[Array, ""]
    max_iterations: int
    polish: int = 0
    accept: bool = False


class Measures(NamedTuple):
    """The conditions with the size of their rows and the error of complementarity.

    `memos` are those of the point, for the Jacobian there.
    """

    conditions: Conditions
    memos: tuple
    residual: Float[Array, ""]
    complementarity: Float[Array, ""]

    @property
    def error(self) -> Float[Array, ""]:
        """The larger of both."""
        return jnp.maximum(self.residual, self.complementarity)


class Iterate(NamedTuple):
    """Where an attempt is."""

    w: Variables
    measures: Measures
    iterations: Int[Array, ""]
    begun: Int[Array, ""]  # iteration at which this attempt set out
    short_steps: Int[Array, ""]
    easing: Float[Array, ""]
    path: Path
    polishing: Int[Array, ""]  # steps left once the tolerances are met
    fold: Variables  # where easing began, the present place if it has not
    folded: Bool[Array, ""]  # whether it has

    @property
    def stalled(self) -> Bool[Array, ""]:
        """Whether steps have become too short."""
        return self.short_steps >= PATIENCE


class _Step(NamedTuple):
    """A step of Newton's method or along a path."""

    change: Variables
    length: Float[Array, ""]  # of its first trial, as a multiple of `change`
    along: paths.Step
    leaps: Bool[Array, ""]  # whether a leap is tried first
    leap: Variables  # its change
    product: Float[Array, ""]  # where it ends


def begin(
    problem: Problem, w: Variables, iterations: Array, how: Attempt, options: Options
) -> Iterate:
    """An attempt before its first step."""
    easing, zero = how.easing.astype(w.y.dtype), jnp.zeros((), int)
    measures = _measure(problem.eased(easing), w, options)
    polished = measures.error < POLISHED * options.relaxation
    left = jnp.where(polished, 0, zero + options.polish)
    path = _path(problem, w, measures, how.follow, options)
    no = jnp.zeros((), bool)
    return Iterate(w, measures, iterations, iterations, zero, easing, path, left, w, no)


def _path(problem: Problem, w: Variables, m: Measures, wanted: Array, options: Options) -> Path:
    """The path from here, if wanted."""
    if problem.monotone:
        return paths.inactive(w, m.conditions)
    set_out = partial(paths.begin, problem, w, m.conditions, options.relaxation)
    return jax.lax.cond(wanted, set_out, partial(paths.inactive, w, m.conditions))


def walk(
    problem: Problem, it: Iterate, how: Attempt, options: Options, most: Array | None = None
) -> Iterate:
    """Newton steps until all is done or there is no hope, or `most` of them."""
    before = it.iterations

    def unfinished(it: Iterate) -> Bool[Array, ""]:
        walking = is_walking(it, how, options)
        return walking if most is None else walking & (it.iterations - before < most)

    def step(it: Iterate) -> Iterate:
        return _polished(it, _advance(problem, it, options), how, options)

    return jax.lax.while_loop(unfinished, step, it)


def is_walking(it: Iterate, how: Attempt, options: Options) -> Bool[Array, ""]:
    """Whether an attempt goes on."""
    close = (it.measures.error < NO_FOLD) & ~how.timid
    longest = how.longest * jnp.where(close, LONGER, 1)
    hopeless = it.stalled | (it.iterations - it.begun >= longest)
    hopeless |= how.timid & (it.easing > 0)
    lost = (it.path.reach < LEAST_REACH) | (it.path.share > paths.ASTRAY)
    hopeless |= it.path.active & lost
    searching = (it.iterations < options.max_iterations) & (how.endless | ~hopeless)
    return jnp.where(is_done(it, options), (it.polishing > 0) | _untried(it, how), searching)


def _untried(it: Iterate, how: Attempt) -> Bool[Array, ""]:
    """Whether this is a guess before its first step."""
    return how.timid & (it.iterations == it.begun)


def _polished(old: Iterate, new: Iterate, how: Attempt, options: Options) -> Iterate:
    """After convergence: keep a step only if it lowers the error, and count none but the first
    one from a guess."""
    error, lower = old.measures.error, new.measures.error
    kept = choose(lower < error, new, old)
    enough = (lower >= error) | (lower < POLISHED * options.relaxation)
    left = jnp.where(enough, 0, old.polishing - 1)
    counted = jnp.where(_untried(old, how), new.iterations, old.iterations)
    kept = kept._replace(iterations=counted, polishing=left)
    return choose(is_done(old, options), kept, new)


def _advance(problem: Problem, it: Iterate, options: Options) -> Iterate:
    """One iteration: factorise, find a step, shorten it."""
    it = it._replace(path=it.path._replace(active=it.path.active & ~is_done(it, options)))
    eased = problem.eased(it.easing).with_memos(it.measures.memos)
    step = _step(eased, kkt.factorize(eased, it.w, it.easing), it, options)
    trial = _accept(problem, it, step, options)
    w, measures = trial.w, trial.measures
    followed = partial(_followed, it.path, step.along, trial.fraction)
    finite = jnp.isfinite(measures.residual) & jnp.isfinite(measures.complementarity)
    return it._replace(
        w=choose(finite, w, it.w),
        measures=choose(finite, measures, it.measures),
        iterations=it.iterations + 1,
        short_steps=trial.short_steps,
        easing=jnp.where(finite, trial.easing, it.easing),
        path=_by_mode(problem, it.path, followed, lambda: it.path),
        fold=choose(finite & ~it.folded, w, it.fold),
        folded=it.folded | (trial.easing > 0),
    )


def _difficulty(it: Iterate, length: Array, options: Options) -> tuple[Array, Array]:
    """What a step of this length makes of easing and short steps."""
    walking = ~it.path.active
    short = jnp.where((length < STALLED_STEP) & walking, it.short_steps + 1, 0)
    # Close to a solution short steps are no fold, and easing would lead away from it.
    fold = (length < SHORT_STEP) & ((it.measures.error > NO_FOLD) | (it.easing > 0)) & walking
    easing = jnp.where(fold, 1, DECAY * it.easing)
    last = it.iterations + 1 >= options.max_iterations  # which is judged by the problem itself
    gone = (easing < LEAST_EASING) | _solved(it, options) | last
    easing = jnp.where(gone, 0, easing).astype(it.easing.dtype)
    # A direction that is not finite cannot be shortened: count it as a full stall.
    return easing, jnp.where(jnp.isfinite(length), short, PATIENCE)


def _step(problem: Problem, factor: kkt.Factor, it: Iterate, options: Options) -> _Step:
    """Of Newton's method, or along the path if one is followed."""
    c, path, rho = it.measures.conditions, it.path, options.relaxation
    target, other = _by_mode(
        problem,
        path,
        lambda: (paths.missing(problem, c, path, rho), path.anchor),
        lambda: (remainder(problem, c, rho), excess(problem, it.w, c, rho, _central(it))),
    )
    first, second = kkt.directions(problem, factor, _accuracy(it), _negative(target), other)

    def follow() -> _Step:
        step = paths.predict(problem, it.w, path, first, second)
        no = jnp.zeros((), bool)
        return _Step(step.change, jnp.ones_like(rho), step, no, step.change, rho)

    def newton() -> _Step:
        return _newton_step(problem, factor, it, first, second, options)

    return _by_mode(problem, path, follow, newton)


def _by_mode(problem: Problem, path: Path, follow: Callable, newton: Callable) -> Any:
    """`follow()` where a path is followed, else `newton()`; monotone problems follow none."""
    return newton() if problem.monotone else jax.lax.cond(path.active, follow, newton)


def _followed(path: Path, step: paths.Step, fraction: Array) -> Path:
    """The path after a step, left where it has ended or Newton's method gets on."""
    path = paths.shortened(path, step, fraction)
    straight = (step.slope < 0) & (BOUNDARY * step.straight >= paths.STRAIGHT)
    return path._replace(active=(path.share > 0) & ~(straight & path.turned))


def _newton_step(
    problem: Problem,
    factor: kkt.Factor,
    it: Iterate,
    affine: Variables,
    centring: Variables,
    options: Options,
) -> _Step:
    """Towards a lower target, corrected to second order where that does not shorten the step."""
    w, c, rho = it.w, it.measures.conditions, options.relaxation
    off = product_norm(_second_order(problem, c, affine))
    curvature = off / jnp.maximum(mean_product(problem, w), rho)
    share = _share(problem, it, affine, curvature, rho)
    step = leap = _move(affine, centring, share)
    product = rho + share * jnp.maximum(mean_product(problem, w) - rho, 0)
    longest = boundary_step(problem, w, step)

    def correct() -> tuple[Variables, Float[Array, ""]]:
        missing = _second_order(problem, c, step)
        (more,) = kkt.directions(problem, factor, _accuracy(it), _negative(missing))
        other = jax.tree.map(jnp.add, step, more)
        further = boundary_step(problem, w, other)
        better = (further > longest) | (BOUNDARY * further >= 1)
        return choose(better, (other, further), (step, longest))

    wanted = (BOUNDARY * longest < 1) | (curvature > NEGLIGIBLE)
    wanted &= it.measures.error < NEAR
    step, longest = jax.lax.cond(wanted, correct, lambda: (step, longest))
    length = jnp.minimum(1, BOUNDARY * longest)
    leaps = (length < 1) & _central(it)
    return _Step(step, length, _nowhere(w, longest), leaps, leap, product)


def _nowhere(w: Variables, like: Array) -> paths.Step:
    zero, still = jnp.zeros_like(like), jax.tree.map(jnp.zeros_like, w)
    return paths.Step(still, zero, zero, still, zero, zero)


def _share(
    problem: Problem, it: Iterate, affine: Variables, curvature: Array, rho: Array
) -> Float[Array, ""]:
    """How much of its excess over rho each cell is to keep: the less the affine step would leave,
    the less, and enough to make up for its curvature."""
    above = mean_product(problem, it.w) - rho
    predicted = _move(it.w, affine, jnp.minimum(1, boundary_step(problem, it.w, affine)))
    left, floor = mean_product(problem, predicted) - rho, FLOOR * it.easing * it.measures.residual
    ratios = jnp.stack([left, floor]) / jnp.where(above > 0, above, jnp.inf)
    affine_share, least = jnp.clip(ratios, 0, 1)
    curved = jnp.where(_central(it), jnp.minimum(CURVED * curvature, LARGEST_SHARE), 0)
    return jnp.maximum(affine_share**EXPONENT, jnp.maximum(least, curved))


def _second_order(problem: Problem, like: Conditions, step: Variables) -> Conditions:
    """Zero rows, and the products ds o dz that Newton's method leaves out."""
    products = [
        group.cone.product(change.slack, change.dual)
        for group, change in zip(problem.groups, step.cells, strict=True)
    ]
    return like.of_products(products)


def _accuracy(it: Iterate) -> Float[Array, ""]:
    """Of directions, relative."""
    return jnp.where(it.measures.error < NEAR, ACCURACY_NEAR, ACCURACY)


def _central(it: Iterate) -> Bool[Array, ""]:
    """Whether the iterate is to stay close to the central path."""
    return it.measures.error < CENTRAL


class _Trial(NamedTuple):
    """Where a step may end."""

    halvings: Int[Array, ""]  # of the straight step; one less than none for a leap
    w: Variables
    measures: Measures
    fraction: Float[Array, ""]  # of the straight step
    easing: Float[Array, ""]
    short_steps: Int[Array, ""]


def _accept(problem: Problem, it: Iterate, step: _Step, options: Options) -> _Trial:
    """Leap if that pays, otherwise halve the straight step until it is good enough."""
    first = jnp.where(step.leaps, -1, 0)
    difficulty = _difficulty(it, step.length, options)
    calm = _difficulty(it, jnp.ones_like(step.length), options)

    def leap(_: Array) -> Variables:
        w = _move(it.w, step.leap, jnp.ones_like(step.length))
        return centred(problem, w, multiples(problem, step.product))

    def along(fraction: Array) -> Variables:
        w = _move(it.w, step.change, step.length * fraction)
        path = paths.shortened(it.path, step.along, fraction)
        land = partial(paths.landing, problem, w, path, options.relaxation)
        return _by_mode(problem, it.path, land, lambda: w)

    def unfinished(trial: _Trial) -> Bool[Array, ""]:
        accepted = jax.lax.cond(
            trial.halvings < 0,
            lambda: _pays(problem, it, trial),
            lambda: _is_good(problem, it, step, trial, options),
        )
        return (trial.halvings < first) | (~accepted & (trial.halvings + 1 < HALVINGS))

    def next_one(trial: _Trial) -> _Trial:
        halvings = trial.halvings + 1
        fraction = 0.5 ** jnp.maximum(halvings, 0).astype(step.length.dtype)
        leaps = halvings < 0
        w = jax.lax.cond(leaps, leap, along, fraction)
        easing, short = choose(leaps, calm, difficulty)
        measures = _measure(problem.eased(easing), w, options)
        return _Trial(halvings, w, measures, fraction, easing, short)

    none = _Trial(first - 1, it.w, it.measures, jnp.ones_like(step.length), *difficulty)
    return jax.lax.while_loop(unfinished, next_one, none)


def _pays(problem: Problem, it: Iterate, leap: _Trial) -> Bool[Array, ""]:
    """Whether a leap leads far, and to a place from which Newton's method gets on."""
    less = leap.measures.error < LEAP * it.measures.error
    balanced = leap.measures.residual <= jnp.sqrt(mean_product(problem, leap.w))
    return less & balanced & is_interior(problem, leap.w)


def _is_good(
    problem: Problem, it: Iterate, step: _Step, trial: _Trial, options: Options
) -> Bool[Array, ""]:
    """Newton's method has to lower residual or complementarity, a step along a path has to end
    close to it."""
    before, after, rho = it.measures, trial.measures, options.relaxation

    def lower() -> Bool[Array, ""]:
        less = after.complementarity < before.complementarity
        return less | (after.residual < before.residual)

    def close() -> Bool[Array, ""]:
        distance = paths.distance(problem, before.conditions, it.path, rho)
        path = paths.shortened(it.path, step.along, trial.fraction)
        return paths.is_close(paths.distance(problem, after.conditions, path, rho), distance)

    return _by_mode(problem, it.path, close, lower)


def _solved(it: Iterate, options: Options) -> Bool[Array, ""]:
    """Whether the problem is, at the present easing."""
    return it.measures.error <= options.tolerance


def is_done(it: Iterate, options: Options) -> Bool[Array, ""]:
    """Whether the problem itself is solved."""
    return _solved(it, options) & (it.easing == 0)


def is_exact(it: Iterate, options: Options) -> Bool[Array, ""]:
    """Whether it solves the problem so well that a further step would add nothing."""
    polished, rough = POLISHED * options.relaxation, EXACT * options.tolerance
    return it.measures.error < jnp.where(jnp.asarray(options.polish) > 0, polished, rough)


def _negative(c: Conditions) -> Conditions:
    return jax.tree.map(jnp.negative, c)


def _move(w: Variables, direction: Variables, length: Float[Array, ""]) -> Variables:
    return jax.tree.map(lambda v, d: v + length * d, w, direction)


def _measure(problem: Problem, w: Variables, options: Options) -> Measures:
    problem = problem.prepared(w.y)
    found = conditions(problem, w)
    off = product_norm(remainder(problem, found, options.relaxation))
    return Measures(found, problem.memos, residual_norm(problem, found), off)
