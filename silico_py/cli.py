"""The command line: `silico run`, `silico scenes`, `silico demo`.

Exit codes: 0 when every step converged, 1 when one did not, 2 for arguments that make no sense.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich.console import Console

import silico_py as sp
from silico_py import demo as tour

app = typer.Typer(help="Rigid-body contact simulation.", no_args_is_help=True)

READY = ("peg_in_hole", "stack", "jenga", "bundle_drop", "planar_push", "collision")
SCENES: dict[str, Callable[..., tuple[sp.Scene, sp.State]]] = {
    **{name: getattr(sp.scenes, name) for name in READY},
    **{f"drop:{shape}": partial(sp.scenes.drop, shape) for shape in sp.scenes.SHAPES},
}

Frequency = Annotated[float, typer.Option(help="Steps a second.")]
Folder = Annotated[Path, typer.Option(help="Folder for what is written.", file_okay=False)]


@app.command()
def scenes() -> None:
    """List the scenes."""
    for name, make in SCENES.items():
        function = make.func if isinstance(make, partial) else make
        typer.echo(f"{name:24s}{(function.__doc__ or '').splitlines()[0]}")


@app.command()
def run(
    scene: Annotated[str, typer.Argument(help="A name that `silico scenes` lists.")],
    frequency: Frequency = 100.0,
    relaxation: Annotated[float, typer.Option(help="Target of the complementarity.")] = 1e-6,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=1)] = 150,
    out: Folder = Path("out"),
) -> None:
    """Simulate a scene; writes SCENE.npz and SCENE.png."""
    # Tight relaxations need double precision; the choice is the program's, not the library's.
    jax.config.update("jax_enable_x64", True)
    if scene not in SCENES:
        raise typer.BadParameter(f"no scene {scene!r}; choose from {', '.join(SCENES)}")
    _check_frequency(frequency)
    try:
        options = sp.SolverOptions(relaxation=relaxation)
        made, state = SCENES[scene](timestep=1 / frequency)
        options.check_precision(state.position.dtype)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    name, console = scene.replace(":", "_"), Console()
    with tour.progress_bar(console) as progress:
        done = tour.run(made, state, steps, progress, name, options)
    written = [_save(name, done, out), tour.draw(name, done, out)]
    table = tour.table(f"relaxation {relaxation:g}, {frequency:g} Hz, float64")
    table.add_row(*tour.row(name, done))
    console.print(table)
    console.print(tour.LEGEND)
    for path in written:
        console.print(f"wrote {path}")
    _exit(tour.failures(done), console)


@app.command()
def demo(out: Folder = Path("out"), frequency: Frequency = 100.0) -> None:
    """The tour: a peg, a stack, two bundles."""
    _check_frequency(frequency)
    if tour.main(out, frequency):
        raise typer.Exit(1)


@app.command()
def study(
    out: Folder = Path("out/study"),
    quick: Annotated[bool, typer.Option("--quick", help="A few runs of each case.")] = False,
    other: Annotated[list[str] | None, typer.Option(help="Another shape or scene, too.")] = None,
) -> None:
    """Single-level against bilevel: the paper's three experiments, tables and figures."""
    from silico_py.study import study as run_study

    jax.config.update("jax_enable_x64", True)
    try:
        run_study(out, quick, other or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _check_frequency(frequency: float) -> None:
    if not 0 < frequency < float("inf"):
        raise typer.BadParameter(f"--frequency: must be positive and finite, got {frequency}")


def _exit(failed: int, console: Console) -> None:
    tour.report_failures(failed, console)
    if failed:
        raise typer.Exit(1)


def _save(name: str, done: tour.Run, folder: Path) -> Path:
    """States after each step, what the solver said, and the contacts."""
    state, info = done.trajectory
    path = folder / f"{name}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        timestep=done.scene.timestep,
        position=state.position,
        orientation=state.orientation,
        velocity=state.velocity,
        angular_velocity=state.angular_velocity,
        converged=info.converged,
        status=info.status,
        iterations=info.iterations,
        residual=info.residual,
        complementarity=info.complementarity,
        **{f"contact_{field}": value for field, value in info.contacts._asdict().items()},
    )
    return path


if __name__ == "__main__":
    app()
