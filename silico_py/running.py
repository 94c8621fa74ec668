"""Runs of the command line: with progress, and as a row of a table and a picture."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

import silico_py as sp
from silico_py.one_step import arms, shift
from silico_py.viewing import plotting

CHUNK = 25  # steps compiled together, after which the progress bar moves
FRAMES = 6  # of a picture
LISTED = 5  # failed steps, at most
COLUMNS = ("scene", "steps", "failed", "iterations", "depth", "momentum", "us/step", "compile")
LEGEND = (
    "failed: steps that did not converge; iterations: mean / max; depth: largest penetration "
    "(1 - alpha)+, relaxed alpha; momentum: mean |m v| of a body over the last tenth, in kg m/s "
    "(a drift where everything has come to rest); compile: in seconds"
)


class Run(NamedTuple):
    """One finished scene."""

    scene: sp.Scene
    start: sp.State
    trajectory: sp.Trajectory
    compile_seconds: float
    run_seconds: float


def progress_bar(console: Console) -> Progress:
    """The progress display of the command line."""
    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def run(
    scene: sp.Scene,
    state: sp.State,
    steps: int,
    progress: Progress,
    name: str,
    options: sp.SolverOptions | None = None,
) -> Run:
    """Roll out in compiled chunks, so that progress moves."""
    start, chunk_steps, label = state, min(CHUNK, steps), escape(name)
    task = progress.add_task(f"{label}: compiling", total=steps)
    begin = time.perf_counter()
    options = options or sp.SolverOptions()

    def advance(scene: sp.Scene, state: sp.State, guess: Any) -> tuple[Any, ...]:
        part, left = sp.rollout(scene, state, chunk_steps, options, guess, with_guess=True)
        return part, part.state[-1], left

    guess = sp.no_guess(scene, state, options) if options.warm_start else None
    chunk = jax.jit(advance).lower(scene, state, guess).compile(sp.compiler_options())
    compile_seconds, run_seconds = time.perf_counter() - begin, 0.0
    progress.update(task, description=f"{label}: stepping")
    parts: list[sp.Trajectory] = []
    for _ in range(-(-steps // chunk_steps)):
        begin = time.perf_counter()
        part, state, guess = jax.block_until_ready(chunk(scene, state, guess))
        run_seconds += time.perf_counter() - begin
        parts.append(part)
        progress.advance(task, chunk_steps)
    progress.update(task, description=f"{label}: done", completed=steps)
    # The last chunk may overshoot: it is timed whole and cut to the steps asked for.
    trajectory = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:steps], *parts)
    run_seconds *= steps / (len(parts) * chunk_steps)
    return Run(scene, start, trajectory, compile_seconds, run_seconds)


def make_writable(folder: Path, file: str | None = None) -> None:
    """Make a folder, and see in time whether it, or a file in it, can be written.

    Raises:
        OSError: where it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"{folder}: is no folder, and cannot be made one") from error
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder}: cannot be written")
    if file is not None and (folder / file).is_dir():
        raise IsADirectoryError(f"{folder / file}: is a folder")


def failures(done: Run) -> int:
    """Number of steps that did not converge."""
    return int(np.sum(~np.asarray(done.trajectory.info.converged)))


def momentum(done: Run) -> float:
    """Mean |linear momentum| of a body over the last tenth of the run [kg m/s]."""
    states, mass = done.trajectory.state, np.array([float(b.mass) for b in done.scene.bodies])
    last = max(1, len(states.velocity) // 10)
    _, velocity = shift(states[-last:], arms(done.scene))
    return float(np.mean(np.linalg.norm(mass[:, None] * velocity, axis=-1)))


def row(name: str, done: Run) -> list[str]:
    """Table cells of one scene."""
    info = done.trajectory.info
    steps = len(info.converged)
    failed = failures(done)
    depth = float(np.max(1 - np.asarray(info.contacts.alpha), initial=0))  # NaN if one is
    return [
        escape(name),
        str(steps),
        f"[bold red]{failed}[/bold red]" if failed else "0",
        f"{float(np.mean(info.iterations)):.1f} / {int(np.max(info.iterations))}",
        f"{depth:.1e}",
        f"{momentum(done):.1e}",
        f"{1e6 * done.run_seconds / steps:.0f}",
        f"{done.compile_seconds:.0f}",
    ]


def table(title: str) -> Table:
    """An empty table with the columns of `row`."""
    out = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in COLUMNS:
        out.add_column(column, justify="left" if column == "scene" else "right", no_wrap=True)
    return out


def draw(name: str, done: Run, folder: Path) -> Path:
    """Write the frames of one scene."""
    states = done.trajectory.state
    path = folder / f"{name}.png"
    plotting.frames(done.scene, states, plotting.telling_indices(states, FRAMES), path)
    return path


def animate(done: Run, path: Path, console: Console) -> Path:
    """Write a picture of one scene that moves, with progress."""
    with progress_bar(console) as progress:
        task = progress.add_task(f"{escape(path.name)}: drawing", total=None)

        def told(drawn: int, of: int) -> None:
            progress.update(task, completed=drawn, total=of)

        plotting.animate(done.scene, done.trajectory.state, path, on_frame=told)
    return path


def report_written(console: Console, *paths: Path) -> None:
    """Say what was written, each path in a line of its own, however long."""
    for path in paths:
        console.print(f"wrote {path}", soft_wrap=True, markup=False)


def list_failures(failed: Sequence[sp.Failure], console: Console) -> None:
    """Say of the first few why, and between which bodies; steps are counted from 1."""
    for failure in failed[:LISTED]:
        step = failure.at[0] + 1
        console.print(f"step {step}: {failure.message}", soft_wrap=True, markup=False)
    if len(failed) > LISTED:
        console.print(f"and {len(failed) - LISTED} more")


def report_failures(failed: int, console: Console) -> None:
    """Say loudly that steps did not converge, if any did not."""
    if failed:
        plural = "step" if failed == 1 else "steps"
        console.print(f"[bold white on red] {failed} {plural} did not converge [/]")
