"""Towers placed at rest: do they stand, and how much momentum is left."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness

# Mean momentum of two blocks at 10 Hz, the paper's single-level table.
PAPER = {1e-3: 9.1e-4, 1e-4: 6.8e-5, 1e-5: 6.5e-6, 1e-6: 6.4e-7, 1e-8: 6.4e-9, 1e-10: 6.4e-11}


def run(quick: bool, console: Console) -> None:
    """Towers of 2 to 10 blocks, straight and offset, 1 s each."""
    heights = (2, 4) if quick else (2, 4, 6, 10)
    results: dict[str, Any] = {}
    out = Table(
        "blocks", "offset", "Hz", "rho", "failed", "momentum", "paper (2, 10 Hz)", "moved m"
    )
    for n in heights:
        for offset in (0.0, 0.1):
            scene, state = sp.scenes.stack(n, offset=offset)
            tower = jax.jit(lambda h, rho, s=scene, x=state: _second(s, x, h, rho, 10))
            fine = jax.jit(lambda h, rho, s=scene, x=state: _second(s, x, h, rho, 100))
            for frequency, roll in ((10, tower), (100, fine)):
                for rho in (1e-3, 1e-6, 1e-10) if quick else PAPER:
                    failed, momentum, moved = (float(v) for v in roll(1 / frequency, rho))
                    results[f"{n} {offset} {frequency} {rho:g}"] = [failed, momentum, moved]
                    good = failed == 0 and momentum < PAPER[rho] and moved < 0.05
                    color = "green" if good else "red"
                    cells = (n, offset, frequency, f"{rho:g}", f"{failed:.0f}")
                    figure = f"[{color}]{momentum:.1e}[/{color}]"
                    row = (*map(str, cells), figure, f"{PAPER[rho]:.1e}", f"{moved:.1e}")
                    out.add_row(*row)
    harness.save("stacks", results)
    console.print(out)


def _second(scene: sp.Scene, state: sp.State, timestep: Any, rho: Any, steps: int) -> tuple:
    options = sp.SolverOptions(relaxation=rho)
    trajectory = sp.rollout(harness.retimed(scene, timestep), state, steps, options)
    momentum = jnp.mean(jnp.linalg.norm(trajectory.state.velocity, axis=-1))
    moved = jnp.max(jnp.abs(trajectory.state.position[-1] - state.position))
    return jnp.sum(~trajectory.info.converged), momentum, moved
