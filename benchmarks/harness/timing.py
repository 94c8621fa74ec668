"""Time and memory of programs, compiling apart."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

import silico_py as sp

Name = TypeVar("Name", bound=Hashable)
TURN = 0.1  # least seconds that calls of one function take before another has its turn


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


def alternate(functions: Mapping[Name, Callable[[], Any]], repeats: int) -> dict[Name, float]:
    """Median seconds of a call of each, called in turn; the first round warms up.

    In turn, so that what slows the machine down for a while slows all of them down. A turn takes
    at least `TURN`: a short call would mostly bring its program back into the caches.
    """
    times: dict[Name, list[float]] = {name: [] for name in functions}
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


def program_memory(program: Any) -> int:
    """Memory of a program from `compiled`: arguments, results and temporaries [bytes]."""
    known = program.memory_analysis()
    devices = len(jax.tree.leaves(program.input_shardings)[0].device_set)
    parts = known.argument_size_in_bytes, known.output_size_in_bytes, known.temp_size_in_bytes
    return devices * sum(parts)


def free_memory() -> int | None:
    """Free memory of the devices that jax would use [bytes]; None where that is unknown."""
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
