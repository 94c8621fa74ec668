"""A contact between two convex pieces, whatever finds its point: impulses, gap and friction.

Departures from eq. 20 of the single-level paper, each measured: the normal force uses the
raw sensitivity N = d alpha / d x instead of a unit normal (with unit normals most drops
fail in 3D), each body's wrench uses its own N, and friction is a second-order cone without
a tangent basis. It counters what the contact point has moved in the step, not its velocity at
the end: with that, a body that turns while friction wedges it has no step (see `slip_at`). The
unit of impulse of a contact is that of its lighter body at the unit of speed, the unit of length
that of its smaller shape, so that the relaxation means the same for any mass and size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from silico_py import friction, rotation
from silico_py.collision_program import Piece, SlackMap, Warm, sure_overlap
from silico_py.integrator import FAST, Motion, next_pose
from silico_py.primitives import ConvexShape
from silico_py.solver import CellJacobian, CellResidual, CellVariables, ProductCone
from silico_py.solver.dense import dot, matmul, safe_norm
from silico_py.solver.problem import Easing

EASED_FRICTION = 0.7  # share of friction that full easing takes away
FIRMER_FRICTION = 1.0  # the same that it adds the other way
# Shares of what impulses do to a lone body, and of their moments, that full easing leaves far from
# a solution. With more of the moments flat and slender shapes fail more often; with a hundredth
# there is no further gain.
EASED_IMPULSE, EASED_MOMENT = 0.5, 0.05
# Scaling at the end of free motion from which on a pair flies apart. The margin is for pairs that
# touch after all: they would overlap by as many relaxations as they come from sizes away.
CLEAR = 1.05
# Slip in a step, in lengths of the pair, that friction has room for on the way: with less, friction
# is tight too early in steps of a millisecond; those of 10 ms hardly need any.
LEEWAY = 0.025


class Side(NamedTuple):
    """One side of a contact: a convex piece of a body, or of the world (motion is None)."""

    shape: ConvexShape
    map: SlackMap
    position: Float[Array, "3"]  # in the frame of the centre of mass, or the world
    rotation: Float[Array, "3 3"]
    motion: Motion | None


def lighter(a: Side, b: Side) -> Float[Array, ""]:
    """Mass of the lighter body of a pair [kg]."""
    return a.motion.mass if b.motion is None else jnp.minimum(a.motion.mass, b.motion.mass)


def slip_unit(a: Side, b: Side, speed: Float[Array, ""]) -> Float[Array, ""]:
    """Unit of slip of a pair: `speed`, or its slip before the step over `FAST` if that is more.

    In a small unit the friction of fast pairs would be as far from its start as their slip is from
    1.
    """
    fast = safe_norm(_velocity(a) - _velocity(b)) + _sweep(a) + _sweep(b)
    return jnp.maximum(speed, fast / FAST)


def flies(clearance: Float[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether free motion ends with a pair apart."""
    return clearance > CLEAR


def next_power_of_two(least: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The smallest power of two from 1 on that is not below this: a unit without a derivative."""
    return jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(1, jax.lax.stop_gradient(least)))))


def parting_speed(a: Side, b: Side) -> Float[Array, ""]:
    """Least speed at which the shapes of a pair have to part in the step, if they overlap [m/s]."""
    return sure_overlap(current(a), current(b)) / a.motion.timestep


def _velocity(side: Side) -> Float[Array, "3"]:
    """Velocity of the centre of mass before the step, with which it starts the step."""
    if side.motion is None:
        return jnp.zeros_like(side.position)
    return side.motion.memory * side.motion.velocity


def _sweep(side: Side) -> Float[Array, ""]:
    """A bound on the speed of the piece's points about the centre of mass, before the step."""
    if side.motion is None:
        return jnp.zeros_like(side.position[0])
    reach = safe_norm(side.position) + side.shape.characteristic_length
    return reach * side.motion.memory * safe_norm(side.motion.angular_velocity)


def leeway(
    length: Float[Array, "*batch"], timestep: Float[Array, "*batch"], slip: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """How much larger the products of friction are than those of the gap on the way to a solution.

    In a short step a gap of a small share of the size is as fast as all slip: friction would be
    tight long before the gap is settled, and a tight cone leaves its direction no room to turn.
    """
    return next_power_of_two(LEEWAY * length / timestep / slip)


class Nested(NamedTuple):
    """How the bilevel solves the collision program of a contact."""

    relaxation: Float[Array, ""]
    warm: Warm


class Pair(NamedTuple):
    """Two pieces that may touch in a step, as they are before it."""

    a: Side
    b: Side
    friction: Float[Array, ""]
    radii: friction.Radii | None
    length: Float[Array, ""]  # unit of length [m]
    clearance: Float[Array, ""]  # scaling that free motion ends above


class Contact(NamedTuple):
    """A pair with equations, in its units: parameters of one contact for one step.

    The last three are the formulation's: until it has started the contact, they are those of one
    that is near, with its origin at the anchor.
    """

    a: Side
    b: Side
    friction: Float[Array, ""]
    radii: friction.Radii | None  # of friction that resists turns
    relaxation: Float[Array, ""]
    impulse: Float[Array, ""]  # unit of impulse [kg m/s], less where the pair acts in part
    moment: Float[Array, ""]  # share of the moments of impulses that acts: 1, less while eased
    length: Float[Array, ""]  # unit of length [m]
    speed: Float[Array, ""]  # unit of speed: that of the scene, more for bodies that overlap [m/s]
    slip: Float[Array, ""]  # unit of slip: the same, more for fast pairs [m/s]
    least_alpha: Float[Array, ""]  # at the end of the step: 1, less lets shapes overlap
    clearance: Float[Array, ""]  # scaling that free motion ends above
    in_flight: Bool[Array, ""]  # whether it does so with every pair of both bodies
    shallow: Bool[Array, ""]  # whether it leads no pair of both bodies through each other
    leeway: Float[Array, ""]  # products of friction over those of the gap, on the way
    origin: Float[Array, "3"]  # of the contact point unknown, world [m]
    slack_unit: Float[Array, ""]  # of shapes and friction: 1, more for distant pairs
    nested: Nested | None = None

    @property
    def arity(self) -> int:
        """Number of moving bodies."""
        return 1 if self.b.motion is None else 2

    @property
    def sliding(self) -> Float[Array, "*batch"]:
        """Unit of the slacks of friction [m/s]."""
        return self.slack_unit * self.slip * self.leeway

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that move."""
        return (self.a, self.b)[: self.arity]


class Kinematics(NamedTuple):
    """A piece at the end of the step and the velocity of its body."""

    piece: Piece
    turn: Float[Array, "3 3"]  # rotation of the body, the identity for the world
    center_of_mass: Float[Array, "3"]
    velocity: Float[Array, "3"]
    spin: Float[Array, "3"]  # angular velocity, world

    def velocity_at(self, point: Float[Array, "3"]) -> Float[Array, "3"]:
        """Velocity of the body's material point at a world point."""
        return self.velocity + rotation.cross(self.spin, point - self.center_of_mass)

    def bend_at(self, point: Float[Array, "3"]) -> Float[Array, "3"]:
        """Acceleration of that point about the centre of mass, w x (w x r) [m/s^2]."""
        arm = point - self.center_of_mass
        return rotation.cross(self.spin, rotation.cross(self.spin, arm))


class Touch(NamedTuple):
    """Geometry and impulses of a contact, dimensionless but for the point.

    Each body's wrench uses its own sensitivity; they agree at a solution.
    """

    alpha: Float[Array, ""]  # relaxed scaling less `usual_excess` relaxations
    point: Float[Array, "3"]  # world [m]
    normal_a: Float[Array, "3"]  # d alpha / d x_a in units of 1 / length
    normal_b: Float[Array, "3"]  # -d alpha / d x_b
    gamma: Float[Array, ""]
    psi: Float[Array, ""]
    beta: Float[Array, " friction"]

    @property
    def normal(self) -> Float[Array, "3"]:
        """The sensitivity that friction uses."""
        return (self.normal_a + self.normal_b) / 2


class Exchange(NamedTuple):
    """What a contact adds to the step: forces on its bodies, the rows of gap and friction."""

    nodes: Float[Array, "arity 6"]
    limit: Float[Array, "1"]
    slack: Float[Array, " dim"]


def exchange_cone(radii: friction.Radii | None) -> ProductCone:
    """Cone of `Exchange.slack`."""
    return ProductCone.orthant(1) + friction.cone(radii)


@dataclass(frozen=True)
class Formulation:
    """How the unknowns of a contact are found.

    Attributes:
        cone: of one contact, for two shapes and the radii of friction.
        primals: how many one contact has, for two shapes.
        rows: `(y, x, z, contact) -> CellResidual`.
        jacobian: `(y, x, z, contact, easing) -> CellJacobian`, see `CellGroup`.
        pose_derivative: of (nodes, local, slack) by position [m] and rotation vector (world)
            of each body before the step, parameters of the contact held.
        start: the contact with what the formulation chooses of it, and its variables at the start.
        touch: `(y, x, z, contact) -> Touch`.
        prepare, fusible: see `CellGroup`.
    """

    cone: Callable[[ConvexShape, ConvexShape, friction.Radii | None], ProductCone]
    primals: Callable[[ConvexShape, ConvexShape], int]
    rows: Callable[[Array, Array, Array, Contact], CellResidual]
    jacobian: Callable[[Array, Array, Array, Contact, Array], CellJacobian]
    pose_derivative: Callable[[Array, Array, Array, Contact], tuple[Array, Array, Array]]
    start: Callable[[Contact], tuple[Contact, CellVariables]]
    touch: Callable[[Array, Array, Array, Contact], Touch]
    prepare: Callable[[Array, Contact], Any] | None = None
    fusible: bool = True


def kinematics(side: Side, y: Float[Array, "6"] | None) -> Kinematics:
    """Where the piece is after moving with y = (v+, w+); fixed pieces have no y."""
    if y is None:
        zero, eye = jnp.zeros_like(side.position), jnp.eye(3, dtype=side.position.dtype)
        return Kinematics(current(side), eye, zero, zero, zero)
    position, orientation = next_pose(y, side.motion)
    turn = rotation.matrix(orientation)
    piece = Piece(
        side.shape, side.map, position + matmul(turn, side.position), matmul(turn, side.rotation)
    )
    return Kinematics(piece, turn, position, y[:3], matmul(turn, y[3:]))


def both_kinematics(y: Float[Array, "arity 6"], c: Contact) -> tuple[Kinematics, Kinematics]:
    """Both sides at the end of the step."""
    return kinematics(c.a, y[0]), kinematics(c.b, y[1] if c.arity == 2 else None)


def exchange(
    touch: Touch,
    ends: tuple[Kinematics, Kinematics],
    c: Contact,
    easing: Float[Array, ""] | float = 0.0,
) -> Exchange:
    """Impulses on the bodies, gap and friction where both sides end; `easing` takes the friction
    limit's slope away."""
    a, b = ends
    normal, slip = touch.normal, slip_at(touch.point, ends, c)
    # At the arms of distant pairs the least friction would brake spins.
    limit = friction.limit(c.friction, touch.gamma, normal, c.relaxation / c.slack_unit)
    limit = (1 - easing) * limit + easing * jax.lax.stop_gradient(limit)
    tangential, turning = friction.impulses(normal, touch.beta, c.radii)
    torque = jnp.zeros_like(tangential) if turning is None else c.impulse * turning
    on_a = c.impulse * (touch.gamma * touch.normal_a + tangential)
    on_b = -c.impulse * (touch.gamma * touch.normal_b + tangential)
    impulses = [_wrench(on_a, touch.point - a.center_of_mass, torque, c.moment)]
    if c.arity == 2:
        impulses.append(_wrench(on_b, touch.point - b.center_of_mass, -torque, c.moment))
    slack = friction.slack(touch.psi, normal, slip, a.spin - b.spin, c.radii) / c.sliding
    return Exchange(
        nodes=-jnp.stack(impulses),
        limit=(touch.beta[0] - limit)[None],
        slack=jnp.concatenate([(touch.alpha - c.least_alpha)[None], slack]),
    )


def slip_at(
    point: Float[Array, "3"], ends: tuple[Kinematics, Kinematics], c: Contact
) -> Float[Array, "3"]:
    """How fast a slips along b in the step, at a world point where it ends [m/s].

    It is zero where the point has not moved along: with the relative velocity V at the end alone,
    what sticks would drift by h^2 |w|^2 |r| / 2, and a body that turns while friction wedges it
    would have to slip and could not. With a body a on a fixed one, the Cayley map has moved its
    material point by d with

        (1 + [h w_a / 2]x) d / h = V + h / 2 (w_a x V - w_a x (w_a x r_a)).

    Between two bodies, V counts less the mean of both velocities, weighted by mass: all of this is
    the same however both move together.
    """
    a, b = ends
    velocity = a.velocity_at(point) - b.velocity_at(point)
    turned = rotation.cross(shared_spin(ends, c), velocity)
    return velocity + c.a.motion.timestep / 2 * (turned - a.bend_at(point) + b.bend_at(point))


def shared_spin(ends: tuple[Kinematics, Kinematics], c: Contact) -> Float[Array, "3"]:
    """What turns the relative velocity of both sides: the mean of their spins by `spin_shares`,
    world [rad/s]."""
    share_a, share_b = spin_shares(c)
    return share_a * ends[0].spin + share_b * ends[1].spin


def spin_shares(c: Contact) -> tuple[Float[Array, ""] | float, Float[Array, ""] | float]:
    """How much the spins of a and of b turn their relative velocity: by the mass of the other."""
    if c.b.motion is None:
        return 1.0, 0.0
    share = c.b.motion.mass / (c.a.motion.mass + c.b.motion.mass)
    return share, 1 - share


def _wrench(
    impulse: Float[Array, "3"],
    arm: Float[Array, "3"],
    torque: Float[Array, "3"],
    share: Float[Array, ""],
) -> Float[Array, "6"]:
    """An impulse and a share of all moments, with its own and an angular impulse."""
    return jnp.concatenate([impulse, share * (rotation.cross(arm, impulse) + torque)])


def ease(c: Contact, easing: Easing) -> Contact:
    """The contact with less friction where easing is above 0, with more where it is below.

    Sticking contacts near the limit fold the path, and what slides in vain towards the end of its
    solutions may stick.

    Meanwhile bodies in flight get no impulses: before the contact points are found, impulses at
    long arms would throw them about. Far from a solution others do less, above all to turn a body:
    convex shapes that do not turn part in one way only. But a body that would pass through another
    one has to be stopped.
    """
    share = easing.share
    less = jnp.where(share < 0, FIRMER_FRICTION, EASED_FRICTION)
    steady = jnp.where(easing.far & c.shallow, jnp.abs(share), 0)
    acting = jnp.where(c.in_flight & (share != 0), 0, 1 - (1 - EASED_IMPULSE) * steady)
    return c._replace(
        friction=(1 - less * share) * c.friction,
        impulse=acting * c.impulse,
        moment=jnp.exp(math.log(EASED_MOMENT) * steady),
    )


def posed(c: Contact, change: Float[Array, "arity 6"]) -> Contact:
    """The contact with other poses before the step: moved, and turned by a rotation vector, in the
    world."""
    sides = []
    for side, part in zip(c.sides, change, strict=True):
        turned = rotation.multiply(rotation.cayley(part[3:]), side.motion.orientation)
        position = side.motion.position + part[:3]
        motion = side.motion._replace(position=position, orientation=turned)
        sides.append(side._replace(motion=motion))
    return c._replace(**dict(zip("ab", sides, strict=False)))


def seen_from(side: Side, anchor: Float[Array, "3"]) -> Side:
    """The side with positions relative to `anchor`; of a half-space, the nearest point of its
    plane."""
    if side.motion is not None:
        return side._replace(motion=side.motion._replace(position=side.motion.position - anchor))
    position = side.position - anchor
    if not side.shape.scaled:
        normal = matmul(side.rotation, side.shape.normal)
        position = dot(normal, position) * normal
    return side._replace(position=position)


def current(side: Side) -> Piece:
    """The piece before the step."""
    if side.motion is None:
        return Piece(side.shape, side.map, side.position, side.rotation)
    turn = rotation.matrix(side.motion.orientation)
    center = side.motion.position + matmul(turn, side.position)
    return Piece(side.shape, side.map, center, matmul(turn, side.rotation))
