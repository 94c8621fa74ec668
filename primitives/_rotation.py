"""Unit quaternions (w, x, y, z) and rotation matrices.

Inside a kernel products are written out (see `dense.total`). Outside of one they are sums over a
table, whose reverse derivative is one product.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver.dense import dot, norm
from silico_py.solver.fusion import in_kernel
from silico_py.solver.outlining import outlined

Quaternion = Float[Array, "*batch 4"]
IDENTITY = (1.0, 0.0, 0.0, 0.0)
Vector3 = Float[Array, "*batch 3"]

# [v]x_ij = SKEW_ijk v_k.
SKEW = np.zeros((3, 3, 3))
SKEW[[0, 1, 2], [1, 2, 0], [2, 0, 1]] = -1
SKEW[[1, 2, 0], [0, 1, 2], [2, 0, 1]] = 1


@outlined
def skew(v: Vector3) -> Float[Array, "*batch 3 3"]:
    """[v]x, so that [v]x u = v x u."""
    if not in_kernel():
        return jnp.sum(jnp.asarray(SKEW, v.dtype) * v[..., None, None, :], axis=-1)
    zero, minus = jnp.zeros_like(v[..., :1]), -v
    entries = [zero, minus[..., 2:], v[..., 1:], zero, minus[..., :2], v[..., :1], zero]
    return jnp.concatenate(entries, axis=-1).reshape(*v.shape, 3)


@outlined
def cross(a: Vector3, b: Vector3) -> Vector3:
    """a x b."""
    if not in_kernel():
        return dot(skew(a), b[..., None, :])
    return _moved(a, 1) * _moved(b, 2) - _moved(a, 2) * _moved(b, 1)


def _moved(v: Vector3, places: int) -> Vector3:
    """The components shifted to the front by so many places, the first ones to the end."""
    return jnp.concatenate([v[..., places:], v[..., :places]], axis=-1)


@outlined
def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton product p (x) q."""
    (a, u), (b, v) = ((r[..., :1], r[..., 1:]) for r in (p, q))
    real = a * b - dot(u, v)[..., None]
    return jnp.concatenate([real, a * v + b * u + cross(u, v)], axis=-1)


def normalize(q: Quaternion) -> Quaternion:
    """q / |q|."""
    return q / norm(q)[..., None]


@outlined
def rotation_matrix(q: Quaternion) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix R(q): columns are the body axes in the world."""
    w, v = q[..., :1, None], q[..., 1:]
    size = w * w - dot(v, v)[..., None, None]
    outer = v[..., :, None] * v[..., None, :]
    return size * jnp.eye(3, dtype=q.dtype) + 2 * (outer + w * skew(v))


def orientation_matrix(q: Quaternion) -> Float[Array, "*batch 3 3"]:
    """R(q / |q|): of an orientation that was given, whose length no derivative may depend on."""
    return rotation_matrix(normalize(q))
