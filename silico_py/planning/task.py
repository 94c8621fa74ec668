"""What a grasp planner reads off a scene: one object to move in the plane, and its fingers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from silico_py.planning import planar
from silico_py.primitives import Sphere
from silico_py.scene import Scene, State, check_scene, check_start
from silico_py.validation import vector

LEVEL = 1e-3  # tilt that is none [rad]


class Task(NamedTuple):
    """A planar manipulation task.

    Attributes:
        object: index of the body to move.
        fingers: indices of the position-controlled spheres.
        radius: of each finger [m].
        gain: commanded over reached displacement of each finger along x, y and z where nothing
            touches.
        scale: weights of (x, y, yaw) in a distance, (1, 1, radius of gyration [m]).
        start, goal: planar poses of the object (x [m], y [m], yaw [rad]).
    """

    object: int
    fingers: np.ndarray
    radius: Float[np.ndarray, " fingers"]
    gain: Float[np.ndarray, "fingers 3"]
    scale: Float[np.ndarray, "3"]
    start: planar.Pose
    goal: planar.Pose

    @classmethod
    def of(cls, scene: Scene, state: State, goal: Any) -> Task:
        """Read the task off a scene.

        Raises:
            ValueError: unless the scene has one free body and otherwise position-controlled
                spheres about their origins, all quasi-dynamic, for a state that is not one of it
                or has the object tilted, or a malformed goal.
        """
        check_scene(scene)
        held = [bool(body.stiffness[0] > 0) for body in scene.bodies]
        if held.count(False) != 1 or len(held) < 2:
            raise ValueError(
                "scene: needs one body without stiffness along x (the object) and at least one "
                f"with it (a finger), got {held.count(False)} and {held.count(True)}"
            )
        index = held.index(False)
        fingers = np.array([k for k in range(len(held)) if k != index])
        _check(scene, fingers)
        check_start(scene, state)
        body = scene.bodies[index]
        _check_upright(np.asarray(state.orientation[index]))
        start = planar.poses(*(np.asarray(v[index]) for v in (state.position, state.orientation)))
        gyration = float(np.sqrt(body.inertia[2, 2] / body.mass))
        h, tips = float(scene.timestep), [scene.bodies[k] for k in fingers]
        return cls(
            object=index,
            fingers=fingers,
            radius=np.array([float(tip.pieces[0][0].radius) for tip in tips]),
            gain=np.array([1 + np.asarray(tip.mass / tip.stiffness[:3]) / h**2 for tip in tips]),
            scale=np.array([1.0, 1.0, gyration]),
            start=start,
            goal=np.asarray(vector("goal", goal, 3), float),
        )

    def distance(self, pose: planar.Pose, to: planar.Pose) -> np.ndarray:
        """Length of the offset, turns counted at the radius of gyration [m]."""
        return np.linalg.norm(planar.offset(to, pose) * self.scale, axis=-1)

    def pose(self, state: State) -> planar.Pose:
        """Planar pose of the object."""
        at = (..., self.object, slice(None))
        return planar.poses(np.asarray(state.position)[at], np.asarray(state.orientation)[at])


def _check_upright(orientation: np.ndarray) -> None:
    tilt = float(2 * np.hypot(*orientation[1:3]))
    if tilt > LEVEL:
        raise ValueError(f"state: the object is tilted by {tilt:.2g} rad; only turn it about z")


def _check(scene: Scene, fingers: np.ndarray) -> None:
    for body in scene.bodies:
        if not body.quasi_dynamic:
            raise ValueError(f"scene: body {body.name!r} must be quasi_dynamic")
    for body in (scene.bodies[k] for k in fingers):
        shape, position, _ = body.pieces[0]
        if len(body.pieces) != 1 or not isinstance(shape, Sphere) or np.any(position):
            raise ValueError(f"scene: finger {body.name!r} must be one sphere about its origin")
        if not np.all(body.stiffness[:3] > 0):
            raise ValueError(f"scene: finger {body.name!r} needs a stiffness along x, y and z")
