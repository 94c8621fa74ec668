"""Unit quaternions (w, x, y, z)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py.primitives._base import Matrix3

Quaternion = Float[Array, "4"]


def rotation_matrix(q: Quaternion) -> Matrix3:
    """The rotation of a unit quaternion."""
    w, x, y, z = q
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """The rotation q followed by p."""
    vector = p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:])
    return jnp.concatenate([(p[0] * q[0] - jnp.dot(p[1:], q[1:]))[None], vector])
