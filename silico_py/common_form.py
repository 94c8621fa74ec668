"""Several kinds of convex shapes in one cone, so that their contacts are one batch.

A step compiles for as long as it has kinds of pairs, however many contacts each of them has:
pieces of a few kinds are therefore written in the smallest cone that holds all of their slacks.
Rows that a kind lacks have the constant slack 1, or e, and duals that vanish with the relaxation;
auxiliaries that it lacks are held at zero. Solutions are the same as in its own cone.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from silico_py.collision_program import SlackMap
from silico_py.primitives import ConvexShape, pytree_dataclass, static
from silico_py.solver import ProductCone
from silico_py.solver.cones import ORTHANT
from silico_py.solver.rows import each


class Form(NamedTuple):
    """What the slack of a shape needs, at least."""

    orthant: int  # rows
    second_order: tuple[int, ...]  # sizes, largest first
    n_aux: int

    @classmethod
    def of(cls, shape: ConvexShape) -> Form:
        """Just what this shape needs."""
        rows, sizes = split(shape.cone)
        return cls(len(rows), tuple(map(len, sizes)), shape.n_aux)

    def __or__(self, other: Form) -> Form:
        """What both need."""
        pairs = zip_longest(self.second_order, other.second_order, fillvalue=0)
        return Form(
            max(self.orthant, other.orthant),
            tuple(max(pair) for pair in pairs),
            max(self.n_aux, other.n_aux),
        )

    @property
    def cone(self) -> ProductCone:
        """The cone that holds such a slack, its orthant first."""
        return sum(
            map(ProductCone.second_order, self.second_order), ProductCone.orthant(self.orthant)
        )

    def rows_of(self, cone: ProductCone) -> np.ndarray:
        """Where the rows of a smaller cone stand."""
        own_rows, own_sizes = split(cone)
        rows, sizes = split(self.cone)
        places = np.empty(cone.dim, int)
        for own, there in zip([own_rows, *own_sizes], [rows, *sizes], strict=False):
            places[own] = there[: len(own)]
        return places


def split(cone: ProductCone) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rows of the orthants, and of each second-order cone, largest first."""
    every = np.arange(cone.dim)
    orthant = [every[part] for kind, part in cone.slices() if kind == ORTHANT]
    others = [every[part] for kind, part in cone.slices() if kind != ORTHANT]
    return np.concatenate([every[:0], *orthant]), sorted(others, key=len, reverse=True)


@pytree_dataclass
class CommonShape:
    """A shape of one of several kinds: what a collision program asks of it.

    Attributes:
        characteristic_length: as of the shape [m].
        reference: as of the shape [m].
        usual_excess: as of the shape.
        which: number of its kind.
        members: a shape of each kind; itself at its kind's place.
        form: of the slack.
    """

    characteristic_length: Float[Array, ""]
    reference: Float[Array, "3"]
    usual_excess: Float[Array, ""]
    which: Int[Array, ""]
    members: tuple[ConvexShape, ...]
    form: Form = static()

    scaled: ClassVar[bool] = True

    @property
    def cone(self) -> ProductCone:
        """The cone of the slack."""
        return self.form.cone

    @property
    def n_aux(self) -> int:
        """Number of auxiliaries, those held at zero included."""
        return self.form.n_aux

    def interior(self, x: Float[Array, "3"]) -> tuple[Array, Float[Array, " n_aux"]]:
        """As of the member that this shape is."""
        bound, eps = jnp.zeros_like(self.characteristic_length), jnp.zeros(self.n_aux, x.dtype)
        for k, member in enumerate(self.members):
            here = self.which == k
            own_bound, own_eps = member.interior(x)
            bound = jnp.where(here, own_bound, bound)
            eps = jnp.where(here, jnp.pad(own_eps, (0, self.n_aux - member.n_aux)), eps)
        return bound, eps

    def support(self, direction: Float[Array, "3"]) -> Float[Array, "3"]:
        """As of the member that this shape is."""
        point = jnp.zeros(3, direction.dtype)
        for k, member in enumerate(self.members):
            point = jnp.where(self.which == k, member.support(direction), point)
        return point


def common(shapes: Sequence[ConvexShape]) -> tuple[CommonShape, SlackMap]:
    """Shapes of several kinds, one batch a kind, as one batch, with the maps of their slacks."""
    form = reduce(operator.or_, map(Form.of, shapes))
    counts = [len(jax.tree.leaves(batch)[0]) for batch in shapes]
    which = np.repeat(np.arange(len(shapes)), counts)
    members = tuple(_slots(batch, which == k) for k, batch in enumerate(shapes))
    kinds = [_in_form(batch, form) for batch in shapes]
    maps, facts = jax.tree.map(lambda *parts: jnp.concatenate(parts), *kinds)
    length, reference, excess = facts
    return CommonShape(length, reference, excess, jnp.asarray(which), members, form=form), maps


def _slots(batch: ConvexShape, own: np.ndarray) -> ConvexShape:
    """A shape of this kind for each piece, its own where it has one, else the first."""
    rows = np.where(own, np.cumsum(own) - 1, 0)
    return jax.tree.map(lambda v: v[rows], batch)


def _in_form(batch: ConvexShape, form: Form) -> tuple[SlackMap, tuple[Array, Array, Array]]:
    """Maps of one kind in a larger form; length, reference and usual excess of each shape."""
    rows, free = form.rows_of(batch.cone), np.arange(form.n_aux) >= batch.n_aux

    def one(shape: ConvexShape) -> tuple[SlackMap, tuple[Array, Array, Array]]:
        m, length = SlackMap.of(shape), shape.characteristic_length
        wide = jnp.pad(m.to_eps, ((0, 0), (0, form.n_aux - shape.n_aux)))
        placed = SlackMap(
            constant=form.cone.identity(length.dtype).at[rows].set(m.constant),
            to_x=_placed(m.to_x, rows, form),
            to_alpha=_placed(m.to_alpha, rows, form),
            to_eps=_placed(wide, rows, form),
            growth=m.growth,
            held=jnp.asarray(free, length.dtype),
        )
        return placed, (length, shape.reference, jnp.full_like(length, shape.usual_excess))

    return each(one)(batch)


def _placed(values: Array, rows: np.ndarray, form: Form) -> Array:
    return jnp.zeros((form.cone.dim, *values.shape[1:]), values.dtype).at[rows].set(values)
