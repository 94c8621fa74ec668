"""Random drops of every primitive on the floor: how many runs fail, in how many iterations.

A run fails when any of its steps does not converge within 30 iterations to rho / 10.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import silico_py as sp
from benchmarks import harness

FREQUENCIES = (10, 20, 30, 50, 70, 100)
RELAXATIONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
SILICO_ITERATIONS = (8.9, 10.5, 11.8, 12.6, 13.9, 15.6)  # 2D, one polytope, 100 Hz
SECONDS = 1.5


def run(quick: bool, console: Console) -> None:
    """All primitives; `quick` takes 20 members, three frequencies and three relaxations."""
    members = 20 if quick else 100
    frequencies = (10, 30, 100) if quick else FREQUENCIES
    relaxations = (1e-3, 1e-6, 1e-10) if quick else RELAXATIONS
    results: dict[str, Any] = {}
    for name in sp.scenes.SHAPES:
        results[name] = drop(name, members, frequencies, relaxations, console)
        console.print(table(name, results[name], frequencies, relaxations, members))
        harness.save("robustness_floor", results)


def drop(
    name: str, members: int, frequencies: tuple, relaxations: tuple, console: Console
) -> dict[str, Any]:
    """Runs of one primitive; violation is checked at the last state of every run."""
    scene, _ = sp.scenes.drop(name)
    states = harness.random_drops(scene.bodies[0], members, seed=0)
    batch = harness.runner(scene)
    depth = jax.jit(jax.vmap(lambda s: deepest(scene, s)))
    out = {}
    cases = [(f, r) for f in frequencies for r in relaxations]
    for frequency, relaxation in track(cases, description=name, console=console):
        found = batch(states, 1 / frequency, relaxation, int(SECONDS * frequency))
        # A failed run stops at a state that solves nothing; its depth means nothing.
        violation = float(np.max(np.where(found.failed, 0, depth(found.state))))
        out[f"{frequency} Hz {relaxation:g}"] = {
            "failed": int(found.failed.sum()),
            "iterations": float(found.iterations.sum() / found.steps.sum()),
            "worst": int(found.worst.max()),
            "violation over rho": violation / relaxation,
        }
    return out


def deepest(scene: sp.Scene, state: sp.State) -> Any:
    """Largest (1 - alpha)+ over the pieces, alpha from an exact collision program."""
    floor = scene.environment[0]
    worst = 0.0
    for shape, position, orientation in scene.bodies[0].pieces:
        place = sp.rotation.rotate(state.orientation[0], position)
        turn = sp.rotation.multiply(state.orientation[0], orientation)
        pose = (state.position[0] + place, turn)
        exact = sp.collide(shape, pose, floor.shape, (floor.position, floor.orientation))
        worst = jax.numpy.maximum(worst, jax.numpy.where(exact.converged, 1 - exact.alpha, 0.0))
    return worst


def table(
    name: str, cases: dict[str, Any], frequencies: tuple, relaxations: tuple, members: int
) -> Table:
    """Failures and mean iterations, one column a relaxation."""
    failed = sum(case["failed"] for case in cases.values())
    deepest_ratio = max(case["violation over rho"] for case in cases.values())
    color = "red" if failed else "green"
    title = (
        f"{name}: [{color}]{failed} of {members * len(cases)} runs failed[/{color}]; "
        f"violation at rest at most {deepest_ratio:.1f} rho"
    )
    out = Table("Hz", *(f"{r:g}" for r in relaxations), title=title)
    for f in frequencies:
        row = [cases[f"{f} Hz {r:g}"] for r in relaxations]
        out.add_row(str(f), *(f"{c['failed']} failed, {c['iterations']:.1f} its" for c in row))
    record = [SILICO_ITERATIONS[RELAXATIONS.index(r)] for r in relaxations]
    out.add_row("Silico 100", *(f"{its} its" for its in record))
    return out
