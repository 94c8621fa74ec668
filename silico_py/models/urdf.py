"""What MuJoCo's compiler leaves open in a URDF: the root, mesh addresses, extensions."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from silico_py.models.errors import Element
from silico_py.models.mesh import read_mesh

KNOWN_TAGS = {"link", "joint", "material", "mujoco"}


def is_urdf(text: str) -> bool:
    """Whether the root element is <robot>."""
    try:
        for _, element in ElementTree.iterparse(io.StringIO(text), events=("start",)):
            return element.tag == "robot"
    except ElementTree.ParseError:
        pass
    return False


def complete(spec: Any, text: str, folder: Path) -> None:
    """Let the root link move and find the mesh files.

    The root link floats unless it is called `world`, as URDF tools other than MuJoCo have it.
    """
    for link in _root_links(text) - {"world"}:
        spec.body(link).add_freejoint()
    used = {geom.meshname for geom in spec.geoms}
    spec.strippath = False
    for mesh in list(spec.meshes):
        if mesh.name in used:
            _locate(mesh, folder)
        else:
            spec.delete(mesh)


def extensions(text: str) -> tuple[Element, ...]:
    """Elements directly below <robot> that belong to other simulators."""
    foreign = [child for child in ElementTree.fromstring(text) if child.tag not in KNOWN_TAGS]
    return tuple(
        Element("extension", str(child.tag), child.get("name") or child.get("reference") or "")
        for child in foreign
    )


def _root_links(text: str) -> set[str]:
    robot = ElementTree.fromstring(text)
    links = {link.get("name", "") for link in robot.findall("link")}
    return links - {child.get("link", "") for child in robot.findall("joint/child")}


def _locate(mesh: Any, folder: Path) -> None:
    # trimesh reads what URDFs use and MuJoCo does not, such as Collada and ASCII STL.
    shape = read_mesh(find(mesh.file, folder))
    mesh.file = ""
    mesh.uservert = shape.vertices.ravel()
    mesh.userface = shape.faces.ravel()


def find(address: str, folder: Path) -> Path:
    """The file of `package://name/path`, `model://...`, `file://...` or a plain path.

    A package is a folder called `name`, or any folder that holds the path, at or above
    `folder`.

    Raises:
        FileNotFoundError: with the address, if there is none.
    """
    for candidate in _candidates(address, folder.resolve()):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"mesh file {address!r} is not found from {folder.resolve()}")


def _candidates(address: str, folder: Path) -> Iterator[Path]:
    scheme, path = re.fullmatch(r"(?:(\w+)://)?(.*)", address, re.DOTALL).groups()
    if scheme in (None, "file"):
        yield folder / path
        return
    inside = Path(path).relative_to(Path(path).parts[0])
    for above in (folder, *folder.parents):
        yield above / path
        yield above / inside
