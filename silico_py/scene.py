"""Scenes and states."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, chain, pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.body import Body
from silico_py.primitives import (
    Bundle,
    ConvexShape,
    assign,
    pytree,
    pytree_dataclass,
    static,
)
from silico_py.primitives._base import described
from silico_py.primitives._checks import Orientation, check_unit, several
from silico_py.primitives._rotation import IDENTITY
from silico_py.primitives.bundle import Placement, placement
from silico_py.validation import is_count, not_negative, number, quaternions, vector


@pytree_dataclass
class State:
    """Poses and velocities of n bodies.

    Attributes:
        position: (n, 3) origin of each body frame, world [m].
        orientation: (n, 4) unit quaternions (w, x, y, z), body to world.
        velocity: (n, 3) of the origin of each body frame, world [m/s].
        angular_velocity: (n, 3) in the body frame [rad/s]; a step of h turns by
            2 atan(h |angular_velocity| / 2) about it.
    """

    position: Float[Array, "n 3"]
    orientation: Float[Array, "n 4"]
    velocity: Float[Array, "n 3"]
    angular_velocity: Float[Array, "n 3"]

    def __getitem__(self, index: Any) -> State:
        """One state of a batch or a trajectory, or a slice of them: what leads before bodies.

        Raises:
            IndexError: for a state that is none of these, and as numpy.
        """
        if jnp.ndim(self.position) < 3:
            raise IndexError("state: is a single one; only batches and trajectories have an index")
        length = len(self.position)
        if isinstance(index, int) and not -length <= index < length:  # JAX would take the nearest
            raise IndexError(f"state: there are {length}, got {index}")
        return jax.tree.map(lambda v: v[index], self)


@pytree_dataclass
class Fixture:
    """A convex shape fixed in the world.

    Attributes:
        shape: the shape.
        position: (3,) origin of its frame, world [m].
        orientation: (4,) unit quaternion (w, x, y, z), its frame to the world.
    """

    shape: ConvexShape
    position: Float[Array, "3"]
    orientation: Float[Array, "4"]

    def __repr__(self) -> str:
        place = f"position={described(self.position)}, orientation={described(self.orientation)}"
        return f"Fixture({self.shape!r}, {place})"


@pytree
class Scene:
    """Bodies, the fixed environment, and the parameters of the time step.

    Args:
        bodies: the moving bodies; names must differ.
        environment: fixed shapes, each a primitive, (primitive, position, orientation as a
            quaternion or a `Rotation`), the same without the orientation, or a `Fixture`; a scene
            can be changed with `dataclasses.replace`.
        timestep: h [s].
        friction: Coulomb coefficient of every contact, or (contacts,) one for each of `pairs`.
        torsional_radius: r_t [m], or (contacts,): friction also resists turns about the normal, as
            if it acted at this distance from the contact point. The torque is at most
            `friction * r_t` times the normal force, less where friction acts against slip. About
            the radius of the patch in which the bodies touch; None resists no such turns.
        rolling_radius: the same of turns about the tangents, r_r [m].
        gravity: (3,) world [m/s^2].
        exclude: pairs that never collide: two names of bodies, or the name of a body and the
            index of an entry of `environment` (of a bundle, all its pieces). The attribute of
            that name holds indices into the scene's `environment`, where pieces are counted.

    Raises:
        ValueError: for no bodies, repeated or unknown names, an index that the environment does
            not have, or a value out of range.
    """

    bodies: tuple[Body, ...]
    environment: tuple[Fixture, ...]
    timestep: Float[Array, ""]
    friction: Float[Array, "*contacts"]
    torsional_radius: Float[Array, "*contacts"] | None
    rolling_radius: Float[Array, "*contacts"] | None
    gravity: Float[Array, "3"]
    exclude: frozenset[frozenset[str | int]] = static()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(
        self,
        bodies: Iterable[Body],
        environment: Iterable[Placement | Fixture] = (),
        timestep: ArrayLike = 0.01,
        friction: ArrayLike = 0.5,
        gravity: ArrayLike = (0.0, 0.0, -9.81),
        exclude: Iterable[Iterable[str | int]] = (),
        torsional_radius: ArrayLike | None = None,
        rolling_radius: ArrayLike | None = None,
    ) -> None:
        bodies = several("bodies", bodies, "bodies")
        names = _names(bodies)
        environment = several("environment", environment, "shapes")
        exclude = several("exclude", exclude, "pairs of names")
        fixtures = [_fixtures(entry) for entry in environment]
        assign(
            self,
            bodies=bodies,
            environment=tuple(chain.from_iterable(fixtures)),
            timestep=number("timestep", timestep, positive=True),
            gravity=vector("gravity", gravity, 3),
            exclude=frozenset(_exclusions(exclude, names, [len(f) for f in fixtures])),
        )
        # Pairs are known only now.
        radii = {"torsional_radius": torsional_radius, "rolling_radius": rolling_radius}
        given = {k: None if v is None else self._of_pairs(k, v) for k, v in radii.items()}
        assign(self, friction=self._of_pairs("friction", friction), **given)
        check_precision(self)

    def __repr__(self) -> str:
        """A line for each body and fixture; what is None or empty is left out."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        shown = {
            name: _listed(value) if name in ("bodies", "environment") else described(value)
            for name, value in values.items()
            if not (value is None or (isinstance(value, (tuple, frozenset)) and not value))
        }
        return "Scene(" + "".join(f"\n    {name}={text}," for name, text in shown.items()) + "\n)"

    def _of_pairs(self, name: str, value: ArrayLike) -> Array:
        """One number, or one for each of `pairs`; none is negative."""
        if not (isinstance(value, (list, tuple, Mapping)) or np.ndim(value)):
            return not_negative(name, number(name, value))
        count = len(self.pairs)
        expected = f"{name}: expected one number, or one for each of the {count} `pairs`"
        if isinstance(value, Mapping):
            raise ValueError(f"{expected} in their order, got {value!r}")
        numbers = vector(name, value, None)
        if len(numbers) != count:
            raise ValueError(f"{expected}, got {len(numbers)}")
        return not_negative(name, numbers)

    @property
    def pairs(self) -> tuple[ContactPair, ...]:
        """Every pair of convex pieces that may touch, in the order `info` reports them."""
        return tuple(_body_pairs(self)) + tuple(_environment_pairs(self))

    @property
    def pair_names(self) -> tuple[str, ...]:
        """A name of each of `pairs`: `a - b`, `a[1] - b` of the second piece of several, or
        `a - environment[2]`."""
        return tuple(_pair_name(self, pair) for pair in self.pairs)

    def state(
        self,
        position: ArrayLike | None = None,
        orientation: Orientation | None = None,
        velocity: ArrayLike | None = None,
        angular_velocity: ArrayLike | None = None,
    ) -> State:
        """A state of this scene; what is left out is zero (identity for orientations).

        Args:
            position, velocity, angular_velocity: (n, 3), as of a `State`.
            orientation: (n, 4) unit quaternions (w, x, y, z), or a `Rotation` of scipy's or jax's
                of n turns, or a list of n.

        Raises:
            ValueError: for wrong shapes, values that are not finite, or quaternions whose norm
                is not 1 within 1e-6.
        """
        n = len(self.bodies)
        dtype = self.timestep.dtype

        def rows(name: str, value: Any) -> Array:
            if value is None:
                return jnp.zeros((n, 3), dtype)  # its own for each field, so that it can be donated
            return vector(name, value, n, 3).astype(dtype)

        if orientation is None:
            orientation = jnp.tile(jnp.array(IDENTITY, dtype), (n, 1))
        return State(
            rows("position", position),
            quaternions("orientation", orientation, n).astype(dtype),
            rows("velocity", velocity),
            rows("angular_velocity", angular_velocity),
        )


def _listed(entries: tuple) -> str:
    return "(" + "".join(f"\n        {entry!r}," for entry in entries) + "\n    )"


def check_scene(scene: Scene) -> None:
    """Refuse what is no scene, or several.

    Raises:
        ValueError: for another type, and for scenes that are stacked outside of `jax.vmap`.
    """
    if not isinstance(scene, Scene):
        raise ValueError(f"scene: expected a Scene, got {type(scene).__name__}")
    if np.ndim(scene.timestep):
        raise ValueError(f"scene: is a batch of shape {np.shape(scene.timestep)}; use jax.vmap")


def check_state(scene: Scene, state: State, name: str = "state") -> None:
    """Refuse a state that `Scene.state` would not have made; NaN is for the step to report.

    Raises:
        ValueError: for fields of the wrong shape, type or precision, quaternions that are not
            unit ones, or as `check_scene`.
    """
    check_scene(scene)
    if not isinstance(state, State):
        raise ValueError(f"{name}: expected a State, got {type(state).__name__}")
    n = len(scene.bodies)
    for field in dataclasses.fields(State):
        value, shape = getattr(state, field.name), (n, 4 if field.name == "orientation" else 3)
        if not isinstance(value, (jax.Array, np.ndarray)) or value.dtype.kind != "f":
            raise ValueError(f"{name}: {field.name} must be a floating-point array, got {value!r}")
        if value.shape != shape:
            several = "; map over a batch or a trajectory with jax.vmap" * (value.ndim > len(shape))
            raise ValueError(
                f"{name}: {field.name} must have shape {shape}, got {value.shape}{several}"
            )
        if value.dtype != state.position.dtype:
            raise ValueError(
                f"{name}: {field.name} is {value.dtype}, position {state.position.dtype}; "
                "give all fields one precision"
            )
    if state.position.dtype != scene.timestep.dtype:
        raise ValueError(
            f"{name}: is {state.position.dtype}, the scene {scene.timestep.dtype}; give both one "
            "precision"
        )
    check_unit(f"{name}: orientation", state.orientation)


def check_start(scene: Scene, state: State, name: str = "state") -> None:
    """Refuse what `check_state` does, and NaN: a search from there has no step that reports it.

    Raises:
        ValueError: as `check_state`, and for entries that are not finite.
    """
    check_state(scene, state, name)
    for field in dataclasses.fields(State):
        value = getattr(state, field.name)
        vector(f"{name}: {field.name}", value, *value.shape)


def check_precision(scene: Scene) -> None:
    """Refuse a scene with numbers of more precision than its time step, which is that of states.

    Raises:
        ValueError: for one that has some.
    """
    dtype = scene.timestep.dtype
    for path, leaf in jax.tree.leaves_with_path(scene):
        own, name = jnp.result_type(leaf), jax.tree_util.keystr(path)
        if jnp.promote_types(own, dtype) != dtype:
            raise ValueError(f"scene{name}: is {own}, timestep {dtype}; give both one precision")


@dataclasses.dataclass(frozen=True)
class ContactPair:
    """Two pieces that may touch.

    Attributes:
        body_a: index into `Scene.bodies`.
        piece_a: index into its `pieces`.
        body_b: the same of the other one, None for the environment.
        piece_b: index into the pieces of `body_b`, or into `Scene.environment`.
    """

    body_a: int
    piece_a: int
    body_b: int | None
    piece_b: int


def _pair_name(scene: Scene, pair: ContactPair) -> str:
    first = _piece_name(scene.bodies[pair.body_a], pair.piece_a)
    if pair.body_b is None:
        return f"{first} - environment[{pair.piece_b}]"
    return f"{first} - {_piece_name(scene.bodies[pair.body_b], pair.piece_b)}"


def _piece_name(body: Body, piece: int) -> str:
    return f"{body.name}[{piece}]" if len(body.pieces) > 1 else body.name


def body_index(scene: Scene, argument: str, name: str) -> int:
    """Position of a body by its name.

    Raises:
        ValueError: for a name that is none of the scene's bodies.
    """
    names = [body.name for body in scene.bodies]
    if name not in names:
        raise ValueError(f"{argument}: expected one of {names}, got {name!r}")
    return names.index(name)


def _names(bodies: tuple[Body, ...]) -> set[str]:
    if not bodies:
        raise ValueError("bodies: a scene needs at least one body")
    for body in bodies:
        if not isinstance(body, Body):
            raise ValueError(f"bodies: expected Body, got {type(body).__name__}")
    names = {body.name for body in bodies}
    if len(names) < len(bodies):
        raise ValueError(f"bodies: names must differ, got {[b.name for b in bodies]}")
    return names


def _exclusions(
    pairs: Iterable[Iterable[str | int]], names: set[str], counts: list[int]
) -> Iterator[frozenset[str | int]]:
    """Two names, or a name and a piece of the environment, whose entries have `counts` pieces."""
    pieces = [range(*ends) for ends in pairwise(accumulate(counts, initial=0))]
    for pair in pairs:
        ends = pair if isinstance(pair, (tuple, list, set, frozenset)) else ()
        match sorted(ends, key=lambda end: not isinstance(end, str)):  # names first
            case [str(first), str(second)] if first != second and {first, second} <= names:
                yield frozenset((first, second))
            case [str(body), k] if body in names and is_count(k) and 0 <= k < len(pieces):
                yield from (frozenset[str | int]((body, piece)) for piece in pieces[k])
            case _:
                several = "; give a list of pairs" if isinstance(pair, str) else ""
                raise ValueError(
                    f"exclude: {pair!r} must name two different bodies of {sorted(names)}, or one "
                    f"and an index below {len(pieces)}, the entries of the environment{several}"
                )


def _fixtures(entry: Placement | Fixture) -> list[Fixture]:
    if isinstance(entry, Fixture):
        entry = (entry.shape, entry.position, entry.orientation)
    shape, position, orientation = placement("environment", entry)
    if isinstance(shape, ConvexShape) and not shape.scaled:
        pose = vector("position", position, 3), quaternions("orientation", orientation)
        return [Fixture(shape, *(v.astype(shape.dtype) for v in pose))]  # as a `Bundle` does
    return [Fixture(*piece) for piece in Bundle([(shape, position, orientation)]).pieces]


def _body_pairs(scene: Scene) -> Iterable[ContactPair]:
    counts = [len(body.pieces) for body in scene.bodies]
    for i, first in enumerate(scene.bodies):
        for j, second in enumerate(scene.bodies[i + 1 :], start=i + 1):
            if frozenset((first.name, second.name)) in scene.exclude:
                continue
            for k in range(counts[i]):
                for m in range(counts[j]):
                    yield ContactPair(i, k, j, m)


def _environment_pairs(scene: Scene) -> Iterable[ContactPair]:
    for i, body in enumerate(scene.bodies):
        for k in range(len(body.pieces)):
            for m in range(len(scene.environment)):
                if frozenset((body.name, m)) not in scene.exclude:
                    yield ContactPair(i, k, None, m)
