"""How the state after a step changes with what the step depends on.

By state and control alone, as in gradients of rollouts by them, the derivative comes from
`sensitivity`, which is written by hand and as fast as the step: one linear system a step in reverse
mode, the whole matrices in forward mode and for many rows at once. Where numbers of the scene
change too, reverse mode solves the same system, and jax differentiates the rows that it weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from silico_py import tangents
from silico_py.one_step import StepProblem, as_part, begin, next_state
from silico_py.options import relaxations
from silico_py.scene import State
from silico_py.sensitivity import OperatingPoint, matrices, pullback
from silico_py.solver import (
    differentiated_as,
    implicit,
    linear,
    node_sensitivity,
    one_by_one,
    separate_rows,
    undivided,
)
from silico_py.solver.dense import matmul
from silico_py.solver.leaves import replaced

Numbers = list[Array]


class Active(NamedTuple):
    """Which of the numbers of scene, state and control are active: by which the next state is
    differentiated. Where none of the scene is, all of state and control are."""

    flags: tuple[bool, ...]
    by_scene: bool

    @classmethod
    def of(cls, scene: Any, state: Any, control: Any) -> Active:
        """Those whose changes are no symbolic zeros."""
        flags = [[_is_active(v) for v in jax.tree.leaves(part)] for part in (scene, state, control)]
        by_scene = any(flags[0])
        own = [flag or not by_scene for flag in (*flags[1], *flags[2])]
        return cls((*flags[0], *own), by_scene)

    def numbers(self, args: tuple) -> Numbers:
        """The active numbers of a tuple that begins with the three."""
        return list(compress(jax.tree.leaves(args[:3]), self.flags))

    def replaced(self, args: tuple, numbers: Numbers) -> tuple:
        """Such a tuple with other numbers."""
        leaves, structure = jax.tree.flatten(args[:3])
        start = jax.tree.unflatten(structure, replaced(leaves, self.flags, numbers))
        return *start, *args[3:]


def _is_active(change: Any) -> bool:
    return not isinstance(change, SymbolicZero)


def changed(place: OperatingPoint, active: Active, change: Numbers) -> State:
    """How the next state changes with what is active."""
    forward, backward = (partial(f, active) for f in (_implicitly_pushed, _implicitly_pulled))
    push, pull = (
        (forward, partial(_adjoint, active))
        if active.by_scene
        else (partial(_multiplied, active), _pullback)
    )
    pushed = differentiated_as(forward, push)
    pulled = differentiated_as(backward, _of_one(active, push, pull))
    return linear(pushed, pulled, place, change, place.following)


def with_derivatives(place: OperatingPoint, found: tuple[Array, Array]) -> tuple[Array, Array]:
    """The matrices of `sensitivity` at a place, with derivatives by what they depend on."""
    return differentiated_as(_implicit_matrices, lambda _: jax.lax.stop_gradient(found))(place)


def _implicit_matrices(place: OperatingPoint) -> tuple[Array, Array]:
    """The matrices of `sensitivity` once more, in operations that jax differentiates again."""
    still, start = jax.tree.leaves(place.scene), jax.tree.leaves((place.state, place.control))
    active = Active(len(still) * (False,) + len(start) * (True,), by_scene=False)
    n = len(place.y)

    def column(inputs: Float[Array, "n 18"]) -> Float[Array, " 12n"]:
        before = tangents.rate(place.state, inputs[:, :12]), inputs[:, 12:]
        return tangents.slope(*_implicitly(active, place, jax.tree.leaves(before))).reshape(-1)

    columns = jnp.eye(18 * n, dtype=place.y.dtype).reshape(-1, n, 18)
    total = jax.vmap(column, out_axes=1)(columns).reshape(12 * n, n, 18)
    return total[..., :12].reshape(12 * n, -1), total[..., 12:].reshape(12 * n, -1)


def _implicitly_pushed(active: Active, place: OperatingPoint, change: Numbers) -> State:
    """How the next state changes, in operations that jax differentiates again."""
    return _implicitly(active, place, change)[1]


def _implicitly(active: Active, place: OperatingPoint, change: Numbers) -> tuple[State, State]:
    """The next state and its change."""
    _, smooth = relaxations(place.options, place.y.dtype)

    def following(*numbers: Array) -> State:
        begun = _begun(OperatingPoint(*active.replaced(place, list(numbers))))
        moved = implicit(begun.problem, place.point, smooth).y
        y = place.y + moved - jax.lax.stop_gradient(moved)
        return next_state(begun.motions, begun.arm, y)

    return jax.jvp(following, tuple(active.numbers(place)), tuple(change))


def _implicitly_pulled(active: Active, place: OperatingPoint, weights: State) -> Numbers:
    """The transpose of `_implicitly_pushed`: derivatives of weighted sums of the next state."""
    push = partial(_implicitly_pushed, active, place)
    return jax.linear_transpose(push, active.numbers(place))(weights)[0]


def _of_one(active: Active, push: Callable, pull: Callable) -> Callable:
    """`pull`, where many sums at one place are pulled back by the transpose of `push` there."""

    @custom_vmap
    def call(place: OperatingPoint, weights: State) -> Numbers:
        return pull(place, weights)

    @call.def_vmap
    def many(size: int, in_batched: list, place: OperatingPoint, weights: State) -> tuple[Any, Any]:
        here, own = (jax.tree.map(lambda b: 0 if b else None, part) for part in in_batched)
        if jax.tree.leaves(here):
            out = jax.vmap(pull, (here, own), axis_size=size)(place, weights)
        else:
            back = jax.linear_transpose(partial(push, place), active.numbers(place))
            out = jax.vmap(lambda w: back(w)[0], (own,), axis_size=size)(weights)
        return out, jax.tree.map(lambda _: True, out)

    return call


def _multiplied(active: Active, place: OperatingPoint, change: Numbers) -> State:
    """`_implicitly_pushed` by state and control, by the matrices of `sensitivity`."""
    _, state, control, *_ = active.replaced(place, change)
    by_state, by_control = _matrices(place)
    before = tangents.slope(place.state, state)
    after = matmul(by_state, before.reshape(-1)) + matmul(by_control, control.reshape(-1))
    return tangents.rate(place.following, after.reshape(before.shape))


@one_by_one
def _matrices(place: OperatingPoint) -> tuple[Array, Array]:
    return matrices(_begun(place), place)


def _pullback(place: OperatingPoint, weights: State) -> Numbers:
    """`_implicitly_pulled` by state and control, by `sensitivity`."""

    def pulled(place: OperatingPoint, weights: State) -> Numbers:
        rate, slope = partial(tangents.rate, place.following), partial(tangents.slope, place.state)
        still = jnp.zeros((*place.y.shape[:-1], 12), place.y.dtype)
        (after,) = jax.linear_transpose(rate, still)(weights)
        before = pullback(_begun(place), place, after)
        (by_state,) = jax.linear_transpose(slope, place.state)(before[:, :12])
        return jax.tree.leaves((by_state, before[:, 12:]))

    return one_by_one(pulled)(place, weights)


def _adjoint(active: Active, place: OperatingPoint, weights: State) -> Numbers:
    """`_implicitly_pulled` by one adjoint system, which weights the rows of the problem."""

    def pulled(place: OperatingPoint, weights: State) -> Numbers:
        begun = _begun(place)
        whole = partial(as_part, place.options)
        by_y = whole(_by_motion)(begun.motions, begun.arm, place.y, weights)
        problem = begun.problem.prepared(place.point.y)
        rows = node_sensitivity(problem, place.point, by_y[..., None])
        return whole(partial(_weighed, active))(place, weights, rows)

    return one_by_one(pulled)(place, weights)


def _by_motion(motions: Any, arm: Array, y: Array, weights: State) -> Array:
    """Derivative of a weighted sum of the next state's numbers by y."""
    return jax.vjp(lambda y: next_state(motions, arm, y), y)[1](weights)[0]


def _weighed(active: Active, place: OperatingPoint, weights: State, rows: tuple) -> Numbers:
    """Derivative of that sum at fixed y, less that of the weighted rows."""

    def total(numbers: Numbers) -> Float[Array, ""]:
        begun = _begun(OperatingPoint(*active.replaced(place, numbers)))
        following = next_state(begun.motions, begun.arm, place.y)
        found = separate_rows(begun.problem, place.point)
        return _dot(weights, following) - _dot(rows, jax.tree.map(lambda v: v[..., None], found))

    with undivided():
        return jax.grad(total)(active.numbers(place))


def _dot(a: Any, b: Any) -> Float[Array, ""]:
    """Sum of the products of their numbers."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jnp.stack([jnp.sum(v * w) for v, w in pairs]).sum()


def _begun(place: OperatingPoint) -> StepProblem:
    """The step at the relaxation at which it is differentiated."""
    _, smooth = relaxations(place.options, place.y.dtype)
    return begin(place.scene, place.state, place.control, smooth, None, place.options)
