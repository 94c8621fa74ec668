"""From a scene to the problem of one step: pieces and contacts, batched by kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from silico_py import broad_phase, friction, homotopies
from silico_py.broad_phase import Candidates, Limits
from silico_py.collision_program import SlackMap, pair_length
from silico_py.common_form import common
from silico_py.contact import (
    Contact,
    Formulation,
    Pair,
    Side,
    ease,
    flies,
    leeway,
    lighter,
    next_power_of_two,
    parting_speed,
    seen_from,
    slip_unit,
)
from silico_py.integrator import Motion, dynamics, row_scale
from silico_py.primitives._rotation import orientation_matrix
from silico_py.scene import Scene
from silico_py.solver import CellGroup, Problem, Variables
from silico_py.solver.dense import accumulate, safe_norm, taken
from silico_py.solver.rows import each

WORLD = -1  # body index of what is fixed
# Rows of a slack up to which all kinds of shapes are one. With fewer a scene has more kinds of
# pairs and compiles longer, with more every contact has the rows of large polytopes.
SMALL = 16
# Units of speed with which bodies may part, or are pressed, before it is doubled: in a unit that
# does not grow, heavy loads took a thousand iterations or failed.
LARGE = 5.0


Kind = Hashable  # of pieces: what they have in common, so that they can be stacked
Places = dict[tuple[int, int], tuple[Kind, int]]  # of (body, piece): its kind, its row among these


PairOrContact = TypeVar("PairOrContact", Pair, Contact)


class Batch(NamedTuple, Generic[PairOrContact]):
    """Pairs of one kind, same shapes' structure and number of bodies, or the contacts of these."""

    indices: np.ndarray  # positions in scene.pairs
    nodes: np.ndarray  # (pairs, arity) body indices
    contacts: PairOrContact  # stacked, each as seen from its first body
    anchors: Float[Array, "contacts 3"]  # from where they are seen, world [m]
    candidates: Candidates | None  # where they are only the nearest of the pairs

    @property
    def touched(self) -> np.ndarray | Array:
        """(contacts, arity) body indices."""
        return self.nodes if self.candidates is None else self.candidates.touched


class PieceBatch(NamedTuple):
    """Pieces of one kind, bodies' or fixed, without their motion."""

    bodies: np.ndarray  # body indices, or WORLD
    sides: Side  # stacked

    @property
    def fixed(self) -> bool:
        """Whether they are fixed in the world."""
        return bool(self.bodies[0] == WORLD)

    def chosen(self, rows: np.ndarray | Array, motions: Motion) -> Side:
        """Some of the pieces with the motion of their bodies."""
        sides = jax.tree.map(lambda v: taken(v, rows), self.sides)
        if self.fixed:
            return sides
        known = isinstance(rows, np.ndarray)
        bodies = (self.bodies if known else jnp.asarray(self.bodies))[rows]
        return sides._replace(motion=jax.tree.map(lambda v: taken(v, bodies), motions))


class Pairs(NamedTuple):
    """Pairs of pieces of two kinds, by their rows in the two batches."""

    a: PieceBatch
    b: PieceBatch
    rows_a: np.ndarray | Array
    rows_b: np.ndarray | Array
    friction: Float[Array, " pairs"]
    radii: friction.Radii | None

    @property
    def nodes(self) -> np.ndarray:
        """(pairs, arity) body indices."""
        sides = (self.a, self.rows_a), (self.b, self.rows_b)
        return np.stack([piece.bodies[rows] for piece, rows in sides if not piece.fixed], axis=1)

    def most(self, limits: Limits) -> int | None:
        """How many of them become contacts, where they do not all."""
        limit = limits[self.b.fixed]
        return None if limit is None or len(self.rows_a) <= limit else limit

    def chosen(self, which: Int[Array, " contacts"]) -> Pairs:
        """Some of the pairs."""
        own = self.rows_a, self.rows_b, self.friction, self.radii
        return Pairs(self.a, self.b, *jax.tree.map(lambda v: jnp.asarray(v)[which], own))

    def sides(self, motions: Motion) -> tuple[Side, Side]:
        """Both sides, stacked over the pairs."""
        return self.a.chosen(self.rows_a, motions), self.b.chosen(self.rows_b, motions)


def assemble(
    scene: Scene,
    motions: Motion,
    relaxation: Float[Array, ""],
    formulation: Formulation,
    limits: Limits = (None, None),
) -> tuple[Problem, Variables, list[Batch[Contact]]]:
    """The step's problem, its start, and the contacts behind each group of cells.

    Of each kind of pair the nearest become contacts, up to a limit if there is one: that of pairs
    of bodies, or that of bodies with the environment.
    """
    cells, started = [], []
    pieces, where = _pieces(scene)
    batches = _pair_batches(scene, pieces, where, motions, limits)
    speed = _unit_speed(pieces.values()) if batches else jnp.ones((), relaxation.dtype)
    times = _times(batches, motions, speed)
    flying = _with_all(batches, lambda p: flies(p.clearance), motions.mass)
    shallow = _with_all(batches, lambda p: p.clearance > 0, motions.mass)
    for batch in batches:
        contacts = _contacts(batch, relaxation, speed, times, flying, shallow)
        contacts, variables = each(formulation.start)(contacts)
        cells.append(variables)
        started.append(batch._replace(contacts=contacts))
    scale = each(row_scale)(motions, times * speed)
    start = jnp.zeros_like(scale)
    sides = [(batch.contacts.a, batch.contacts.b) for batch in started]
    problem = Problem(
        node_residual=dynamics,
        node_data=motions,
        groups=tuple(_cell_group(batch, formulation) for batch in started),
        node_scale=scale,
        homotopies=(homotopies.shorter, homotopies.calmer),
        first_share=homotopies.first_share(sides),
    )
    return problem, Variables.of(start, cells), started


def _cell_group(batch: Batch[Contact], formulation: Formulation) -> CellGroup:
    """The contacts of a batch, begun by the formulation, as cells of the problem."""
    contacts = batch.contacts
    cone = formulation.cone(contacts.a.shape, contacts.b.shape, contacts.radii)
    return CellGroup(
        cone=cone,
        nodes=batch.touched,
        function=formulation.rows,
        data=contacts,
        split=friction.first_row(cone.dim, contacts.radii),
        jacobian=formulation.jacobian,
        ease=ease,
        prepare=formulation.prepare,
        fusible=formulation.fusible,
        graph=None if batch.candidates is None else batch.nodes,
        shares=friction.shares(cone.dim, contacts.radii, contacts.leeway),
    )


def pair_batches(scene: Scene, motions: Motion, limits: Limits = (None, None)) -> list[Batch[Pair]]:
    """The scene's pairs, or the nearest of them, grouped so that each kind compiles once."""
    return _pair_batches(scene, *_pieces(scene), motions, limits)


def kinds_of(scene: Scene) -> Iterator[tuple[np.ndarray, Pairs]]:
    """Pairs of the scene, those of one kind together, with their positions in `scene.pairs`."""
    return _kinds(scene, *_pieces(scene))


def _kinds(
    scene: Scene, pieces: dict[Kind, PieceBatch], where: Places
) -> Iterator[tuple[np.ndarray, Pairs]]:
    """For each kind of pair their positions in `scene.pairs`, and the pairs."""
    kinds: dict[tuple[Kind, Kind], list[tuple[int, int, int]]] = {}
    for index, pair in enumerate(scene.pairs):
        kind_a, row_a = where[pair.body_a, pair.piece_a]
        kind_b, row_b = where[WORLD if pair.body_b is None else pair.body_b, pair.piece_b]
        kinds.setdefault((kind_a, kind_b), []).append((index, row_a, row_b))
    for (kind_a, kind_b), members in kinds.items():
        indices, rows_a, rows_b = map(np.array, zip(*members, strict=True))
        own = _of_pairs(scene.friction, indices), _radii_of(scene, indices)
        yield indices, Pairs(pieces[kind_a], pieces[kind_b], rows_a, rows_b, *own)


def _pair_batches(
    scene: Scene, pieces: dict[Kind, PieceBatch], where: Places, motions: Motion, limits: Limits
) -> list[Batch[Pair]]:
    """The pairs of each kind that become contacts."""
    batches = []
    for indices, pairs in _kinds(scene, pieces, where):
        nodes, most = pairs.nodes, pairs.most(limits)
        candidates = None
        if most is not None:
            candidates = broad_phase.nearest(nodes, *pairs.sides(motions), most)
            pairs = pairs.chosen(candidates.chosen)
        batches.append(Batch(indices, nodes, *_seen(pairs, motions), candidates))
    return batches


def _seen(pairs: Pairs, motions: Motion) -> tuple[Pair, Float[Array, "contacts 3"]]:
    """The pairs, and the points from which they are seen: far from the origin positions would be
    rounded."""
    a, b = pairs.sides(motions)
    anchors = jax.lax.stop_gradient(a.motion.position)
    a, b = (each(seen_from)(side, anchors) for side in (a, b))
    length = each(pair_length)(a.shape, b.shape)
    a, b = (
        side._replace(map=each(SlackMap.in_pair)(side.map, side.shape, length)) for side in (a, b)
    )
    clearance = each(broad_phase.clearance)(a, b)
    return Pair(a, b, pairs.friction, pairs.radii, length, clearance), anchors


def _contacts(
    batch: Batch[Pair],
    relaxation: Float[Array, ""],
    speed: Float[Array, ""],
    times: Float[Array, " n"],
    flying: Bool[Array, " n"],
    shallow: Bool[Array, " n"],
) -> Contact:
    """Contacts of the pairs, in the larger of the units of their two bodies, `times` that of the
    scene: what a body is pressed into is measured like it."""
    a, b, coefficient, radii, length, clearance = batch.contacts
    speed = speed * jnp.max(taken(times, batch.touched), axis=1)
    slip, one = each(slip_unit)(a, b, speed), jnp.ones_like(length)
    acting = None if batch.candidates is None else batch.candidates.acting
    impulse = speed * each(lighter)(a, b)
    return Contact(
        a=a,
        b=b,
        friction=coefficient,
        radii=radii,
        relaxation=jnp.broadcast_to(relaxation, length.shape),
        impulse=impulse if acting is None else acting * impulse,
        moment=one,
        length=length,
        speed=speed,
        slip=slip,
        least_alpha=one if acting is None else broad_phase.least_alpha(acting),
        clearance=clearance,
        in_flight=jnp.all(taken(flying, batch.touched), axis=1),
        shallow=jnp.all(taken(shallow, batch.touched), axis=1),
        leeway=leeway(length, a.motion.timestep, slip),
        origin=jnp.zeros_like(a.position),
        slack_unit=one,
    )


def _with_all(
    batches: list[Batch[Pair]], holds: Callable[[Pair], Array], mass: Float[Array, " n"]
) -> Bool[Array, " n"]:
    """For which bodies something holds with all that they may touch."""
    return _of_bodies(batches, lambda p: jnp.where(holds(p), 0.0, 1.0), mass) == 0


def _of_bodies(
    batches: list[Batch[Pair]], number: Callable[[Pair], Array], mass: Float[Array, " n"]
) -> Float[Array, " n"]:
    """A number of each pair, summed over those of each body."""
    total = jnp.zeros_like(mass)
    for batch in batches:
        values = jnp.broadcast_to(number(batch.contacts)[:, None], batch.touched.shape)
        total += accumulate(values.reshape(-1), batch.touched.reshape(-1), len(mass))
    return total


def _times(
    batches: list[Batch[Pair]], motions: Motion, speed: Float[Array, ""]
) -> Float[Array, " n"]:
    """How many times larger the unit of speed is for each body: those that overlap have to part,
    and those that are pressed have to be held.

    In a small unit impulses would be far from their start.
    """
    parting = _of_bodies(batches, lambda p: each(parting_speed)(p.a, p.b), motions.mass)
    pressed = motions.timestep * safe_norm(motions.force) / motions.mass
    return next_power_of_two(jnp.maximum(parting, pressed) / (LARGE * speed))


def _pieces(scene: Scene) -> tuple[dict[Kind, PieceBatch], Places]:
    """All convex pieces by kind, and where (body, piece) stands: (kind, row)."""
    found: dict[Kind, list[tuple[int, Any, Array, Array]]] = {}
    where: Places = {}

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
    batches: dict[Kind, PieceBatch], where: Places
) -> tuple[dict[Kind, PieceBatch], Places]:
    """Kinds whose slacks have about as many rows as one kind, see `common_form`."""
    alike: dict[Kind, list[Kind]] = {}
    for kind, batch in batches.items():
        shape = batch.sides.shape
        size = max(SMALL, 1 << (shape.cone.dim - 1).bit_length()) if shape.scaled else kind
        alike.setdefault((batch.fixed, size), []).append(kind)
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
    maps = each(SlackMap.of)(shapes)
    turns = orientation_matrix(orientations)
    return PieceBatch(np.array(bodies), Side(shapes, maps, positions, turns, None))


def _unit_speed(pieces: Iterable[PieceBatch]) -> Float[Array, ""]:
    """1 m/s, times the root of the smallest shape's size in metres where that is more than one.

    A body that falls over its own size ends at a speed that grows with the root of it: impulses
    and slips of large bodies would be far from their start. The smallest counts, for what moves a
    large body by a share of its size moves a small one on it by many of its own.
    """
    shapes = [batch.sides.shape for batch in pieces if batch.sides.shape.scaled]
    sizes = [jnp.min(each(lambda shape: shape.characteristic_length)(s)) for s in shapes]
    return jnp.sqrt(jnp.maximum(1, jnp.min(jnp.stack(sizes))))


def _radii_of(scene: Scene, pairs: np.ndarray) -> friction.Radii | None:
    """Radii of some of the scene's pairs; none where no friction resists turns."""
    if scene.torsional_radius is None and scene.rolling_radius is None:
        return None
    nothing = jnp.zeros_like(scene.timestep)
    radii = (nothing if r is None else r for r in (scene.torsional_radius, scene.rolling_radius))
    return friction.Radii(*(_of_pairs(r, pairs) for r in radii))


def _of_pairs(value: Float[Array, "*contacts"], pairs: np.ndarray) -> Float[Array, " pairs"]:
    """Values of some of the scene's pairs, one for all or one for each."""
    return value[pairs] if jnp.ndim(value) else jnp.broadcast_to(value, pairs.shape)
