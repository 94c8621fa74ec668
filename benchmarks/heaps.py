"""Bodies of all kinds fall into a bin: steps that do not converge, iterations and time.

Every body touches or may touch every other one and the walls: 200 contacts for 16 bodies, or the
nearest of them, up to a limit between bodies and one with the walls. What counts here is a step,
for a run has a hundred of them with many contacts each: one that takes more than 30 iterations to
rho / 10, in brackets one that does not converge at all.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness
from silico_py.study.starts import random_turns

HEAPS: tuple[tuple[int, tuple[int, int] | None], ...] = (  # bodies, limits
    (8, None),
    (8, (20, 20)),
    (16, None),
    (16, (48, 40)),
)
SECONDS = 1.5
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-5)
CASES = [(f, rho) for f in FREQUENCIES for rho in RELAXATIONS]
QUICK_MEMBERS, FULL_MEMBERS = 2, 10


def run(quick: bool, console: Console) -> bool:
    """Heaps of 8 (and 16), with all pairs and with the nearest; True when no step fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    results: dict[str, Any] = {}
    out = Table("bodies", "contacts", "Hz", "rho", "steps", "failed", "iterations", "ms a step")
    for n, limits in HEAPS[:2] if quick else HEAPS:
        options = sp.SolverOptions(polish=0, max_contacts=limits)
        scene, state = sp.scenes.heap(n)
        name = f"{n} bodies" if limits is None else f"{n} bodies, nearest"
        found, compiling = measure(scene, random_starts(state, members), options, name, console)
        contacts = len(scene.pairs) if limits is None else sum(limits)
        results[name] = {"contacts": contacts, "compile": compiling, "cases": found}
        for f, rho in CASES:
            case = found[harness.key(f, rho)]
            figures = f"{case['iterations']:.1f}", f"{case['milliseconds']:.1f}"
            count = harness.colored(f"{case['failed']} ({case['unsolved']})", case["failed"] == 0)
            sizes = str(n), str(contacts), str(f), f"{rho:g}", str(case["steps"])
            out.add_row(*sizes, count, *figures)
        harness.save("heaps", results, quick)
        console.print(f"{name} compiled in {compiling:.1f} s")
    console.print(out)
    return all(harness.total(size["cases"], "failed") == 0 for size in results.values())


def measure(
    scene: sp.Scene,
    states: sp.State,
    options: sp.SolverOptions,
    label: str,
    console: Console,
) -> tuple[dict[str, Any], float]:
    """Every frequency with every relaxation, as JSON; seconds spent compiling."""

    def simulate(scene: sp.Scene, state: sp.State, options: sp.SolverOptions) -> Any:
        info = sp.rollout(scene, state, round(SECONDS * max(FREQUENCIES)), options).info
        return info.converged, info.iterations

    starts, found = harness.members(states), {}
    program, compiling = harness.compiled(simulate, scene, starts[0], options)
    for f, rho in harness.track(CASES, label, console):
        timed = harness.retimed(scene, 1 / f)
        chosen = dataclasses.replace(options, relaxation=rho)
        begun = time.perf_counter()
        runs = [jax.block_until_ready(program(timed, start, chosen)) for start in starts]
        seconds = time.perf_counter() - begun
        found[harness.key(f, rho)] = summary(runs, round(SECONDS * f), seconds)
    return found, compiling


def summary(runs: list[tuple], steps: int, seconds: float) -> dict[str, Any]:
    """Figures of the first so many steps of each run; `seconds` are those of all steps."""
    converged, iterations = (
        np.stack([np.asarray(v) for v in part]) for part in zip(*runs, strict=True)
    )
    each = 1e3 * seconds / converged.size
    converged, iterations = converged[:, :steps], iterations[:, :steps]
    return {**harness.counted(converged, iterations), "milliseconds": each}  # a step


def random_starts(state: sp.State, members: int) -> sp.State:
    """The heap's start with other orientations and up to 3 cm off."""
    rng, n = np.random.default_rng(0), len(state.position)
    position = np.asarray(state.position) + rng.uniform(-0.03, 0.03, (members, n, 3))
    orientation = np.concatenate([random_turns(rng, members) for _ in range(n)], axis=1)
    still = jnp.zeros((members, n, 3))
    return sp.State(jnp.asarray(position), jnp.asarray(orientation), still, still)
