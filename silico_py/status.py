"""Why a time step ended."""

from __future__ import annotations

from enum import IntEnum

from silico_py import solver


class Status(IntEnum):
    """Outcome of one time step: that of its solve, or one of its own; `message` is advice.

    Attributes:
        CONVERGED: both tolerances are met and no contact is missing.
        MAX_ITERATIONS: the iteration limit was reached first.
        NOT_FINITE: state, control or parameters are NaN or infinite.
        INCOMPLETE: a pair that may push has no equations.
        UNLOCATED: a collision program of the bilevel method was not solved.
    """

    CONVERGED = solver.Status.CONVERGED
    MAX_ITERATIONS = solver.Status.MAX_ITERATIONS
    NOT_FINITE = solver.Status.NOT_FINITE
    INCOMPLETE = max(solver.Status) + 1
    UNLOCATED = INCOMPLETE + 1

    @property
    def message(self) -> str:
        """What happened, and what to do about it."""
        return {
            Status.CONVERGED: "converged",
            Status.MAX_ITERATIONS: "iteration limit reached: raise max_iterations or relaxation, "
            "or shorten the time step",
            Status.NOT_FINITE: "the start is not finite: check state, control and parameters",
            Status.INCOMPLETE: "a contact that may push was left out: raise max_contacts",
            Status.UNLOCATED: "a contact was not found: raise collision_relaxation",
        }[self]
