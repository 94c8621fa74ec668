"""Tables and figures of the study."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from rich import box
from rich.table import Table

from silico_py.options import METHODS
from silico_py.study.experiments import WARM, Row

# Without these a row can neither be told from others nor shown.
FIELDS = {"method", "frequency", "relaxation", "runs", "failed", "iterations", "violation"}
FIELDS |= {"linear momentum", "angular momentum"}

LEAST = 1e-12  # of what a logarithmic scale shows
LEGEND = "in rho: violation over relaxation; momentum: largest mean |m v| of a case, in kg m/s. "

# What the paper says of its Fig. 9 and 10.
PAPER = {
    "planar_polytope": "Paper: single-level 4 of 3,600 failed, violation 2.1 relaxations; "
    "bilevel 55 to 95 % of a case, violation up to 0.15.",
    "two_blocks": "Paper: no single-level run failed, momentum 6.4e-7 at 10 Hz and 1e-6; "
    "bilevel momentum up to 0.22.",
}


def save_rows(rows: list[Row], path: Path) -> None:
    """Rows as csv and json side by side; the latter, which a study goes on from, comes last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
    replace(path.with_suffix(".csv"), written.getvalue())
    replace(path.with_suffix(".json"), json.dumps(rows, indent=1))


def replace(path: Path, text: str) -> None:
    """Write a file at once: an interrupted study leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(text, newline="")
    draft.replace(path)


def load(path: Path) -> Any:
    """What an earlier, perhaps interrupted, run has saved.

    Raises:
        ValueError: for a file that is none of these.
    """
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"out: {path} cannot be read, remove it ({error})") from error


def load_rows(path: Path) -> list[Row]:
    """The rows that are saved.

    Raises:
        ValueError: for a file that has none.
    """
    file = path.with_suffix(".json")
    rows = load(file) if file.exists() else []
    if not (isinstance(rows, list) and all(_is_row(row) for row in rows)):
        raise ValueError(f"out: {file} has no rows of a study, remove it")
    return rows


def load_times(path: Path) -> dict[str, list[float]]:
    """The times that are saved, by what was timed; none where there is no file.

    Raises:
        ValueError: for a file that has others.
    """
    if not path.exists():
        return {}
    times = load(path)
    named = isinstance(times, dict) and list(times) == [*METHODS, WARM]
    if not (named and all(isinstance(some, list) and some for some in times.values())):
        raise ValueError(f"out: {path} has no times of a study, remove it")
    return times


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and row.keys() >= FIELDS


def summary(title: str, rows: list[Row]) -> Table:
    """One line a method, in 80 characters."""
    narrow: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    table = Table(title=title, caption=LEGEND + PAPER.get(title, ""), **narrow)
    for head in ("method", "runs", "failed", "iterations", "violation", "in rho", "momentum"):
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        if not own:
            continue
        runs, failed = (sum(row[k] for row in own) for k in ("runs", "failed"))
        table.add_row(
            method,
            str(runs),
            f"{failed} ({100 * failed / runs:.1f} %)",
            f"{np.mean([row['iterations'] for row in own]):.1f}",
            f"{max(row['violation'] for row in own):.2g}",
            f"{max(row['violation'] / row['relaxation'] for row in own):.2g}",
            f"{max(row['linear momentum'] for row in own):.1e}",
        )
    return table


def grids(title: str, rows: list[Row], fields: dict[str, str], path: Path) -> Path:
    """Fig. 9 and 10: a grid of frequency and relaxation for each field and method."""
    figure = Figure(figsize=(4.6 * len(fields), 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(METHODS), len(fields), squeeze=False)
    for column, (field, style) in zip(axes.T, fields.items(), strict=True):
        colors = _colors(rows, field, style)
        for axis, method in zip(column, METHODS, strict=True):
            own = [row for row in rows if row["method"] == method]
            image = _grid(axis, own, field, style, colors)
            axis.set_title(f"{method}: {_label(rows, field)}")
        figure.colorbar(image, ax=list(column))
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
    return path


def _label(rows: list[Row], field: str) -> str:
    return f"failed of {rows[0]['runs']}" if field == "failed" else field


def _colors(rows: list[Row], field: str, style: str) -> Normalize:
    """One scale for both methods: of failures up to all runs, logarithmic over decades."""
    if field == "failed":
        return Normalize(0, rows[0]["runs"])
    known = [row[field] for row in rows if LEAST < row[field] < np.inf] or [1.0]
    if "e" in style and max(known) > 10 * min(known):
        return LogNorm(min(known), max(known))
    return Normalize(0, max(known))


def _grid(axis: Axes, rows: list[Row], field: str, style: str, colors: Normalize) -> AxesImage:
    frequencies = sorted({row["frequency"] for row in rows})
    relaxations = sorted({row["relaxation"] for row in rows}, reverse=True)
    values = np.full((len(relaxations), len(frequencies)), np.nan)
    for row in rows:
        at = relaxations.index(row["relaxation"]), frequencies.index(row["frequency"])
        values[at] = row[field]
    # What lies off the scale, such as no violation or an infinite one, has the colour of its end.
    shown = np.clip(values, colors.vmin, colors.vmax)
    image = axis.imshow(shown, cmap="viridis_r", norm=colors, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        behind = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1}
        axis.text(j, i, format(value, style), ha="center", va="center", fontsize=7, bbox=behind)
    axis.set_xticks(range(len(frequencies)), [str(f) for f in frequencies])
    axis.set_yticks(range(len(relaxations)), [f"{rho:g}" for rho in relaxations])
    axis.set_xlabel("Hz")
    axis.set_ylabel("relaxation")
    return image


def histogram(
    times: dict[str, list[float]], ratios: dict[str, float], chunk: int, path: Path
) -> Path:
    """Fig. 11: time of a step, each method, in chunks of so many steps."""
    figure = Figure(figsize=(7, 4), layout="tight")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    both = np.concatenate(list(times.values()))
    bins = np.geomspace(both.min(), both.max(), 60).tolist()
    for method, values in times.items():
        axis.hist(values, bins=bins, alpha=0.7, label=f"{method}, mean {np.mean(values):.0f} us")
    axis.set(xscale="log", xlabel="time of a step [us]", ylabel=f"chunks of {chunk} steps")
    shown = ", ".join(f"{ratio:.1f}" for ratio in ratios.values())
    axis.set_title(f"ratios of means to single-level {shown} (paper: 30)")
    axis.legend()
    figure.savefig(path, dpi=150)
    return path
