"""From a file or a string to MuJoCo's compiled model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

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
        FileNotFoundError: for a model, or a mesh of a URDF, that is not there.
        ValueError: for what MuJoCo refuses, with its message, or an unknown keyframe.
    """
    name, text, folder = _read(source)
    extensions: tuple[Element, ...] = ()
    try:
        if urdf.is_urdf(text):
            spec, extensions = urdf.read(text, folder or Path())
        elif folder is not None and Path(source).suffix == ".xml":
            spec = mujoco.MjSpec.from_file(str(Path(source).resolve()))
        else:  # MuJoCo reads no file that is called otherwise
            spec = mujoco.MjSpec.from_string(text)
            spec.modelfiledir = str((folder or Path()).resolve())
        model = spec.compile()
    except ValueError as error:
        raise ValueError(f"{name}: MuJoCo cannot compile it: {error}") from error
    data = mujoco.MjData(model)
    key = _keyframe(name, model, keyframe)
    if key is not None:
        mujoco.mj_resetDataKeyframe(model, data, key)
    mujoco.mj_kinematics(model, data)
    return Compiled(name, spec, model, data, extensions)


def _read(source: str | Path) -> tuple[str, str, Path | None]:
    """Name, text, and folder (None for a string)."""
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return "<string>", source, None
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such model file")
    if path.suffix == ".xacro":
        raise ValueError(f"{path}: a xacro file is a template; expand it to URDF with xacro first")
    return str(path), path.read_text(encoding="utf-8", errors="replace"), path.parent


def _keyframe(source: str, model: Any, wanted: str | None) -> int | None:
    """Index of the keyframe to start from; None is the model's reference pose."""
    names = [model.key(k).name for k in range(model.nkey)]
    if wanted is None:
        wanted = "home" if "home" in names else None
    elif wanted not in names:
        raise ValueError(f"keyframe: {source} has {names}, not {wanted!r}")
    return None if wanted is None else names.index(wanted)
