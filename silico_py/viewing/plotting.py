"""Pictures of a motion: frames side by side, and one that moves (matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from silico_py.scene import Scene, State
from silico_py.validation import as_path, count, is_count, listener, number
from silico_py.viewing.rendering import images_of
from silico_py.viewing.replay import decimals

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MOVING = (".gif", ".webp", ".png")  # files that hold several images
MOST_FPS = 50  # browsers show faster ones slowly


def frames(scene: Scene, states: State, indices: Sequence[int], path: Path | str) -> None:
    """Draw some states of a motion side by side into the image file `path`.

    Up is against gravity; the scene is seen from where bodies hide each other least.

    Args:
        scene: the scene.
        states: stacked over time, one after each step (`Trajectory.state`).
        indices: which of them to draw.
        path: where to write; folders are made.

    Raises:
        ValueError: for no path, for indices that no state has, or if no body has a pose there that
            can be drawn.
    """
    path = as_path("path", path)
    _check_indices(indices, len(states.position))
    images = images_of(scene, states, list(indices))
    times = (np.array(indices) + 1) * float(scene.timestep)
    _side_by_side(images, time_labels(times), path)


def animate(
    scene: Scene,
    states: State,
    path: Path | str,
    *,
    speed: float = 1.0,
    fps: float = 25.0,
    pixels: int = 640,
    on_frame: Callable[[int, int], None] | None = None,
) -> None:
    """Draw a motion into an image file that moves, again and again.

    It is seen as in `frames`. Drawing takes about a tenth of a second a frame.

    Args:
        scene: the scene.
        states: stacked over time, one after each step (`Trajectory.state`).
        path: where to write, a `.gif`, `.webp` or `.png` file; folders are made.
        speed: of what is seen, in that of the motion: 0.5 is slow motion.
        fps: frames a second, at most, up to 50; no state is drawn twice.
        pixels: of a side, before white borders are cut off.
        on_frame: called after every frame with how many are drawn, and of how many.

    Raises:
        ValueError: for a path of another kind, values out of range, or if no body has a pose that
            can be drawn.
    """
    path = moving_path("path", path)
    number("speed", speed, positive=True)
    if not 0 < float(number("fps", fps)) <= MOST_FPS:
        raise ValueError(f"fps: must be above 0 and at most {MOST_FPS}, got {fps}")
    count("pixels", pixels)
    told = listener("on_frame", on_frame)
    step = float(scene.timestep) / speed  # as it is seen [s]
    stride = max(1, round(1 / (fps * step)))
    indices = range((len(states.position) - 1) % stride, len(states.position), stride)
    images = images_of(scene, states, list(indices), pixels, told)
    first, *others = map(Image.fromarray, images)
    # Files of this kind know hundredths of a second.
    ends = np.round(100 * stride * step * np.arange(len(indices) + 1)).astype(int)
    milliseconds = (10 * np.diff(ends)).tolist()
    path.parent.mkdir(parents=True, exist_ok=True)
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)


def moving_path(name: str, value: object) -> Path:
    """A path of a file that holds several images."""
    path = as_path(name, value)
    if path.suffix.lower() not in MOVING:
        raise ValueError(f"{name}: must end in one of {', '.join(MOVING)}, got {path.name!r}")
    return path


def telling_indices(states: State, count: int) -> list[int]:
    """Indices of at most `count` states, each once: the first, the last, and between them where
    most moves. States of which nothing can be drawn are left out."""
    seen = np.flatnonzero(np.isfinite(states.position).all(axis=-1).any(axis=-1))
    steps, count = len(seen), min(count, len(seen))
    if not steps:
        return []
    travel = np.cumsum((_fastest(states.velocity) + 0.3 * _fastest(states.angular_velocity))[seen])
    # A share of plain time keeps a scene at rest, and the end of one that stops, in the picture.
    progress = 0.75 * travel / max(travel[-1], 1e-12) + 0.25 * np.arange(1, steps + 1) / steps
    targets = np.linspace(progress[0], progress[-1], count)
    order = np.arange(count)
    picked = np.maximum.accumulate(np.searchsorted(progress, targets) - order) + order
    return [int(k) for k in seen[np.minimum(picked, steps - count + order)]]


def time_labels(times: np.ndarray) -> list[str]:
    """Times [s] in one unit, with as many digits as tell them apart, and the first from 0."""
    last, (smallest, *_) = times.max(), np.sort(np.diff(np.unique([0.0, *times])))
    name, unit = next((u for u in UNITS.items() if last >= 0.1 * u[1]), ("ns", 1e-9))
    return [f"{time / unit:.{decimals(smallest / unit)}f} {name}" for time in times]


def _check_indices(indices: Sequence[int], steps: int) -> None:
    for index in indices:
        if not (is_count(index) and 0 <= index < steps):
            raise ValueError(f"indices: must be in 0 ... {steps - 1}, got {index!r}")


def _fastest(velocity: Any) -> np.ndarray:
    """(steps,) of all bodies whose velocity is finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        speed = np.linalg.norm(velocity, axis=-1)
    return np.where(np.isfinite(speed), speed, 0).max(axis=-1)


def _side_by_side(images: list[np.ndarray], titles: list[str], path: Path) -> None:
    tall, wide = (size / 200 for size in images[0].shape[:2])
    figure = Figure(figsize=(len(images) * (wide + 0.2), tall + 0.35))
    FigureCanvasAgg(figure)
    row = figure.subplots(1, len(images), squeeze=False)
    for axes, image, title in zip(row[0], images, titles, strict=True):
        axes.imshow(image)
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1 - 0.32 / (tall + 0.35), wspace=0.05)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
