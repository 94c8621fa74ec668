"""Plan the grasp scene and show what came out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from silico_py import running, scenes
from silico_py.planning import picture
from silico_py.planning.grasp import Plan, Problem, solve

GOAL = (0.15, 0.1, 1.5708)  # of the object: x [m], y [m], yaw [rad]
TOLERANCE = 0.01  # [m]


def plan_ready_scene(
    folder: Path = Path("out"),
    goal: tuple[float, float, float] = GOAL,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    console: Console | None = None,
) -> bool:
    """Plan `scenes.grasp()`; prints a table and writes `grasp_plan.png`.

    Needs double precision (`jax.config.update("jax_enable_x64", True)`).

    Args:
        folder: of the picture.
        goal: (x [m], y [m], yaw [rad]) of the object.
        seed: of the samples.
        tolerance: largest distance from the goal [m].
        console: to print on.

    Returns:
        Whether the plan reaches the goal.

    Raises:
        ValueError: as `plan_grasp`.
        OSError: for a folder that cannot be written; both before the search.
    """
    console = console or Console()
    scene, state = scenes.grasp()
    problem = Problem.of(scene, state, goal, seed, tolerance, options=None)
    running.make_writable(folder)
    way = float(problem.task.distance(problem.task.start, problem.task.goal))
    with running.progress_bar(console) as progress:
        bar = progress.add_task("compiling", total=None)
        on_round = partial(_show_round, progress, bar, way)
        plan = solve(problem, on_round=on_round)
        if plan.reached:
            progress.update(bar, description=f"searched: {plan.nodes} nodes", total=1, completed=1)
    path = folder / "grasp_plan.png"
    picture.draw(scene, plan, np.asarray(goal), path)
    console.print(_table(plan, tolerance))
    running.report_written(console, path)
    if not plan.reached:
        console.print("[bold white on red] the goal was not reached [/]")
    return plan.reached


def _show_round(progress: Progress, bar: TaskID, way: float, nodes: int, left: float) -> None:
    """The share of the way [m] to the goal that the tree has made."""
    text = f"searching: {nodes} nodes, {left:.3f} m left"
    progress.update(bar, description=text, total=way, completed=max(way - left, 0))


def _table(plan: Plan, tolerance: float) -> Table:
    out = Table(title="grasp plan, steps at relaxation 1e-6")
    for name in ("seconds", "nodes", "steps", "distance [m]", "reached"):
        out.add_column(name, justify="right")
    color = "green" if plan.reached else "bold red"
    out.add_row(
        f"{plan.seconds:.2f}",
        str(plan.nodes),
        str(len(plan.controls)),
        f"[{color}]{plan.distance:.4f}[/] (of {tolerance:g})",
        f"[{color}]{'yes' if plan.reached else 'no'}[/]",
    )
    return out
