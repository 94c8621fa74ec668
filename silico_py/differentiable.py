"""One step as jax differentiates it.

The search is not differentiated: what follows from its solution is, by the implicit function
theorem. The derivative of the next state, all that most gradients need, comes from
`state_derivative`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from silico_py.one_step import Info, StepProblem, begin, end, left_by, next_state, solved
from silico_py.options import SolverOptions, relaxations
from silico_py.scene import Scene, State
from silico_py.sensitivity import OperatingPoint
from silico_py.solver import (
    Solution,
    Variables,
    attached,
    implicit,
    jvp_of_active,
    linear,
    one_by_one,
)
from silico_py.solver.custom_derivative import instantiated
from silico_py.solver.leaves import replaced
from silico_py.state_derivative import Active, Numbers, changed
from silico_py.warm_start import OTHER, Remembered


class StepResult(NamedTuple):
    """What a search led to.

    Attributes:
        following: the next state.
        info: what the step says about itself.
        solution: of its problem.
        point: where on the central path it is differentiated.
    """

    following: State
    info: Info
    solution: Solution
    point: Variables


def advance(
    scene: Scene, state: State, control: Array, options: SolverOptions, guess: Remembered | None
) -> tuple[State, Info]:
    """The step from here."""
    args = scene, state, control, options, guess
    found = _search(*jax.lax.stop_gradient(args))
    return attached((found.following, found.info), _change, (found, args))


def _change(_: Any, at: tuple[StepResult, tuple], changes: tuple) -> tuple[State, Info]:
    """How what was found changes with the arguments of the step."""
    (found, args), (_, changes) = at, changes
    *start, options, guess = changes
    others = _at_one_smoothness(options), guess
    if not all(isinstance(v, SymbolicZero) for v in jax.tree.leaves(others)):
        return jvp_of_active(partial(_described, found), args, (*start, *others))[1]
    active = Active.of(*start)
    change = [instantiated(v) for v in active.numbers(changes)]
    scene, state, control, options, _ = args
    y = found.solution.variables.y
    place = OperatingPoint(scene, state, control, options, found.point, y, found.following)
    following = changed(place, active, change)
    # Never traced where derivatives of the info are not used.
    numbers, whole = _numbers_of(found.info)
    push, pull = partial(_info_pushed, active), partial(_info_pulled, active)
    return following, whole(linear(push, pull, (found, args), change, numbers))


def _at_one_smoothness(change: Any) -> Any:
    """A change of options without that of `gradient_relaxation`: no value depends on it."""

    def without(path: tuple, change: Any) -> Any:
        unseen = path[-1].name == "gradient_relaxation"
        return (
            SymbolicZero(jax.typeof(change)) if unseen and isinstance(change, jax.Array) else change
        )

    return jax.tree_util.tree_map_with_path(without, change)


def _numbers_of(info: Info) -> tuple[list[Array], Callable[[list[Array]], Info]]:
    """The floating-point numbers of an info, and a function from their change to that of it all."""
    leaves, structure = jax.tree.flatten(info)
    flags = [jnp.issubdtype(v.dtype, jnp.floating) for v in leaves]
    still = [np.zeros(v.shape, jax.dtypes.float0) for v in leaves]

    def whole(numbers: list[Array]) -> Info:
        return jax.tree.unflatten(structure, replaced(still, flags, numbers))

    return list(compress(leaves, flags)), whole


def _info_pushed(active: Active, where: tuple[StepResult, tuple], change: Numbers) -> Numbers:
    """How the numbers of the info change."""
    found, args = where

    def numbers(*own: Array) -> Numbers:
        scene, state, control, options, _ = active.replaced(args, list(own))
        smoother = _smoother(scene, state, control, options)
        return _numbers_of(_ended(found, *smoother, options)[1])[0]

    return jax.jvp(numbers, tuple(active.numbers(args)), tuple(change))[1]


def _info_pulled(active: Active, where: tuple[StepResult, tuple], weights: Numbers) -> Numbers:
    """The transpose of `_info_pushed`."""
    push = partial(_info_pushed, active, where)
    return jax.linear_transpose(push, active.numbers(where[1]))(weights)[0]


def _described(
    found: StepResult,
    scene: Scene,
    state: State,
    control: Array,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[State, Info]:
    """State and info as functions of the arguments through the solution, to be differentiated."""
    start = scene, state, control
    smoother, smooth = _smoother(*start, options)
    following, info = _ended(found, smoother, smooth, options)
    if options.gradient_relaxation is None:
        return following, info
    relaxation, _ = relaxations(options, state.position.dtype)
    begun = begin(*start, relaxation, None, options)
    moved = implicit(smoother.problem, found.solution.variables, smooth, found.point)
    return next_state(begun.motions, begun.arm, moved.y), info


def _ended(
    found: StepResult, begun: StepProblem, smooth: Array, options: SolverOptions
) -> tuple[State, Info]:
    """State and info of the solution that is differentiated, as the info always is: forces are
    products of unknowns, all of which have to be its own."""
    moved = implicit(begun.problem, found.point, smooth)
    return end(begun, found.solution._replace(variables=moved), options, found.info.guess)


def _smoother(
    scene: Scene, state: State, control: Array, options: SolverOptions
) -> tuple[StepProblem, Array]:
    """The step where it is differentiated, and its relaxation, which follows that of the step."""
    relaxation, smooth = relaxations(options, state.position.dtype)
    if options.gradient_relaxation is not None:
        smooth += relaxation - jax.lax.stop_gradient(relaxation)
    return begin(scene, state, control, smooth, None, options), smooth


@one_by_one
def _search(
    scene: Scene, state: State, control: Array, options: SolverOptions, guess: Remembered | None
) -> StepResult:
    """The step, without derivatives."""
    relaxation, smooth = relaxations(options, state.position.dtype)
    at = partial(begin, scene, state, control, options=options)
    if options.gradient_relaxation is None:
        begun = at(relaxation, guess)
        solution = solved(begun, relaxation, options)
        return StepResult(*end(begun, solution, options), solution, solution.variables)
    if guess is not None and guess.usable.ndim != 1:
        raise ValueError(OTHER)

    def found(at_relaxation: tuple[Array, Remembered | None]) -> tuple[Any, ...]:
        begun = at(*at_relaxation)
        solution = solved(begun, at_relaxation[0], options)
        return solution, left_by(begun, solution)

    # One program for both relaxations.
    solutions, kept = jax.lax.map(found, (jnp.stack([relaxation, smooth]), guess))
    solution, smoother = (jax.tree.map(lambda v, k=k: v[k], solutions) for k in (0, 1))
    following, info = end(at(relaxation, None), solution, options, kept)
    info = info._replace(
        converged=info.converged & smoother.converged,
        iterations=info.iterations + smoother.iterations,
        status=jnp.where(info.converged, smoother.status, info.status),
    )
    return StepResult(following, info, solution, smoother.variables)
