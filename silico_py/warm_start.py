"""The guess that a step leaves for the next one.

The polynomial through the last solutions predicts the next one: a body in flight gains the same
velocity in each step, and its contacts move on alike. After an impact the last solution alone is
closer, so the search is given all orders to choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from silico_py import friction
from silico_py.assembly import Batch, Pairs
from silico_py.broad_phase import Limits
from silico_py.contact import Contact, Formulation
from silico_py.solver import CellVariables, Guess, Variables

ORDER = 2  # of the polynomial, at most
OTHER = (
    "guess: belongs to another scene, or to options with another method, gradient_relaxation or "
    "max_contacts; begin with sp.no_guess(scene, state, options)"
)


class Remembered(NamedTuple):
    """The guess that a step leaves for the next one: the last solutions and their contacts.

    It is handed on as it is: from `no_guess` or `Info.guess` to `step`, `rollout` or `linearize`.

    Attributes:
        differences: backward differences along a leading axis: the last solution, its change from
            the one before, and the change of that. Each is what the sum of those before missed.
            Slacks of friction are in m/s.
        usable: whether there are any.
        chosen: of each batch of contacts the pairs they are, where only the nearest are taken.
    """

    differences: Variables
    usable: Bool[Array, ""]
    chosen: tuple[Int[Array, " contacts"] | None, ...]

    @property
    def predictions(self) -> Variables:
        """The next solution as each order predicts it, along a leading axis."""
        return jax.tree.map(lambda v: jnp.stack(list(accumulate(v))), self.differences)


def nothing(
    n: int, kinds: Sequence[Pairs], formulation: Formulation, limits: Limits, dtype: jnp.dtype
) -> Remembered:
    """What is remembered before the first step of n bodies with pairs of these kinds."""
    zeros = partial(jnp.zeros, dtype=dtype)
    cells, chosen = [], []
    for pairs in kinds:
        most, shapes = pairs.most(limits), (pairs.a.sides.shape, pairs.b.sides.shape)
        nx, dim = formulation.primals(*shapes), formulation.cone(*shapes, pairs.radii).dim
        m = len(pairs.rows_a) if most is None else most
        cells.append(CellVariables(*(zeros((ORDER + 1, m, k)) for k in (nx, dim, dim))))
        chosen.append(None if most is None else jnp.zeros(most, np.int32))
    differences = Variables.of(zeros((ORDER + 1, n, 6)), cells)
    return Remembered(differences, jnp.zeros((), bool), tuple(chosen))


def remember(
    solution: Variables,
    usable: Bool[Array, ""],
    batches: list[Batch[Contact]],
    before: Remembered | None = None,
) -> Remembered:
    """A solution for the contacts of these batches, after `before` for the same contacts."""
    chosen = tuple(None if b.candidates is None else b.candidates.chosen for b in batches)
    differences = _with_slip(_differences(solution, before), batches, jnp.multiply)
    return Remembered(differences, usable, chosen)


def _differences(solution: Variables, before: Remembered | None) -> Variables:
    """Backward differences that end with a solution."""
    if before is None:
        return jax.tree.map(_alone, solution)

    def missed(value: Array, said: Array) -> Array:
        others = jnp.where(before.usable, value - said[:-1], 0)
        return jnp.concatenate([value[None], others])

    return jax.tree.map(missed, solution, before.predictions)


def _alone(value: Float[Array, "*shape"]) -> Float[Array, "orders *shape"]:
    """Differences of a value with none before."""
    return jnp.concatenate([value[None], jnp.zeros((ORDER, *value.shape), value.dtype)])


def check_guess(guess: object) -> None:
    """Refuse what is neither a guess nor None.

    Raises:
        ValueError: for anything else.
    """
    if not (guess is None or isinstance(guess, Remembered)):
        raise ValueError(f"guess: expected `info.guess` of a step, got {type(guess).__name__}")


def recall(
    remembered: Remembered | None, start: Variables, batches: list[Batch[Contact]]
) -> Remembered | None:
    """What was remembered, for the contacts of a step with these batches that starts at `start`.

    Raises:
        ValueError: for what was remembered of another scene, or with other options.
    """
    if remembered is None:
        return None
    if not _fits(remembered, start, batches):
        raise ValueError(OTHER)
    before, start = remembered.differences, _with_slip(start, batches, jnp.multiply)
    parts = zip(before.cells, start.cells, remembered.chosen, batches, strict=True)
    cells = tuple(
        cell if batch.candidates is None else _matched(cell, first, then, batch.candidates.chosen)
        for cell, first, then, batch in parts
    )
    matched = Variables.of(before.y, cells)
    return remembered._replace(differences=_with_slip(matched, batches, jnp.divide))


def guess_of(remembered: Remembered, batches: list[Batch[Contact]]) -> Guess:
    """What was recalled for these batches, as a guess."""
    last = jax.tree.map(lambda v: v[0], remembered.differences)
    # In longer steps the start leads to a solution as soon.
    short = [jnp.any(batch.contacts.leeway > 1) for batch in batches]
    other = Guess(_undirected(last, batches), reduce(jnp.logical_or, short, jnp.zeros((), bool)))
    return Guess(remembered.predictions, remembered.usable, other)


def _undirected(w: Variables, batches: list[Batch[Contact]]) -> Variables:
    """The guess with friction that has no direction: where slip ends or turns round in a step, the
    one before says nothing, and close to a solution there is no room to turn.

    The slip allowed for is what friction can change in a step: both then follow from each other as
    with viscous drag.
    """
    cells = []
    for cell, batch in zip(w.cells, batches, strict=True):
        c = batch.contacts
        cut = friction.first_row(cell.dual.shape[-1], c.radii)
        load = cell.dual[:, cut]
        load = jnp.where(load > 0, load, 1)  # of a guess that is not usable
        psi = jnp.maximum(load * c.speed / c.sliding, c.relaxation / c.leeway / load)
        slack, dual = (
            jnp.concatenate([v[:, :cut], first[:, None], jnp.zeros_like(v[:, cut + 1 :])], axis=1)
            for v, first in ((cell.slack, psi), (cell.dual, load))
        )
        x = jnp.concatenate([cell.x[:, :-1], (psi * c.sliding)[:, None]], axis=1)
        cells.append(CellVariables(x, dual, slack))
    return Variables.of(w.y, tuple(cells))


def _fits(remembered: Remembered, start: Variables, batches: list[Batch[Contact]]) -> bool:
    """Whether each pair may be found: where only the nearest are taken, so they were before."""
    then, now = remembered.differences.layout, start.layout
    if remembered.usable.ndim or then.nodes != now.nodes or len(then.groups) != len(now.groups):
        return False
    for (cells, *own), (count, *wanted), chosen, batch in zip(
        then.groups, now.groups, remembered.chosen, batches, strict=True
    ):
        few = batch.candidates is not None
        if own != wanted or few != (chosen is not None) or not (few or cells == count):
            return False
    return True


def _with_slip(
    w: Variables, batches: list[Batch[Contact]], scaled: Callable[[Array, Array], Array]
) -> Variables:
    """The variables with the slacks of friction taken to m/s, or back: their unit changes with the
    speed."""
    cells = []
    for cell, batch in zip(w.cells, batches, strict=True):
        cut = friction.first_row(cell.slack.shape[-1], batch.contacts.radii)
        rest, slip = jnp.split(cell.slack, [cut], axis=-1)
        slip = scaled(slip, batch.contacts.sliding[:, None])
        cells.append(cell._replace(slack=jnp.concatenate([rest, slip], axis=-1)))
    return Variables.of(w.y, tuple(cells))


def _matched(
    cell: CellVariables,
    first: CellVariables,
    then: Int[Array, " contacts"] | None,
    now: Int[Array, " contacts"],
) -> CellVariables:
    """Differences of each pair as they were `then`, or those of its start if it was left out."""
    same = now[:, None] == then
    row, known = jnp.argmax(same, axis=1), jnp.any(same, axis=1)[:, None]
    return jax.tree.map(lambda v, s: jnp.where(known, v[:, row], _alone(s)), cell, first)
