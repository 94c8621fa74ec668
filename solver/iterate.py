"""Where an attempt is, and when it has arrived."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver.path import Path
from silico_py.solver.problem import (
    Easing,
    Problem,
    conditions,
    imbalance,
    in_one,
    residual_norms,
)
from silico_py.solver.vectors import Conditions, Variables

PATIENCE = 3  # short steps in a row that make a stall
CENTRAL = 0.3  # error below which iterates are kept near the central path
# Error below which a short step is not taken for a fold: with one node, two, or more, each of which
# shortens the steps.
NO_FOLD = 1e-4, 1e-2, 1e-1
EXACT = 1e-2  # error, in tolerances, that leaves nothing to do without polishing
POLISHED = 1e-8  # error, in relaxations, that polishing is content with
# Errors taken for rounding, in machine epsilons: of the rows of nodes, and of those of cells. The
# scale of the former may itself be a difference of rounded numbers.
ROUNDING = 5e3, 1e4
NEGLIGIBLE = 1e-4  # largest error, in relaxations, that may be taken for rounding
POLISH_TO = 0.03  # share of the rounding that polishing aims at, so that the next guess is exact


class Options(NamedTuple):
    """Where to stop.

    Attributes:
        relaxation: rho, the target of every complementarity product.
        tolerance: largest scaled residual row and largest error of s o z = rho e.
        max_iterations: Newton steps, all attempts together.
        polish: largest number of further Newton steps once both tolerances are met. Each
            squares the error: two or three take it to rounding.
        accept: whether a guess that meets both tolerances is a solution as it is. If not, and
            without polishing, one step is taken from it unless it is exact (see `is_exact`):
            a solution that changes by less than the tolerance would else never be followed.
    """

    relaxation: Float[Array, ""]
    tolerance: Float[Array, ""]
    max_iterations: int | Int[Array, ""]
    polish: int | Int[Array, ""] = 0
    accept: bool = False

    def softer(self, share: Float[Array, ""]) -> Options:
        """The options for a larger relaxation, from 1 (share near 0) to the one wanted (share
        1)."""
        factor = self.relaxation ** (share - 1)
        larger = {name: factor * getattr(self, name) for name in ("relaxation", "tolerance")}
        return self._replace(**larger)


Errors = tuple[Array, Array, Array]  # nodes, own and complementarity of `Measures`


class Measures(NamedTuple):
    """The conditions with the size of their rows and the error of complementarity.

    Attributes:
        conditions: all of them.
        memos: of the point, for the Jacobian there.
        nodes: largest scaled row of a node.
        own: largest row of a cell.
        complementarity: largest error of a product, over the share of rho at which it ends.
    """

    conditions: Conditions
    memos: tuple
    nodes: Float[Array, ""]
    own: Float[Array, ""]
    complementarity: Float[Array, ""]

    @property
    def errors(self) -> Errors:
        """Those of nodes, of cells and of complementarity, in this order."""
        return self.nodes, self.own, self.complementarity

    def with_errors(self, errors: Errors) -> Measures:
        """These measures with the errors of another point."""
        nodes, own, complementarity = errors
        return self._replace(nodes=nodes, own=own, complementarity=complementarity)

    @property
    def residual(self) -> Float[Array, ""]:
        """Largest row of all, those of nodes scaled."""
        return jnp.maximum(self.nodes, self.own)

    @property
    def error(self) -> Float[Array, ""]:
        """The larger of residual and error of complementarity."""
        return jnp.maximum(self.residual, self.complementarity)

    @property
    def is_finite(self) -> Bool[Array, ""]:
        """Whether residual and error of complementarity are finite."""
        return jnp.isfinite(self.residual) & jnp.isfinite(self.complementarity)


class Iterate(NamedTuple):
    """Where an attempt is."""

    w: Variables
    measures: Measures
    iterations: Int[Array, ""]
    begun: Int[Array, ""]  # iteration at which this attempt set out
    short_steps: Int[Array, ""]
    easing: Easing
    way: Float[Array, ""]  # sign of the easing that begins next; 0 where none may begin
    path: Path
    polishing: Int[Array, ""]  # steps left once the tolerances are met
    fold: Variables  # where easing began, the present place if it has not
    folds: Int[Array, ""]  # how often easing has begun
    fold_residual: Float[Array, ""]  # of the step that met the first fold
    climbing: Int[Array, ""]  # steps since polishing has left a solution for what is worse
    left: tuple[Variables, Errors]  # the solution it left

    @property
    def stalled(self) -> Bool[Array, ""]:
        """Whether steps have become too short."""
        return self.short_steps >= PATIENCE


@in_one
def measure(problem: Problem, w: Variables, easing: Easing, options: Options) -> Measures:
    """Measures of a point, for the problem at this easing."""
    problem = problem.eased(easing).prepared(w.y)
    found = conditions(problem, w)
    off = imbalance(problem, found, options.relaxation)
    return Measures(found, problem.memos, *residual_norms(problem, found), off)


def is_polished(m: Measures, options: Options, share: float = 1.0) -> Bool[Array, ""]:
    """Whether errors are negligible against the relaxation, or below a share of the rounding."""
    least, most = (part * options.relaxation for part in (POLISHED, NEGLIGIBLE))
    eps = jnp.finfo(least.dtype).eps
    limits = [jnp.maximum(least, jnp.minimum(share * r * eps, most)) for r in ROUNDING]
    return (m.nodes < limits[0]) & (m.own < limits[1]) & (m.complementarity < least)


def is_solved(it: Iterate, options: Options) -> Bool[Array, ""]:
    """Whether the problem is solved at the present easing."""
    return it.measures.error <= options.tolerance


def is_done(it: Iterate, options: Options) -> Bool[Array, ""]:
    """Whether the problem itself is solved."""
    return is_solved(it, options) & (it.easing.share == 0)


def is_polishing(it: Iterate, options: Options) -> Bool[Array, ""]:
    """Whether the problem itself is solved, or was until polishing left its solution."""
    return is_done(it, options) | (it.climbing > 0)


def is_exact(m: Measures, options: Options) -> Bool[Array, ""]:
    """Whether a point solves the problem so well that a step would add nothing."""
    rough = m.error < EXACT * options.tolerance
    return jnp.where(jnp.asarray(options.polish) > 0, is_polished(m, options), rough)


def is_central(it: Iterate) -> Bool[Array, ""]:
    """Whether the iterate is to stay close to the central path."""
    return it.measures.error < CENTRAL


def is_past_folds(it: Iterate) -> Bool[Array, ""]:
    """Whether the iterate is so close to a solution that there are none in between."""
    return it.measures.error < NO_FOLD[min(len(it.w.y), len(NO_FOLD)) - 1]


def moved(w: Variables, direction: Variables, length: Float[Array, ""]) -> Variables:
    """Where a straight step leads."""
    return jax.tree.map(lambda v, d: v + length * d, w, direction)
