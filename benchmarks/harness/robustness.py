"""How many runs fail: batches of them over time steps and relaxations, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks.harness.batches import retimed
from benchmarks.harness.records import colored, save, track
from silico_py.study.runs import EXACT, of_each, violation
from silico_py.study.starts import random_drops

SAMPLES = 8  # states kept of a run, evenly over it
LIMIT = 30  # Newton steps that the paper allows a step
ALLOWED_VIOLATION = 4  # relaxations


class Outcome(NamedTuple):
    """One batch of runs: what failed, Newton steps, and some converged states of each.

    `failed` runs have a step that took more than `LIMIT` Newton steps, `unsolved` ones a step
    that did not converge within those that `SolverOptions` allows by default.
    """

    failed: np.ndarray
    unsolved: np.ndarray
    steps: np.ndarray
    iterations: np.ndarray
    worst: np.ndarray
    samples: sp.State  # (members, SAMPLES, ...)


def runner(scene: sp.Scene, warm: bool = True) -> Callable[..., Outcome]:
    """`(states, timestep, relaxation, steps)`: a batch; a member stops at an unsolved step.

    Steps are tried from the solutions of those before if it is to be `warm`.

    Time step, relaxation and number of steps are traced: one compilation serves all of them.
    """

    def run(state: sp.State, timestep: Any, relaxation: Any, steps: Any) -> tuple:
        here = retimed(scene, timestep)
        options = sp.SolverOptions(relaxation=relaxation)
        guess = sp.no_guess(here, state, options) if warm else None
        zero = jnp.zeros((), int)

        def going(carry: tuple) -> Any:
            return (carry[3] < steps) & ~carry[2]

        def advance(carry: tuple) -> tuple:
            current, failed, _, done, total, worst, samples, guess = carry
            following, info = sp.step(here, current, options=options, guess=guess)
            unsolved, count = ~info.converged, info.iterations
            failed = failed | unsolved | (count > LIMIT)
            # A step that is not solved says nothing: its state is no sample.
            slot = jnp.where(unsolved, SAMPLES, done * SAMPLES // steps)
            samples = jax.tree.map(lambda s, v: s.at[slot].set(v, mode="drop"), samples, following)
            worst = jnp.maximum(worst, count)
            counts = done + 1, total + count, worst
            return following, failed, unsolved, *counts, samples, info.guess

        samples = jax.tree.map(lambda v: jnp.stack(SAMPLES * [v]), state)
        no = jnp.asarray(False)
        start = (state, no, no, zero, zero, zero, samples, guess)
        return jax.lax.while_loop(going, advance, start)[1:-1]

    def every(states: sp.State, *case: Any) -> tuple:
        return of_each(lambda state: run(state, *case), states)

    program = jax.jit(every, compiler_options=sp.compiler_options())

    def batch(states: sp.State, timestep: float, relaxation: float, steps: int) -> Outcome:
        found = jax.block_until_ready(program(states, timestep, relaxation, steps))
        return Outcome._make([*map(np.asarray, found[:-1]), found[-1]])

    return batch


def failures(
    benchmark: str,
    starts: Mapping[str, Callable[[], tuple[sp.Scene, sp.State]]],
    frequencies: tuple[int, ...],
    relaxations: tuple[float, ...],
    seconds: float,
    quick: bool,
    console: Console,
) -> bool:
    """`cases` of every named scene with its batch of states, as one table; True if all are good."""
    results: dict[str, Any] = {}
    out = Table(benchmark, "failed", "Hz", *(f"{rho:g}" for rho in relaxations), "violation")
    for name, make in starts.items():
        found = cases(*make(), frequencies, relaxations, seconds, name, console)
        results[name] = found
        _add_rows(out, name, found, frequencies, relaxations)
        save(benchmark, results, quick)
    allowed = f"allowed {ALLOWED_VIOLATION} rho"
    out.caption = f"violation: largest of exact alpha, at {SAMPLES} states a run; {allowed}"
    console.print(out)
    return all(map(good, results.values()))


def good(cases: dict[str, Any]) -> bool:
    """No failed run, and no violation beyond the bar."""
    return total(cases, "failed") == 0 and largest_violation(cases.values()) <= ALLOWED_VIOLATION


def largest_violation(cases: Iterable[dict[str, Any]]) -> float:
    """Over several cases, in relaxations."""
    return max(case["violation over rho"] for case in cases)


def depth(violation: float) -> str:
    """A violation in relaxations, in red beyond the bar."""
    return colored(f"{violation:.2g} rho", violation <= ALLOWED_VIOLATION)


def _add_rows(
    out: Table, name: str, results: dict[str, Any], frequencies: tuple, relaxations: tuple
) -> None:
    """One row a frequency: name and failures in all, every case, the largest violation."""
    failed, runs = total(results, "failed"), total(results, "runs")
    count = colored(f"{failed} ({total(results, 'unsolved')}) of {runs}", failed == 0)
    for k, f in enumerate(frequencies):
        row = [results[key(f, rho)] for rho in relaxations]
        start = (name, count) if k == 0 else ("", "")
        out.add_row(*start, str(f), *map(cell, row), depth(largest_violation(row)))


def cell(case: dict[str, Any]) -> str:
    """Failures (of them unsolved) and mean iterations of one case."""
    failed = case["failed"]
    count = colored(f"{failed} ({case['unsolved']})", False) if failed else "0"
    return f"{count} failed, {case['iterations']:.1f} its"


def cases(
    scene: sp.Scene,
    states: sp.State,
    frequencies: Iterable[int],
    relaxations: Iterable[float],
    seconds: float,
    label: str,
    console: Console,
    warm: bool = True,
) -> dict[str, Any]:
    """Every frequency with every relaxation, as JSON; keys as `key` makes them."""
    batch, violation, out = runner(scene, warm), violation_of(scene), {}
    for f, rho in track([(f, rho) for f in frequencies for rho in relaxations], label, console):
        found = batch(states, 1 / f, rho, round(seconds * f))
        out[key(f, rho)] = {
            "failed": int(found.failed.sum()),
            "unsolved": int(found.unsolved.sum()),
            "runs": len(found.failed),
            "iterations": float(found.iterations.sum() / found.steps.sum()),
            "worst": int(found.worst.max()),
            "violation over rho": float(np.max(violation(found.samples))) / rho,
        }
    return out


def key(frequency: int, relaxation: float) -> str:
    """Name of a case in the JSON."""
    return f"{frequency} Hz {relaxation:g}"


def total(results: dict[str, Any], name: str) -> int:
    """Sum over the cases of `cases`."""
    return sum(case[name] for case in results.values())


def counted(converged: np.ndarray, iterations: np.ndarray) -> dict[str, Any]:
    """Counts of steps: how many, which took more than `LIMIT` or are unsolved, and mean
    iterations."""
    return {
        "steps": converged.size,
        "failed": int((~converged | (iterations > LIMIT)).sum()),
        "unsolved": int((~converged).sum()),
        "iterations": float(iterations.mean()),
    }


def steps_table(results: dict[str, dict[str, Any]], title: str) -> Table:
    """A table of `counted` steps, one row each; in brackets steps that no limit helps."""
    out = Table("scenes", "steps", "of them", "failed", title=title)
    for name, row in results.items():
        share = f"{100 * row['failed'] / row['steps']:.2g} %"
        out.add_row(name, str(row["steps"]), cell(row), share)
    return out


def violation_of(scene: sp.Scene) -> Callable[[sp.State], Any]:
    """Largest (1 - alpha)+ of states (members, samples, ...), alpha from exact collision solves.

    In double precision, whatever that of the scene.
    """
    exactly = jax.tree.map(jnp.float64, scene)

    def one(state: sp.State) -> Any:
        return violation(exactly, jax.tree.map(jnp.float64, state), EXACT)

    each = partial(of_each, one)
    return jax.jit(partial(of_each, each), compiler_options=sp.compiler_options())


def drops_on_floor(
    name: str, shape: sp.primitives.Shape, members: int, size: float = 1.0
) -> tuple[sp.Scene, sp.State]:
    """The scene of one body of 1 kg over a floor, and so many `random_drops` of it."""
    body = sp.Body(name, shape, mass=1.0)
    scene = sp.Scene([body], [sp.scenes.floor()], friction=0.2)
    return scene, random_drops(body, members, seed=0, size=size)
