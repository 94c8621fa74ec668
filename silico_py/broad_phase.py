"""Broad phase: pairs that stay apart in a step and may be left out, by balls around their pieces.

A pair far apart pushes by little more than the relaxation. What of that a step would lose, were the
pair left out of one step and not of the next, fades with the gap between the balls: derivatives
have no jump. The balls also tell how much of a step free motion may be given at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from silico_py import rotation
from silico_py.collision_program import Piece, growth, height_above, pair_length
from silico_py.contact import Side, current, kinematics
from silico_py.integrator import Motion
from silico_py.solver.dense import dot, safe_norm, safe_unit
from silico_py.solver.rows import each

# In radii of the smaller ball, beyond what the free motion of the pair may close:
NEAR = 0.25  # gap up to which forces act in full
FADE = 0.25  # further gap over which they fade
FAINT = 0.1  # share of the forces below which a pair may be pushed into each other

DEEP = 4.0  # lengths of the pair by which free motion may let its balls overlap

# Most contacts of a kind of pair, or all: between bodies, and of bodies with the environment.
Limits = tuple[int | None, int | None]


class Separation(NamedTuple):
    """How far apart the balls around two pieces are.

    Attributes:
        gap: negative where they overlap [m].
        alpha: a lower bound of the pieces' scaling.
        point: between the balls, world [m].
        normal: unit vector from b to a, world.
    """

    gap: Float[Array, ""]
    alpha: Float[Array, ""]
    point: Float[Array, "3"]
    normal: Float[Array, "3"]


class Candidates(NamedTuple):
    """All pairs of one kind, of which the nearest are `chosen`."""

    nodes: Int[Array, "pairs arity"]
    a: Side
    b: Side
    share: Float[Array, " pairs"]
    chosen: Int[Array, " contacts"]

    @property
    def touched(self) -> Int[Array, "contacts arity"]:
        """Bodies of the chosen pairs."""
        return self.nodes[self.chosen]

    @property
    def acting(self) -> Float[Array, " contacts"]:
        """Share of the forces of each chosen pair that act."""
        return self.share[self.chosen]

    def at_end(self, y: Float[Array, "bodies 6"]) -> Separation:
        """Separations of all pairs, after moving with y."""
        own = y[self.nodes]
        other = own[:, 1] if self.b.motion is not None else None
        a, b = (each(_moved)(*side) for side in ((self.a, own[:, 0]), (self.b, other)))
        return each(separation)(a, b)

    def complete(self, alpha: Float[Array, " pairs"]) -> Bool[Array, ""]:
        """Whether every pair that acts was chosen, and none that acts in part touches at the end,
        given the scalings there or bounds of them."""
        acting = jnp.zeros_like(self.share).at[self.chosen].set(self.acting)
        return jnp.all((acting == self.share) & ((acting == 1) | (alpha > 1)))


def nearest(nodes: Int[np.ndarray, "pairs arity"], a: Side, b: Side, most: int) -> Candidates:
    """The `most` pairs of one kind that act the most."""
    far = each(distance)(a, b)
    _, chosen = jax.lax.top_k(-jax.lax.stop_gradient(far), most)
    return Candidates(jnp.asarray(nodes), a, b, share(far), chosen)


def share(far: Float[Array, "*pairs"]) -> Float[Array, "*pairs"]:
    """Share of its forces with which a pair acts, by its `distance`: 1 up to 0, none from 1 on."""
    return 1 - _smooth(jnp.clip(far, 0, 1))


def _smooth(t: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The cubic from 0 at t = 0 to 1 at t = 1 that is flat at both ends."""
    return t * t * (3 - 2 * t)


def least_alpha(share: Float[Array, "*pairs"]) -> Float[Array, "*pairs"]:
    """Scaling at which the bodies of a pair have to stay, by the share of its forces that act: 1,
    and less where these are too faint to keep it."""
    return _smooth(jnp.minimum(share / FAINT, 1))


def distance(a: Side, b: Side) -> Float[Array, ""]:
    """Gap of a pair beyond that up to which its forces act in full, over `FADE`: not positive where
    they act in full, 1 and more where they do not act at all."""
    (gap, closing), length = _approach(a, b), pair_length(a.shape, b.shape)
    margin = NEAR * length
    closing = (closing + jnp.sqrt(closing**2 + margin**2)) / 2  # not negative, without a kink
    return (gap - closing - margin) / (FADE * length)


def shallow(a: Side, b: Side) -> Float[Array, ""]:
    """Share of the step, up to 1, after which free motion lets the balls overlap by `DEEP`."""
    gap, closing = _approach(a, b)
    way = jnp.maximum(gap, 0) + DEEP * pair_length(a.shape, b.shape)
    return jnp.where(closing > way, way / jnp.where(closing > way, closing, 1), 1)


def clearance(a: Side, b: Side) -> Float[Array, ""]:
    """Scaling, about each reference, at which a plane still separates a pair after the free motion
    of its bodies: a lower bound of the pair's own scaling there.

    It is the half-space's, or halfway between those that face the pair before the step and after
    it: bodies that pass through each other are not apart, and there is none if they do so exactly.
    """
    a, b = jax.lax.stop_gradient((a, b))
    end_a, end_b = (_freely_moved(side) for side in (a, b))
    if not b.shape.scaled:
        normal, height = height_above(end_a, end_b)
        return height / end_a.extent(-normal)
    before, after = (
        p.reference - q.reference for p, q in ((current(a), current(b)), (end_a, end_b))
    )
    normal = safe_unit(safe_unit(before) + safe_unit(after))
    reach = end_a.extent(-normal) + end_b.extent(normal)
    return jnp.where(reach > 0, dot(normal, after) / jnp.where(reach > 0, reach, 1), 0)


def _freely_moved(side: Side) -> Piece:
    """The piece at the end of the step if nothing touched its body."""
    return _moved(side, None if side.motion is None else _free_motion(side.motion))


def _approach(a: Side, b: Side) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The gap of the balls before the step, and what free motion takes away from it [m]."""
    start_a, start_b = current(a), current(b)
    balls = separation(start_a, start_b)
    move_a, move_b = (
        _freely_moved(side).reference - start.reference
        for side, start in ((a, start_a), (b, start_b))
    )
    return balls.gap, -dot(balls.normal, move_a - move_b)


def separation(a: Piece, b: Piece) -> Separation:
    """Separation of the balls of two pieces, or of a ball and a half-space."""
    length = pair_length(a.shape, b.shape)
    grown = growth(a.shape, length) * a.length
    if not b.shape.scaled:
        normal, height = height_above(a, b)
        gap = height - a.length
    else:
        between = a.reference - b.reference
        normal = safe_unit(between)
        gap = safe_norm(between) - a.length - b.length
        grown += growth(b.shape, length) * b.length
    return Separation(gap, 1 + gap / grown, a.reference - (a.length + gap / 2) * normal, normal)


def _free_motion(m: Motion) -> Float[Array, "6"]:
    """About (v+, w+) without contacts: all axes turn alike, and torques are left out, for the spin
    that a large one leads to grows with its root alone."""
    h, gyration = m.timestep, jnp.trace(m.inertia) / 3
    mass = jnp.concatenate([jnp.broadcast_to(v, (3,)) for v in (m.mass, gyration)])
    spin = rotation.rotate(m.orientation, m.angular_velocity)
    momentum = m.memory * mass * jnp.concatenate([m.velocity, spin])
    pushed = momentum + h * (jnp.pad(m.force, (0, 3)) + m.stiffness * m.command)
    y = pushed / (mass + h**2 * m.stiffness)
    return jnp.concatenate([y[:3], rotation.rotate(rotation.conjugate(m.orientation), y[3:])])


def _moved(side: Side, y: Float[Array, "6"] | None) -> Piece:
    return kinematics(side, y).piece
