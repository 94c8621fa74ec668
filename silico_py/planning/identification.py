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
from silico_py.compilation import jitted
from silico_py.options import SolverOptions, check_relaxations
from silico_py.scene import Scene, State, check_start
from silico_py.simulate import rollout
from silico_py.validation import listener, number, quaternions, vector

RELAXATIONS = (1e-3, 1e-6)
# Residual of a parameter at e times its guess [m]: what no pose tells stays at the guess, and is
# not led away by rounding; what a pose tells by a micrometre is not moved by 1e-4 of itself.
HELD = 1e-8


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
    on_trial: Callable[[float, float], None] | None = None,
) -> Identified:
    """Find positive parameters whose roll-out follows the observed poses.

    `scipy.optimize.least_squares` on the logarithms of the parameters, with the exact Jacobian
    of the roll-out; each relaxation starts from the parameters of the one before. Its trust region
    starts at a factor of e: where a parameter hardly matters, the slope says nothing of how far.
    What the observation does not tell, such as the mass of a box that slides freely, stays at its
    guess.

    Args:
        make_scene: the scene of given parameters, by name; differentiated, so it must use them
            as they come (masses, friction, sizes ...).
        guess: a positive start for each parameter.
        start: the state before the first step.
        observed: states after each step, stacked; positions and orientations are compared.
        controls: (steps, n, 6) that were applied, none by default.
        relaxations: rho of the roll-outs, one after the other.
        on_trial: called after every roll-out with its relaxation and residual [m].

    Raises:
        ValueError: for no parameters, a guess that is not positive or whose roll-out has no finite
            derivative, what does not make a scene of it, states that are not what they should be
            or not finite, or controls that do not fit the observation.
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
    at = _fits(make_scene, dict(guess), start, observed, controls, listener("on_trial", on_trial))
    if not np.isfinite(at(np.zeros(len(guess)), relaxations[0]).jacobian).all():
        raise ValueError(f"guess: the roll-out has no finite derivative there, got {dict(guess)}")
    logarithms, evaluations, ended = _fitted(at, len(guess), relaxations)
    return _result(guess, logarithms, at(logarithms, relaxations[-1]), evaluations, ended)


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
    """What a roll-out with some parameters misses."""

    residuals: Float[np.ndarray, " rows"]
    jacobian: Float[np.ndarray, "rows parameters"]  # by the logarithms
    converged: Bool[np.ndarray, ""]

    @property
    def size(self) -> float:
        """Root mean square residual."""
        return float(np.sqrt(np.mean(self.residuals**2)))


def _fits(
    make_scene: Callable,
    guess: Mapping[str, float],
    start: State,
    observed: State,
    controls: Array,
    on_trial: Callable[[float, float], None],
) -> Callable[[np.ndarray, float], _Fit]:
    """`_Fit` of logarithms of the parameters over the guess and a relaxation, by one program for
    all."""
    names, given = list(guess), (np.array([*guess.values()], float), start, observed, controls)

    @jitted
    @partial(jax.jacfwd, has_aux=True)
    def run(
        logarithms: Array,
        relaxation: Array,
        guess: Array,
        start: State,
        observed: State,
        controls: Array,
    ) -> tuple[Array, tuple[Array, Array]]:
        scene = make_scene(dict(zip(names, jnp.exp(logarithms) * guess, strict=True)))
        found = rollout(scene, start, controls, SolverOptions(relaxation=relaxation))
        turn = rotation.between(observed.orientation, found.state.orientation)
        offset = found.state.position - observed.position
        change = jnp.concatenate([offset, rotation.chord(turn)], -1).ravel()
        return change, (change, jnp.all(found.info.converged))

    @lru_cache(maxsize=1)  # the Jacobian is asked for where the residuals have just been
    def known(logarithms: bytes, relaxation: float) -> _Fit:
        slopes, (change, fine) = run(np.frombuffer(logarithms), relaxation, *given)
        fit = _Fit(*map(np.asarray, (change, slopes, fine)))
        on_trial(float(relaxation), fit.size)
        return fit

    return lambda logarithms, relaxation: known(logarithms.tobytes(), relaxation)


def _fitted(
    at: Callable[[np.ndarray, float], _Fit], count: int, relaxations: Sequence[Any]
) -> tuple[np.ndarray, int, bool]:
    """Logarithms of the parameters over their guess, the number of roll-outs, and whether the last
    solver converged."""
    held, evaluations = HELD * np.eye(count), 0
    logarithms = np.zeros(count)
    for rho in relaxations:
        fit = least_squares(
            lambda u, rho=rho: np.append(at(u, rho).residuals, HELD * u),
            logarithms,
            jac=lambda u, rho=rho: np.vstack([at(u, rho).jacobian, held]),
            xtol=1e-10,
            gtol=None,  # not relative: a parameter seen only in millimetres would never move
        )
        logarithms, evaluations = fit.x, evaluations + fit.nfev
    return logarithms, evaluations, bool(fit.success)


def _result(
    guess: Mapping[str, float], logarithms: np.ndarray, fit: _Fit, evaluations: int, ended: bool
) -> Identified:
    values = np.exp(logarithms) * [float(value) for value in guess.values()]
    variance = np.sum(fit.residuals**2) / max(len(fit.residuals) - len(guess), 1)
    relative = np.sqrt(_inverse_diagonal(fit.jacobian) * variance)
    return Identified(
        parameters=dict(zip(guess, values.tolist(), strict=True)),
        deviations=dict(zip(guess, (values * relative).tolist(), strict=True)),
        residual=fit.size,
        evaluations=evaluations,
        success=ended and bool(fit.converged),
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
