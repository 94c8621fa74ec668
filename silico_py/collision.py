"""Collision of two convex shapes at given poses, and its derivatives.

Source: single-level contact simulation, eq. 14 and 15; DCOL.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from silico_py.collision_program import (
    Piece,
    Primal,
    SlackMap,
    Start,
    Warm,
    central_start,
    conditions,
    gap_across,
    pair_length,
)
from silico_py.compilation import jitted
from silico_py.primitives import ConvexShape
from silico_py.primitives._checks import Orientation
from silico_py.primitives._rotation import orientation_matrix
from silico_py.solver import (
    CellGroup,
    CellResidual,
    CellVariables,
    Options,
    Problem,
    ProductCone,
    Solution,
    Status,
    Variables,
    fused_if_small,
    implicit,
    kkt,
    solve,
)
from silico_py.solver.dense import safe_unit
from silico_py.solver.outlining import outlined
from silico_py.validation import count, number, quaternions, vector

ROUNDINGS = 20  # of the alpha of the start, least relaxation: that of shapes far apart is large
ITERATIONS = 50  # Newton steps, at most
DEFAULT_RELAXATION = {"float32": 1e-5, "float64": 1e-11}
POLISH = 3  # Newton steps, at most, from the tolerance to rounding
# A warm start is a point well inside: from the solution at 1e-2 the program of a pose 0.01 s
# later takes 4 steps instead of 6, from that at 1e-4 often more than 20.
WARM_RELAXATION = 1e-2
WARM_ITERATIONS = 10  # before the cold start takes over


class Optimum(NamedTuple):
    """Solution of a collision program, dimensionless but for the point."""

    alpha: Float[Array, ""]
    point: Float[Array, "3"]  # world [m]
    normal: Float[Array, "3"]  # N = d alpha / d x_a in units of 1 / length
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    end: Start  # the solution, from which a program at a nearby pose may start


class Located(NamedTuple):
    """Unknowns of a collision program, found without derivatives."""

    origin: Float[Array, "3"]  # of the point unknown, world [m]
    variables: Variables
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    least: Float[Array, ""]  # relaxation that the precision carries at so large an alpha


def solve_collision(
    a: Piece, b: Piece, length: Float[Array, ""], relaxation: float | Array, max_iterations: int
) -> Optimum:
    """Solve the program of two placed pieces; differentiable to any order."""
    rho = jnp.asarray(relaxation, a.center.dtype)
    return optimum(a, b, length, rho, locate(a, b, length, rho, max_iterations))


def locate(
    a: Piece,
    b: Piece,
    length: Float[Array, ""],
    relaxation: Float[Array, ""],
    max_iterations: int,
    warm: Warm | None = None,
) -> Located:
    """Find the unknowns of a program; `warm` is where else to start."""
    if warm is None:  # as if there were one, so that a program is traced once
        warm, relaxation = Warm(central_start(a, b), length < 0), relaxation + 0 * length
    search = outlined(_search, max_iterations)
    return search(*jax.lax.stop_gradient((a, b, length, relaxation, warm)))


def optimum(
    a: Piece, b: Piece, length: Float[Array, ""], relaxation: Float[Array, ""], located: Located
) -> Optimum:
    """What the unknowns say, with derivatives."""
    origin, variables = located.origin, located.variables
    relaxation = jnp.maximum(relaxation, located.least)
    problem = _program(a, b, length, origin)
    w = implicit(problem, variables, relaxation)
    end = _end(w, a, origin, length, relaxation)
    rows = conditions(a, b, length, end.primal, end.dual_a, end.dual_b)
    return Optimum(
        alpha=end.primal.alpha,
        point=end.primal.point,
        normal=rows.normal_a,
        converged=located.converged,
        iterations=located.iterations,
        end=jax.lax.stop_gradient(end),
    )


def _search(
    max_iterations: int, a: Piece, b: Piece, length: Array, rho: Array, warm: Warm
) -> Located:
    cold = central_start(a, b)
    origin = cold.primal.point
    variables = [_variables(start, origin, length) for start in (warm.start, cold)]
    first = jnp.where(warm.wanted, 0, 1)
    problem = _program(a, b, length, origin)

    least = ROUNDINGS * jnp.finfo(rho.dtype).eps * cold.primal.alpha

    def follow(problem: Problem, rho: Array, variables: list[Variables], first: Array) -> Solution:
        return _follow(problem, rho, variables, first, max_iterations)

    follows = fused_if_small(follow, problem, kkt.size(variables[0]))
    found = follows(jnp.maximum(rho, least), variables, first)
    return Located(origin, found.variables, found.converged, found.iterations, least)


def _follow(
    problem: Problem, rho: Array, starts: list[Variables], first: Array, max_iterations: int
) -> Solution:
    """The solution that the first good start leads to: all but the last are given up after
    `WARM_ITERATIONS`."""
    limits = jnp.array([WARM_ITERATIONS] * (len(starts) - 1) + [max_iterations])
    table = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)

    @jax.jit  # traced once
    def attempt(k: Array) -> Solution:
        start = jax.tree.map(lambda v: v[k], table)
        return solve(problem, start, Options(rho, rho / 10, limits[k], POLISH))

    def unfinished(carry: tuple[Array, Solution]) -> Bool[Array, ""]:
        k, found = carry
        return (k < len(starts)) & ~found.converged

    def following(carry: tuple[Array, Solution]) -> tuple[Array, Solution]:
        k, last = carry
        found = attempt(k)
        return k + 1, found._replace(iterations=last.iterations + found.iterations)

    shapes = jax.eval_shape(attempt, first)
    nothing = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
    unsolved = nothing._replace(status=jnp.full_like(nothing.status, Status.MAX_ITERATIONS))
    return jax.lax.while_loop(unfinished, following, (first, unsolved))[1]


class Collision(NamedTuple):
    """Result of `collide`.

    Attributes:
        alpha: smallest scaling of both shapes at which they share a point: below 1 they
            overlap, above 1 they are apart.
        point: the shared point, world [m].
        normal: unit vector from b to a; zero where no direction parts them more than another, as of
            concentric balls.
        converged: whether the program was solved to its tolerance.
        gap: distance of the two planes across `normal` that touch the shapes from between them [m],
            negative where they overlap. The signed distance is at least that: as much for balls and
            half-spaces, and to first order for shapes that touch.
    """

    alpha: Float[Array, ""]
    point: Float[Array, "3"]
    normal: Float[Array, "3"]
    converged: Bool[Array, ""]
    gap: Float[Array, ""]


class _Placed(NamedTuple):
    shape: ConvexShape
    position: Float[Array, "3"]
    orientation: Float[Array, "4"]


def collide(
    shape_a: ConvexShape,
    pose_a: tuple[ArrayLike, Orientation],
    shape_b: ConvexShape,
    pose_b: tuple[ArrayLike, Orientation],
    relaxation: float | Array | None = None,
    max_iterations: int = ITERATIONS,
) -> Collision:
    """Solve the collision program of two convex shapes at given poses.

    Args:
        shape_a, shape_b: convex primitives; at most one half-space.
        pose_a, pose_b: (position (3,) [m], orientation (4,) unit quaternion wxyz or `Rotation`).
        relaxation: rho; alpha lies above the exact one by rho for each active cone row. 1e-11 in
            double precision unless given, 1e-5 in single; of shapes far apart that is raised to
            what rounding leaves of their alpha, about 1e-14 or 1e-5 of it.
        max_iterations: Newton steps.

    Returns:
        A `Collision`.

    Raises:
        ValueError: for malformed poses, what is no convex primitive, two half-spaces, or options
            that are not positive.
    """
    for name, shape in (("shape_a", shape_a), ("shape_b", shape_b)):
        if not isinstance(shape, ConvexShape):
            kind = type(shape).__name__
            raise ValueError(f"{name}: expected a convex primitive, got {kind}")
    if not (shape_a.scaled or shape_b.scaled):
        raise ValueError("shape_b: two half-spaces have no collision program")
    a, b = _place("pose_a", shape_a, pose_a), _place("pose_b", shape_b, pose_b)
    if relaxation is None:
        relaxation = DEFAULT_RELAXATION[jnp.result_type(a.position, b.position).name]
    count("max_iterations", max_iterations)
    return _collide(a, b, number("relaxation", relaxation, positive=True), max_iterations)


@partial(jitted, static_argnames="max_iterations")
def _collide(
    placed_a: _Placed, placed_b: _Placed, relaxation: Array, max_iterations: int
) -> Collision:
    a, b = _piece(placed_a), _piece(placed_b)
    length = pair_length(a.shape, b.shape)
    # As seen from the smaller shape: what is far away is rounded by as much.
    base = _middle(a, b)
    a, b = (piece._replace(center=piece.center - base) for piece in (a, b))
    found = solve_collision(a, b, length, relaxation, max_iterations)
    normal = safe_unit(found.normal)
    gap = gap_across(a, b, normal)
    return Collision(found.alpha, base + found.point, normal, found.converged, gap)


def _middle(a: Piece, b: Piece) -> Float[Array, "3"]:
    """Centre of the shape whose length is that of the pair."""
    if not (a.shape.scaled and b.shape.scaled):
        return a.reference if a.shape.scaled else b.reference
    return jnp.where(a.length < b.length, a.reference, b.reference)


def _place(name: str, shape: ConvexShape, pose: tuple[ArrayLike, Orientation]) -> _Placed:
    if not (isinstance(pose, (tuple, list)) and len(pose) == 2):
        raise ValueError(f"{name}: expected (position, orientation), got {pose!r}")
    position = vector(f"{name} position", pose[0], 3)
    return _Placed(shape, position, quaternions(f"{name} orientation", pose[1]))


def _piece(placed: _Placed) -> Piece:
    shape, position, orientation = placed
    turn = orientation_matrix(orientation)
    return Piece(shape, SlackMap.of(shape), position, turn)


def _unpack(
    x: Float[Array, " nx"], shape_a: ConvexShape, origin: Float[Array, "3"], length: Array
) -> Primal:
    cut = 4 + shape_a.n_aux
    return Primal(origin + length * x[:3], x[3], x[4:cut], x[cut:])


def _end(w: Variables, a: Piece, origin: Array, length: Array, rho: Array) -> Start:
    """The single cell of a solution, with names."""
    cell = jax.tree.map(lambda v: v[0], w.cells[0])
    cut = [a.shape.cone.dim]
    dual_a, dual_b = jnp.split(cell.dual, cut)
    slack_a, slack_b = jnp.split(cell.slack, cut)
    primal = _unpack(cell.x, a.shape, origin, length)
    return Start(primal, dual_a, dual_b, slack_a, slack_b, rho)


def _variables(start: Start, origin: Float[Array, "3"], length: Array) -> Variables:
    """A start as the single cell; its single node is idle."""
    primal = start.primal
    point = (primal.point - origin) / length
    x = jnp.concatenate([point, primal.alpha[None], primal.eps_a, primal.eps_b])
    dual = jnp.concatenate([start.dual_a, start.dual_b])
    slack = jnp.concatenate([start.slack_a, start.slack_b])
    node = jnp.zeros((1, 1), x.dtype)
    return Variables.of(node, [CellVariables(x[None], dual[None], slack[None])])


def _program(a: Piece, b: Piece, length: Float[Array, ""], origin: Float[Array, "3"]) -> Problem:
    """The collision program as one cell; its single node is idle."""
    cone: ProductCone = a.shape.cone + b.shape.cone
    data = jax.tree.map(lambda v: v[None], (a, b, length, origin))
    group = CellGroup(cone, np.zeros((1, 1), int), _rows, data, split=cone.dim)
    zero = jnp.zeros(1, origin.dtype)
    scale = jnp.ones_like(zero)[None]
    return Problem(lambda y, _: y, zero, (group,), scale, monotone=True)


def _rows(y: Array, x: Array, z: Array, data: tuple) -> CellResidual:
    a, b, length, origin = data
    dual_a, dual_b = jnp.split(z, [a.shape.cone.dim])
    rows = conditions(a, b, length, _unpack(x, a.shape, origin, length), dual_a, dual_b)
    local = jnp.concatenate([rows.point, rows.scale[None], rows.auxiliary])
    return CellResidual(jnp.zeros_like(y), local, jnp.concatenate([rows.slack_a, rows.slack_b]))
