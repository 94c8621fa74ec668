"""What a step leaves for the next one to be tried from."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from silico_py.assembly import ContactBatch
from silico_py.solver import CellVariables, Guess, Variables


class Remembered(NamedTuple):
    """A solution, and whose contacts it is of.

    Attributes:
        variables: of bodies and contacts.
        usable: whether there is one.
        chosen: of each batch of contacts the pairs they are, where only the nearest are taken.
    """

    variables: Variables
    usable: Bool[Array, ""]
    chosen: tuple[Int[Array, " contacts"] | None, ...]


def remember(
    variables: Variables, usable: Bool[Array, ""], batches: list[ContactBatch]
) -> Remembered:
    """A solution for the contacts of these batches, or several stacked ones."""
    chosen = (None if b.candidates is None else b.candidates.chosen for b in batches)
    copies = usable.shape
    stacked = jax.tree.map(lambda v: jnp.broadcast_to(v, (*copies, *v.shape)), tuple(chosen))
    return Remembered(variables, usable, stacked)


def recall(
    remembered: Remembered | None, start: Variables, batches: list[ContactBatch]
) -> Guess | None:
    """The guess for a step with these batches, which starts at `start`."""
    if remembered is None:
        return None
    parts = zip(remembered.variables.cells, start.cells, remembered.chosen, batches, strict=True)
    cells = tuple(
        cell if batch.candidates is None else _matched(cell, first, then, batch.candidates.chosen)
        for cell, first, then, batch in parts
    )
    return Guess(Variables.of(remembered.variables.y, cells), remembered.usable)


def _matched(
    cell: CellVariables,
    first: CellVariables,
    then: Int[Array, " contacts"] | None,
    now: Int[Array, " contacts"],
) -> CellVariables:
    """Each pair as it was then, or as it starts if it was left out."""
    same = now[:, None] == then
    row, known = jnp.argmax(same, axis=1), jnp.any(same, axis=1)[:, None]
    return jax.tree.map(lambda v, s: jnp.where(known, v[row], s), cell, first)
