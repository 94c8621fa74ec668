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


class _State(NamedTuple):
    found: Columns
    defect: Columns
    inaccurate: Bool[Array, ""]
    directions: Float[Array, "stored size columns"]
    images: Float[Array, "stored size columns"]  # of the directions, orthonormal in each column


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

    def is_inaccurate(defect: Columns) -> Array:
        return ~jnp.all(jnp.max(jnp.abs(defect), axis=0) <= goal)

    def improve(effort: Effort, k: Array, s: _State) -> _State:
        guess = approximate_inverse(unflatten(s.defect))
        direction, image = _flattened(guess)[0], _flattened(operator(guess))[0]
        known = jnp.minimum(k, effort.stored)
        stacks = (s.directions, s.images)
        direction, image = compact(_orthogonal)(known, *stacks, direction, image)
        square = jnp.sum(image * image, axis=0)
        scale = jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)
        direction, image = scale * direction, scale * image
        length, place = jnp.sum(image * s.defect, axis=0), k % effort.stored
        found = jnp.where(s.inaccurate, s.found + length * direction, s.found)
        defect = jnp.where(s.inaccurate, s.defect - length * image, s.defect)
        return _State(
            found,
            defect,
            is_inaccurate(defect),
            _stored(s.directions, place, direction),
            _stored(s.images, place, image),
        )

    def searched(effort: Effort, found: Columns, defect: Columns) -> _State:
        nothing = jnp.zeros((effort.stored, *flat.shape), flat.dtype)
        start = _State(found, defect, is_inaccurate(defect), nothing, nothing)
        unfinished = lambda k, s: (k < effort.passes) & s.inaccurate  # noqa: E731
        return in_step(unfinished, partial(improve, effort), start)

    end = searched(effort, jnp.zeros_like(flat), flat)
    found, inaccurate = end.found, end.inaccurate
    if last_effort is not None:

        def once(s: tuple[Columns, Columns, Array, Array]) -> tuple[Columns, Columns, Array, Array]:
            more = searched(last_effort, *s[:2])
            return more.found, more.defect, more.inaccurate, jnp.ones((), bool)

        # As a loop, which a batch skips where all are accurate.
        so_far = found, end.defect, inaccurate, ~inaccurate
        found, _, inaccurate, _ = jax.lax.while_loop(lambda s: ~s[3], once, so_far)
    return unflatten(found), ~inaccurate


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
