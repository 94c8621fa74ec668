"""Bodies of all kinds fall into a bin: steps that do not converge, iterations and time.

Every body touches or may touch every other one and the walls: 200 contacts for 16 bodies. What
counts here is a step, for a run has a hundred of them with many contacts each: one that takes
more than 30 iterations to rho / 10, in brackets one that does not converge at all.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness

SIZES = (8, 16)
SECONDS = 1.5
FREQUENCIES = (30, 100)
RELAXATIONS = (1e-3, 1e-5)
ITERATIONS = 30
QUICK_MEMBERS, FULL_MEMBERS = 2, 10


class Found(NamedTuple):
    """Of all steps of a batch of runs."""

    steps: int
    failed: int
    unsolved: int
    iterations: float
    milliseconds: float  # a step


def run(quick: bool, console: Console) -> bool:
    """Heaps of 8 (and 16); True when no step fails."""
    members, results = QUICK_MEMBERS if quick else FULL_MEMBERS, {}
    out = Table("bodies", "contacts", "Hz", "rho", "steps", "failed", "iterations", "ms a step")
    for n in SIZES[:1] if quick else SIZES:
        scene, state = sp.scenes.heap(n)
        found, compiling = measure(scene, random_starts(state, members), str(n), console)
        results[str(n)] = {"contacts": len(scene.pairs), "compile": compiling, "cases": found}
        for (f, rho), case in found.items():
            figures = f"{case.iterations:.1f}", f"{case.milliseconds:.1f}"
            count = harness.colored(f"{case.failed} ({case.unsolved})", case.failed == 0)
            sizes = str(n), str(len(scene.pairs)), str(f), f"{rho:g}", str(case.steps)
            out.add_row(*sizes, count, *figures)
        harness.save("heaps", as_json(results), quick)
        console.print(f"{n} bodies compiled in {compiling:.1f} s")
    console.print(out)
    return all(case.failed == 0 for size in results.values() for case in size["cases"].values())


def measure(
    scene: sp.Scene, states: sp.State, label: str, console: Console
) -> tuple[dict[tuple[int, float], Found], float]:
    """Every frequency with every relaxation; seconds spent compiling."""

    def simulate(scene: sp.Scene, state: sp.State, options: sp.SolverOptions) -> Any:
        info = sp.rollout(scene, state, round(SECONDS * max(FREQUENCIES)), options).info
        return info.converged, info.iterations

    options, starts = sp.SolverOptions(polish=0), harness.members(states)
    program, compiling = harness.compiled(simulate, scene, starts[0], options)
    found = {}
    cases = [(f, rho) for f in FREQUENCIES for rho in RELAXATIONS]
    for f, rho in harness.track(cases, label, console):
        timed, chosen = harness.retimed(scene, 1 / f), sp.SolverOptions(relaxation=rho, polish=0)
        begun = time.perf_counter()
        runs = [jax.block_until_ready(program(timed, start, chosen)) for start in starts]
        seconds = time.perf_counter() - begun
        found[f, rho] = summary(runs, round(SECONDS * f), seconds)
    return found, compiling


def summary(runs: list[tuple], steps: int, seconds: float) -> Found:
    """Of the first so many steps of each run; `seconds` are those of all steps."""
    converged, iterations = (
        np.stack([np.asarray(v) for v in part]) for part in zip(*runs, strict=True)
    )
    each = 1e3 * seconds / converged.size
    converged, iterations = converged[:, :steps], iterations[:, :steps]
    failed = ~converged | (iterations > ITERATIONS)
    counts = int(failed.sum()), int((~converged).sum())
    return Found(converged.size, *counts, float(iterations.mean()), each)


def random_starts(state: sp.State, members: int) -> sp.State:
    """The heap's start with other orientations and up to 3 cm off."""
    rng, n = np.random.default_rng(0), len(state.position)
    position = np.asarray(state.position) + rng.uniform(-0.03, 0.03, (members, n, 3))
    orientation = np.concatenate([harness.random_turns(rng, members) for _ in range(n)], axis=1)
    still = jnp.zeros((members, n, 3))
    return sp.State(jnp.asarray(position), jnp.asarray(orientation), still, still)


def as_json(results: dict[str, Any]) -> dict[str, Any]:
    """With names for the cases."""
    return {
        n: size | {"cases": {harness.key(*k): v._asdict() for k, v in size["cases"].items()}}
        for n, size in results.items()
    }
