"""The whole study, resumable, with progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from silico_py import scenes as ready
from silico_py.options import METHODS
from silico_py.study import experiments, report
from silico_py.study.scenes import Experiment, drop, jittered, planar_polytope, two_blocks

QUICK = {"members": 4, "frequencies": (10, 100), "relaxations": (1e-3, 1e-6)}
QUICK_TIMED, TIMED = 400, 20_000
SECONDS = {"peg_in_hole": 5.0, "stack": 1.0}
DROP_FIELDS = {"failed": ".0f", "violation": ".1e", "iterations": ".1f"}
STACK_FIELDS = {"linear momentum": ".1e", "angular momentum": ".1e", "failed": ".0f"}

OTHERS = (*ready.SHAPES, *SECONDS)


def study(
    out: Path, quick: bool = False, others: Iterable[str] = (), console: Console | None = None
) -> None:
    """Run the three experiments of the paper and the drops of other shapes and scenes.

    Rows already in `out` are kept: an interrupted study goes on where it stopped.

    Args:
        out: folder for tables (csv, json) and figures (png).
        quick: a few starts, time steps and relaxations.
        others: of `OTHERS`, dropped (or run) like the paper's polytope.
        console: where tables go.

    Raises:
        ValueError: for an unknown name in `others`.
    """
    console, folder = console or Console(), Path(out) / ("quick" if quick else "full")
    unknown = set(others) - set(OTHERS)
    if unknown:
        raise ValueError(f"others: expected names of {OTHERS}, got {sorted(unknown)}")
    options = QUICK if quick else {}
    paper = planar_polytope()
    _grid_study("planar_polytope", paper, options, DROP_FIELDS, folder, console)
    short = {**options, "members": 2} if quick else {"members": 10}
    blocks = short | {"seconds": 1.0}
    _grid_study("two_blocks", two_blocks(), blocks, STACK_FIELDS, folder, console)
    _timing(QUICK_TIMED if quick else TIMED, folder, console)
    for name in others:
        found = jittered(name) if name in SECONDS else drop(name)
        own = options | {"seconds": SECONDS.get(name, 1.5)}
        _grid_study(name, found, own, DROP_FIELDS, folder, console)


def _grid_study(
    name: str,
    experiment: Experiment,
    options: dict[str, Any],
    fields: dict[str, str],
    folder: Path,
    console: Console,
) -> None:
    path = folder / name
    rows = report.load_rows(path)
    known = [tuple(row[k] for k in ("method", "frequency", "relaxation")) for row in rows]
    fresh = experiments.drops(
        experiment, **options, done=lambda case: tuple(case.values()) in known
    )
    frequencies = options.get("frequencies", experiments.FREQUENCIES)
    relaxations = options.get("relaxations", experiments.RELAXATIONS)
    total = len(METHODS) * len(frequencies) * len(relaxations)
    for row in _tracked(fresh, name, len(rows), total, console):
        rows.append(row)
        report.save_rows(rows, path)
    console.print(report.summary(name, rows))
    figure = report.grids(name, rows, fields, path.with_suffix(".png"))
    console.print(f"wrote {path.with_suffix('.csv')} and {figure}")


def _timing(steps: int, folder: Path, console: Console) -> None:
    path = folder / "timing.json"
    if not path.exists():
        with console.status(f"timing {steps} steps"):
            times = experiments.timing(drop("box"), steps)
        path.write_text(json.dumps(times))
    times = json.loads(path.read_text())
    ratios = experiments.ratios_of_means(times)
    figure = report.histogram(times, ratios, path.with_suffix(".png"))
    for name, ratio in ratios.items():
        console.print(f"time of {name} / single-level: {ratio:.1f} (paper: 30)")
    console.print(f"wrote {figure}")


def _tracked(
    rows: Iterator[Any], name: str, start: int, total: int, console: Console
) -> Iterator[Any]:
    with Progress(console=console) as progress:
        task = progress.add_task(f"{name} (first case compiles)", total=total, completed=start)
        for row in rows:
            progress.update(task, advance=1, description=name)
            yield row
