"""A block at rest for 10,000 steps: none takes more than 30 iterations, and once it has settled it
does not drift."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness

STEPS, SETTLED = 10_000, 100
DRIFT = 1e-9  # [m]


def run(quick: bool, console: Console) -> bool:
    """True when no step fails and the block stays where it is."""
    scene, state = sp.scenes.stack(1)
    steps = STEPS // 10 if quick else STEPS
    found = jax.block_until_ready(sp.rollout(scene, state, steps))
    position = found.state.position
    counted = harness.counted(*map(np.asarray, (found.info.converged, found.info.iterations)))
    failed = counted["failed"]
    drift = float(jnp.abs(position[-1] - position[SETTLED]).max())
    harness.save("rest", counted | {"drift": drift}, quick)
    good = failed == 0, drift <= DRIFT
    console.print(
        f"{steps} steps at rest: {harness.colored(f'{failed} failed', good[0])}, "
        f"moved {harness.colored(f'{drift:.1e} m', good[1])}"
    )
    return all(good)
