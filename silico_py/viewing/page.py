"""A simulation as one HTML page that needs no network: three.js and the data stand in it."""

from __future__ import annotations

import base64
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from silico_py.scene import Scene
from silico_py.simulate import Trajectory
from silico_py.validation import as_path, count
from silico_py.viewing.meshes import PieceMesh, Plane
from silico_py.viewing.replay import Replay, body_color, decimals

FRAME = '<iframe srcdoc="{page}" width="100%" height="{height}" style="border: 0"></iframe>'


class Page:
    """A self-contained page that plays a simulation; a notebook shows it in place.

    Attributes:
        html: the whole page.
        height: of the frame in a notebook [pixels].
    """

    def __init__(self, html: str, height: int = 480) -> None:
        self.html = html
        self.height = height

    def save(self, path: Path | str) -> Path:
        """Write the page; folders are made.

        Raises:
            ValueError: for no path.
        """
        path = as_path("path", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return FRAME.format(page=html.escape(self.html), height=self.height)

    def __repr__(self) -> str:
        return f"Page({len(self.html.encode()) / 1e6:.1f} MB)"


def save_html(scene: Scene, trajectory: Trajectory, path: Path | str) -> Path:
    """Write a simulation as one HTML file that any browser opens, offline.

    It plays, pauses and scrubs from the start to the last state; shows contact points, force
    arrows and the shapes scaled by alpha; and marks on its scrubber every step that did not
    converge or is not finite.

    Args:
        scene: the scene.
        trajectory: as `rollout` of this scene returns it.
        path: of the file; folders are made.

    Returns:
        The path.

    Raises:
        ValueError: for what is no trajectory of one run of this scene, has no finite pose, or for
            no path.
    """
    path = as_path("path", path)
    return show(scene, trajectory, title=path.stem).save(path)


def show(scene: Scene, trajectory: Trajectory, height: int = 480, title: str = "silico_py") -> Page:
    """The page of `save_html`, for a notebook: the last expression of a cell is shown.

    Args:
        scene: the scene.
        trajectory: as `rollout` of this scene returns it.
        height: of the frame [pixels].
        title: of the page.

    Raises:
        ValueError: for what is no trajectory of one run of this scene, or has no finite pose, a
            height that is no number of pixels, or a title that is no text.
    """
    count("height", height)
    if not isinstance(title, str):
        raise ValueError(f"title: expected a text, got {title!r}")
    parts = {
        "TITLE": html.escape(title),
        "STYLE": _read("page.css"),
        # A name that holds "</script>" must not end the element.
        "REPLAY": _json(Replay.of(scene, trajectory)).replace("<", "\\u003c"),
        "LICENSE": _read("vendor/three.LICENSE"),
        "THREE": _read("vendor/three.min.js"),
        "PLAYER": _read("player.js"),
    }
    before, *rest = _read("page.html").split("@")
    # Odd entries are the names between the marks; what is put in is never searched again.
    return Page(before + "".join(parts.get(part, part) for part in rest), height)


def _read(name: str) -> str:
    return resources.files("silico_py.viewing").joinpath("web", name).read_text(encoding="utf-8")


def _json(replay: Replay) -> str:
    """The data of the page; browsers refuse NaN and infinity in it."""
    return json.dumps(_data(replay), allow_nan=False)


def _data(replay: Replay) -> dict[str, Any]:
    """The replay for `player.js`: numbers in lists where few, else in base64.

    Positions are about the middle of the view: far from the origin of the world single precision
    would round them.
    """
    contacts = replay.contacts
    return {
        "frames": replay.frames,
        "timestep": replay.timestep,
        "decimals": decimals(replay.timestep),
        "names": replay.names,
        "colors": [body_color(body) for body in range(len(replay.names))],
        "pieces": [_piece(piece, replay) for piece in replay.pieces],
        "planes": [_plane(plane, replay) for plane in replay.planes],
        "position": _base64(replay.position - replay.center, np.float32),
        "orientation": _base64(replay.orientation, np.float32),
        "visible": _base64(replay.visible, np.uint8),
        "contacts": {
            "names": contacts.names,
            "first": contacts.first.tolist(),
            "second": contacts.second.tolist(),
            "alpha": _base64(contacts.alpha, np.float32),
        },
        "touching": _touching(replay),
        "notes": replay.notes,
        "center": replay.center.tolist(),
        "reach": replay.reach.tolist(),
        "up": replay.up.tolist(),
        "view_direction": replay.view_direction.tolist(),
        "grid_cell": replay.grid_cell,
        "arrow_scale": replay.arrow_scale,
        "longest_arrow": replay.longest_arrow,
    }


def _touching(replay: Replay) -> dict[str, str]:
    """Points and forces of the contacts that are drawn, frame after frame.

    Only of those: of the thousands of pairs of a large scene, few touch.
    """
    touching = [replay.touching(frame) for frame in range(replay.frames)]
    count = [len(contacts) for contacts in touching]
    frame, contact = np.repeat(np.arange(replay.frames), count), np.concatenate(touching)
    return {
        "start": _base64(np.cumsum([0, *count]), np.uint32),
        "contact": _base64(contact, np.uint32),
        "point": _base64(replay.contacts.point[frame, contact] - replay.center, np.float32),
        "force": _base64(replay.contacts.force[frame, contact], np.float32),
    }


def _piece(piece: PieceMesh, replay: Replay) -> dict[str, Any]:
    origin = replay.center if piece.body is None else np.zeros(3)
    return {
        "body": piece.body,
        "vertices": _base64(piece.vertices, np.float32),
        "triangles": _base64(piece.triangles, np.uint32),
        "reference": (piece.reference - origin).tolist(),
    }


def _plane(plane: Plane, replay: Replay) -> dict[str, Any]:
    return {
        "point": (plane.point - replay.center).tolist(),
        "normal": plane.normal.tolist(),
        "level": replay.is_level(plane),
        "extent": replay.plane_extent(plane),
    }


def _base64(values: np.ndarray, kind: type) -> str:
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode("ascii")
