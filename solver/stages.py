"""Which attempt comes next, and how far each family of problems has led.

What no attempt from a guess or from the start solves is approached along a family of problems that
leads to it: those that the problem names (see `Problem.homotopies`), and last the problem itself
at larger relaxations. A member that is easy enough is solved from the start, and its solution is
the guess for the problem itself, or for a member halfway to what could not be solved from there. A
family may have folds too: where Newton's method fails, the path from the last solution is followed;
where the solutions end, a member beyond is solved from the start. With more than one node the path
from the start to the problem itself is followed before all of that.

The families take turns: one that meets a member that cannot be solved lets the next go on. Their
folds lie at different places, and each solves what the others do not. The second one begins, for
the first has failed at the problem itself; where that is not attempted the first one does.

Source: Allgower and Georg, Numerical Continuation Methods, 1990, chapter 2 (embedding).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver.iterate import Iterate
from silico_py.solver.problem import Problem, choose
from silico_py.solver.vectors import Variables

# Residual of a guess from which on it is not tried, and of one in a crowd.
FAR_GUESS, FAR_IN_CROWD = 0.5, 5.0
CLOSE_GUESS = 0.02  # the same below which another guess is tried after it
# After COLD has failed the path is followed if it ended with an error below CLOSE; with many nodes
# always, unless it stalled above FAR: the path is long then.
CLOSE, FAR = 1e-2, 0.5
FIRST_PART = 0.1  # share of the first member of a family, unless the problem names one
LEAST_WAY = 1e-5  # between two members: where it is less the solutions at hand end


class Stage(IntEnum):
    """What one attempt of a search does, in the order of one search.

    Attributes:
        GUESSED: from a guess.
        OTHER: from another one, as it is, if the first was close.
        COLD: from the start.
        TURN: along the path from the first fold of COLD.
        EASED: from the start, or of a node alone from its first fold, eased from the beginning.
        FOLLOW: along the path from the start.
        PART: at a member of a family, from the start.
        LOOK_ON: no step, only the residual at a member further on.
        GO_ON: at that member, from the solution of the last one.
        FOLLOW_ON: the same along the path.
    """

    GUESSED = 0
    OTHER = 1
    COLD = 2
    TURN = 3
    EASED = 4
    FOLLOW = 5
    PART = 6
    LOOK_ON = 7
    GO_ON = 8
    FOLLOW_ON = 9


class Guess(NamedTuple):
    """A point that may be close to the solution, such as that of a neighbouring problem.

    Of several along a leading axis the one with the smallest residual is tried. It need not be
    interior. One that is not `usable` is ignored. A single interior one to set out from, as it is,
    where that leads nowhere may be given as the `other`.
    """

    variables: Variables
    usable: Bool[Array, ""]
    other: Guess | None = None


class Base(NamedTuple):
    """A point to set out from, and its errors."""

    variables: Variables
    residual: Float[Array, ""]
    complementarity: Float[Array, ""]  # infinite outside the cones
    exact: Bool[Array, ""]  # whether a step would add nothing
    usable: Bool[Array, ""]
    other: Guess | None = None


class Lead(NamedTuple):
    """How far a family has led; the first also counts the attempts before any member."""

    family: Int[Array, ""]
    stage: Int[Array, ""]  # of the next attempt
    share: Float[Array, ""]  # of the member that it is to solve
    base: Variables  # the guess, or the solution of the last member solved
    looked: Float[Array, ""]  # residual of that at the problem to be solved from it
    solved: Float[Array, ""]  # share of that member, 0 before
    reach: Float[Array, ""]  # from there to the next one


def leads(problem: Problem, guess: Base) -> tuple[Lead, ...]:
    """The leads of all families before any attempt, the present one first."""
    cold, part = _without_guess(problem)
    far = FAR_IN_CROWD if problem.is_crowded else FAR_GUESS
    stage = jnp.where(guess.usable & (guess.residual < far), Stage.GUESSED, cold)
    one = jnp.ones_like(guess.residual)
    share = jnp.where(stage == Stage.PART, part, one)
    family = jnp.zeros((), int)
    base = guess.variables, guess.residual
    first = Lead(family, stage, share, *base, solved=0 * one, reach=part * one)
    member = first._replace(stage=jnp.asarray(Stage.PART), share=part * one)
    others = (member._replace(family=family + k) for k in range(1, last_family(problem) + 1))
    return first, *others


def last_family(problem: Problem) -> int:
    """The number of the one that goes through larger relaxations."""
    return len(problem.homotopies)


def following(
    problem: Problem,
    all_leads: tuple[Lead, ...],
    it: Iterate,
    done: Bool[Array, ""],
    has_other: Bool[Array, ""] | bool = False,
) -> tuple[Lead, ...]:
    """The leads after the attempt of the first one ended at `it`, the next one to go on first.

    `has_other` says whether there is another usable guess.
    """
    stage = all_leads[0].stage
    after = _onwards(problem, all_leads[0], it, done, has_other), *all_leads[1:]
    failed = ~done & (stage > Stage.OTHER)
    ends = failed & ((after[0].stage == Stage.PART) | (stage == Stage.FOLLOW_ON))
    return choose(ends, (*after[1:], after[0]), after)


def _without_guess(problem: Problem) -> tuple[Array, Array | float]:
    """The first stage, and the share of the first member."""
    if problem.first_share is None:
        return jnp.asarray(Stage.COLD), FIRST_PART
    hard = problem.data.begins_with_member
    return jnp.where(hard, Stage.PART, Stage.COLD), jnp.where(hard, problem.first_share, FIRST_PART)


def _onwards(
    problem: Problem, lead: Lead, it: Iterate, done: Array, has_other: Array | bool
) -> Lead:
    """Where a family goes on after its attempt ended at `it`."""
    stage = lead.stage
    success = done & (lead.share < 1) & (stage != Stage.LOOK_ON)
    stays = (stage == Stage.LOOK_ON) | (stage == Stage.GO_ON) & ~done  # with this member
    ended = (stage == Stage.FOLLOW_ON) & ~done & (lead.share - lead.solved < LEAST_WAY)
    solved = jnp.select([ended, success], [0, lead.share], lead.solved)
    held = stays | (stage <= Stage.FOLLOW)
    # Others may lie beyond.
    reach = jnp.select([held, ended], [lead.reach, (1 + lead.solved) / 2], _reach(lead, success))
    next_stage = _next_stage(problem, lead, it, done, stays, solved, has_other)
    share = jnp.select([stays, next_stage <= Stage.FOLLOW], [lead.share, 1], solved + reach)
    return lead._replace(
        stage=next_stage,
        share=share.astype(lead.share.dtype),
        base=choose(success, it.w, lead.base),
        looked=jnp.where(stage == Stage.LOOK_ON, it.measures.residual, lead.looked),
        solved=solved,
        reach=reach,
    )


def _reach(lead: Lead, success: Array) -> Array:
    """From the first member to the problem itself; then twice as far, after a failure half."""
    way, rest = lead.share - lead.solved, 1 - lead.share
    further = jnp.where(lead.stage == Stage.PART, rest, jnp.minimum(2 * way, rest))
    return jnp.where(success, further, way / 2)


def _next_stage(
    problem: Problem,
    lead: Lead,
    it: Iterate,
    done: Array,
    stays: Array,
    solved: Array,
    has_other: Array | bool,
) -> Array:
    """The next stage; `stays` says whether it is one of the same member."""
    stage, (cold, _) = lead.stage, _without_guess(problem)
    tries_other = has_other & (stage == Stage.GUESSED) & (lead.looked < CLOSE_GUESS)
    lost = it.stalled & (it.measures.error > FAR)
    turns = problem.has_many_nodes & ~lost | (it.measures.error < CLOSE)
    after_cold = jnp.where(turns, Stage.TURN, Stage.EASED)
    after_eased = Stage.PART if problem.is_single else Stage.FOLLOW
    return jnp.select(
        [
            tries_other,
            stage <= Stage.OTHER,
            stage == Stage.COLD,
            stays | (stage == Stage.TURN),
            stage == Stage.EASED,
            solved > 0,
        ],
        # One further: TURN to EASED, LOOK_ON to GO_ON, that to FOLLOW_ON.
        [Stage.OTHER, cold, after_cold, stage + 1, after_eased, Stage.LOOK_ON],
        Stage.PART,
    )
