"""The command line: `silico run`, `view`, `scenes`, `export`, `study`, `plan`, `bench`, `demo`.

Exit codes: 0 when every step converged, 1 when one did not (of `plan`, when the goal was not
reached; of `bench`, when a bar was missed), 2 for arguments that make no sense, 130 when
interrupted.
"""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
import typer
from rich.console import Console

import silico_py as sp
from silico_py import demo as tour
from silico_py import interruption, running
from silico_py.planning.command import GOAL, plan_ready_scene
from silico_py.viewing import plotting

app = typer.Typer(no_args_is_help=True)

SCENES = sp.scenes.SCENES
MODELS = (".xml", ".urdf", ".mjcf")
CHECKOUT = Path(__file__).resolve().parents[1]  # where the package runs from its sources

Name = Annotated[
    str, typer.Argument(help="A name that `silico scenes` lists, or an MJCF or URDF file.")
]
Frequency = Annotated[
    float | None,
    typer.Option(help="Steps a second; the scene's own if not given.", show_default=False),
]
Relaxation = Annotated[float, typer.Option(help="Target of every complementarity product.")]
Steps = Annotated[int, typer.Option(help="Number of steps.", min=1)]
Method = Annotated[
    Literal["single-level", "bilevel"], typer.Option(help="How contacts are solved.")
]
MaxContacts = Annotated[
    int | None,
    typer.Option(help="Most contacts of each kind of pair, the nearest.", show_default=False),
]
Folder = Annotated[Path, typer.Option(help="Folder for what is written.", file_okay=False)]
Ignore = Annotated[
    list[str] | None, typer.Option(help="Kind of model element to leave out, or 'all'.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(sp.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Rigid-body contact simulation. Start with `silico run stack --html stack.html`.

    Compiled programs are kept in ~/.cache/silico_py, or in JAX_COMPILATION_CACHE_DIR.
    """
    if jax.config.values["jax_compilation_cache_dir"] is None:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(caches / "silico_py"))
    gc.freeze()  # tracing makes many objects; collections need not look at what is imported


@app.command()
def scenes() -> None:
    """List the scenes."""
    for name, make in SCENES.items():
        function = make.func if isinstance(make, partial) else make
        typer.echo(f"{name:24s}{(function.__doc__ or '').splitlines()[0]}")


@app.command()
def run(
    scene: Name,
    frequency: Frequency = None,
    relaxation: Relaxation = 1e-6,
    steps: Steps = 150,
    method: Method = "single-level",
    max_contacts: MaxContacts = None,
    out: Folder = Path("out"),
    html: Annotated[Path | None, typer.Option(help="Also an interactive page.")] = None,
    gif: Annotated[Path | None, typer.Option(help="Also a picture that moves.")] = None,
    ignore: Ignore = None,
) -> None:
    """Simulate a scene or a model file; writes NAME.npz and NAME.png.

    For example: silico run peg_in_hole --frequency 10 --html peg.html
    """
    how = {"relaxation": relaxation, "method": method, "max_contacts": max_contacts}
    ready = _ready(scene, frequency, ignore, how)
    with _complaints():
        for path in (html, gif):
            if path is not None:
                running.make_writable(path.parent, path.name)
        if gif is not None:
            plotting.moving_path("--gif", gif)
        running.make_writable(out)
    done, console = _simulate(scene, ready, steps)
    name = _label(scene)
    with _complaints():
        written = [_save(name, done, out), running.draw(name, done, out)]
        if html is not None:
            written.append(sp.save_html(done.scene, done.trajectory, html))
        if gif is not None:
            written.append(running.animate(done, gif, console))
    running.report_written(console, *written)
    failed = sp.failures(done.scene, done.trajectory.info)
    running.report_failures(len(failed), console)
    running.list_failures(failed, console)
    if failed:
        raise typer.Exit(1)


@app.command()
def view(
    scene: Name,
    frequency: Frequency = None,
    relaxation: Relaxation = 1e-6,
    steps: Steps = 150,
    method: Method = "single-level",
    max_contacts: MaxContacts = None,
    port: Annotated[
        int, typer.Option(help="Port of the page in your browser.", min=1, max=65535)
    ] = 8080,
    ignore: Ignore = None,
) -> None:
    """Simulate, then look at it in the browser (needs the extra `view`)."""
    how = {"relaxation": relaxation, "method": method, "max_contacts": max_contacts}
    done, _ = _simulate(scene, _ready(scene, frequency, ignore, how), steps)
    interruption.leave_to_python()  # which ends the window
    with _complaints():
        sp.view(done.scene, done.trajectory, port=port, block=True)


@app.command()
def export(
    scene: Name,
    path: Annotated[Path, typer.Argument(help="MJCF file to write.")],
    frequency: Frequency = None,
    ignore: Ignore = None,
) -> None:
    """Write a scene as MJCF, so that MuJoCo can run it."""
    jax.config.update("jax_enable_x64", True)
    with _complaints():
        made = _made(scene, frequency, ignore)
        running.make_writable(path.parent, path.name)
        sp.save_model(*made, path)
    typer.echo(f"wrote {path}")


@app.command()
def demo(
    out: Folder = Path("out"),
    frequency: Annotated[float, typer.Option(help="Steps a second.")] = 100.0,
) -> None:
    """The tour: a peg, a stack, two bundles."""
    _check_frequency(frequency)
    with _complaints():
        running.make_writable(out)
    if tour.main(out, frequency):
        raise typer.Exit(1)


@app.command()
def study(
    out: Folder = Path("out/study"),
    quick: Annotated[bool, typer.Option("--quick", help="A few runs of each case.")] = False,
    other: Annotated[
        list[str] | None, typer.Option(help="Another shape or scene, too; `all` for all of them.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Runs of each case of a drop.")] = None,
) -> None:
    """Single-level against bilevel: the paper's three experiments, tables and figures."""
    from silico_py.study import OTHERS
    from silico_py.study import study as run_study

    jax.config.update("jax_enable_x64", True)
    if quick:  # which compiles more than it runs
        os.environ.setdefault("SILICO_PY_ONE_KERNEL", "0")
    others = [name for wanted in other or () for name in (OTHERS if wanted == "all" else [wanted])]
    with _complaints():
        run_study(out, quick, others, runs)


@app.command()
def plan(
    task: Annotated[Literal["grasp"], typer.Argument(help="What to plan.")] = "grasp",
    *,
    goal: Annotated[tuple[float, float, float], typer.Option(help="x, y in m, yaw in rad.")] = GOAL,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    out: Folder = Path("out"),
) -> None:
    """Plan a ready task: time, nodes and a picture of the plan."""
    jax.config.update("jax_enable_x64", True)
    with _complaints():
        reached = plan_ready_scene(out, goal, seed)
    if not reached:
        raise typer.Exit(1)


@app.command(context_settings={"ignore_unknown_options": True})
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Benchmarks to run, all by default, and their options."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short version, in minutes.")] = False,
) -> None:
    """Run the benchmarks (needs a clone of the repository); results in out/benchmarks."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        typer.echo(
            "The benchmarks are in the repository and not in the installed package. Clone it, "
            "then run `make bench` there, or `pip install --editable .` and `silico bench`.",
            err=True,
        )
        raise typer.Exit(2)
    # -P: a folder of that name where the command is given is not meant.
    folders = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-P", "-m", "benchmarks", *(names or ()), *["--quick"] * quick]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


class Ready(NamedTuple):
    """What `run` and `view` simulate."""

    scene: sp.Scene
    state: sp.State
    options: sp.SolverOptions


def _ready(
    scene: str, frequency: float | None, ignore: list[str] | None, how: dict[str, Any]
) -> Ready:
    """A scene and the solver options `how`, checked."""
    # Tight relaxations need double precision; the choice is the program's, not the library's.
    jax.config.update("jax_enable_x64", True)
    with _complaints():
        options = sp.SolverOptions(**how)
        made, state = _made(scene, frequency, ignore)
        options.check_precision(state.position.dtype)
    return Ready(made, state, options)


def _simulate(scene: str, ready: Ready, steps: int) -> tuple[running.Run, Console]:
    """Run with progress and print the table."""
    name, console, options = _label(scene), Console(), ready.options
    with running.progress_bar(console) as progress:
        done = running.run(ready.scene, ready.state, steps, progress, name, options)
    rate = 1 / float(ready.scene.timestep)
    title = f"{options.method}, relaxation {options.relaxation:g}, {rate:g} Hz, float64"
    table = running.table(title)
    table.add_row(*running.row(name, done))
    console.print(table)
    console.print(running.LEGEND)
    return done, console


def _made(
    scene: str, frequency: float | None, ignore: list[str] | None
) -> tuple[sp.Scene, sp.State]:
    """A ready scene, or one from a model file."""
    given: dict[str, Any] = {}
    if frequency is not None:
        _check_frequency(frequency)
        given = {"timestep": 1 / frequency}
    if Path(scene).suffix.lower() in MODELS:
        return sp.load_model(Path(scene), ignore=tuple(ignore or ()), **given)
    if ignore:
        raise typer.BadParameter(f"--ignore: is for model files, {scene!r} is a ready scene")
    name = _name(scene)
    if name not in SCENES:
        raise typer.BadParameter(f"no scene {scene!r}; choose from {', '.join(SCENES)}")
    return SCENES[name](**given)


@contextmanager
def _complaints() -> Iterator[None]:
    """Errors of the library as messages about the arguments, its warnings without the place in the
    program."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: typer.echo(f"{message}", err=True)
            yield
    except sp.UnsupportedModelError as error:
        options = " ".join(f"--ignore {kind}" for kind in error.ignore)
        message = str(error).replace(f"ignore={error.ignore}", options)
        raise typer.BadParameter(message) from error
    except (ValueError, OSError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error


def _name(scene: str) -> str:
    """The name as `SCENES` spells it: words may be joined by dashes, too."""
    return scene.replace("-", "_")


def _label(scene: str) -> str:
    """Name of what is written."""
    path = Path(scene)
    return path.stem if path.suffix.lower() in MODELS else _name(scene).replace(":", "_")


def _check_frequency(frequency: float) -> None:
    if not (0 < frequency < math.inf and 1 / frequency < math.inf):
        raise typer.BadParameter(
            f"--frequency: must be positive and finite, as its inverse must, got {frequency}"
        )


def _save(name: str, done: running.Run, folder: Path) -> Path:
    """Names, the start, states after each step, what the solver said, and the contacts."""
    scene, (state, info) = done.scene, done.trajectory
    contacts = {k: v for k, v in info.contacts._asdict().items() if v is not None}
    path = folder / f"{name}.npz"
    np.savez_compressed(
        path,
        timestep=scene.timestep,
        bodies=[body.name for body in scene.bodies],
        pairs=scene.pair_names,
        **{f"start_{field}": value for field, value in vars(done.start).items()},
        **vars(state),
        converged=info.converged,
        status=info.status,
        iterations=info.iterations,
        residual=info.residual,
        complementarity=info.complementarity,
        **{f"contact_{field}": value for field, value in contacts.items()},
    )
    return path


def command(arguments: list[str] | None = None) -> None:
    """The command `silico`, with those of the program unless others are given."""
    interruption.end_at_once()
    app(arguments, prog_name="silico")
