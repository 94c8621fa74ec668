"""One step as jax differentiates it.

The search is not differentiated: what follows from its solution is, by the implicit function
theorem. How the next state changes with state and control, all that gradients of rollouts by them
take, comes from `sensitivity` instead, whose derivatives by hand are evaluated as fast as the step:
one system a step in reverse mode, the whole matrices in forward mode and for many rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from silico_py import tangents
from silico_py.one_step import Begun, Info, begin, end, left_by, next_state, solved
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.sensitivity import Where, matrices, pullback
from silico_py.solver import (
    Solution,
    Variables,
    differentiated_as,
    implicit,
    jvp_of_moving,
    linear,
    one_by_one,
)
from silico_py.solver.dense import matmul
from silico_py.solver.lanes import replaced
from silico_py.warm_start import OTHER, Remembered

Change = tuple[State, Float[Array, "n 6"]]  # of state and control


class Found(NamedTuple):
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


class Place(NamedTuple):
    """Where the next state is differentiated."""

    scene: Scene
    state: State
    control: Float[Array, "n 6"]
    options: SolverOptions
    point: Variables
    y: Float[Array, "n 6"]
    following: State


@jax.custom_jvp
def advance(
    scene: Scene, state: State, control: Array, options: SolverOptions, guess: Remembered | None
) -> tuple[State, Info]:
    """The step from here."""
    found = _search(scene, state, control, options, guess)
    return found.following, found.info


@partial(advance.defjvp, symbolic_zeros=True)
def _advance_jvp(args: tuple, changes: tuple) -> tuple[Any, Any]:
    found = _search(*jax.lax.stop_gradient(args))
    return _attached(found, *args), _change(found, args, changes)


@jax.custom_jvp
def _attached(found: Found, *args: Any) -> tuple[State, Info]:
    """What was found, with its derivatives by the arguments of the step."""
    return found.following, found.info


@partial(_attached.defjvp, symbolic_zeros=True)
def _attached_jvp(primals: tuple, changes: tuple) -> tuple[Any, Any]:
    found, *args = primals
    return _attached(*primals), _change(found, tuple(args), changes[1:])


def _change(found: Found, args: tuple, changes: tuple) -> tuple[State, Info]:
    """How what was found changes with the arguments."""
    scene, state, control, options, guess = changes
    others = _at_one_smoothness(options), guess
    if not all(isinstance(v, SymbolicZero) for v in jax.tree.leaves((scene, others))):
        changes = scene, state, control, *others
        return jvp_of_moving(partial(_described, found), args, changes)[1]
    moving = jax.tree.map(_instantiated, (state, control))
    following = linear(_pushed, _pulled, _place(found, *args), moving, found.following)
    # Where the info does not count this is never traced.
    numbers, whole = _numbers_of(found.info)
    return following, whole(linear(_info_pushed, _info_pulled, (found, args), moving, numbers))


def _at_one_smoothness(change: Any) -> Any:
    """A change of options without that of the relaxation at which derivatives are taken: what is
    found does not depend on it."""

    def without(path: tuple, change: Any) -> Any:
        unseen = path[-1].name == "gradient_relaxation"
        return (
            SymbolicZero(jax.typeof(change)) if unseen and isinstance(change, jax.Array) else change
        )

    return jax.tree_util.tree_map_with_path(without, change)


def _numbers_of(info: Info) -> tuple[list[Array], Callable[[list[Array]], Info]]:
    """What may change of an info, and what makes a change of the whole of that."""
    leaves, structure = jax.tree.flatten(info)
    flags = [jnp.issubdtype(v.dtype, jnp.floating) for v in leaves]
    still = [np.zeros(v.shape, jax.dtypes.float0) for v in leaves]

    def whole(numbers: list[Array]) -> Info:
        return jax.tree.unflatten(structure, replaced(still, flags, numbers))

    return list(compress(leaves, flags)), whole


def _info_pushed(where: tuple[Found, tuple], change: Change) -> list[Array]:
    """How the numbers of the info change."""
    found, (scene, state, control, *others) = where

    def numbers(state: State, control: Array) -> list[Array]:
        return _numbers_of(_described(found, scene, state, control, *others)[1])[0]

    return jax.jvp(numbers, (state, control), change)[1]


def _info_pulled(where: tuple[Found, tuple], weights: list[Array]) -> Change:
    """Its transpose."""
    _, (_, state, control, *_) = where
    return jax.linear_transpose(partial(_info_pushed, where), (state, control))(weights)[0]


def _place(found: Found, *args: Any) -> Place:
    scene, state, control, options, _ = args
    y = found.solution.variables.y
    return Place(scene, state, control, options, found.point, y, found.following)


def _instantiated(change: Any) -> Array:
    """A tangent that may be a symbolic zero."""
    zero = isinstance(change, SymbolicZero)
    return jnp.zeros(change.aval.shape, change.aval.dtype) if zero else change


def _implicitly_pushed(place: Place, change: Change) -> State:
    """How the next state changes, in operations that jax differentiates again."""
    start = place.state, place.control
    _, smooth = _relaxations(place.options, place.state)

    def following(state: State, control: Array) -> State:
        begun = _begun(place._replace(state=state, control=control))
        moved = implicit(begun.problem, place.point, smooth).y
        y = place.y + moved - jax.lax.stop_gradient(moved)
        return next_state(begun.motions, begun.arm, y)

    return jax.jvp(following, start, change)[1]


def _implicitly_pulled(place: Place, weights: State) -> Change:
    """Its transpose: how a weighted sum of the next state's numbers changes."""
    push, start = partial(_implicitly_pushed, place), (place.state, place.control)
    return jax.linear_transpose(push, start)(weights)[0]


def _multiplied(place: Place, change: Change) -> State:
    """`_implicitly_pushed` by the matrices of `sensitivity`."""
    by_state, by_control = _matrices(place)
    before, control = tangents.slope(place.state, change[0]), change[1]
    after = matmul(by_state, before.reshape(-1)) + matmul(by_control, control.reshape(-1))
    return tangents.rate(place.following, after.reshape(before.shape))


@custom_vmap
def _pulled_back(place: Place, weights: State) -> Change:
    """`_implicitly_pulled` by `sensitivity`."""
    return _pullback(place, weights)


@_pulled_back.def_vmap
def _many_pulled_back(size: int, in_batched: list, place: Place, weights: State) -> tuple[Any, Any]:
    """Of many sums at one place by the matrices there."""
    here, own = (jax.tree.map(lambda b: 0 if b else None, part) for part in in_batched)
    if jax.tree.leaves(here):
        out = jax.vmap(_pullback, (here, own), axis_size=size)(place, weights)
    else:
        start = place.state, place.control
        back = jax.linear_transpose(partial(_multiplied, place), start)
        out = jax.vmap(lambda w: back(w)[0], (own,), axis_size=size)(weights)
    return out, jax.tree.map(lambda _: True, out)


_pushed = differentiated_as(_implicitly_pushed, _multiplied)
_pulled = differentiated_as(_implicitly_pulled, _pulled_back)


@one_by_one
def _matrices(place: Place) -> tuple[Array, Array]:
    return matrices(_where(place))


@one_by_one
def _pullback(place: Place, weights: State) -> Change:
    rate, slope = partial(tangents.rate, place.following), partial(tangents.slope, place.state)
    still = jnp.zeros((*place.y.shape[:-1], 12), place.y.dtype)
    (after,) = jax.linear_transpose(rate, still)(weights)
    before = pullback(_where(place), after)
    (by_state,) = jax.linear_transpose(slope, place.state)(before[:, :12])
    return by_state, before[:, 12:]


def _where(place: Place) -> Where:
    return Where(_begun(place), place.point, place.y, place.state, place.options.formulation)


def _begun(place: Place) -> Begun:
    """The step at the relaxation at which it is differentiated."""
    _, smooth = _relaxations(place.options, place.state)
    return begin(place.scene, place.state, place.control, smooth, None, place.options)


def _described(
    found: Found,
    scene: Scene,
    state: State,
    control: Array,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[State, Info]:
    """What was found, as what follows from the solution."""
    relaxation, smooth = _relaxations(options, state)
    begun = smoother = begin(scene, state, control, relaxation, None, options)
    if options.gradient_relaxation is not None:
        smooth += relaxation - jax.lax.stop_gradient(relaxation)  # which is what moves the step
        smoother = begin(scene, state, control, smooth, None, options)
    variables = implicit(smoother.problem, found.solution.variables, smooth, found.point)
    solution = found.solution._replace(variables=variables)
    return end(begun, solution, options, found.info.guess)


def _relaxations(options: SolverOptions, state: State) -> tuple[Array, Array]:
    """Of the step, and of its derivatives."""
    smooth = options.gradient_relaxation
    both = options.relaxation, options.relaxation if smooth is None else smooth
    one, other = (jnp.asarray(rho, state.position.dtype) for rho in both)
    return one, other


@one_by_one
def _search(
    scene: Scene, state: State, control: Array, options: SolverOptions, guess: Remembered | None
) -> Found:
    """The step, without derivatives."""
    relaxation, smooth = _relaxations(options, state)
    at = partial(begin, scene, state, control, options=options)
    if options.gradient_relaxation is None:
        begun = at(relaxation, guess)
        solution = solved(begun, relaxation, options)
        return Found(*end(begun, solution, options), solution, solution.variables)
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
    return Found(following, info, solution, smoother.variables)
