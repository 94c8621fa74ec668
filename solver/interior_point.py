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

Where a problem is not monotone its central path folds, and Newton steps shrink to nothing
before a fold. Each iterate therefore carries an easing, from 0 (the problem itself) to 1 (a
tamer relative that the cells offer, see `CellGroup`): a short step sets it to 1, every other
step halves it until the problem itself is back. Where that stalls, or leads back to the same
fold, the path is followed around it (see `path`) until Newton's method takes a long step again.
Where that leads astray, another attempt sets out from the same start: one that is eased from the
beginning, follows paths earlier, or keeps further from the boundary.

A guess, such as the solution of a neighbouring problem, is tried before all that: pushed back to
the central path, the further the less it solves, and given up at the first sign of trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver import dense, kkt
from silico_py.solver import path as paths
from silico_py.solver.fusion import fused
from silico_py.solver.path import Path
from silico_py.solver.problem import (
    Conditions,
    Problem,
    Variables,
    boundary_step,
    conditions,
    excess,
    mean_product,
    product_norm,
    remainder,
    residual_norm,
)
from silico_py.solver.status import Status

HALVINGS = 4
EXPONENT = 3  # of the predicted reduction that sets the centring
CENTRAL = 0.3  # error below which the iterate is kept close to the central path
CURVED = 0.5  # share of the products that is kept there, in what is off after the affine step
LARGEST_SHARE = 0.3  # of those kept for that reason
NEGLIGIBLE = 1e-3  # curvature, in mean products, that a step need not be corrected for
SHORT_STEP = 0.3  # shorter steps are a fold
STALLED_STEP = 0.1
PATIENCE = 3  # steps in a row shorter than STALLED_STEP that are a stall
DECAY = 0.5  # of the easing
SAME_FOLD = 0.5  # share of the error at the last fold above which a fold is that one again
LEAST_EASING = 0.05  # below it the problem itself is solved
# Products that vanish long before the residual leave the iterate stuck to the boundary.
FLOOR = 0.5  # least centring target at full easing, in residuals
LONGEST = 35  # steps of an attempt
LONGER = 1.5  # times as many where it is close to a solution
LONGEST_GUESS = 7  # of one that sets out from a guess
FAR_GUESS = 0.5  # residual of a guess that is not worth a step
GUESS_PRODUCT = 0.1  # of a guess pushed back, in the larger of r^2 and min(r, sqrt(rho))
LONGEST_DETOUR = 15  # steps along a path that does not begin at the start
LEAST_REACH = 1e-4  # of a step along such a path
NO_REACH = 1e-8  # the same along a path from the start
NO_FOLD = 1e-4  # error that is close to a solution: below it a short step is no fold
POLISHED = 1e-8  # error, in relaxations, that polishing is content with
STALL, FOLD, START = range(3)


class Attempt(NamedTuple):
    """How to walk.

    Attributes:
        easing: of the first step.
        follow: when to follow a path: where easing stalls (`STALL`), at a fold and without
            easing (`FOLD`), or from the start on until it has turned (`START`).
        boundary: fraction of the step to the boundary of the cones.
        near: error below which steps are corrected to second order.
        longest: number of steps.
        timid: whether it gives up where easing would begin.
    """

    easing: float
    follow: int
    boundary: float
    near: float
    longest: int = LONGEST
    timid: bool = False


# With a guess, before all others: a look at it, and an attempt from there.
GUESSES = (
    Attempt(0, STALL, 0.97, 0.1, longest=0),
    Attempt(0, STALL, 0.97, 0.1, LONGEST_GUESS, timid=True),
)
LOOK, GUESSED, COLD = range(3)  # COLD is the first attempt without it
# What the first cannot solve the second mostly does, in ten iterations; as the first it would take
# 6 % more of them and fail more often.
ATTEMPTS = (
    Attempt(0, STALL, 0.97, 0.1),
    Attempt(1, STALL, 0.97, 0.1),
    Attempt(0, START, 0.97, 0.1),
    Attempt(0, FOLD, 0.97, 0.1),
    Attempt(0, STALL, 0.8, inf),
    Attempt(1, STALL, 0.6, 0.1),
)


class Options(NamedTuple):
    """Where to stop.

    Attributes:
        relaxation: rho, the target of every complementarity product.
        tolerance: largest scaled residual row and largest error of s o z = rho e.
        max_iterations: Newton steps, all attempts together.
        polish: largest number of further Newton steps once both tolerances are met. Each
            squares the error: two or three take it to rounding.
        accept: whether a guess that meets both tolerances is a solution as it is. Otherwise it
            takes a step at least, so that what changes by less than the tolerance still moves.
    """

    relaxation: Float[Array, ""]
    tolerance: Float[Array, ""]
    max_iterations: int
    polish: int = 0
    accept: bool = False


class Guess(NamedTuple):
    """A point that may be close to the solution, such as that of a neighbouring problem.

    It need not be interior. One that is not `usable` is ignored.
    """

    variables: Variables
    usable: Bool[Array, ""]


class Measures(NamedTuple):
    """The conditions with the size of their rows and the error of complementarity.

    `memos` are those of the point, for the Jacobian there.
    """

    conditions: Conditions
    memos: tuple
    residual: Float[Array, ""]
    complementarity: Float[Array, ""]


class Solution(NamedTuple):
    """Result of `solve`."""

    variables: Variables
    status: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    complementarity: Float[Array, ""]

    @property
    def converged(self) -> Bool[Array, ""]:
        """Whether both tolerances are met."""
        return self.status == Status.CONVERGED


class _Iterate(NamedTuple):
    w: Variables
    measures: Measures
    iterations: Int[Array, ""]
    begun: Int[Array, ""]  # iteration at which this attempt set out
    short_steps: Int[Array, ""]
    easing: Float[Array, ""]
    fold: Float[Array, ""]  # error where easing last began
    path: Path
    polishing: Int[Array, ""]  # steps left once the tolerances are met


class _Step(NamedTuple):
    """A step of Newton's method or along a path."""

    change: Variables
    length: Float[Array, ""]  # of its first trial, as a multiple of `change`
    along: paths.Step


def solve(
    problem: Problem, start: Variables, options: Options, guess: Guess | None = None
) -> Solution:
    """Find the point of the central path at `options.relaxation`.

    Args:
        problem: the problem.
        start: an interior point.
        options: where to stop.
        guess: is tried first, unless the problem is monotone.
    """

    def search(data: tuple, *args: Any) -> Solution:
        return _search(problem.with_data(data), *args)

    return fused_if_small(search, problem, start)(problem.data, start, options, guess)


def fused_if_small(function: Callable, problem: Problem, w: Variables) -> Callable:
    """`function`, as one kernel if that is worth it for this problem with variables `w`."""
    fusible = all(group.fusible for group in problem.groups)
    return fused(function) if fusible and kkt.size(w) <= dense.LARGEST_SYSTEM else function


def _search(
    problem: Problem, start: Variables, options: Options, guess: Guess | None = None
) -> Solution:
    attempts = GUESSES + ATTEMPTS
    table = [jnp.array(column) for column in zip(*attempts, strict=True)]
    zero, cold = jnp.zeros((), int), Attempt(*(column[COLD] for column in table))
    if problem.monotone:
        it = _begin(problem, start, zero, cold, options)
        return _solution(_walk(problem, it, cold, jnp.asarray(True), options), options)
    first = zero + COLD if guess is None else jnp.where(guess.usable, LOOK, COLD)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        k, it = carry
        left = (k < len(attempts)) & (it.iterations < options.max_iterations)
        accepted = (k == GUESSED) & _done(it, options) & options.accept
        untried = (it.iterations == 0) & (k <= COLD) & ~accepted
        return untried | (left & ~_done(it, options))

    def attempt(carry: tuple) -> tuple:
        k, last = carry
        how = Attempt(*(column[k] for column in table))
        w = start if guess is None else _departure(problem, k, last, start, guess, options)
        it = _begin(problem, w, last.iterations, how, options)
        it = _walk(problem, it, how, k + 1 == len(attempts), options)
        far = (k == LOOK) & ~(it.measures.residual < FAR_GUESS)
        return jnp.where(far, COLD, k + 1), it

    shapes = jax.eval_shape(partial(_begin, problem, options=options), start, zero, cold)
    nothing = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
    return _solution(jax.lax.while_loop(unfinished, attempt, (first, nothing))[1], options)


def _departure(
    problem: Problem, k: Array, last: _Iterate, start: Variables, guess: Guess, options: Options
) -> Variables:
    """Where attempt `k` sets out."""
    w, residual, rho = guess.variables, last.measures.residual, options.relaxation
    # More than rho, so that what leaves is never done.
    wanted = jnp.maximum(residual**2, jnp.minimum(residual, jnp.sqrt(rho)))
    product = jnp.clip(GUESS_PRODUCT * wanted, 2 * rho, 1)
    cells = []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        slack, dual = group.cone.central_pair(cell.slack - cell.dual, product)
        cells.append(cell._replace(slack=slack, dual=dual))
    central = w._replace(cells=tuple(cells))
    return _where(k >= COLD, start, _where(k == GUESSED, central, w))


def _begin(
    problem: Problem, w: Variables, iterations: Array, how: Attempt, options: Options
) -> _Iterate:
    """An attempt before its first step."""
    easing, zero = how.easing.astype(w.y.dtype), jnp.zeros((), int)
    none = jnp.full_like(easing, jnp.inf)
    measures = _measure(problem.eased(easing), w, options)
    path = _path(problem, w, measures, how.follow == START, options)
    polished = _error(measures) < POLISHED * options.relaxation
    left = jnp.where(polished, 0, zero + options.polish)
    return _Iterate(w, measures, iterations, iterations, zero, easing, none, path, left)


def _path(problem: Problem, w: Variables, m: Measures, wanted: Array, options: Options) -> Path:
    """The path from here, if wanted."""
    if problem.monotone:
        return paths.inactive(w, m.conditions)
    begin = partial(paths.begin, problem, w, m.conditions, options.relaxation)
    return jax.lax.cond(wanted, begin, partial(paths.inactive, w, m.conditions))


def _walk(problem: Problem, it: _Iterate, how: Attempt, last: Array, options: Options) -> _Iterate:
    """Newton steps until all is done or there is no hope; the last attempt never gives up."""

    def unfinished(it: _Iterate) -> Bool[Array, ""]:
        stalled = (it.short_steps >= PATIENCE) & ~it.path.active
        detour = how.follow != START
        lost = it.path.reach < jnp.where(detour, LEAST_REACH, NO_REACH)
        lost |= (it.path.share > paths.ASTRAY) | (detour & (it.path.steps > LONGEST_DETOUR))
        close = (_error(it.measures) < NO_FOLD) & ~how.timid
        longest = how.longest * jnp.where(close, LONGER, 1)
        hopeless = stalled | (it.iterations - it.begun >= longest) | (it.path.active & lost)
        hopeless |= how.timid & (it.easing > 0)
        searching = (it.iterations < options.max_iterations) & (last | ~hopeless)
        return jnp.where(_done(it, options), it.polishing > 0, searching)

    def step(it: _Iterate) -> _Iterate:
        return _polished(it, _advance(problem, it, how, options), options)

    return jax.lax.while_loop(unfinished, step, it)


def _polished(old: _Iterate, new: _Iterate, options: Options) -> _Iterate:
    """After convergence: keep a step only if it lowers the error, and do not count it."""
    error, lower = _error(old.measures), _error(new.measures)
    kept = _where(lower < error, new, old)
    enough = (lower >= error) | (lower < POLISHED * options.relaxation)
    left = jnp.where(enough, 0, old.polishing - 1)
    kept = kept._replace(iterations=old.iterations, polishing=left)
    return _where(_done(old, options), kept, new)


def _solution(last: _Iterate, options: Options) -> Solution:
    m = last.measures
    finite = jnp.isfinite(m.residual) & jnp.isfinite(m.complementarity)
    status = jnp.select(
        [_done(last, options), ~finite, last.short_steps >= PATIENCE],
        [Status.CONVERGED, Status.NOT_FINITE, Status.STALLED],
        Status.MAX_ITERATIONS,
    )
    return Solution(last.w, status, last.iterations, m.residual, m.complementarity)


def _advance(problem: Problem, it: _Iterate, how: Attempt, options: Options) -> _Iterate:
    """One iteration: factorise, find a step, shorten it, and see whether to follow a path."""
    it = it._replace(path=it.path._replace(active=it.path.active & ~_done(it, options)))
    eased = problem.eased(it.easing).with_memos(it.measures.memos)
    factor = kkt.factorize(eased, it.w, it.easing)
    step = _step(eased, factor, it, how, options)
    easing, short, detour = _difficulty(it, step.length, how, options)
    w, measures, fraction = _accept(problem.eased(easing), it, step, options)
    path = _by_mode(
        problem,
        it.path,
        lambda: _followed(it.path, step.along, fraction, how),
        lambda: _path(problem, w, measures, detour, options),
    )
    finite = jnp.isfinite(measures.residual) & jnp.isfinite(measures.complementarity)
    return it._replace(
        w=_where(finite, w, it.w),
        measures=_where(finite, measures, it.measures),
        iterations=it.iterations + 1,
        short_steps=short,
        fold=jnp.where((it.easing == 0) & (easing > 0), _error(it.measures), it.fold),
        easing=jnp.where(finite, easing, it.easing),
        path=path,
    )


def _difficulty(
    it: _Iterate, length: Array, how: Attempt, options: Options
) -> tuple[Array, Array, Array]:
    """What a step of this length makes of easing and short steps; whether to follow a path."""
    walking = ~it.path.active
    short = jnp.where((length < STALLED_STEP) & walking, it.short_steps + 1, 0)
    # Close to a solution short steps are no fold, and easing would lead away from it.
    fold = (length < SHORT_STEP) & ((_error(it.measures) > NO_FOLD) | (it.easing > 0)) & walking
    again = (it.easing == 0) & (_error(it.measures) > SAME_FOLD * it.fold)
    detour = fold & ((how.follow != STALL) | (short >= PATIENCE) | again)
    easing = jnp.where(fold & (how.follow == STALL), 1, DECAY * it.easing)
    last = it.iterations + 1 >= options.max_iterations  # which is judged by the problem itself
    gone = (easing < LEAST_EASING) | _solved(it, options) | detour | last
    easing = jnp.where(gone, 0, easing).astype(it.easing.dtype)
    # A direction that is not finite cannot be shortened: count it as a full stall.
    return easing, jnp.where(jnp.isfinite(length), short, PATIENCE), detour


def _step(
    problem: Problem, factor: kkt.Factor, it: _Iterate, how: Attempt, options: Options
) -> _Step:
    """Of Newton's method, or along the path if one is followed."""
    c, path, rho = it.measures.conditions, it.path, options.relaxation
    target, other = _by_mode(
        problem,
        path,
        lambda: (paths.missing(problem, c, path, rho), path.anchor),
        lambda: (remainder(problem, c, rho), excess(problem, it.w, c, rho, _central(it))),
    )
    first, second = kkt.directions(problem, factor, _negative(target), other)

    def follow() -> _Step:
        step = paths.predict(problem, it.w, path, first, second)
        return _Step(step.change, jnp.ones_like(rho), step)

    def newton() -> _Step:
        return _newton_step(problem, factor, it, first, second, how, options)

    return _by_mode(problem, path, follow, newton)


def _by_mode(problem: Problem, path: Path, follow: Callable, newton: Callable) -> Any:
    """`follow()` where a path is followed, else `newton()`; monotone problems follow none."""
    return newton() if problem.monotone else jax.lax.cond(path.active, follow, newton)


def _followed(path: Path, step: paths.Step, fraction: Array, how: Attempt) -> Path:
    """The path after a step, left where it has ended or Newton's method gets on."""
    path = paths.shortened(path, step, fraction)
    straight = (step.slope < 0) & (how.boundary * step.straight >= paths.STRAIGHT)
    leave = (path.share == 0) | (straight & (path.turned | (how.follow != START)))
    return path._replace(active=~leave)


def _newton_step(
    problem: Problem,
    factor: kkt.Factor,
    it: _Iterate,
    affine: Variables,
    centring: Variables,
    how: Attempt,
    options: Options,
) -> _Step:
    """Towards a lower target, corrected to second order where that does not shorten the step."""
    w, rho, error = it.w, options.relaxation, _error(it.measures)
    off = product_norm(_second_order(problem, it.measures.conditions, affine))
    curvature = off / jnp.maximum(mean_product(problem, w), rho)
    step = _move(affine, centring, _share(problem, it, affine, curvature, rho))
    longest = boundary_step(problem, w, step)

    def correct() -> tuple[Variables, Float[Array, ""]]:
        missing = _second_order(problem, it.measures.conditions, step)
        (more,) = kkt.directions(problem, factor, _negative(missing))
        other = jax.tree.map(jnp.add, step, more)
        further = boundary_step(problem, w, other)
        better = (further > longest) | (how.boundary * further >= 1)
        return _where(better, (other, further), (step, longest))

    wanted = (how.boundary * longest < 1) | (curvature > NEGLIGIBLE)
    wanted &= error < how.near
    step, longest = jax.lax.cond(wanted, correct, lambda: (step, longest))
    nowhere = _nowhere(w, longest)
    return _Step(step, jnp.minimum(1, how.boundary * longest), nowhere)


def _nowhere(w: Variables, like: Array) -> paths.Step:
    zero, still = jnp.zeros_like(like), jax.tree.map(jnp.zeros_like, w)
    return paths.Step(still, zero, zero, still, zero, zero)


def _share(
    problem: Problem, it: _Iterate, affine: Variables, curvature: Array, rho: Array
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
    rows = jax.tree.map(jnp.zeros_like, like)
    cells = [
        cell._replace(product=group.cone.product(change.slack, change.dual))
        for group, cell, change in zip(problem.groups, rows.cells, step.cells, strict=True)
    ]
    return rows._replace(cells=tuple(cells))


def _central(it: _Iterate) -> Bool[Array, ""]:
    """Whether the iterate is to stay close to the central path."""
    return _error(it.measures) < CENTRAL


def _accept(
    problem: Problem, it: _Iterate, step: _Step, options: Options
) -> tuple[Variables, Measures, Float[Array, ""]]:
    """Halve the step until it is good enough.

    Newton's method has to lower residual or complementarity, a step along a path has to end
    close to it.
    """
    rho = options.relaxation

    def lower(m: Measures) -> Bool[Array, ""]:
        less = m.complementarity < it.measures.complementarity
        return less | (m.residual < it.measures.residual)

    def close(m: Measures, fraction: Array) -> Bool[Array, ""]:
        before = paths.distance(problem, it.measures.conditions, it.path, rho)
        path = paths.shortened(it.path, step.along, fraction)
        return paths.is_close(paths.distance(problem, m.conditions, path, rho), path, before)

    def good(m: Measures, fraction: Array) -> Bool[Array, ""]:
        return _by_mode(problem, it.path, lambda: close(m, fraction), lambda: lower(m))

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        k, _, measures, fraction = carry
        return (k == 0) | (~good(measures, fraction) & (k < HALVINGS))

    def shorten(carry: tuple) -> tuple:
        k, fraction = carry[0], 0.5 ** carry[0].astype(rho.dtype)
        w = _move(it.w, step.change, step.length * fraction)
        return k + 1, w, _measure(problem, w, options), fraction

    start = (jnp.zeros((), int), it.w, it.measures, jnp.ones_like(rho))
    _, w, measures, fraction = jax.lax.while_loop(unfinished, shorten, start)
    return w, measures, fraction


def _error(m: Measures) -> Float[Array, ""]:
    return jnp.maximum(m.residual, m.complementarity)


def _solved(it: _Iterate, options: Options) -> Bool[Array, ""]:
    """Whether the problem is, at the present easing."""
    return _error(it.measures) <= options.tolerance


def _done(it: _Iterate, options: Options) -> Bool[Array, ""]:
    return _solved(it, options) & (it.easing == 0)


def _where(condition: Bool[Array, ""], first: tuple, second: tuple) -> tuple:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _negative(c: Conditions) -> Conditions:
    return jax.tree.map(jnp.negative, c)


def _move(w: Variables, direction: Variables, length: Float[Array, ""]) -> Variables:
    return jax.tree.map(lambda v, d: v + length * d, w, direction)


def _measure(problem: Problem, w: Variables, options: Options) -> Measures:
    problem = problem.prepared(w.y)
    found = conditions(problem, w)
    off = product_norm(remainder(problem, found, options.relaxation))
    return Measures(found, problem.memos, residual_norm(problem, found), off)
