"""Contact and collision as one problem: eq. 20 of the single-level paper, in 3D."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import friction
from silico_py.collision_program import (
    CollisionRows,
    Piece,
    Primal,
    central_start,
    conditions,
    pair_length,
    without_excess,
)
from silico_py.contact import (
    Contact,
    Kinematics,
    Touch,
    both_kinematics,
    current,
    exchange,
    exchange_cone,
    flies,
    next_power_of_two,
)
from silico_py.primitives import ConvexShape
from silico_py.solver import CellResidual, CellVariables, ProductCone
from silico_py.solver.dense import safe_norm, safe_unit

DISTANT = 10.0  # scaling from which on it is a unit, of pairs that fly apart (see `CLEAR`)
# The most that this unit may be, in what free motion leaves between the scaling and 1: forces jump
# where it doubles, and those of slender shapes that start many sizes away need not be small.
AWAY = 10.0
START_GAMMA = 10.0  # largest normal impulse of the start, dimensionless
START_PUSH = 2.0  # the same of what it does to the bodies: flat shapes have sensitivities above 10
# Scaling beyond which the impulse of the start falls with distance: pairs far apart would throw
# the bodies of a heap about before the touching ones have their say, and one step in twenty failed.
START_FAR = 2.0
# Shapes whose centres coincide have no normal to part along: up to this distance, in lengths of the
# pair, the start takes them as this much further apart, along any direction if there is none.
COINCIDENT, START_APART, ANY_DIRECTION = 0.01, 0.3, (0.48, 0.36, 0.8)


class Unknowns(NamedTuple):
    """Named parts of the primal and dual vectors of one contact."""

    primal: Primal
    psi: Float[Array, ""]
    dual_a: Float[Array, " dim_a"]
    dual_b: Float[Array, " dim_b"]
    gamma: Float[Array, ""]
    beta: Float[Array, " friction"]


def contact_cone(a: ConvexShape, b: ConvexShape, radii: friction.Radii | None) -> ProductCone:
    """Cone of one contact: both shapes, the gap, friction."""
    return a.cone + b.cone + exchange_cone(radii)


def unpack(x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact) -> Unknowns:
    """Split the vectors of one contact; the contact point comes back in metres."""
    aux_a, dim_a, dim_b = c.a.shape.n_aux, c.a.shape.cone.dim, c.b.shape.cone.dim
    point = c.origin + c.length * x[:3]
    primal = Primal(point, x[3], x[4 : 4 + aux_a], x[4 + aux_a : -1])
    dual_a, dual_b, gamma, beta = jnp.split(z, [dim_a, dim_a + dim_b, dim_a + dim_b + 1])
    return Unknowns(primal, x[-1], dual_a, dual_b, gamma[0], beta)


def contact_rows(
    y: Float[Array, "arity 6"], x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact
) -> CellResidual:
    """Impulses on the bodies, collision optimality, gap and friction of one contact."""
    u, ends = unpack(x, z, c), both_kinematics(y, c)
    rows = _collision(u, ends, c)
    given = exchange(_touch(u, rows, c), ends, c)
    local = [rows.point, rows.scale[None], rows.auxiliary, given.limit]
    slack = [rows.slack_a / c.slack_unit, rows.slack_b / c.slack_unit, given.slack]
    return CellResidual(given.nodes, jnp.concatenate(local), jnp.concatenate(slack))


def touch(
    y: Float[Array, "arity 6"], x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact
) -> Touch:
    """Geometry and impulses at given unknowns."""
    u = unpack(x, z, c)
    return _touch(u, _collision(u, both_kinematics(y, c), c), c)


def _collision(u: Unknowns, ends: tuple[Kinematics, Kinematics], c: Contact) -> CollisionRows:
    a, b = ends
    return conditions(a.piece, b.piece, c.length, u.primal, u.dual_a, u.dual_b)


def _touch(u: Unknowns, rows: CollisionRows, c: Contact) -> Touch:
    sensitivities = (rows.normal_a, rows.normal_b)
    # What is the relaxation's doing is not counted as a gap.
    alpha = without_excess(u.primal.alpha, c.a.shape, c.b.shape, c.relaxation * c.slack_unit)
    return Touch(alpha, u.primal.point, *sensitivities, u.gamma, u.psi, u.beta)


def start_contact(c: Contact) -> tuple[Contact, CellVariables]:
    """Central start at the current pose: feasible slacks.

    No solution follows it, so it has no derivatives.
    """
    a, b = (current(side) for side in jax.lax.stop_gradient((c.a, c.b)))
    s = central_start(_told_apart(a, b), b, ~flies(c.clearance))
    alpha, dtype = s.primal.alpha, s.primal.alpha.dtype
    # What is far away and stays there has slacks and, at a long arm, slips of that size: their
    # products would be as large, and steps that suit them none that suits what touches.
    slack_unit = next_power_of_two(jnp.minimum(alpha / DISTANT, AWAY * (c.clearance - 1)))
    far = jnp.maximum(1, alpha / START_FAR)
    push = safe_norm(a.sensitivity(s.dual_a, c.length))
    most = START_PUSH / jnp.maximum(push, START_PUSH / START_GAMMA)
    gamma = jnp.minimum(s.complementarity / far / (alpha - 1), most)
    slip, load = friction.start(c.friction, c.radii)
    point = jnp.zeros(3, dtype)
    c = c._replace(origin=s.primal.point, slack_unit=slack_unit)
    x = [point, alpha[None], s.primal.eps_a, s.primal.eps_b, c.sliding * slip[:1]]
    dual = [s.dual_a, s.dual_b, gamma[None], load]
    slack = [s.slack_a / slack_unit, s.slack_b / slack_unit, (alpha - 1)[None], slip]
    variables = CellVariables(*(jnp.concatenate(parts) for parts in (x, dual, slack)))
    return c, variables


def _told_apart(a: Piece, b: Piece) -> Piece:
    """The piece a, moved away from b if their centres coincide."""
    if not (a.shape.scaled and b.shape.scaled):
        return a
    apart = a.reference - b.reference
    anywhere = jnp.array(ANY_DIRECTION, apart.dtype)
    direction = jnp.where(jnp.all(apart == 0), anywhere, safe_unit(apart))
    length = pair_length(a.shape, b.shape)
    move = jnp.where(safe_norm(apart) < COINCIDENT * length, START_APART * length, 0)
    return a._replace(center=a.center + move * direction)
