"""Trajectory optimisation through contact: direct shooting, smooth at first, exact at the end.

The pose at the end is six numbers, so its Jacobian by the controls takes as many reverse sweeps.
Least squares on them takes a fifth of the roll-outs of gradient descent on the distance, and ends
on the goal where that stalls a few millimetres off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, least_squares

from silico_py import rotation
from silico_py.compilation import jitted
from silico_py.options import SolverOptions, check_relaxations
from silico_py.primitives._checks import Orientation
from silico_py.scene import Scene, State, body_index, check_start
from silico_py.simulate import Trajectory, rollout
from silico_py.validation import count, is_count, listener, number, quaternions, vector

RELAXATIONS = (1e-2, 1e-3, 1e-4, 1e-6)
TRIALS = 60  # of controls at each relaxation
ENOUGH = 1e-2  # squared distance, in tolerances, that ends a relaxation


class Push(NamedTuple):
    """Controls found by `push_to`.

    Attributes:
        controls: (steps, n, 6).
        trajectory: of the controls, at the last relaxation.
        distance: of the target from its goal at the end [m], turns counted at its size.
        evaluations: roll-outs.
        reached: whether the distance is within the tolerance and every step converged.
    """

    controls: Float[np.ndarray, "steps n 6"]
    trajectory: Trajectory
    distance: float
    evaluations: int
    reached: bool


class Goal(NamedTuple):
    """Pose of the target at the end."""

    position: Float[Array, "3"]
    orientation: Float[Array, "4"]
    size: Float[Array, ""]  # arm at which turns count [m]


class Actuation(NamedTuple):
    """Which body is moved, by which columns of which body's control."""

    target: int
    pusher: int
    directions: tuple[int, ...]


class Problem(NamedTuple):
    """What `push_to` is asked, checked."""

    scene: Scene
    state: State
    goal: Goal
    actuation: Actuation
    limit: float
    tolerance: float

    def end(self, plan: np.ndarray, relaxation: float) -> End:
        """Where a plan leads."""
        return _end(self.scene, self.state, plan, self.goal, relaxation, self.actuation)


class End(NamedTuple):
    """End of a plan: what separates the target from its goal [m], and its Jacobian by the plan."""

    miss: Float[Array, "6"]
    slopes: Float[Array, "6 steps directions"]
    controls: Float[Array, "steps n 6"]
    trajectory: Trajectory


def push_to(
    scene: Scene,
    state: State,
    target: str,
    pusher: str,
    position: ArrayLike,
    orientation: Orientation = (1.0, 0.0, 0.0, 0.0),
    *,
    steps: int = 20,
    directions: tuple[int, ...] = (0, 1),
    limit: float = 10.0,
    tolerance: float = 1e-3,
    relaxations: Sequence[float] | Array = RELAXATIONS,
    on_trial: Callable[[float, float], None] | None = None,
) -> Push:
    """Find controls of one body that bring another to a pose.

    Nonlinear least squares on the controls of a roll-out, from zero controls. At a large
    relaxation the pusher feels the target across a gap; each relaxation starts from the controls
    of the one before. The search is local: it can end short of the goal, and `reached` says so.

    Args:
        scene: the scene.
        state: the start.
        target: name of the body to move.
        pusher: name of the body that is controlled.
        position: (3,) of the target at the end, world [m].
        orientation: of the target at the end, (4,) unit quaternion wxyz or a `Rotation`.
        steps: length of the roll-out.
        directions: columns of the control, 0 to 5, that are free.
        limit: largest absolute value of a control [N, N m; m, rad where the pusher has stiffness].
        tolerance: of the reached pose [m], turns counted at the target's size.
        relaxations: rho of the roll-outs, one after the other.
        on_trial: called after every roll-out with its relaxation and the distance left [m].

    Raises:
        ValueError: for names the scene does not have, a malformed goal, or values out of range.
    """
    check_start(scene, state)
    actuation = _actuation(scene, target, pusher, directions)
    size = scene.bodies[actuation.target].shapes.characteristic_length
    goal = Goal(vector("position", position, 3), quaternions("orientation", orientation), size)
    number("tolerance", tolerance, positive=True)
    number("limit", limit, positive=True)
    count("steps", steps)
    relaxations = check_relaxations("relaxations", relaxations, state.position.dtype)
    told = listener("on_trial", on_trial)
    problem = Problem(scene, state, goal, actuation, limit, tolerance)
    plan, evaluations = np.zeros((steps, len(directions))), 0
    for rho in relaxations:
        plan, more = _improved(problem, plan, rho, told)
        evaluations += more
    end = problem.end(plan, relaxations[-1])
    controls, trajectory = jax.tree.map(np.asarray, (end.controls, end.trajectory))
    distance = float(np.linalg.norm(end.miss))
    reached = distance <= tolerance and bool(trajectory.info.converged.all())
    return Push(controls, trajectory, distance, evaluations, reached)


def _actuation(scene: Scene, target: str, pusher: str, directions: tuple[int, ...]) -> Actuation:
    moved, driven = body_index(scene, "target", target), body_index(scene, "pusher", pusher)
    columns = directions if isinstance(directions, Sequence) else ()
    known = all(is_count(k) and 0 <= k < 6 for k in columns)
    if not columns or not known or len(set(columns)) < len(columns):
        raise ValueError(f"directions: expected different columns 0 to 5, got {directions!r}")
    return Actuation(moved, driven, tuple(directions))


def _improved(
    problem: Problem, plan: np.ndarray, relaxation: float, on_trial: Callable[[float, float], None]
) -> tuple[np.ndarray, int]:
    """The plan improved at one relaxation, and the number of roll-outs."""
    limit, tolerance = problem.limit, problem.tolerance

    @lru_cache(maxsize=1)  # the Jacobian is asked for where the miss has just been
    def at(flat: bytes) -> tuple[np.ndarray, np.ndarray]:
        trial = np.frombuffer(flat).reshape(plan.shape)
        end = problem.end(trial, relaxation)
        on_trial(float(relaxation), float(np.linalg.norm(end.miss)))
        return np.asarray(end.miss) / tolerance, np.asarray(end.slopes).reshape(6, -1) / tolerance

    def stop(intermediate_result: OptimizeResult) -> None:
        if 2 * intermediate_result.cost < ENOUGH:
            raise StopIteration

    found = least_squares(
        lambda flat: at(flat.tobytes())[0],
        plan.ravel(),
        jac=lambda flat: at(flat.tobytes())[1],
        bounds=(-limit, limit),
        max_nfev=TRIALS,
        callback=stop,
    )
    return found.x.reshape(plan.shape), found.nfev


@partial(jitted, static_argnames="actuation")
def _end(
    scene: Scene, state: State, plan: Array, goal: Goal, relaxation: Array, actuation: Actuation
) -> End:
    """Where a plan leads."""

    def miss(plan: Array) -> tuple[Array, tuple[Array, Array, Trajectory]]:
        controls = jnp.zeros((len(plan), len(scene.bodies), 6), plan.dtype)
        controls = controls.at[:, actuation.pusher, actuation.directions].set(plan)
        trajectory = rollout(scene, state, controls, SolverOptions(relaxation=relaxation))
        last = trajectory.state[-1]
        found = _difference(last, goal, actuation.target)
        return found, (found, controls, trajectory)

    slopes, (found, controls, trajectory) = jax.jacrev(miss, has_aux=True)(plan)
    return End(found, slopes, controls, trajectory)


def _difference(state: State, goal: Goal, target: int) -> Float[Array, "6"]:
    """Offset, and the turn that is missing times the size."""
    offset = state.position[target] - goal.position
    turn = rotation.between(goal.orientation, state.orientation[target])
    return jnp.concatenate([offset, goal.size * rotation.chord(turn)])
