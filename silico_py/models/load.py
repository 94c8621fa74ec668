"""Models into scenes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.body import Body
from silico_py.models.compiling import Compiled, compile_model
from silico_py.models.contacts import Contacts, contacts
from silico_py.models.errors import Element, UnsupportedModelError, checked_ignore, report
from silico_py.models.geoms import Meshes, Placed, placed
from silico_py.models.hull import MAX_VERTICES, check_limit
from silico_py.models.layout import WORLD, Layout, Pose, body_name, body_pose
from silico_py.models.optional import mujoco
from silico_py.models.unsupported import unsupported
from silico_py.scene import Scene, State


def load_model(
    source: str | Path,
    ignore: str | Iterable[str] = (),
    *,
    keyframe: str | None = None,
    decompose: bool = False,
    max_hull_vertices: int | None = MAX_VERTICES,
) -> tuple[Scene, State]:
    """Read an MJCF or URDF model of free rigid bodies, through MuJoCo's own compiler.

    Bodies with a free joint become bodies of the scene, with everything welded to them and
    with the mass and inertia that MuJoCo computes. Geoms that are fixed in the world become
    the environment. Geoms without contact bits are pictures and are left out. Time step,
    gravity, friction and excluded pairs are the model's. A mesh collides as its convex hull,
    as in MuJoCo. The root link of a URDF floats unless it is called `world`.

    A scene has one coefficient of friction. MuJoCo takes for each pair the larger of the two
    geoms' (or that of higher priority): the model is refused where the results differ.

    Args:
        source: path of the file, or the XML itself.
        ignore: kinds of elements to leave out instead of refusing them, such as `"joint"`
            (bodies are welded where they are at the start), or `"all"`.
        keyframe: name of the initial state; `home` if there is one, else the reference pose.
        decompose: cut meshes into convex pieces (needs the package coacd).
        max_hull_vertices: of each convex hull; those with more are cut, which is warned of.
            None keeps them whole, however many faces that costs.

    Returns:
        The scene and its initial state.

    Raises:
        UnsupportedModelError: naming every element that a scene cannot represent.
        FileNotFoundError: for a model or mesh file that is not there.
        ValueError: for XML that MuJoCo refuses, an unknown keyframe or kind to ignore.
        ImportError: without MuJoCo; install the extra `models`.

    Warns:
        ModelWarning: for what is left out without a change of the rigid motion: sensors,
            contact softness, extensions of other simulators, cut hulls.
    """
    ignored = checked_ignore(ignore)
    check_limit(max_hull_vertices)
    compiled = compile_model(source, keyframe)
    layout = Layout.of(compiled.model)
    contact = contacts(compiled.model, layout)
    report(compiled.source, [*unsupported(compiled, layout), *contact.elements], ignored)
    _check_bodies(compiled, layout, contact)
    meshes = Meshes(decompose, max_hull_vertices, [])
    scene = _scene(compiled, layout, contact, meshes)
    report(compiled.source, meshes.cut, ignored)
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


def _scene(compiled: Compiled, layout: Layout, contact: Contacts, meshes: Meshes) -> Scene:
    model, data = compiled.model, compiled.data
    weightless = model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY
    world = body_pose(data, WORLD)
    return Scene(
        bodies=[_body(compiled, layout, contact, root, meshes) for root in layout.roots],
        environment=_all_placed(compiled, contact.fixed, world, meshes),
        timestep=model.opt.timestep,
        friction=contact.friction,
        gravity=np.zeros(3) if weightless else model.opt.gravity,
        exclude=[(body_name(model, i), body_name(model, j)) for i, j in contact.exclude],
    )


def _all_placed(
    compiled: Compiled, geoms: Iterable[int], frame: Pose, meshes: Meshes
) -> list[Placed]:
    model, data = compiled.model, compiled.data
    return [piece for geom in geoms for piece in placed(model, data, geom, frame, meshes)]


def _body(compiled: Compiled, layout: Layout, contact: Contacts, root: int, meshes: Meshes) -> Body:
    frame = body_pose(compiled.data, root)
    mass, center, inertia = _mass_properties(compiled, layout, root, frame)
    return Body(
        body_name(compiled.model, root),
        _all_placed(compiled, contact.moving[root], frame, meshes),
        mass=mass,
        inertia=inertia,
        center_of_mass=center,
    )


def _mass_properties(
    compiled: Compiled, layout: Layout, root: int, frame: Pose
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it of all bodies welded to `root`, in `frame`."""
    model, data = compiled.model, compiled.data
    members = np.flatnonzero(layout.of_body == root)
    masses = model.body_mass[members]
    centers = np.array([_in_frame(data.xipos[b], frame) for b in members])
    center = masses @ centers / masses.sum()
    inertia = np.zeros((3, 3))
    for body, mass, offset in zip(members, masses, centers - center, strict=True):
        axes = frame.rotation.inv() * Rotation.from_matrix(data.ximat[body].reshape(3, 3))
        turned = axes.as_matrix()
        inertia += turned @ np.diag(model.body_inertia[body]) @ turned.T
        inertia += mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    return float(masses.sum()), center, inertia


def _in_frame(point: np.ndarray, frame: Pose) -> np.ndarray:
    return frame.rotation.inv().apply(point - frame.position)


def _state(compiled: Compiled, layout: Layout, scene: Scene) -> State:
    """MuJoCo's velocity of a free joint is ours: linear in the world, angular in the body."""
    model, data = compiled.model, compiled.data
    roots = list(layout.roots)
    dofs = model.body_dofadr[roots][:, None] + np.arange(6)
    velocity = data.qvel[dofs]
    return scene.state(data.xpos[roots], data.xquat[roots], velocity[:, :3], velocity[:, 3:])
