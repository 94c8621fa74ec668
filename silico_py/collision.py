"""Collision of two convex pieces as a conic program: minimise alpha, p in both scaled sets.

The optimality conditions here are the collision rows of every contact; `collide` solves
them alone. Everything is dimensionless: slacks are divided by the length of their shape,
points and auxiliaries are measured in the length of the pair.

Source: single-level contact simulation, eq. 14 and appendix A; DCOL.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from silico_py import rotation
from silico_py.primitives import ConvexShape
from silico_py.solver import (
    CellGroup,
    CellResidual,
    CellVariables,
    Options,
    Problem,
    ProductCone,
    Variables,
    implicit,
    solve,
)
from silico_py.solver.dense import matmul
from silico_py.validation import quaternions, vector

START_ALPHA = 1.1  # smallest scaling of the start
START_MARGIN = 1.5  # of the start's scaling over the larger gauge
POLISH = 3  # Newton steps, at most, from the tolerance to rounding
START_DEPTH = 0.3  # of the start point below a half-space, in lengths of the other shape


class SlackMap(NamedTuple):
    """The affine slack f = constant + to_x x + to_alpha alpha + to_eps eps of one shape."""

    constant: Float[Array, " dim"]
    to_x: Float[Array, "dim 3"]
    to_alpha: Float[Array, " dim"]
    to_eps: Float[Array, "dim n_aux"]

    @classmethod
    def of(cls, shape: ConvexShape) -> SlackMap:
        """Read off the slack of `shape`, divided by its length; x and eps in that length."""
        length = shape.characteristic_length
        zero = jnp.zeros((), length.dtype)
        point, eps = jnp.zeros(3, length.dtype), jnp.zeros(shape.n_aux, length.dtype)
        to_x, to_alpha, to_eps = jax.jacfwd(shape.slack, argnums=(0, 1, 2))(point, zero, eps)
        return cls(shape.slack(point, zero, eps) / length, to_x, to_alpha / length, to_eps)

    def slack(
        self, x: Float[Array, "3"], alpha: Float[Array, ""], eps: Float[Array, " n_aux"]
    ) -> Float[Array, " dim"]:
        """f at a local point x (in lengths of the shape)."""
        return (
            self.constant + matmul(self.to_x, x) + self.to_alpha * alpha + matmul(self.to_eps, eps)
        )


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


def conditions(
    a: Piece,
    b: Piece,
    length: Float[Array, ""],
    primal: Primal,
    dual_a: Float[Array, " dim_a"],
    dual_b: Float[Array, " dim_b"],
) -> CollisionRows:
    """Rows of the collision program at a world point `primal.point` [m]."""
    normal_a = length / a.length * matmul(a.rotation, matmul(a.map.to_x.T, dual_a))
    normal_b = -length / b.length * matmul(b.rotation, matmul(b.map.to_x.T, dual_b))
    return CollisionRows(
        point=normal_a - normal_b,
        scale=jnp.sum(a.map.to_alpha * dual_a) + jnp.sum(b.map.to_alpha * dual_b) - 1,
        auxiliary=jnp.concatenate([matmul(a.map.to_eps.T, dual_a), matmul(b.map.to_eps.T, dual_b)]),
        slack_a=a.slack(primal.point, primal.alpha, primal.eps_a),
        slack_b=b.slack(primal.point, primal.alpha, primal.eps_b),
        normal_a=normal_a,
        normal_b=normal_b,
    )


class Start(NamedTuple):
    """A strictly feasible point of the collision program with duals on its central path."""

    primal: Primal
    dual_a: Float[Array, " dim_a"]
    dual_b: Float[Array, " dim_b"]
    slack_a: Float[Array, " dim_a"]
    slack_b: Float[Array, " dim_b"]
    complementarity: Float[Array, ""]


def central_start(a: Piece, b: Piece) -> Start:
    """A point between the shapes, scaled until both hold it with room to spare.

    Legal for any pose, overlapping ones included. With slack s the dual is t s^-1, with t
    from the alpha row.
    """
    point = _point_between(a, b)
    gauge_a, eps_a = _interior(a, point)
    gauge_b, eps_b = _interior(b, point)
    alpha = jnp.maximum(START_ALPHA, START_MARGIN * jnp.maximum(gauge_a, gauge_b))
    primal = Primal(point, alpha, eps_a, eps_b)
    slack_a, slack_b = a.slack(point, alpha, eps_a), b.slack(point, alpha, eps_b)
    inverse_a, inverse_b = a.shape.cone.inverse(slack_a), b.shape.cone.inverse(slack_b)
    t = 1 / (jnp.sum(a.map.to_alpha * inverse_a) + jnp.sum(b.map.to_alpha * inverse_b))
    return Start(primal, t * inverse_a, t * inverse_b, slack_a, slack_b, t)


def _interior(piece: Piece, point: Float[Array, "3"]) -> tuple[Array, Array]:
    gauge, eps = piece.shape.interior(piece.local(point))
    return gauge, eps / piece.length


def _point_between(a: Piece, b: Piece) -> Float[Array, "3"]:
    if not b.shape.scaled:
        return _point_below(a, b)
    if not a.shape.scaled:
        return _point_below(b, a)
    gauge_a, _ = a.shape.interior(a.local(b.reference))
    gauge_b, _ = b.shape.interior(b.local(a.reference))
    # The point of the segment where both gauges agree; any point if the centres coincide.
    total = gauge_a + gauge_b
    share = jnp.where(total > 0, gauge_b / jnp.where(total > 0, total, 1), 0.5)
    return a.reference + share * (b.reference - a.reference)


def _point_below(a: Piece, ground: Piece) -> Float[Array, "3"]:
    normal = matmul(ground.rotation, ground.shape.normal)
    height = jnp.sum(normal * (a.reference - ground.center)) - ground.shape.offset
    return a.reference - normal * (jnp.maximum(height, 0) + START_DEPTH * a.length)


class Optimum(NamedTuple):
    """Solution of a collision program, dimensionless but for the point.

    `alpha` and `value` are the same number. The derivatives of `alpha` are implicit, those of
    `value` are of the Lagrangian at fixed unknowns (eq. 15 of the single-level paper): they
    need no linear solve and agree up to the relaxation.
    """

    alpha: Float[Array, ""]
    value: Float[Array, ""]
    point: Float[Array, "3"]  # world [m]
    normal: Float[Array, "3"]  # N = d alpha / d x_a in units of 1 / length
    converged: Bool[Array, ""]


def solve_collision(
    a: Piece, b: Piece, length: Float[Array, ""], relaxation: float, max_iterations: int
) -> Optimum:
    """Solve the program of two placed pieces; differentiable to any order."""
    start = jax.lax.stop_gradient(central_start(a, b))
    problem, variables = _program(a, b, length, start)
    rho = jnp.asarray(relaxation, variables.y.dtype)
    frozen = problem.with_data(jax.lax.stop_gradient(problem.data))
    solution = solve(frozen, variables, Options(rho, rho / 10, max_iterations, POLISH))
    w = implicit(problem, solution.variables, rho)
    primal, dual_a, dual_b = _unpacked(w, a, start.primal.point, length)
    rows = conditions(a, b, length, primal, dual_a, dual_b)
    value = _optimal_value(problem, solution.variables, rho)
    return Optimum(primal.alpha, value, primal.point, rows.normal_a, solution.converged)


def _optimal_value(problem: Problem, w: Variables, rho: Float[Array, ""]) -> Float[Array, ""]:
    """alpha, whose derivative by the poses and shapes is that of alpha - lam.f at fixed w."""

    @jax.custom_jvp
    def alpha(data: tuple, w: Variables) -> Array:
        return w.cells[0].x[0, 3]

    @alpha.defjvp
    def alpha_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        data, w = primals
        # Implicit only for the second derivative; the first needs no more than the value of w.
        w = implicit(problem.with_data(data), w, rho)

        def lagrangian(data: tuple) -> Array:
            (group,) = problem.with_data(data).groups
            return -jnp.sum(w.cells[0].dual * group.residual(w.y, w.cells[0]).slack)

        return alpha(data, w), jax.jvp(lagrangian, (data,), (tangents[0],))[1]

    return alpha(problem.data, jax.lax.stop_gradient(w))


class Collision(NamedTuple):
    """Result of `collide`.

    Attributes:
        alpha: smallest scaling of both shapes at which they share a point: below 1 they
            overlap, above 1 they are apart.
        point: the shared point, world [m].
        normal: unit vector from b to a.
        converged: whether the program was solved to its tolerance.
    """

    alpha: Float[Array, ""]
    point: Float[Array, "3"]
    normal: Float[Array, "3"]
    converged: Bool[Array, ""]


def collide(
    shape_a: ConvexShape,
    pose_a: tuple[Any, Any],
    shape_b: ConvexShape,
    pose_b: tuple[Any, Any],
    relaxation: float = 1e-11,
    max_iterations: int = 50,
) -> Collision:
    """Solve the collision program of two convex shapes at given poses.

    Args:
        shape_a, shape_b: convex primitives; at most one half-space.
        pose_a, pose_b: (position (3,) [m], orientation (4,) unit quaternion wxyz).
        relaxation: rho; alpha lies above the exact one by rho for each active cone row.
        max_iterations: Newton steps.

    Raises:
        ValueError: for malformed poses, or two half-spaces.
    """
    if not (shape_a.scaled or shape_b.scaled):
        raise ValueError("shape_b: two half-spaces have no collision program")
    a, b = _place("pose_a", shape_a, pose_a), _place("pose_b", shape_b, pose_b)
    return _collide(a, b, relaxation, max_iterations)


@partial(jax.jit, static_argnames="max_iterations")
def _collide(a: Piece, b: Piece, relaxation: float, max_iterations: int) -> Collision:
    length = pair_length(a.shape, b.shape)
    found = solve_collision(a, b, length, relaxation, max_iterations)
    normal = found.normal / jnp.linalg.norm(found.normal)
    return Collision(found.value, found.point, normal, found.converged)


def _place(name: str, shape: ConvexShape, pose: tuple[Any, Any]) -> Piece:
    position = vector(f"{name} position", pose[0], 3)
    orientation = quaternions(f"{name} orientation", pose[1])
    return Piece(shape, SlackMap.of(shape), position, rotation.matrix(orientation))


def _unpack(
    x: Float[Array, " nx"], shape_a: ConvexShape, origin: Float[Array, "3"], length: Array
) -> Primal:
    cut = 4 + shape_a.n_aux
    return Primal(origin + length * x[:3], x[3], x[4:cut], x[cut:])


def _unpacked(w: Variables, a: Piece, origin: Array, length: Array) -> tuple[Primal, Array, Array]:
    """Primal and duals of the single cell."""
    cell = jax.tree.map(lambda v: v[0], w.cells[0])
    dual_a, dual_b = jnp.split(cell.dual, [a.shape.cone.dim])
    return _unpack(cell.x, a.shape, origin, length), dual_a, dual_b


def _program(
    a: Piece, b: Piece, length: Float[Array, ""], start: Start
) -> tuple[Problem, Variables]:
    """The collision program as one cell; its single node is idle."""
    cone: ProductCone = a.shape.cone + b.shape.cone

    def cell(y: Array, x: Array, z: Array, data: tuple) -> CellResidual:
        a, b, length, origin = data
        dual_a, dual_b = jnp.split(z, [a.shape.cone.dim])
        rows = conditions(a, b, length, _unpack(x, a.shape, origin, length), dual_a, dual_b)
        local = jnp.concatenate([rows.point, rows.scale[None], rows.auxiliary])
        return CellResidual(jnp.zeros_like(y), local, jnp.concatenate([rows.slack_a, rows.slack_b]))

    primal = start.primal
    x = jnp.concatenate(
        [jnp.zeros_like(primal.point), primal.alpha[None], primal.eps_a, primal.eps_b]
    )
    data = jax.tree.map(lambda v: v[None], (a, b, length, primal.point))
    # Not fusible: the bilevel method puts this program into many others.
    group = CellGroup(cone, np.zeros((1, 1), int), cell, data, split=cone.dim, fusible=False)
    one = jnp.ones((1, 1), x.dtype)
    problem = Problem(lambda y, _: y, jnp.zeros(1, x.dtype), (group,), node_scale=one)
    dual = jnp.concatenate([start.dual_a, start.dual_b])
    slack = jnp.concatenate([start.slack_a, start.slack_b])
    return problem, Variables(0 * one, (CellVariables(x[None], dual[None], slack[None]),))
