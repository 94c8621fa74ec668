"""System identification: parameters of a scene from an observed trajectory, by least squares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from silico_py import rotation
from silico_py.options import SolverOptions, check_relaxations
from silico_py.scene import Scene, State, check_start
from silico_py.simulate import rollout
from silico_py.validation import number, quaternions, vector

RELAXATIONS = (1e-3, 1e-6)


class Identified(NamedTuple):
    """Parameters found by `identify`.

    Attributes:
        parameters: by name.
        deviations: standard deviations by name, from the residual at the solution; infinite where
            the observation does not determine the parameter.
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
    controls: ArrayLike | None = None,
    relaxations: Sequence[float] | Array = RELAXATIONS,
) -> Identified:
    """Find positive parameters whose roll-out follows the observed poses.

    `scipy.optimize.least_squares` on the logarithms of the parameters, with the exact Jacobian
    of the roll-out; each relaxation starts from the parameters of the one before. Its trust region
    starts at a factor of e: where a parameter hardly matters, the slope says nothing of how far.

    Args:
        make_scene: the scene of given parameters, by name; differentiated, so it must use them
            as they come (masses, friction, sizes ...).
        guess: a positive start for each parameter.
        start: the state before the first step.
        observed: states after each step, stacked; positions and orientations are compared.
        controls: (steps, n, 6) that were applied, none by default.
        relaxations: rho of the roll-outs, one after the other.

    Raises:
        ValueError: for no parameters, a guess that is not positive, what does not make a scene of
            it, states that are not what they should be or not finite, or controls that do not fit
            the observation.
    """
    if not (isinstance(guess, Mapping) and guess):
        raise ValueError(f"guess: needs at least one parameter by name, got {guess!r}")
    for name, value in guess.items():
        number(f"guess[{name!r}]", value, positive=True)
    check_start(_made(make_scene, guess), start, "start")
    steps = _check_observed(observed, len(start.position))
    relaxations = check_relaxations("relaxations", relaxations, start.position.dtype)
    shape = (steps, len(start.position), 6)
    controls = vector("controls", np.zeros(shape) if controls is None else controls, *shape)
    at = _fits(make_scene, dict(guess), start, observed, controls)
    factors, evaluations = np.zeros(len(guess)), 0
    for rho in relaxations:
        fit = least_squares(
            lambda u, rho=rho: at(u.tobytes(), rho).residuals,
            factors,
            jac=lambda u, rho=rho: at(u.tobytes(), rho).jacobian,
            xtol=1e-10,
            gtol=None,  # not relative: a parameter seen only in millimetres would never move
        )
        factors, evaluations = fit.x, evaluations + fit.nfev
    converged = bool(at(fit.x.tobytes(), relaxations[-1]).converged)
    return _result(guess, fit, evaluations, converged)


def _made(make_scene: Callable, guess: Mapping[str, float]) -> Scene:
    if not callable(make_scene):
        raise ValueError(f"make_scene: expected a function, got {make_scene!r}")
    scene = make_scene(guess)
    if not isinstance(scene, Scene):
        raise ValueError(f"make_scene: must return a Scene, got {type(scene).__name__}")
    return scene


def _check_observed(observed: State, n: int) -> int:
    """The number of steps that were observed."""
    if not isinstance(observed, State):
        raise ValueError(f"observed: expected a State, got {type(observed).__name__}")
    shape = np.shape(observed.position)
    if len(shape) != 3 or shape[0] == 0:
        raise ValueError(f"observed: expected positions of shape (steps, n, 3), got {shape}")
    vector("observed: position", observed.position, shape[0], n, 3)
    quaternions("observed: orientation", observed.orientation, shape[0], n)
    return shape[0]


class _Fit(NamedTuple):
    """Of a roll-out with some parameters."""

    residuals: Float[np.ndarray, " rows"]
    jacobian: Float[np.ndarray, "rows parameters"]  # by the logarithms
    converged: Bool[np.ndarray, ""]


def _fits(
    make_scene: Callable, guess: Mapping[str, float], start: State, observed: State, controls: Array
) -> Callable[[bytes, float], _Fit]:
    """Of logarithms of the parameters over the guess and a relaxation, by one program for all."""

    @jax.jit
    @partial(jax.jacfwd, has_aux=True)
    def run(logarithms: Array, relaxation: Array) -> tuple[Array, tuple[Array, Array]]:
        factors = zip(guess.items(), jnp.exp(logarithms), strict=True)
        scene = make_scene({name: factor * value for (name, value), factor in factors})
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


def _result(guess: Mapping[str, float], fit: Any, evaluations: int, converged: bool) -> Identified:
    values = np.exp(fit.x) * [float(value) for value in guess.values()]
    variance = 2 * fit.cost / max(len(fit.fun) - len(guess), 1)
    relative = np.sqrt(_inverse_diagonal(fit.jac) * variance)
    return Identified(
        parameters=dict(zip(guess, values.tolist(), strict=True)),
        deviations=dict(zip(guess, (values * relative).tolist(), strict=True)),
        residual=float(np.sqrt(np.mean(fit.fun**2))),
        evaluations=evaluations,
        success=bool(fit.success) and converged,
    )


def _inverse_diagonal(
    jacobian: Float[np.ndarray, "rows parameters"],
) -> Float[np.ndarray, " parameters"]:
    """The diagonal of (J^T J)^-1; infinite for parameters that the residuals do not determine."""
    _, values, directions = np.linalg.svd(np.linalg.qr(jacobian, "r"), full_matrices=True)
    values = np.pad(values, (0, len(directions) - len(values)))
    rounding = np.finfo(values.dtype).eps
    seen = values > rounding * max(jacobian.shape) * max(values.max(), 1)
    unseen = np.any(np.abs(directions[~seen]) > np.sqrt(rounding), axis=0)
    return np.where(unseen, np.inf, np.sum((directions[seen] / values[seen, None]) ** 2, axis=0))
