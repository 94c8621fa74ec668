"""The next state's derivative in tangent coordinates, at any smoothness.

Coordinates of a state are, body after body, (dx, dtheta, dv, dw): position and velocity of
the body frame's origin in the world, rotation vector and angular velocity in the body
frame. A perturbed orientation is q (x) cay(dtheta).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import motions_of, next_state, search
from silico_py.single_level import assemble
from silico_py.solver import Variables, implicit
from silico_py.validation import vector


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
    n, dtype = len(scene.bodies), state.position.dtype
    control = jnp.zeros((n, 6), dtype) if control is None else vector("control", control, n, 6)
    relaxations = _checked(smoothing, dtype)
    points = _path(scene, state, control, relaxations, options)
    one = lambda rho, point: _derivative(scene, state, control, rho, point)  # noqa: E731
    a, b = jax.vmap(one)(relaxations, points)
    return (a[0], b[0]) if jnp.ndim(smoothing) == 0 else (a, b)


def perturb(state: State, change: Float[Array, "n 12"]) -> State:
    """Move a state by tangent coordinates."""
    dx, dtheta, dv, dw = jnp.split(change, 4, axis=-1)
    return State(
        state.position + dx,
        rotation.multiply(state.orientation, rotation.cayley(dtheta)),
        state.velocity + dv,
        state.angular_velocity + dw,
    )


def difference(state: State, base: State) -> Float[Array, "n 12"]:
    """Tangent coordinates of `state` seen from `base`; the inverse of `perturb`."""
    turn = rotation.multiply(rotation.conjugate(base.orientation), state.orientation)
    return jnp.concatenate(
        [
            state.position - base.position,
            2 * turn[:, 1:] / turn[:, :1],
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


def _path(
    scene: Scene, state: State, control: Array, relaxations: Array, options: SolverOptions
) -> Variables:
    """Solutions at each relaxation, each started from the one before it."""
    motions = motions_of(scene, state, control)

    def advance(start: Variables, rho: Array) -> tuple[Variables, Variables]:
        problem, _, _ = assemble(scene, motions, rho)
        found = search(problem, start, rho, options).variables
        return found, found

    _, start, _ = assemble(scene, motions, relaxations[0])
    return jax.lax.scan(advance, start, relaxations)[1]


def _derivative(
    scene: Scene, state: State, control: Array, rho: Array, point: Variables
) -> tuple[Array, Array]:
    """(A, B) at one point of the central path."""

    def moved(change: Array, control: Array) -> State:
        motions = motions_of(scene, perturb(state, change), control)
        problem, _, _ = assemble(scene, motions, rho)
        return next_state(scene, motions, implicit(problem, point, rho).y)

    zero = jnp.zeros((len(scene.bodies), 12), rho.dtype)
    base = moved(zero, control)
    jacobian = jax.jacfwd(lambda d, u: difference(moved(d, u), base), argnums=(0, 1))
    size = zero.size
    return tuple(block.reshape(size, -1) for block in jacobian(zero, control))
