"""Primal-dual interior point with a predictor that sets the centring.

Newton directions on the relaxed conditions, a fraction of the step to the boundary, and a
step halved until the residual or the complementarity error goes down (see `steps` and
`acceptance`).

Where a problem is not monotone its central path folds, and Newton steps shrink to nothing
before a fold. Each iterate therefore carries an easing, from 0 (the problem itself) to 1 (a
tamer relative that the cells offer, see `CellGroup`): a short step sets it to 1, each longer step
halves it until the problem itself is back. Where that stalls, the attempt is over; `search`
says what comes next. Of a problem with one node easings alternate between 1 and -1, another tamer
relative: what draws iterates to the end of a branch of solutions in one lets go of them in the
other. Far from a solution such a relative may be tamer still, for what folds the path there is not
the end of a branch. One kind of attempt follows a path (see `path`) from the start until that
has turned and Newton's method takes a long step again.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from silico_py.solver import kkt
from silico_py.solver import path as paths
from silico_py.solver.acceptance import accept
from silico_py.solver.iterate import (
    NEGLIGIBLE,
    POLISH_TO,
    Iterate,
    Measures,
    Options,
    is_done,
    is_past_folds,
    is_polished,
    is_polishing,
    measure,
)
from silico_py.solver.path import Path, by_mode
from silico_py.solver.problem import Easing, Problem, choose
from silico_py.solver.steps import BOUNDARY, next_step
from silico_py.solver.vectors import Variables

LONGER = 3  # halves of `longest` that an attempt may take close to a solution, elsewhere 2
CLIMBS = 12  # steps of polishing that may raise the error before one lowers it
LEAST_REACH = 1e-8  # of a step along a path


class Attempt(NamedTuple):
    """How to walk.

    Attributes:
        easing: of the first step.
        longest: number of steps.
        follow: whether to follow a path until it has turned.
        closely: whether such a path is followed closely, to its end if need be.
        timid: whether it gives up where easing would begin.
        brief: whether it does so where easing begins a second time.
        eases: whether short steps begin easing.
    """

    easing: Easing
    longest: Int[Array, ""]
    follow: Bool[Array, ""]
    closely: Bool[Array, ""]
    timid: Bool[Array, ""]
    brief: Bool[Array, ""]
    eases: Bool[Array, ""]


def begin(
    problem: Problem, w: Variables, iterations: Array, how: Attempt, options: Options
) -> Iterate:
    """The iterate of an attempt before its first step."""
    zero = jnp.zeros((), int)
    measures = measure(problem, w, how.easing, options)
    return Iterate(
        w=w,
        measures=measures,
        iterations=iterations,
        begun=iterations,
        short_steps=zero,
        easing=how.easing,
        way=how.eases.astype(w.y.dtype),
        path=_path(problem, w, measures, how, options),
        polishing=jnp.where(is_polished(measures, options, POLISH_TO), 0, zero + options.polish),
        fold=w,
        folds=(how.easing.share != 0).astype(int),
        fold_residual=measures.residual,
        climbing=zero,
        left=(w, measures.errors),
    )


def _path(problem: Problem, w: Variables, m: Measures, how: Attempt, options: Options) -> Path:
    """The path from here, if wanted."""
    if problem.monotone:
        return paths.inactive(w, m.conditions)
    set_out = partial(paths.begin, problem, w, m.conditions, how.closely, options.relaxation)
    return jax.lax.cond(how.follow, set_out, partial(paths.inactive, w, m.conditions))


def walk(
    problem: Problem, it: Iterate, how: Attempt, options: Options, most: Array | None = None
) -> Iterate:
    """Newton steps until the problem is solved or the attempt is hopeless, or `most` of them."""
    before = it.iterations

    def unfinished(it: Iterate) -> Bool[Array, ""]:
        walking = is_walking(problem, it, how, options)
        return walking if most is None else walking & (it.iterations - before < most)

    def step(it: Iterate) -> Iterate:
        return _polished(it, _advance(problem, it, options), how, options)

    return jax.lax.while_loop(unfinished, step, it)


def is_walking(problem: Problem, it: Iterate, how: Attempt, options: Options) -> Bool[Array, ""]:
    """Whether an attempt goes on; at a monotone problem there is only one, which never gives up."""
    close = is_past_folds(it) & ~how.timid
    halves = jnp.where(close, LONGER, 2)
    hopeless = it.stalled | (2 * (it.iterations - it.begun) >= halves * how.longest)
    hopeless |= (it.easing.share != 0) & (how.timid | how.brief & (it.folds > 1))
    lost = (it.path.reach < LEAST_REACH) | (it.path.t > paths.ASTRAY)
    hopeless |= it.path.active & lost
    searching = (it.iterations < options.max_iterations) & (problem.monotone | ~hopeless)
    first = _needs_a_step(it, how, options)
    return jnp.where(is_polishing(it, options), (it.polishing > 0) | first, searching)


def _needs_a_step(it: Iterate, how: Attempt, options: Options) -> Bool[Array, ""]:
    """Whether this is a guess that is to take a step even if it is a solution."""
    as_it_is = jnp.asarray(options.accept) | (jnp.asarray(options.polish) > 0)
    return how.timid & (it.iterations == it.begun) & ~as_it_is


def _polished(old: Iterate, new: Iterate, how: Attempt, options: Options) -> Iterate:
    """After convergence a step is kept only if it lowers the error, and is not counted, unless it
    is the one that a guess has to take.

    One step may raise the error, for the next one often lowers it by much more, and several where
    it is no rounding: a dual far below what the rows ask for, or above, comes there at the
    products' expense. If none then lowers the error all of them are taken back.
    """
    done = is_polishing(old, options)
    before = choose(old.climbing > 0, old.left, (old.w, old.measures.errors))
    left = old.measures.with_errors(before[1]).error
    lower = new.measures.error < left
    climbs = done & ~lower & _may_climb(old, new, left, options)
    enough = ~(lower | climbs) | is_polished(new.measures, options, POLISH_TO)
    onwards = jnp.where(climbs, old.polishing, old.polishing - 1)
    w, errors, short_steps, easing = choose(
        done & ~(lower | climbs),
        (*before, old.short_steps, old.easing),
        (new.w, new.measures.errors, new.short_steps, new.easing),
    )
    counted = ~done | _needs_a_step(old, how, options)
    return new._replace(
        iterations=jnp.where(counted, new.iterations, old.iterations),
        polishing=jnp.where(done, jnp.where(enough, 0, onwards), new.polishing),
        w=w,
        # Nothing but the errors is read of the measures of an attempt that has converged.
        measures=new.measures.with_errors(errors),
        short_steps=short_steps,
        easing=easing,
        climbing=jnp.where(climbs, old.climbing + 1, 0),
        left=before,
    )


def _may_climb(old: Iterate, new: Iterate, left: Array, options: Options) -> Bool[Array, ""]:
    """Whether a step of polishing may raise the error of the solution that was left."""
    first = (old.climbing == 0) & ~is_polished(old.measures, options)
    more = (old.climbing > 0) & (left > NEGLIGIBLE * options.relaxation) & (old.climbing < CLIMBS)
    near = is_past_folds(new) | (new.measures.error < options.relaxation)
    return (first | more) & near


def _advance(problem: Problem, it: Iterate, options: Options) -> Iterate:
    """One iteration: factorise, find a step, shorten it."""
    it = it._replace(path=it.path._replace(active=it.path.active & ~is_done(it, options)))
    factor = kkt.factorize(problem.with_memos(it.measures.memos), it.w, it.easing)
    step = next_step(problem, factor, it, options)
    trial = accept(problem, it, step, options)
    w, measures = trial.w, trial.measures
    followed = partial(_followed, it.path, step.along, trial.fraction)
    begins = (it.easing.share == 0) & (trial.easing.share != 0)
    finite = measures.is_finite
    return it._replace(
        w=choose(finite, w, it.w),
        measures=choose(finite, measures, it.measures),
        iterations=it.iterations + 1,
        short_steps=trial.short_steps,
        easing=choose(finite, trial.easing, it.easing),
        way=_next_way(problem, it.way, trial.easing.share),
        path=by_mode(problem, it.path, followed, lambda: it.path),
        fold=choose(finite & (it.folds == 0), w, it.fold),
        folds=it.folds + begins.astype(int),
        fold_residual=jnp.where(it.folds == 0, it.measures.residual, it.fold_residual),
    )


def _next_way(problem: Problem, way: Array, share: Array) -> Array:
    """Sign of the easing after this one: of a problem with one node it alternates, from 1 on."""
    return jnp.where(share != 0, -jnp.sign(share), way) if problem.is_single else way


def _followed(path: Path, step: paths.Step, fraction: Array) -> Path:
    """The path after a step; it is left at its end, or where Newton's method can take over."""
    path = paths.shortened(path, step, fraction)
    straight = (step.slope < 0) & (BOUNDARY * step.straight >= paths.STRAIGHT)
    return path._replace(active=(path.t > 0) & ~(straight & path.turned))
