"""Distances of the shapes of contacts."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py.assembly import kinds_of
from silico_py.collision_program import gap_across
from silico_py.compilation import jitted
from silico_py.contact import Side, current, seen_from
from silico_py.mechanics import unforced
from silico_py.one_step import ContactInfo
from silico_py.scene import Scene, State, check_state
from silico_py.solver.rows import each
from silico_py.validation import vector


def gaps(scene: Scene, state: State, contacts: ContactInfo) -> Float[Array, " contacts"]:
    """How far apart the shapes of each contact are after a step [m], negative where they overlap.

    It is the distance of the two planes across the contact's normal that touch the shapes from
    between them: that of the shapes is at least as much, see `Collision.gap`.

    Args:
        scene: the scene.
        state: after the step; map over a trajectory with `jax.vmap`.
        contacts: of the step, `info.contacts`; their normals count.

    Raises:
        ValueError: for a state or contacts that do not fit the scene.
    """
    check_state(scene, state)
    if not isinstance(contacts, ContactInfo):
        kind = type(contacts).__name__
        raise ValueError(f"contacts: expected `info.contacts` of a step, got {kind}")
    return _gaps(scene, state, vector("contacts: normal", contacts.normal, len(scene.pairs), 3))


@jitted
def _gaps(
    scene: Scene, state: State, normal: Float[Array, "contacts 3"]
) -> Float[Array, " contacts"]:
    motions, found = unforced(scene, state), jnp.zeros_like(normal[:, 0])
    for indices, pairs in kinds_of(scene):
        own = each(_gap)(*pairs.sides(motions), normal[indices])
        found = found.at[indices].set(own)
    return found


def _gap(a: Side, b: Side, normal: Float[Array, "3"]) -> Float[Array, ""]:
    assert a.motion is not None  # only b may be fixed
    anchor = a.motion.position  # far from the origin positions would be rounded
    a, b = (seen_from(side, anchor) for side in (a, b))
    return gap_across(current(a), current(b), normal)
