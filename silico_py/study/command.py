"""The whole study, resumable, with progress."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress

from silico_py import running
from silico_py import scenes as ready
from silico_py.study import experiments, report
from silico_py.study.experiments import Grid, Row, timed_grid
from silico_py.study.scenes import drop, jittered, planar_polytope, two_blocks
from silico_py.validation import count

QUICK: dict[str, Any] = {
    "members": 4,
    "frequencies": (10, 50),
    "relaxations": (1e-3, 1e-6),
    "optimize": False,
}
QUICK_TIMED, TIMED = 200, 20_000
SECONDS = {"peg_in_hole": 5.0, "stack": 1.0}
DROP_FIELDS = {"failed": ".0f", "violation": ".1e", "iterations": ".1f"}
STACK_FIELDS = {"linear momentum": ".1e", "angular momentum": ".1e", "failed": ".0f"}

OTHERS = (*ready.SHAPES, *SECONDS)


class Table(NamedTuple):
    """One table and its figure."""

    name: str
    grid: Grid
    fields: dict[str, str]


def study(
    out: Path,
    quick: bool = False,
    others: Iterable[str] = (),
    runs: int | None = None,
    console: Console | None = None,
) -> None:
    """Run the three experiments of the paper and the drops of other shapes and scenes.

    Rows already in `out` are kept: an interrupted study goes on where it stopped.

    Args:
        out: folder for tables (csv, json) and figures (png).
        quick: a few starts, time steps and relaxations.
        others: of `OTHERS`, dropped (or run) like the paper's polytope.
        runs: of each case of a drop; 100 by default, 4 if quick.
        console: where tables go.

    Raises:
        ValueError: for an unknown name in `others`, for fewer runs than one, and where `out` has
            rows of another number of runs, or files that are none of a study.
        OSError: where `out` cannot be written; both before anything compiles.
    """
    console, folder = console or Console(), Path(out) / ("quick" if quick else "full")
    others = tuple(dict.fromkeys(others))  # each once
    unknown = [name for name in others if name not in OTHERS]
    if unknown:
        raise ValueError(f"others: expected names of {OTHERS}, got {unknown}")
    if runs is not None:
        count("runs", runs)
    chosen = (QUICK if quick else {}) | ({} if runs is None else {"members": runs})
    few = chosen | {"members": 2 if quick else 10, "seconds": 1.0}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paper = Table("planar_polytope", Grid(planar_polytope(), **chosen, pool=pool), DROP_FIELDS)
        blocks = Table("two_blocks", Grid(two_blocks(), **few, pool=pool), STACK_FIELDS)
        tables = [blocks, paper]  # the former compile longest
        for name in others:
            found = jittered(name) if name in SECONDS else drop(name)
            grid = Grid(found, **chosen, seconds=SECONDS.get(name, 1.5), pool=pool)
            tables.append(Table(name, grid, DROP_FIELDS))
        known = [_known(table, folder) for table in tables]  # refused before anything compiles
        times = report.load_times(folder / "timing.json")
        running.make_writable(folder)
        begun: list[Iterator[Row]] = []
        for k, table in enumerate(tables):
            ahead = range(len(begun), min(k + 2, len(tables)))
            begun += [_rows_to_come(tables[j], known[j]) for j in ahead]
            _finish(table, known[k], begun[k], folder, console)
        # A quick study times what is compiled already.
        timed = paper.grid if quick else timed_grid(drop("box"), pool=pool)
        if not times:
            times = _timed(timed, QUICK_TIMED if quick else TIMED, folder, console)
        _show(times, experiments.steps_of_chunk(timed.members), folder, console)


def _known(table: Table, folder: Path) -> list[Row]:
    """Rows that are written already."""
    rows, runs = report.load_rows(folder / table.name), table.grid.members
    if any(row["runs"] != runs for row in rows):
        raise ValueError(f"out: {folder / table.name}.json has rows of other than {runs} runs")
    return rows


def _rows_to_come(table: Table, rows: list[Row]) -> Iterator[Row]:
    """The others, whose programs begin to compile."""
    known = [tuple(row[k] for k in ("method", "frequency", "relaxation")) for row in rows]
    return table.grid.rows(done=lambda case: tuple(case.values()) in known)


def _finish(
    table: Table, rows: list[Row], fresh: Iterator[Row], folder: Path, console: Console
) -> None:
    path = folder / table.name
    for row in _tracked(fresh, table.name, len(rows), len(table.grid.cases), console):
        rows.append(row)
        report.save_rows(rows, path)
    report.save_rows(rows, path)  # of a study that had ended, one of its files may be gone
    console.print(report.summary(table.name, rows))
    figure = report.grids(table.name, rows, table.fields, path.with_suffix(".png"))
    running.report_written(console, path.with_suffix(".csv"), figure)


def _timed(grid: Grid, steps: int, folder: Path, console: Console) -> dict[str, list[float]]:
    with console.status(f"timing {steps} steps"):
        times = experiments.timing(grid, steps)
    report.replace(folder / "timing.json", json.dumps(times))
    return times


def _show(times: dict[str, list[float]], chunk: int, folder: Path, console: Console) -> None:
    ratios = experiments.ratios_of_means(times)
    figure = report.histogram(times, ratios, chunk, folder / "timing.png")
    for name, ratio in ratios.items():
        console.print(f"time of {name} / single-level: {ratio:.1f} (paper: 30)")
    running.report_written(console, figure)


def _tracked(
    rows: Iterator[Any], name: str, start: int, total: int, console: Console
) -> Iterator[Any]:
    with Progress(console=console) as progress:
        task = progress.add_task(f"{name} (first case compiles)", total=total, completed=start)
        for row in rows:
            progress.update(task, advance=1, description=name)
            yield row
