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

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.solver import dense
from silico_py.solver.cones import Scaling
from silico_py.solver.dense import accumulate, matmul, outlined
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
    """The Newton matrix at one point: exact blocks, and the condensed matrix factorised."""

    node_jacobian: Float[Array, "nodes ny ny"]
    cells: tuple[CondensedCell, ...]
    condensed: dense.Factor


def size(w: Variables) -> int:
    """Rows of the condensed matrix."""
    return w.y.size + sum(cell.x.size for cell in w.cells)


def factorize(problem: Problem, w: Variables, easing: Float[Array, ""]) -> Factor:
    """Differentiate at `w`, eliminate slacks and duals, factorise the rest."""
    node_jacobian = jax.vmap(jax.jacfwd(problem.node_residual))(w.y, problem.node_data)
    node_jacobian = (1 + PROXIMAL * easing) * node_jacobian
    cells, reduced = [], []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        jacobian = group.derivative(w.y, cell, easing)
        part = outlined(jax.vmap(partial(_condense, group)))(jacobian, cell)
        reduced.append(part.to_v - matmul(part.to_dual, part.dual_map))
        cells.append(part)
    matrix = _assembled(problem, node_jacobian, reduced)
    return Factor(node_jacobian, tuple(cells), dense.factorize(matrix))


def newton_directions(
    problem: Problem, factor: Factor, w: Variables, rows: Residual
) -> tuple[Variables, Variables]:
    """The affine direction (target 0) and the direction of a unit of centring target.

    The Newton step towards s o z = t e is `affine + t * centring`.
    """
    both = solve(problem, factor, _right_hand_sides(problem, w, rows))
    affine, centring = (jax.tree.map(lambda d, k=k: d[..., k], both) for k in (0, 1))
    return add_slack_rows(affine, rows), centring


def corrected(problem: Problem, factor: Factor, step: Variables) -> Variables:
    """`step` with what makes up for its own product ds o dz, which Newton's method leaves out."""
    cells = []
    for group, cell in zip(problem.groups, step.cells, strict=True):
        product = -group.cone.product(cell.slack, cell.dual)
        cells.append(CellRightHandSide(jnp.zeros_like(cell.x)[..., None], product[..., None]))
    rhs = RightHandSide(jnp.zeros_like(step.y)[..., None], tuple(cells))
    correction = solve(problem, factor, rhs)
    return jax.tree.map(lambda d, c: d + c[..., 0], step, correction)


def solve(problem: Problem, factor: Factor, rhs: RightHandSide) -> Variables:
    """Directions for each column of the right-hand sides; ds holds the linearised slack only."""

    def improve(_: Array, direction: Variables) -> Variables:
        defect = jax.tree.map(jnp.subtract, rhs, apply(problem, factor, direction))
        correction = _solve_regularized(problem, factor, defect)
        return jax.tree.map(jnp.add, direction, correction)

    cells = (
        CellVariables(
            jnp.zeros_like(cell.local), jnp.zeros_like(cell.product), jnp.zeros_like(cell.product)
        )
        for cell in rhs.cells
    )
    start = Variables(jnp.zeros_like(rhs.nodes), tuple(cells))
    return jax.lax.fori_loop(0, PASSES, improve, start)


def apply(problem: Problem, factor: Factor, direction: Variables) -> RightHandSide:
    """The exact Newton matrix times `direction`, whose slacks follow from the rest."""
    nodes = matmul(factor.node_jacobian, direction.y)
    cells = []
    for group, f, d in zip(problem.groups, factor.cells, direction.cells, strict=True):
        v = _cell_directions(group, direction.y, d.x)
        forces, local = _split(group, nodes, matmul(f.to_v, v) + matmul(f.to_dual, d.dual))
        nodes = nodes + forces
        cells.append(CellRightHandSide(local, _linear_product(group, f, d)))
    return RightHandSide(nodes, tuple(cells))


def with_slacks(problem: Problem, factor: Factor, direction: Variables) -> Variables:
    """`direction` with the slack changes that its other parts cause."""
    cells = []
    for group, f, d in zip(problem.groups, factor.cells, direction.cells, strict=True):
        v = _cell_directions(group, direction.y, d.x)
        cells.append(d._replace(slack=_slack_direction(f, v, d.dual)))
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


def _split(
    group: CellGroup, nodes: Float[Array, "nodes ny columns"], rows: Float[Array, "cells v columns"]
) -> tuple[Array, Array]:
    """Rows of all cells: what falls on each node, and the cells' own rows."""
    ny, columns = nodes.shape[1:]
    count = group.nodes.size
    own = group.nodes.shape[1] * ny
    forces = rows[:, :own].reshape(count, ny, columns)
    return accumulate(forces, group.nodes.reshape(-1), len(nodes)), rows[:, own:]


def _assembled(
    problem: Problem, node_jacobian: Float[Array, "nodes ny ny"], reduced: list[Array]
) -> Float[Array, "rows rows"]:
    """The dense matrix: rows and columns of all nodes, then of the cells' local primals."""
    n, ny, _ = node_jacobian.shape
    blocks, targets = [node_jacobian], [np.arange(n) * (n + 1)]
    for group, matrix in zip(problem.groups, reduced, strict=True):
        m, arity = group.nodes.shape
        own = arity * ny
        parts = matrix[:, :own, :own].reshape(m, arity, ny, arity, ny).swapaxes(2, 3)
        blocks.append(parts.reshape(-1, ny, ny))
        pairs = group.nodes[:, :, None] * n + group.nodes[:, None, :]
        targets.append(pairs.reshape(-1))
    nodes = accumulate(jnp.concatenate(blocks), np.concatenate(targets), n * n)
    values = [jnp.zeros(1, nodes.dtype), nodes.reshape(-1), *(m.reshape(-1) for m in reduced)]
    return jnp.concatenate(values)[_entries(problem, n, ny, [m.shape[1] for m in reduced])]


def _entries(problem: Problem, n: int, ny: int, widths: list[int]) -> np.ndarray:
    """Where each entry of the dense matrix stands among the values of `_assembled`; 0 is zero."""
    sizes = [
        len(g.nodes) * (v - g.nodes.shape[1] * ny)
        for g, v in zip(problem.groups, widths, strict=True)
    ]
    total = n * ny
    table = np.zeros((total + sum(sizes),) * 2, np.int32)
    grid = 1 + np.arange(n * n * ny * ny).reshape(n, n, ny, ny)
    table[:total, :total] = grid.transpose(0, 2, 1, 3).reshape(total, total)
    used = 1 + n * n * ny * ny
    for group, v, size in zip(problem.groups, widths, sizes, strict=True):
        m, own = len(group.nodes), group.nodes.shape[1] * ny
        at_nodes = (group.nodes[:, :, None] * ny + np.arange(ny)).reshape(m, own)
        at_local = total + np.arange(size).reshape(m, v - own)
        place = np.concatenate([at_nodes, at_local], axis=1)
        entries = used + np.arange(m * v * v).reshape(m, v, v)
        rows, columns = place[:, :, None], place[:, None, :]
        table[rows[:, own:], columns] = entries[:, own:]
        table[rows[:, :own], columns[:, :, own:]] = entries[:, :own, own:]
        total, used = total + size, used + m * v * v
    return table


def _condense(group: CellGroup, jacobian: CellJacobian, cell: CellVariables) -> CondensedCell:
    (g_y, g_x, g_z), (h_y, h_x, h_z), (f_y, f_x, f_z) = jacobian
    k = group.split
    scaling = group.cone.scaling(cell.slack, cell.dual, _regularization(cell.dual.dtype))
    slack_to_v = jnp.concatenate([f_y, f_x], axis=-1)
    dual_map = scaling.apply(slack_to_v)
    if k < group.cone.dim:
        induced = matmul(f_z[k:, :k], dual_map[:k])
        dual_map = scaling.apply(jnp.concatenate([slack_to_v[:k], slack_to_v[k:] - induced]))
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
    induced = matmul(f.slack_to_dual[k:, :k], dual[:k])
    return dual - scaling.apply(jnp.concatenate([jnp.zeros_like(dual[:k]), induced]))


def _solve_regularized(problem: Problem, factor: Factor, rhs: RightHandSide) -> Variables:
    """One pass through the factorisation, for right-hand sides without slack rows."""
    n, ny, columns = rhs.nodes.shape
    nodes, parts, offsets = rhs.nodes, [], []
    for group, f, r in zip(problem.groups, factor.cells, rhs.cells, strict=True):
        offset = outlined(jax.vmap(partial(_dual_offset, group)))(f, r.product)
        forces, local = _split(group, nodes, matmul(f.to_dual, offset))
        nodes = nodes - forces
        parts.append((r.local - local).reshape(-1, columns))
        offsets.append(offset)
    flat = jnp.concatenate([nodes.reshape(-1, columns), *parts])
    v = dense.solve(factor.condensed, flat)
    y, cells, start = v[: n * ny].reshape(n, ny, columns), [], n * ny
    for group, f, r, offset in zip(problem.groups, factor.cells, rhs.cells, offsets, strict=True):
        m, nx, _ = r.local.shape
        dx = v[start : start + m * nx].reshape(m, nx, columns)
        dv = _cell_directions(group, y, dx)
        dz = offset - matmul(f.dual_map, dv)
        cells.append(CellVariables(dx, dz, _slack_direction(f, dv, dz)))
        start += m * nx
    return Variables(y, tuple(cells))


def _slack_direction(f: CondensedCell, v: Array, dual: Array) -> Array:
    return matmul(f.slack_to_v, v) + matmul(f.slack_to_dual, dual)


def _linear_product(group: CellGroup, f: CondensedCell, d: CellVariables) -> Array:
    """L(z) ds + L(s) dz, columns last."""

    def product(point: Array, change: Array) -> Array:
        return group.cone.product(point[:, None], change.swapaxes(1, 2)).swapaxes(1, 2)

    return product(f.dual, d.slack) + product(f.slack, d.dual)


def _regularization(dtype: jnp.dtype) -> float:
    """1.5e-8 in float64: with 1e-7, duals that no force feels (friction along the normal) lag
    for dozens of steps behind slacks of 1e-10; with 3e-9 rounding costs steps."""
    return float(jnp.finfo(dtype).eps) ** 0.5
