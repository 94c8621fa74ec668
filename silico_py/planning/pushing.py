"""Trajectory optimisation through contact: direct shooting, smooth at first, exact at the end."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import OptimizeResult, minimize

from silico_py import rotation
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import Trajectory, rollout
from silico_py.validation import number, quaternions, vector

RELAXATIONS = (1e-2, 1e-3, 1e-4, 1e-6)
ITERATIONS = 60  # of L-BFGS at each relaxation
ENOUGH = 1e-2  # squared distance, in tolerances, that ends a relaxation


class Push(NamedTuple):
    """Controls found by `push_to`.

    Attributes:
        controls: (steps, n, 6).
        trajectory: of the controls, at the last relaxation.
        distance: of the target from its goal at the end [m], turns counted at its size.
        evaluations: roll-outs with gradient.
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


def push_to(
    scene: Scene,
    state: State,
    target: str,
    pusher: str,
    position: Any,
    orientation: Any = (1.0, 0.0, 0.0, 0.0),
    steps: int = 20,
    directions: tuple[int, ...] = (0, 1),
    limit: float = 10.0,
    tolerance: float = 1e-3,
    relaxations: tuple[float, ...] = RELAXATIONS,
) -> Push:
    """Find controls of one body that bring another to a pose.

    L-BFGS on the controls of a roll-out, from zero controls. At a large relaxation the pusher
    feels the target across a gap; each relaxation starts from the controls of the one before.
    The search is local: a turn across a wide gap can end short of the goal, and `reached` says so.

    Args:
        scene: the scene.
        state: the start.
        target: name of the body to move.
        pusher: name of the body that is controlled.
        position: (3,) of the target at the end, world [m].
        orientation: (4,) unit quaternion wxyz of the target at the end.
        steps: length of the roll-out.
        directions: columns of the control, 0 to 5, that are free.
        limit: largest absolute value of a control.
        tolerance: of the reached pose [m], turns counted at the target's size.
        relaxations: rho of the roll-outs, one after the other.

    Raises:
        ValueError: for names the scene does not have, a malformed goal, or values out of range.
    """
    actuation = _actuation(scene, target, pusher, directions)
    size = scene.bodies[actuation.target].geometry.characteristic_length
    goal = Goal(vector("position", position, 3), quaternions("orientation", orientation), size)
    number("tolerance", tolerance, positive=True)
    number("limit", limit, positive=True)
    if steps < 1 or not relaxations:
        raise ValueError(f"steps, relaxations: needs at least one, got {steps}, {relaxations}")
    plan, evaluations = np.zeros((steps, len(directions))), 0
    for rho in relaxations:
        plan, count = _minimised(scene, state, goal, plan, rho, actuation, limit, tolerance)
        evaluations += count
    controls, trajectory = jax.tree.map(
        np.asarray, _roll(scene, state, plan, relaxations[-1], actuation)
    )
    last = jax.tree.map(lambda v: v[-1], trajectory.state)
    distance = float(np.sqrt(_squared_distance(last, goal, actuation.target)))
    reached = distance <= tolerance and bool(trajectory.info.converged.all())
    return Push(controls, trajectory, distance, evaluations, reached)


def _actuation(scene: Scene, target: str, pusher: str, directions: tuple[int, ...]) -> Actuation:
    names = [body.name for body in scene.bodies]
    for argument, name in (("target", target), ("pusher", pusher)):
        if name not in names:
            raise ValueError(f"{argument}: expected one of {names}, got {name!r}")
    if not directions or not set(directions) <= set(range(6)):
        raise ValueError(f"directions: expected columns 0 to 5, got {directions}")
    return Actuation(names.index(target), names.index(pusher), tuple(directions))


def _minimised(
    scene: Scene,
    state: State,
    goal: Goal,
    plan: np.ndarray,
    relaxation: float,
    actuation: Actuation,
    limit: float,
    tolerance: float,
) -> tuple[np.ndarray, int]:
    """The plan improved at one relaxation, and the number of evaluations."""

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = flat.reshape(plan.shape)
        value, slope = _loss(scene, state, at, goal, relaxation, actuation)
        return float(value) / tolerance**2, np.asarray(slope).ravel() / tolerance**2

    def stop(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun < ENOUGH:
            raise StopIteration

    found = minimize(
        loss,
        plan.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-limit, limit)] * plan.size,
        callback=stop,
        options={"maxiter": ITERATIONS},
    )
    return found.x.reshape(plan.shape), found.nfev


@partial(jax.jit, static_argnames="actuation")
def _roll(
    scene: Scene, state: State, plan: Array, relaxation: Array, actuation: Actuation
) -> tuple[Array, Trajectory]:
    controls = jnp.zeros((len(plan), len(scene.bodies), 6), plan.dtype)
    controls = controls.at[:, actuation.pusher, actuation.directions].set(plan)
    return controls, rollout(scene, state, controls, SolverOptions(relaxation=relaxation))


@partial(jax.jit, static_argnames="actuation")
def _loss(
    scene: Scene, state: State, plan: Array, goal: Goal, relaxation: Array, actuation: Actuation
) -> tuple[Array, Array]:
    """Squared distance from the goal at the end [m^2] and its gradient by the plan."""

    def loss(plan: Array) -> Array:
        _, trajectory = _roll(scene, state, plan, relaxation, actuation)
        last = jax.tree.map(lambda v: v[-1], trajectory.state)
        return _squared_distance(last, goal, actuation.target)

    return jax.value_and_grad(loss)(plan)


def _squared_distance(state: State, goal: Goal, target: int) -> Array:
    offset = state.position[target] - goal.position
    turn = rotation.multiply(rotation.conjugate(goal.orientation), state.orientation[target])
    # 4 |v|^2 of a unit quaternion (w, v) is the squared angle for small ones.
    return offset @ offset + 4 * goal.size**2 * (turn[1:] @ turn[1:])
