"""A block at rest for 10,000 steps: no failed step, no drift once it has settled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from rich.console import Console

import silico_py as sp
from benchmarks import harness

STEPS, SETTLED = 10_000, 100
DRIFT = 1e-9  # [m]


def run(quick: bool, console: Console) -> bool:
    """True when every step converges and the block stays where it is."""
    scene, state = sp.scenes.stack(1)
    steps = STEPS // 10 if quick else STEPS
    found = jax.block_until_ready(sp.rollout(scene, state, steps))
    position = found.state.position
    failed = int((~found.info.converged).sum())
    drift = float(jnp.abs(position[-1] - position[SETTLED]).max())
    results = {"steps": steps, "failed": failed, "drift": drift}
    harness.save("rest", results, quick)
    good = failed == 0, drift <= DRIFT
    console.print(
        f"{steps} steps at rest: {harness.colored(f'{failed} failed', good[0])}, "
        f"moved {harness.colored(f'{drift:.1e} m', good[1])}"
    )
    return all(good)
