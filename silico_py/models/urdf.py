"""URDF for MuJoCo's compiler, which leaves open the root link and most mesh addresses."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from silico_py.models.errors import Element
from silico_py.models.mesh import read_mesh
from silico_py.models.optional import mujoco

# What URDF itself has inside each of these; visuals are gone when this is asked.
KNOWN_TAGS = {
    "robot": {"link", "joint", "material", "mujoco"},
    "link": {"inertial", "collision"},
    "inertial": {"origin", "mass", "inertia"},
    "collision": {"origin", "geometry", "verbose"},
}


def is_urdf(text: str) -> bool:
    """Whether the root element is <robot>."""
    try:
        for _, element in ElementTree.iterparse(io.StringIO(text), events=("start",)):
            return element.tag == "robot"
    except ElementTree.ParseError:
        pass
    return False


def read(text: str, folder: Path) -> tuple[Any, tuple[Element, ...]]:
    """A `mujoco.MjSpec`, and the elements that belong to other simulators.

    The root link floats unless it is called `world`, as URDF tools other than MuJoCo have it.
    Visuals are dropped, so their files need not be there.

    Raises:
        FileNotFoundError: for a mesh file that is not there.
        ValueError: for broken XML, or what MuJoCo refuses.
    """
    try:
        robot = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"broken XML: {error}") from error
    for link in robot.findall("link"):
        for visual in link.findall("visual"):
            link.remove(visual)
    files = _number_meshes(robot, folder)
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(robot, encoding="unicode"))
    for mesh in spec.meshes:
        _fill(mesh, files[int(Path(mesh.file).stem)])
    for name in _root_links(robot) - {"world"}:
        spec.body(name).add_freejoint()
    return spec, tuple(_extensions(robot))


def _number_meshes(robot: ElementTree.Element, folder: Path) -> list[Path]:
    """Replace mesh addresses by numbers, which no rule of MuJoCo's for paths changes."""
    compiler = robot.find("mujoco/compiler")
    folders = [folder] if compiler is None else [folder / compiler.get("meshdir", ""), folder]
    files = []
    for mesh in robot.findall("link/collision/geometry/mesh"):
        files.append(find(mesh.get("filename", ""), folders))
        mesh.set("filename", f"{len(files) - 1}.stl")
    return files


def _fill(mesh: Any, path: Path) -> None:
    # trimesh reads what URDFs use and MuJoCo does not, such as Collada and ASCII STL.
    shape = read_mesh(path)
    mesh.file = ""
    mesh.uservert = shape.vertices.ravel()
    mesh.userface = shape.faces.ravel()


def _root_links(robot: ElementTree.Element) -> set[str]:
    links = {link.get("name", "") for link in robot.findall("link")}
    return links - {child.get("link", "") for child in robot.findall("joint/child")}


def _extensions(element: ElementTree.Element, link: str = "") -> Iterator[Element]:
    """What is in none of these; `link` is the one around it."""
    known = KNOWN_TAGS.get(str(element.tag), set())
    for child in element if known else ():
        name = child.get("name") or child.get("reference") or ""
        if child.tag in known:
            yield from _extensions(child, name if child.tag == "link" else link)
        else:
            remark = f"of link {link!r}" if link else ""
            yield Element("extension", str(child.tag).rpartition("}")[2], name, remark)


def find(address: str, folders: list[Path]) -> Path:
    """The file of `package://name/path`, `model://...`, `file://...` or a plain path.

    A package is a folder called `name`, or any folder that holds the path, at or above one
    of `folders`.

    Raises:
        FileNotFoundError: with the address, if there is none.
    """
    folders = [folder.resolve() for folder in folders]
    for folder in folders:
        for candidate in _candidates(address, folder):
            if candidate.is_file():
                return candidate
    where = " or ".join(map(str, folders))
    raise FileNotFoundError(f"mesh file {address!r} is not found from {where}")


def _candidates(address: str, folder: Path) -> Iterator[Path]:
    scheme, _, path = address.rpartition("://")
    yield folder / path
    if scheme in ("", "file") or not path:
        return
    package, *inside = Path(path).parts
    for above in (folder, *folder.parents):
        yield above / package / Path(*inside)
        yield above / Path(*inside)
