"""The Newton system: slacks and duals leave cone by cone, local primals cell by cell.

What is left is one dense system over the nodes. Each elimination step pivots on a
regularised block (delta = `REGULARIZATION`), which makes it stable in any order; steps of
iterative refinement against the exact system take the regularisation out again. One
factorisation serves every right-hand side.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from silico_py.solver.cones import Scaling
from silico_py.solver.problem import CellGroup, CellJacobian, CellVariables, Problem, Variables

DUAL_REG = 1e-5
PRIMAL_REG = 1e-5


class CellRhs(NamedTuple):
    """Right-hand sides of one cell's rows, one column each."""

    local: Float[Array, "nx columns"]
    slack: Float[Array, "dim columns"]
    product: Float[Array, "dim columns"]


class Rhs(NamedTuple):
    nodes: Float[Array, "nodes ny columns"]
    cells: tuple[CellRhs, ...]


class CellFactor(NamedTuple):
    """One cell without its duals, slacks and local primals."""

    jacobian: CellJacobian
    maps: tuple  # Scaling.maps
    z_map: Float[Array, "dim nx+k"]  # dz = ... - z_map (dx, dy)
    lu: tuple[Array, Array]  # of the local block
    x_map: Float[Array, "nx k"]  # dx = ... - x_map dy
    g_x: Float[Array, "k nx"]
    schur: Float[Array, "k k"]
    slack: Float[Array, " dim"]
    dual: Float[Array, " dim"]


class Factor(NamedTuple):
    node_jacobian: Float[Array, "nodes ny ny"]
    cells: tuple[CellFactor, ...]
    lu: tuple[Array, Array]


def factorize(problem: Problem, w: Variables, coupling) -> Factor:
    jac_nodes = jax.vmap(jax.jacfwd(problem.node_residual))(w.y, problem.node_data)
    n, ny = w.y.shape
    blocks = jnp.zeros((n, n, ny, ny), w.y.dtype)
    blocks = blocks.at[jnp.arange(n), jnp.arange(n)].set(jac_nodes)
    factors = []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        jac = group.derivative(w.y, cell, coupling)
        f = jax.vmap(lambda j, c, group=group: _factor_cell(group, j, c))(jac, cell)
        m, arity = group.nodes.shape
        schur = f.schur.reshape(m, arity, ny, arity, ny).swapaxes(2, 3)
        blocks = blocks.at[group.nodes[:, :, None], group.nodes[:, None, :]].add(schur)
        factors.append(f)
    matrix = blocks.swapaxes(1, 2).reshape(n * ny, n * ny)
    return Factor(jac_nodes, tuple(factors), jsl.lu_factor(matrix, check_finite=False))


def _factor_cell(group: CellGroup, jac: CellJacobian, cell: CellVariables) -> CellFactor:
    (g_y, g_x, g_z), (h_y, h_x, h_z), (f_y, f_x, f_z) = jac
    scaling = group.cone.scaling(cell.slack, cell.dual, DUAL_REG)
    nx = cell.x.size
    z_map = _dual_map(group, scaling, jnp.concatenate([f_x, f_y], axis=-1), f_z)
    a = h_x - h_z @ z_map[:, :nx] - PRIMAL_REG * jnp.diag(jnp.ones(nx).at[-1].set(PSI[0]))
    lu = jsl.lu_factor(a, check_finite=False)
    x_map = jsl.lu_solve(lu, h_y - h_z @ z_map[:, nx:], check_finite=False)
    g_x = g_x - g_z @ z_map[:, :nx]
    schur = g_y - g_z @ z_map[:, nx:] - g_x @ x_map
    return CellFactor(jac, scaling.maps, z_map, lu, x_map, g_x, schur, cell.slack, cell.dual)


def _dual_map(group: CellGroup, scaling: Scaling, s_map: Array, f_z: Array) -> Array:
    """M with dz = -M v where ds = s_map v + f_z dz: forward substitution over the split."""
    k = group.split
    first = scaling.apply(s_map)
    if k == group.cone.dim:
        return first
    return scaling.apply(s_map.at[k:].add(-f_z[k:, :k] @ first[:k]))


def _dual_offset(group: CellGroup, f: CellFactor, rhs: CellRhs) -> Array:
    """dz at v = 0."""
    k = group.split
    scaling = Scaling(group.cone, f.maps)
    f_z = f.jacobian.slack[2]
    base = scaling.divide(rhs.product)
    first = base - scaling.apply(rhs.slack)
    if k == group.cone.dim:
        return first
    return base - scaling.apply(rhs.slack.at[k:].add(f_z[k:, :k] @ first[:k]))


def solve(problem: Problem, factor: Factor, rhs: Rhs) -> Variables:
    """One pass through the regularised factorisation."""
    n, ny, columns = rhs.nodes.shape
    nodes, offsets = rhs.nodes, []
    for group, f, r in zip(problem.groups, factor.cells, rhs.cells, strict=True):
        def condense(f, r, group=group):
            z0 = _dual_offset(group, f, r)
            x0 = jsl.lu_solve(f.lu, r.local - f.jacobian.local[2] @ z0, check_finite=False)
            return z0, x0, f.jacobian.nodes[2] @ z0 + f.g_x @ x0
        z0, x0, force = jax.vmap(condense)(f, r)
        m, arity = group.nodes.shape
        nodes = nodes.at[group.nodes].add(-force.reshape(m, arity, ny, columns))
        offsets.append((z0, x0))
    dy = jsl.lu_solve(factor.lu, nodes.reshape(n * ny, columns), check_finite=False).reshape(nodes.shape)
    cells = []
    for group, f, r, (z0, x0) in zip(problem.groups, factor.cells, rhs.cells, offsets, strict=True):
        def back(f, r, z0, x0, yk):
            dx = x0 - f.x_map @ yk
            dz = z0 - f.z_map @ jnp.concatenate([dx, yk])
            f_y, f_x, f_z = f.jacobian.slack
            return CellVariables(dx, dz, r.slack + f_y @ yk + f_x @ dx + f_z @ dz)
        yk = dy[group.nodes].reshape(len(group.nodes), -1, columns)
        cells.append(jax.vmap(back)(f, r, z0, x0, yk))
    return Variables(dy, tuple(cells))


def defect(problem: Problem, factor: Factor, rhs: Rhs, d: Variables) -> Rhs:
    """rhs - (exact matrix) d; the slack rows hold by construction."""
    n, ny, columns = rhs.nodes.shape
    nodes = rhs.nodes - factor.node_jacobian @ d.y
    cells = []
    for group, f, r, c in zip(problem.groups, factor.cells, rhs.cells, d.cells, strict=True):
        def rows(f, r, c, yk, cone=group.cone):
            (g_y, g_x, g_z), (h_y, h_x, h_z), _ = f.jacobian
            force = g_y @ yk + g_x @ c.x + g_z @ c.dual
            local = r.local - (h_y @ yk + h_x @ c.x + h_z @ c.dual)
            product = r.product.T - cone.product(f.dual, c.slack.T) - cone.product(f.slack, c.dual.T)
            return force, CellRhs(local, jnp.zeros_like(r.slack), product.T)
        yk = d.y[group.nodes].reshape(len(group.nodes), -1, columns)
        force, rest = jax.vmap(rows)(f, r, c, yk)
        m, arity = group.nodes.shape
        nodes = nodes.at[group.nodes].add(-force.reshape(m, arity, ny, columns))
        cells.append(rest)
    return Rhs(nodes, tuple(cells))


def refined_solve(problem, factor, rhs, refinements: int) -> Variables:
    d = solve(problem, factor, rhs)
    for _ in range(refinements):
        d = jax.tree.map(jnp.add, d, solve(problem, factor, defect(problem, factor, rhs, d)))
    return d


REFINE = [3]
PSI=[0.0]

def newton_directions(problem, w, r, coupling):
    factor = factorize(problem, w, coupling)
    cols = lambda *v: jnp.stack(v, axis=-1)
    z = jnp.zeros_like
    cells = []
    for g, c, p in zip(problem.groups, w.cells, r.cells, strict=True):
        e = jnp.broadcast_to(g.cone.identity(c.dual.dtype), c.dual.shape)
        cells.append(CellRhs(cols(-p.local, z(p.local)), cols(p.slack, z(p.slack)), cols(-g.cone.product(c.slack, c.dual), e)))
    rhs = Rhs(cols(-r.nodes, z(r.nodes)), tuple(cells))
    return refined_solve(problem, factor, rhs, REFINE[0])
