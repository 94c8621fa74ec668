"""From a file or a string to MuJoCo's compiled model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from silico_py.models import urdf
from silico_py.models.errors import Element
from silico_py.models.optional import mujoco


class Compiled(NamedTuple):
    """A model as MuJoCo understands it.

    Attributes:
        source: what messages call it.
        spec: `mujoco.MjSpec`, the elements as written.
        model: `mujoco.MjModel`, with every number resolved.
        data: `mujoco.MjData` at the initial state, kinematics done.
        extensions: elements that MuJoCo never sees.
    """

    source: str
    spec: Any
    model: Any
    data: Any
    extensions: tuple[Element, ...]


def compile_model(source: str | Path, keyframe: str | None) -> Compiled:
    """Compile MJCF or URDF.

    Raises:
        FileNotFoundError: for a model, what it includes, or a mesh of a URDF, that is not there.
        ValueError: for what MuJoCo refuses, with its message, a file that is not UTF-8, or an
            unknown keyframe.
    """
    name, text, folder = _read(source)
    extensions: tuple[Element, ...] = ()
    try:
        if urdf.is_urdf(text):
            spec, extensions = urdf.read(text, folder or Path())
        elif folder is not None and Path(source).suffix == ".xml":
            spec = mujoco.MjSpec.from_file(str(Path(source).resolve()))
        else:  # MuJoCo reads no file that is called otherwise
            spec = mujoco.MjSpec.from_string(
                text, include=_included(text, folder) if folder else {}
            )
            spec.modelfiledir = str((folder or Path()).resolve())
        model = spec.compile()
    except ValueError as error:
        if folder is not None:
            _included(text, folder)  # tells of a file that is not there
        raise ValueError(f"{name}: MuJoCo cannot compile it: {error}") from error
    data = mujoco.MjData(model)
    key = _keyframe(name, model, keyframe)
    if key is not None:
        mujoco.mj_resetDataKeyframe(model, data, key)
    mujoco.mj_kinematics(model, data)
    return Compiled(name, spec, model, data, extensions)


def _read(source: str | Path) -> tuple[str, str, Path | None]:
    """Name, text, and folder (None for a string)."""
    text = source.removeprefix("\ufeff").lstrip() if isinstance(source, str) else ""
    if text.startswith("<"):
        return "<string>", text, None
    if not isinstance(source, (str, PathLike)):
        kind = type(source).__name__
        raise ValueError(f"source: expected a path or the text of a model, got {kind}")
    if isinstance(source, str) and not source.strip():
        raise ValueError(f"source: expected a path or the text of a model, got {source!r}")
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such model file")
    if path.suffix == ".xacro":
        raise ValueError(f"{path}: a xacro file is a template; expand it to URDF with xacro first")
    return str(path), _decoded(path, path.read_bytes()), path.parent


def _included(text: str, folder: Path) -> dict[str, bytes]:
    """The files that MJCF includes or attaches, and those that they do: paths are relative to
    `folder`, that of the model."""
    found: dict[str, bytes] = {}
    texts = [text]
    while texts:
        for name in _includes(texts.pop()):
            path = folder / name
            if not path.is_file():
                raise FileNotFoundError(f"{path}: no such file, but the model asks for it")
            if name not in found:
                found[name] = path.read_bytes()
                texts.append(_decoded(path, found[name]))
    return found


def _includes(text: str) -> list[str]:
    """Addresses of the models that a text asks for; what is broken MuJoCo tells."""
    try:
        root = ElementTree.fromstring(text.removeprefix("\ufeff"))
    except ElementTree.ParseError:
        return []
    elements = [*root.iter("include"), *root.iterfind("asset/model")]
    return [element.get("file", "") for element in elements]


def _decoded(path: Path, content: bytes) -> str:
    """Text of a file, in the only encoding that MuJoCo reads, whatever the file says of itself."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8, as MuJoCo reads it; convert it") from error


def _keyframe(source: str, model: Any, wanted: str | None) -> int | None:
    """Index of the keyframe to start from; None is the model's reference pose."""
    names = [model.key(k).name for k in range(model.nkey)]
    if wanted is None:
        wanted = "home" if "home" in names else None
    elif wanted not in names:
        raise ValueError(f"keyframe: {source} has {names}, not {wanted!r}")
    return None if wanted is None else names.index(wanted)
