"""The search tree: states reached by one exact step each, with what the fingers can do there."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Float

from silico_py.planning.planar import Pose
from silico_py.scene import State


@dataclass(frozen=True)
class Node:
    """A state and how it was reached.

    Attributes:
        state: numpy arrays.
        parent: index of the node before, -1 for the root.
        controls: (steps, n, 6) that lead here from the parent.
    """

    state: State
    parent: int
    controls: Float[np.ndarray, "steps n 6"]


@dataclass
class Tree:
    """Nodes, and their poses and smoothed Jacobians as arrays for the nearest-node search.

    Attributes:
        poses: of the object, planar.
        jacobians: of the object's scaled pose by the fingers' commands.
    """

    nodes: list[Node] = field(default_factory=list)
    poses: Float[np.ndarray, "count 3"] = field(default_factory=lambda: np.zeros((0, 3)))
    jacobians: Float[np.ndarray, "count 3 commands"] = field(
        default_factory=lambda: np.zeros((0, 3, 0))
    )

    def add(self, node: Node, pose: Pose, jacobian: Float[np.ndarray, "3 commands"]) -> None:
        """Append a node."""
        self.nodes.append(node)
        self.poses = np.concatenate([self.poses, pose[None]])
        old = self.jacobians if len(self.jacobians) else jacobian[None][:0]
        self.jacobians = np.concatenate([old, jacobian[None]])

    def states(self, indices: np.ndarray) -> State:
        """The states of some nodes, stacked."""
        return jax.tree.map(lambda *v: np.stack(v), *(self.nodes[k].state for k in indices))

    def controls(self, index: int) -> Float[np.ndarray, "steps n 6"]:
        """All controls from the root to a node."""
        parts = []
        while index >= 0:
            parts.append(self.nodes[index].controls)
            index = self.nodes[index].parent
        return np.concatenate(parts[::-1])
