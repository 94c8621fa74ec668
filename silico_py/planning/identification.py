"""System identification: parameters of a scene from an observed trajectory, by least squares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.optimize import least_squares

from silico_py import rotation
from silico_py.options import SolverOptions, check_relaxations
from silico_py.scene import Scene, State
from silico_py.simulate import rollout
from silico_py.validation import number, vector

RELAXATIONS = (1e-3, 1e-6)


class Identified(NamedTuple):
    """Parameters found by `identify`.

    Attributes:
        parameters: by name.
        deviations: standard deviations by name, from the residual at the solution.
        residual: root mean square difference of the poses [m, rad]; turns count as twice the sine
            of half their angle.
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
        ValueError: for no parameters, a guess that is not positive, states that are not what they
            should be, or controls that do not fit the observation.
    """
    if not guess:
        raise ValueError("guess: needs at least one parameter")
    for name, value in guess.items():
        number(f"guess[{name!r}]", value, positive=True)
    _check_states(start, observed)
    check_relaxations("relaxations", relaxations, start.position.dtype)
    names = tuple(guess)
    steps, n = observed.position.shape[:2]
    controls = np.zeros((steps, n, 6)) if controls is None else controls
    controls = vector("controls", controls, steps, n, 6)
    at = _fits(make_scene, names, start, observed, controls)
    logarithms, evaluations = np.log([guess[name] for name in names]), 0
    for rho in relaxations:
        fit = least_squares(
            lambda u, rho=rho: at(u.tobytes(), rho).residuals,
            logarithms,
            jac=lambda u, rho=rho: at(u.tobytes(), rho).jacobian,
            x_scale="jac",
            method="lm",
            xtol=1e-10,
        )
        logarithms, evaluations = fit.x, evaluations + fit.nfev
    converged = bool(at(fit.x.tobytes(), relaxations[-1]).converged)
    return _result(names, fit, evaluations, converged)


def _check_states(start: State, observed: State) -> None:
    shapes = ("n", "3"), ("steps", "n", "3")
    for name, states, shape in zip(("start", "observed"), (start, observed), shapes, strict=True):
        if not isinstance(states, State):
            raise ValueError(f"{name}: expected a State, got {type(states).__name__}")
        if np.ndim(states.position) != len(shape):
            raise ValueError(
                f"{name}: expected positions of shape ({', '.join(shape)}), got "
                f"{np.shape(states.position)}"
            )


class _Fit(NamedTuple):
    """Of a roll-out with some parameters."""

    residuals: Float[np.ndarray, " rows"]
    jacobian: Float[np.ndarray, "rows parameters"]  # by their logarithms
    converged: Bool[np.ndarray, ""]


def _fits(
    make_scene: Callable, names: tuple[str, ...], start: State, observed: State, controls: Array
) -> Callable[[bytes, float], _Fit]:
    """Of logarithms of the parameters and a relaxation, by one program for all of them."""

    @jax.jit
    @partial(jax.jacfwd, has_aux=True)
    def run(logarithms: Array, relaxation: Array) -> tuple[Array, tuple[Array, Array]]:
        scene = make_scene(dict(zip(names, jnp.exp(logarithms), strict=True)))
        found = rollout(scene, start, controls, SolverOptions(relaxation=relaxation))
        turn = rotation.between(observed.orientation, found.state.orientation)
        offset = found.state.position - observed.position
        change = jnp.concatenate([offset, rotation.chord(turn)], -1).ravel()
        return change, (change, jnp.all(found.info.converged))

    @lru_cache(maxsize=1)  # the Jacobian is asked for where the residuals have just been
    def at(logarithms: bytes, relaxation: float) -> _Fit:
        slopes, (change, fine) = run(np.frombuffer(logarithms), relaxation)
        return _Fit(*map(np.asarray, (change, slopes, fine)))

    return at


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
