"""Coulomb friction without a tangent basis: slack (psi, P v), dual (b0, b_t), both in SOC4."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver import ProductCone
from silico_py.solver.dense import dot

CONE = ProductCone.second_order(4)

# The friction limit never falls below this fraction of rho, less of distant pairs, so that a
# frictionless contact keeps a bounded psi; the drag this adds is 1e-4 rho per unit of velocity.
LIMIT_FLOOR = 1e-2

# Added to |N|^2, which is of the order of 1 where shapes touch.
LEAST_SQUARE = 1e-12

# Coefficient above which a contact carries so much sideways that the start allows for it.
LARGE_FRICTION = 5.0


def start(friction: Float[Array, ""]) -> tuple[Float[Array, "4"], Float[Array, "4"]]:
    """Slack e / load and dual load e of the start: large friction lets a larger load pass."""
    identity, load = CONE.identity(friction.dtype), jnp.maximum(1, friction / LARGE_FRICTION)
    return identity / load, load * identity


def shares(rows: int, leeway: Float[Array, " contacts"]) -> Float[Array, "contacts rows"]:
    """Share of the relaxation at which the product of each of so many slack rows ends: in their
    larger unit those of friction end lower."""
    late = np.arange(rows) >= first_row(rows)
    return jnp.where(late, 1 / leeway[:, None], 1)


def first_row(rows: int) -> int:
    """Where friction begins among so many slack rows of a contact, of which it is the last part."""
    return rows - CONE.dim


def limit(
    friction: Float[Array, ""],
    gamma: Float[Array, ""],
    normal: Float[Array, "3"],
    relaxation: Float[Array, ""],
) -> Float[Array, ""]:
    """b0 = mu gamma |N|, the largest tangential impulse, plus a share of the relaxation."""
    return friction * gamma * jnp.sqrt(squared_norm(normal)) + LIMIT_FLOOR * relaxation


def squared_norm(normal: Float[Array, "3"]) -> Float[Array, ""]:
    """|N|^2, kept from zero: N can vanish on the way to a solution, never at one."""
    return dot(normal, normal) + LEAST_SQUARE


def project(normal: Float[Array, "3"], v: Float[Array, "3"]) -> Float[Array, "3"]:
    """P v with P = I - n n^T, n = N / |N|."""
    return v - normal * dot(normal, v) / squared_norm(normal)


def slack(
    psi: Float[Array, ""], normal: Float[Array, "3"], slip: Float[Array, "3"]
) -> Float[Array, "4"]:
    """(psi, P v) in SOC4, v the slip of body a along b at the contact point (`contact.slip_at`)."""
    return jnp.concatenate([psi[None], project(normal, slip)])
