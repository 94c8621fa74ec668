"""Collision of two convex pieces as a conic program: minimise alpha, p in both scaled sets.

Its optimality conditions are the collision rows of every contact; `collision` solves them
alone. Everything is dimensionless: slacks are divided by the length of their shape, points
and auxiliaries are measured in the length of the pair.

Source: single-level contact simulation, eq. 14 and appendix A; DCOL.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from silico_py.primitives import ConvexShape
from silico_py.solver.dense import dot, matmul

SIZE_RATIO = 10.0  # of two shapes up to which both grow alike, see `SlackMap.in_pair`
START_GAP = 0.1  # smallest alpha of the start, beyond 1
# Of the start's scaling over the larger gauge: of two bounded shapes, of one over a half-space, of
# one that will touch it. The closer to the touch, the fewer steps fail.
START_MARGIN, START_MARGIN_GROUND, START_MARGIN_NEAR = 2.0, 1.2, 1.1
# Of the start point below a half-space: in lengths of the other shape, or in how far that reaches
# down if it will touch.
START_DEPTH = 0.05
# Lengths that it may be above before the point lies deeper, by as much: the dual of a half-space
# that hardly holds the point would be as much larger than that of a shape scaled so far.
START_HIGH = 10.0


class SlackMap(NamedTuple):
    """The affine slack f = constant + to_x x + to_alpha alpha + to_eps eps of one shape.

    It is that of the shape scaled by 1 + growth (alpha - 1).
    """

    constant: Float[Array, " dim"]
    to_x: Float[Array, "dim 3"]
    to_alpha: Float[Array, " dim"]
    to_eps: Float[Array, "dim n_aux"]
    growth: Float[Array, ""]
    held: Float[Array, " n_aux"] | None = None  # 1 for unused auxiliaries

    @classmethod
    def of(cls, shape: ConvexShape) -> SlackMap:
        """Read off the slack of `shape`, divided by its length; x and eps in that length."""
        length = shape.characteristic_length
        zero = jnp.zeros((), length.dtype)
        point, eps = jnp.zeros(3, length.dtype), jnp.zeros(shape.n_aux, length.dtype)
        to_x, to_alpha, to_eps = jax.jacfwd(shape.slack, argnums=(0, 1, 2))(point, zero, eps)
        constant = shape.slack(point, zero, eps) / length
        return cls(constant, to_x, to_alpha / length, to_eps, jnp.ones_like(length))

    def in_pair(self, shape: ConvexShape, length: Float[Array, ""]) -> SlackMap:
        """The map for a pair with this unit of length, of a map whose growth is 1.

        Were a large shape scaled like a small one, the slightest change of alpha would move its
        surface by more than the size of the other: the program is hopelessly conditioned.
        """
        if not shape.scaled:
            return self
        rate = growth(shape, length)
        constant = self.constant + (1 - rate) * self.to_alpha
        return self._replace(constant=constant, to_alpha=rate * self.to_alpha, growth=rate)

    def slack(
        self, x: Float[Array, "3"], alpha: Float[Array, ""], eps: Float[Array, " n_aux"]
    ) -> Float[Array, " dim"]:
        """f at a local point x (in lengths of the shape)."""
        return (
            self.constant + matmul(self.to_x, x) + self.to_alpha * alpha + matmul(self.to_eps, eps)
        )

    def auxiliary_rows(
        self, eps: Float[Array, " n_aux"], dual: Float[Array, " dim"]
    ) -> Float[Array, " n_aux"]:
        """They vanish where the auxiliaries are optimal, and unused ones are zero."""
        rows = matmul(self.to_eps.T, dual)
        return rows if self.held is None else rows + self.held * eps


class Piece(NamedTuple):
    """A convex shape placed in the world by `center` and `rotation`."""

    shape: ConvexShape
    map: SlackMap
    center: Float[Array, "3"]
    rotation: Float[Array, "3 3"]

    def local(self, point: Float[Array, "3"]) -> Float[Array, "3"]:
        """World point in the frame of the shape [m]."""
        return matmul(self.rotation.T, point - self.center)

    def slack(
        self, point: Float[Array, "3"], alpha: Float[Array, ""], eps: Float[Array, " n_aux"]
    ) -> Float[Array, " dim"]:
        """f at a world point [m]."""
        return self.map.slack(self.local(point) / self.length, alpha, eps)

    def sensitivity(
        self, dual: Float[Array, " dim"], length: Float[Array, ""]
    ) -> Float[Array, "3"]:
        """How alpha follows the piece's position, world, in units of 1 / length."""
        return length / self.length * matmul(self.rotation, matmul(self.map.to_x.T, dual))

    def furthest(self, direction: Float[Array, "3"]) -> Float[Array, "3"]:
        """Vector from the reference to the furthest point along a direction, world [m]."""
        local = matmul(self.rotation.T, direction)
        return matmul(self.rotation, self.shape.support(local) - self.shape.reference)

    def extent(self, direction: Float[Array, "3"]) -> Float[Array, ""]:
        """How far it reaches from its reference along a direction, a unit vector, world [m]."""
        return dot(direction, self.furthest(direction))

    @property
    def length(self) -> Float[Array, ""]:
        """Unit of length of the shape's slack [m]."""
        return self.shape.characteristic_length

    @property
    def reference(self) -> Float[Array, "3"]:
        """World point about which the shape is scaled."""
        return self.center + matmul(self.rotation, self.shape.reference)


class Primal(NamedTuple):
    """Unknowns of the collision program: contact point, scaling, auxiliaries."""

    point: Float[Array, "3"]
    alpha: Float[Array, ""]
    eps_a: Float[Array, " n_aux_a"]
    eps_b: Float[Array, " n_aux_b"]


class CollisionRows(NamedTuple):
    """The optimality conditions, one field a printed line, and the two sensitivities.

    `normal_a` = d alpha / d x_a and `normal_b` = -d alpha / d x_b in units of 1 / length;
    they agree at a solution and each body's wrench uses its own.
    """

    point: Float[Array, "3"]
    scale: Float[Array, ""]
    auxiliary: Float[Array, " n_aux"]
    slack_a: Float[Array, " dim_a"]
    slack_b: Float[Array, " dim_b"]
    normal_a: Float[Array, "3"]
    normal_b: Float[Array, "3"]


def pair_length(a: ConvexShape, b: ConvexShape) -> Float[Array, ""]:
    """Unit of length of a pair: that of the smaller shape [m]."""
    if not b.scaled:
        return a.characteristic_length
    if not a.scaled:
        return b.characteristic_length
    return jnp.minimum(a.characteristic_length, b.characteristic_length)


def growth(shape: ConvexShape, length: Float[Array, ""]) -> Float[Array, ""]:
    """Rate at which a shape grows with alpha in a pair with this unit of length."""
    return jnp.minimum(1, SIZE_RATIO * length / shape.characteristic_length)


def height_above(a: Piece, ground: Piece) -> tuple[Float[Array, "3"], Float[Array, ""]]:
    """The normal of a half-space, world, and how far a piece's reference is out of it [m]."""
    normal = matmul(ground.rotation, ground.shape.normal)
    return normal, dot(normal, a.reference - ground.center) - ground.shape.offset


def gap_across(a: Piece, b: Piece, normal: Float[Array, "3"]) -> Float[Array, ""]:
    """Distance of the two planes across `normal`, a unit vector from b to a, that touch the shapes
    from between them [m]: negative where they overlap; of a half-space that of its own plane. Where
    no normal is better than another, and it is zero, any will do."""
    if not a.shape.scaled:
        return gap_across(b, a, -normal)
    if not b.shape.scaled:
        normal, height = height_above(a, b)
        return height - a.extent(-normal)
    normal = jnp.where(jnp.any(normal != 0), normal, jnp.eye(3, dtype=normal.dtype)[2])
    between = a.reference - b.reference
    return dot(normal, between) - a.extent(-normal) - b.extent(normal)


def conditions(
    a: Piece,
    b: Piece,
    length: Float[Array, ""],
    primal: Primal,
    dual_a: Float[Array, " dim_a"],
    dual_b: Float[Array, " dim_b"],
) -> CollisionRows:
    """Rows of the collision program at a world point `primal.point` [m]."""
    normal_a, normal_b = a.sensitivity(dual_a, length), -b.sensitivity(dual_b, length)
    return CollisionRows(
        point=normal_a - normal_b,
        scale=dot(a.map.to_alpha, dual_a) + dot(b.map.to_alpha, dual_b) - 1,
        auxiliary=jnp.concatenate(
            [
                a.map.auxiliary_rows(primal.eps_a, dual_a),
                b.map.auxiliary_rows(primal.eps_b, dual_b),
            ]
        ),
        slack_a=a.slack(primal.point, primal.alpha, primal.eps_a),
        slack_b=b.slack(primal.point, primal.alpha, primal.eps_b),
        normal_a=normal_a,
        normal_b=normal_b,
    )


def without_excess(
    alpha: Float[Array, ""], a: ConvexShape, b: ConvexShape, relaxation: Float[Array, ""]
) -> Float[Array, ""]:
    """A relaxed alpha less what the relaxation usually adds: what is sure, of most shapes.

    It adds 1 relaxation for a sphere on a sphere, 2 for a face on a floor, and 4 for a vertex on
    a floor, of which 2 are sure.
    """
    return alpha - (a.usual_excess + b.usual_excess) * relaxation


class Start(NamedTuple):
    """A strictly feasible point of the collision program with duals on its central path."""

    primal: Primal
    dual_a: Float[Array, " dim_a"]
    dual_b: Float[Array, " dim_b"]
    slack_a: Float[Array, " dim_a"]
    slack_b: Float[Array, " dim_b"]
    complementarity: Float[Array, ""]


class Warm(NamedTuple):
    """Where else a program may start.

    Attributes:
        start: the `end` of a program at a nearby pose, solved at a large relaxation.
        wanted: whether to try it before the usual start.
    """

    start: Start
    wanted: Bool[Array, ""]


def central_start(a: Piece, b: Piece, near: Bool[Array, ""] | None = None) -> Start:
    """A point between the shapes, scaled until both hold it with room to spare.

    Legal for any pose, overlapping ones included. With slack s the dual is t s^-1, with t
    from the alpha row. Of a shape `near` the half-space b the point is one close to where they
    will touch.
    """
    point = _point_between(a, b)
    margin = START_MARGIN if a.shape.scaled and b.shape.scaled else START_MARGIN_GROUND
    if near is not None and not b.shape.scaled:
        point = jnp.where(near, _point_aside(a, b), point)
        margin = jnp.where(near, START_MARGIN_NEAR, margin)
    alpha_a, eps_a = _interior(a, point)
    alpha_b, eps_b = _interior(b, point)
    alpha = jnp.maximum(1 + START_GAP, margin * jnp.maximum(alpha_a, alpha_b))
    primal = Primal(point, alpha, eps_a, eps_b)
    slack_a, slack_b = a.slack(point, alpha, eps_a), b.slack(point, alpha, eps_b)
    inverse_a, inverse_b = a.shape.cone.inverse(slack_a), b.shape.cone.inverse(slack_b)
    t = 1 / (dot(a.map.to_alpha, inverse_a) + dot(b.map.to_alpha, inverse_b))
    return Start(primal, t * inverse_a, t * inverse_b, slack_a, slack_b, t)


def sure_overlap(a: Piece, b: Piece) -> Float[Array, ""]:
    """About how deep two shapes overlap at least, as one point between them tells [m]; 0 where it
    does not lie in both of them."""
    size = a.map.growth * a.length
    if b.shape.scaled:
        point = _point_between(a, b)
        alpha = jnp.maximum(_interior(a, point)[0], _interior(b, point)[0])
        size += b.map.growth * b.length
    else:
        normal, height = height_above(a, b)
        alpha, _ = _interior(a, a.reference - jnp.maximum(height, 0) * normal)
    return jnp.maximum(0, 1 - alpha) * size


def _interior(piece: Piece, point: Float[Array, "3"]) -> tuple[Array, Array]:
    """The alpha at which the piece holds the point, and auxiliaries of its interior."""
    gauge, eps = piece.shape.interior(piece.local(point))
    return 1 + (gauge - 1) / piece.map.growth, eps / piece.length


def _point_between(a: Piece, b: Piece) -> Float[Array, "3"]:
    if not b.shape.scaled:
        return _point_below(a, b)
    if not a.shape.scaled:
        return _point_below(b, a)
    gauge_a, _ = a.shape.interior(a.local(b.reference))
    gauge_b, _ = b.shape.interior(b.local(a.reference))
    # The point of the segment that both hold at the same alpha; any if the centres coincide.
    total = gauge_a / a.map.growth + gauge_b / b.map.growth
    part = 1 / a.map.growth + (gauge_b - 1) / b.map.growth
    share = jnp.where(total > 0, part / jnp.where(total > 0, total, 1), 0.5)
    return a.reference + jnp.clip(share, 0, 1) * (b.reference - a.reference)


def _point_below(a: Piece, ground: Piece) -> Float[Array, "3"]:
    normal, height = height_above(a, ground)
    depth = START_DEPTH * jnp.maximum(a.length, height / START_HIGH)
    return a.reference - normal * (jnp.maximum(height, 0) + depth)


def _point_aside(a: Piece, ground: Piece) -> Float[Array, "3"]:
    """A point below the ground between the one straight below a piece and that below its lowest
    point, closer to the latter the less the piece has to be scaled to hold that.

    Only flat and slender shapes that are tilted make much of a difference: what is straight below
    is then far outside of them, and close to faces that will not touch.
    """
    normal, height = height_above(a, ground)
    arm = a.furthest(-normal)
    reach = -dot(normal, arm)
    down = jnp.maximum(height, 0) + START_DEPTH * reach
    straight, least = _interior(a, a.reference - down * normal)[0], down / reach
    share = 1 - jnp.minimum(1, least / straight)
    return a.reference - (1 - share) * down * normal + share * least * arm
