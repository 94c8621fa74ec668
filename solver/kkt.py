"""The Newton system: slacks and duals are eliminated cone by cone, the rest is factorised.

Eliminating the dual of a row pivots on s / z, which vanishes for active rows: at tight
relaxations the condensed system then loses every digit (measured: direction errors of 5 %
at 1e-10) although the full system is well conditioned. Pivoting on s / z + delta bounds the
rounding by eps / delta. Refinement against the exact system corrects for delta, as slacks below
delta require; where active rows are nearly dependent plain iteration is not enough (see `krylov`).
Local primals are eliminated next (see `condensed`). That pivots on the curvature of each cell's own
program, which falls to rho where its constraints are degenerate: delta has to be large enough to
keep the rounding below that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from silico_py.solver import condensed, krylov
from silico_py.solver.cones import ProductCone, Scaling
from silico_py.solver.dense import matmul, transposed
from silico_py.solver.outlining import outlined
from silico_py.solver.problem import CellGroup, CellJacobian, Easing, Problem, in_one
from silico_py.solver.rows import each
from silico_py.solver.vectors import CellVariables, Conditions, Variables

# Cells, so many that refinement may not be enough. What solves the rest by pivoting makes a program
# compile a third longer.
MANY_CELLS = 60
SMALL_PRODUCT = 9e-7  # on the central path; see `_regularization`
REFINEMENTS = 3  # of a direction found with pivoting
PROXIMAL = 3.0  # growth of the node Jacobian at full easing: shorter moves of the nodes


class CellVector(NamedTuple):
    """The part of a `SystemVector` of one group of cells."""

    local: Float[Array, "cells nx columns"]
    product: Float[Array, "cells dim columns"]


class SystemVector(NamedTuple):
    """A vector of the Newton system without slack rows, one column each.

    On the right-hand side: node rows, local rows, and c of L(z) ds + L(s) dz = c with
    ds = f_y dy + f_x dx + f_z dz. Of a solution: dy, dx and dz in the same places.
    """

    nodes: Float[Array, "nodes ny columns"]
    cells: tuple[CellVector, ...]


class CondensedCell(NamedTuple):
    """One cell without its duals and slacks; v = (dy, dx)."""

    to_v: Float[Array, "v v"]  # exact derivative of (node forces, local rows)
    to_dual: Float[Array, "v dim"]
    slack_to_v: Float[Array, "dim v"]
    slack_to_dual: Float[Array, "late early"]  # of the rows from the split on, by the duals before
    cone_maps: tuple[tuple[Array, Array], ...]
    dual_map: Float[Array, "dim v"]  # dz = dual_offset - dual_map v, regularised
    slack: Float[Array, " dim"]
    dual: Float[Array, " dim"]


class Factor(NamedTuple):
    """The Newton matrix at one point: exact blocks, and the condensed matrix factorised."""

    node_jacobian: Float[Array, "nodes ny ny"]
    cells: tuple[CondensedCell, ...]
    condensed: condensed.Factor


def size(w: Variables) -> int:
    """Number of primals."""
    return w.y.size + sum(cells * nx for cells, nx, _ in w.layout.groups)


def factorize(
    problem: Problem,
    w: Variables,
    easing: Easing,
    product: Float[Array, ""] | None = None,
) -> Factor:
    """Differentiate at `w`, eliminate slacks and duals, factorise the rest.

    Args:
        problem: the problem.
        w: any interior point.
        easing: of the problem.
        product: the common value of all, where `w` is known to be on the central path.
    """
    delta = _regularization(w.y.dtype, product)
    node_jacobian, cells, reduced = _blocks(problem, w, easing, delta)
    return Factor(node_jacobian, cells, condensed.factorize(problem.links, node_jacobian, reduced))


@in_one
def _blocks(
    problem: Problem, w: Variables, easing: Easing, delta: Float[Array, ""]
) -> tuple[Array, tuple[CondensedCell, ...], list[Array]]:
    """The derivatives of the nodes' own rows, the cells without slacks and duals, and the matrices
    that these contribute."""
    problem, share = problem.eased(easing), jnp.abs(easing.share)
    node_jacobian = each(jax.jacfwd(problem.node_residual))(w.y, problem.node_data)
    cells = []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        condense = outlined(_condense, group.cone, group.split, axes=0, whole=True)
        # Slacks in a larger unit are smaller by as much.
        deltas = jnp.broadcast_to(delta * group.ends, cell.slack.shape)
        cells.append(condense(group.derivative(w.y, cell, share), cell, deltas))
    reduced = [cell.to_v - matmul(cell.to_dual, cell.dual_map) for cell in cells]
    return (1 + PROXIMAL * share) * node_jacobian, tuple(cells), reduced


def directions(
    problem: Problem, factor: Factor, accuracy: Float[Array, ""], *targets: Conditions
) -> list[Variables]:
    """For each target the change of `w` that changes the conditions by it, to first order.

    `accuracy` is relative to the largest entry of the target.
    """
    # What many cells may need calls a library, which no kernel can.
    crowded = sum(len(group.nodes) for group in problem.groups) >= MANY_CELLS
    run = partial(_directions, improves=True) if crowded else in_one(_directions)
    return run(problem, factor, accuracy, *targets)


def _directions(
    problem: Problem,
    factor: Factor,
    accuracy: Float[Array, ""],
    *targets: Conditions,
    improves: bool = False,
) -> list[Variables]:
    """`directions`; with `improves`, what is not accurate is solved again by pivoting."""
    columns = Conditions.side_by_side(targets)
    rhs = without_slack_rows(problem, factor.cells, columns)
    matrix, inverse = system(problem, factor)
    found, accurate = krylov.solve(matrix, inverse, rhs, accuracy)
    if improves:
        found = _unless(accurate, partial(_improved, problem, factor, rhs), found)
    changes = with_slacks(problem, factor, found, columns)
    return [changes.column(k) for k in range(len(targets))]


def _unless(done: Bool[Array, ""], change: Callable, value: SystemVector) -> SystemVector:
    """`change` of the value, unless done: as a loop, which a batch skips where all are done."""

    def body(s: tuple) -> tuple:
        return change(s[0]), jnp.ones((), bool)

    return jax.lax.while_loop(lambda s: ~s[1], body, (value, done))[0]


def _improved(
    problem: Problem, factor: Factor, rhs: SystemVector, found: SystemVector
) -> SystemVector:
    """A direction refined by the matrix factorised with pivoting."""
    whole = _whole(problem, factor)

    def refine(_: object, found: SystemVector) -> SystemVector:
        defect = jax.tree.map(jnp.subtract, rhs, _apply(problem, factor, found))
        return jax.tree.map(jnp.add, found, _solve_whole(problem, whole, defect))

    return jax.lax.fori_loop(0, REFINEMENTS, refine, found)


def _whole(problem: Problem, factor: Factor) -> condensed.Factor:
    """The exact matrix, factorised with pivoting: each cell's duals leave with its local primals.

    No pivot needs a regularisation then, and many nearly dependent rows no refinement. It takes
    several times as long as the regularised one.
    """
    matrices = []
    for group, f in zip(problem.groups, factor.cells, strict=True):
        cone, identity = group.cone, jnp.eye(group.cone.dim, dtype=f.slack.dtype)
        to_v = cone.products(f.dual, f.slack_to_v)
        late, early = f.slack_to_dual.shape[1:]
        whole = jnp.pad(f.slack_to_dual, ((0, 0), (early, 0), (0, late)))
        to_dual = cone.products(f.dual, whole) + cone.products(
            f.slack, jnp.broadcast_to(identity, whole.shape)
        )
        rows = [jnp.concatenate(pair, axis=-1) for pair in ((f.to_v, f.to_dual), (to_v, to_dual))]
        matrices.append(jnp.concatenate(rows, axis=1))
    return condensed.factorize(problem.links, factor.node_jacobian, matrices, pivoted=True)


def _solve_whole(problem: Problem, whole: condensed.Factor, rhs: SystemVector) -> SystemVector:
    """One pass through that factorisation."""
    rows = [jnp.concatenate(cell, axis=1) for cell in rhs.cells]
    y, moves = condensed.solve(problem.links, whole, rhs.nodes, rows)
    cells = [
        CellVector(*jnp.split(move, [cell.local.shape[1]], axis=1))
        for move, cell in zip(moves, rhs.cells, strict=True)
    ]
    return SystemVector(y, tuple(cells))


def system(problem: Problem, factor: Factor) -> tuple[Callable, Callable]:
    """The exact Newton matrix and its regularised inverse, as functions of a vector."""
    return partial(_apply, problem, factor), partial(_solve_regularized, problem, factor)


def transposed_system(problem: Problem, factor: Factor) -> tuple[Callable, Callable]:
    """Matrix and elimination, both transposed."""
    turned = Factor(
        transposed(factor.node_jacobian),
        tuple(map(_transposed, factor.cells)),
        condensed.transposed(factor.condensed),
    )
    return (
        partial(_apply_transposed, problem, turned),
        partial(_solve_regularized_transposed, problem, turned),
    )


def _transposed(cell: CondensedCell) -> CondensedCell:
    """The cell with every matrix transposed but the maps of the cones."""
    names = ("to_v", "to_dual", "slack_to_v", "slack_to_dual", "dual_map")
    return cell._replace(**{name: transposed(getattr(cell, name)) for name in names})


def _apply(problem: Problem, factor: Factor, vector: SystemVector) -> SystemVector:
    """The exact Newton matrix times `vector`."""
    nodes = matmul(factor.node_jacobian, vector.nodes)
    cells = []
    for group, f, d in zip(problem.groups, factor.cells, vector.cells, strict=True):
        v = _cell_directions(group, vector.nodes, d.local)
        forces, local = _split(group, nodes, matmul(f.to_v, v) + matmul(f.to_dual, d.product))
        nodes = nodes + forces
        slack = _slack_direction(f, v, d.product)
        product = group.cone.products(f.dual, slack) + group.cone.products(f.slack, d.product)
        cells.append(CellVector(local, product))
    return SystemVector(nodes, tuple(cells))


def _apply_transposed(problem: Problem, turned: Factor, vector: SystemVector) -> SystemVector:
    """The exact Newton matrix, transposed, times `vector`; products L are symmetric."""
    nodes = matmul(turned.node_jacobian, vector.nodes)
    cells = []
    for group, f, u in zip(problem.groups, turned.cells, vector.cells, strict=True):
        rows = _cell_directions(group, vector.nodes, u.local)
        slack = group.cone.products(f.dual, u.product)
        v = matmul(f.to_v, rows) + matmul(f.slack_to_v, slack)
        forces, local = _split(group, nodes, v)
        nodes = nodes + forces
        early, late = f.slack_to_dual.shape[1:]
        induced = matmul(f.slack_to_dual, slack[:, early:])
        dual = matmul(f.to_dual, rows) + jnp.pad(induced, ((0, 0), (0, late), (0, 0)))
        cells.append(CellVector(local, dual + group.cone.products(f.slack, u.product)))
    return SystemVector(nodes, tuple(cells))


def with_slacks(
    problem: Problem, factor: Factor, vector: SystemVector, target: Conditions
) -> Variables:
    """`vector` as a change of all unknowns: with the slack changes that it causes, and those that
    the slack rows of the target ask for."""
    cells = []
    groups = zip(problem.groups, factor.cells, vector.cells, target.cells, strict=True)
    for group, f, d, row in groups:
        v = _cell_directions(group, vector.nodes, d.local)
        slack = _slack_direction(f, v, d.product) - row.slack
        cells.append(CellVariables(d.local, d.product, slack))
    return Variables.of(vector.nodes, cells, columns=True)


def without_slack_rows(
    problem: Problem, cells: Sequence[CellVariables | CondensedCell], target: Conditions
) -> SystemVector:
    """A target, one column each, with its slack rows moved into the products.

    The solution then lacks them in its slacks: see `with_slacks`.
    """
    vectors = []
    for group, cell, row in zip(problem.groups, cells, target.cells, strict=True):
        product = row.product + group.cone.products(cell.dual, row.slack)
        vectors.append(CellVector(row.local, product))
    return SystemVector(target.nodes, tuple(vectors))


def row_weights(
    problem: Problem, cells: Sequence[CellVariables], vector: SystemVector
) -> list[Float[Array, "cells rows columns"]]:
    """What a vector of the transposed system gives each row of a target, group by group: those of
    the cell's nodes, local and slack rows. Transposes `without_slack_rows`."""
    return [
        jnp.concatenate(
            [
                _cell_directions(group, vector.nodes, own.local),
                group.cone.products(cell.dual, own.product),
            ],
            axis=1,
        )
        for group, cell, own in zip(problem.groups, cells, vector.cells, strict=True)
    ]


def _cell_directions(
    group: CellGroup, y: Float[Array, "nodes ny columns"], x: Float[Array, "cells nx columns"]
) -> Float[Array, "cells v columns"]:
    """v = (dy, dx) as each cell sees it."""
    return jnp.concatenate([condensed.of_cells(y, group.nodes), x], axis=1)


def _split(
    group: CellGroup, nodes: Float[Array, "nodes ny columns"], rows: Float[Array, "cells v columns"]
) -> tuple[Array, Array]:
    """Rows of all cells: what falls on each node, and the cells' own rows."""
    own = group.nodes.shape[1] * nodes.shape[1]
    return condensed.on_nodes(rows[:, :own], group.nodes, nodes), rows[:, own:]


def _condense(
    cone: ProductCone,
    split: int,
    jacobian: CellJacobian,
    cell: CellVariables,
    regularization: Float[Array, " dim"],
) -> CondensedCell:
    """A cell without its slacks and duals, by forward substitution over the split."""
    to_v, to_dual, slack_to_v, slack_to_dual = jacobian
    scaling = cone.scaling(cell.slack, cell.dual, regularization)
    early, late = scaling.split_at(split)
    first = early.apply(slack_to_v[:split])
    second = late.apply(slack_to_v[split:] - matmul(slack_to_dual, first))
    return CondensedCell(
        to_v=to_v,
        to_dual=to_dual,
        slack_to_v=slack_to_v,
        slack_to_dual=slack_to_dual,
        cone_maps=scaling.maps,
        dual_map=jnp.concatenate([first, second]),
        slack=cell.slack,
        dual=cell.dual,
    )


def _dual_offset(cone: ProductCone, split: int, f: CondensedCell, product: Array) -> Array:
    """dz at v = 0, by forward substitution over the split."""
    scaling = Scaling(cone, f.cone_maps)
    dual, (_, late) = scaling.divide(product), scaling.split_at(split)
    induced = late.apply(matmul(f.slack_to_dual, dual[:split]))
    return jnp.concatenate([dual[:split], dual[split:] - induced])


def _dual_offset_transposed(cone: ProductCone, split: int, f: CondensedCell, dual: Array) -> Array:
    """The transposed map of `_dual_offset`, of a cell transposed before."""
    scaling = Scaling(cone, f.cone_maps).transposed
    _, late = scaling.split_at(split)
    induced = matmul(f.slack_to_dual, late.apply(dual[split:]))
    return scaling.divide(jnp.concatenate([dual[:split] - induced, dual[split:]]))


def _solve_regularized(problem: Problem, factor: Factor, rhs: SystemVector) -> SystemVector:
    """One pass through the factorisation."""
    forces, rows, offsets = rhs.nodes, [], []
    for group, f, r in zip(problem.groups, factor.cells, rhs.cells, strict=True):
        offset = outlined(_dual_offset, group.cone, group.split, axes=0, whole=True)(f, r.product)
        force, local = _split(group, forces, matmul(f.to_dual, offset))
        forces = forces - force
        rows.append(r.local - local)
        offsets.append(offset)
    y, moves = condensed.solve(problem.links, factor.condensed, forces, rows)
    cells = [
        CellVector(dx, offset - matmul(f.dual_map, _cell_directions(group, y, dx)))
        for group, f, offset, dx in zip(problem.groups, factor.cells, offsets, moves, strict=True)
    ]
    return SystemVector(y, tuple(cells))


def _solve_regularized_transposed(
    problem: Problem, turned: Factor, rhs: SystemVector
) -> SystemVector:
    """One pass through the factorisation, transposed: its steps in reverse order."""
    nodes, rows = rhs.nodes, []
    for group, f, r in zip(problem.groups, turned.cells, rhs.cells, strict=True):
        force, local = _split(group, nodes, matmul(f.dual_map, r.product))
        nodes = nodes - force
        rows.append(r.local - local)
    y, moves = condensed.solve_transposed(problem.links, turned.condensed, nodes, rows)
    cells = []
    for group, f, r, x in zip(problem.groups, turned.cells, rhs.cells, moves, strict=True):
        dual = r.product - matmul(f.to_dual, _cell_directions(group, y, x))
        offset = outlined(_dual_offset_transposed, group.cone, group.split, axes=0)
        cells.append(CellVector(x, offset(f, dual)))
    return SystemVector(y, tuple(cells))


def _slack_direction(f: CondensedCell, v: Array, dual: Array) -> Array:
    early = f.slack_to_dual.shape[2]
    induced = matmul(f.slack_to_dual, dual[:, :early])
    return matmul(f.slack_to_v, v) + jnp.pad(induced, ((0, 0), (early, 0), (0, 0)))


def _regularization(dtype: jnp.dtype, product: Float[Array, ""] | None = None) -> Array:
    """6e-6 in float64: with 1.5e-8 rounding hides a curvature of 1e-10, and searches at that
    relaxation fail. 1e-6 and 1e-5 work as well.

    On the central path the rounding may be as large as `product`: unless that is small, a smaller
    delta will do, and refinement takes fewer passes. Where it is small a larger one is needed, 5e-5
    in float64: degenerate constraints leave so little curvature that rounding would mislead
    refinement. At 1e-10 some derivatives have no correct digit with 2e-5, and lose three with 1e-4.
    """
    eps = float(jnp.finfo(dtype).eps)
    usual = jnp.asarray(eps ** (1 / 3), dtype)
    if product is None:
        return usual
    return jnp.where(product > SMALL_PRODUCT, jnp.minimum(usual, eps / product), 8 * usual)
