"""Images of a scene, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial.transform import Rotation

from silico_py.scene import Scene, State
from silico_py.viewing.meshes import Plane, fixtures
from silico_py.viewing.replay import body_color, drawable, up_direction

FLOOR_COLOR = (0.93, 0.93, 0.88)
FIXED_COLOR = (0.55, 0.58, 0.62, 0.16)
FIXED_EDGE = (0.35, 0.38, 0.42, 0.35)
LIGHT = np.array([0.25, -0.5, 0.83])
RESOLUTION = 24
SMOOTH = 20  # pieces with more faces than this are drawn without edges
PIXELS = 900  # of a frame, a side, before its border is cut off
ZOOM = 0.85
MARGIN = 0.1  # around what moves [share of its extent]
NEAR = 3.0  # half-spaces further from all else are not drawn [its extent]
ELEVATION, AZIMUTH = 18.0, -58.0  # of the camera [degrees]
TURNS = sorted(range(-135, 181, 45), key=abs)  # of the scene before the camera [degrees]
HIDDEN = 0.1  # share of a body, more than elsewhere, for which the scene is turned further

Polygons = list[np.ndarray]


class Stage(NamedTuple):
    """What is drawn.

    Attributes:
        frames: of each frame the pieces of bodies, each with the index of its body.
        fixed: fixtures but for half-spaces.
        planes: of half-spaces.
    """

    frames: list[list[tuple[int, Polygons]]]
    fixed: Polygons
    planes: list[Plane]

    @property
    def corners(self) -> np.ndarray:
        """(m, 3) of all polygons."""
        pieces = (piece for frame in self.frames for _, piece in frame)
        return np.concatenate([*self.fixed, *(polygon for piece in pieces for polygon in piece)])

    def turned(self, turn: np.ndarray) -> Stage:
        """The same, turned by a rotation matrix."""
        return Stage(
            [[(body, [p @ turn.T for p in piece]) for body, piece in f] for f in self.frames],
            [polygon @ turn.T for polygon in self.fixed],
            [Plane(turn @ point, turn @ normal) for point, normal in self.planes],
        )


def images_of(
    scene: Scene,
    states: State,
    indices: list[int],
    pixels: int = PIXELS,
    told: Callable[[int, int], None] = lambda *_: None,
) -> list[np.ndarray]:
    """An image (h, w, 3) of each of these states, all from one place and without white borders.

    After each `told` is called with how many are drawn, and of how many.

    Raises:
        ValueError: if no body has a pose there that can be drawn.
    """
    stage = _stage(scene, states, indices)
    if not any(stage.frames):
        raise ValueError("states: no body has a pose that can be drawn in any frame")
    stage = stage.turned(_turn(scene, stage))
    stage = stage._replace(planes=[p for p in stage.planes if _is_near(p, stage.corners)])
    low, high = _limits(stage)
    grounds = [_ground(plane, low, high) for plane in stage.planes]
    low, high = np.vstack([low, *grounds]).min(axis=0), np.vstack([high, *grounds]).max(axis=0)
    images = []
    for frame in stage.frames:
        images.append(_render(frame, stage.fixed, grounds, low, high, pixels))
        told(len(images), len(stage.frames))
    return _cropped(images)


def _stage(scene: Scene, states: State, indices: list[int]) -> Stage:
    """These states in the world."""
    position, orientation = (
        np.asarray(value)[indices] for value in (states.position, states.orientation)
    )
    poses = zip(position, orientation, drawable(scene, position, orientation), strict=True)
    bodies = [
        [_placed(_faces(shape), *place) for shape, *place in body.pieces] for body in scene.bodies
    ]
    return Stage(
        [list(_moved(bodies, *pose)) for pose in poses],
        [
            polygon
            for fixture in scene.environment
            if fixture.shape.scaled
            for polygon in _placed(_faces(fixture.shape), fixture.position, fixture.orientation)
        ],
        [fixture for fixture in fixtures(scene) if isinstance(fixture, Plane)],
    )


def _turn(scene: Scene, stage: Stage) -> np.ndarray:
    """Rotation matrix that brings up to z and, about z, bodies out of each other's way."""
    upright, _ = Rotation.align_vectors([[0.0, 0.0, 1.0]], up_direction(scene)[None])
    turns = [(Rotation.from_euler("z", k, degrees=True) * upright).as_matrix() for k in TURNS]
    hidden = [_hidden(stage, turn) for turn in turns]
    good = min(hidden) + HIDDEN
    return next(turn for turn, share in zip(turns, hidden, strict=True) if share <= good)


def _hidden(stage: Stage, turn: np.ndarray) -> float:
    """Mean share of a body that others hide; boxes stand for bodies."""
    shares = [_shares_hidden(frame, _camera() @ turn) for frame in stage.frames if frame]
    return float(np.mean(np.concatenate(shares)))


def _shares_hidden(frame: list[tuple[int, Polygons]], camera: np.ndarray) -> np.ndarray:
    """(bodies,) of one frame."""
    points: dict[int, Polygons] = {}
    for body, piece in frame:
        points.setdefault(body, []).extend(piece)
    seen = [np.concatenate(polygons) @ camera.T for polygons in points.values()]
    low, high = (np.array([end(p, axis=0) for p in seen]) for end in (np.min, np.max))
    common = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    depth = (low + high)[:, 2]
    behind = depth[:, None] < depth
    area = np.prod((high - low)[:, :2], axis=-1)
    return np.sum(behind * np.prod(np.maximum(common[..., :2], 0), axis=-1), axis=1) / area


def _camera() -> np.ndarray:
    """Rows: what is to the right, up and towards the camera."""
    tilt, swing = np.radians([ELEVATION, AZIMUTH])
    right = np.array([-np.sin(swing), np.cos(swing), 0])
    towards = np.array([*(np.cos(tilt) * np.array([np.cos(swing), np.sin(swing)])), np.sin(tilt)])
    return np.array([right, np.cross(towards, right), towards])


def _is_near(plane: Plane, points: np.ndarray) -> bool:
    """Whether a plane can be shown without making the rest small."""
    return np.abs((points - plane.point) @ plane.normal).min() < NEAR * np.ptp(points, axis=0).max()


def _limits(stage: Stage) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the box to show, square seen from above; what is below on planes included."""
    feet = [_on(plane, stage.corners) for plane in stage.planes]
    points = np.concatenate([stage.corners, *feet])
    low, high = points.min(axis=0), points.max(axis=0)
    center, reach = (low + high) / 2, (high - low) / 2
    reach[:2] = max(reach[:2].max(), 0.5 * reach[2])
    reach += MARGIN * reach.max()
    return center - reach, np.array([*(center + reach)[:2], high[2]])


def _on(plane: Plane, points: np.ndarray) -> np.ndarray:
    """(m, 3) the points of a plane next to these."""
    return points - np.outer((points - plane.point) @ plane.normal, plane.normal)


def _ground(plane: Plane, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(4, 3) a square of a plane about the middle of the view."""
    along = np.eye(3)[1 if abs(plane.normal[0]) > 0.9 else 0]
    along = along - plane.normal * (plane.normal @ along)
    along *= (high - low)[0] / 2 / np.linalg.norm(along)
    across = np.cross(plane.normal, along)
    return _on(plane, (low + high)[None] / 2) + [
        along + across,
        along - across,
        -along - across,
        across - along,
    ]


def _render(
    bodies: list[tuple[int, Polygons]],
    fixed: Polygons,
    grounds: Polygons,
    low: np.ndarray,
    high: np.ndarray,
    pixels: int,
) -> np.ndarray:
    """One frame as an image on white."""
    figure = Figure(figsize=(PIXELS / 100, PIXELS / 100), dpi=100 * pixels / PIXELS)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), projection="3d", computed_zorder=False)
    _draw(axes, bodies, fixed, grounds, low, high)
    # Matplotlib moves the corners that polygons lack, too: memory that nobody has set.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def _cropped(images: list[np.ndarray]) -> list[np.ndarray]:
    """The images without the white border that all images share."""
    ink = np.any([np.any(image < 255, axis=-1) for image in images], axis=0)
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    window = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return [image[window] for image in images]


def _draw(
    axes: Any,
    bodies: list[tuple[int, Polygons]],
    fixed: Polygons,
    grounds: Polygons,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    # Polygons of unlike lengths are padded by matplotlib with whatever is in memory, and its own
    # search for limits does not leave that out. They are set below.
    axes.set_autoscale_on(False)
    for ground in grounds:
        axes.add_collection3d(Poly3DCollection([ground], facecolors=[FLOOR_COLOR], zorder=0))
    if bodies:
        axes.add_collection3d(_of_bodies(bodies))
    if fixed:
        # Drawn last and see-through, so that walls never hide what moves between them.
        walls = Poly3DCollection(
            fixed, facecolors=[FIXED_COLOR], edgecolors=[FIXED_EDGE], linewidths=0.5, zorder=2
        )
        axes.add_collection3d(walls)
    axes.set(**{f"{n}lim": (low[i], high[i]) for i, n in enumerate("xyz")})
    axes.set_box_aspect(high - low, zoom=ZOOM)
    axes.view_init(elev=ELEVATION, azim=AZIMUTH)
    axes.set_axis_off()


def _of_bodies(bodies: list[tuple[int, Polygons]]) -> Poly3DCollection:
    """One collection for all bodies: matplotlib sorts by depth only within one."""
    polygons = [polygon for _, piece in bodies for polygon in piece]
    counts = [len(piece) for _, piece in bodies]
    colors = np.repeat([to_rgb(body_color(body)) for body, _ in bodies], counts, axis=0)
    faces = _shaded(colors, np.array([polygon[:3] for polygon in polygons]))
    edges = np.where(np.repeat(counts, counts) <= SMOOTH, 0.6, 1)[:, None] * faces
    return Poly3DCollection(polygons, facecolors=faces, edgecolors=edges, linewidths=0.5, zorder=1)


def _shaded(colors: np.ndarray, polygons: np.ndarray) -> np.ndarray:
    """(m, 3) of polygons (m, 3 or more, 3)."""
    return np.clip(colors * (0.62 + 0.38 * _normal(polygons) @ LIGHT)[:, None], 0, 1)


def _normal(polygon: np.ndarray) -> np.ndarray:
    """Of a polygon (k, 3), or of each of several (m, k, 3)."""
    a, b, c = (polygon[..., k, :] for k in range(3))
    normal = np.cross(b - a, c - a)
    return normal / np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-300)


def _moved(
    bodies: list[list[Polygons]], position: np.ndarray, orientation: np.ndarray, drawn: np.ndarray
) -> Iterator[tuple[int, Polygons]]:
    """Body and world polygons of every convex piece that can be drawn."""
    for index in np.flatnonzero(drawn):
        for piece in bodies[index]:
            yield int(index), _placed(piece, position[index], orientation[index])


def _placed(polygons: Polygons, position: Any, orientation: Any) -> Polygons:
    turn = Rotation.from_quat(np.asarray(orientation), scalar_first=True).as_matrix()
    return [polygon @ turn.T + np.asarray(position) for polygon in polygons]


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
    size = np.abs(points).max()
    corners = size * np.unique(np.round(points / size, 9), axis=0)
    arms = corners - corners.mean(axis=0)
    first = arms[0] / np.linalg.norm(arms[0])
    angle = np.arctan2(arms @ np.cross(normal, first), arms @ first)
    return corners[np.argsort(angle)]
