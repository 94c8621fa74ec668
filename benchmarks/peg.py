"""The peg slides into the hole, at 100 Hz and at 10 Hz."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness

SECONDS = 5
SEATED = 0.5  # height of the peg's centre when it stands on the floor [m]
TOLERANCE = 1e-3  # of that height [m]


def run(quick: bool, console: Console) -> bool:
    """5 s each (`quick` times once); True when no step fails and the peg is seated.

    A step fails that takes more than 30 iterations.
    """
    heads = ("Hz", "steps", "failed", "its mean / max", "above floor [m]", "us/step", "compile s")
    out, met = Table(*heads, title="peg in hole, relaxation 1e-6"), True
    results = {}
    for frequency in (100, 10):
        scene, state = sp.scenes.peg_in_hole(timestep=1 / frequency)
        steps = SECONDS * frequency
        roll, compile_seconds = harness.compiled(
            lambda s, x, n=steps: sp.rollout(s, x, n), scene, state
        )
        trajectory, seconds = harness.median_seconds(roll, scene, state, repeats=1 if quick else 5)
        info = trajectory.info
        counted = harness.counted(np.asarray(info.converged), np.asarray(info.iterations))
        height = float(trajectory.state.position[-1, 0, 2]) - SEATED
        worst, failed = int(info.iterations.max()), counted["failed"]
        results[frequency] = counted | {
            "worst": worst,
            "height": height,
            "us a step": 1e6 * seconds / steps,
            "compile s": compile_seconds,
        }
        seated = abs(height) <= TOLERANCE
        met &= failed == 0 and seated
        out.add_row(
            str(frequency),
            str(steps),
            harness.colored(str(failed), failed == 0),
            f"{counted['iterations']:.1f} / {worst}",
            harness.colored(f"{height:.1e}", seated),
            f"{1e6 * seconds / steps:.0f}",
            f"{compile_seconds:.0f}",
        )
    harness.save("peg", results, quick)
    console.print(out)
    return met
