"""Stepping: one step, and rollouts."""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.assembly import kinds_of
from silico_py.compilation import jitted
from silico_py.differentiable import advance
from silico_py.one_step import Info
from silico_py.options import SolverOptions, or_default
from silico_py.scene import Scene, State, check_state
from silico_py.validation import given, is_count, vector
from silico_py.warm_start import Remembered, check_guess, nothing


class Trajectory(NamedTuple):
    """Result of `rollout`.

    Attributes:
        state: after each step, with a leading axis of steps; the start is not among them.
        info: of each step, with the same axis; its `guess` is None.
    """

    state: State
    info: Info


def step(
    scene: Scene,
    state: State,
    control: ArrayLike | None = None,
    options: SolverOptions | None = None,
    guess: Remembered | None = None,
) -> tuple[State, Info]:
    """Advance one time step.

    Args:
        scene: the scene; may be traced, batched and differentiated like any pytree.
        state: the current state.
        control: (n, 6) force [N] and torque [N m] at the centre of mass, world frame (`force_at`
            is that of a force at another point); for directions in which a body has stiffness, the
            commanded displacement [m, rad] in this step instead.
        options: relaxation and limits.
        guess: `info.guess` of the step before, or `no_guess` at the first one of a loop. The
            search first tries to continue the last three solutions: that takes a third of the
            iterations, and none at rest. `rollout` does this by itself.

    Returns:
        The next state and an `Info`. A step that does not converge returns its best finite
        iterate and says so in `info.converged`.

    Raises:
        ValueError: for a state that does not fit the scene, whose quaternions are not unit ones
            or whose precision is not the scene's, a control of the wrong shape or not finite, a
            relaxation that the state's precision cannot carry, or a guess of another scene or kind
            of options.
    """
    options = checked(options, scene, state)
    check_guess(guess)
    return _step(scene, state, checked_control(scene, state, control), options, guess)


@jitted
def _step(
    scene: Scene,
    state: State,
    control: Array,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[State, Info]:
    following, info = advance(scene, state, control, options, guess)
    return following, info._replace(guess=jax.lax.stop_gradient(info.guess))


@overload
def rollout(
    scene: Scene,
    state: State,
    controls: int | ArrayLike,
    options: SolverOptions | None = ...,
    guess: Remembered | None = ...,
    with_guess: Literal[False] = ...,
) -> Trajectory: ...


@overload
def rollout(
    scene: Scene,
    state: State,
    controls: int | ArrayLike,
    options: SolverOptions | None = ...,
    guess: Remembered | None = ...,
    *,
    with_guess: Literal[True],
) -> tuple[Trajectory, Remembered | None]: ...


def rollout(
    scene: Scene,
    state: State,
    controls: int | ArrayLike,
    options: SolverOptions | None = None,
    guess: Remembered | None = None,
    with_guess: bool = False,
) -> Trajectory | tuple[Trajectory, Remembered | None]:
    """Step repeatedly with `lax.scan`.

    With `options.warm_start` each step is first tried from the solutions of those before.

    Args:
        scene: the scene.
        state: the initial state.
        controls: a number of steps, or controls (steps, n, 6).
        options: relaxation and limits.
        guess: what the first step is tried from: the guess of an earlier part of the same motion.
        with_guess: also return the guess that the last step leaves for a part to come; None
            without `options.warm_start`.

    Returns:
        A `Trajectory`, or with `with_guess` that and the guess.

    Raises:
        ValueError: as `step`, for controls of the wrong shape or not finite, and for a guess
            without `options.warm_start`.
    """
    options = checked(options, scene, state)
    known = _checked_controls(scene, state, controls)
    if guess is not None and not options.warm_start:
        raise ValueError("guess: options.warm_start is off; turn it on or leave the guess out")
    check_guess(guess)
    trajectory, last = _rollout(scene, state, known, options, guess)
    return (trajectory, last) if with_guess else trajectory


def _checked_controls(
    scene: Scene, state: State, controls: int | ArrayLike
) -> Float[Array | np.ndarray, "steps n 6"]:
    if is_count(controls) and controls >= 0:
        return checked_control(scene, state, None, "controls", int(controls))
    if isinstance(controls, (jax.Array, np.ndarray)) and controls.ndim == 0:
        raise ValueError(f"controls: a number of steps must be a Python int, got {controls!r}")
    if hasattr(controls, "__len__"):
        return checked_control(scene, state, controls, "controls", None)
    raise ValueError(
        f"controls: expected a number of steps, or an array (steps, n, 6), got {given(controls)}"
    )


@jitted
def _rollout(
    scene: Scene,
    state: State,
    controls: Array | np.ndarray,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[Trajectory, Remembered | None]:
    def one(before: tuple, control: Array) -> tuple[tuple, Trajectory]:
        following, info = _step(scene, before[0], control, options, before[1])
        return (following, info.guess), Trajectory(following, info._replace(guess=None))

    if guess is None and options.warm_start:
        guess = no_guess(scene, state, options)
    (_, last), trajectory = jax.lax.scan(one, (state, guess), controls)
    return trajectory, last


def no_guess(scene: Scene, state: State, options: SolverOptions | None = None) -> Remembered:
    """An empty guess, which stands for `Info.guess` before the first step of a loop.

    Args:
        scene: the scene of the loop.
        state: any of its states; its precision counts.
        options: those of the steps; their `method`, `max_contacts` and whether there is a
            `gradient_relaxation` count.

    Raises:
        ValueError: for options of another type, or a state that does not fit the scene.
    """
    options = or_default(options)
    check_state(scene, state)
    return _no_guess(scene, options)


@jitted
def _no_guess(scene: Scene, options: SolverOptions) -> Remembered:
    how = options.formulation, options.contact_limits
    kinds = [pairs for _, pairs in kinds_of(scene)]
    empty = nothing(len(scene.bodies), kinds, *how, scene.timestep.dtype)
    copies = () if options.gradient_relaxation is None else (2,)
    return jax.tree.map(lambda v: jnp.zeros((*copies, *v.shape), v.dtype), empty)


def checked(options: SolverOptions | None, scene: Scene, state: State) -> SolverOptions:
    """The options, or the default ones, if the state fits the scene and has their precision."""
    options = or_default(options)
    check_state(scene, state)
    options.check_precision(state.position.dtype)
    return options


def checked_control(
    scene: Scene,
    state: State,
    control: ArrayLike | None,
    name: str = "control",
    *steps: int | None,
) -> Float[Array | np.ndarray, "*steps n 6"]:
    """The control as an array, or that of so many steps, None of any number; no control is zero, of
    numpy: jax takes as long as a step to make one."""
    shape, dtype = (*steps, len(scene.bodies), 6), state.position.dtype
    if control is None:
        return np.zeros(shape, dtype)
    return vector(name, control, *shape).astype(dtype)
