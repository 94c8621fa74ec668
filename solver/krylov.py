"""Iterative refinement that need not contract: generalised conjugate residuals.

An approximate inverse M of A in place of the exact one makes `x += M (b - A x)` converge only
while all eigenvalues of M A lie near 1. Minimising the defect over all corrections so far costs
a few dot products and takes care of the handful of eigenvalues that do not.

Source: Eisenstat, Elman and Schultz, Variational iterative methods for nonsymmetric systems of
linear equations, 1983 (truncated GCR: Orthomin).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from silico_py.solver.dense import entry
from silico_py.solver.fusion import compact, in_kernel, materialized
from silico_py.solver.lockstep import in_step


class Effort(NamedTuple):
    """How long to go on.

    Attributes:
        passes: through the approximate inverse, at most.
        stored: last corrections over which the defect is minimised.
    """

    passes: int
    stored: int


# Eight stored are as good as all for most: with four searches failed, with three derivatives at
# relaxations of 1e-8 and below had no correct digit.
USUAL = Effort(16, 8)
PATIENT = Effort(48, 8)
# Right-hand sides with rows of slacks, as those of derivatives by shapes, need all of them where
# constraints are degenerate: at 1e-6 one of fifty derivatives by a polytope had no correct digit.
THOROUGH = Effort(48, 32)

Columns = Float[Array, "size columns"]
Tree = Any  # a pytree of arrays with the columns on their last axis


class _Solution(NamedTuple):
    """What has been found so far."""

    found: Columns
    defect: Columns
    inaccurate: Bool[Array, ""]


class _State(NamedTuple):
    so_far: _Solution
    directions: Float[Array, "stored size columns"]
    images: Float[Array, "stored size columns"]  # of the directions, orthonormal in each column


class _System(NamedTuple):
    """What is to be solved, for flat columns, and the largest defect of each that will do."""

    operator: Callable[[Tree], Tree]
    approximate_inverse: Callable[[Tree], Tree]
    unflatten: Callable[[Columns], Tree]
    goal: Float[Array, " columns"]

    def judged(self, found: Columns, defect: Columns) -> _Solution:
        """A solution with this defect, and whether it is inaccurate."""
        accurate = jnp.all(jnp.max(jnp.abs(defect), axis=0) <= self.goal)
        return _Solution(found, defect, ~accurate)

    def correction(self, defect: Columns) -> tuple[Columns, Columns]:
        """A direction that takes away about this defect, and what the operator makes of it."""
        guess = self.approximate_inverse(self.unflatten(defect))
        return _flattened(guess)[0], _flattened(self.operator(guess))[0]


def solve(
    operator: Callable[[Tree], Tree],
    approximate_inverse: Callable[[Tree], Tree],
    rhs: Tree,
    tolerance: Float[Array, ""] | float,
    effort: Effort = USUAL,
    last_effort: Effort | None = None,
) -> tuple[Tree, Bool[Array, ""]]:
    """x with `operator(x) = rhs`, column by column, and whether it is accurate enough.

    Stops when no defect is larger than `tolerance` times the largest entry of its column, or
    after an effort, and then a last one if there is any. Both functions are linear and take and
    give trees like `rhs`.
    """
    flat, unflatten = _flattened(rhs)
    goal = tolerance * jnp.max(jnp.abs(flat), axis=0)
    system = _System(operator, approximate_inverse, unflatten, goal)
    end = _searched(system, effort, system.judged(jnp.zeros_like(flat), flat))
    if last_effort is not None:
        # As a loop, which a batch skips where all are accurate.
        tried = end, jnp.zeros((), bool)
        end, _ = jax.lax.while_loop(
            lambda s: s[0].inaccurate & ~s[1],
            lambda s: (_searched(system, last_effort, s[0]), jnp.ones((), bool)),
            tried,
        )
    return unflatten(end.found), ~end.inaccurate


def _searched(system: _System, effort: Effort, start: _Solution) -> _Solution:
    """The solution after the passes of an effort, or fewer where they do."""
    nothing = jnp.zeros((effort.stored, *start.defect.shape), start.defect.dtype)

    def unfinished(k: Array, s: _State) -> Array:
        return (k < effort.passes) & s.so_far.inaccurate

    advance = partial(_improved, system, effort)
    return in_step(unfinished, advance, _State(start, nothing, nothing)).so_far


def _improved(system: _System, effort: Effort, k: Array, s: _State) -> _State:
    """The state after one more pass."""
    known, stacks = jnp.minimum(k, effort.stored), (s.directions, s.images)
    old, pair = s.so_far, system.correction(s.so_far.defect)
    direction, image = compact(_orthogonal)(known, *stacks, *pair)
    square = jnp.sum(image * image, axis=0)
    scale = jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)
    direction, image = scale * direction, scale * image
    length, place = jnp.sum(image * old.defect, axis=0), k % effort.stored
    found = jnp.where(old.inaccurate, old.found + length * direction, old.found)
    defect = jnp.where(old.inaccurate, old.defect - length * image, old.defect)
    stored = (_stored(stack, place, v) for stack, v in zip(stacks, (direction, image), strict=True))
    return _State(system.judged(found, defect), *stored)


def _orthogonal(
    known: Array, directions: Array, images: Array, direction: Columns, image: Columns
) -> tuple[Columns, Columns]:
    """A direction and its image, made orthogonal to the first `known` images."""

    def without(k: Array, pair: tuple[Columns, Columns]) -> tuple[Columns, Columns]:
        direction, image = pair
        before = entry(images, k)
        overlap = jnp.sum(before * image, axis=0)
        return direction - overlap * entry(directions, k), image - overlap * before

    return jax.lax.fori_loop(0, known, without, (direction, image))


def _stored(stack: Array, k: Array, value: Columns) -> Array:
    """`stack` with `value` in place `k`."""
    if not in_kernel():
        return jax.lax.dynamic_update_index_in_dim(stack, value, k, 0)
    # A batch of updates in place would be a scatter, which no kernel may contain.
    return jnp.where((jnp.arange(len(stack), dtype=k.dtype) == k)[:, None, None], value, stack)


def _flattened(tree: Tree) -> tuple[Columns, Callable[[Columns], Tree]]:
    leaves, structure = jax.tree.flatten(tree)
    columns = leaves[0].shape[-1]
    cuts = np.cumsum([leaf.size // columns for leaf in leaves])[:-1]

    def unflatten(flat: Columns) -> Tree:
        parts = zip(jnp.split(flat, cuts), leaves, strict=True)
        return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts])

    rows = [leaf.reshape(-1, columns) for leaf in leaves]
    return jnp.concatenate(materialized(rows)), unflatten
