"""Scenes into MJCF."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.body import Body
from silico_py.models import friction
from silico_py.models.errors import ModelWarning
from silico_py.primitives import (
    Box,
    Capsule,
    ConvexShape,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    Polytope,
    Sphere,
)
from silico_py.scene import Scene, State, check_start
from silico_py.validation import as_path

TRIANGLE_SLACK = 1e-9
LEAST_MASS, LEAST_MOMENT = 1e-15, 1e-14  # that MuJoCo reads [kg, kg m^2]
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
APPROXIMATED = "{0} has no counterpart in MuJoCo: a mesh inscribed in it"
LEFT_OUT = "body {0!r}: {1} has no counterpart in MuJoCo and is left out"


def save_model(scene: Scene, state: State, path: str | Path) -> None:
    """Write a scene and its initial state as MJCF, for MuJoCo and others that read it.

    Masses, inertias and poses are exact. Polytopes become meshes. Cones, padded polytopes
    and Minkowski sums become inscribed meshes; a comment in the file says which. The velocity
    is in the keyframe `home`. Springs of bodies and starts from rest are left out; a warning and
    a comment say so. A scene that excludes a piece of its environment gets a fixed body for each
    piece: MuJoCo excludes bodies. Its contacts are soft: its motion is close, not equal.

    Args:
        scene: not batched.
        state: one state of it.
        path: file to write, usually `.xml`; folders are made.

    Raises:
        ValueError: for a state that is not one of the scene's, for no path, or what MuJoCo cannot
            have: a body called `world`, an inertia that no rigid body has.

    Warns:
        ModelWarning: for what is left out.
    """
    _check(scene, state)
    path = as_path("path", path)
    writer = _Writer(scene)
    names = _fixture_names(scene)
    for index, fixture in enumerate(scene.environment):
        parent = writer.fixed(names[index]) if names else writer.world
        pose = fixture.position, fixture.orientation
        writer.geom(parent, (None, index), fixture.shape, *pose)
    poses = zip(state.position, state.orientation, strict=True)
    for index, (body, pose) in enumerate(zip(scene.bodies, poses, strict=True)):
        writer.body(index, body, *pose)
    writer.pairs()
    writer.exclusions({str(names.get(end, end)) for end in pair} for pair in scene.exclude)
    writer.keyframe(state)
    writer.write(path)


def _check(scene: Scene, state: State) -> None:
    check_start(scene, state)
    for body in scene.bodies:
        if NOT_XML.search(body.name):
            raise ValueError(f"scene: XML cannot hold the name {body.name!r}; rename that body")
    if not all(body.name for body in scene.bodies):
        raise ValueError("scene: MuJoCo has no name ''; rename that body")
    if "world" in {body.name for body in scene.bodies}:
        raise ValueError("scene: MuJoCo keeps the name 'world' for itself; rename that body")


def _fixture_names(scene: Scene) -> dict[str | int, str]:
    """Names of fixed bodies for the pieces of the environment; none where one body does."""
    if all(isinstance(end, str) for pair in scene.exclude for end in pair):
        return {}
    prefix = "fixture"
    while any(body.name.startswith(prefix) for body in scene.bodies):
        prefix += "_"
    return {index: f"{prefix}{index}" for index in range(len(scene.environment))}


class _Writer:
    """The sections of one MJCF file, in MuJoCo's order."""

    def __init__(self, scene: Scene) -> None:
        self.friction = friction.of_pieces(scene)
        self.condim = str(friction.condim(scene))
        self.root = Element("mujoco")
        SubElement(self.root, "compiler", angle="radian")
        self.option = SubElement(self.root, "option", cone="elliptic")
        default = SubElement(self.root, "default")
        self.default = SubElement(default, "geom", condim=self.condim)
        self.asset = SubElement(self.root, "asset")
        self.world = SubElement(self.root, "worldbody")
        self.contact = SubElement(self.root, "contact")
        self.option.set("timestep", _numbers(scene.timestep))
        self.option.set("gravity", _numbers(scene.gravity))
        coefficients = friction.of_scene(scene)
        if coefficients.ndim == 1:
            self.default.set("friction", _numbers(coefficients))

    def fixed(self, name: str) -> Element:
        return SubElement(self.world, "body", name=name)

    def body(self, index: int, body: Body, position: Any, orientation: Any) -> None:
        element = SubElement(self.world, "body", name=body.name)
        element.set("pos", _numbers(position))
        element.set("quat", _numbers(orientation))
        for lost in _left_out(body):
            message = LEFT_OUT.format(body.name, lost)
            warnings.warn(message, ModelWarning, stacklevel=3)
            element.append(ElementTree.Comment(f" {message} "))
        SubElement(element, "freejoint")
        element.append(_inertial(body))
        for number, (shape, *pose) in enumerate(body.pieces):
            self.geom(element, (index, number), shape, *pose)

    def geom(
        self,
        parent: Element,
        piece: friction.PieceIndex,
        shape: ConvexShape,
        position: Any,
        orientation: Any,
    ) -> None:
        if isinstance(shape, HalfSpace):
            position, orientation = _plane(shape, position, orientation)
        attributes = _primitive(shape)
        if attributes is None:
            name, middle = self._mesh(shape)
            attributes = {"type": "mesh", "mesh": name}
            position = np.asarray(position, float) + _rotation(orientation) @ middle
        element = SubElement(parent, "geom", attributes)
        element.set("pos", _numbers(position))
        element.set("quat", _numbers(orientation))
        if piece in self.friction.pieces:
            element.set("friction", _numbers(self.friction.pieces[piece]))
        if piece in chain.from_iterable(self.friction.pairs):
            element.set("name", _geom_name(piece))

    def _mesh(self, shape: ConvexShape) -> tuple[str, np.ndarray]:
        """Name of a mesh, and where its middle is: MuJoCo keeps vertices in single precision."""
        name = f"mesh{len(self.asset.findall('mesh'))}"
        if not isinstance(shape, Polytope):
            comment = f" {name}: {APPROXIMATED.format(type(shape).__name__)} "
            self.asset.append(ElementTree.Comment(comment))
        vertices, _ = shape.surface_mesh()
        middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
        # Bodies have explicit inertias; the shell's is the one that never fails on thin meshes.
        points = _numbers(vertices - middle)
        SubElement(self.asset, "mesh", name=name, vertex=points, inertia="shell")
        return name, middle

    def pairs(self) -> None:
        """Friction that no coefficients of geoms give."""
        for (first, second), (sliding, torsional, rolling) in self.friction.pairs.items():
            ends = {"geom1": _geom_name(first), "geom2": _geom_name(second)}
            friction = _numbers([sliding, sliding, torsional, rolling, rolling])
            SubElement(self.contact, "pair", ends, condim=self.condim, friction=friction)

    def exclusions(self, pairs: Iterable[set[str]]) -> None:
        for first, second in sorted(sorted(pair) for pair in pairs):
            SubElement(self.contact, "exclude", body1=first, body2=second)

    def keyframe(self, state: State) -> None:
        position = np.concatenate([state.position, state.orientation], axis=1)
        velocity = np.concatenate([state.velocity, state.angular_velocity], axis=1)
        key = SubElement(SubElement(self.root, "keyframe"), "key", name="home")
        key.set("qpos", _numbers(position))
        key.set("qvel", _numbers(velocity))

    def write(self, path: Path) -> None:
        ElementTree.indent(self.root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            ElementTree.tostring(self.root, encoding="unicode") + "\n", encoding="utf-8"
        )


def _primitive(shape: ConvexShape) -> dict[str, str] | None:
    """Type and size of a primitive that MuJoCo has; its lengths are half of ours."""
    match shape:
        case HalfSpace():
            return {"type": "plane", "size": "0 0 1"}
        case Sphere(radius=radius):
            return {"type": "sphere", "size": _numbers(radius)}
        case Ellipsoid(radii=radii):
            return {"type": "ellipsoid", "size": _numbers(radii)}
        case Box(half_extents=half_extents):
            return {"type": "box", "size": _numbers(half_extents)}
        case Capsule(radius=radius, length=length):
            return {"type": "capsule", "size": _numbers([radius, length / 2])}
        case Cylinder(radius=radius, length=length):
            return {"type": "cylinder", "size": _numbers([radius, length / 2])}
    return None


def _plane(shape: HalfSpace, position: Any, orientation: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pose of a plane whose normal is its z axis."""
    normal = _rotation(orientation) @ np.asarray(shape.normal, float)
    upright, _ = Rotation.align_vectors([normal], [[0.0, 0.0, 1.0]])
    point = np.asarray(position, float) + float(shape.offset) * normal
    return point, upright.as_quat(scalar_first=True)


def _rotation(orientation: Any) -> np.ndarray:
    return Rotation.from_quat(np.asarray(orientation, float), scalar_first=True).as_matrix()


def _left_out(body: Body) -> list[str]:
    """What of a body MJCF has no word for."""
    lost = {
        "a spring to its commanded place": np.any(np.asarray(body.stiffness) > 0),
        "to start every step from rest": body.quasi_dynamic,
    }
    return [what for what, there in lost.items() if there]


def _inertial(body: Body) -> Element:
    inertia = np.asarray(body.inertia, float)
    smallest, middle, largest = np.linalg.eigvalsh(inertia)
    if smallest + middle < largest * (1 - TRIANGLE_SLACK):
        raise ValueError(
            f"body {body.name!r}: principal moments {smallest:g}, {middle:g}, {largest:g} belong "
            "to no rigid body (two must add up to the third or more), and MuJoCo refuses them"
        )
    if float(body.mass) < LEAST_MASS or smallest < LEAST_MOMENT:
        raise ValueError(
            f"body {body.name!r}: MuJoCo refuses masses below {LEAST_MASS:g} kg and moments below "
            f"{LEAST_MOMENT:g} kg m^2, got {body.mass:g} and {smallest:g}; use larger units"
        )
    upper = inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    return Element(
        "inertial",
        pos=_numbers(body.center_of_mass),
        mass=_numbers(body.mass),
        fullinertia=_numbers(upper),
    )


def _geom_name(piece: friction.PieceIndex) -> str:
    body, number = piece
    return f"fixed{number}" if body is None else f"body{body}_{number}"


def _numbers(values: Any) -> str:
    """Every digit, so that reading the file gives the same floats."""
    return " ".join(repr(float(value)) for value in np.ravel(np.asarray(values)))
