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
        max_iterations: Newton steps allowed a step, restarts included.
        method: "single-level".

    Raises:
        ValueError: for a value out of range.
    """

    relaxation: float = 1e-6
    max_iterations: int = 30
    method: str = "single-level"

    def __post_init__(self) -> None:
        if not _traced(self.relaxation) and not self.relaxation > 0:
            raise ValueError(f"relaxation: must be positive, got {self.relaxation}")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations: must be at least 1, got {self.max_iterations}")
        if self.method not in METHODS:
            raise ValueError(f"method: expected one of {METHODS}, got {self.method!r}")

    def check_precision(self, dtype: jnp.dtype) -> None:
        """Refuse a relaxation that `dtype` cannot carry."""
        smallest = SMALLEST_RELAXATION.get(jnp.dtype(dtype).name, jnp.inf)
        if not _traced(self.relaxation) and self.relaxation < smallest:
            raise ValueError(
                f"relaxation: {self.relaxation:g} is below {smallest:g}, the least that "
                f"{jnp.dtype(dtype).name} carries; enable float64 with "
                "jax.config.update('jax_enable_x64', True), or raise it"
            )


def _traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)
