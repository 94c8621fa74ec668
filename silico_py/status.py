"""Why a time step ended."""

from __future__ import annotations

from enum import IntEnum

from silico_py import solver


class Status(IntEnum):
    """Outcome of one time step: that of its solve, or one of its own; `message` is advice.

    Attributes:
        CONVERGED: both tolerances are met and no contact is missing.
        MAX_ITERATIONS: the iteration limit was reached first.
        STALLED: Newton steps became too short, or a collision program was not solved.
        NOT_FINITE: state, control or parameters are NaN or infinite.
        INCOMPLETE: a pair that may push has no equations.
    """

    CONVERGED = solver.Status.CONVERGED
    MAX_ITERATIONS = solver.Status.MAX_ITERATIONS
    STALLED = solver.Status.STALLED
    NOT_FINITE = solver.Status.NOT_FINITE
    INCOMPLETE = max(solver.Status) + 1

    @property
    def message(self) -> str:
        """What happened, and what to do about it."""
        return {
            Status.CONVERGED: "converged",
            Status.MAX_ITERATIONS: "iteration limit reached: raise max_iterations",
            Status.STALLED: "steps became too short: raise relaxation or shorten the time step",
            Status.NOT_FINITE: "the start is not finite: check state, control and parameters",
            Status.INCOMPLETE: "a contact that may push was left out: raise max_contacts",
        }[self]
