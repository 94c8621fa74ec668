"""Which geoms of a compiled model may touch."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from silico_py.models.errors import Element
from silico_py.models.layout import WORLD, Layout, body_name, geom_label, may_touch
from silico_py.models.optional import mujoco


class Contacts(NamedTuple):
    """Contact of a scene: everything touches but the excluded pairs.

    Attributes:
        moving: geoms of each free body that have a contact bit, all if none has, by root body.
        fixed: geoms of the world that touch a free body.
        exclude: pairs of root bodies that never touch.
        exclude_fixed: root bodies with fixed geoms that they never touch.
        elements: what does not fit into that.
    """

    moving: dict[int, list[int]]
    fixed: list[int]
    exclude: list[tuple[int, int]]
    exclude_fixed: list[tuple[int, int]]
    elements: list[Element]


def contacts(model: Any, layout: Layout) -> Contacts:
    """Read MuJoCo's contact filters: contype and conaffinity, <exclude>, <pair>, welded bodies."""
    solid = may_touch(model) & _convex(model)
    touch = _touching(model, layout, solid)
    moving = {root: _members(model, layout, solid, root) for root in layout.roots}
    fixed = [int(g) for g in np.flatnonzero(touch.any(axis=1) & (layout.of_geom == WORLD))]
    exclude, mixed_bodies = _body_exclusions(model, touch, moving)
    exclude_fixed, mixed_fixtures = _fixture_exclusions(model, touch, moving, fixed)
    return Contacts(moving, fixed, exclude, exclude_fixed, [*mixed_bodies, *mixed_fixtures])


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
    # Explicit pairs pass by all of these filters.
    first, second = model.pair_geom1, model.pair_geom2
    paired = solid[first] & solid[second] & (root[first] != root[second])
    touch[first, second] = touch[second, first] = paired
    return touch


def _body_exclusions(
    model: Any, touch: np.ndarray, moving: dict[int, list[int]]
) -> tuple[list[tuple[int, int]], list[Element]]:
    """Pairs of bodies that never touch, and those of which only some geoms do."""
    exclude, mixed = [], []
    for first, second in combinations(moving, 2):
        block = touch[np.ix_(moving[first], moving[second])]
        if not block.any():
            exclude.append((first, second))
        elif not block.all():
            names = [repr(body_name(model, body)) for body in (first, second)]
            remark = "only some of their geoms may touch"
            mixed.append(Element("contact", "body", " and ".join(names), remark))
    return exclude, mixed


def _fixture_exclusions(
    model: Any, touch: np.ndarray, moving: dict[int, list[int]], fixed: list[int]
) -> tuple[list[tuple[int, int]], list[Element]]:
    """Bodies with geoms of the world that they never touch, or that only some geoms do."""
    exclude, mixed = [], []
    for (root, geoms), g in product(moving.items(), fixed):
        passing = [geom_label(model, m) for m in geoms if not touch[g, m]]
        if len(passing) == len(geoms):
            exclude.append((root, g))
        elif passing:
            remark = f"may not touch geom {', '.join(passing)} but others of that body"
            mixed.append(Element("contact", "geom", geom_label(model, g), remark))
    return exclude, mixed
