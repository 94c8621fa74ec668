"""From a scene to the problem of one step: pieces and contacts, batched by kind."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py import friction, rotation
from silico_py.collision_program import SlackMap, pair_length
from silico_py.common_form import common
from silico_py.contact import Contact, Formulation, Side, ease
from silico_py.integrator import Motion, dynamics, row_scale
from silico_py.scene import Scene
from silico_py.solver import CellGroup, Problem, Variables

WORLD = -1  # body index of what is fixed
SMALL = 16  # rows of a slack up to which all kinds of shapes are one


class ContactBatch(NamedTuple):
    """Contacts of one kind of pair: same shapes' structure, same number of bodies."""

    indices: np.ndarray  # positions in scene.pairs
    nodes: np.ndarray  # (contacts, arity) body indices
    contacts: Contact  # stacked


class PieceBatch(NamedTuple):
    """Pieces of one kind, bodies' or fixed, without their motion."""

    bodies: np.ndarray  # body indices, or WORLD
    sides: Side  # stacked


def assemble(
    scene: Scene, motions: Motion, relaxation: Float[Array, ""], formulation: Formulation
) -> tuple[Problem, Variables, list[ContactBatch]]:
    """The step's problem, its start, and the contacts behind each group of cells."""
    groups, cells, started = [], [], []
    for batch in contact_batches(scene, motions, relaxation):
        contacts, variables = jax.vmap(formulation.start)(batch.contacts)
        cone = formulation.cone(batch.contacts.a.shape, batch.contacts.b.shape)
        groups.append(
            CellGroup(
                cone=cone,
                nodes=batch.nodes,
                function=formulation.rows,
                data=contacts,
                split=cone.dim - friction.CONE.dim,
                jacobian=formulation.jacobian,
                ease=ease,
                prepare=formulation.prepare,
                fusible=formulation.fusible,
            )
        )
        cells.append(variables)
        started.append(batch._replace(contacts=contacts))
    scale = jax.vmap(row_scale)(motions)
    start = jnp.zeros_like(scale)
    problem = Problem(dynamics, motions, tuple(groups), scale, homotopy=shorter)
    return problem, Variables(start, tuple(cells)), started


def shorter(data: Any, share: Float[Array, ""]) -> Any:
    """The data of the same step with a share of its duration: the less moves, the less can hit."""

    def shorten(part: Any) -> Any:
        is_motion = isinstance(part, Motion)
        return part._replace(timestep=share * part.timestep) if is_motion else part

    return jax.tree.map(shorten, data, is_leaf=lambda part: isinstance(part, Motion))


def contact_batches(
    scene: Scene, motions: Motion, relaxation: Float[Array, ""]
) -> list[ContactBatch]:
    """Group the scene's pairs so that each kind compiles once."""
    pieces, where = _pieces(scene)
    kinds: dict[Hashable, list[tuple[int, int, int]]] = {}
    for index, pair in enumerate(scene.pairs):
        kind_a, row_a = where[pair.body_a, pair.piece_a]
        kind_b, row_b = where[WORLD if pair.body_b is None else pair.body_b, pair.piece_b]
        kinds.setdefault((kind_a, kind_b), []).append((index, row_a, row_b))
    batches = []
    for (kind_a, kind_b), members in kinds.items():
        indices, rows_a, rows_b = map(np.array, zip(*members, strict=True))
        nodes, a = _chosen(pieces[kind_a], rows_a, motions)
        nodes_b, b = _chosen(pieces[kind_b], rows_b, motions)
        if b.motion is not None:
            nodes = np.concatenate([nodes, nodes_b], axis=1)
        contacts = _contacts(scene, motions, nodes, a, b, relaxation)
        batches.append(ContactBatch(indices, nodes, contacts))
    return batches


def _pieces(scene: Scene) -> tuple[dict[Hashable, PieceBatch], dict]:
    """All convex pieces by kind, and where (body, piece) stands: (kind, row)."""
    found: dict[Hashable, list[tuple[int, Any, Array, Array]]] = {}
    where: dict[tuple[int, int], tuple[Hashable, int]] = {}

    def add(body: int, number: int, shape: Any, position: Array, orientation: Array) -> None:
        sizes = tuple(np.shape(v) for v in jax.tree.leaves(shape))
        kind = (body == WORLD, jax.tree.structure(shape), sizes)
        members = found.setdefault(kind, [])
        where[body, number] = kind, len(members)
        members.append((body, shape, position, orientation))

    for k, body in enumerate(scene.bodies):
        for number, (shape, position, orientation) in enumerate(body.pieces):
            add(k, number, shape, position - body.center_of_mass, orientation)
    for number, fixture in enumerate(scene.environment):
        add(WORLD, number, fixture.shape, fixture.position, fixture.orientation)
    batches = {kind: _stacked(members) for kind, members in found.items()}
    return _merged(batches, where)


def _merged(
    batches: dict[Hashable, PieceBatch], where: dict
) -> tuple[dict[Hashable, PieceBatch], dict]:
    """Kinds of similar size as one."""
    alike: dict[Hashable, list[Hashable]] = {}
    for kind, batch in batches.items():
        shape = batch.sides.shape
        size = max(SMALL, 1 << (shape.cone.dim - 1).bit_length()) if shape.scaled else kind
        alike.setdefault((bool(batch.bodies[0] == WORLD), size), []).append(kind)
    merged, moved = {}, {}
    for key, kinds in alike.items():
        members = [batches[kind] for kind in kinds]
        merged[key] = _joined(members) if len(members) > 1 else members[0]
        start = 0
        for kind, batch in zip(kinds, members, strict=True):
            moved[kind] = key, start
            start += len(batch.bodies)
    there = {}
    for place, (kind, row) in where.items():
        key, start = moved[kind]
        there[place] = key, start + row
    return merged, there


def _joined(batches: list[PieceBatch]) -> PieceBatch:
    sides = [batch.sides for batch in batches]
    shape, maps = common([side.shape for side in sides])
    position, turn = (
        jnp.concatenate([getattr(side, name) for side in sides])
        for name in ("position", "rotation")
    )
    bodies = np.concatenate([batch.bodies for batch in batches])
    return PieceBatch(bodies, Side(shape, maps, position, turn, None))


def _stacked(members: list[tuple[int, Any, Array, Array]]) -> PieceBatch:
    bodies, *parts = zip(*members, strict=True)
    shapes, positions, orientations = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *part) for part in parts
    )
    maps = jax.vmap(SlackMap.of)(shapes)
    return PieceBatch(
        np.array(bodies), Side(shapes, maps, positions, rotation.matrix(orientations), None)
    )


def _chosen(batch: PieceBatch, rows: np.ndarray, motions: Motion) -> tuple[np.ndarray, Side]:
    """Some pieces of a kind with the motion of their bodies."""
    bodies = batch.bodies[rows]
    sides = jax.tree.map(lambda v: v[rows], batch.sides)
    if bodies[0] != WORLD:
        sides = sides._replace(motion=jax.tree.map(lambda v: v[bodies], motions))
    return bodies[:, None], sides


def _contacts(
    scene: Scene, motions: Motion, nodes: np.ndarray, a: Side, b: Side, relaxation: Array
) -> Contact:
    shared = (scene.friction, relaxation)
    friction_, relaxation = (jnp.broadcast_to(v, (len(nodes),)) for v in shared)
    mass = jnp.min(motions.mass[nodes], axis=1)
    length = jax.vmap(pair_length)(a.shape, b.shape)
    a, b = (
        side._replace(map=jax.vmap(SlackMap.in_pair)(side.map, side.shape, length))
        for side in (a, b)
    )
    origin, distance = jnp.zeros_like(a.position), jnp.ones_like(length)
    return Contact(a, b, friction_, relaxation, mass, length, origin, distance)
