"""Primal-dual interior point with a predictor that sets the centring.

Newton directions on the relaxed conditions, a fraction of the step to the boundary, and a
step halved until the residual or the complementarity error goes down. Mehrotra's
second-order term is that of the whole step, and is kept where it lets the step be longer. Far
from a solution it does more harm than good, for these problems are not monotone.

Where a problem is not monotone its central path folds, and Newton steps shrink to nothing
before a fold. Each iterate therefore carries an easing, from 0 (the problem itself) to 1 (a
tamer relative that the cells offer, see `CellGroup`): a short step sets it to 1, every other
step halves it until the problem itself is back. Where that stalls too, another attempt sets
out from the same start: eased from the first step on, or keeping further from the boundary.
Which of the attempts in the table `ATTEMPTS` gets round a fold is close to chance, so that
together they fail much less often than each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver import dense, kkt
from silico_py.solver.fusion import fused
from silico_py.solver.problem import Problem, Residual, Variables, residual, residual_norm
from silico_py.solver.status import Status

HALVINGS = 6
EXPONENT = 2  # of the predicted reduction that sets the centring
SHORT_STEP = 0.3  # shorter steps ease the problem
STALLED_STEP = 0.1
PATIENCE = 3  # steps in a row shorter than STALLED_STEP that are a stall
DECAY = 0.5  # of the easing
LEAST_EASING = 0.05  # below it the problem itself is solved
# Products that vanish long before the residual leave the iterate stuck to the boundary.
FLOOR = 0.05  # least centring target at full easing, in residuals
LONGEST = 35  # steps of an attempt
NO_FOLD = 1e-4  # error below which no step eases the problem
POLISHED = 1e-8  # error, in relaxations, that polishing is content with


class Attempt(NamedTuple):
    """How to walk.

    Attributes:
        easing: of the first step.
        boundary: fraction of the step to the boundary of the cones.
        near: error below which steps are corrected to second order.
    """

    easing: float
    boundary: float
    near: float


# Of 102 steps on which the first two without second-order terms spend 30 iterations in vain,
# these solve 68 in 30 and 101 in 100.
# Other starts (moved at random or with the free motion) do as well, not better.
ATTEMPTS = (
    Attempt(0, 0.97, 0.1),
    Attempt(1, 0.97, 0.1),
    Attempt(0, 0.97, inf),
    Attempt(0, 0.8, inf),
    Attempt(1, 0.6, 0.1),
    Attempt(0, 0.6, 0.1),
)


class Options(NamedTuple):
    """Where to stop.

    Attributes:
        relaxation: rho, the target of every complementarity product.
        tolerance: largest scaled residual row and largest error of s o z = rho e.
        max_iterations: Newton steps, all attempts together.
        polish: largest number of further Newton steps once both tolerances are met. Each
            squares the error: two or three take it to rounding.
    """

    relaxation: Float[Array, ""]
    tolerance: Float[Array, ""]
    max_iterations: int
    polish: int = 0


class Measures(NamedTuple):
    """A residual with its size and the error of complementarity."""

    rows: Residual
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
    polishing: Int[Array, ""]  # steps left once the tolerances are met


def _polished(old: _Iterate, new: _Iterate, options: Options) -> _Iterate:
    """After convergence: keep a step only if it lowers the error, and do not count it."""
    error, lower = _error(old.measures), _error(new.measures)
    kept = _where(lower < error, new, old)
    enough = (lower >= error) | (lower < POLISHED * options.relaxation)
    left = jnp.where(enough, 0, old.polishing - 1)
    kept = kept._replace(iterations=old.iterations, polishing=left)
    return _where(_done(old, options), kept, new)


def solve(problem: Problem, start: Variables, options: Options) -> Solution:
    """Find the point of the central path at `options.relaxation` from an interior start."""

    def search(data: tuple, start: Variables, options: Options) -> Solution:
        return _search(problem.with_data(data), start, options)

    return fused_if_small(search, problem, start)(problem.data, start, options)


def fused_if_small(function: Callable, problem: Problem, w: Variables) -> Callable:
    """`function`, as one kernel if that is worth it for this problem with variables `w`."""
    fusible = all(group.fusible for group in problem.groups)
    return fused(function) if fusible and kkt.size(w) <= dense.LARGEST_SYSTEM else function


def _search(problem: Problem, start: Variables, options: Options) -> Solution:
    table = [jnp.array(column, start.y.dtype) for column in zip(*ATTEMPTS, strict=True)]

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        k, it = carry
        left = (k < len(ATTEMPTS)) & (it.iterations < options.max_iterations)
        return (k == 0) | (left & ~_done(it, options))

    def attempt(carry: tuple) -> tuple:
        k, last = carry
        how = Attempt(*(column[k] for column in table))
        it = _begin(problem, start, last.iterations, how.easing, options)
        return k + 1, _walk(problem, it, how, k + 1 == len(ATTEMPTS), options)

    shapes = jax.eval_shape(partial(_begin, problem, options=options), start, 0, table[0][0])
    nothing = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
    _, last = jax.lax.while_loop(unfinished, attempt, (jnp.zeros((), int), nothing))
    return _solution(problem, last, options)


def _begin(
    problem: Problem, w: Variables, iterations: Array, easing: Array, options: Options
) -> _Iterate:
    """An attempt before its first step."""
    measures = _measure(problem.eased(easing), w, options)
    count, zero = jnp.asarray(iterations), jnp.zeros((), int)
    return _Iterate(w, measures, count, count, zero, easing, zero + options.polish)


def _walk(problem: Problem, it: _Iterate, how: Attempt, last: Array, options: Options) -> _Iterate:
    """Newton steps until all is done or there is no hope; the last attempt never gives up."""

    def unfinished(it: _Iterate) -> Bool[Array, ""]:
        hopeless = (it.short_steps >= PATIENCE) | (it.iterations - it.begun >= LONGEST)
        searching = (it.iterations < options.max_iterations) & (last | ~hopeless)
        return jnp.where(_done(it, options), it.polishing > 0, searching)

    def step(it: _Iterate) -> _Iterate:
        return _polished(it, _newton_step(problem, it, how, options), options)

    return jax.lax.while_loop(unfinished, step, it)


def _solution(problem: Problem, last: _Iterate, options: Options) -> Solution:
    def exact() -> Measures:
        return _measure(problem, last.w, options)

    m = jax.lax.cond(last.easing > 0, exact, lambda: last.measures)
    finite = jnp.isfinite(m.residual) & jnp.isfinite(m.complementarity)
    status = jnp.select(
        [_done(last, options), ~finite, last.short_steps >= PATIENCE],
        [Status.CONVERGED, Status.NOT_FINITE, Status.STALLED],
        Status.MAX_ITERATIONS,
    )
    return Solution(last.w, status, last.iterations, m.residual, m.complementarity)


def _newton_step(problem: Problem, it: _Iterate, how: Attempt, options: Options) -> _Iterate:
    w, rho, error = it.w, options.relaxation, _error(it.measures)
    eased, rows = problem.eased(it.easing), it.measures.rows
    factor = kkt.factorize(eased, w, it.easing)
    affine, centring = kkt.newton_directions(eased, factor, w, rows)
    step = _move(affine, centring, _target(problem, it, affine, rho))
    step, length = _lengthened(eased, factor, w, step, how, error)
    # Close to a solution short steps are no fold, and easing would lead away from it.
    fold = (length < SHORT_STEP) & ((error > NO_FOLD) | (it.easing > 0))
    easing = jnp.where(fold, 1, DECAY * it.easing)
    easing = jnp.where((easing < LEAST_EASING) | _done(it, options), 0, easing)
    w, measures, easing = _accept(problem, it, step, length, easing, options)
    short = jnp.where(length < STALLED_STEP, it.short_steps + 1, 0)
    # A direction that is not finite cannot be shortened: count it as a full stall.
    short = jnp.where(jnp.isfinite(length), short, PATIENCE)
    return it._replace(
        w=w, measures=measures, iterations=it.iterations + 1, short_steps=short, easing=easing
    )


def _lengthened(
    problem: Problem,
    factor: kkt.Factor,
    w: Variables,
    step: Variables,
    how: Attempt,
    error: Float[Array, ""],
) -> tuple[Variables, Float[Array, ""]]:
    """The step, corrected to second order where that makes it longer, and its length."""
    longest = _boundary_step(problem, w, step)

    def correct() -> tuple[Variables, Float[Array, ""]]:
        other = kkt.corrected(problem, factor, step)
        further = _boundary_step(problem, w, other)
        return _where(further > longest, (other, further), (step, longest))

    short = (how.boundary * longest < 1) & (error < how.near)
    step, longest = jax.lax.cond(short, correct, lambda: (step, longest))
    return step, jnp.minimum(1, how.boundary * longest)


def _target(
    problem: Problem, it: _Iterate, affine: Variables, rho: Float[Array, ""]
) -> Float[Array, ""]:
    """Centring target: the less the affine step would leave, the lower."""
    mu = mean_complementarity(problem, it.w)
    predicted = _move(it.w, affine, jnp.minimum(1, _boundary_step(problem, it.w, affine)))
    ratio = mean_complementarity(problem, predicted) / jnp.where(mu > 0, mu, 1)
    floor = jnp.minimum(FLOOR * it.easing * it.measures.residual, mu)
    return jnp.maximum(jnp.clip(ratio, 0, 1) ** EXPONENT * mu, jnp.maximum(floor, rho))


def _accept(
    problem: Problem,
    it: _Iterate,
    step: Variables,
    length: Float[Array, ""],
    easing: Float[Array, ""],
    options: Options,
) -> tuple[Variables, Measures, Float[Array, ""]]:
    """Halve the step until residual or complementarity goes down; never take one with NaN."""
    eased = problem.eased(easing)

    def better(m: Measures) -> Bool[Array, ""]:
        lower = m.residual < it.measures.residual
        return lower | (m.complementarity < it.measures.complementarity)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        k, _, _, measures = carry
        return (k == 0) | (~better(measures) & (k < HALVINGS))

    def shorten(carry: tuple) -> tuple:
        k = carry[0]
        w = _move(it.w, step, length * 0.5**k)
        return k + 1, length, w, _measure(eased, w, options)

    start = (jnp.zeros((), int), length, it.w, it.measures)
    _, _, w, measures = jax.lax.while_loop(unfinished, shorten, start)
    finite = jnp.isfinite(measures.residual) & jnp.isfinite(measures.complementarity)
    return _where(finite, (w, measures, easing), (it.w, it.measures, it.easing))


def _error(m: Measures) -> Float[Array, ""]:
    return jnp.maximum(m.residual, m.complementarity)


def _done(it: _Iterate, options: Options) -> Bool[Array, ""]:
    return (it.easing == 0) & (_error(it.measures) <= options.tolerance)


def _where(condition: Bool[Array, ""], first: tuple, second: tuple) -> tuple:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _move(w: Variables, direction: Variables, length: Float[Array, ""]) -> Variables:
    return jax.tree.map(lambda v, d: v + length * d, w, direction)


def _measure(problem: Problem, w: Variables, options: Options) -> Measures:
    rows = residual(problem, w)
    error = _complementarity_error(problem, w, options.relaxation)
    return Measures(rows, residual_norm(problem, rows), error)


def mean_complementarity(problem: Problem, w: Variables) -> Float[Array, ""]:
    """s . z divided by the degree of the cone."""
    degree = sum(g.cone.degree * len(g.nodes) for g in problem.groups)
    total = sum((jnp.sum(c.slack * c.dual) for c in w.cells), jnp.zeros((), w.y.dtype))
    return total / max(degree, 1)


def _complementarity_error(
    problem: Problem, w: Variables, target: Float[Array, ""]
) -> Float[Array, ""]:
    error = jnp.zeros((), w.y.dtype)
    for group, cell in zip(problem.groups, w.cells, strict=True):
        identity = group.cone.identity(cell.dual.dtype)
        products = group.cone.product(cell.slack, cell.dual) - target * identity
        error = jnp.maximum(error, jnp.max(jnp.abs(products)))
    return error


def _boundary_step(problem: Problem, w: Variables, d: Variables) -> Float[Array, ""]:
    """Largest step that keeps slacks and duals in their cones."""
    length = jnp.asarray(jnp.inf, w.y.dtype)
    for group, cell, dc in zip(problem.groups, w.cells, d.cells, strict=True):
        for value, change in ((cell.slack, dc.slack), (cell.dual, dc.dual)):
            length = jnp.minimum(length, jnp.min(group.cone.step_length(value, change)))
    return length
