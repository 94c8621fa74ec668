"""Planar poses (x, y, yaw) of bodies that move in the plane z = 0."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Pose = Float[np.ndarray, "*n 3"]


def poses(position: np.ndarray, orientation: np.ndarray) -> Pose:
    """(x [m], y [m], yaw [rad]) of positions (*n, 3) and quaternions (*n, 4) about z."""
    yaw = 2 * np.arctan2(orientation[..., 3], orientation[..., 0])
    return np.concatenate([position[..., :2], wrapped(yaw)[..., None]], axis=-1)


def wrapped(angle: np.ndarray) -> np.ndarray:
    """The angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def offset(to: Pose, start: Pose) -> Pose:
    """`to` seen from `start`, in world axes, the angle the short way round."""
    difference = to - start
    return np.concatenate([difference[..., :2], wrapped(difference[..., 2:])], axis=-1)


def turn(yaw: np.ndarray) -> Float[np.ndarray, "*n 2 2"]:
    """Rotation matrices."""
    c, s = np.cos(yaw), np.sin(yaw)
    return np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)
