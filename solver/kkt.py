"""The Newton system: slacks and duals leave cone by cone, what is left is solved densely.

Eliminating the dual of a row pivots on s / z, which vanishes for active rows: at tight
relaxations the condensed system then loses every digit (measured: direction errors of 5 %
at 1e-10) although the full system is well conditioned. Pivoting on s / z + delta bounds the
rounding by eps / delta; a step of iterative refinement against the exact system takes the
delta out again, which slacks of size delta need. Local primals stay in the dense system:
eliminating them cell by cell would pivot on the curvature of the collision program, which
vanishes where faces touch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silico_py.solver.cones import Scaling
from silico_py.solver.problem import (
    CellGroup,
    CellJacobian,
    CellVariables,
    Problem,
    Residual,
    Variables,
)

PASSES = 3  # through the regularised factorisation: one solve, two refinements
PROXIMAL = 3.0  # growth of the node Jacobian at full easing: shorter moves of the nodes


class CellRightHandSide(NamedTuple):
    """Right-hand sides of one cell, one column each.

    `product` is c in L(z) ds + L(s) dz = c, with ds = f_y dy + f_x dx + f_z dz.
    """

    local: Float[Array, "nx columns"]
    product: Float[Array, "dim columns"]


class RightHandSide(NamedTuple):
    """Right-hand sides of all rows."""

    nodes: Float[Array, "nodes ny columns"]
    cells: tuple[CellRightHandSide, ...]


class CondensedCell(NamedTuple):
    """One cell without its duals and slacks; v = (dy, dx)."""

    to_v: Float[Array, "v v"]  # exact derivative of (node forces, local rows)
    to_dual: Float[Array, "v dim"]
    slack_to_v: Float[Array, "dim v"]
    slack_to_dual: Float[Array, "dim dim"]
    cone_maps: tuple[tuple[Array, Array], ...]
    dual_map: Float[Array, "dim v"]  # dz = dual_offset - dual_map v, regularised
    slack: Float[Array, " dim"]
    dual: Float[Array, " dim"]


class Factor(NamedTuple):
    """The factorised Newton matrix at one point."""

    node_jacobian: Float[Array, "nodes ny ny"]
    cells: tuple[CondensedCell, ...]
    lu: Float[Array, "rows rows"]
    permutation: Int[Array, " rows"]


def factorize(problem: Problem, w: Variables, easing: Float[Array, ""]) -> Factor:
    """Differentiate at `w`, eliminate slacks and duals, factorise the rest."""
    n, ny = w.y.shape
    places = _places(problem, w)
    size = n * ny + sum(cell.x.size for cell in w.cells)
    nodes = jnp.arange(n * ny).reshape(n, ny)
    node_jacobian = jax.vmap(jax.jacfwd(problem.node_residual))(w.y, problem.node_data)
    node_jacobian = (1 + PROXIMAL * easing) * node_jacobian
    matrix = jnp.zeros((size, size), w.y.dtype)
    matrix = matrix.at[nodes[:, :, None], nodes[:, None, :]].set(node_jacobian)
    cells = []
    for group, cell, place in zip(problem.groups, w.cells, places, strict=True):
        jacobian = group.derivative(w.y, cell, easing)
        part = jax.vmap(lambda j, c, group=group: _condense(group, j, c))(jacobian, cell)
        reduced = part.to_v - part.to_dual @ part.dual_map
        matrix = matrix.at[place[:, :, None], place[:, None, :]].add(reduced)
        cells.append(part)
    lu, _, permutation = jax.lax.linalg.lu(matrix)
    return Factor(node_jacobian, tuple(cells), lu, permutation)


def newton_directions(
    problem: Problem, w: Variables, rows: Residual, easing: Float[Array, ""]
) -> tuple[Variables, Variables]:
    """The affine direction (target 0) and the direction of a unit of centring target.

    The Newton step towards s o z = t e is `affine + t * centring`.
    """
    rhs = _right_hand_sides(problem, w, rows)
    both = solve(problem, factorize(problem, w, easing), w, rhs)
    affine, centring = (jax.tree.map(lambda d, k=k: d[..., k], both) for k in (0, 1))
    return add_slack_rows(affine, rows), centring


def solve(problem: Problem, factor: Factor, w: Variables, rhs: RightHandSide) -> Variables:
    """Directions for each column of the right-hand sides; ds holds the linearised slack only."""
    places = _places(problem, w)
    direction = _solve_regularized(problem, factor, places, rhs)
    for _ in range(PASSES - 1):
        defect = jax.tree.map(jnp.subtract, rhs, apply(problem, factor, direction))
        correction = _solve_regularized(problem, factor, places, defect)
        direction = jax.tree.map(jnp.add, direction, correction)
    return direction


def apply(problem: Problem, factor: Factor, direction: Variables) -> RightHandSide:
    """The exact Newton matrix times `direction`, whose slacks follow from the rest."""
    ny, columns = direction.y.shape[1:]
    nodes = factor.node_jacobian @ direction.y
    cells = []
    for group, f, d in zip(problem.groups, factor.cells, direction.cells, strict=True):
        m, arity = group.nodes.shape
        v = _cell_directions(group, direction.y, d.x)
        forces = f.to_v @ v + f.to_dual @ d.dual
        nodes = nodes.at[group.nodes].add(forces[:, : arity * ny].reshape(m, arity, ny, columns))
        cells.append(CellRightHandSide(forces[:, arity * ny :], _linear_product(group, f, d)))
    return RightHandSide(nodes, tuple(cells))


def with_slacks(problem: Problem, factor: Factor, direction: Variables) -> Variables:
    """`direction` with the slack changes that its other parts cause."""
    cells = []
    for group, f, d in zip(problem.groups, factor.cells, direction.cells, strict=True):
        v = _cell_directions(group, direction.y, d.x)
        cells.append(d._replace(slack=f.slack_to_v @ v + f.slack_to_dual @ d.dual))
    return direction._replace(cells=tuple(cells))


def add_slack_rows(direction: Variables, rows: Residual) -> Variables:
    """`direction` for linearised slacks, with what the slack rows themselves ask for."""
    cells = [
        cell._replace(slack=cell.slack + row.slack)
        for cell, row in zip(direction.cells, rows.cells, strict=True)
    ]
    return direction._replace(cells=tuple(cells))


def _cell_directions(
    group: CellGroup, y: Float[Array, "nodes ny columns"], x: Float[Array, "cells nx columns"]
) -> Float[Array, "cells v columns"]:
    """v = (dy, dx) as each cell sees it."""
    own = y[group.nodes]
    return jnp.concatenate([own.reshape(len(own), -1, y.shape[-1]), x], axis=1)


def _right_hand_sides(problem: Problem, w: Variables, rows: Residual) -> RightHandSide:
    """Column 0: the affine direction. Column 1: a unit of centring target."""
    cells = []
    for group, cell, row in zip(problem.groups, w.cells, rows.cells, strict=True):
        product = -group.cone.product(cell.dual, cell.slack + row.slack)
        target = jnp.broadcast_to(group.cone.identity(product.dtype), product.shape)
        cells.append(CellRightHandSide(_columns(-row.local), jnp.stack([product, target], axis=-1)))
    return RightHandSide(_columns(-rows.nodes), tuple(cells))


def _columns(affine: Array) -> Array:
    return jnp.stack([affine, jnp.zeros_like(affine)], axis=-1)


def _places(problem: Problem, w: Variables) -> list[Int[Array, "cells v"]]:
    """Where each cell's (dy, dx) stand in the dense system."""
    n, ny = w.y.shape
    nodes = jnp.arange(n * ny).reshape(n, ny)
    start, places = n * ny, []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        m, nx = cell.x.shape
        local = start + jnp.arange(m * nx).reshape(m, nx)
        places.append(jnp.concatenate([nodes[group.nodes].reshape(m, -1), local], axis=-1))
        start += m * nx
    return places


def _condense(group: CellGroup, jacobian: CellJacobian, cell: CellVariables) -> CondensedCell:
    (g_y, g_x, g_z), (h_y, h_x, h_z), (f_y, f_x, f_z) = jacobian
    k = group.split
    scaling = group.cone.scaling(cell.slack, cell.dual, _regularization(cell.dual.dtype))
    slack_to_v = jnp.concatenate([f_y, f_x], axis=-1)
    dual_map = scaling.apply(slack_to_v)
    if k < group.cone.dim:
        induced = f_z[k:, :k] @ dual_map[:k]
        dual_map = scaling.apply(slack_to_v.at[k:].add(-induced))
    return CondensedCell(
        to_v=jnp.block([[g_y, g_x], [h_y, h_x]]),
        to_dual=jnp.concatenate([g_z, h_z]),
        slack_to_v=slack_to_v,
        slack_to_dual=f_z,
        cone_maps=scaling.maps,
        dual_map=dual_map,
        slack=cell.slack,
        dual=cell.dual,
    )


def _dual_offset(group: CellGroup, f: CondensedCell, product: Array) -> Array:
    """dz at v = 0, by forward substitution over the split."""
    k = group.split
    scaling = Scaling(group.cone, f.cone_maps)
    dual = scaling.divide(product)
    if k == group.cone.dim:
        return dual
    induced = jnp.zeros_like(dual).at[k:].set(f.slack_to_dual[k:, :k] @ dual[:k])
    return dual - scaling.apply(induced)


def _solve_regularized(
    problem: Problem, factor: Factor, places: list[Array], rhs: RightHandSide
) -> Variables:
    """One pass through the factorisation, for right-hand sides without slack rows."""
    n, ny, columns = rhs.nodes.shape
    flat = jnp.zeros((len(factor.lu), columns), rhs.nodes.dtype)
    flat = flat.at[: n * ny].set(rhs.nodes.reshape(n * ny, columns))
    offsets = []
    for group, f, r, place in zip(problem.groups, factor.cells, rhs.cells, places, strict=True):
        offset = jax.vmap(lambda f, p, group=group: _dual_offset(group, f, p))(f, r.product)
        flat = flat.at[place].add(-f.to_dual @ offset)
        flat = flat.at[place[:, place.shape[1] - r.local.shape[1] :]].add(r.local)
        offsets.append(offset)
    v = _lu_solve(factor, flat)
    cells = []
    for f, r, offset, place in zip(factor.cells, rhs.cells, offsets, places, strict=True):
        dv = v[place]
        dz = offset - f.dual_map @ dv
        ds = f.slack_to_v @ dv + f.slack_to_dual @ dz
        cells.append(CellVariables(dv[:, dv.shape[1] - r.local.shape[1] :], dz, ds))
    return Variables(v[: n * ny].reshape(n, ny, columns), tuple(cells))


def _lu_solve(factor: Factor, rhs: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
    lower = jax.lax.linalg.triangular_solve(
        factor.lu, rhs[factor.permutation], left_side=True, lower=True, unit_diagonal=True
    )
    return jax.lax.linalg.triangular_solve(factor.lu, lower, left_side=True, lower=False)


def _linear_product(group: CellGroup, f: CondensedCell, d: CellVariables) -> Array:
    """L(z) ds + L(s) dz, columns last."""

    def product(point: Array, change: Array) -> Array:
        return group.cone.product(point[:, None], change.swapaxes(1, 2)).swapaxes(1, 2)

    return product(f.dual, d.slack) + product(f.slack, d.dual)


def _regularization(dtype: jnp.dtype) -> float:
    """1.5e-8 in float64: with 1e-7, duals that no force feels (friction along the normal) lag
    for dozens of steps behind slacks of 1e-10; with 3e-9 rounding costs steps."""
    return float(jnp.finfo(dtype).eps) ** 0.5
