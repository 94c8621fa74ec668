"""What every benchmark shares: batched runs, timing, JSON with the machine."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from rich.console import Console
from rich.progress import track as rich_track
from rich.table import Table

import silico_py as sp
from silico_py.study.runs import of_each

FOLDER = Path("out/benchmarks")
PEERS = ("mujoco", "mujoco-mjx", "drake")  # distributions whose versions are recorded
SAMPLES = 8  # states kept of a run, evenly over it
LIMIT = 30  # Newton steps that the paper allows a step
TURN = 0.1  # least seconds that calls of one function take before another has its turn


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


def runner(scene: sp.Scene) -> Callable[..., Outcome]:
    """`(states, timestep, relaxation, steps)`: a batch; a member stops at an unsolved step.

    Time step, relaxation and number of steps are traced: one compilation serves all of them.
    """

    def run(state: sp.State, timestep: Any, relaxation: Any, steps: Any) -> tuple:
        here = dataclasses.replace(scene, timestep=timestep)
        options = sp.SolverOptions(relaxation=relaxation)
        guess = sp.no_guess(here, state, options)
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
        return Outcome(*(np.asarray(v) for v in found[:-1]), found[-1])

    return batch


def cases(
    scene: sp.Scene,
    states: sp.State,
    frequencies: Iterable[int],
    relaxations: Iterable[float],
    seconds: float,
    label: str,
    console: Console,
) -> dict[str, Any]:
    """Every frequency with every relaxation, as JSON; keys as `key` makes them."""
    batch, violation, out = runner(scene), violation_of(scene), {}
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
    """Of steps: how many, which took more than `LIMIT` or are unsolved, and mean iterations."""
    return {
        "steps": converged.size,
        "failed": int((~converged | (iterations > LIMIT)).sum()),
        "unsolved": int((~converged).sum()),
        "iterations": float(iterations.mean()),
    }


def colored(text: str, good: bool) -> str:
    """Green where a bar is met, red where it is not."""
    return f"[green]{text}[/green]" if good else f"[bold red]{text}[/bold red]"


def cell(case: dict[str, Any]) -> str:
    """Failures (of them unsolved) and mean iterations of one case."""
    failed = case["failed"]
    count = colored(f"{failed} ({case['unsolved']})", False) if failed else "0"
    return f"{count} failed, {case['iterations']:.1f} its"


def failures(
    benchmark: str,
    starts: Mapping[str, Callable[[], tuple[sp.Scene, sp.State]]],
    frequencies: tuple[int, ...],
    relaxations: tuple[float, ...],
    seconds: float,
    quick: bool,
    console: Console,
) -> bool:
    """`cases` of every named scene with its batch of states, as one table; True if no run fails."""
    results: dict[str, Any] = {}
    out = Table(benchmark, "failed", "Hz", *(f"{rho:g}" for rho in relaxations), "violation")
    for name, make in starts.items():
        found = cases(*make(), frequencies, relaxations, seconds, name, console)
        results[name] = found
        _add_rows(out, name, found, frequencies, relaxations)
        save(benchmark, results, quick)
    out.caption = f"violation: largest of exact alpha, at {SAMPLES} states a run"
    console.print(out)
    return all(total(found, "failed") == 0 for found in results.values())


def _add_rows(
    out: Table, name: str, results: dict[str, Any], frequencies: tuple, relaxations: tuple
) -> None:
    """One row a frequency: name and failures in all, every case, the largest violation."""
    failed, runs = total(results, "failed"), total(results, "runs")
    count = colored(f"{failed} ({total(results, 'unsolved')}) of {runs}", failed == 0)
    for k, f in enumerate(frequencies):
        row = [results[key(f, rho)] for rho in relaxations]
        deep = max(case["violation over rho"] for case in row)
        start = (name, count) if k == 0 else ("", "")
        out.add_row(*start, str(f), *map(cell, row), f"{deep:.2g} rho")


def track(sequence: Iterable, label: str, console: Console) -> Iterable:
    """Progress display over a sequence."""
    return rich_track(list(sequence), description=label, console=console)


def violation_of(scene: sp.Scene) -> Callable[[sp.State], Any]:
    """Largest (1 - alpha)+ of states (members, samples, ...), alpha exact from `sp.collide`."""
    each = partial(of_each, partial(deepest, scene))
    return jax.jit(partial(of_each, each), compiler_options=sp.compiler_options())


def deepest(scene: sp.Scene, state: sp.State) -> Any:
    """Largest (1 - alpha)+ over the scene's pairs of pieces.

    Infinite where a collision program does not converge: nothing is known of it then.
    """
    worst = jnp.zeros((), state.position.dtype)
    for pair in scene.pairs:
        a = _placed(scene, state, pair.body_a, pair.piece_a)
        if pair.body_b is None:
            fixture = scene.environment[pair.piece_b]
            b = fixture.shape, (fixture.position, fixture.orientation)
        else:
            b = _placed(scene, state, pair.body_b, pair.piece_b)
        exact = sp.collide(*a, *b)
        worst = jnp.maximum(worst, jnp.where(exact.converged, 1 - exact.alpha, jnp.inf))
    return worst


def _placed(scene: sp.Scene, state: sp.State, body: int, piece: int) -> tuple:
    shape, position, orientation = scene.bodies[body].pieces[piece]
    turn = state.orientation[body]
    center = state.position[body] + sp.rotation.rotate(turn, position)
    return shape, (center, sp.rotation.multiply(turn, orientation))


def random_drops(body: sp.Body, members: int, seed: int, size: float = 1.0) -> sp.State:
    """Random poses above the floor: any orientation, 0.2 to 0.8 m of clearance, moving.

    Of another `size` [m] it is the same, in units of that and of the speed of a fall over it.
    """
    rng, speed = np.random.default_rng(seed), math.sqrt(size)
    orientation = random_turns(rng, members)
    position = np.zeros((members, 1, 3))
    position[:, 0, 2] = float(body.shapes.bounding_radius) + size * rng.uniform(0.2, 0.8, members)
    velocity = rng.uniform(-1, 1, (members, 1, 3))
    velocity[..., 2] = rng.uniform(-2, 0, (members, 1))
    spin = rng.uniform(-1, 1, (members, 1, 3))
    parts = position, orientation, speed * velocity, speed / size * spin
    return sp.State(*(jnp.asarray(v) for v in parts))


def drops_on_floor(
    name: str, shape: sp.primitives.Shape, members: int, size: float = 1.0
) -> tuple[sp.Scene, sp.State]:
    """The scene of one body of 1 kg over a floor, and so many `random_drops` of it."""
    body = sp.Body(name, shape, mass=1.0)
    scene = sp.Scene([body], [sp.scenes.floor()], friction=0.2)
    return scene, random_drops(body, members, seed=0, size=size)


def random_turns(rng: np.random.Generator, members: int) -> np.ndarray:
    """(members, 1, 4) uniform orientations."""
    q = rng.normal(size=(members, 1, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def retimed(scene: sp.Scene, timestep: float) -> sp.Scene:
    """The scene with another time step [s]; programs compiled for the one serve the other."""
    return dataclasses.replace(scene, timestep=jnp.asarray(timestep, scene.timestep.dtype))


def compiled(
    function: Callable, *arguments: Any, options: dict[str, Any] | None = None
) -> tuple[Callable, float]:
    """The function compiled for these arguments, and the seconds that took.

    Without compiler `options` it is compiled with ours.
    """
    options = sp.compiler_options() if options is None else options
    start = time.perf_counter()
    ready = jax.jit(function).lower(*arguments).compile(options)
    return ready, time.perf_counter() - start


def over_devices(function: Callable, fixed: Any, members: Any) -> tuple[Callable, Any, Any]:
    """A function of what is fixed and of a batch, its members shared among as many devices as
    divide their number, and both arguments where these devices need them."""
    count = math.gcd(len(jax.tree.leaves(members)[0]), jax.device_count())
    if count == 1:
        return function, fixed, members
    mesh = jax.make_mesh((count,), ("members",), devices=jax.devices()[:count])
    specs = PartitionSpec(), PartitionSpec("members")
    placed = (
        jax.device_put(v, NamedSharding(mesh, spec))
        for v, spec in zip((fixed, members), specs, strict=True)
    )
    how = {"mesh": mesh, "in_specs": specs, "out_specs": specs[1]}
    return jax.shard_map(function, **how, check_vma=False), *placed


def program_memory(program: Any) -> int:
    """Memory of a program from `compiled`: arguments, results and temporaries [bytes]."""
    known = program.memory_analysis()
    devices = len(jax.tree.leaves(program.input_shardings)[0].device_set)
    parts = known.argument_size_in_bytes, known.output_size_in_bytes, known.temp_size_in_bytes
    return devices * sum(parts)


def free_memory() -> int | None:
    """On the devices that jax would use [bytes]; None where that is unknown."""
    found = [device.memory_stats() or {} for device in jax.devices()]  # None on the CPU
    if all("bytes_limit" in stats for stats in found):
        return sum(stats["bytes_limit"] - stats["bytes_in_use"] for stats in found)
    known = Path("/proc/meminfo")
    lines = known.read_text().splitlines() if known.exists() else []
    free = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    return 1024 * free[0] if free else None


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def batch_of(member: Any) -> Any:
    """A batch of one."""
    return jax.tree.map(lambda v: v[None], member)


def members(states: Any) -> list[Any]:
    """The members of a batch, each a pytree of its own."""
    count = len(jax.tree.leaves(states)[0])
    return [jax.tree.map(lambda v, k=k: v[k], states) for k in range(count)]


def divided(number: int, divisor: int) -> int:
    """number / divisor.

    Raises:
        ValueError: when that is not whole.
    """
    quotient, rest = divmod(number, divisor)
    if rest:
        raise ValueError(f"number: expected a multiple of {divisor}, got {number}")
    return quotient


def alternate(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of a call of each, called in turn; the first round warms up.

    In turn, so that what slows the machine down for a while slows all of them down. A turn takes
    at least `TURN`: a short call would mostly bring its program back into the caches.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats + 1):
        for name, function in functions.items():
            calls, start = 0, time.perf_counter()
            while (passed := time.perf_counter() - start) < TURN or not calls:
                jax.block_until_ready(function())
                calls += 1
            times[name].append(passed / calls)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def median_seconds(function: Callable, *arguments: Any, repeats: int = 5) -> tuple[Any, float]:
    """(result, median seconds of a call); the first call warms up and is not counted."""
    result = jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return result, statistics.median(times)


def about() -> dict[str, Any]:
    """The machine and the versions."""
    names = ("jax", "jaxlib", "numpy", "silico-py", *PEERS)
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "double precision": bool(jax.config.jax_enable_x64),
    }


def version(name: str) -> str:
    """Of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def save(name: str, results: dict[str, Any], quick: bool) -> Path:
    """Write the results with the machine and the versions."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    document = {"about": about(), "quick": quick, "results": results}
    path.write_text(json.dumps(document, indent=1))
    return path
