"""The main job: a peg slides into a hole, four blocks stand still, convex bundles fall.

Run as `silico demo`; prints a table and writes pictures under `out/`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
from rich.console import Console

import silico_py as sp
from silico_py import running

# Scene and duration [s].
SCENES: dict[str, tuple[Callable[..., tuple[sp.Scene, sp.State]], float]] = {
    "peg_in_hole": (sp.scenes.peg_in_hole, 5.0),
    "stack": (sp.scenes.stack, 1.0),
    "bundle_drop": (sp.scenes.bundle_drop, 1.5),
}


def main(folder: Path = Path("out"), frequency: float = 100.0) -> int:
    """Run the three scenes; returns the number of steps that did not converge."""
    # Tight relaxations need double precision; the choice is the program's, not the library's.
    jax.config.update("jax_enable_x64", True)
    console = Console()
    out = running.table(f"relaxation 1e-6, {frequency:g} Hz, float64")
    failed, pictures = 0, []
    with running.progress_bar(console) as progress:
        for name, (make, seconds) in SCENES.items():
            steps = max(1, round(seconds * frequency))
            done = running.run(*make(timestep=1 / frequency), steps, progress, name)
            failed += running.failures(done)
            out.add_row(*running.row(name, done))
            pictures.append(running.draw(name, done, folder))
    console.print(out)
    console.print(running.LEGEND)
    running.report_written(console, *pictures)
    running.report_failures(failed, console)
    return failed
