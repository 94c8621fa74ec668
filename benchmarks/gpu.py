"""Batches on a GPU: steps and Jacobians a second, and speed at equal accuracy against MJX there.

Rates are those of `throughput`'s work, ten steps in a row from states spread over a motion, in
double precision, in batches that fill the GPU. At equal accuracy both simulators do
`equal_accuracy`'s work on the same batch: at the longest step at which no member sinks in or moves
by more than 1 mm in a second, how many seconds are simulated in one? MJX is in single precision, as
its users run it on a GPU, and its best setting counts. `quick` leaves out its setting of more
iterations, whose steps take several times as long.

Programs are compiled side by side, which takes a few minutes. Without a GPU the batches are small
and no bar is judged.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import engines, equal_accuracy, harness, throughput

# Members of the batches, by scene and kind of work.
BATCHES = {
    ("drop", "steps"): (65_536, 262_144, 1_048_576),
    ("drop", "Jacobians"): (65_536, 262_144),
    ("stack4", "steps"): (16_384, 65_536),
    ("stack4", "Jacobians"): (4_096, 16_384),
}
SMALL = (64,)
RATES = {"drop": 1e6, "stack4": 1e5}  # bars, steps a second; with their Jacobians half as many
TIMES_MJX = 5.0
MEMBERS, FEW = 4_096, 4  # simulated at equal accuracy; without a GPU
COMPILERS = 8  # programs that are compiled side by side
REPEATS = 3


def run(quick: bool, console: Console) -> bool:
    """Batches for a GPU (`quick` the smallest of each); True when all bars are met, or no GPU is
    there to judge them."""
    there = jax.default_backend() == "gpu"
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    console.print(f"on {devices}" + ("" if there else ": no bar is judged"))
    results: dict[str, Any] = {"rates": rates(quick, there, console)}
    met = show_rates(results["rates"], there, console)
    harness.save("gpu", results, quick)
    results["equal accuracy"] = accurate(quick, there, console)
    met &= show_accurate(results["equal accuracy"], there, console)
    harness.save("gpu", results, quick)
    return met or not there


def rates(quick: bool, there: bool, console: Console) -> list[dict[str, Any]]:
    """One row a scene, kind of work and batch."""
    cases = [
        (scene, kind, batch)
        for (scene, kind), sizes in BATCHES.items()
        for batch in (sizes[: 1 if quick else None] if there else SMALL)
    ]
    starts = {name: make() for name, make in throughput.SCENES.items()}
    motions = {name: throughput.visited(*start) for name, start in starts.items()}

    def program(case: tuple[str, str, int]) -> engines.Program:
        name, kind, batch = case
        return _program(starts[name][0], motions[name], kind, batch)

    with ThreadPoolExecutor(COMPILERS) as pool:
        programs = list(pool.map(program, cases))
    rows = []
    for case, ready in harness.track(zip(cases, programs, strict=True), "rates", console):
        seconds = harness.alternate({"call": ready.run}, REPEATS)["call"]
        row = dict(zip(("scene", "kind", "batch"), case, strict=True))
        rate = throughput.STEPS * case[2] / seconds
        figures = {"good": ready.good(), "memory": ready.memory, "compile": ready.compiling}
        rows.append(row | {"steps a second": rate} | figures)
    return rows


def _program(scene: sp.Scene, motion: sp.State, kind: str, batch: int) -> engines.Program:
    ours: Any = engines.load("ours")
    make = ours.stepper if kind == "steps" else ours.linearizer
    return make(scene, throughput.spread(motion, batch), throughput.STEPS)


def show_rates(rows: list[dict[str, Any]], judged: bool, console: Console) -> bool:
    """Print them; True when the best batch of each kind, of those that converge, meets its bar."""
    heads = ("scene", "work", "batch", "steps/s", "bar", "converged", "memory", "compile [s]")
    out, met = Table(*heads, title="ten steps in a row, double precision"), True
    for scene, kind in BATCHES:
        own = [row for row in rows if (row["scene"], row["kind"]) == (scene, kind)]
        bar = RATES[scene] / (1 if kind == "steps" else 2)
        best = max((row["steps a second"] for row in own if row["good"] == 1), default=0.0)
        met &= best >= bar
        for row in own:
            rate = row["steps a second"]
            shown = f"{rate:,.0f}"
            if judged and rate == best:
                shown = harness.colored(shown, best >= bar)
            more = f"{row['good']:.2%}", throughput.gib(row["memory"]), f"{row['compile']:.0f}"
            asked = f"{bar:,.0f}" if judged else "-"
            out.add_row(scene, kind, f"{row['batch']:,}", shown, asked, *more)
    console.print(out)
    return met


def accurate(quick: bool, there: bool, console: Console) -> dict[str, list[dict[str, Any]]]:
    """Tables of the drops and the tower, one row a simulator and setting (`quick` the last of
    MJX)."""
    cases, jobs = equal_accuracy.cases(MEMBERS if there else FEW), []
    tower = cases["tower"]
    many = jax.tree.map(lambda v: np.repeat(v, MEMBERS if there else FEW, axis=0), tower.states)
    cases = {"drop": cases["drop"], "tower": tower._replace(states=many)}
    for name, case in cases.items():
        for engine in ("ours", "mjx"):
            module: Any = engines.load(engine)
            settings = module.Engine.SETTINGS if module else ()
            settings = settings[-1:] if quick and engine == "mjx" else settings
            jobs += [(name, case, engine, setting, module) for setting in settings]
    with ThreadPoolExecutor(COMPILERS) as pool:
        ready = list(pool.map(_compiled, jobs))
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for job, simulate in harness.track(zip(jobs, ready, strict=True), "equal accuracy", console):
        name, case, engine, setting, _ = job
        out[name].append({"engine": engine, "setting": setting} | _longest(case, simulate))
    return out


def _compiled(job: tuple) -> engines.Together:
    _, case, _, setting, module = job
    return module.together(case.scene, case.states, setting)


def _last_piece(simulate: engines.Together, frequency: int) -> engines.Path:
    """Simulate a second; nothing but its last part is kept."""
    return deque(simulate(frequency), maxlen=1)[0]


def _longest(case: equal_accuracy.Case, simulate: engines.Together) -> dict[str, Any]:
    """The longest step at which all members keep the limit, and the speed there."""
    start = engines.member(case.states, 0)
    for frequency in equal_accuracy.FREQUENCIES:
        errors = (case.error(_in_a_row(path), start) for path in simulate(frequency))
        kept = list(takewhile(lambda error: error <= equal_accuracy.LIMIT, errors))
        if len(kept) == harness.divided(frequency, engines.PIECE):
            work = partial(_last_piece, simulate, frequency)
            seconds = harness.alternate({"call": work}, REPEATS)["call"]
            speed = len(case.states.position) / seconds
            return {"steps a second": frequency, "error": max(kept), "speed": speed}
    return {"steps a second": None}


def _in_a_row(path: engines.Path) -> engines.Path:
    """Members one after another, as numpy arrays."""
    return jax.tree.map(lambda v: np.asarray(v).reshape(-1, *v.shape[2:]), path)


def show_accurate(found: dict[str, list[dict[str, Any]]], judged: bool, console: Console) -> bool:
    """Print it; True when ours is faster than MJX as the bar asks."""
    heads = ("case", "simulator", "setting", "steps/s", "error [mm]", "simulated s/s")
    out, met, lines = Table(*heads, title="a batch that keeps 1 mm"), True, []
    for name, rows in found.items():
        for row in rows:
            figures = ("none", "", "")
            if row["steps a second"]:
                shown = f"{1e3 * row['error']:.2f}", f"{row['speed']:,.0f}"
                figures = (str(row["steps a second"]), *shown)
            out.add_row(name, row["engine"], row["setting"], *figures)
        ratio = equal_accuracy.ratios(rows)["mjx"]
        good = isinstance(ratio, str) or ratio >= TIMES_MJX
        met &= good
        text = ratio if isinstance(ratio, str) else f"{ratio:.3g} x"
        text = f"{harness.colored(text, good)} (bar {TIMES_MJX:g} x)" if judged else text
        lines.append(f"{name}: ours over MJX {text}")
    console.print(out, *lines, sep="\n", highlight=False)
    return met
