"""The next state's derivative in tangent coordinates, at any smoothness."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from silico_py.compilation import jitted
from silico_py.one_step import Info, begin, end, next_state, solved
from silico_py.options import SolverOptions, check_relaxations, or_default
from silico_py.scene import Scene, State, check_state
from silico_py.sensitivity import OperatingPoint, matrices
from silico_py.simulate import checked_control
from silico_py.solver import Variables, implicit, one_by_one
from silico_py.state_derivative import with_derivatives
from silico_py.warm_start import Remembered, check_guess

Matrix = Float[Array, "*k rows columns"]


@overload
def linearize(
    scene: Scene,
    state: State,
    control: ArrayLike | None = ...,
    smoothing: ArrayLike = ...,
    options: SolverOptions | None = ...,
    guess: Remembered | None = ...,
    with_step: Literal[False] = ...,
) -> tuple[Matrix, Matrix]: ...


@overload
def linearize(
    scene: Scene,
    state: State,
    control: ArrayLike | None = ...,
    smoothing: ArrayLike = ...,
    options: SolverOptions | None = ...,
    guess: Remembered | None = ...,
    *,
    with_step: Literal[True],
) -> tuple[Matrix, Matrix, State, Info]: ...


def linearize(
    scene: Scene,
    state: State,
    control: ArrayLike | None = None,
    smoothing: ArrayLike = 1e-3,
    options: SolverOptions | None = None,
    guess: Remembered | None = None,
    with_step: bool = False,
) -> tuple[Matrix, Matrix] | tuple[Matrix, Matrix, State, Info]:
    """Derivative of the next state with respect to state and control.

    Args:
        scene: the scene, n bodies.
        state: where to differentiate.
        control: (n, 6) as for `step`.
        smoothing: rho of the solution that is differentiated, or k of them, largest first:
            each is then reached from the one before it.
        options: iteration limits and method; of its relaxations only `collision_relaxation` is
            used.
        guess: `info.guess` of a step from this state or close to it, with the same method. Where
            it is the solution at the (first) smoothing, that is not searched for again;
            otherwise the search is tried from there first.
        with_step: also return what `step` does at the smoothing, of which it is a part: a loop
            that wants the step and its derivative at one relaxation pays for one search.

    Returns:
        A (12n, 12n) and B (12n, 6n), with a leading axis k for k smoothings. Rows and columns
        are body after body (dx, dtheta, dv, dw), see `perturb`; columns of B are those of the
        control. They are NaN where the search for the solution fails. With `with_step` also the
        next state and its `Info`, as of `step`.

    Raises:
        ValueError: for a state that does not fit the scene or whose quaternions are not unit
            ones, a control of the wrong shape, a smoothing that is empty, not positive or below
            what the state's precision carries, or a guess of another scene or kind of options.
    """
    options = or_default(options)
    check_state(scene, state)
    relaxations = _checked(smoothing, state.position.dtype)
    others = replace(options, relaxation=1.0, gradient_relaxation=None)
    others.check_precision(state.position.dtype)
    check_guess(guess)
    control = checked_control(scene, state, control)
    return _linearize(scene, state, control, relaxations, options, guess, with_step)


@partial(jitted, static_argnames="with_step")
def _linearize(
    scene: Scene,
    state: State,
    control: Array,
    relaxations: Array | np.ndarray,
    options: SolverOptions,
    guess: Remembered | None,
    with_step: bool,
) -> tuple[Any, ...]:
    run = one_by_one(partial(_along, with_step))
    found = run(scene, state, control, relaxations, options, guess)
    if not with_step:
        return found
    *others, info = found
    return *others, info._replace(guess=jax.lax.stop_gradient(info.guess))


def _along(
    with_step: bool,
    scene: Scene,
    state: State,
    control: Array,
    relaxations: Array,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[Any, ...]:
    """The derivatives at a relaxation, or at one after another."""

    def at(rho: Array, first: Bool[Array, ""], start: Variables | None) -> tuple[Any, ...]:
        begun = begin(scene, state, control, rho, _usable(first, guess), options)
        found = solved(begun, rho, options, start, accept=not with_step)
        point = found.variables
        following = next_state(begun.motions, begun.arm, point.y)
        here = replace(options, relaxation=rho, gradient_relaxation=None)
        place = OperatingPoint(scene, state, control, here, point, point.y, following)
        found_matrices = jax.tree.map(
            lambda matrix: jnp.where(found.converged, matrix, jnp.nan),
            with_derivatives(place, matrices(begun, place)),
        )
        if not with_step:
            return point, found_matrices
        solution = found._replace(variables=implicit(begun.problem, point, rho))
        return point, (*found_matrices, *end(begun, solution, options))

    yes = jnp.ones((), bool)
    if not relaxations.ndim:
        return at(relaxations, yes, None)[1]
    start = begin(scene, state, control, relaxations[0], None, options).start
    first = jnp.arange(len(relaxations)) == 0
    return jax.lax.scan(lambda start, rho: at(*rho, start), start, (relaxations, first))[1]


def _usable(here: Bool[Array, ""], guess: Remembered | None) -> Remembered | None:
    """The guess, usable only `here`; of a smoothed step it is the one at its relaxation."""
    if guess is None:
        return None
    if guess.usable.ndim:
        guess = jax.tree.map(lambda v: v[0], guess)
    return guess._replace(usable=guess.usable & here)


def _checked(smoothing: Any, dtype: jnp.dtype) -> Float[Array | np.ndarray, "*k"]:
    """The smoothings as an array, refused where a `SolverOptions` would refuse them."""
    if not isinstance(smoothing, jax.core.Tracer):
        several = isinstance(smoothing, (list, tuple)) or np.ndim(smoothing) == 1
        check_relaxations("smoothing", smoothing if several else [smoothing], dtype)
    # As an array of jax a number takes as long as all other checks.
    return (np if isinstance(smoothing, float) else jnp).asarray(smoothing, dtype)
