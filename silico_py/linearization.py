"""The next state's derivative in tangent coordinates, at any smoothness.

Coordinates of a state are, body after body, (dx, dtheta, dv, dw): position and velocity of
the body frame's origin in the world, rotation vector and angular velocity in the body
frame. A perturbed orientation is q (x) cay(dtheta).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from silico_py import rotation
from silico_py.assembly import assemble
from silico_py.contact import Formulation
from silico_py.integrator import Motion
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import (
    arms,
    checked_control,
    motions_of,
    next_state,
    search,
    shift,
    split_control,
)
from silico_py.solver import Guess, Problem, Variables, fused_if_small, node_sensitivity
from silico_py.solver.dense import accumulate, matmul


def linearize(
    scene: Scene,
    state: State,
    control: Any = None,
    smoothing: Any = 1e-3,
    options: SolverOptions | None = None,
    with_converged: bool = False,
    guess: Guess | None = None,
) -> tuple[Array, ...]:
    """Derivative of the next state with respect to state and control.

    Args:
        scene: the scene, n bodies.
        state: where to differentiate.
        control: (n, 6) as for `step`.
        smoothing: rho of the solution that is differentiated, or k of them, largest first:
            each is then reached from the one before it.
        options: iteration limits; its relaxations are not used.
        with_converged: also return whether the solution that is differentiated was found.
        guess: `info.guess` of a step from this state or close to it, with the same method. Where
            it is the solution at the (first) smoothing, that is not searched for again;
            otherwise the search is tried from there first.

    Returns:
        A (12n, 12n) and B (12n, 6n), with a leading axis k for k smoothings. Rows and columns
        are body after body (dx, dtheta, dv, dw); columns of B are those of the control.
        With `with_converged` a third value, () or (k,).

    Raises:
        ValueError: for a control of the wrong shape, or a smoothing that is not positive or
            below what the state's precision carries.
    """
    options = options or SolverOptions()
    relaxations = _checked(smoothing, state.position.dtype)
    control = checked_control(scene, state, control)
    found = _linearize(scene, state, control, relaxations, options, guess)
    if np.ndim(smoothing) == 0:
        found = tuple(value[0] for value in found)
    return found if with_converged else found[:2]


@jax.jit
def _linearize(
    scene: Scene,
    state: State,
    control: Array,
    relaxations: Array,
    options: SolverOptions,
    guess: Guess | None,
) -> tuple[Array, Array, Array]:
    motions, formulation = motions_of(scene, state, control), options.formulation
    bodies = Inputs(motions, arms(scene), state)

    def advance(start: Variables, rho: Array) -> tuple[Variables, tuple[Array, Array, Array]]:
        problem, _, _ = assemble(scene, motions, rho, formulation)
        first = None if guess is None else _at(rho == relaxations[0], guess)
        found = search(problem, start, rho, options, first, accept=True)
        point = found.variables

        def derivative(data: tuple, point: Variables, bodies: Inputs) -> tuple[Array, Array]:
            return _derivative(problem.with_data(data), point, bodies, formulation)

        a, b = fused_if_small(derivative, problem, point)(problem.data, point, bodies)
        return point, (a, b, found.converged)

    _, start, _ = assemble(scene, motions, relaxations[0], formulation)
    return jax.lax.scan(advance, start, relaxations)[1]


def _at(here: Bool[Array, ""], guess: Guess) -> Guess:
    """The guess, usable only `here`; of a smoothed step it is the one at its relaxation."""
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
        position = jax.jacfwd(lambda u: self.changed(u).position)(self.zero)
        turn = jnp.pad(rotation.matrix(self.motion.orientation), ((0, 0), (3, 12)))
        return jnp.concatenate([position, turn])

    @property
    def zero(self) -> Float[Array, "18"]:
        """No change."""
        return jnp.zeros(18, self.arm.dtype)


def _derivative(
    problem: Problem, w: Variables, bodies: Inputs, formulation: Formulation
) -> tuple[Array, Array]:
    """(A, B) at one point of the central path, by the implicit function theorem."""
    problem = problem.prepared(w.y)

    def after(body: Inputs, y: Array) -> tuple[Array, Array]:
        base = next_state(body.motion, body.arm, y)

        def coordinates(inputs: Array, y: Array) -> Array:
            return difference(next_state(body.changed(inputs), body.arm, y), base)

        return jax.jacfwd(coordinates, argnums=(0, 1))(body.zero, y)

    to_inputs, to_y = jax.vmap(after)(bodies, w.y)
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
        return jax.jacfwd(lambda u: problem.node_residual(y, body.changed(u)))(body.zero)

    by_pose = jnp.zeros((n, size, 6), nodes.dtype)
    for group, cell, weights in zip(problem.groups, w.cells, cells, strict=True):
        at = (group.gather(w.y), cell.x, cell.dual, group.inputs)
        rows = jnp.concatenate(jax.vmap(formulation.pose_derivative)(*at), axis=1)
        part = matmul(weights.mT, rows).reshape(len(rows), size, -1, 6).swapaxes(1, 2)
        by_pose += accumulate(part.reshape(-1, size, 6), group.nodes.reshape(-1), n)
    poses = jax.vmap(Inputs.pose_derivative)(bodies)
    by_balance = matmul(nodes.mT, jax.vmap(balance)(bodies, w.y))
    return -(by_balance + matmul(by_pose, poses)).swapaxes(0, 1)
