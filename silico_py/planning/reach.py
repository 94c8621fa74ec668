"""How far the fingers can push: metric and controls from the smoothed control Jacobian.

Source: Pang et al., Global planning for contact-rich manipulation via local smoothing of
quasi-dynamic contact models, III and IV.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Jacobian = Float[np.ndarray, "*n 3 commands"]


def mahalanobis(
    jacobian: Jacobian, offset: Float[np.ndarray, "*n 3"], gamma: float
) -> Float[np.ndarray, "*n"]:
    """offset^T (B B^T + gamma I)^-1 offset: small where the fingers push towards it."""
    sizes, directions = np.linalg.eigh(jacobian @ jacobian.swapaxes(-1, -2))
    along = (directions.swapaxes(-1, -2) @ offset[..., None])[..., 0]
    return np.sum(along**2 / (np.maximum(sizes, 0) + gamma), axis=-1)


def command(
    jacobian: Jacobian, offset: Float[np.ndarray, "*n 3"], damping: float
) -> Float[np.ndarray, "*n commands"]:
    """Damped least squares: the u that minimises |B u - offset|^2 + damping |u|^2."""
    directions, sizes, commands = np.linalg.svd(jacobian, full_matrices=False)
    along = (directions.swapaxes(-1, -2) @ offset[..., None])[..., 0]
    wanted = sizes / (sizes**2 + damping) * along
    return (commands.swapaxes(-1, -2) @ wanted[..., None])[..., 0]


def shortened(commands: Float[np.ndarray, "*n fingers 2"], stride: float) -> np.ndarray:
    """All fingers together scaled so that none moves further than `stride` [m]."""
    longest = np.linalg.norm(commands, axis=-1).max(axis=-1)
    return commands * np.minimum(1, stride / np.maximum(longest, 1e-12))[..., None, None]
