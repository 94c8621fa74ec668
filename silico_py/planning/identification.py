"""System identification: parameters of a scene from an observed trajectory, by least squares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.optimize import least_squares

from silico_py.linearization import difference
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import rollout
from silico_py.validation import vector

RELAXATIONS = (1e-3, 1e-6)


class Identified(NamedTuple):
    """Parameters found by `identify`.

    Attributes:
        parameters: by name.
        deviations: standard deviations by name, from the residual at the solution.
        residual: root mean square difference of the poses [m, rad].
        evaluations: roll-outs, each with its derivative.
        success: whether the least-squares solver converged and every step did.
    """

    parameters: dict[str, float]
    deviations: dict[str, float]
    residual: float
    evaluations: int
    success: bool


def identify(
    make_scene: Callable[[Mapping[str, Any]], Scene],
    guess: Mapping[str, float],
    start: State,
    observed: State,
    controls: Any = None,
    relaxations: tuple[float, ...] = RELAXATIONS,
) -> Identified:
    """Find positive parameters whose roll-out follows the observed poses.

    `scipy.optimize.least_squares` on the logarithms of the parameters, with the exact Jacobian
    of the roll-out; each relaxation starts from the parameters of the one before.

    Args:
        make_scene: the scene of given parameters, by name; differentiated, so it must use them
            as they come (masses, friction, sizes ...).
        guess: a positive start for each parameter.
        start: the state before the first step.
        observed: states after each step, stacked; positions and orientations are compared.
        controls: (steps, n, 6) that were applied, none by default.
        relaxations: rho of the roll-outs, one after the other.

    Raises:
        ValueError: for no parameters, a guess that is not positive, or controls that do not
            fit the observation.
    """
    if not guess:
        raise ValueError("guess: needs at least one parameter")
    bad = [name for name, value in guess.items() if not value > 0]
    if bad:
        raise ValueError(f"guess: must be positive, {bad} is not")
    if not relaxations:
        raise ValueError("relaxations: needs at least one")
    names = tuple(guess)
    steps, n = observed.position.shape[:2]
    controls = np.zeros((steps, n, 6)) if controls is None else controls
    controls = vector("controls", controls, steps, n, 6)
    model = _Model(make_scene, names, start, observed, controls)
    logarithms, evaluations = np.log([guess[name] for name in names]), 0
    for rho in relaxations:
        fit = least_squares(
            lambda u, rho=rho: model.at(u, rho).residuals,
            logarithms,
            jac=lambda u, rho=rho: model.at(u, rho).jacobian,
            x_scale="jac",
            method="lm",
            xtol=1e-10,
        )
        logarithms, evaluations = fit.x, evaluations + fit.nfev
    converged = bool(model.at(fit.x, relaxations[-1]).converged)
    return _result(names, fit, evaluations, converged)


class _Fit(NamedTuple):
    """Of a roll-out with some parameters."""

    residuals: Float[np.ndarray, " rows"]
    jacobian: Float[np.ndarray, "rows parameters"]  # by their logarithms
    converged: Bool[np.ndarray, ""]


class _Model:
    """Fits, by one program for all relaxations."""

    def __init__(
        self, make_scene: Callable, names: tuple[str, ...], start: State, observed: State, controls
    ) -> None:
        def residuals(logarithms: Array, relaxation: Array) -> tuple[Array, tuple[Array, Array]]:
            scene = make_scene(dict(zip(names, jnp.exp(logarithms), strict=True)))
            found = rollout(scene, start, controls, SolverOptions(relaxation=relaxation))
            change = difference(found.state, observed)[..., :6].ravel()
            return change, (change, jnp.all(found.info.converged))

        self._slopes = jax.jit(jax.jacfwd(residuals, has_aux=True))
        self._last: tuple[tuple, _Fit] | None = None

    def at(self, logarithms: np.ndarray, relaxation: float) -> _Fit:
        """At these parameters; the last one is kept: where the Jacobian is asked for."""
        here = (logarithms.tobytes(), relaxation)
        if self._last is None or self._last[0] != here:
            slopes, (change, fine) = self._slopes(logarithms, relaxation)
            self._last = here, _Fit(*map(np.asarray, (change, slopes, fine)))
        return self._last[1]


def _result(names: tuple[str, ...], fit: Any, evaluations: int, converged: bool) -> Identified:
    values = np.exp(fit.x)
    variance = 2 * fit.cost / max(len(fit.fun) - len(names), 1)
    relative = np.sqrt(np.diag(np.linalg.pinv(fit.jac.T @ fit.jac)) * variance)
    return Identified(
        parameters=dict(zip(names, values.tolist(), strict=True)),
        deviations=dict(zip(names, (values * relative).tolist(), strict=True)),
        residual=float(np.sqrt(np.mean(fit.fun**2))),
        evaluations=evaluations,
        success=bool(fit.success) and converged,
    )
