"""Pictures of a motion: frames side by side (matplotlib)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from silico_py import rotation
from silico_py.primitives import Shape
from silico_py.scene import Scene, State

BODY_COLORS = matplotlib.colormaps["tab10"](range(10))[:, :3]
FLOOR_COLOR = (0.93, 0.93, 0.88)
FIXED_COLOR = (0.55, 0.58, 0.62, 0.16)
FIXED_EDGE = (0.35, 0.38, 0.42, 0.35)
LIGHT = np.array([0.25, -0.5, 0.83])
RESOLUTION = 24
SMOOTH = 20  # pieces with more faces than this are drawn without edges
PIXELS = 900  # of a frame, a side, before its border is cut off
ZOOM = 0.85
MARGIN = 0.1  # around what moves [share of its extent]

Polygons = list[np.ndarray]


def frames(scene: Scene, states: State, indices: Sequence[int], path: Path | str) -> None:
    """Draw some states of a motion side by side into the image file `path`.

    Args:
        scene: the scene.
        states: stacked over time, one after each step (`Trajectory.state`).
        indices: which of them to draw.
        path: where to write; folders are made.
    """
    shown = [jax.tree.map(lambda v, k=k: np.asarray(v[k]), states) for k in indices]
    bodies = [list(_body_polygons(scene, state)) for state in shown]
    fixed = [p for f in scene.environment if f.shape.scaled for p in _placed(*_parts(f))]
    corners = [corner for frame in bodies for _, polygons in frame for corner in polygons]
    low, high = _limits(np.concatenate([*corners, *fixed]))
    images = [_render(scene, frame, fixed, low, high) for frame in bodies]
    times = [(int(index) + 1) * float(scene.timestep) for index in indices]
    _side_by_side(_cropped(images), [f"{time:.2f} s" for time in times], Path(path))


def telling_indices(states: State, count: int) -> list[int]:
    """Indices of `count` states: the first, the last, and between them where most moves."""
    steps = len(states.position)
    speed = np.linalg.norm(states.velocity, axis=-1).max(axis=-1)
    spin = np.linalg.norm(states.angular_velocity, axis=-1).max(axis=-1)
    travel = np.cumsum(speed + 0.3 * spin)
    # A share of plain time keeps a scene at rest, and the end of one that stops, in the picture.
    progress = 0.75 * travel / max(travel[-1], 1e-12) + 0.25 * np.arange(1, steps + 1) / steps
    targets = np.linspace(progress[0], progress[-1], count)
    return [int(k) for k in np.clip(np.searchsorted(progress, targets), 0, steps - 1)]


def _limits(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the box to show, square seen from above."""
    low, high = points.min(axis=0), points.max(axis=0)
    center, reach = (low + high) / 2, (high - low) / 2
    reach[:2] = max(reach[:2].max(), 0.5 * reach[2])
    reach += MARGIN * reach.max()
    return center - reach, np.array([*(center + reach)[:2], high[2]])


def _render(
    scene: Scene,
    bodies: list[tuple[np.ndarray, Polygons]],
    fixed: Polygons,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """One frame as an image on white."""
    figure = Figure(figsize=(PIXELS / 100, PIXELS / 100), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), projection="3d", computed_zorder=False)
    _draw(axes, scene, bodies, fixed, low, high)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def _cropped(images: list[np.ndarray]) -> list[np.ndarray]:
    """Without the white border that all images share."""
    ink = np.any([np.any(image < 255, axis=-1) for image in images], axis=0)
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    window = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return [image[window] for image in images]


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


def _draw(
    axes: Any,
    scene: Scene,
    bodies: list[tuple[np.ndarray, Polygons]],
    fixed: Polygons,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    # Polygons of unlike lengths are padded by matplotlib with whatever is in memory, and its own
    # search for limits does not leave that out. They are set below.
    axes.set_autoscale_on(False)
    for fixture in scene.environment:
        if not fixture.shape.scaled:
            patch = _ground(fixture, low, high)
            axes.add_collection3d(Poly3DCollection([patch], facecolors=[FLOOR_COLOR], zorder=0))
    # One collection for all bodies: matplotlib sorts by depth only within one.
    polygons, faces, edges = [], [], []
    for color, piece in bodies:
        for polygon in piece:
            shade = _shaded(color, polygon)
            polygons.append(polygon)
            faces.append(shade)
            edges.append(0.6 * shade if len(piece) <= SMOOTH else shade)
    axes.add_collection3d(
        Poly3DCollection(polygons, facecolors=faces, edgecolors=edges, linewidths=0.5, zorder=1)
    )
    if fixed:
        # Drawn last and see-through, so that walls never hide what moves between them.
        walls = Poly3DCollection(
            fixed, facecolors=[FIXED_COLOR], edgecolors=[FIXED_EDGE], linewidths=0.5, zorder=2
        )
        axes.add_collection3d(walls)
    axes.set(**{f"{n}lim": (low[i], high[i]) for i, n in enumerate("xyz")})
    axes.set_box_aspect(high - low, zoom=ZOOM)
    axes.view_init(elev=18, azim=-58)
    axes.set_axis_off()


def _ground(fixture: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A square of the half-space's plane about the middle of the view."""
    turn = np.asarray(rotation.matrix(fixture.orientation))
    vertices, _ = fixture.shape.surface_mesh(extent=float(high[0] - low[0]) / 2)
    normal = turn @ np.asarray(fixture.shape.normal)
    corners = vertices[[0, 1, 3, 2]] @ turn.T + np.asarray(fixture.position)
    center = (low + high) / 2 - corners.mean(axis=0)
    return corners + center - normal * (normal @ center)


def _shaded(color: np.ndarray, polygon: np.ndarray) -> np.ndarray:
    normal = _normal(polygon)
    return np.clip(color * (0.62 + 0.38 * (normal @ LIGHT)), 0, 1)


def _normal(polygon: np.ndarray) -> np.ndarray:
    normal = np.cross(polygon[1] - polygon[0], polygon[2] - polygon[0])
    return normal / max(float(np.linalg.norm(normal)), 1e-300)


def _body_polygons(scene: Scene, state: State) -> Iterator[tuple[np.ndarray, Polygons]]:
    """Colour and world polygons of every convex piece."""
    for index, body in enumerate(scene.bodies):
        turn = np.asarray(rotation.matrix(state.orientation[index]))
        for piece in body.pieces:
            polygons = [p @ turn.T + state.position[index] for p in _placed(*piece)]
            yield BODY_COLORS[index % len(BODY_COLORS)], polygons


def _parts(fixture: Any) -> tuple[Shape, Any, Any]:
    return fixture.shape, fixture.position, fixture.orientation


def _placed(shape: Any, position: Any, orientation: Any) -> Polygons:
    turn = np.asarray(rotation.matrix(orientation))
    return [polygon @ turn.T + np.asarray(position) for polygon in _faces(shape)]


def _faces(shape: Any) -> Polygons:
    """The flat faces of a convex shape; triangles of one plane are joined."""
    vertices, triangles = shape.surface_mesh(RESOLUTION)
    planes: dict[tuple, list[np.ndarray]] = {}
    size = np.abs(vertices).max()
    for triangle in vertices[triangles]:
        normal = _normal(triangle)
        plane = np.round([*normal, normal @ triangle[0] / size], 5) + 0.0
        planes.setdefault(tuple(plane), []).append(triangle)
    return [_outline(np.concatenate(parts)) for parts in planes.values()]


def _outline(points: np.ndarray) -> np.ndarray:
    """Corners of a convex polygon in order, given triangles that fill it."""
    if len(points) == 3:
        return points
    normal = _normal(points)
    corners = np.unique(np.round(points, 9), axis=0)
    arms = corners - corners.mean(axis=0)
    first = arms[0] / np.linalg.norm(arms[0])
    angle = np.arctan2(arms @ np.cross(normal, first), arms @ first)
    return corners[np.argsort(angle)]
