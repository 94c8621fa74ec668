"""`python -m benchmarks [NAME ...] [--quick]`; results in out/benchmarks/*.json.

A bar that is not met is printed in red; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys

import jax
from rich.console import Console

import silico_py as sp
from benchmarks import harness
from silico_py.interruption import end_at_once

# Modules beside this one; only those that run are imported, and so what they need.
ALL = (
    "robustness_floor",
    "robustness_short",
    "robustness_single",
    "robustness_scales",
    "robustness_fast",
    "robustness_slender",
    "robustness_pairs",
    "robustness_towers",
    "robustness_random",
    "robustness_wedges",
    "robustness_overlaps",
    "sizes",
    "heaps",
    "stacks",
    "peg",
    "rest",
    "collisions",
    "collision_accuracy",
    "optimality",
    "derivatives",
    "speed",
    "equal_accuracy",
    "throughput",
    "gpu",
    "grasp",
    "gap_gradient",
)

# Those that compare with single-threaded simulators.
ON_ONE_CORE = {"speed", "equal_accuracy"}


def main() -> int:
    """Run the named benchmarks, all of them by default."""
    given = _arguments()
    # `throughput` runs others beside this process, and all of them share the GPU's memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Relaxations down to 1e-10 need double precision.
    jax.config.update("jax_enable_x64", True)
    console = Console()
    missed = [name for name in given.names or ALL if not _run(name, given, console)]
    if missed:
        console.print(f"[bold white on red] bars not met: {', '.join(missed)} [/]")
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    """Those of the command line, with names that there are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help="a short version, in minutes")
    parser.add_argument("--shapes", nargs="+", default=(), help="of robustness_floor: only these")
    parser.add_argument("--seed", type=int, default=0, help="of robustness_floor: other drops")
    parser.add_argument("--cold", action="store_true", help="of it: without the warm start")
    parser.add_argument(
        "--radii",
        nargs=2,
        type=float,
        metavar=("TORSIONAL", "ROLLING"),
        help="of it: friction also resists turns, at these radii [m]",
    )
    parser.add_argument("--scenes", nargs="+", default=(), help="of derivatives: only these")
    given = parser.parse_args()
    for kind, names, known in (
        ("benchmarks", given.names, ALL),
        ("shapes", given.shapes, sp.scenes.SHAPES),
        ("scenes", given.scenes, sp.scenes.SCENES),
    ):
        if set(names) - set(known):
            parser.error(f"unknown {kind} {sorted(set(names) - set(known))}; known: {list(known)}")
    return given


def _run(name: str, given: argparse.Namespace, console: Console) -> bool:
    """Run one benchmark; whether its bars are met."""
    keeps = hasattr(os, "sched_setaffinity") and harness.cores() > 1
    if keeps and name in ON_ONE_CORE:
        return _on_one_core(name, given.quick)
    own = {
        "robustness_floor": {
            "shapes": tuple(given.shapes),
            "seed": given.seed,
            "cold": given.cold,
            "radii": given.radii,
        },
        "derivatives": {"scenes": tuple(given.scenes)},
    }
    run = importlib.import_module(f"benchmarks.{name}").run
    return run(given.quick, console, **own.get(name, {}))


def _on_one_core(name: str, quick: bool) -> bool:
    """Run a benchmark in a process that has one core from its start: XLA then hands no work to
    other threads, which would run on a core that the peers do not use, or wait for one."""
    command = [sys.executable, "-m", "benchmarks", name, *["--quick"] * quick]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # is inherited
    try:
        return subprocess.run(command, check=False).returncode == 0
    finally:
        os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    end_at_once()
    sys.exit(main())
