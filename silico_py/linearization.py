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
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.contact_jacobian import pose_derivative
from silico_py.integrator import Motion
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import arms, motions_of, next_state, search, shift
from silico_py.single_level import assemble
from silico_py.solver import CellGroup, Problem, Variables, newton_inverse
from silico_py.solver.kkt import CellRightHandSide, RightHandSide


def linearize(
    scene: Scene,
    state: State,
    control: Any = None,
    smoothing: Any = 1e-3,
    options: SolverOptions | None = None,
) -> tuple[Array, Array]:
    """Derivative of the next state with respect to state and control.

    Args:
        scene: the scene, n bodies.
        state: where to differentiate.
        control: (n, 6) force [N] and torque [N m] at the centre of mass, world frame.
        smoothing: rho of the solution that is differentiated, or k of them, largest first:
            each is then reached from the one before it.
        options: iteration limits; its relaxations are not used.

    Returns:
        A (12n, 12n) and B (12n, 6n), with a leading axis k for k smoothings. Rows and columns
        are body after body (dx, dtheta, dv, dw); columns of B (force, torque).

    Raises:
        ValueError: for a control of the wrong shape, or a smoothing that is not positive or
            below what the state's precision carries.
    """
    options = options or SolverOptions()
    relaxations = _checked(smoothing, state.position.dtype)
    motions = motions_of(scene, state, control)
    bodies = jax.vmap(BodyDerivative.of)(motions, arms(scene), state)

    def advance(start: Variables, rho: Array) -> tuple[Variables, tuple[Array, Array]]:
        problem, _, _ = assemble(scene, motions, rho)
        point = search(problem, start, rho, options).variables
        return point, _derivative(problem, point, bodies, motions, arms(scene))

    _, start, _ = assemble(scene, motions, relaxations[0])
    a, b = jax.lax.scan(advance, start, relaxations)[1]
    return (a[0], b[0]) if np.ndim(smoothing) == 0 else (a, b)


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


class BodyDerivative(NamedTuple):
    """How a body's motion starts, against its inputs: 12 of the state, 6 of the control."""

    state: State
    position: Float[Array, "3 18"]  # of the centre of mass, world
    turn: Float[Array, "3 18"]  # rotation vector, world

    @classmethod
    def of(cls, motion: Motion, arm: Float[Array, "3"], state: State) -> BodyDerivative:
        """For one body."""
        inputs = jnp.zeros(18, arm.dtype)
        position = jax.jacfwd(lambda u: _moved(motion, arm, state, u).position)(inputs)
        turn = jnp.zeros((3, 18), arm.dtype).at[:, 3:6].set(rotation.matrix(motion.orientation))
        return cls(state, position, turn)


def _moved(motion: Motion, arm: Array, state: State, inputs: Float[Array, "18"]) -> Motion:
    """The motion of one body with changed state and control."""
    state = perturb(state, inputs[:12])
    position, velocity = shift(state, arm)
    return motion._replace(
        position=position,
        orientation=state.orientation,
        velocity=velocity,
        angular_velocity=state.angular_velocity,
        force=motion.force + inputs[12:15],
        torque=motion.torque + inputs[15:],
    )


def _derivative(
    problem: Problem, w: Variables, bodies: BodyDerivative, motions: Motion, arm: Array
) -> tuple[Array, Array]:
    """(A, B) at one point of the central path, by the implicit function theorem."""
    change = newton_inverse(problem, w, _right_hand_sides(problem, w, bodies, motions, arm)).y

    def after(motion: Motion, arm: Array, state: State, y: Array) -> tuple[Array, Array]:
        base = next_state(motion, arm, y)

        def coordinates(inputs: Array, y: Array) -> Array:
            return difference(next_state(_moved(motion, arm, state, inputs), arm, y), base)

        return jax.jacfwd(coordinates, argnums=(0, 1))(jnp.zeros(18, y.dtype), y)

    to_inputs, to_y = jax.vmap(after)(motions, arm, bodies.state, w.y)
    n = len(arm)
    total = (to_y @ change).reshape(n, 12, n, 18)
    total = total.at[jnp.arange(n), :, jnp.arange(n)].add(to_inputs)
    return total[..., :12].reshape(12 * n, 12 * n), total[..., 12:].reshape(12 * n, 6 * n)


def _right_hand_sides(
    problem: Problem, w: Variables, bodies: BodyDerivative, motions: Motion, arm: Array
) -> RightHandSide:
    """Minus the derivative of every row with respect to the 18 n inputs."""
    n, dtype = len(arm), w.y.dtype

    def balance(motion: Motion, arm: Array, state: State, y: Array) -> Array:
        rows = lambda u: problem.node_residual(y, _moved(motion, arm, state, u))  # noqa: E731
        return jax.jacfwd(rows)(jnp.zeros(18, dtype))

    own = jax.vmap(balance)(motions, arm, bodies.state, w.y)
    nodes = jnp.zeros((n, 6, n, 18), dtype).at[jnp.arange(n), :, jnp.arange(n)].set(-own)
    nodes = nodes.reshape(n, 6, 18 * n)
    poses = jnp.concatenate([bodies.position, bodies.turn], axis=1)
    cells = []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        m, arity = group.nodes.shape
        to_pose = jax.vmap(pose_derivative)(w.y[group.nodes], cell.x, cell.dual, group.data)

        def spread(rows: Array, group: CellGroup = group) -> Array:
            """Derivatives by the poses of a cell's bodies, as derivatives by all inputs."""
            m, arity = group.nodes.shape
            parts = rows.reshape(m, -1, arity, 6)
            parts = jnp.einsum("mrap,mapu->mrau", parts, poses[group.nodes])
            out = jnp.zeros((m, parts.shape[1], n, 18), dtype)
            place = jnp.arange(m)[:, None]
            out = out.at[place, :, group.nodes].add(parts.swapaxes(1, 2))
            return out.reshape(m, -1, 18 * n)

        force, local, slack = map(spread, to_pose)
        nodes = nodes.at[group.nodes].add(-force.reshape(m, arity, 6, -1))
        product = group.cone.product(cell.dual[:, None], slack.swapaxes(1, 2)).swapaxes(1, 2)
        cells.append(CellRightHandSide(-local, -product))
    return RightHandSide(nodes, tuple(cells))
