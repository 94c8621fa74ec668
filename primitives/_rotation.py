"""Unit quaternions (w, x, y, z) and rotation matrices."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Quaternion = Float[Array, "*batch 4"]


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton product p (x) q."""
    p0, pv, q0, qv = p[..., :1], p[..., 1:], q[..., :1], q[..., 1:]
    head = p0 * q0 - jnp.sum(pv * qv, axis=-1, keepdims=True)
    return jnp.concatenate([head, p0 * qv + q0 * pv + jnp.cross(pv, qv)], axis=-1)


def rotation_matrix(q: Quaternion) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix R(q): columns are the body axes in the world."""
    w, x, y, z = (q[..., i] for i in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
