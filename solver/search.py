"""The search for a solution: one attempt after another.

A guess, such as the solution of a neighbouring problem, is tried first: pushed back to the
central path, the further the less it solves, and given up at the first sign of trouble. Then an
attempt sets out from the start, and another one that is eased from the beginning. With many nodes
folds come one after another, and easing meets new ones: in between the path is followed from the
first fold on.

What none of them solves is approached along a family of problems that leads to it, if there is one
(see `Problem.homotopy`): a member that is easy enough is solved from the start, and its solution is
the guess for the problem itself, or for a member halfway to what could not be solved from there.
That family may have folds too: where Newton's method fails, the path from the last solution is
followed; where the solutions end, a member beyond is solved from the start. Where the first member
is too hard as well, the path from the start to the problem itself is followed before an easier one
is tried.

Source: Allgower and Georg, Numerical Continuation Methods, 1990, chapter 2 (embedding).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver import dense, kkt
from silico_py.solver.fusion import fused, one_by_one
from silico_py.solver.interior_point import (
    Attempt,
    Iterate,
    Options,
    begin,
    is_done,
    is_walking,
    walk,
)
from silico_py.solver.lanes import Rounds, in_lanes
from silico_py.solver.problem import Problem, choose, mean_product
from silico_py.solver.status import Status
from silico_py.solver.vectors import Variables

LONGEST = 35  # steps of an attempt
LONGEST_GUESS = 7  # of one that sets out from a guess
LONGEST_TURN = 70  # along the path from a fold: it seldom fails
# More where more can happen: so many for each node or, from a guess, each cell, up to a limit.
PER_NODE, MOST = 3, 60
GUESS_PER_CELL, MOST_GUESS = 0.5, 20
FAR_GUESS = 0.5  # residual of a guess that is not worth a step
GUESS_PRODUCT = 0.1  # of a guess pushed back, in the larger of r^2 and min(r, sqrt(rho))
MANY_NODES = 3  # so many that the path is followed from a fold
FIRST_PART = 0.5  # share of the first member of the homotopy, unless the problem names one
ROUND = 2  # steps before a member of a batch makes room for another
LEAST_WAY = 1e-5  # between two members: less is where the solutions at hand end

# Stages. The first two need a guess; TURN follows the path from the first fold of COLD; PART solves
# a member of the homotopy from the start, the last three look at a member further on and solve it
# from the solution of the one before.
LOOK, GUESSED, COLD, TURN, EASED, FOLLOW, PART, LOOK_ON, GO_ON, FOLLOW_ON = range(10)


class Guess(NamedTuple):
    """A point that may be close to the solution, such as that of a neighbouring problem.

    It need not be interior. One that is not `usable` is ignored.
    """

    variables: Variables
    usable: Bool[Array, ""]


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


class _Search(NamedTuple):
    stage: Int[Array, ""]  # of the next attempt
    share: Float[Array, ""]  # of the homotopy that it is to solve
    last: Iterate  # of the attempt before
    done: Bool[Array, ""]  # whether that solved the problem itself
    base: Variables  # the guess, or the solution of the last member solved
    looked: Float[Array, ""]  # residual of that where it was last looked at
    solved: Float[Array, ""]  # share of that member, 0 before
    reach: Float[Array, ""]  # from there to the next one
    best: Variables  # where an attempt at the problem itself came closest
    error: Float[Array, ""]  # there
    closing: Bool[Array, ""]  # whether what is left is to look at the best
    resumes: Bool[Array, ""]  # whether `last` is the present attempt, interrupted


def solve(
    problem: Problem, start: Variables, options: Options, guess: Guess | None = None
) -> Solution:
    """Find the point of the central path at `options.relaxation`.

    Args:
        problem: the problem.
        start: an interior point, also for all members of the problem's homotopy.
        options: where to stop.
        guess: is tried first, unless the problem is monotone.
    """

    def search(data: tuple, *args: Any) -> Solution:
        return _search(problem.with_data(data), *args)

    at_once = None if problem.monotone else in_lanes(_rounds(problem))
    evaluated = fused_if_small(search, problem, start, at_once)
    return evaluated(problem.data, start, options, guess)


def fused_if_small(
    function: Callable, problem: Problem, w: Variables, at_once: Callable | None = None
) -> Callable:
    """`function`, as one kernel if that is worth it for this problem with variables `w`."""
    fusible = all(group.fusible for group in problem.groups)
    small = fusible and kkt.size(w) <= dense.LARGEST_SYSTEM
    return (fused if small else one_by_one)(function, at_once)


def _search(
    problem: Problem, start: Variables, options: Options, guess: Guess | None = None
) -> Solution:
    if problem.monotone:
        how = _attempt(problem, jnp.asarray(COLD))
        it = begin(problem, start, jnp.zeros((), int), how, options)
        return _solution(walk(problem, it, how, options), options)

    def attempt(s: _Search) -> _Search:
        member, it, how = _begun(problem, s, start, options)
        return _next(problem, s, walk(member, it, how, options), options)

    first = _first(problem, start, options, guess)
    unfinished = partial(_unfinished, options=options)
    return _solution(jax.lax.while_loop(unfinished, attempt, first).last, options)


def _rounds(problem: Problem) -> Rounds:
    """The search in pieces: attempts are interrupted, and resumed in another round."""

    def first(data: tuple, *args: Any) -> _Search:
        return _first(problem.with_data(data), *args)

    def some_steps(
        live: Array, s: _Search, data: tuple, start: Variables, options: Options, guess: Any
    ) -> _Search:
        here = problem.with_data(data)
        member, fresh, how = _begun(here, s, start, options)
        it = choose(s.resumes, s.last, fresh)
        it = walk(member, it, how, options, jnp.where(live, ROUND, 0))
        onwards = s._replace(last=it, resumes=jnp.ones((), bool))
        return choose(is_walking(it, how, options), onwards, _next(here, s, it, options))

    return Rounds(
        first,
        some_steps,
        lambda s, data, start, options, guess: _unfinished(s, options),
        lambda s, data, start, options, guess: _solution(s.last, options),
    )


def _begun(
    problem: Problem, s: _Search, start: Variables, options: Options
) -> tuple[Problem, Iterate, Attempt]:
    """The next attempt: at which problem, from where, and how."""
    member, how = problem.member(s.share), _attempt(problem, s.stage)
    w = _departure(problem, s, start, options)
    return member, begin(member, w, s.last.iterations, how, options), how


def _first(problem: Problem, start: Variables, options: Options, guess: Guess | None) -> _Search:
    """Before all attempts."""
    cold, part = _without_guess(problem)
    stage = cold if guess is None else jnp.where(guess.usable, LOOK, cold)
    shapes = jax.eval_shape(
        lambda: begin(problem, start, jnp.zeros((), int), _attempt(problem, stage), options)
    )
    nothing = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
    base = start if guess is None else guess.variables
    one = jnp.ones((), start.y.dtype)
    far, no = jnp.inf * one, jnp.zeros((), bool)
    share = jnp.where(stage == PART, part, one)
    return _Search(stage, share, nothing, no, base, far, 0 * one, part * one, start, far, no, no)


def _without_guess(problem: Problem) -> tuple[Array, Array | float]:
    """The first stage, and the share of the first member of the homotopy."""
    if problem.first_share is None:
        return jnp.asarray(COLD), FIRST_PART
    hard = problem.first_share < 1
    return jnp.where(hard, PART, COLD), jnp.where(hard, problem.first_share, FIRST_PART)


def _attempt(problem: Problem, stage: Array) -> Attempt:
    """How to walk at a stage; where there is no family the last attempt never gives up."""
    alone = problem.homotopy is None
    final = COLD if problem.monotone else PART
    return Attempt(
        easing=((stage == EASED) | (stage == PART) & alone).astype(float),
        longest=jnp.array(_longests(problem))[stage],
        follow=(stage == TURN) | (stage == FOLLOW) | (stage == FOLLOW_ON),
        timid=stage == GUESSED,
        endless=(stage == final) & alone,
    )


def _longests(problem: Problem) -> list[int]:
    """Steps of an attempt at each stage."""
    nodes, cells = len(problem.node_scale), sum(len(group.nodes) for group in problem.groups)
    longests = (FOLLOW_ON + 1) * [max(LONGEST, min(MOST, PER_NODE * nodes))]
    longests[GUESSED] = max(LONGEST_GUESS, min(MOST_GUESS, int(GUESS_PER_CELL * cells)))
    longests[LOOK] = longests[LOOK_ON] = 0
    longests[TURN] = LONGEST_TURN
    return longests


def _departure(problem: Problem, s: _Search, start: Variables, options: Options) -> Variables:
    """Where the next attempt sets out."""
    stage, rho, fold = s.stage, options.relaxation, s.last.fold
    # More than rho, so that what leaves is never done.
    wanted = jnp.maximum(s.looked**2, jnp.minimum(s.looked, jnp.sqrt(rho)))
    product = jnp.clip(GUESS_PRODUCT * wanted, 2 * rho, 1)
    turns = stage == TURN
    at = choose(turns, (fold, mean_product(problem, fold)), (s.base, product))
    leaves = turns | (stage == GUESSED) | (stage >= GO_ON)
    return choose(_looks(stage), s.base, choose(leaves, _centred(problem, *at), start))


def _looks(stage: Array) -> Array:
    """Whether a stage only looks at its base."""
    return (stage == LOOK) | (stage == LOOK_ON)


def _centred(problem: Problem, w: Variables, product: Float[Array, ""]) -> Variables:
    """Moved to the central path of the cones where products are `product`."""
    cells = []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        slack, dual = group.cone.central_pair(cell.slack - cell.dual, product)
        cells.append(cell._replace(slack=slack, dual=dual))
    return Variables.of(w.y, cells)


def _unfinished(s: _Search, options: Options) -> Bool[Array, ""]:
    accepted = (s.stage == GUESSED) & s.done & options.accept
    untried = (s.last.iterations == 0) & (s.stage <= COLD) & ~accepted
    left = s.last.iterations < options.max_iterations
    return s.resumes | untried | s.closing | (left & ~s.done)


def _next(problem: Problem, s: _Search, it: Iterate, options: Options) -> _Search:
    """What follows after the attempt of `s` ended at `it`."""
    stage, whole, done = s.stage, s.share == 1, is_done(it, options)
    success = done & ~whole & (stage != LOOK_ON)
    stays = (stage == LOOK_ON) | (stage == GO_ON) & ~done  # with this member
    ended = (stage == FOLLOW_ON) & ~done & (s.share - s.solved < LEAST_WAY)
    solved = jnp.select([ended, success], [0, s.share], s.solved)
    held = stays | (stage <= FOLLOW)
    # Others may lie beyond.
    reach = jnp.select([held, ended], [s.reach, (1 + s.solved) / 2], _reach(s, success))
    following = _following(problem, s, it, done, stays, solved)
    share = jnp.select([stays, following <= FOLLOW], [s.share, 1], solved + reach)
    error = jnp.where(whole & ~_looks(stage), it.measures.error, jnp.inf)
    best = choose(error < s.error, it.w, s.best)
    # What ends unsolved, or with another member, is judged by the problem itself.
    closing = (it.iterations >= options.max_iterations) & ~(done & whole) & ~s.closing
    return _Search(
        stage=jnp.where(closing, LOOK_ON, following),
        share=jnp.where(closing, 1, share).astype(s.share.dtype),
        last=it,
        done=done & whole,
        base=choose(closing, best, choose(success, it.w, s.base)),
        looked=jnp.where(_looks(stage), it.measures.residual, s.looked),
        solved=solved,
        reach=reach,
        best=best,
        error=jnp.minimum(error, s.error),
        closing=closing,
        resumes=jnp.zeros((), bool),
    )


def _reach(s: _Search, success: Array) -> Array:
    """From the first member to the problem itself; then twice as far, after a failure half."""
    way, rest = s.share - s.solved, 1 - s.share
    further = jnp.where(s.stage == PART, rest, jnp.minimum(2 * way, rest))
    return jnp.where(success, further, way / 2)


def _following(
    problem: Problem, s: _Search, it: Iterate, done: Array, stays: Array, solved: Array
) -> Array:
    """The next stage; `stays` says whether it is one of the same member."""
    stage, (cold, part) = s.stage, _without_guess(problem)
    vain = (stage == GUESSED) | (stage == LOOK) & ~(it.measures.residual < FAR_GUESS)
    after_cold = TURN if len(problem.node_scale) >= MANY_NODES else EASED
    # The path from the start: where there are no members, or the first one is as hard.
    to_path = (stage == EASED) & (problem.homotopy is None)
    to_path |= (stage == PART) & ~done & (s.share == part) & (cold == COLD)
    return jnp.select(
        [vain, stage == COLD, stays | (stage <= TURN), to_path, solved > 0],
        [cold, after_cold, stage + 1, FOLLOW, LOOK_ON],
        PART,
    )


def _solution(last: Iterate, options: Options) -> Solution:
    m = last.measures
    finite = jnp.isfinite(m.residual) & jnp.isfinite(m.complementarity)
    status = jnp.select(
        [is_done(last, options), ~finite, last.stalled],
        [Status.CONVERGED, Status.NOT_FINITE, Status.STALLED],
        Status.MAX_ITERATIONS,
    )
    return Solution(last.w, status, last.iterations, m.residual, m.complementarity)
