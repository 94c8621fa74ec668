"""Tangent coordinates of states.

Those of one body are (dx, dtheta, dv, dw): position and velocity of the body frame's origin in the
world [m, m/s], rotation and angular velocity in the body frame [rad, rad/s]. A turned orientation
is q (x) cay(dtheta): dtheta lies along the axis of the turn, 2 tan(angle / 2) long.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.scene import State
from silico_py.solver.dense import dot


def perturb(state: State, change: Float[Array, "*n 12"]) -> State:
    """Move a state by tangent coordinates (dx, dtheta, dv, dw).

    A turn by dtheta is one by 2 atan(|dtheta| / 2) about it.

    Raises:
        ValueError: for a change of another shape.
    """
    change = jnp.asarray(change)
    wanted = (*state.position.shape[:-1], 12)
    if jnp.shape(change) != wanted:
        raise ValueError(f"change: expected shape {wanted}, got {jnp.shape(change)}; reshape it")
    dx, dtheta, dv, dw = jnp.split(change, 4, axis=-1)
    return State(
        state.position + dx,
        rotation.multiply(state.orientation, rotation.cayley(dtheta)),
        state.velocity + dv,
        state.angular_velocity + dw,
    )


def difference(state: State, base: State) -> Float[Array, "*n 12"]:
    """Tangent coordinates of `state` seen from `base`; the inverse of `perturb`.

    Not finite where a body is turned by half a turn.
    """
    turn = rotation.between(base.orientation, state.orientation)
    return jnp.concatenate(
        [
            state.position - base.position,
            2 * turn[..., 1:] / turn[..., :1],
            state.velocity - base.velocity,
            state.angular_velocity - base.angular_velocity,
        ],
        axis=-1,
    )


def slope(state: State, rate: State) -> Float[Array, "*n 12"]:
    """Tangent coordinates of a rate of change of a state's own numbers.

    Quaternions stand for their directions: how their length changes does not matter.
    """
    q = state.orientation
    turn = 2 * rotation.between(q, rate.orientation)[..., 1:]
    turn /= dot(q, q)[..., None]
    return jnp.concatenate([rate.position, turn, rate.velocity, rate.angular_velocity], axis=-1)


def rate(state: State, slope: Float[Array, "*n 12"]) -> State:
    """The inverse of `slope`, for a rate that keeps quaternions unit ones."""
    dx, dtheta, dv, dw = jnp.split(slope, 4, axis=-1)
    turn = jnp.concatenate([jnp.zeros_like(dtheta[..., :1]), dtheta / 2], axis=-1)
    return State(dx, rotation.multiply(state.orientation, turn), dv, dw)
