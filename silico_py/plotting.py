"""Pictures of a motion: frames side by side (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import matplotlib
import numpy as np

from silico_py import rotation
from silico_py.scene import Scene, State

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

BODY_COLORS = plt.get_cmap("tab10").colors
FIXED_COLOR = (0.75, 0.75, 0.75, 0.25)


def frames(scene: Scene, states: Sequence[State], times: Sequence[float], path: Path) -> None:
    """Draw `states` side by side into the image file `path`.

    Args:
        scene: the scene.
        states: one state a frame.
        times: of each frame [s], for the titles.
        path: where to write; folders are made.
    """
    center, radius = _view(states)
    figure = plt.figure(figsize=(3 * len(states), 3.6))
    for k, (state, time) in enumerate(zip(states, times, strict=True)):
        axes = figure.add_subplot(1, len(states), k + 1, projection="3d", computed_zorder=False)
        _draw_floor(axes, center, radius)
        for mesh in _fixed_meshes(scene):
            axes.add_collection3d(Poly3DCollection(mesh, facecolor=FIXED_COLOR, zorder=2))
        for index, mesh in _body_meshes(scene, state):
            color = BODY_COLORS[index % len(BODY_COLORS)]
            axes.add_collection3d(
                Poly3DCollection(
                    mesh, facecolors=color, edgecolors=(0, 0, 0, 0.1), shade=True, zorder=1
                )
            )
        axes.set(
            xlim=(center[0] - radius, center[0] + radius),
            ylim=(center[1] - radius, center[1] + radius),
            zlim=(0, 2 * radius),
            title=f"t = {time:.2f} s",
        )
        axes.set_box_aspect((1, 1, 1), zoom=1.35)
        axes.view_init(elev=15, azim=-60)
        axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _view(states: Sequence[State]) -> tuple[np.ndarray, float]:
    positions = np.concatenate([np.asarray(state.position) for state in states])
    low, high = positions.min(axis=0), positions.max(axis=0)
    span = max(high[0] - low[0], high[1] - low[1], high[2])
    return (low + high) / 2, span / 2 + 0.35


def _draw_floor(axes: plt.Axes, center: np.ndarray, radius: float) -> None:
    square = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    corners = np.array([center[0], center[1], 0]) + radius * square
    axes.add_collection3d(Poly3DCollection([corners], facecolor=(0.93, 0.93, 0.88), zorder=0))


def _fixed_meshes(scene: Scene) -> list[np.ndarray]:
    return [
        _triangles(f.shape, f.position, f.orientation) for f in scene.environment if f.shape.scaled
    ]


def _body_meshes(scene: Scene, state: State) -> list[tuple[int, np.ndarray]]:
    meshes = []
    for index, body in enumerate(scene.bodies):
        turn = np.asarray(rotation.matrix(state.orientation[index]))
        for shape, position, orientation in body.pieces:
            local = _triangles(shape, position, orientation)
            meshes.append((index, local @ turn.T + np.asarray(state.position[index])))
    return meshes


def _triangles(shape: object, position: jax.Array, orientation: jax.Array) -> np.ndarray:
    vertices, faces = shape.surface_mesh()
    placed = vertices @ np.asarray(rotation.matrix(orientation)).T + np.asarray(position)
    return placed[faces]
