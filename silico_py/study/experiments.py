"""The three experiments, as rows of plain numbers."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silico_py.options import METHODS, SolverOptions
from silico_py.scene import State
from silico_py.study.runs import (
    Judge,
    Outcome,
    Runner,
    Verdict,
    compiled_judge,
    compiled_runner,
)
from silico_py.study.scenes import Experiment

FREQUENCIES = (10, 20, 30, 50, 70, 100)
RELAXATIONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
MAX_ITERATIONS = 30
WARM = "bilevel, warm start"
CHUNK = 20  # steps timed together, more where there are more members

Row = dict[str, Any]


@dataclass
class Grid:
    """Fig. 9 and 10: runs from the same starts for every method, time step and relaxation.

    Attributes:
        experiment: scene and starts.
        members: runs of a case.
        frequencies: [Hz].
        relaxations: of the step; the bilevel's collision programs use the same.
        seconds: of each run.
        seed: of the starts.
        methods: of `SolverOptions`.
        optimize: the compiled programs; otherwise they compile in half the time.
        pool: of threads; a run keeps one core busy, so cores take a case each.
    """

    experiment: Experiment
    members: int = 100
    frequencies: Sequence[int] = FREQUENCIES
    relaxations: Sequence[float] = RELAXATIONS
    seconds: float = 1.5
    seed: int = 0
    methods: Sequence[str] = METHODS
    optimize: bool = True
    pool: Executor = field(default_factory=lambda: ThreadPoolExecutor(os.cpu_count()))
    _runners: dict[str, Future[Runner]] = field(default_factory=dict, init=False, repr=False)

    @property
    def cases(self) -> list[Row]:
        """All combinations of method, frequency and relaxation."""
        names = ("method", "frequency", "relaxation")
        grid = product(self.methods, self.frequencies, self.relaxations)
        return [dict(zip(names, case, strict=True)) for case in grid]

    @cached_property
    def starts(self) -> State:
        """States from which the members set out."""
        return self.experiment.starts(self.seed, self.members)

    def runner(self, method: str) -> Future[Runner]:
        """The runner of a method; the first to ask starts to compile it."""
        if method not in self._runners:
            at = (self.experiment.scene, self.starts, options(method))
            program = self.pool.submit(compiled_runner, *at, self.longest, self.optimize)
            self._runners[method] = program
        return self._runners[method]

    @cached_property
    def judge(self) -> Future[Judge]:
        """The judge of the runs; the first to ask starts to compile it."""
        at = (self.experiment.scene, self.starts, self.longest, self.optimize)
        return self.pool.submit(compiled_judge, *at)

    def rows(self, done: Callable[[Row], bool] = lambda case: False) -> Iterator[Row]:
        """Failures, iterations, violation and momentum of each case not `done`, in any order.

        Compiling begins at once, the runs when the first row is asked for.
        """
        cases = [case for case in self.cases if not done(case)]
        if not cases:
            return iter(())
        # The last one takes longest.
        left = {case["method"] for case in cases}
        runners = {
            method: self.runner(method) for method in reversed(self.methods) if method in left
        }
        return self._run(cases, runners, self.judge)

    def _run(
        self, cases: list[Row], runners: dict[str, Future[Runner]], judge: Future[Judge]
    ) -> Iterator[Row]:
        running = [self.pool.submit(self._row, c, runners[c["method"]], judge) for c in cases]
        for ready in as_completed(running):
            yield ready.result()

    def _row(self, case: Row, runner: Future[Runner], judge: Future[Judge]) -> Row:
        rho, steps = case["relaxation"], self._steps(case["frequency"])
        chosen = replace(options(case["method"]), relaxation=rho, collision_relaxation=rho)
        found = runner.result()(self.starts, 1 / case["frequency"], chosen, steps)
        return case | _summary(found, judge.result()(found.states, steps))

    @property
    def longest(self) -> int:
        """Steps of a run at the highest frequency."""
        return max(map(self._steps, self.frequencies))

    def _steps(self, frequency: int) -> int:
        return round(self.seconds * frequency)


def options(method: str, **others: Any) -> SolverOptions:
    """Options of the study: no polishing, at most 30 Newton steps."""
    return SolverOptions(method=method, max_iterations=MAX_ITERATIONS, polish=0, **others)


def _summary(found: Outcome, verdict: Verdict) -> Row:
    return {
        "runs": len(found.failed),
        "failed": int(found.failed.sum()),
        "iterations": float(found.iterations.mean()),
        "violation": float(verdict.violation.max()),
        "detector violation": float(verdict.detector.max()),
        "linear momentum": float(verdict.linear.mean()),
        "angular momentum": float(verdict.angular.mean()),
    }


def timing(grid: Grid, steps: int = 20_000) -> dict[str, list[float]]:
    """Fig. 11: microseconds a step, in chunks, alternating, on the same states.

    Of both methods, and of the bilevel whose collision programs start from the pose before the
    step. The states come from single-level runs at the highest frequency; compile time is not
    included.
    """
    compiling = {method: grid.runner(method) for method in METHODS}  # side by side
    runners = {method: future.result() for method, future in compiling.items()}
    kinds = {method: options(method) for method in METHODS}
    kinds[WARM] = options("bilevel", collision_warm_start=True)
    count, frequency = grid.members, max(grid.frequencies)
    chunk_steps = steps_of_chunk(count)
    each = chunk_steps // count  # of a member
    chunks = max(1, steps // chunk_steps)
    states = _visited(grid, runners[METHODS[0]], chunks * count)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for k in range(chunks):
        here = jax.tree.map(lambda v, k=k: v[k * count : (k + 1) * count], states)
        for name, chosen in kinds.items():
            start = time.perf_counter()
            run = runners[chosen.method](here, 1 / frequency, chosen, each)
            jax.block_until_ready(run)
            times[name].append((time.perf_counter() - start) / chunk_steps * 1e6)
    return times


def steps_of_chunk(members: int) -> int:
    """Steps that `timing` takes together, of all members."""
    return max(1, CHUNK // members) * members


def timed_grid(experiment: Experiment, **chosen: Any) -> Grid:
    """Rows of `timing`: chunks of single steps."""
    return Grid(experiment, members=CHUNK, frequencies=(100,), **chosen)


def _visited(grid: Grid, run: Runner, count: int) -> State:
    """States that runs pass through, in a fixed random order."""
    frequency, horizon, found = max(grid.frequencies), grid.longest, []
    for seed in range(-(-count // (horizon * grid.members))):
        starts = grid.experiment.starts(seed, grid.members)
        states = run(starts, 1 / frequency, options(METHODS[0]), horizon).states
        found.append(jax.tree.map(np.asarray, states))
    order = np.random.default_rng(0).permutation(len(found) * horizon * grid.members)[:count]

    def chosen(*parts: np.ndarray) -> jax.Array:
        return jnp.asarray(np.stack(parts).reshape(-1, *parts[0].shape[2:])[order])

    return jax.tree.map(chosen, *found)


def ratios_of_means(times: dict[str, list[float]]) -> dict[str, float]:
    """Each bilevel over single-level."""
    own, *others = times
    return {name: statistics.mean(times[name]) / statistics.mean(times[own]) for name in others}
