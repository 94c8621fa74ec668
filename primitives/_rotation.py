"""Unit quaternions (w, x, y, z) and rotation matrices.

Products are sums over constant tables: each compiles to one loop, where stacking components
compiles to one for each of them.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Quaternion = Float[Array, "*batch 4"]
Vector3 = Float[Array, "*batch 3"]

# [v]x_ij = SKEW_ijk v_k.
SKEW = np.zeros((3, 3, 3))
for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    SKEW[a, b, c], SKEW[b, a, c] = -1, 1

# (p (x) q)_i = HAMILTON_ijk p_j q_k.
HAMILTON = np.zeros((4, 4, 4))
HAMILTON[0, 0, 0] = 1
for a in range(1, 4):
    HAMILTON[0, a, a] = -1
    HAMILTON[a, 0, a] = HAMILTON[a, a, 0] = 1
HAMILTON[1:, 1:, 1:] = np.swapaxes(SKEW, 1, 2)

# R_ij = ROTATION_ijkl q_k q_l, from v -> q (x) v (x) q*.
CONJUGATE = np.diag([1.0, -1.0, -1.0, -1.0])
ROTATION = np.einsum("imn,mkj,nl->ijkl", HAMILTON, HAMILTON, CONJUGATE)[1:, 1:]


def skew(v: Vector3) -> Float[Array, "*batch 3 3"]:
    """[v]x, so that [v]x u = v x u."""
    return jnp.sum(jnp.asarray(SKEW, v.dtype) * v[..., None, None, :], axis=-1)


def cross(a: Vector3, b: Vector3) -> Vector3:
    """a x b."""
    return jnp.sum(skew(a) * b[..., None, :], axis=-1)


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton product p (x) q."""
    pairs = p[..., :, None] * q[..., None, :]
    return jnp.sum(jnp.asarray(HAMILTON, pairs.dtype) * pairs[..., None, :, :], axis=(-2, -1))


def rotation_matrix(q: Quaternion) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix R(q): columns are the body axes in the world."""
    pairs = q[..., :, None] * q[..., None, :]
    table = jnp.asarray(ROTATION, q.dtype)
    return jnp.sum(table * pairs[..., None, None, :, :], axis=(-2, -1))
