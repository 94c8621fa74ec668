"""Options of the grasp planner."""

from __future__ import annotations

from dataclasses import dataclass

from silico_py.validation import count, not_negative, number, vector


@dataclass(frozen=True)
class PlannerOptions:
    """How a grasp is searched for.

    Args:
        relaxation: rho of the steps the plan is made of.
        smoothing: rho of the Jacobians behind metric and controls.
        gamma: regularisation of the metric.
        damping: of the least-squares controls.
        stride: longest motion of a finger in one step [m]; contact is felt where a step ends,
            so keep it below the width of object and finger.
        batch: candidates a round, evaluated together.
        pool: placements of the fingers prepared at the start.
        choices: placements of the pool that a regrasp chooses from.
        goal_bias: share of candidates that aim at the goal.
        regrasp: share of candidates that move the fingers first.
        margin: of the sampled poses beyond start and goal (x [m], y [m], yaw [rad]).
        max_nodes: after which the search gives up.
        max_rounds: after which the search gives up.

    Raises:
        ValueError: for a value out of range.
    """

    relaxation: float = 1e-6
    smoothing: float = 3e-3
    gamma: float = 3e-3
    damping: float = 1e-2
    stride: float = 0.08
    batch: int = 8
    pool: int = 64
    choices: int = 8
    goal_bias: float = 0.5
    regrasp: float = 0.4
    margin: tuple[float, float, float] = (0.1, 0.1, 0.5)
    max_nodes: int = 1000
    max_rounds: int = 1000

    def __post_init__(self) -> None:
        for name in ("relaxation", "smoothing", "gamma", "damping", "stride"):
            number(name, getattr(self, name), positive=True)
        for name in ("batch", "pool", "choices", "max_nodes", "max_rounds"):
            count(name, getattr(self, name))
        for name in ("goal_bias", "regrasp"):
            if not 0 <= number(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name}: must lie in [0, 1], got {getattr(self, name)}")
        not_negative("margin", vector("margin", self.margin, 3))
        if self.pool % self.batch:
            raise ValueError(f"pool: must be a multiple of batch {self.batch}, got {self.pool}")
