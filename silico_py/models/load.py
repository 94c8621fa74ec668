"""Models into scenes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from silico_py.body import Body
from silico_py.models import friction
from silico_py.models.compiling import Compiled, compile_model
from silico_py.models.contacts import Contacts, contacts
from silico_py.models.errors import Element, UnsupportedModelError, checked_ignore, report
from silico_py.models.geoms import Solid, check_counts, solids, with_split_boxes
from silico_py.models.hull import MAX_VERTICES, check_limit
from silico_py.models.layout import (
    WORLD,
    Layout,
    Pose,
    body_name,
    body_pose,
    geom_label,
    geom_pose,
    inertial_pose,
)
from silico_py.models.optional import mujoco
from silico_py.models.unsupported import unsupported
from silico_py.primitives import Shape
from silico_py.scene import Scene, State
from silico_py.validation import flag

Shapes = dict[int, list[Solid]]
Placed = tuple[Shape, np.ndarray, np.ndarray]


def load_model(
    source: str | Path,
    ignore: str | Iterable[str] = (),
    *,
    timestep: float | None = None,
    keyframe: str | None = None,
    decompose: bool = False,
    max_hull_vertices: int | None = MAX_VERTICES,
    split_boxes: Sequence[int] | None = None,
) -> tuple[Scene, State]:
    """Read an MJCF or URDF model of free rigid bodies, through MuJoCo's own compiler.

    Bodies with a free joint become bodies of the scene, with everything welded to them and
    with the mass and inertia that MuJoCo computes. Geoms that are fixed in the world become
    the environment. Geoms without contact bits are pictures and are left out. Time step,
    gravity and friction are the model's, and so are the pairs of bodies, or of a body and a
    fixed geom, that never touch. A mesh collides as its convex hull, as in MuJoCo. The root link
    of a URDF floats unless it is called `world`.

    The friction of a pair is MuJoCo's: that of an explicit pair, else the larger of the two geoms',
    or that of higher priority.

    Args:
        source: path of the file, or the XML itself.
        ignore: kinds of elements to leave out instead of refusing them, such as `"joint"`
            (bodies are welded where they are at the start), or `"all"`.
        timestep: [s]; the model's unless given.
        keyframe: name of the initial state; `home` if there is one, else the reference pose.
        decompose: cut meshes into convex pieces (needs the package coacd).
        max_hull_vertices: of each convex hull; those with more are cut, which is warned of.
            None keeps them whole, however many faces that costs.
        split_boxes: into how many equal ones along x, y and z the boxes of bodies are split, as by
            `Box.split`, so that they do not spin on a floor; whole unless given.

    Returns:
        The scene and its initial state.

    Raises:
        UnsupportedModelError: naming every element that a scene cannot represent.
        FileNotFoundError: for a model, what it includes, or a mesh of a URDF, that is not there.
        ValueError: for what MuJoCo refuses, with its message; an unknown keyframe or kind to
            ignore; options of another kind.
        ImportError: without MuJoCo; install the extra `models`.

    Warns:
        ModelWarning: for sensors, softness of contacts and extensions of other simulators,
            which are left out, and for hulls that were cut.
    """
    ignored = checked_ignore(ignore)
    flag("decompose", decompose)
    check_limit(max_hull_vertices)
    check_counts(split_boxes)
    compiled = compile_model(source, keyframe)
    layout = Layout.of(compiled.model)
    contact = contacts(compiled.model, layout)
    report(compiled.source, [*unsupported(compiled, layout), *contact.elements], ignored)
    _check_bodies(compiled, layout, contact)
    shapes = {
        geom: solids(compiled.model, geom, decompose, max_hull_vertices)
        for geom in [*chain(*contact.moving.values()), *contact.fixed]
    }
    cut = [
        Element("hull", "geom", geom_label(compiled.model, geom), solid.remark)
        for geom, found in shapes.items()
        for solid in found
        if solid.remark
    ]
    report(compiled.source, cut, ignored)
    if split_boxes is not None:
        moving = chain(*contact.moving.values())
        shapes |= {geom: with_split_boxes(shapes[geom], split_boxes) for geom in moving}
    scene = _scene(compiled, layout, contact, shapes, timestep)
    return scene, _state(compiled, layout, scene)


def _check_bodies(compiled: Compiled, layout: Layout, contact: Contacts) -> None:
    """Refuse what no `ignore` helps: nothing that moves, bodies without a shape."""
    model = compiled.model
    bare = [
        Element("body", "body", repr(body_name(model, root)), "moves freely but has no geom")
        for root in layout.roots
        if not contact.moving[root]
    ]
    if not layout.roots:
        remark = "no body has a free joint; give one a <freejoint/>"
        bare = [Element("body", "worldbody", f"of {model.nbody - 1} bodies", remark)]
    if bare:
        raise UnsupportedModelError(compiled.source, bare)


def _scene(
    compiled: Compiled,
    layout: Layout,
    contact: Contacts,
    shapes: Shapes,
    timestep: float | None,
) -> Scene:
    model, data = compiled.model, compiled.data
    weightless = model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY
    scene = Scene(
        bodies=[
            _body(compiled, layout, root, {g: shapes[g] for g in contact.moving[root]})
            for root in layout.roots
        ],
        environment=_placed(data, {g: shapes[g] for g in contact.fixed}, body_pose(data, WORLD)),
        timestep=model.opt.timestep if timestep is None else timestep,
        gravity=np.zeros(3) if weightless else model.opt.gravity,
        exclude=_exclusions(model, contact, shapes),
    )
    # Pairs are known only now.
    return replace(scene, **_friction(model, layout, contact, shapes, scene))


def _friction(
    model: Any, layout: Layout, contact: Contacts, shapes: Shapes, scene: Scene
) -> dict[str, float | list[float]]:
    """Friction of all pairs; where nothing may touch, the largest of the bodies' geoms."""
    fixed = _owners(contact.fixed, shapes)
    moving = [_owners(contact.moving[root], shapes) for root in layout.roots]
    seconds = [fixed if pair.body_b is None else moving[pair.body_b] for pair in scene.pairs]
    pairs = [
        (moving[pair.body_a][pair.piece_a], second[pair.piece_b])
        for pair, second in zip(scene.pairs, seconds, strict=True)
    ]
    if not pairs:
        return {"friction": float(np.max(model.geom_friction[[*chain(*moving)], 0]))}
    return friction.in_scene(friction.of_geoms(model, np.array(pairs)))


def _owners(geoms: list[int], shapes: Shapes) -> list[int]:
    """The geom of each piece; a geom may have several."""
    return [geom for geom in geoms for _ in shapes[geom]]


def _exclusions(model: Any, contact: Contacts, shapes: Shapes) -> list[tuple[str, str | int]]:
    """Pairs of names, and of names with entries of the environment."""
    entries = _owners(contact.fixed, shapes)
    bodies = [(body_name(model, i), body_name(model, j)) for i, j in contact.exclude]
    fixed = [
        (body_name(model, root), k)
        for root, geom in contact.exclude_fixed
        for k, owner in enumerate(entries)
        if owner == geom
    ]
    return [*bodies, *fixed]


def _placed(data: Any, shapes: Shapes, frame: Pose) -> list[Placed]:
    """(shape, position, quaternion) in `frame`."""
    placed = []
    for geom, found in shapes.items():
        for solid in found:
            pose = geom_pose(data, geom).inside(frame).place(solid.pose)
            placed.append((solid.shape, pose.position, pose.quaternion))
    return placed


def _body(compiled: Compiled, layout: Layout, root: int, shapes: Shapes) -> Body:
    frame = body_pose(compiled.data, root)
    members = np.flatnonzero(layout.of_body == root)
    mass, center, inertia = _mass_properties(compiled, members, frame)
    name = body_name(compiled.model, root)
    placed = _placed(compiled.data, shapes, frame)
    return Body(name, placed, mass=mass, inertia=inertia, center_of_mass=center)


def _mass_properties(
    compiled: Compiled, members: np.ndarray, frame: Pose
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it of bodies welded together, in `frame`."""
    masses = compiled.model.body_mass[members]
    poses = [inertial_pose(compiled.data, body).inside(frame) for body in members]
    center = masses @ np.array([pose.position for pose in poses]) / masses.sum()
    inertia = np.zeros((3, 3))
    for body, mass, pose in zip(members, masses, poses, strict=True):
        axes, offset = pose.rotation.as_matrix(), pose.position - center
        inertia += axes @ np.diag(compiled.model.body_inertia[body]) @ axes.T
        inertia += mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    return float(masses.sum()), center, inertia


def _state(compiled: Compiled, layout: Layout, scene: Scene) -> State:
    """MuJoCo's velocity of a free joint is ours: linear in the world, angular in the body."""
    model, data = compiled.model, compiled.data
    roots = list(layout.roots)
    dofs = model.body_dofadr[roots][:, None] + np.arange(6)
    velocity = data.qvel[dofs]
    return scene.state(data.xpos[roots], data.xquat[roots], velocity[:, :3], velocity[:, 3:])
