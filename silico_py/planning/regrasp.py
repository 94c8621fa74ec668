"""Placements of the fingers around the object, and the way there: up, across, down."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.body import Body
from silico_py.planning.task import Task
from silico_py.primitives import Bundle
from silico_py.scene import Scene

STEPS = 3  # of a regrasp
GAP = (0.002, 0.01)  # between a placed finger and the object [m]
DIRECTIONS = 64  # in which the gap is measured; a corner may hide between two
GRID = 48  # points a side that are tried
HEADROOM = 0.02  # above the object and between lifted fingers [m]

Placements = Float[np.ndarray, "count fingers 2"]


def placements(scene: Scene, task: Task, count: int, rng: np.random.Generator) -> Placements:
    """Random finger positions in the object's frame [m]: close to it, apart from each other.

    Raises:
        ValueError: where fingers of this size find no place beside the object.
    """
    by_radius = {r: _spots(scene.bodies[task.object], r) for r in set(task.radius)}
    spots = [by_radius[r] for r in task.radius]
    if not all(len(s) for s in spots):
        raise ValueError("scene: a finger finds no place beside the object in the plane z = 0")
    found: list[np.ndarray] = []
    for _ in range(100 * count):
        chosen = np.array([s[rng.integers(len(s))] for s in spots])
        if _apart(chosen, task.radius):
            found.append(chosen)
        if len(found) == count:
            return np.stack(found)
    raise ValueError("scene: the fingers find no places apart from each other")


def _spots(body: Body, radius: float) -> Float[np.ndarray, "spots 2"]:
    """Grid points whose gap to the object lies within `GAP`."""
    reach = float(body.shapes.bounding_radius) + radius + GAP[1]
    axis = np.linspace(-reach, reach, GRID)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    near, far = (_touches(body.shapes, points, radius + gap) for gap in GAP)
    return points[far & ~near]


def _touches(geometry: Bundle, points: np.ndarray, radius: float) -> np.ndarray:
    """Whether discs about the points meet the object in the plane, to `DIRECTIONS` rays."""
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    rim = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    rays = np.concatenate([radius * rim, radius / 2 * rim, np.zeros((1, 2))])
    ends = np.pad(points[:, None] + rays, ((0, 0), (0, 0), (0, 1)))
    return np.any(_contains(geometry, ends), axis=1)


@jax.jit
def _contains(geometry: Bundle, points: Float[Array, "count rays 3"]) -> Array:
    return jax.vmap(jax.vmap(geometry.contains))(points)


def _apart(points: np.ndarray, radius: np.ndarray) -> bool:
    gaps = np.linalg.norm(points[:, None] - points, axis=-1) - radius[:, None] - radius
    return bool(np.all(gaps[~np.eye(len(points), dtype=bool)] > 0))


def clear(task: Task, position: Float[np.ndarray, "n 3"]) -> bool:
    """Whether no two fingers overlap."""
    return _apart(position[task.fingers], task.radius)


def heights(scene: Scene, task: Task) -> Float[np.ndarray, " fingers"]:
    """How far each finger is lifted: over the object, each to a storey of its own [m]."""
    geometry = scene.bodies[task.object].shapes
    top = float(geometry.support(jnp.array([0.0, 0.0, 1.0]))[2])
    largest = task.radius.max()
    storey = 2 * largest + HEADROOM
    return top + largest + HEADROOM + storey * np.arange(len(task.fingers))


def commands(
    task: Task, bodies: int, height: np.ndarray, moves: Float[np.ndarray, "fingers 2"]
) -> Float[np.ndarray, "3 bodies 6"]:
    """Controls that lift the fingers, move them across and lower them."""
    out = np.zeros((STEPS, bodies, 6))
    out[0, task.fingers, 2] = height
    out[1, task.fingers, :2] = moves
    out[2, task.fingers, 2] = -height
    out[:, task.fingers, :3] *= task.gain
    return out
