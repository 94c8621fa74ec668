"""Rotations of bodies: unit quaternions (w, x, y, z) and the Cayley map."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py.primitives._rotation import Quaternion, multiply, rotation_matrix

__all__ = ["cayley", "matrix", "multiply", "normalize", "rotate"]

matrix = rotation_matrix


Vector3 = Float[Array, "*batch 3"]


def normalize(q: Quaternion) -> Quaternion:
    """q / |q|."""
    return q / jnp.linalg.norm(q, axis=-1, keepdims=True)


def rotate(q: Quaternion, v: Vector3) -> Vector3:
    """Rotate v from the body frame to the world frame."""
    t = 2 * jnp.cross(q[..., 1:], v)
    return v + q[..., :1] * t + jnp.cross(q[..., 1:], t)


def cayley(t: Vector3) -> Quaternion:
    """The Cayley map cay(t) = (1, t/2) / |(1, t/2)|, a rotation by 2 atan(|t|/2)."""
    return normalize(jnp.concatenate([jnp.ones_like(t[..., :1]), t / 2], axis=-1))
