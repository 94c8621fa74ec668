"""Towers placed at rest: do they stand, and how much momentum is left.

A step fails that takes more than 30 iterations.
"""

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
FREQUENCIES = (10, 100)
OFFSETS = (0.0, 0.1)  # of every second block [m]
MOVED = 0.05  # further than this and the tower has not stood [m]


def run(quick: bool, console: Console) -> bool:
    """Towers of 2 to 10 blocks, straight and offset, 1 s each; True when every bar is met."""
    heights = (2, 4) if quick else tuple(range(2, 11))
    relaxations = (1e-3, 1e-6, 1e-10) if quick else tuple(PAPER)
    results: dict[str, Any] = {}
    heads = ("blocks", "offset", "Hz", "rho", "failed", "momentum", "paper", "moved [m]")
    out, met = Table(*heads, caption="paper: two blocks at 10 Hz, 2D"), True
    towers = [(n, offset, f) for n in heights for offset in OFFSETS for f in FREQUENCIES]
    for n, offset, f in harness.track(towers, "towers", console):
        scene, state = sp.scenes.stack(n, offset=offset)
        roll = jax.jit(
            lambda h, rho, s=scene, x=state, steps=f: _second(s, x, h, rho, steps),
            compiler_options=sp.compiler_options(),
        )
        for rho in relaxations:
            failed, momentum, moved = (float(v) for v in roll(1 / f, rho))
            name = f"{n} blocks, offset {offset:g}, {harness.key(f, rho)}"
            results[name] = {"failed": failed, "momentum": momentum, "moved": moved}
            good = (failed == 0, momentum < PAPER[rho], moved < MOVED)
            met &= all(good)
            cells = (f"{failed:.0f}", f"{momentum:.1e}", f"{moved:.1e}")
            failed_, momentum_, moved_ = map(harness.colored, cells, good)
            start = (str(n), str(offset), str(f), f"{rho:g}")
            out.add_row(*start, failed_, momentum_, f"{PAPER[rho]:.1e}", moved_)
    harness.save("stacks", results, quick)
    console.print(out)
    return met


def _second(scene: sp.Scene, state: sp.State, timestep: Any, rho: Any, steps: int) -> tuple:
    """Failed steps, mean |velocity| of a block of 1 kg over the second, largest displacement."""
    options = sp.SolverOptions(relaxation=rho)
    trajectory = sp.rollout(harness.retimed(scene, timestep), state, steps, options)
    momentum = jnp.mean(jnp.linalg.norm(trajectory.state.velocity, axis=-1))
    moved = jnp.max(jnp.abs(trajectory.state.position[-1] - state.position))
    info = trajectory.info
    return jnp.sum(~info.converged | (info.iterations > harness.LIMIT)), momentum, moved
