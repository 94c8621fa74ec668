"""Steps a second of batches, ours against MuJoCo's threads and MJX.

Two kinds of work, both ten steps in a row: steps alone, and each with its full Jacobian (A and
B): `sp.linearize`, `mjd_transitionFD` on all cores, forward mode through MJX. Batches grow until
a call would take too long or too much memory. Their members are spread over a motion, so that
not all of them fly or lie. Every simulator runs in a process of its own, because the largest
batches may end one. On a machine with a GPU ours and MJX run there, and MuJoCo on the processor;
without one all of them use all cores.

All take steps of 0.01 s, whatever their accuracy; `equal_accuracy` compares that. The one bar is
on Jacobians against MJX. The plot is out/benchmarks/throughput.png.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import engines, harness
from benchmarks.workers import Worker, WorkerError

SCENES: dict[str, Callable[[], tuple[sp.Scene, sp.State]]] = {
    "drop": lambda: sp.scenes.drop("box"),
    "stack4": lambda: sp.scenes.stack(4),
}
SIMULATORS = ("ours", "mujoco_c", "mjx")
KINDS = ("steps", "steps and Jacobians")
JACOBIAN_BAR = {"mjx": 10.0}  # times theirs
BATCHES = tuple(4**k for k in range(9))  # 1 to 65,536
QUICK_BATCHES = (1, 64)
STEPS = 10  # of a call
ABOUT = {
    "ours": "relaxation 1e-6, polish 0, double precision",
    "mujoco_c": "Newton, elliptic cones, default contacts; Jacobian by forward differences",
    "mjx": (
        "Newton, default contacts, double precision on a CPU and single elsewhere; steps: elliptic "
        "cones, 4 iterations; Jacobian: pyramidal cones (elliptic ones give NaN), 100 iterations"
    ),
}
PHASES, STRIDE = 128, 37  # states of the motion over which a batch is spread; coprime
CALL_SECONDS = {True: 10.0, False: 60.0}  # for one call, quick or not
TIMEOUT = {True: 300.0, False: 1800.0}  # for a batch, compiling included [s]
MEMORY_SHARE = 0.7  # of what is free


class Task(NamedTuple):
    """One measurement; what a worker is asked."""

    simulator: str
    scene: str
    kind: str
    motion: sp.State
    batch: int
    repeats: int


def run(quick: bool, console: Console) -> bool:
    """Batches up to 65,536 (`quick` 64); True when all of ours converge and meet the bar."""
    results: dict[str, Any] = {}
    met = True
    threads = f"{harness.cores()} threads"
    device = threads if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    places = f"ours, mjx: {device}; mujoco_c: {threads}"
    console.print(places, *(f"{name}: {text}" for name, text in ABOUT.items()), sep="\n")
    for scene in SCENES:
        motion = visited(*SCENES[scene]())
        for kind in KINDS:
            found = results[f"{scene}, {kind}"] = compare(scene, kind, motion, quick, console)
            bars = {} if kind == KINDS[0] else JACOBIAN_BAR
            shown, good = table(f"{scene}, {kind}", found, bars)
            console.print(shown)
            met &= good
            for name, series in found.items():
                if series["stopped"]:
                    console.print(f"{name} ends there: {series['stopped']}", highlight=False)
            about = {"places": places, "settings": ABOUT}
            harness.save("throughput", {**about, "work": results}, quick)
    console.print(f"plot: {plot(results, harness.FOLDER / 'throughput.png')}")
    return met


def visited(scene: sp.Scene, state: sp.State) -> sp.State:
    """The states of a motion, as numpy arrays that travel to other processes."""
    return jax.tree.map(np.asarray, sp.rollout(scene, state, PHASES).state)


def spread(motion: sp.State, batch: int) -> sp.State:
    """So many of its states: one after another far apart, the first from the middle."""
    members = (PHASES // 2 + STRIDE * np.arange(batch)) % PHASES
    return jax.tree.map(lambda v: v[members], motion)


def compare(
    scene: str, kind: str, motion: sp.State, quick: bool, console: Console
) -> dict[str, dict[str, Any]]:
    """Figures of every simulator by batch, and why it stopped.

    The simulators take turns at each size of batch.
    """
    sizes, repeats = (QUICK_BATCHES, 3) if quick else (BATCHES, 5)
    found: dict[str, dict[str, Any]] = {n: {"batches": {}, "stopped": ""} for n in SIMULATORS}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name in SIMULATORS:
            if engines.load(name) is None:
                found[name]["stopped"] = "not installed"
            else:
                workers[name] = stack.enter_context(Worker(measure, environment(name)))
        for batch in harness.track(sizes, f"{scene}, {kind}", console):
            for name, worker in workers.items():
                series = found[name]
                if not series["stopped"]:
                    task = Task(name, scene, kind, motion, batch, repeats)
                    extend(series, worker, task, quick)
    return found


def extend(series: dict[str, Any], worker: Worker, task: Task, quick: bool) -> None:
    """One batch more in a series, or the reason for its end."""
    seconds, measured = CALL_SECONDS[quick], series["batches"]
    if measured:
        last = max(measured, key=int)
        expected = measured[last]["seconds"] * task.batch / int(last)
        if expected > seconds:
            series["stopped"] = f"batch {task.batch} would take {expected:.0f} s a call"
            return
    try:
        measured[str(task.batch)] = worker.ask(task, TIMEOUT[quick])
    except WorkerError as error:
        series["stopped"] = f"batch {task.batch}: {error}"


def environment(simulator: str) -> dict[str, str]:
    """Environment of the process that runs a simulator."""
    shared = {
        "JAX_ENABLE_X64": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_NUM_CPU_DEVICES": str(harness.cores()),  # share each batch
    }
    # With two threads jaxlib 0.10 dead-locks in large batches of MJX, with eight it does not.
    threads = {"NPROC": str(max(8, harness.cores()))}
    return shared | threads if simulator == "mjx" else shared


def measure(task: Task) -> dict[str, float]:
    """In the worker: prepare the batch, see whether it fits, and time it.

    Raises:
        MemoryError: before running what would not fit.
    """
    scene, _ = SCENES[task.scene]()
    states = spread(task.motion, task.batch)
    module, free = engines.load(task.simulator), harness.free_memory()
    assert module is not None  # what is not installed is no task
    make = module.stepper if task.kind == KINDS[0] else module.linearizer
    program = make(scene, states, STEPS)
    if free is not None and program.memory > MEMORY_SHARE * free:
        raise MemoryError(f"would take {gib(program.memory)} of {gib(free)} that are free")
    seconds = harness.alternate({"call": program.run}, task.repeats)["call"]
    return {
        "steps a second": STEPS * task.batch / seconds,
        "seconds": seconds,
        "good": program.good(),
        "memory": program.memory,
        "compile": program.compiling,
    }


def table(
    title: str, found: dict[str, dict[str, Any]], bars: dict[str, float]
) -> tuple[Table, bool]:
    """Steps a second and memory of each, our ratios to the peers, and whether the bars are met."""
    peers = [name for name in found if name != "ours" and found[name]["batches"]]
    out = Table("batch", *found, *(f"ours / {name}" for name in peers), title=title)
    sizes = sorted({int(size) for series in found.values() for size in series["batches"]})
    met = True
    for size in sizes:
        figures = {name: series["batches"].get(str(size)) for name, series in found.items()}
        cells = list(map(_cell, figures.values()))
        met &= figures["ours"] is None or figures["ours"]["good"] == 1
        for name in peers:
            ratio = _ratio(figures["ours"], figures[name])
            good = ratio is None or ratio >= bars.get(name, 0.0)
            lacking = name in bars and figures[name] is not None and figures["ours"] is None
            met &= good and not lacking
            cells.append("-" if ratio is None else harness.colored(f"{ratio:.3g}", good))
        out.add_row(f"{size:,}", *cells)
    return out, met


def _cell(figures: dict[str, float] | None) -> str:
    """Steps a second, memory, and the share that failed if any did."""
    if figures is None:
        return "-"
    text = f"{figures['steps a second']:,.0f} ({gib(figures['memory'])})"
    failed = 1 - figures["good"]
    return text if not failed else f"{text} {harness.colored(f'{failed:.1%} failed', False)}"


def _ratio(ours: dict[str, float] | None, theirs: dict[str, float] | None) -> float | None:
    if ours is None or theirs is None:
        return None
    return ours["steps a second"] / theirs["steps a second"]


def gib(size: float) -> str:
    """Bytes, readable."""
    return f"{size / 2**30:.3g} GiB" if size > 2**30 else f"{size / 2**20:.3g} MiB"


def plot(results: dict[str, Any], path: Path) -> Path:
    """One panel a scene and kind of work."""
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    panels = np.ravel(figure.subplots(len(SCENES), len(KINDS), sharex=True))
    for axes, (title, found) in zip(panels, results.items(), strict=True):
        for name, series in found.items():
            rows = sorted((int(size), row) for size, row in series["batches"].items())
            rates = [row["steps a second"] for _, row in rows]
            axes.loglog([size for size, _ in rows], rates, "o-", label=name)
        axes.set(title=title, xlabel="batch", ylabel="steps a second")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
    return path
