"""Planning a grasp: where fingers hold an object, and how they push it to a goal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from silico_py.options import check_relaxations
from silico_py.planning.options import PlannerOptions
from silico_py.planning.search import Search, compile_search, replay
from silico_py.planning.task import Task
from silico_py.scene import Scene, State
from silico_py.validation import count, listener, number


class Plan(NamedTuple):
    """A plan, checked by rolling it out.

    Attributes:
        controls: (steps, n, 6) for `step` or `rollout`.
        states: of the roll-out, the start first, stacked over steps + 1.
        nodes: size of the search tree.
        seconds: of the search, the check included, without compilation.
        reached: whether the roll-out ends within the tolerance of the goal; otherwise the plan
            leads as near as the tree came.
        distance: of the roll-out's end from the goal [m].
    """

    controls: Float[np.ndarray, "steps n 6"]
    states: State
    nodes: int
    seconds: float
    reached: bool
    distance: float


class Problem(NamedTuple):
    """What `plan_grasp` is asked, checked."""

    scene: Scene
    state: State
    task: Task
    seed: int
    tolerance: float
    options: PlannerOptions

    @classmethod
    def of(
        cls,
        scene: Scene,
        state: State,
        goal: ArrayLike,
        seed: int,
        tolerance: float,
        options: PlannerOptions | None,
    ) -> Problem:
        """Check the arguments of `plan_grasp`.

        Raises:
            ValueError: as `plan_grasp`.
        """
        number("tolerance", tolerance, positive=True)
        count("seed", seed, least=0)
        options = PlannerOptions() if options is None else options
        if not isinstance(options, PlannerOptions):
            raise ValueError(f"options: expected PlannerOptions, got {type(options).__name__}")
        task = Task.of(scene, state, goal)
        for name in ("relaxation", "smoothing"):
            value = getattr(options, name)
            check_relaxations(f"options.{name}", (value,), state.position.dtype)
        return cls(scene, jax.tree.map(np.asarray, state), task, seed, tolerance, options)


def plan_grasp(
    scene: Scene,
    state: State,
    goal: ArrayLike,
    seed: int = 0,
    tolerance: float = 0.01,
    options: PlannerOptions | None = None,
    on_round: Callable[[int, float], None] | None = None,
) -> Plan:
    """Find controls of the fingers that bring the object to a planar pose.

    The fingers push in the plane z = 0 and travel above the object when they regrasp.

    Args:
        scene: one free body (the object) and spheres about their origins that are
            position-controlled along x, y and z (the fingers), all quasi-dynamic, such as
            `scenes.grasp()`.
        state: the start.
        goal: (x [m], y [m], yaw [rad]) of the object.
        seed: of the samples.
        tolerance: largest distance from the goal [m], turns counted at the object's radius of
            gyration.
        options: of the search.
        on_round: called after every round with the number of nodes and the distance left [m].

    Raises:
        ValueError: for a scene the planner cannot read, a state that is not one of it, a malformed
            goal, or values out of range, such as relaxations that the state's precision cannot
            carry (float32 needs other options than the default ones).
    """
    told = listener("on_round", on_round)
    return solve(Problem.of(scene, state, goal, seed, tolerance, options), told)


def solve(problem: Problem, on_round: Callable[[int, float], None]) -> Plan:
    """The plan of a problem; `on_round` as in `plan_grasp`."""
    scene, state, task, seed, tolerance, options = problem
    compile_search(scene, state, task, options)
    begin = time.perf_counter()
    search = Search(scene, state, task, options, seed)
    while True:
        node = search.nearest
        near = search.distances[node] <= tolerance
        spent = search.exhausted
        if near or spent:
            plan = _checked(search, node, tolerance, time.perf_counter() - begin)
            if plan.reached or spent:
                return plan
            search.discard(node)
        search.grow()
        on_round(len(search.tree.nodes), float(search.distances.min()))


def _checked(search: Search, node: int, tolerance: float, seconds: float) -> Plan:
    """The plan that ends at a node, rolled out from the start."""
    begin = time.perf_counter()
    controls = search.tree.controls(node)
    states, converged = replay(search.scene, search.tree.nodes[0].state, controls, search.options)
    last = search.task.pose(states[-1])
    distance = float(search.task.distance(last, search.task.goal))
    seconds += time.perf_counter() - begin
    reached = converged and distance <= tolerance
    return Plan(controls, states, len(search.tree.nodes), seconds, reached, distance)
