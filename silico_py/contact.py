"""The rows of one contact: collision optimality, gap, friction, and the impulses they cause.

Departures from eq. 20 of the single-level paper, each measured: the normal force uses the
raw sensitivity N = d alpha / d x instead of a unit normal (with unit normals most drops
fail in 3D), each body's wrench uses its own N, and friction is a second-order cone without
a tangent basis. The unit of impulse of a contact is that of its lighter body at 1 m/s, the
unit of length that of its smaller shape, so that the relaxation means the same for any
mass and size.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import friction, rotation
from silico_py.collision import Piece, Primal, SlackMap, central_start, conditions
from silico_py.integrator import Motion, next_pose
from silico_py.primitives import ConvexShape
from silico_py.solver import CellResidual, CellVariables, ProductCone

START_GAMMA = 10.0  # largest normal impulse of the start, dimensionless
EASED_FRICTION = 0.7  # share of friction that full easing takes away


class Side(NamedTuple):
    """One side of a contact: a convex piece of a body, or of the world (motion is None)."""

    shape: ConvexShape
    map: SlackMap
    position: Float[Array, "3"]  # in the frame of the centre of mass, or the world
    rotation: Float[Array, "3 3"]
    motion: Motion | None


class Contact(NamedTuple):
    """Parameters of one contact for one step."""

    a: Side
    b: Side
    friction: Float[Array, ""]
    relaxation: Float[Array, ""]
    mass: Float[Array, ""]  # unit of impulse [kg m/s]
    length: Float[Array, ""]  # unit of length [m]
    origin: Float[Array, "3"]  # of the contact point unknown, world [m]

    @property
    def arity(self) -> int:
        """Number of moving bodies."""
        return 1 if self.b.motion is None else 2

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that move."""
        return (self.a, self.b)[: self.arity]


class Unknowns(NamedTuple):
    """Named parts of the primal and dual vectors of one contact."""

    primal: Primal
    psi: Float[Array, ""]
    dual_a: Float[Array, " dim_a"]
    dual_b: Float[Array, " dim_b"]
    gamma: Float[Array, ""]
    beta: Float[Array, "4"]


class Kinematics(NamedTuple):
    """A piece at the end of the step and the velocity of its body."""

    piece: Piece
    center_of_mass: Float[Array, "3"]
    velocity: Float[Array, "3"]
    spin: Float[Array, "3"]  # angular velocity, world

    def velocity_at(self, point: Float[Array, "3"]) -> Float[Array, "3"]:
        """Velocity of the body's material point at a world point."""
        return self.velocity + jnp.cross(self.spin, point - self.center_of_mass)


def contact_cone(a: ConvexShape, b: ConvexShape) -> ProductCone:
    """Cone of one contact: both shapes, the gap, friction."""
    return a.cone + b.cone + ProductCone.orthant(1) + friction.CONE


def unpack(x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact) -> Unknowns:
    """Split the vectors of one contact; the contact point comes back in metres."""
    aux_a, dim_a, dim_b = c.a.shape.n_aux, c.a.shape.cone.dim, c.b.shape.cone.dim
    point = c.origin + c.length * x[:3]
    primal = Primal(point, x[3], x[4 : 4 + aux_a], x[4 + aux_a : -1])
    dual_a, dual_b, gamma, beta = jnp.split(z, [dim_a, dim_a + dim_b, dim_a + dim_b + 1])
    return Unknowns(primal, x[-1], dual_a, dual_b, gamma[0], beta)


def kinematics(side: Side, y: Float[Array, "6"] | None) -> Kinematics:
    """Where the piece is after moving with y = (v+, w+); fixed pieces have no y."""
    if y is None:
        zero = jnp.zeros_like(side.position)
        return Kinematics(
            Piece(side.shape, side.map, side.position, side.rotation), zero, zero, zero
        )
    position, orientation = next_pose(y, side.motion)
    turn = rotation.matrix(orientation)
    piece = Piece(side.shape, side.map, position + turn @ side.position, turn @ side.rotation)
    return Kinematics(piece, position, y[:3], turn @ y[3:])


def contact_rows(
    y: Float[Array, "arity 6"],
    x: Float[Array, " nx"],
    z: Float[Array, " dim"],
    c: Contact,
) -> CellResidual:
    """Impulses on the bodies, collision optimality, gap and friction of one contact."""
    u = unpack(x, z, c)
    a = kinematics(c.a, y[0])
    b = kinematics(c.b, y[1] if len(y) == 2 else None)
    point = u.primal.point
    rows = conditions(a.piece, b.piece, c.length, u.primal, u.dual_a, u.dual_b)
    normal = (rows.normal_a + rows.normal_b) / 2
    slip = a.velocity_at(point) - b.velocity_at(point)
    limit = friction.limit(c.friction, u.gamma, normal, c.relaxation)
    tangential = friction.project(normal, u.beta[1:])
    on_a = c.mass * (u.gamma * rows.normal_a + tangential)
    on_b = -c.mass * (u.gamma * rows.normal_b + tangential)
    impulses = [_wrench(on_a, point - a.center_of_mass)]
    if len(y) == 2:
        impulses.append(_wrench(on_b, point - b.center_of_mass))
    stationarity = [rows.point, rows.scale[None], rows.auxiliary, (u.beta[0] - limit)[None]]
    gap = (u.primal.alpha - 1)[None]
    slacks = [rows.slack_a, rows.slack_b, gap, friction.slack(u.psi, normal, slip)]
    return CellResidual(
        -jnp.stack(impulses), jnp.concatenate(stationarity), jnp.concatenate(slacks)
    )


def _wrench(impulse: Float[Array, "3"], arm: Float[Array, "3"]) -> Float[Array, "6"]:
    return jnp.concatenate([impulse, jnp.cross(arm, impulse)])


def start_contact(c: Contact) -> tuple[Contact, CellVariables]:
    """Central start at the current pose: feasible slacks, friction pair at the identity."""
    a, b = _current(c.a), _current(c.b)
    s = central_start(a, b)
    alpha, dtype = s.primal.alpha, s.primal.alpha.dtype
    gamma = jnp.minimum(s.complementarity / (alpha - 1), START_GAMMA)
    identity = friction.CONE.identity(dtype)
    point = jnp.zeros(3, dtype)
    x = [point, alpha[None], s.primal.eps_a, s.primal.eps_b, identity[:1]]
    dual = [s.dual_a, s.dual_b, gamma[None], identity]
    slack = [s.slack_a, s.slack_b, (alpha - 1)[None], identity]
    variables = CellVariables(*(jnp.concatenate(parts) for parts in (x, dual, slack)))
    return c._replace(origin=s.primal.point), variables


def ease(c: Contact, easing: Float[Array, ""]) -> Contact:
    """The contact with less friction: sticking contacts near the limit fold the path."""
    return c._replace(friction=(1 - EASED_FRICTION * easing) * c.friction)


def _current(side: Side) -> Piece:
    if side.motion is None:
        return Piece(side.shape, side.map, side.position, side.rotation)
    turn = rotation.matrix(side.motion.orientation)
    center = side.motion.position + turn @ side.position
    return Piece(side.shape, side.map, center, turn @ side.rotation)
