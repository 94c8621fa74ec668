"""Rotations of bodies: unit quaternions (w, x, y, z) and the Cayley map.

All but `about` take jax or numpy arrays, with any leading axes.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.primitives._checks import concrete
from silico_py.primitives._rotation import (
    Quaternion,
    Vector3,
    cross,
    multiply,
    normalize,
    rotation_matrix,
    skew,
)
from silico_py.solver.dense import dot, norm
from silico_py.validation import number, vector

__all__ = [
    "about",
    "between",
    "cayley",
    "cayley_tangent",
    "chord",
    "conjugate",
    "cross",
    "matrix",
    "multiply",
    "normalize",
    "rotate",
    "skew",
]

matrix = rotation_matrix


def about(axis: ArrayLike, angle: ArrayLike) -> Quaternion:
    """The quaternion of a turn by `angle` [rad] about `axis` (3,), of any length.

    Raises:
        ValueError: for an axis of another shape or without a direction, or what is not finite.
    """
    direction, half = vector("axis", axis, 3), number("angle", angle) / 2
    length = norm(direction)
    if concrete(length) == 0:
        raise ValueError("axis: is zero; give it a direction")
    return jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * direction / length])


def conjugate(q: Quaternion) -> Quaternion:
    """The inverse rotation."""
    return q * jnp.array([1, -1, -1, -1], q.dtype)


def between(first: Quaternion, second: Quaternion) -> Quaternion:
    """The turn from one orientation to another, in the frame of the first."""
    return multiply(conjugate(first), second)


def rotate(q: Quaternion, v: Vector3) -> Vector3:
    """Rotate v from the body frame to the world frame."""
    t = 2 * cross(q[..., 1:], v)
    return v + q[..., :1] * t + cross(q[..., 1:], t)


def chord(q: Quaternion) -> Vector3:
    """The axis of a turn times twice the sine of half its angle, up to half a turn: q and -q are
    the same. For small turns it is the rotation vector."""
    return 2 * jnp.where(q[..., :1] < 0, -1, 1) * q[..., 1:]


def cayley(t: Vector3) -> Quaternion:
    """The Cayley map cay(t) = (1, t/2) / |(1, t/2)|, a rotation by 2 atan(|t|/2)."""
    return normalize(jnp.concatenate([jnp.ones_like(t[..., :1]), t / 2], axis=-1))


def cayley_tangent(t: Vector3) -> Float[Array, "*batch 3 3"]:
    """(I - [t]x / 2) / (1 + |t|^2 / 4): how cay(t) turns, in the turned frame, as t changes."""
    size = 1 + dot(t, t)[..., None, None] / 4
    return (jnp.eye(3, dtype=t.dtype) - skew(t) / 2) / size
