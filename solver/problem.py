"""The problem class: relaxed complementarity over a sparse graph of nodes and cells.

Unknowns are one vector `y` a node and, for each cell, local primals `x`, duals `z` and
slacks `s`. Each cell touches a fixed number of nodes; which ones may be known at run time alone.
The relaxed conditions are

    node_residual(y) + sum over cells of node forces(y, x, z) = 0      one row block a node
    local(y, x, z)                                            = 0      one row block a cell
    slack(y, x, z) - s                                        = 0
    s o z = rho e,   s in K,   z in K

with a share of rho in cones that ask for it (see `CellGroup.shares`).

A convex QP or SOCP is one node (variables and equality multipliers) and one cell (the
conic rows); a linear complementarity problem is one node and one cell with `y = z`. Equalities must
not depend on each other. Residuals are as the functions give them, but for those of nodes (see
`Problem.node_scale`): programs whose columns or rows differ by many orders need scaling first. One
without a solution is not told from one that is hard: the search then stalls, or takes all of its
iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver.closures import holds_tracers
from silico_py.solver.cones import ProductCone
from silico_py.solver.dense import accumulate, dot, taken
from silico_py.solver.fusion import compact
from silico_py.solver.levels import Links
from silico_py.solver.outlining import outlined
from silico_py.solver.rows import each
from silico_py.solver.vectors import CellConditions, CellVariables, Conditions, Variables

MANY_NODES = 3  # from so many on some cone shortens nearly every step
CROWD = 6  # from so many on most nodes stay as they are where some are disturbed

P = ParamSpec("P")
R = TypeVar("R")
Tree = TypeVar("Tree")


class CellResidual(NamedTuple):
    """What one cell contributes: forces on its nodes, its own equations, its cone slack."""

    nodes: Float[Array, "arity ny"]
    local: Float[Array, " nx"]
    slack: Float[Array, " dim"]


class CellJacobian(NamedTuple):
    """Derivatives of a `CellResidual` by v = (y flattened, x) and by the duals.

    Attributes:
        to_v, to_dual: of the forces on the nodes and the cell's own equations.
        slack_to_v: of the slack.
        slack_to_dual: of the slack's rows from the split on by the duals before it.
    """

    to_v: Float[Array, "v v"]
    to_dual: Float[Array, "v dim"]
    slack_to_v: Float[Array, "dim v"]
    slack_to_dual: Float[Array, "late early"]


CellFunction = Callable[[Array, Array, Array, Any], CellResidual]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["nodes", "data", "memo", "graph", "shares"],
    meta_fields=["cone", "function", "split", "jacobian", "ease", "prepare", "fusible"],
)
@dataclass(frozen=True)
class CellGroup:
    """Cells that share one function; everything in `data` is batched over the cells.

    Attributes:
        cone: the cone K of one cell.
        nodes: `(cells, arity)` indices of the nodes each cell touches: numpy's where they are
            known in advance.
        function: `(y (arity, ny), x (nx,), z (dim,), data) -> CellResidual` for one cell.
        data: pytree of per-cell parameters.
        split: the slack rows from `split` on may depend on the duals before `split`; no
            other slack row depends on a dual.
        jacobian: optional derivative `(y, x, z, data, easing) -> CellJacobian`, exact at
            easing 0; at easing 1 it leaves out the terms that make the problem non-monotone.
            Without it `function` is differentiated exactly.
        ease: optional `(data, Easing) -> data`, the parameters of a tamer problem: of one kind up
            to 1, of another down to -1. Both hooks only shape the way: solutions are those of
            `data` at easing 0.
        prepare: optional `(y (arity, ny), data) -> memo`, what `function` and `jacobian` share at
            one point of the nodes: they are then given `(data, memo)` as their data. The memo
            itself is not differentiated.
        memo: of the point at hand, if it is known.
        fusible: whether these functions are short, so that they may be put into a kernel with the
            rest of the search.
        graph: where `nodes` are not known in advance, every row that may be among them.
        shares: of rho, at which the products of each row end, at most 1 and the same within a cone;
            1 without them. On the way products of all rows are alike. They have no derivative.
    """

    cone: ProductCone
    nodes: Int[np.ndarray | Array, "cells arity"]
    function: CellFunction
    data: Any
    split: int
    jacobian: Callable[[Array, Array, Array, Any, Array], CellJacobian] | None = None
    ease: Callable[[Any, Easing], Any] | None = None
    prepare: Callable[[Array, Any], Any] | None = None
    memo: Any = None
    fusible: bool = True
    graph: Int[np.ndarray, "links arity"] | None = None
    shares: Float[Array, "cells dim"] | None = None

    @property
    def links(self) -> Links:
        """The nodes of the cells, and those that they may be."""
        return Links(self.nodes, self.nodes if self.graph is None else self.graph)

    @property
    def ends(self) -> Float[Array, "cells dim"] | float:
        """Share of rho at which the products of each row end: `shares`, or 1 without them."""
        return 1.0 if self.shares is None else self.shares

    def gather(self, y: Float[Array, "nodes ny"]) -> Float[Array, "cells arity ny"]:
        """Node vectors as each cell sees them."""
        return taken(y, self.nodes)

    def prepared(self, y: Float[Array, "nodes ny"]) -> CellGroup:
        """The group with the memo of this point, unless there is one."""
        if self.prepare is None or self.memo is not None:
            return self
        at = jax.lax.stop_gradient((self.gather(y), self.data))
        return replace(self, memo=outlined(self.prepare, axes=0)(*at))

    @property
    def inputs(self) -> Any:
        """The data that the functions are given."""
        return self.data if self.prepare is None else (self.data, self.memo)

    def residual(self, y: Float[Array, "nodes ny"], cell: CellVariables) -> CellResidual:
        """Residual parts of all cells, the slack part without `- s`."""
        run = outlined(self.function, axes=0, whole=True)
        return run(self.gather(y), cell.x, cell.dual, self.prepared(y).inputs)

    def derivative(
        self, y: Float[Array, "nodes ny"], cell: CellVariables, easing: Float[Array, ""]
    ) -> CellJacobian:
        """Derivative blocks of all cells."""
        at = (self.gather(y), cell.x, cell.dual, self.prepared(y).inputs)
        if self.jacobian is None:
            return outlined(forward_jacobian, self.function, self.split, axes=0)(*at)
        return outlined(self.jacobian, axes=(0, 0, 0, 0, None), whole=True)(*at, easing)


class ProblemData(NamedTuple):
    """The parameters of all rows of a problem, as one pytree.

    Attributes:
        nodes: of the nodes.
        cells: of the cells of each group.
        node_scale: as of the problem.
        chosen: of each group whose nodes are known only at run time, those; else None.
        first_share: as of the problem.
        shares: of the products of each group.
    """

    nodes: Any
    cells: tuple
    node_scale: Float[Array, "nodes ny"]
    chosen: tuple
    first_share: Float[Array, ""] | None
    shares: tuple

    @property
    def begins_with_member(self) -> Bool[Array, ""] | bool:
        """Whether a member of the homotopies is to be solved before the problem itself."""
        return False if self.first_share is None else self.first_share < 1


class Easing(NamedTuple):
    """How much tamer than the problem itself what is solved at present is.

    Attributes:
        share: between -1 and 1, two kinds; 0 is the problem itself.
        far: whether, with one node, easing began far from a solution.
    """

    share: Float[Array, ""]
    far: Bool[Array, ""]


def no_easing(dtype: jnp.dtype) -> Easing:
    """That of the problem itself."""
    return Easing(jnp.zeros((), dtype), jnp.zeros((), bool))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["node_data", "groups", "node_scale", "first_share"],
    meta_fields=["node_residual", "monotone", "homotopies"],
)
@dataclass(frozen=True)
class Problem:
    """Nodes, cells and the weights that make residual rows comparable.

    Attributes:
        node_residual: `(ny,), data -> (ny,)` for one node. Like all functions here it is given
            every traced array as data: one that closes over some is refused by `solve`.
        node_data: parameters of `node_residual`, batched over the nodes.
        groups: the cells.
        node_scale: `(nodes, ny)`; node rows are divided by it where residuals are measured.
        monotone: whether it is monotone (convex programs are): its central path has no folds then.
        homotopies: each `(data, share) -> data`, with `data` as the property, parameters of a
            family of problems that leads from an easy one (share near 0) to this one (share 1).
        first_share: of the homotopies to begin with where there is no guess; less than 1 where the
            problem itself is too hard for a start from nothing. None is 1.
    """

    node_residual: Callable[[Array, Any], Array]
    node_data: Any
    groups: tuple[CellGroup, ...]
    node_scale: Float[Array, "nodes ny"]
    monotone: bool = False
    homotopies: tuple[Callable[[ProblemData, Array], ProblemData], ...] = ()
    first_share: Float[Array, ""] | None = None

    @property
    def is_single(self) -> bool:
        """Whether it has one node."""
        return len(self.node_scale) == 1

    @property
    def has_many_nodes(self) -> bool:
        """Whether there are so many that steps are short and folds follow one another."""
        return len(self.node_scale) >= MANY_NODES

    @property
    def is_crowded(self) -> bool:
        """Whether a guess that is far off may still be right for most of the nodes."""
        return len(self.node_scale) >= CROWD

    @property
    def fusible(self) -> bool:
        """Whether its functions may be put into kernels."""
        return all(group.fusible for group in self.groups)

    @property
    def links(self) -> list[Links]:
        """For each group the nodes that its cells touch."""
        return [group.links for group in self.groups]

    @property
    def has_memos(self) -> bool:
        """Whether any of its functions share a memo."""
        return any(group.prepare is not None for group in self.groups)

    @property
    def _functions(self) -> Iterator[tuple[str, Any]]:
        """The functions by the names of the fields."""
        yield "node_residual", self.node_residual
        yield "homotopies", self.homotopies
        for group in self.groups:
            for name in ("function", "jacobian", "ease", "prepare"):
                yield name, getattr(group, name)

    @property
    def data(self) -> ProblemData:
        """The parameters of all rows, as one pytree."""
        return ProblemData(
            nodes=self.node_data,
            cells=tuple(group.data for group in self.groups),
            node_scale=self.node_scale,
            chosen=tuple(None if group.graph is None else group.nodes for group in self.groups),
            first_share=self.first_share,
            shares=tuple(group.shares for group in self.groups),
        )

    def without_data(self) -> Problem:
        """The problem without its numbers, which `with_data` puts back: a function that outlives a
        trace must not hold tracers.

        Raises:
            ValueError: for functions that do, and for a cone without rows.
        """
        for name, function in self._functions:
            if holds_tracers(function):
                raise ValueError(
                    f"{name}: closes over an array that is traced; hand it over as its data"
                )
        if not all(group.cone.dim for group in self.groups):
            raise ValueError("cone: a group of cells needs one with rows")
        form = self.with_data(jax.tree.map(lambda _: None, self.data))
        groups = (g if g.graph is None else replace(g, nodes=None) for g in form.groups)
        return replace(form, groups=tuple(groups))

    def eased(self, easing: Easing) -> Problem:
        """The problem that the cells offer at `easing`."""
        groups = (
            g if g.ease is None else replace(g, data=g.ease(g.data, easing)) for g in self.groups
        )
        return replace(self, groups=tuple(groups))

    def member(self, family: Int[Array, ""], share: Float[Array, ""]) -> Problem:
        """The problem at a share of one of its homotopies."""
        data = self.data
        for k, homotopy in enumerate(self.homotopies):
            data = choose(family == k, homotopy(self.data, share), data)
        return self.with_data(data)

    def prepared(self, y: Float[Array, "nodes ny"]) -> Problem:
        """The problem with the memos of this point, unless there are some."""
        return replace(self, groups=tuple(group.prepared(y) for group in self.groups))

    @property
    def memos(self) -> tuple:
        """The memo of each group."""
        return tuple(group.memo for group in self.groups)

    def with_memos(self, memos: tuple) -> Problem:
        """The problem at a point whose memos are known."""
        pairs = zip(self.groups, memos, strict=True)
        return replace(self, groups=tuple(replace(group, memo=memo) for group, memo in pairs))

    def with_data(self, data: ProblemData) -> Problem:
        """The same problem with other parameters."""
        groups = []
        parts = zip(self.groups, data.cells, data.chosen, data.shares, strict=True)
        for group, cells, chosen, shares in parts:
            nodes = group.nodes if chosen is None else chosen
            groups.append(replace(group, data=cells, nodes=nodes, shares=shares))
        return replace(
            self,
            node_data=data.nodes,
            groups=tuple(groups),
            node_scale=data.node_scale,
            first_share=data.first_share,
        )


def in_one(function: Callable[Concatenate[Problem, P], R]) -> Callable[Concatenate[Problem, P], R]:
    """`function` of a problem and more, `compact` if the problem is fusible and has no memos."""
    part = compact(function)

    @wraps(function)
    def call(problem: Problem, *args: P.args, **named: P.kwargs) -> R:
        fits = problem.fusible and not problem.has_memos
        return (part if fits else function)(problem, *args, **named)

    return call


def conditions(problem: Problem, w: Variables) -> Conditions:
    """All conditions at `w`; the slack rows read slack(y, x, z) - s."""
    nodes = each(problem.node_residual)(w.y, problem.node_data)
    cells = []
    for group, cell in zip(problem.groups, w.cells, strict=True):
        part = group.residual(w.y, cell)
        forces = part.nodes.reshape(-1, nodes.shape[1])
        nodes = nodes + accumulate(forces, group.nodes.reshape(-1), len(nodes))
        product = group.cone.product(cell.slack, cell.dual)
        cells.append(CellConditions(part.local, part.slack - cell.slack, product))
    return Conditions.of(nodes, cells)


def choose(condition: Bool[Array, ""], first: Tree, second: Tree) -> Tree:
    """`first` where the condition holds, otherwise `second`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def identity(problem: Problem, like: Conditions) -> Conditions:
    """Zero rows, and what every product is to be at a relaxation of 1: e, or a share of it."""
    one = jnp.ones((), like.flat.dtype)
    return like.of_products(targets(problem, one, one))


def targets(
    problem: Problem, product: Float[Array, ""], rho: Float[Array, ""]
) -> list[Float[Array, "cells dim"]]:
    """Products of the central path, of each cell of each group, where those of cones that end at
    rho itself are `product`."""
    above, found = jnp.maximum(product - rho, 0), []
    for group in problem.groups:
        e, size = group.cone.identity(product.dtype), (len(group.nodes), group.cone.dim)
        found.append(jnp.broadcast_to((rho * group.ends + above) * e, size))
    return found


def remainder(problem: Problem, c: Conditions, rho: Array) -> Conditions:
    """What has to vanish at relaxation rho: the rows, and s o z less rho e or a share of it."""
    return jax.tree.map(lambda v, e: v - rho * e, c, identity(problem, c))


def imbalance(problem: Problem, c: Conditions, rho: Array) -> Float[Array, ""]:
    """Largest error of a product at relaxation rho; of one that ends at a share of it, over that
    share."""
    cells = remainder(problem, c, rho).cells
    errors = [
        jnp.max(jnp.abs(cell.product / group.ends), initial=0)
        for group, cell in zip(problem.groups, cells, strict=True)
    ]
    return jnp.max(jnp.stack([jnp.zeros_like(rho), *errors]))


def residual_norms(problem: Problem, c: Conditions) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Largest scaled row of the nodes, and of the cells."""
    return jnp.max(jnp.abs(c.nodes / problem.node_scale)), jnp.max(jnp.abs(c.own), initial=0)


def residual_norm(problem: Problem, c: Conditions) -> Float[Array, ""]:
    """Largest scaled row."""
    return jnp.maximum(*residual_norms(problem, c))


def product_norm(c: Conditions) -> Float[Array, ""]:
    """Largest entry of a product."""
    return jnp.max(jnp.abs(c.products), initial=0)


def excess(
    problem: Problem, w: Variables, like: Conditions, rho: Array, shared: Bool[Array, ""]
) -> Conditions:
    """Zero rows, and products of e times what the mean product at `w` exceeds rho by.

    The mean is that of each cell by itself, or that of all cells if it is `shared`.
    """
    products, common = [], mean_product(problem, w)
    for group, cell in zip(problem.groups, w.cells, strict=True):
        own = dot(cell.slack, cell.dual) / max(group.cone.degree, 1)
        above = jnp.maximum(jnp.where(shared, common, own) - rho, 0)
        products.append(above[:, None] * group.cone.identity(rho.dtype))
    return like.of_products(products)


def mean_product(problem: Problem, w: Variables) -> Float[Array, ""]:
    """s . z divided by the degree of the cone."""
    degree = sum(g.cone.degree * len(g.nodes) for g in problem.groups)
    total = sum((jnp.sum(c.slack * c.dual) for c in w.cells), jnp.zeros((), w.y.dtype))
    return total / max(degree, 1)


def boundary_step(problem: Problem, w: Variables, change: Variables) -> Float[Array, ""]:
    """Largest multiple of `change` that keeps slacks and duals in their cones."""
    lengths = [jnp.inf * jnp.ones(1, w.flat.dtype)]
    for group, pair, changes in zip(problem.groups, w.pairs, change.pairs, strict=True):
        lengths.append(group.cone.step_lengths(pair, changes).reshape(-1))
    return jnp.min(jnp.concatenate(lengths))


def is_interior(problem: Problem, w: Variables) -> Bool[Array, ""]:
    """Whether all slacks and duals are strictly inside their cones."""
    margins = [
        group.cone.margins(pair).reshape(-1)
        for group, pair in zip(problem.groups, w.pairs, strict=True)
    ]
    return jnp.all(jnp.concatenate([jnp.ones(1, bool), *(m > 0 for m in margins)]))


def centred(
    problem: Problem, w: Variables, products: Sequence[Float[Array, "cells dim"]]
) -> Variables:
    """`w` with slacks and duals of the same differences s - z and of these products s o z, which
    are multiples of e in each cone."""
    cells = []
    for group, cell, product in zip(problem.groups, w.cells, products, strict=True):
        slack, dual = group.cone.central_pair(cell.slack - cell.dual, product)
        cells.append(cell._replace(slack=slack, dual=dual))
    return Variables.of(w.y, cells)


def forward_jacobian(
    function: CellFunction, split: int, y: Array, x: Array, z: Array, data: Any
) -> CellJacobian:
    """Derivative blocks of one cell by forward-mode differentiation."""
    cuts = y.size, y.size + x.size

    def flat(point: Array) -> tuple[Array, Array]:
        part_y, part_x, part_z = jnp.split(point, cuts)
        out = function(part_y.reshape(y.shape), part_x, part_z, data)
        return jnp.concatenate([out.nodes.reshape(-1), out.local]), out.slack

    upper, slack = jax.jacfwd(flat)(jnp.concatenate([y.reshape(-1), x, z]))
    to_v, to_dual = jnp.split(upper, cuts[1:], axis=1)
    slack_to_v, slack_to_dual = jnp.split(slack, cuts[1:], axis=1)
    return CellJacobian(to_v, to_dual, slack_to_v, slack_to_dual[split:, :split])
