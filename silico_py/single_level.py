"""One time step as a single relaxed complementarity problem (eq. 20 of the paper, in 3D)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py import friction, rotation
from silico_py.collision import SlackMap, pair_length
from silico_py.contact import Contact, Side, contact_cone, contact_rows, ease, start_contact
from silico_py.contact_jacobian import contact_jacobian
from silico_py.integrator import Motion, dynamics
from silico_py.scene import ContactPair, Scene
from silico_py.solver import CellGroup, Problem, Variables


class ContactBatch(NamedTuple):
    """Contacts of one kind of pair: same shapes' structure, same number of bodies."""

    indices: np.ndarray  # positions in scene.pairs
    nodes: np.ndarray  # (contacts, arity) body indices
    contacts: Contact  # stacked


def batches(scene: Scene, motions: Motion, relaxation: Float[Array, ""]) -> list[ContactBatch]:
    """Group the scene's pairs so that each kind compiles once."""
    kinds: dict[Hashable, list[tuple[int, list[int], Contact]]] = {}
    for index, pair in enumerate(scene.pairs):
        contact = _contact(scene, motions, pair, relaxation)
        key = (jax.tree.structure(contact), tuple(np.shape(v) for v in jax.tree.leaves(contact)))
        nodes = [pair.body_a] if pair.body_b is None else [pair.body_a, pair.body_b]
        kinds.setdefault(key, []).append((index, nodes, contact))
    return [
        ContactBatch(
            np.array([index for index, _, _ in members]),
            np.array([nodes for _, nodes, _ in members]),
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *(c for _, _, c in members)),
        )
        for members in kinds.values()
    ]


def _contact(
    scene: Scene, motions: Motion, pair: ContactPair, relaxation: Float[Array, ""]
) -> Contact:
    a = _body_side(scene, motions, pair.body_a, pair.piece_a)
    mass = scene.bodies[pair.body_a].mass
    if pair.body_b is None:
        fixture = scene.environment[pair.piece_b]
        turn = rotation.matrix(fixture.orientation)
        b = Side(fixture.shape, SlackMap.of(fixture.shape), fixture.position, turn, None)
    else:
        b = _body_side(scene, motions, pair.body_b, pair.piece_b)
        mass = jnp.minimum(mass, scene.bodies[pair.body_b].mass)
    length = pair_length(a.shape, b.shape)
    return Contact(a, b, scene.friction, relaxation, mass, length, jnp.zeros_like(a.position))


def _body_side(scene: Scene, motions: Motion, body: int, piece: int) -> Side:
    shape, position, orientation = scene.bodies[body].pieces[piece]
    offset = position - scene.bodies[body].center_of_mass
    motion = jax.tree.map(lambda v: v[body], motions)
    return Side(shape, SlackMap.of(shape), offset, rotation.matrix(orientation), motion)


def assemble(
    scene: Scene, motions: Motion, relaxation: Float[Array, ""]
) -> tuple[Problem, Variables, list[ContactBatch]]:
    """The step's problem, its start, and the contacts behind each group of cells."""
    found = batches(scene, motions, relaxation)
    groups, cells, started = [], [], []
    for batch in found:
        contacts, variables = jax.vmap(start_contact)(batch.contacts)
        a, b = batch.contacts.a.shape, batch.contacts.b.shape
        cone = contact_cone(a, b)
        groups.append(
            CellGroup(
                cone=cone,
                nodes=batch.nodes,
                function=contact_rows,
                data=contacts,
                split=cone.dim - friction.CONE.dim,
                jacobian=contact_jacobian,
                ease=ease,
            )
        )
        cells.append(variables)
        started.append(batch._replace(contacts=contacts))
    gyration = jnp.sqrt(jnp.trace(motions.inertia, axis1=-2, axis2=-1) / 3 / motions.mass)
    scale = motions.mass[:, None] * jnp.ones(3, gyration.dtype)
    scale = jnp.concatenate([scale, scale * gyration[:, None]], axis=-1)
    start = jnp.zeros((len(scene.bodies), 6), gyration.dtype)
    return Problem(dynamics, motions, tuple(groups), scale), Variables(start, tuple(cells)), started
