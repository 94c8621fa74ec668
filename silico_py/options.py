"""Options of a step."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

METHODS = ("single-level",)
SMALLEST_RELAXATION = {"float32": 1e-3, "float64": 1e-12}


@dataclasses.dataclass(frozen=True)
class SolverOptions:
    """How a step is solved.

    Args:
        relaxation: rho, the target of every complementarity product, dimensionless: a contact
            at rest hovers by about rho / impulse. Residuals are solved to rho / 10. float32
            carries 1e-3, float64 carries 1e-12.
        gradient_relaxation: rho of the solution at which the step is differentiated; larger is
            smoother. None takes `relaxation`.
        max_iterations: Newton steps allowed a step, restarts included.
        polish: Newton steps, at most, that take a converged step from rho / 10 to rounding;
            they are not counted in `info.iterations`. 0 is fastest.
        method: "single-level".

    Raises:
        ValueError: for a value out of range.
    """

    relaxation: float = 1e-6
    gradient_relaxation: float | None = None
    max_iterations: int = 30
    polish: int = 3
    method: str = "single-level"

    def __post_init__(self) -> None:
        for name in ("relaxation", "gradient_relaxation"):
            value = getattr(self, name)
            if value is not None and not _traced(value) and not value > 0:
                raise ValueError(f"{name}: must be positive, got {value}")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations: must be at least 1, got {self.max_iterations}")
        if self.polish < 0:
            raise ValueError(f"polish: must not be negative, got {self.polish}")
        if self.method not in METHODS:
            raise ValueError(f"method: expected one of {METHODS}, got {self.method!r}")

    def check_precision(self, dtype: jnp.dtype) -> None:
        """Refuse a relaxation that `dtype` cannot carry."""
        smallest = SMALLEST_RELAXATION.get(jnp.dtype(dtype).name, jnp.inf)
        for name in ("relaxation", "gradient_relaxation"):
            value = getattr(self, name)
            if value is None or _traced(value) or value >= smallest:
                continue
            raise ValueError(
                f"{name}: {value:g} is below {smallest:g}, the least that "
                f"{jnp.dtype(dtype).name} carries; enable float64 with "
                "jax.config.update('jax_enable_x64', True), or raise it"
            )


def _traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)
