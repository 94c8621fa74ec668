"""Unit quaternions (w, x, y, z) and rotation matrices."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Quaternion = Float[Array, "*batch 4"]
Vector3 = Float[Array, "*batch 3"]


def skew(t: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The matrix [t]x with [t]x u = t x u."""
    x, y, z = t
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y]), jnp.stack([z, o, -x]), jnp.stack([-y, x, o])])


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton product p (x) q."""
    p0, pv, q0, qv = p[..., :1], p[..., 1:], q[..., :1], q[..., 1:]
    head = p0 * q0 - jnp.sum(pv * qv, axis=-1, keepdims=True)
    return jnp.concatenate([head, p0 * qv + q0 * pv + jnp.cross(pv, qv)], axis=-1)


def conjugate(q: Quaternion) -> Quaternion:
    """The inverse of a unit quaternion."""
    return jnp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def normalize(q: Quaternion) -> Quaternion:
    """q / |q|."""
    return q / jnp.linalg.norm(q, axis=-1, keepdims=True)


def rotate(q: Quaternion, v: Vector3) -> Vector3:
    """Rotate v from the body frame to the world frame."""
    t = 2 * jnp.cross(q[..., 1:], v)
    return v + q[..., :1] * t + jnp.cross(q[..., 1:], t)


def matrix(q: Quaternion) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix R(q): columns are the body axes in the world."""
    w, x, y, z = (q[..., i] for i in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def cayley(t: Vector3) -> Quaternion:
    """The Cayley map cay(t) = (1, t/2) / |(1, t/2)|, a rotation by 2 atan(|t|/2)."""
    return normalize(jnp.concatenate([jnp.ones_like(t[..., :1]), t / 2], axis=-1))


def cayley_tangent(t: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Body-frame rotation vector of cay(t)^-1 cay(t + dt), as a matrix on dt."""
    return (jnp.eye(3, dtype=t.dtype) - skew(t) / 2) / (1 + t @ t / 4)
