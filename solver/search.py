"""The search for a solution: one attempt after another.

A guess, such as the solution of a neighbouring problem, is tried first: pushed back to the
central path, the further the larger its residual, and given up at the first sign of trouble. Then
another one is, if there is one and the first was close: as it is, and until steps stay short.

Then an attempt sets out from the start, and after it another one that is eased from the beginning.
With many nodes easing meets fold after fold, and close to a solution it leads away from it. There
the path is followed between the two attempts, from the first fold of the first one on, unless that
stalled far from any solution: the path is long then, and easing needs a dozen steps. With one node
the first attempt is given up where easing begins a second time, for a branch of solutions has ended
nearby, and the other one is eased in the other way.

What none of them solves is approached along families of problems that lead to it (see `stages`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver import dense, kkt
from silico_py.solver.acceptance import is_far
from silico_py.solver.fusion import fused, one_by_one
from silico_py.solver.interior_point import Attempt, begin, is_walking, walk
from silico_py.solver.iterate import Iterate, Options, is_done, is_exact, measure
from silico_py.solver.lanes import Rounds, in_lanes
from silico_py.solver.problem import (
    Easing,
    Problem,
    ProblemData,
    centred,
    choose,
    in_one,
    is_interior,
    mean_product,
    no_easing,
    targets,
)
from silico_py.solver.stages import Base, Guess, Lead, Stage, following, last_family, leads
from silico_py.solver.status import Status
from silico_py.solver.vectors import Variables

LONGEST = 35  # steps of an attempt
LONGEST_GUESS = 7  # of one that sets out from a guess, or from another
LONGEST_PATH = 70  # along a path, twice as many with many nodes
EARLY = 0.1  # mean product of folds that are met too early for an attempt to set out from
STUCK = 0.05  # the same in residuals of folds that are met where the cones leave no room to move
# More where more can happen: so many for each node or, from a guess, each cell (the more there are,
# the more of them have changed), up to a limit.
PER_NODE, MOST = 5, 120
GUESS_PER_CELL, MOST_GUESS = 0.5, 35
GUESS_PRODUCT = 0.03  # of a guess pushed back, in r^2 for a residual r; before a path in r
# Members are solved at the relaxation wanted to the power of their share; but for those of the last
# family this is the least power with one node. With several it is 1: two bodies in one place were
# not solved, or in 1,500 iterations instead of 400.
SOFTEST = 0.25
ROUND = 2  # steps before a member of a batch makes room for another


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
    leads: tuple[Lead, ...]  # of all families; the present one first, then the next
    last: Iterate  # of the attempt before
    done: Bool[Array, ""]  # whether that solved the problem itself, or nothing can
    best: Variables  # where an attempt at the problem itself came closest
    error: Float[Array, ""]  # there
    closing: Bool[Array, ""]  # whether what is left is to look at the best
    resumes: Bool[Array, ""]  # whether `last` is the present attempt, interrupted

    @property
    def lead(self) -> Lead:
        """The present one."""
        return self.leads[0]


def solve(
    problem: Problem, start: Variables, options: Options, guess: Guess | None = None
) -> Solution:
    """Find the point of the central path at `options.relaxation`.

    Args:
        problem: the problem.
        start: an interior point, also for all members of the problem's families.
        options: where to stop.
        guess: is tried first, unless the problem is monotone.

    Raises:
        ValueError: for a cone without rows, and for functions of the problem that close over
            arrays that are traced.
    """
    at_once = None if problem.monotone else in_lanes(_rounds(problem.without_data()))
    base = None if guess is None else _looked_at(problem, start, options, guess)
    evaluated = fused_if_small(_search, problem, kkt.size(start), at_once)
    return evaluated(start, options, base)


def _looked_at(problem: Problem, start: Variables, options: Options, guess: Guess) -> Base:
    """A guess and its errors: of several an exact one, or that with the smallest residual."""
    points, usable, other = guess
    if points.flat.ndim == start.flat.ndim:
        points = jax.tree.map(lambda v: v[None], points)
    evaluated = fused_if_small(_best, problem, kkt.size(start))
    best = evaluated(Guess(points, usable), options)
    return best._replace(other=other)


@in_one
def _best(problem: Problem, guess: Guess, options: Options) -> Base:
    """The first exact point of a guess, or the one with the smallest residual."""
    points, usable, _ = guess
    # Pairs s, z that moved on alone contradict each other in a crowd: there all points are centred.
    # Before them the last one is looked at as it is, for at rest that is exact.
    before = int(problem.is_crowded)
    products = targets(problem, options.relaxation, options.relaxation)

    def at(k: Array) -> Variables:
        w = jax.tree.map(lambda v: v[jnp.maximum(k - before, 0)], points)
        return choose(k < before, w, centred(problem, w, products)) if before else w

    def look(carry: tuple[Array, Base]) -> tuple[Array, Base]:
        k, best = carry
        seen = _seen(problem, at(k), usable, options)
        better = seen.exact | (k >= before) & (seen.residual < best.residual)
        return k + 1, choose(better, seen, best)

    def unseen(carry: tuple[Array, Base]) -> Array:
        k, best = carry
        return (k < len(points.flat) + before) & ~best.exact

    last = jax.tree.map(lambda v: v[0], points)
    first = jnp.zeros((), int), _nowhere(last)._replace(usable=usable)
    return jax.lax.while_loop(unseen, look, first)[1]


def _nowhere(w: Variables) -> Base:
    """A point that is no guess."""
    far, no = jnp.asarray(jnp.inf, w.flat.dtype), jnp.zeros((), bool)
    return Base(w, far, far, no, no)


def _seen(problem: Problem, w: Variables, usable: Array, options: Options) -> Base:
    m = measure(problem, w, no_easing(w.y.dtype), options)
    inside = is_interior(problem, w)
    products = jnp.where(inside, m.complementarity, jnp.inf)
    return Base(w, m.residual, products, inside & is_exact(m, options), usable)


def fused_if_small(
    function: Callable, problem: Problem, size: int, at_once: Callable | None = None
) -> Callable:
    """`function(problem, *args)` of the `args`, as one kernel if that is worth it for this problem
    and a system of this size; `at_once` is given the data of the problem before them."""
    form = problem.without_data()

    @wraps(function)
    def of_data(data: ProblemData, *args: Any) -> Any:
        return function(form.with_data(data), *args)

    small = problem.fusible and size <= dense.LARGEST_SYSTEM
    return partial((fused if small else one_by_one)(of_data, at_once), problem.data)


def _search(
    problem: Problem, start: Variables, options: Options, guess: Base | None = None
) -> Solution:
    """Attempts one after another; a single one where the problem is monotone."""
    if problem.monotone:
        how = _attempt(problem, jnp.asarray(Stage.COLD), jnp.zeros((), start.y.dtype))
        it = begin(problem, start, jnp.zeros((), int), how, options)
        return _solution(walk(problem, it, how, options), options)

    other = _other(guess)

    def attempt(s: _Search) -> _Search:
        member, it, how, limits = _begun(problem, s, start, options, other)
        return _next(problem, s, walk(member, it, how, limits), limits, other)

    first = _first(problem, start, options, guess)
    unfinished = partial(_unfinished, options=options)
    return _solution(jax.lax.while_loop(unfinished, attempt, first).last, options)


def _rounds(problem: Problem) -> Rounds:
    """The search in pieces: attempts are interrupted, and resumed in another round."""

    def first(data: ProblemData, *args: Any) -> _Search:
        return _first(problem.with_data(data), *args)

    def some_steps(
        live: Array, s: _Search, data: ProblemData, start: Variables, options: Options, guess: Any
    ) -> _Search:
        here, other = problem.with_data(data), _other(guess)
        member, fresh, how, limits = _begun(here, s, start, options, other)
        it = choose(s.resumes, s.last, fresh)
        it = walk(member, it, how, limits, jnp.where(live, ROUND, 0))
        onwards = s._replace(last=it, resumes=jnp.ones((), bool))
        return choose(is_walking(here, it, how, limits), onwards, _next(here, s, it, limits, other))

    return Rounds(
        first,
        some_steps,
        lambda s, data, start, options, guess: _unfinished(s, options),
        lambda s, data, start, options, guess: _solution(s.last, options),
    )


def _begun(
    problem: Problem, s: _Search, start: Variables, options: Options, other: Guess | None
) -> tuple[Problem, Iterate, Attempt, Options]:
    """The next attempt: at which problem, from where, how, and where to stop."""
    lead = s.lead
    member = problem.member(lead.family, lead.share)
    how = _attempt(problem, lead.stage, s.last.fold_residual)
    limits = _limits(problem, lead, options)
    w = _departure(problem, s, start, limits, other)
    return member, begin(member, w, s.last.iterations, how, limits), how, limits


def _limits(problem: Problem, lead: Lead, options: Options) -> Options:
    """Where to stop at a member: one that is no more than a place to set out from need not be
    solved to the last digit; from one that a problem begins with, or with several nodes, the way is
    long."""
    softest = SOFTEST if problem.is_single else 1.0
    least = jnp.where(problem.data.begins_with_member, 1.0, softest)
    last = lead.family == last_family(problem)
    return options.softer(jnp.where(last, lead.share, jnp.maximum(lead.share, least)))


def _other(guess: Base | None) -> Guess | None:
    return None if guess is None else guess.other


def _first(problem: Problem, start: Variables, options: Options, guess: Base | None) -> _Search:
    """The search before all attempts; none is needed where the guess is as good as exact."""
    no, far = jnp.zeros((), bool), jnp.asarray(jnp.inf, start.y.dtype)
    guess = _nowhere(start) if guess is None else guess
    all_leads = leads(problem, guess)
    how = _attempt(problem, all_leads[0].stage, far)
    shapes = jax.eval_shape(lambda: begin(problem, start, jnp.zeros((), int), how, options))
    last: Iterate = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
    left = {"nodes": guess.residual, "complementarity": guess.complementarity}
    measures = last.measures._replace(**left)
    last = last._replace(w=guess.variables, measures=measures)
    done = guess.usable & is_done(last, options) & guess.exact
    return _Search(all_leads, last, done, start, far, no, no)


def _attempt(problem: Problem, stage: Array, fold_residual: Array) -> Attempt:
    """How to walk at a stage; the attempt before met its first fold at this residual."""
    share = jnp.where(stage == Stage.EASED, -1.0 if problem.is_single else 1.0, 0.0)
    return Attempt(
        easing=Easing(share.astype(fold_residual.dtype), is_far(problem, fold_residual)),
        longest=jnp.array(_longests(problem))[stage],
        follow=(stage == Stage.TURN) | (stage == Stage.FOLLOW) | (stage == Stage.FOLLOW_ON),
        closely=stage != Stage.TURN,
        timid=(stage == Stage.GUESSED) | (stage == Stage.OTHER),
        brief=(stage == Stage.COLD) & problem.is_single,
        eases=stage != Stage.OTHER,
    )


def _longests(problem: Problem) -> list[int]:
    """Steps of an attempt at each stage."""
    nodes, cells = len(problem.node_scale), sum(len(group.nodes) for group in problem.groups)
    longests = len(Stage) * [max(LONGEST, min(MOST, PER_NODE * nodes))]
    for stage in (Stage.GUESSED, Stage.OTHER):
        longests[stage] = max(LONGEST_GUESS, min(MOST_GUESS, int(GUESS_PER_CELL * cells)))
    longests[Stage.LOOK_ON] = 0
    for stage in (Stage.TURN, Stage.FOLLOW, Stage.FOLLOW_ON):
        longests[stage] = LONGEST_PATH * (2 if problem.has_many_nodes else 1)
    return longests


def _departure(
    problem: Problem, s: _Search, start: Variables, options: Options, other: Guess | None
) -> Variables:
    """Where the next attempt sets out."""
    lead, rho, fold = s.lead, options.relaxation, s.last.fold
    wanted = jnp.where(lead.stage == Stage.FOLLOW_ON, lead.looked, lead.looked**2)
    solved = jnp.maximum(rho, mean_product(problem, lead.base))  # of a solution at hand
    least = jnp.where(lead.stage == Stage.GUESSED, rho, solved)
    product = jnp.clip(GUESS_PRODUCT * wanted, least, 1)
    from_fold, there = lead.stage == Stage.TURN, mean_product(problem, fold)
    if problem.is_single:
        free = (there < EARLY) & (there > STUCK * s.last.fold_residual)
        from_fold |= (lead.stage == Stage.EASED) & (s.last.folds > 0) & free
    place, product = choose(from_fold, (fold, there), (lead.base, product))
    pushed = centred(problem, place, targets(problem, product, rho))
    guessed = lead.stage == Stage.GUESSED
    as_it_is = (lead.stage == Stage.LOOK_ON) | guessed & is_done(s.last, options)
    leaves = from_fold | guessed | (lead.stage >= Stage.GO_ON)
    w = choose(as_it_is, lead.base, choose(leaves, pushed, start))
    return w if other is None else choose(lead.stage == Stage.OTHER, other.variables, w)


def _unfinished(s: _Search, options: Options) -> Bool[Array, ""]:
    untried = (s.last.iterations == 0) & (s.lead.stage <= Stage.COLD) & ~s.done
    left = s.last.iterations < options.max_iterations
    return s.resumes | untried | s.closing | (left & ~s.done)


def _next(
    problem: Problem, s: _Search, it: Iterate, options: Options, other: Guess | None
) -> _Search:
    """What follows after the attempt of `s` ended at `it`."""
    whole, done = s.lead.share == 1, is_done(it, options)
    error = jnp.where(whole & (s.lead.stage != Stage.LOOK_ON), it.measures.error, jnp.inf)
    best = choose(error < s.error, it.w, s.best)
    lead, *others = following(problem, s.leads, it, done, other is not None and other.usable)
    # What ends unsolved, or with another member, is judged by the problem itself.
    closing = (it.iterations >= options.max_iterations) & ~(done & whole) & ~s.closing
    # An attempt ends where a condition is not finite only if it began there.
    lost = ~it.measures.is_finite & (s.lead.stage == Stage.COLD)
    at_best = lead._replace(
        stage=jnp.asarray(Stage.LOOK_ON), share=jnp.ones_like(lead.share), base=best
    )
    return _Search(
        leads=(choose(closing, at_best, lead), *others),
        last=it,
        done=done & whole | lost,
        best=best,
        error=jnp.minimum(error, s.error),
        closing=closing,
        resumes=jnp.zeros((), bool),
    )


def _solution(last: Iterate, options: Options) -> Solution:
    m = last.measures
    status = jnp.select(
        [is_done(last, options), ~m.is_finite, last.stalled],
        [Status.CONVERGED, Status.NOT_FINITE, Status.STALLED],
        Status.MAX_ITERATIONS,
    ).astype(int)  # a weak type would compile again what is given a guess with it
    return Solution(last.w, status, last.iterations, m.residual, m.complementarity)
