"""Coulomb friction without a tangent basis: slack (psi, P v), dual (b0, b_t), both in SOC4.

Where turns are resisted as well, three more rows of the same cone do that: slack
(psi, P v, M w) and dual (b0, b_t, b_w) in SOC7, torque M b_w, with M = r_t n n^T + r_r P and the
relative spin w. One budget is shared by all: what slides fast hardly resists turns.

Source: single-level contact simulation, eqs. 10 and 11; of turns Howe and Cutkosky, Practical
force-motion models for sliding manipulation, 1996.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver import ProductCone
from silico_py.solver.dense import dot

# The friction limit never falls below this fraction of rho, less of distant pairs, so that a
# frictionless contact keeps a bounded psi; the drag this adds is 1e-4 rho per unit of velocity.
LIMIT_FLOOR = 1e-2

# Added to |N|^2, which is of the order of 1 where shapes touch.
LEAST_SQUARE = 1e-12

# Coefficient above which a contact carries so much sideways that the start allows for it.
LARGE_FRICTION = 5.0


class Radii(NamedTuple):
    """At what distance from the contact point friction would act to resist turns as it does.

    Attributes:
        torsional: r_t, of turns about the normal [m].
        rolling: r_r, of turns about the tangents [m].
    """

    torsional: Float[Array, "*pairs"]
    rolling: Float[Array, "*pairs"]


def cone(radii: Radii | None) -> ProductCone:
    """Cone of the friction of one contact; it resists turns where there are radii."""
    return ProductCone.second_order(4 if radii is None else 7)


def start(
    friction: Float[Array, ""], radii: Radii | None
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """Slack e / load and dual load e of the start: large friction lets a larger load pass."""
    identity = cone(radii).identity(friction.dtype)
    load = jnp.maximum(1, friction / LARGE_FRICTION)
    return identity / load, load * identity


def shares(
    rows: int, radii: Radii | None, leeway: Float[Array, " contacts"]
) -> Float[Array, "contacts rows"]:
    """Share of the relaxation at which the product of each of so many slack rows ends: in their
    larger unit those of friction end lower."""
    late = np.arange(rows) >= first_row(rows, radii)
    return jnp.where(late, 1 / leeway[:, None], 1)


def first_row(rows: int, radii: Radii | None) -> int:
    """Where friction begins among so many slack rows of a contact, of which it is the last part."""
    return rows - cone(radii).dim


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


def at_radii(normal: Float[Array, "3"], w: Float[Array, "3"], radii: Radii) -> Float[Array, "3"]:
    """M w with M = r_t n n^T + r_r P."""
    return radii.torsional * w + (radii.rolling - radii.torsional) * project(normal, w)


def impulses(
    normal: Float[Array, "3"], beta: Float[Array, " dim"], radii: Radii | None
) -> tuple[Float[Array, "3"], Float[Array, "3"] | None]:
    """Tangential impulse P b_t, and the angular impulse M b_w where there are radii."""
    turning = None if radii is None else at_radii(normal, beta[4:], radii)
    return project(normal, beta[1:4]), turning


def slack(
    psi: Float[Array, ""],
    normal: Float[Array, "3"],
    slip: Float[Array, "3"],
    spin: Float[Array, "3"],
    radii: Radii | None,
) -> Float[Array, " dim"]:
    """(psi, P v), and M w where there are radii.

    v is the slip of body a along b at the contact point (`contact.slip_at`), w its spin less that
    of b.
    """
    rows = [psi[None], project(normal, slip)]
    if radii is not None:
        rows.append(at_radii(normal, spin, radii))
    return jnp.concatenate(rows)
