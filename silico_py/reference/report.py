"""What a check found: each condition with its value and the range it may lie in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple


class Condition(NamedTuple):
    """One condition; it holds if `low <= value <= high`, with low <= 0 <= high.

    Attributes:
        value: what was measured, dimensionless.
        low, high: what the relaxation and the solver's tolerance leave room for.
        where: the body or the contact it was measured at.
    """

    value: float
    low: float
    high: float
    where: str = ""

    @property
    def ok(self) -> bool:
        """Whether the value lies in its range; NaN does not."""
        return self.low <= self.value <= self.high

    @property
    def strain(self) -> float:
        """The value over the end of the range on its side: above 1 the condition fails."""
        if math.isnan(self.value):
            return math.inf
        end = self.high if self.value > 0 else self.low
        if self.value == 0 or math.isinf(end):
            return 0.0
        return self.value / end if end else math.inf


def at_most(value: float, high: float, where: str = "") -> Condition:
    """A size that may reach `high`."""
    return Condition(float(value), -math.inf, float(high), where)


def worst(conditions: Iterable[Condition]) -> Condition:
    """The one closest to, or furthest beyond, its end; an empty one where there is none."""
    return max(conditions, key=lambda c: (c.strain, c.value), default=Condition(0.0, 0.0, 0.0))


@dataclasses.dataclass(frozen=True, repr=False)
class StepReport:
    """The conditions of one step, each at the body or contact where it is worst.

    Everything is in the units of the contact (impulse: its lighter body at the unit of
    speed; length: its smaller shape) or of the body (momentum: its mass at the unit of speed), as
    the relaxation is. The unit of speed is 1 m/s, times the root of the smallest shape's size in
    metres where that is more than one. For bodies and slips faster before the step than twice that
    it is half their speed, and for bodies that overlap, or are pressed, it is doubled until they
    part with, or are given in a step, no more than `silico_py.assembly.LARGE` of it.

    Attributes:
        pose: the next pose is the present one moved by the next velocity.
        momentum: linear balance of applied and contact impulses.
        angular_momentum: angular balance about the centre of mass.
        point: scaling beyond alpha that the contact point needs.
        exact: alpha less the exact one of `reference.collide`.
        certificate: alpha less the bound that the reported normal proves.
        normal: its length less 1; against a half-space, its difference from that one's own.
        gap: (alpha - 1) gamma, the complementarity of gap and normal impulse.
        normal_force: normal impulse, not negative.
        friction_cone: tangential impulse beyond mu times the normal one.
        dissipation: largest possible dissipation by friction less the actual one.
        direction: |tangential impulse x slip|: friction acts along the slip.
    """

    pose: Condition
    momentum: Condition
    angular_momentum: Condition
    point: Condition
    exact: Condition
    certificate: Condition
    normal: Condition
    gap: Condition
    normal_force: Condition
    friction_cone: Condition
    dissipation: Condition
    direction: Condition

    @property
    def ok(self) -> bool:
        """Whether every condition holds."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the conditions that do not hold."""
        names = [field.name for field in dataclasses.fields(self)]
        return tuple(name for name in names if not getattr(self, name).ok)

    def __repr__(self) -> str:
        lines = [f"StepReport: {'ok' if self.ok else 'FAILED'}"]
        for field in dataclasses.fields(self):
            c: Condition = getattr(self, field.name)
            mark = "ok" if c.ok else "FAILED"
            span = f"[{c.low:.2e}, {c.high:.2e}]"
            lines.append(f"  {field.name:17s}{c.value:10.2e} in {span:24s}{mark:8s}{c.where}")
        return "\n".join(lines)
