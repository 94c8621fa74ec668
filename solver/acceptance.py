"""How much of a step is taken: all of it as a leap where that pays, else a fraction.

A straight step ends at the boundary of a cone, and close to a solution that may be near: a row
that is to become active, or a vector in a second-order cone that is to turn by more than the
square root of its product. The linearised conditions often hold much further than that. The whole
step is then tried as a leap: y, x and s - z go where Newton's method wants them, and s and z
themselves back to the central path. A leap is kept only if it reduces the error by much more than
a straight step could; otherwise it would undo what the products have gained.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver import path as paths
from silico_py.solver.iterate import (
    PATIENCE,
    Iterate,
    Measures,
    Options,
    is_past_folds,
    is_solved,
    measure,
    moved,
)
from silico_py.solver.path import by_mode
from silico_py.solver.problem import (
    Easing,
    Problem,
    centred,
    choose,
    in_one,
    is_interior,
    mean_product,
    targets,
)
from silico_py.solver.steps import Step
from silico_py.solver.vectors import Variables

TRIALS = 4  # of a straight step, each half as long as the one before; the last is taken as it is
LEAP = 0.2  # largest error that a leap may leave, as a share of the one before
SHORT_STEP = 0.3  # a shorter step is taken for a fold
STALLED_STEP = 0.1  # a shorter one counts towards a stall
DECAY = 0.5  # of the easing, each step
# Residual of folds that are met far from a solution. Where a branch of solutions ends it was at
# most 0.07, on ordinary shapes 2.3, where flat ones had yet to find their contact points 7 to 25.
FAR_FOLD = 3.0
LEAST_EASING = 0.05  # below it the problem itself is solved


class Trial(NamedTuple):
    """Where a step may end."""

    halvings: Int[Array, ""]  # of the straight step; -1 for a leap
    w: Variables
    measures: Measures
    fraction: Float[Array, ""]  # of the straight step
    easing: Easing
    short_steps: Int[Array, ""]


@in_one
def accept(problem: Problem, it: Iterate, step: Step, options: Options) -> Trial:
    """Leap if that pays, otherwise halve the straight step until it is good enough."""
    first = jnp.where(step.leaps, -1, 0)
    difficulty = _difficulty(problem, it, step.length, options)
    calm = _difficulty(problem, it, jnp.ones_like(step.length), options)

    def leap(_: Array) -> Variables:
        w = moved(it.w, step.leap, jnp.ones_like(step.length))
        return centred(problem, w, targets(problem, step.product, options.relaxation))

    def along(fraction: Array) -> Variables:
        w = moved(it.w, step.change, step.length * fraction)
        path = paths.shortened(it.path, step.along, fraction)
        land = partial(paths.landing, problem, w, path, options.relaxation)
        return by_mode(problem, it.path, land, lambda: w)

    def unfinished(trial: Trial) -> Bool[Array, ""]:
        accepted = jax.lax.cond(
            trial.halvings < 0,
            lambda: _pays(problem, it, trial),
            lambda: _is_good(problem, it, step, trial, options),
        )
        return (trial.halvings < first) | (~accepted & (trial.halvings + 1 < TRIALS))

    def next_one(trial: Trial) -> Trial:
        halvings = trial.halvings + 1
        fraction = 0.5 ** jnp.maximum(halvings, 0).astype(step.length.dtype)
        leaps = halvings < 0
        w = jax.lax.cond(leaps, leap, along, fraction)
        easing, short = choose(leaps, calm, difficulty)
        measures = measure(problem, w, easing, options)
        return Trial(halvings, w, measures, fraction, easing, short)

    none = Trial(first - 1, it.w, it.measures, jnp.ones_like(step.length), *difficulty)
    return jax.lax.while_loop(unfinished, next_one, none)


def is_far(problem: Problem, residual: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether a fold met at this residual is far from a solution, if there is one node: the folds
    of several may be those of another than the one whose residual this is."""
    return (residual > FAR_FOLD) if problem.is_single else jnp.zeros((), bool)


def _pays(problem: Problem, it: Iterate, leap: Trial) -> Bool[Array, ""]:
    """Whether a leap leads far, and to a point from which Newton's method can go on."""
    less = leap.measures.error < LEAP * it.measures.error
    balanced = leap.measures.residual <= jnp.sqrt(mean_product(problem, leap.w))
    return less & balanced & is_interior(problem, leap.w)


def _is_good(
    problem: Problem, it: Iterate, step: Step, trial: Trial, options: Options
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

    return by_mode(problem, it.path, close, lower)


def _difficulty(
    problem: Problem, it: Iterate, length: Array, options: Options
) -> tuple[Easing, Array]:
    """Easing, and the number of short steps in a row, after a step of this length."""
    walking, share = ~it.path.active, it.easing.share
    short = jnp.where((length < STALLED_STEP) & walking, it.short_steps + 1, 0)
    # Past all folds easing would lead away from the solution.
    fold = (length < SHORT_STEP) & (~is_past_folds(it) | (share != 0)) & walking
    full = jnp.where(share == 0, it.way, jnp.sign(share))
    eased = jnp.where(fold, full, DECAY * share)
    last = it.iterations + 1 >= options.max_iterations  # which is judged by the problem itself
    gone = (jnp.abs(eased) < LEAST_EASING) | is_solved(it, options) | last
    far = jnp.where(share == 0, is_far(problem, it.measures.residual), it.easing.far)
    easing = Easing(jnp.where(gone, 0, eased).astype(share.dtype), far)
    # A direction that is not finite cannot be shortened: count it as a full stall.
    return easing, jnp.where(jnp.isfinite(length), short, PATIENCE)
