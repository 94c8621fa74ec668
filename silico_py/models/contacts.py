"""Which geoms of a compiled model may touch, and with what friction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from silico_py.models.errors import Element
from silico_py.models.layout import WORLD, Layout, body_name, geom_label
from silico_py.models.optional import mujoco

SAME_FRICTION = 1e-9


class Contacts(NamedTuple):
    """Contact of a scene: everything touches but the excluded pairs of bodies.

    Attributes:
        moving: geoms of each free body that have a contact bit, all if none has, by root body.
        fixed: geoms of the world that touch a free body.
        exclude: pairs of root bodies that never touch.
        friction: the one coefficient.
        elements: what does not fit into that.
    """

    moving: dict[int, list[int]]
    fixed: list[int]
    exclude: list[tuple[int, int]]
    friction: float
    elements: list[Element]


def contacts(model: Any, layout: Layout) -> Contacts:
    """Read MuJoCo's contact filters: contype and conaffinity, <exclude>, welded bodies."""
    solid = ((model.geom_contype | model.geom_conaffinity) != 0) & _convex(model)
    touch = _touching(model, layout, solid)
    moving = {root: _members(model, layout, solid, root) for root in layout.roots}
    fixed = [int(g) for g in np.flatnonzero(touch.any(axis=1) & (layout.of_geom == WORLD))]
    exclude, elements = [], []
    for i, first in enumerate(layout.roots):
        for second in layout.roots[i + 1 :]:
            block = touch[np.ix_(moving[first], moving[second])]
            if not block.any():
                exclude.append((first, second))
            elif not block.all():
                elements.append(_mixed_bodies(model, first, second))
    elements += _mixed_fixtures(model, touch, fixed, [*chain(*moving.values())])
    friction, differing = _friction(model, touch, [*chain(*moving.values())])
    return Contacts(moving, fixed, exclude, friction, [*elements, *differing])


def _convex(model: Any) -> np.ndarray:
    """(ngeom,) has a type that can become a primitive."""
    fields = [int(mujoco.mjtGeom.mjGEOM_HFIELD), int(mujoco.mjtGeom.mjGEOM_SDF)]
    return ~np.isin(model.geom_type, fields)


def _members(model: Any, layout: Layout, solid: np.ndarray, root: int) -> list[int]:
    """Geoms that shape a free body; one that never touches anything is shaped by its pictures."""
    own = layout.of_geom == root
    chosen = own & solid if (own & solid).any() else own & _convex(model)
    return [int(g) for g in np.flatnonzero(chosen)]


def _touching(model: Any, layout: Layout, solid: np.ndarray) -> np.ndarray:
    """(ngeom, ngeom) whether MuJoCo would let two geoms collide."""
    bits = model.geom_contype[:, None] & model.geom_conaffinity
    root, body = layout.of_geom, model.geom_bodyid
    touch = (bits | bits.T) != 0
    touch &= solid[:, None] & solid
    touch &= root[:, None] != root
    for signature in model.exclude_signature:
        first, second = body == signature >> 16, body == signature & 0xFFFF
        touch &= ~(first[:, None] & second | second[:, None] & first)
    return touch


def _mixed_bodies(model: Any, first: int, second: int) -> Element:
    names = [repr(body_name(model, body)) for body in (first, second)]
    return Element("contact", "body", " and ".join(names), "only some of their geoms may touch")


def _mixed_fixtures(
    model: Any, touch: np.ndarray, fixed: Iterable[int], moving: list[int]
) -> Iterator[Element]:
    for g in fixed:
        passing = [geom_label(model, m) for m in moving if not touch[g, m]]
        if passing:
            remark = f"may not touch geom {', '.join(passing)} but touches others"
            yield Element("contact", "geom", geom_label(model, g), remark)


def _friction(model: Any, touch: np.ndarray, geoms: list[int]) -> tuple[float, list[Element]]:
    """The sliding friction of all pairs, and one example for each value if they differ.

    MuJoCo takes the geom of higher priority, or the larger of both; condim 1 is frictionless.
    """
    pairs = np.argwhere(np.triu(touch))
    if not len(pairs):
        return float(np.max(model.geom_friction[geoms, 0], initial=0.0)), []
    of_pair = _combined(model, pairs, model.geom_friction[:, 0])
    of_pair = np.where(_combined(model, pairs, model.geom_condim) == 1, 0.0, of_pair)
    if np.ptp(of_pair) <= SAME_FRICTION:
        return float(of_pair[0]), []
    values, example = np.unique(of_pair, return_index=True)
    elements = [
        Element(
            "friction",
            "geom",
            " and ".join(geom_label(model, g) for g in pairs[k]),
            f"friction {value:g}",
        )
        for value, k in zip(values, example, strict=True)
    ]
    return float(values[-1]), elements


def _combined(model: Any, pairs: np.ndarray, value: np.ndarray) -> np.ndarray:
    first, second = pairs.T
    priority = model.geom_priority[first] - model.geom_priority[second]
    larger = np.maximum(value[first], value[second])
    return np.select([priority > 0, priority < 0], [value[first], value[second]], larger)
