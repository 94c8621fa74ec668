"""Rapidly-exploring random tree over grasps and pushes, guided by smoothed contact dynamics.

Every edge is one exact quasi-dynamic step, after a regrasp where one was chosen. Metric and
controls come from the control Jacobian at a large relaxation, which feels contacts before
they close.

Source: single-level contact simulation, VI-C; Pang et al., Global planning for
contact-rich manipulation via local smoothing of quasi-dynamic contact models.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from silico_py.compilation import jitted
from silico_py.linearization import linearize
from silico_py.options import SolverOptions
from silico_py.planning import planar, reach, regrasp
from silico_py.planning.options import PlannerOptions
from silico_py.planning.task import Task
from silico_py.planning.tree import Node, Tree
from silico_py.scene import Scene, State
from silico_py.simulate import no_guess, step
from silico_py.warm_start import Remembered

PROGRESS = 1e-3  # least motion of the object that makes a new node [m]
SHORTEST = 0.2  # random share of a control that a candidate takes, at least


class Candidates(NamedTuple):
    """Extensions of the tree, one row each.

    Attributes:
        parents: node indices.
        states: of the parents, after the regrasp if there is one.
        controls: (count, n, 6) of the step.
        moves: (count, fingers, 2) of a regrasp in the plane, NaN where there is none [m].
    """

    parents: np.ndarray
    states: State
    controls: np.ndarray
    moves: np.ndarray


@jitted
def _evaluate(
    scene: Scene, states: State, controls: Array, relaxation: Array, smoothing: Array
) -> tuple[State, Bool[Array, " count"], Float[Array, "count rows columns"]]:
    """One exact step of each candidate, and the smoothed control Jacobian where it ends."""
    options = SolverOptions(relaxation=relaxation, polish=0)

    def one(state: State, control: Array) -> tuple:
        after, info = step(scene, state, control, options)
        return after, info.converged, linearize(scene, after, None, smoothing, options)[1]

    return jax.vmap(one)(states, controls)


def replay(
    scene: Scene, state: State, controls: Float[np.ndarray, "steps n 6"], options: PlannerOptions
) -> tuple[State, bool]:
    """States of a roll-out, the start first, and whether every step converged."""
    exact = SolverOptions(relaxation=options.relaxation)
    guess: Remembered | None = no_guess(scene, state, exact)
    states, converged = [state], True
    for control in controls:
        state, info = step(scene, state, control, exact, guess)
        guess = info.guess
        states.append(state)
        converged &= bool(info.converged)
    return jax.tree.map(lambda *v: np.stack(v), *states), converged


def compile_search(scene: Scene, state: State, task: Task, options: PlannerOptions) -> None:
    """Run every compiled function once, so that a search that follows is not delayed."""
    states = _repeated(state, options.batch)
    controls = np.zeros((options.batch, len(scene.bodies), 6))
    _evaluate(scene, states, controls, options.relaxation, options.smoothing)
    regrasp.placements(scene, task, 1, np.random.default_rng(0))
    replay(scene, state, controls[:1], options)


def _repeated(state: State, count: int) -> State:
    return jax.tree.map(lambda v: np.repeat(np.asarray(v)[None], count, axis=0), state)


class Search:
    """A tree from the start towards the goal.

    Args:
        scene, state, task: what to solve.
        options: how.
        seed: of the samples.
    """

    def __init__(
        self, scene: Scene, state: State, task: Task, options: PlannerOptions, seed: int
    ) -> None:
        self.scene, self.task, self.options = scene, task, options
        self.rng = np.random.default_rng(seed)
        self.rounds = 0
        self.discarded: set[int] = set()
        self.height = regrasp.heights(scene, task)
        self.tree = Tree()
        start = jax.tree.map(np.asarray, state)
        still = np.zeros((options.batch, len(scene.bodies), 6))
        jacobian = self._evaluate(_repeated(start, options.batch), still)[2][0]
        self.tree.add(Node(start, -1, still[:0]), task.pose(start), jacobian)
        self.pool, self.pool_jacobians = self._pool(start)

    @property
    def distances(self) -> Float[np.ndarray, " nodes"]:
        """Distance of all nodes from the goal, infinite where the check of the plan failed [m]."""
        out = self.task.distance(self.tree.poses, self.task.goal)
        out[list(self.discarded)] = np.inf
        return out

    @property
    def nearest(self) -> int:
        """The node nearest to the goal."""
        return int(np.argmin(self.distances))

    @property
    def exhausted(self) -> bool:
        """Whether the limits of the search are met."""
        return (
            self.rounds >= self.options.max_rounds or len(self.tree.nodes) >= self.options.max_nodes
        )

    def discard(self, node: int) -> None:
        """Do not offer this node as a plan again."""
        self.discarded.add(node)

    def grow(self) -> None:
        """One round: a batch of candidates, all evaluated at once."""
        self.rounds += 1
        candidates = self._candidates()
        after, converged, jacobians = self._evaluate(candidates.states, candidates.controls)
        poses = self.task.pose(after)
        moved = self.task.distance(poses, self.tree.poses[candidates.parents])
        for k in np.flatnonzero(converged & (moved > PROGRESS)):
            state = jax.tree.map(lambda v, k=k: v[k], after)
            if not regrasp.clear(self.task, state.position):
                continue
            controls = candidates.controls[k][None]
            if not np.isnan(candidates.moves[k]).any():
                way = self._way(candidates.moves[k])
                controls = np.concatenate([way, controls])
            self.tree.add(Node(state, int(candidates.parents[k]), controls), poses[k], jacobians[k])

    def _way(self, moves: Float[np.ndarray, "fingers 2"]) -> Float[np.ndarray, "steps n 6"]:
        """Controls of a regrasp."""
        return regrasp.commands(self.task, len(self.scene.bodies), self.height, moves)

    def _candidates(self) -> Candidates:
        count = self.options.batch
        targets = self._targets(count)
        anew = self.rng.random(count) < self.options.regrasp
        parents = np.array([self._parent(t, a) for t, a in zip(targets, anew, strict=True)])
        jacobians = self.tree.jacobians[parents]
        offsets = planar.offset(targets, self.tree.poses[parents]) * self.task.scale
        states = self.tree.states(parents)
        moves = np.full((count, len(self.task.fingers), 2), np.nan)
        for k in np.flatnonzero(anew):
            spots, jacobians[k] = self._placement(self.tree.poses[parents[k]], offsets[k])
            moves[k] = spots - states.position[k, self.task.fingers, :2]
            states.position[k, self.task.fingers, :2] = spots
        return Candidates(parents, states, self._controls(jacobians, offsets), moves)

    def _targets(self, count: int) -> planar.Pose:
        ends = np.stack([self.task.start, self.task.goal])
        margin = np.array(self.options.margin)
        low, high = ends.min(axis=0) - margin, ends.max(axis=0) + margin
        targets = self.rng.uniform(low, high, (count, 3))
        aimed = self.rng.random(count) < self.options.goal_bias
        return np.where(aimed[:, None], self.task.goal, targets)

    def _parent(self, target: planar.Pose, anew: bool) -> int:
        """Nearest by the metric of each node; by plain distance where the fingers move anyway."""
        offsets = planar.offset(target, self.tree.poses) * self.task.scale
        if anew:
            return int(np.argmin(np.linalg.norm(offsets, axis=-1)))
        return int(np.argmin(reach.mahalanobis(self.tree.jacobians, offsets, self.options.gamma)))

    def _placement(
        self, pose: planar.Pose, offset: Float[np.ndarray, "3"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """World positions of the fingers, and the Jacobian there, that suit the offset best."""
        some = self.rng.choice(len(self.pool), self.options.choices)
        turn = planar.turn(pose[2])
        jacobians = _turned(self.pool_jacobians[some], turn)
        best = np.argmin(reach.mahalanobis(jacobians, offset, self.options.gamma))
        return pose[:2] + self.pool[some[best]] @ turn.T, jacobians[best]

    def _controls(self, jacobians: reach.Jacobian, offsets: np.ndarray) -> np.ndarray:
        """Damped least squares towards the offsets, each shortened by a random share."""
        count, fingers = len(offsets), len(self.task.fingers)
        plane = reach.command(jacobians, offsets, self.options.damping)
        plane = reach.shortened(plane.reshape(count, fingers, 2), self.options.stride)
        plane *= self.rng.uniform(SHORTEST, 1, (count, 1, 1))
        out = np.zeros((count, len(self.scene.bodies), 6))
        out[:, self.task.fingers, :2] = plane
        return out

    def _evaluate(
        self, states: State, controls: np.ndarray
    ) -> tuple[State, np.ndarray, np.ndarray]:
        """Next states, whether they converged, and Jacobians of the object's scaled pose: zero,
        which promises nothing, where the smoothed step is not solved."""
        options = self.options
        after, converged, b = _evaluate(
            self.scene, states, controls, options.relaxation, options.smoothing
        )
        rows = 12 * self.task.object + np.array([0, 1, 5])
        columns = (6 * self.task.fingers[:, None] + np.arange(2)).ravel()
        jacobians = np.asarray(b)[:, rows[:, None], columns] * self.task.scale[:, None]
        return jax.tree.map(np.array, after), np.asarray(converged), np.nan_to_num(jacobians)

    def _pool(self, start: State) -> tuple[np.ndarray, np.ndarray]:
        """Placements in the object's frame and their Jacobians there."""
        options, task = self.options, self.task
        pool = regrasp.placements(self.scene, task, options.pool, self.rng)
        pose = task.pose(start)
        turn = planar.turn(pose[2])
        still = np.zeros((options.batch, len(self.scene.bodies), 6))
        parts = []
        for chunk in pool.reshape(-1, options.batch, *pool.shape[1:]):
            states = _repeated(start, options.batch)
            states.position[:, task.fingers, :2] = pose[:2] + chunk @ turn.T
            parts.append(self._evaluate(states, still)[2])
        return pool, _turned(np.concatenate(parts), turn.T)


def _turned(jacobians: reach.Jacobian, turn: Float[np.ndarray, "2 2"]) -> reach.Jacobian:
    """Jacobians of the same grasps with everything turned by a rotation."""
    fingers = jacobians.shape[-1] // 2
    rows = np.eye(3)
    rows[:2, :2] = turn
    return rows @ jacobians @ np.kron(np.eye(fingers), turn.T)
