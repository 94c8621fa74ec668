"""Speed at equal accuracy: every simulator at the longest time step that keeps 1 mm.

Two questions are asked of each simulator and each of its settings. How long may a step be so
that dropped boxes never sink deeper than 1 mm into the floor? And so that no block of a tower
of four moves further than 1 mm in a second? At that step its simulated seconds a second of
wall clock are measured, ours and the peers' in turn on one core, compile time apart. The best
setting counts. MuJoCo needs the extra `models`; `mujoco-mjx` and `drake` are optional.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import engines, harness
from silico_py.study.starts import random_drops

LIMIT = 1e-3  # [m]
SECONDS = 1
# Steps a second that are tried, longest steps first.
FREQUENCIES: tuple[int, ...] = (10, 20, 30, 50, 70, 100, 140, 200, 300, 500, 700)
FREQUENCIES += (1_000, 1_400, 2_000, 3_000, 5_000, 7_000, 10_000)
BARS = {"mujoco_c": 3.0, "mjx": 30.0}  # times faster than theirs
ABSENT, NEVER = "not installed", f"none up to {FREQUENCIES[-1]}"
OVERLAP = 1e-6  # of the blocks of the pressed tower [m]


class Case(NamedTuple):
    """What is simulated, from which states, and what is measured [m]."""

    scene: sp.Scene
    states: sp.State
    error: Callable[[engines.Path, sp.State], float]
    about: str


class Candidate(NamedTuple):
    """A simulator with one of its settings at the longest step that keeps the limit."""

    frequency: int
    error: float
    run: Callable[[], Any]
    compiling: float


def cases(drops: int) -> dict[str, Case]:
    """The drops, and the tower twice: blocks that just touch, and blocks a little pressed."""
    drop, _ = sp.scenes.drop("box")
    falls = random_drops(drop.bodies[0], drops, seed=0)
    tower, standing = sp.scenes.stack(4)
    pressed = tower.state(position=standing.position - _lowered(OVERLAP))
    shape, _, _ = drop.bodies[0].pieces[0]
    assert isinstance(shape, sp.Box)
    sinks = partial(penetration, np.asarray(shape.half_extents))
    facing = "exactly face to face, largest displacement"
    inside = "the same, faces 1 µm inside each other at the start"
    return {
        "drop": Case(drop, falls, sinks, f"{drops} boxes, deepest corner below the floor"),
        "tower": Case(tower, harness.batch_of(standing), drift, facing),
        "tower, pressed": Case(tower, harness.batch_of(pressed), drift, inside),
    }


def penetration(half_extents: np.ndarray, path: engines.Path, _: sp.State) -> float:
    """Depth of the lowest corner of a box below z = 0 over a path [m]."""
    signs = np.stack(np.meshgrid(*3 * [(-1, 1)]), axis=-1).reshape(-1, 3)
    w, x, y, z = np.moveaxis(np.asarray(path.orientation[:, 0]), -1, 0)
    # Last row of the rotation matrix: how high a point of the body's frame is.
    upward = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
    heights = path.position[:, 0, 2, None] + upward @ (signs * half_extents).T
    return float(np.max(-heights))


def drift(path: engines.Path, start: sp.State) -> float:
    """Largest distance of any block from where it started [m]."""
    return float(np.max(np.linalg.norm(path.position - np.asarray(start.position), axis=-1)))


def _lowered(overlap: float) -> np.ndarray:
    """(4, 3): every interface closes by the overlap."""
    return np.outer(overlap * np.arange(1, 5), [0.0, 0.0, 1.0])


def run(quick: bool, console: Console) -> bool:
    """20 drops (`quick` 5); True when every bar against an installed peer is met."""
    repeats, drops = (3, 5) if quick else (7, 20)
    modules, met = _modules(console), True
    results: dict[str, Any] = {"simulators": {n: m.Engine.ABOUT for n, m in modules.items()}}
    for name, case in cases(drops).items():
        found = {
            (engine, setting): longest_step(module.Engine, setting, case)
            for engine, module in modules.items()
            for setting in harness.track(module.Engine.SETTINGS, f"{name}, {engine}", console)
        }
        results[name] = {"about": case.about, "settings": measure(found, case, repeats)}
        results[name]["ours over"] = ratios(results[name]["settings"])
        met &= show(name, results[name], console)
        harness.save("equal_accuracy", results, quick)
    return met


def _modules(console: Console) -> dict[str, ModuleType]:
    """The engines whose packages are there; says which, and with what settings."""
    loaded = {name: engines.load(name) for name in engines.REQUIRES}
    for name, module in loaded.items():
        text = f"{module.Engine.NAME}: {module.Engine.ABOUT}" if module else f"{name}: {ABSENT}"
        console.print(text, style="dim", highlight=False)
    return {name: module for name, module in loaded.items() if module}


def longest_step(kind: type[engines.Engine], setting: str, case: Case) -> Candidate | None:
    """The first of `FREQUENCIES` at which every run keeps the limit, or None."""
    states = harness.members(case.states)
    engine = kind(case.scene, states[0], setting)
    for frequency in FREQUENCIES:
        worst = max_error(engine, case, frequency)
        if worst <= LIMIT:
            return Candidate(frequency, worst, *engine.timed(case.states, frequency, SECONDS))
    return None


def max_error(engine: engines.Engine, case: Case, frequency: int) -> float:
    """Over all runs [m]; infinite as soon as one fails, or breaks the limit."""
    worst = -np.inf
    for state in harness.members(case.states):
        try:
            error = case.error(engine.path(state, frequency, SECONDS), state)
        except engines.SimulationError:
            return np.inf
        if not error <= LIMIT:  # NaN does not keep it either
            return np.inf
        worst = max(worst, error)
    return worst


def measure(
    found: dict[tuple[str, str], Candidate | None], case: Case, repeats: int
) -> list[dict[str, Any]]:
    """One row a simulator and setting."""
    ready = {key: candidate.run for key, candidate in found.items() if candidate}
    seconds = harness.alternate(ready, repeats)
    simulated = SECONDS * len(case.states.position)
    rows: list[dict[str, Any]] = []
    for (engine, setting), candidate in found.items():
        rows.append({"engine": engine, "setting": setting, "steps a second": None})
        if candidate:
            rows[-1] |= {
                "steps a second": candidate.frequency,
                "error": candidate.error,
                "speed": simulated / seconds[engine, setting],
                "compile": candidate.compiling,
            }
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float | str]:
    """Our speed over that of each peer, each with its best setting, or why there is none."""
    best = {row["engine"]: 0.0 for row in rows}
    for row in rows:
        best[row["engine"]] = max(best[row["engine"]], row.get("speed", 0.0))
    ours, out = best.pop("ours"), {}
    for name in engines.REQUIRES:
        if name in best:
            out[name] = ours / best[name] if best[name] else NEVER
        elif name != "ours":
            out[name] = ABSENT
    return out


def show(name: str, found: dict[str, Any], console: Console) -> bool:
    """Print one case; True when its bars are met."""
    heads = ("simulator", "setting", "steps/s", "error [mm]", "simulated s/s", "compile [s]")
    out, met = Table(*heads, title=f"{name}: {found['about']}"), True
    for row in found["settings"]:
        figures: tuple[str, ...] = (NEVER,)
        if row["steps a second"]:
            shown = (f"{1e3 * row['error']:.2f}", f"{row['speed']:.0f}", f"{row['compile']:.1f}")
            figures = (str(row["steps a second"]), *shown)
        out.add_row(row["engine"], row["setting"], *figures)
    console.print(out)
    for peer, ratio in found["ours over"].items():
        good = isinstance(ratio, str) or ratio >= BARS.get(peer, 0.0)
        met &= good
        text = ratio if isinstance(ratio, str) else harness.colored(f"{ratio:.3g} x", good)
        bar = f" (bar {BARS[peer]:g} x)" if peer in BARS else ""
        console.print(f"ours over {peer}: {text}{bar}")
    return met
