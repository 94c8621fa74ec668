"""A plan seen from above, frames side by side, the goal as a grey overlay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from scipy.spatial import ConvexHull

from silico_py import rotation
from silico_py.body import Body
from silico_py.planning.grasp import Plan
from silico_py.planning.planar import Pose, turn
from silico_py.planning.task import Task
from silico_py.scene import Scene
from silico_py.viewing.replay import body_color

GOAL_COLOR = "0.88"
LIFTED = 1e-3  # height above which a finger is lifted [m]
MARGIN = 0.02  # around what is shown [m]
INCHES = 2.2  # width of a frame
TITLE = 0.25  # height of a title [inches]


def draw(scene: Scene, plan: Plan, goal: Pose, path: Path, frames: int = 8) -> None:
    """Write frames of a plan, the first and the last state among them, to an image file.

    Args:
        scene: the scene of the plan.
        plan: the plan.
        goal: planar pose of the object.
        path: where to write; folders are made.
        frames: number of frames, at most; steps with lifted fingers are left out.
    """
    start = plan.states[0]
    task = Task.of(scene, start, goal)
    shown = _telling(plan, task, frames)
    low, high = _limits(scene, plan, task)
    tall = INCHES * (high[1] - low[1]) / (high[0] - low[0]) + TITLE
    figure = Figure(figsize=(INCHES * len(shown), tall), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, k in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _draw_frame(axes, scene, plan, task, k)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_axis_off()
        axes.set_title(f"step {k}", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _telling(plan: Plan, task: Task, count: int) -> list[int]:
    """First, last, and between them steps with the fingers down, evenly."""
    height = plan.states.position[:, task.fingers, 2].max(axis=1)
    down = np.flatnonzero(height < LIFTED)
    chosen = np.linspace(0, len(down) - 1, min(count, len(down))).round().astype(int)
    return [int(k) for k in down[chosen]]


def _limits(scene: Scene, plan: Plan, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Corners of a box around the object's way and its goal, fingers included."""
    reach = float(scene.bodies[task.object].shapes.bounding_radius)
    object_ = plan.states.position[:, task.object, :2]
    tips = plan.states.position[:, task.fingers, :2].reshape(-1, 2)
    centers = np.concatenate([object_, task.goal[None, :2]])
    size = task.radius.max()
    low = np.minimum((centers - reach).min(axis=0), (tips - size).min(axis=0)) - MARGIN
    high = np.maximum((centers + reach).max(axis=0), (tips + size).max(axis=0)) + MARGIN
    return low, high


def _draw_frame(axes: Axes, scene: Scene, plan: Plan, task: Task, k: int) -> None:
    for outline in _outlines(scene.bodies[task.object]):
        placed = outline @ turn(task.goal[2]).T + task.goal[:2]
        axes.add_patch(Polygon(placed, facecolor=GOAL_COLOR, edgecolor="none"))
    for index, body in enumerate(scene.bodies):
        rotated = np.asarray(rotation.matrix(plan.states.orientation[k, index]))[:2, :2]
        color = body_color(index)
        for outline in _outlines(body):
            placed = outline @ rotated.T + plan.states.position[k, index, :2]
            axes.add_patch(Polygon(placed, facecolor=color, edgecolor="0.25", linewidth=0.7))


def _outlines(body: Body) -> Iterator[Float[np.ndarray, "corners 2"]]:
    """Each piece seen from above, in the body frame."""
    for shape, position, orientation in body.pieces:
        vertices, _ = shape.surface_mesh()
        placed = vertices @ np.asarray(rotation.matrix(orientation)).T + np.asarray(position)
        yield placed[ConvexHull(placed[:, :2]).vertices, :2]
