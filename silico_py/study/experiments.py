"""The three experiments, as rows of plain numbers."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silico_py.options import METHODS, SolverOptions
from silico_py.scene import State
from silico_py.simulate import rollout, step
from silico_py.study.runs import Outcome, Runner, runner
from silico_py.study.scenes import Experiment, two_blocks

FREQUENCIES = (10, 20, 30, 50, 70, 100)
RELAXATIONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
MAX_ITERATIONS = 30
SINGLE, WARM = "single-level", "bilevel, warm start"
CHUNK = 20  # steps timed together

Row = dict[str, Any]


def drops(
    experiment: Experiment,
    members: int = 100,
    frequencies: Iterable[int] = FREQUENCIES,
    relaxations: Iterable[float] = RELAXATIONS,
    seconds: float = 1.5,
    seed: int = 0,
    done: Callable[[Row], bool] = lambda case: False,
    methods: Iterable[str] = METHODS,
) -> Iterator[Row]:
    """Fig. 9: failures, iterations and violation of `members` runs a case.

    Args:
        experiment: scene and starts.
        members: runs of a case, the same starts for every case.
        frequencies: [Hz].
        relaxations: of the step; the bilevel's collision programs use the same.
        seconds: of each run.
        seed: of the starts.
        done: cases (method, frequency, relaxation) to leave out.
        methods: of `SolverOptions`.
    """
    starts = experiment.starts(seed, members)
    grid = list(product(frequencies, relaxations))
    for method in methods:
        run = runner(SolverOptions(method=method, max_iterations=MAX_ITERATIONS, polish=0))
        cases = [{"method": method, "frequency": f, "relaxation": rho} for f, rho in grid]

        def row(case: Row, run: Runner = run) -> Row:
            f, rho = case["frequency"], case["relaxation"]
            found = run(experiment.scene, starts, 1 / f, rho, round(seconds * f))
            return case | _summary(found)

        yield from _on_all_cores(row, [case for case in cases if not done(case)])


def _summary(found: Outcome) -> Row:
    return {
        "runs": len(found.failed),
        "failed": int(found.failed.sum()),
        "iterations": float(found.iterations.mean()),
        "violation": float(found.violation.max()),
        "detector violation": float(found.detector.max()),
        "linear momentum": float(found.linear.mean()),
        "angular momentum": float(found.angular.mean()),
    }


def _on_all_cores(row: Callable[[Row], Row], cases: list[Row]) -> Iterator[Row]:
    """Rows as they are done; a batch keeps one core busy, so cores take a case each.

    The first case compiles for all of them.
    """
    if not cases:
        return
    yield row(cases[0])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for ready in as_completed([pool.submit(row, case) for case in cases[1:]]):
            yield ready.result()


def stacks(**options: Any) -> Iterator[Row]:
    """Fig. 10: mean momentum of two blocks that should rest, ten offsets, 1 s."""
    return drops(two_blocks(), **({"members": 10, "seconds": 1.0} | options))


def timing(
    experiment: Experiment, steps: int = 20_000, frequency: int = 100, seed: int = 0
) -> dict[str, list[float]]:
    """Fig. 11: microseconds a step, in chunks, alternating, on the same states.

    Of both methods, and of the bilevel whose collision programs start from the pose before the
    step. The states come from single-level runs of 1.5 s; compile time is not included.
    """
    states = _visited(experiment, steps, frequency, seed)
    scene = dataclasses.replace(experiment.scene, timestep=1 / frequency)
    compiled = {}
    for name, options in _timed_options().items():
        steps_of = jax.jit(lambda s, o=options: jax.lax.map(lambda x: step(scene, x, None, o), s))
        first = jax.tree.map(lambda v: v[:CHUNK], states)
        compiled[name] = steps_of.lower(first).compile()
    times: dict[str, list[float]] = {name: [] for name in compiled}
    for k in range(0, steps - CHUNK + 1, CHUNK):
        chunk = jax.tree.map(lambda v, k=k: v[k : k + CHUNK], states)
        for name, advance in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(advance(chunk))
            times[name].append((time.perf_counter() - start) / CHUNK * 1e6)
    return times


def _timed_options() -> dict[str, SolverOptions]:
    common: dict[str, Any] = {"max_iterations": MAX_ITERATIONS, "polish": 0}
    both = {method: SolverOptions(method=method, **common) for method in METHODS}
    warm = SolverOptions(method="bilevel", collision_warm_start=True, **common)
    return both | {WARM: warm}


def ratios_of_means(times: dict[str, list[float]]) -> dict[str, float]:
    """Each bilevel over single-level."""
    own = statistics.mean(times[SINGLE])
    return {name: statistics.mean(values) / own for name, values in times.items() if name != SINGLE}


def _visited(experiment: Experiment, count: int, frequency: int, seed: int) -> State:
    """States that single-level runs pass through, in a fixed random order."""
    horizon = round(1.5 * frequency)
    starts = experiment.starts(seed, -(-count // horizon))
    scene = dataclasses.replace(experiment.scene, timestep=1 / frequency)
    states = jax.jit(jax.vmap(lambda s: rollout(scene, s, horizon).state))(starts)
    order = np.random.default_rng(seed).permutation(states.position.shape[0] * horizon)[:count]
    return jax.tree.map(
        lambda v: jnp.asarray(np.asarray(v).reshape(-1, *v.shape[2:])[order]), states
    )
