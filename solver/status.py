"""Why the interior point stopped."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Outcome of one solve.

    Attributes:
        CONVERGED: both tolerances are met.
        MAX_ITERATIONS: the iteration limit was reached first.
        STALLED: the same, at steps too short to lead anywhere; of a monotone problem alone, as
            other searches then set out again.
        NOT_FINITE: a condition at the start is NaN or infinite.
    """

    CONVERGED = 0
    MAX_ITERATIONS = 1
    STALLED = 2
    NOT_FINITE = 3
