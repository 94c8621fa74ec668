"""The main job: a peg slides into a hole, four blocks stand still, convex bundles fall.

Run as `python -m silico_py.demo`; prints a table and writes pictures under `out/`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

import silico_py as sp
from silico_py import plotting

CHUNK = 25
FRAMES = 6
LEGEND = (
    "failed: steps that did not converge; iterations: mean / max; penetration: largest "
    "(1 - alpha)+, relaxed alpha; momentum: mean |m v| over the last tenth [kg m/s]"
)
SCENES: dict[str, tuple[Callable[[], tuple[sp.Scene, sp.State]], int]] = {
    "peg_in_hole": (sp.scenes.peg_in_hole, 500),
    "stack": (sp.scenes.stack, 100),
    "bundle_drop": (sp.scenes.bundle_drop, 150),
}


class Run(NamedTuple):
    """One finished scene."""

    scene: sp.Scene
    trajectory: sp.Trajectory
    compile_seconds: float
    run_seconds: float


def run(scene: sp.Scene, state: sp.State, steps: int, progress: Progress, name: str) -> Run:
    """Roll out in compiled chunks, so that progress moves."""
    task = progress.add_task(f"{name}: compiling", total=steps)
    start = time.perf_counter()
    chunk = jax.jit(lambda s, x: sp.rollout(s, x, CHUNK)).lower(scene, state).compile()
    compiled = time.perf_counter()
    progress.update(task, description=f"{name}: stepping")
    parts = []
    for _ in range(steps // CHUNK):
        parts.append(jax.block_until_ready(chunk(scene, state)))
        state = jax.tree.map(lambda v: v[-1], parts[-1].state)
        progress.advance(task, CHUNK)
    elapsed = time.perf_counter() - compiled
    trajectory = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    return Run(scene, trajectory, compiled - start, elapsed)


def momentum(done: Run) -> float:
    """Mean |linear momentum| over the last tenth of the run [kg m/s]."""
    velocity = np.asarray(done.trajectory.state.velocity)
    mass = np.array([float(body.mass) for body in done.scene.bodies])
    tail = velocity[-max(1, len(velocity) // 10) :]
    return float(np.mean(np.linalg.norm(mass[:, None] * tail, axis=-1)))


def row(name: str, done: Run) -> list[str]:
    """Table cells of one scene."""
    info = done.trajectory.info
    steps = len(info.converged)
    failed = int(np.sum(~np.asarray(info.converged)))
    depth = max(0.0, 1 - float(np.min(info.contacts.alpha)))
    return [
        name,
        str(steps),
        f"[red]{failed}[/red]" if failed else "0",
        f"{float(np.mean(info.iterations)):.1f} / {int(np.max(info.iterations))}",
        f"{depth:.1e}",
        f"{momentum(done):.1e}",
        f"{1e6 * done.run_seconds / steps:.0f}",
        f"{done.compile_seconds:.0f}",
    ]


def draw(name: str, done: Run, folder: Path) -> Path:
    """Write the frames of one scene."""
    steps = len(done.trajectory.info.converged)
    picks = np.linspace(0, steps - 1, FRAMES).astype(int)
    states = [jax.tree.map(lambda v, k=k: v[k], done.trajectory.state) for k in picks]
    times = [(k + 1) * float(done.scene.timestep) for k in picks]
    path = folder / f"{name}.png"
    plotting.frames(done.scene, states, times, path)
    return path


def main(folder: Path = Path("out")) -> int:
    """Run the three scenes; returns the number of steps that did not converge."""
    # Tight relaxations need double precision; the choice is the program's, not the library's.
    jax.config.update("jax_enable_x64", True)
    console = Console()
    table = Table(title="relaxation 1e-6, 100 Hz, float64")
    for column in (
        "scene",
        "steps",
        "failed",
        "iterations",
        "penetration",
        "momentum",
        "us/step",
        "compile s",
    ):
        table.add_column(column, justify="left" if column == "scene" else "right")
    failed, pictures = 0, []
    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for name, (make, steps) in SCENES.items():
            done = run(*make(), steps, progress, name)
            failed += int(np.sum(~np.asarray(done.trajectory.info.converged)))
            table.add_row(*row(name, done))
            pictures.append(draw(name, done, folder))
    console.print(table)
    console.print(LEGEND)
    for path in pictures:
        console.print(f"wrote {path}")
    if failed:
        console.print(f"[bold red]{failed} steps did not converge[/bold red]")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
