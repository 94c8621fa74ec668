"""Why the interior point stopped."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Outcome of one solve; `message` words it as advice."""

    CONVERGED = 0
    MAX_ITERATIONS = 1
    STALLED = 2
    NOT_FINITE = 3
    INCOMPLETE = 4  # of what calls the solver: it left out equations that matter

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
