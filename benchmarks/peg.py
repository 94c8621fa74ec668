"""The peg slides into the hole, at 100 Hz and at 10 Hz."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness

SEATED = 0.5  # height of the peg's centre when it stands on the floor [m]


def run(quick: bool, console: Console) -> None:
    """5 s each (`quick` changes nothing)."""
    out = Table("Hz", "steps", "failed", "iterations mean / max", "height above the floor [m]")
    results = {}
    for frequency in (10, 100):
        scene, state = sp.scenes.peg_in_hole(timestep=1 / frequency)
        roll = jax.jit(lambda s, x, n=5 * frequency: sp.rollout(s, x, n))
        trajectory = roll(scene, state)
        info = trajectory.info
        failed = int(jnp.sum(~info.converged))
        height = float(trajectory.state.position[-1, 0, 2]) - SEATED
        mean, worst = float(jnp.mean(info.iterations)), int(jnp.max(info.iterations))
        results[frequency] = {"failed": failed, "iterations": mean, "height": height}
        color = "red" if failed or abs(height) > 1e-3 else "green"
        counts = (str(frequency), str(5 * frequency), f"[{color}]{failed}[/{color}]")
        out.add_row(*counts, f"{mean:.1f} / {worst}", f"{height:.1e}")
    harness.save("peg", results)
    console.print(out)
