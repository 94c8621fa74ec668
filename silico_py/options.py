"""Options of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from silico_py import bilevel
from silico_py.broad_phase import Limits
from silico_py.contact import Formulation
from silico_py.contact_jacobian import SINGLE_LEVEL
from silico_py.primitives import pytree_dataclass, static
from silico_py.primitives._checks import concrete
from silico_py.validation import flag, is_count

METHODS = ("single-level", "bilevel")
RELAXATIONS = ("relaxation", "gradient_relaxation", "collision_relaxation")
SMALLEST_RELAXATION = {"float32": 1e-5, "float64": 1e-12}

DOUBLE = "use float64, with jax.config.update('jax_enable_x64', True) first of all, or "


@pytree_dataclass
class SolverOptions:
    """How a step is solved.

    Args:
        relaxation: rho, the target of every complementarity product, dimensionless: a contact
            at rest hovers by about rho / impulse. Residuals are solved to rho / 10. float32
            carries 1e-5, float64 carries 1e-12.
        gradient_relaxation: rho of the solution at which the step is differentiated; larger is
            smoother. None takes `relaxation`. A step converges if both solutions are found.
        max_iterations: Newton steps allowed a step, further attempts included; the solution at
            `gradient_relaxation` is allowed as many. About 10 are usual and the paper allows 30;
            most of the few steps that take more take 60, the rarest hundreds. Set fewer where an
            answer in time matters more than a solved step.
        polish: Newton steps, at most, that take a converged step from rho / 10 to rounding;
            they are not counted in `info.iterations`. 0 is fastest; bodies at rest then do not
            feel a change of force of less than a thousandth of the relaxation, in weights.
        warm_start: whether `rollout` first tries each step from the solutions of those before.
        method: "single-level", or "bilevel": collision programs solved inside the contact
            problem, the baseline of the paper.
        max_contacts: the most contacts that a step has equations for, or two numbers: between two
            bodies, and of bodies with the environment. The nearest pairs get them, of each kind of
            pair (balls around the pieces tell; large and small polytopes are two kinds). None is
            all pairs. A step that lacks a pair that may push says that it has not converged.
        collision_relaxation: rho of the bilevel's collision programs.
        collision_warm_start: whether these start from the solution at the pose before the step.

    Raises:
        ValueError: for a value out of range.

    The relaxations, `max_iterations`, `polish` and `collision_warm_start` are leaves of a pytree:
    changing their values does not compile again, but `gradient_relaxation` from None to a number
    does.
    """

    relaxation: float | Array = 1e-6
    gradient_relaxation: float | Array | None = None
    max_iterations: int | Array = 2000
    polish: int | Array = 3
    warm_start: bool = static(True)
    method: str = static("single-level")
    max_contacts: int | tuple[int, int] | None = static()
    collision_relaxation: float | Array = 1e-6
    collision_warm_start: bool | Array = False

    def __post_init__(self) -> None:
        for name in RELAXATIONS:
            value = getattr(self, name)
            optional = name == "gradient_relaxation" and value is None
            if not (optional or _traced(value) or _is_positive(value)):
                raise ValueError(f"{name}: must be a positive number, got {value!r}")
        for name, least in (("max_iterations", 1), ("polish", 0)):
            value = getattr(self, name)
            if not (_traced(value) or (_is_whole(value) and value >= least)):
                raise ValueError(f"{name}: must be an int, at least {least}, got {value!r}")
        flag("warm_start", self.warm_start)
        if not _traced(self.collision_warm_start):
            flag("collision_warm_start", self.collision_warm_start)
        limits = self.contact_limits
        known = all(most is None or (is_count(most) and most > 0) for most in limits)
        if not known or len(limits) != 2:
            raise ValueError(f"max_contacts: expected one or two ints above 0, got {limits}")
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise ValueError(f"method: expected one of {METHODS}, got {self.method!r}")

    @property
    def contact_limits(self) -> Limits:
        """`max_contacts` of pairs of bodies, and of bodies with the environment."""
        most = self.max_contacts
        return most if isinstance(most, tuple) else (most, most)

    @property
    def formulation(self) -> Formulation:
        """How contacts are found."""
        if self.method == "single-level":
            return SINGLE_LEVEL
        return bilevel.formulation(self.collision_relaxation, self.collision_warm_start)

    def check_precision(self, dtype: jnp.dtype) -> None:
        """Refuse a relaxation that `dtype` cannot carry.

        Raises:
            ValueError: for such a one, with what to do about it.
        """
        smallest = SMALLEST_RELAXATION.get(jnp.dtype(dtype).name, jnp.inf)
        for name in RELAXATIONS:
            value = getattr(self, name)
            unused = name == "collision_relaxation" and self.method != "bilevel"
            known = None if unused or value is None else concrete(value)
            if known is None or known >= smallest:
                continue
            advice = "" if jnp.dtype(dtype) == jnp.float64 else DOUBLE
            raise ValueError(
                f"{name}: {known:g} is below {smallest:g}, the least that "
                f"{jnp.dtype(dtype).name} carries; {advice}raise it"
            )


def _is_positive(value: object) -> bool:
    """Whether it is one finite number above 0."""
    array = _as_array(value)
    return array.ndim == 0 and array.dtype.kind in "iuf" and 0 < float(array) < np.inf


def _is_whole(value: object) -> bool:
    """Whether it is one integer."""
    array = _as_array(value)
    return array.ndim == 0 and array.dtype.kind in "iu"


def _as_array(value: object) -> np.ndarray:
    """The value as an array, also of what is no array of numbers."""
    try:
        known = concrete(value)
    except ValueError:
        known = None
    return np.asarray(value, object) if known is None else known


def or_default(options: SolverOptions | None) -> SolverOptions:
    """The options, or the default ones.

    Raises:
        ValueError: for what is neither options nor None.
    """
    if options is None:
        return SolverOptions()
    if not isinstance(options, SolverOptions):
        raise ValueError(f"options: expected SolverOptions, got {type(options).__name__}")
    return options


def check_relaxations(
    name: str, values: Sequence[float] | Array, dtype: jnp.dtype
) -> tuple[Any, ...]:
    """Several relaxations, as floats where they are known.

    Raises:
        ValueError: for none at all, and for one that `SolverOptions` or the precision refuses.
    """
    if isinstance(values, (np.ndarray, jax.Array)) and values.ndim == 1:
        values = values.tolist()
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ValueError(f"{name}: expected one relaxation or more in a sequence, got {values!r}")
    for value in values:
        try:
            SolverOptions(relaxation=value).check_precision(dtype)
        except ValueError as error:
            what = str(error).removeprefix("relaxation: ")
            raise ValueError(f"{name}: {what}") from error
    traced = jax.core.Tracer
    return tuple(value if isinstance(value, traced) else float(value) for value in values)


def relaxations(options: SolverOptions, dtype: jnp.dtype) -> tuple[Array, Array]:
    """The relaxations of a step and of its derivatives."""
    smooth = options.gradient_relaxation
    both = options.relaxation, options.relaxation if smooth is None else smooth
    one, other = (jnp.asarray(rho, dtype) for rho in both)
    return one, other


def _traced(value: object) -> bool:
    """Whether only its shape is known."""
    return isinstance(value, jax.core.Tracer) and concrete(value) is None
