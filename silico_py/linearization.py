"""The next state's derivative in tangent coordinates, at any smoothness.

Coordinates of a state are, body after body, (dx, dtheta, dv, dw): position and velocity of
the body frame's origin in the world, rotation vector and angular velocity in the body
frame. A perturbed orientation is q (x) cay(dtheta).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from silico_py import broad_phase, friction, rotation
from silico_py.compilation import jitted
from silico_py.contact import Contact, Formulation, Side, lighter, slip_unit
from silico_py.integrator import Motion
from silico_py.one_step import Begun, begin, end, shift, solved, split_control
from silico_py.options import SolverOptions, or_default
from silico_py.scene import Scene, State, check_state
from silico_py.simulate import checked_control
from silico_py.solver import (
    CellGroup,
    CellVariables,
    Problem,
    Variables,
    fused_if_small,
    implicit,
    node_sensitivity,
    one_by_one,
)
from silico_py.solver.dense import accumulate, matmul, taken, transposed
from silico_py.solver.rows import each
from silico_py.warm_start import Remembered


def linearize(
    scene: Scene,
    state: State,
    control: Any = None,
    smoothing: Any = 1e-3,
    options: SolverOptions | None = None,
    guess: Remembered | None = None,
    with_step: bool = False,
) -> tuple[Any, ...]:
    """Derivative of the next state with respect to state and control.

    Args:
        scene: the scene, n bodies.
        state: where to differentiate.
        control: (n, 6) as for `step`.
        smoothing: rho of the solution that is differentiated, or k of them, largest first:
            each is then reached from the one before it.
        options: iteration limits; its relaxations are not used.
        guess: `info.guess` of a step from this state or close to it, with the same method. Where
            it is the solution at the (first) smoothing, that is not searched for again;
            otherwise the search is tried from there first.
        with_step: also return what `step` does at the smoothing, of which it is a part: a loop
            that wants the step and its derivative at one relaxation pays for one search.

    Returns:
        A (12n, 12n) and B (12n, 6n), with a leading axis k for k smoothings. Rows and columns
        are body after body (dx, dtheta, dv, dw); columns of B are those of the control.
        With `with_step` also the next state and its `Info`, as of `step`.

    Raises:
        ValueError: for a state that does not fit the scene or whose quaternions are not unit
            ones, a control of the wrong shape, or a smoothing that is empty, not positive or below
            what the state's precision carries.
    """
    options = or_default(options)
    check_state(scene, state)
    relaxations = _checked(smoothing, state.position.dtype)
    control = checked_control(scene, state, control)
    found = _linearize(scene, state, control, relaxations, options, guess, with_step)
    return jax.tree.map(lambda v: v[0], found) if np.ndim(smoothing) == 0 else found


@partial(jitted, static_argnames="with_step")
def _linearize(
    scene: Scene,
    state: State,
    control: Array,
    relaxations: Array,
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
    """At one relaxation after another."""

    def at(rho: Array, first: Bool[Array, ""], start: Variables | None) -> tuple[Any, ...]:
        begun = begin(scene, state, control, rho, _usable(first, guess), options)
        found = solved(begun, rho, options, start, accept=not with_step)
        point = found.variables
        matrices = _matrices(begun, point, state, options.formulation)
        if not with_step:
            return point, matrices
        solution = found._replace(variables=implicit(begun.problem, point, rho))
        return point, (*matrices, *end(begun, solution, options))

    yes = jnp.ones((), bool)
    if len(relaxations) == 1:
        return jax.tree.map(lambda v: v[None], at(relaxations[0], yes, None)[1])
    start = begin(scene, state, control, relaxations[0], None, options).start
    first = jnp.arange(len(relaxations)) == 0
    return jax.lax.scan(lambda start, rho: at(*rho, start), start, (relaxations, first))[1]


def _matrices(
    begun: Begun, point: Variables, state: State, formulation: Formulation
) -> tuple[Array, Array]:
    """(A, B) at one point of the central path."""

    def derivative(data: tuple, point: Variables, bodies: Inputs) -> tuple[Array, Array]:
        return _derivative(begun.problem.with_data(data), point, bodies, formulation)

    # A single derivative is worth a kernel wherever its matrix is factorised inside of one.
    derivatives = fused_if_small(derivative, begun.problem, point.y.size)
    return derivatives(begun.problem.data, point, Inputs(begun.motions, begun.arm, state))


def _usable(here: Bool[Array, ""], guess: Remembered | None) -> Remembered | None:
    """The guess, usable only `here`; of a smoothed step it is the one at its relaxation."""
    if guess is None:
        return None
    if guess.usable.ndim:
        guess = jax.tree.map(lambda v: v[0], guess)
    return guess._replace(usable=guess.usable & here)


def perturb(state: State, change: Float[Array, "*n 12"]) -> State:
    """Move a state by tangent coordinates."""
    dx, dtheta, dv, dw = jnp.split(change, 4, axis=-1)
    return State(
        state.position + dx,
        rotation.multiply(state.orientation, rotation.cayley(dtheta)),
        state.velocity + dv,
        state.angular_velocity + dw,
    )


def difference(state: State, base: State) -> Float[Array, "*n 12"]:
    """Tangent coordinates of `state` seen from `base`; the inverse of `perturb`."""
    turn = rotation.multiply(rotation.conjugate(base.orientation), state.orientation)
    return jnp.concatenate(
        [
            state.position - base.position,
            2 * turn[..., 1:] / turn[..., :1],
            state.velocity - base.velocity,
            state.angular_velocity - base.angular_velocity,
        ],
        axis=-1,
    )


def _checked(smoothing: Any, dtype: jnp.dtype) -> Float[Array, " k"]:
    """The smoothings as an array, refused where a `SolverOptions` would refuse them."""
    if not np.size(smoothing):
        raise ValueError("smoothing: expected one relaxation or several, got none")
    if not isinstance(smoothing, jax.core.Tracer):
        for value in np.atleast_1d(np.asarray(smoothing, float)).tolist():
            try:
                SolverOptions(relaxation=value).check_precision(dtype)
            except ValueError as error:
                raise ValueError(f"smoothing: {error}") from error
    return jnp.atleast_1d(jnp.asarray(smoothing, dtype))


class Inputs(NamedTuple):
    """Bodies before the step; each has 18 inputs, 12 of its state and 6 of its control."""

    motion: Motion
    arm: Float[Array, "n 3"]  # centre of mass in the body frame [m]
    state: State

    def changed(self, inputs: Float[Array, "18"]) -> Motion:
        """The motion of one body with changed inputs."""
        state = perturb(self.state, inputs[:12])
        position, velocity = shift(state, self.arm)
        force, command = split_control(inputs[12:], self.motion.stiffness)
        return self.motion._replace(
            position=position,
            orientation=state.orientation,
            velocity=velocity,
            angular_velocity=state.angular_velocity,
            force=self.motion.force + force[:3],
            torque=self.motion.torque + force[3:],
            command=self.motion.command + command,
        )

    def pose_derivative(self) -> Float[Array, "6 18"]:
        """Of one body: centre of mass and rotation vector in the world, by its inputs."""
        dx, dtheta = jnp.split(jnp.eye(18, dtype=self.arm.dtype)[:6], 2)
        before = rotation.matrix(self.motion.orientation)
        return jnp.concatenate([dx - matmul(before, self.lever(dtheta)), matmul(before, dtheta)])

    def following(self, y: Float[Array, "6"]) -> Float[Array, "12 24"]:
        """Of one body: the state after moving with y, by inputs and y."""
        columns = jnp.eye(24, dtype=y.dtype)
        dx, dtheta = jnp.split(columns[:6], 2)
        dv, dw = jnp.split(columns[18:], 2)
        h, w = self.motion.timestep, y[3:]
        turned = rotation.matrix(rotation.cayley(h * w))
        before = rotation.matrix(self.motion.orientation)
        after = matmul(before, turned)
        turn = matmul(turned.T, dtheta) + h * matmul(rotation.cayley_tangent(h * w), dw)
        center = dx - matmul(before, self.lever(dtheta)) + h * dv
        sweep = matmul(rotation.skew(rotation.cross(w, self.arm)), turn) + self.lever(dw)
        position = center + matmul(after, self.lever(turn))
        return jnp.concatenate([position, turn, dv + matmul(after, sweep), dw])

    def lever(self, turn: Float[Array, "3 columns"]) -> Float[Array, "3 columns"]:
        """Cross products of the arm with each column."""
        return matmul(rotation.skew(self.arm), turn)


def _derivative(
    problem: Problem, w: Variables, bodies: Inputs, formulation: Formulation
) -> tuple[Array, Array]:
    """(A, B) at one point of the central path, by the implicit function theorem."""
    problem = problem.prepared(w.y)
    to_inputs, to_y = jnp.split(each(Inputs.following)(bodies, w.y), [18], axis=-1)
    n = len(w.y)
    change = _by_inputs(problem, w, bodies, formulation).reshape(n, 6, 18 * n)
    own = to_inputs[:, :, None] * jnp.eye(n, dtype=w.y.dtype)[:, None, :, None]
    total = matmul(to_y, change).reshape(n, 12, n, 18) + own
    return total[..., :12].reshape(12 * n, 12 * n), total[..., 12:].reshape(12 * n, 6 * n)


def _by_inputs(
    problem: Problem, w: Variables, bodies: Inputs, formulation: Formulation
) -> Float[Array, "6n n 18"]:
    """Derivative of all y by the inputs of each body: minus F_w^-1 times that of the conditions."""
    nodes, cells = node_sensitivity(problem, w)
    n, size = len(nodes), nodes.shape[-1]

    def balance(body: Inputs, y: Array) -> Array:
        zero = jnp.zeros(18, y.dtype)
        return jax.jacfwd(lambda u: problem.node_residual(y, body.changed(u)))(zero)

    total = matmul(transposed(nodes), each(balance)(bodies, w.y))
    by_pose = jnp.zeros((n, size, 6), nodes.dtype)
    for group, cell, weights in zip(problem.groups, w.cells, cells, strict=True):
        at = (group.gather(w.y), cell.x, cell.dual, group.inputs)
        rows = jnp.concatenate(each(formulation.pose_derivative)(*at), axis=1)
        rows = _with_units(formulation, rows, *at)
        part = matmul(transposed(weights), rows).reshape(len(rows), size, -1, 6).swapaxes(1, 2)
        by_pose += accumulate(part.reshape(-1, size, 6), group.nodes.reshape(-1), n)
        total += _by_speed(group, cell, weights, bodies)
        if group.graph is not None:
            total += _by_fading(group, w.y, cell, weights, bodies)
    poses = each(Inputs.pose_derivative)(bodies)
    return -(total + matmul(by_pose, poses)).swapaxes(0, 1)


def _with_units(
    formulation: Formulation, rows: Float[Array, "contacts rows poses"], *at: Any
) -> Float[Array, "contacts rows poses"]:
    """Derivatives of rows by poses with what the units of distant pairs add."""
    if formulation.unit_derivative is None:
        return rows
    through = each(formulation.unit_derivative)
    distant = jnp.any(at[-1].distance > 1)
    return jax.lax.cond(distant, lambda: rows + through(*at), lambda: rows)


def _by_speed(
    group: CellGroup,
    cell: CellVariables,
    weights: Float[Array, "contacts rows size"],
    bodies: Inputs,
) -> Float[Array, "n size 18"]:
    """What changes as the unit of slip of fast pairs follows their speed."""
    contacts, size = group.data, friction.CONE.dim

    def through() -> Float[Array, "n size 18"]:
        slack = -cell.slack[:, None, -size:] / contacts.slip[:, None, None]
        change = matmul(slack, weights[:, -size:])[:, 0]
        return _through_inputs(group, lambda a, b, c: slip_unit(a, b, c.speed), change, bodies)

    none = jnp.zeros((len(bodies.arm), weights.shape[-1], 18), weights.dtype)
    return jax.lax.cond(jnp.any(contacts.slip > contacts.speed), through, lambda: none)


def _by_fading(
    group: CellGroup,
    y: Float[Array, "n 6"],
    cell: CellVariables,
    weights: Float[Array, "contacts rows size"],
    bodies: Inputs,
) -> Float[Array, "n size 18"]:
    """What changes as pairs come near enough to act, or leave: see `broad_phase`."""
    contacts = group.data
    whole = contacts._replace(impulse=contacts.speed * each(lighter)(contacts.a, contacts.b))
    forces = replace(group, data=whole).residual(y, cell).nodes.reshape(len(cell.x), 1, -1)
    change = matmul(forces, weights[:, : forces.shape[-1]])[:, 0]

    def acting(a: Side, b: Side, c: Contact) -> Float[Array, ""]:
        return broad_phase.share(broad_phase.distance(a, b))

    return _through_inputs(group, acting, change, bodies)


def _through_inputs(
    group: CellGroup,
    number: Callable[[Side, Side, Contact], Float[Array, ""]],
    change: Float[Array, "contacts size"],
    bodies: Inputs,
) -> Float[Array, "n size 18"]:
    """What changes with a number of each contact, which follows the inputs of its bodies."""

    def slope(c: Contact, inputs: Inputs) -> Float[Array, "arity 18"]:
        def at(changes: Float[Array, "arity 18"]) -> Float[Array, ""]:
            motions = each(Inputs.changed)(inputs, changes)
            moved = [
                side._replace(motion=jax.tree.map(lambda v, k=k: v[k], motions))
                for k, side in enumerate(c.sides)
            ]
            a, b = (*moved, *(c.a, c.b)[c.arity :])
            return number(a, b, c)

        return jax.grad(at)(jnp.zeros((c.arity, 18), change.dtype))

    inputs = jax.tree.map(lambda v: taken(v, group.nodes), bodies)
    slopes = each(slope)(group.data, inputs)
    part = change[:, None, :, None] * slopes[:, :, None, :]
    return accumulate(part.reshape(-1, *part.shape[2:]), group.nodes.reshape(-1), len(bodies.arm))
