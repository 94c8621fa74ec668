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
    covariance = jacobian @ jacobian.swapaxes(-1, -2) + gamma * np.eye(3)
    return np.sum(offset * np.linalg.solve(covariance, offset[..., None])[..., 0], axis=-1)


def command(
    jacobian: Jacobian, offset: Float[np.ndarray, "*n 3"], damping: float
) -> Float[np.ndarray, "*n commands"]:
    """Damped least squares: the u that minimises |B u - offset|^2 + damping |u|^2."""
    transpose = jacobian.swapaxes(-1, -2)
    normal = transpose @ jacobian + damping * np.eye(jacobian.shape[-1])
    return np.linalg.solve(normal, transpose @ offset[..., None])[..., 0]


def shortened(commands: Float[np.ndarray, "*n fingers 2"], stride: float) -> np.ndarray:
    """All fingers together scaled so that none moves further than `stride` [m]."""
    longest = np.linalg.norm(commands, axis=-1).max(axis=-1)
    return commands * np.minimum(1, stride / np.maximum(longest, 1e-12))[..., None, None]
