"""How the state after a step changes with the state and the control before it.

By the implicit function theorem, at any point of the central path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import broad_phase, friction, rotation
from silico_py.contact import Contact, Formulation, Side, lighter, seen_from, slip_unit
from silico_py.integrator import Motion
from silico_py.one_step import StepProblem, shift, split_control
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.solver import (
    CellGroup,
    CellVariables,
    Problem,
    Variables,
    fused_if_small,
    node_sensitivity,
)
from silico_py.solver.dense import accumulate, matmul, taken, transposed
from silico_py.solver.rows import each
from silico_py.tangents import perturb


class OperatingPoint(NamedTuple):
    """Where the next state is differentiated.

    Attributes:
        scene, state, control, options: of the step.
        point: of the central path, where y is differentiated.
        y: (v+, w+), the velocities at the end of the step.
        following: the next state.
    """

    scene: Scene
    state: State
    control: Float[Array, "n 6"]
    options: SolverOptions
    point: Variables
    y: Float[Array, "n 6"]
    following: State


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
        """Derivative of one body's pose: centre of mass and rotation vector in the world, by its
        inputs."""
        dx, dtheta = jnp.split(jnp.eye(18, dtype=self.arm.dtype)[:6], 2)
        before = rotation.matrix(self.motion.orientation)
        return jnp.concatenate([dx - matmul(before, self.lever(dtheta)), matmul(before, dtheta)])

    def following(self, y: Float[Array, "6"]) -> Float[Array, "12 24"]:
        """Derivative of one body: the state after moving with y, by inputs and y."""
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


def matrices(
    step: StepProblem, place: OperatingPoint
) -> tuple[Float[Array, "12n 12n"], Float[Array, "12n 6n"]]:
    """Derivatives (A, B) of the next state by state and control; `step` is the problem there."""
    return _evaluated(_matrices, step, place)


def pullback(
    step: StepProblem, place: OperatingPoint, weights: Float[Array, "n 12"]
) -> Float[Array, "n 18"]:
    """Derivative of a weighted sum of the next state's coordinates by the inputs of each body, as
    `matrices` would give it."""
    return _evaluated(_pullback, step, place, weights)


def _evaluated(
    function: Callable, step: StepProblem, place: OperatingPoint, *weights: Array
) -> Any:
    """A function of the step, by one kernel wherever its matrix is factorised inside of one: even a
    single derivative is worth that. It cannot be differentiated itself, see
    `state_derivative.with_derivatives`."""
    formulation = place.options.formulation  # not `place`: it would outlive its trace

    def derivative(problem: Problem, point: Variables, *args: Any) -> Any:
        return function(problem.prepared(point.y), point, formulation, *args)

    # Of a quaternion only the direction counts, which is what the step starts from.
    unit = replace(place.state, orientation=step.motions.orientation)
    bodies = Inputs(step.motions, step.arm, unit)
    problem = step.problem.with_data(jax.lax.stop_gradient(step.problem.data))
    run = fused_if_small(derivative, problem, place.y.size)
    return run(*jax.lax.stop_gradient((place.point, place.y, bodies, *weights)))


def _matrices(
    problem: Problem, w: Variables, formulation: Formulation, y: Array, bodies: Inputs
) -> tuple[Array, Array]:
    to_inputs, to_y = jnp.split(each(Inputs.following)(bodies, y), [18], axis=-1)
    n, eye = len(y), jnp.eye(y.size, dtype=y.dtype)
    change = _by_inputs(problem, w, formulation, bodies, eye.reshape(n, 6, 6 * n))
    own = to_inputs[:, :, None] * jnp.eye(n, dtype=y.dtype)[:, None, :, None]
    total = matmul(to_y, change.reshape(n, 6, 18 * n)).reshape(n, 12, n, 18) + own
    return total[..., :12].reshape(12 * n, 12 * n), total[..., 12:].reshape(12 * n, 6 * n)


def _pullback(
    problem: Problem,
    w: Variables,
    formulation: Formulation,
    y: Array,
    bodies: Inputs,
    weights: Float[Array, "n 12"],
) -> Float[Array, "n 18"]:
    sums = matmul(weights[:, None], each(Inputs.following)(bodies, y))[:, 0]
    by_inputs, by_y = jnp.split(sums, [18], axis=-1)
    return by_inputs + _by_inputs(problem, w, formulation, bodies, by_y[:, :, None])[0]


def _by_inputs(
    problem: Problem,
    w: Variables,
    formulation: Formulation,
    bodies: Inputs,
    weights: Float[Array, "n 6 size"],
) -> Float[Array, "size n 18"]:
    """Derivative of weighted sums of all y by the inputs of each body.

    It is minus the weights times F_w^-1 times the derivative of the conditions.
    """
    nodes, cells = node_sensitivity(problem, w, weights)
    n, size = len(nodes), nodes.shape[-1]

    def balance(body: Inputs, y: Array) -> Array:
        zero = jnp.zeros(18, y.dtype)
        return jax.jacfwd(lambda u: problem.node_residual(y, body.changed(u)))(zero)

    total = matmul(transposed(nodes), each(balance)(bodies, w.y))
    by_pose = jnp.zeros((n, size, 6), nodes.dtype)
    for group, cell, own in zip(problem.groups, w.cells, cells, strict=True):
        at = (group.gather(w.y), cell.x, cell.dual, group.inputs)
        rows = jnp.concatenate(each(formulation.pose_derivative)(*at), axis=1)
        part = matmul(transposed(own), rows).reshape(len(rows), size, -1, 6).swapaxes(1, 2)
        by_pose += accumulate(part.reshape(-1, size, 6), group.nodes.reshape(-1), n)
        total += _by_speed(group, cell, own, bodies)
        if group.graph is not None:
            total += _by_fading(group, w.y, cell, own, bodies)
    poses = each(Inputs.pose_derivative)(bodies)
    return -(total + matmul(by_pose, poses)).swapaxes(0, 1)


def _by_speed(
    group: CellGroup,
    cell: CellVariables,
    weights: Float[Array, "contacts rows size"],
    bodies: Inputs,
) -> Float[Array, "n size 18"]:
    """What changes as the unit of slip of fast pairs follows their speed."""
    contacts = group.data
    size = friction.cone(contacts.radii).dim

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

    share = contacts.impulse / whole.impulse
    gap = -1 - friction.cone(contacts.radii).dim  # its row among those of a contact
    change -= each(jax.grad(broad_phase.least_alpha))(share)[:, None] * weights[:, gap]
    return _through_inputs(group, acting, change, bodies)


def _through_inputs(
    group: CellGroup,
    number: Callable[[Side, Side, Contact], Float[Array, ""]],
    change: Float[Array, "contacts size"],
    bodies: Inputs,
) -> Float[Array, "n size 18"]:
    """What changes with a number of each contact, which follows the inputs of its bodies."""

    def slope(c: Contact, inputs: Inputs) -> Float[Array, "arity 18"]:
        assert c.a.motion is not None  # the first side moves
        anchor = inputs.motion.position[0] - c.a.motion.position

        def at(changes: Float[Array, "arity 18"]) -> Float[Array, ""]:
            motions = each(Inputs.changed)(inputs, changes)
            moved = [
                seen_from(side._replace(motion=jax.tree.map(lambda v, k=k: v[k], motions)), anchor)
                for k, side in enumerate(c.sides)
            ]
            a, b = (*moved, *(c.a, c.b)[c.arity :])
            return number(a, b, c)

        return jax.grad(at)(jnp.zeros((c.arity, 18), change.dtype))

    inputs = jax.tree.map(lambda v: taken(v, group.nodes), bodies)
    slopes = each(slope)(group.data, inputs)
    part = change[:, None, :, None] * slopes[:, :, None, :]
    return accumulate(part.reshape(-1, *part.shape[2:]), group.nodes.reshape(-1), len(bodies.arm))
