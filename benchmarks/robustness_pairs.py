"""One shape falls on another that lies on the floor: how many runs fail.

Two bodies and, for convex shapes, three contacts. A run fails when any of its steps does not
converge to rho / 10 within 30 iterations. In brackets: runs with a step that does not converge
within the default number of iterations.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness

SECONDS = 1.5
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 10, 100
QUICK_PAIRS = (("box", "box"), ("capsule", "box"), ("cone", "cylinder"))
DOWN = jnp.array([0.0, 0.0, -1.0])


def run(quick: bool, console: Console) -> bool:
    """Every pair of shapes, the first on top; True when no run fails."""
    names = list(sp.scenes.SHAPES)
    pairs = QUICK_PAIRS if quick else [(a, b) for a in names for b in names]
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    results: dict[str, Any] = {}
    out = Table("falls on", "failed", "Hz", *(f"{rho:g}" for rho in RELAXATIONS), "violation")
    for upper, lower in pairs:
        name = f"{upper} on {lower}"
        results[name] = pair(upper, lower, members, console)
        harness.add_rows(out, name, results[name], FREQUENCIES, RELAXATIONS)
        harness.save("robustness_pairs", results, quick)
    out.caption = f"violation: largest of exact alpha, at {harness.SAMPLES} states a run"
    console.print(out)
    return all(harness.total(cases, "failed") == 0 for cases in results.values())


def pair(upper: str, lower: str, members: int, console: Console) -> dict[str, Any]:
    """All frequencies and relaxations of one pair."""
    bodies = [
        sp.Body(label, sp.scenes.SHAPES[name](), mass=1.0)
        for label, name in (("lower", lower), ("upper", upper))
    ]
    scene = sp.Scene(bodies, [sp.scenes.floor()], friction=0.2)
    return harness.cases(
        scene,
        random_falls(scene, members, seed=0),
        FREQUENCIES,
        RELAXATIONS,
        SECONDS,
        f"{upper} on {lower}",
        console,
    )


def random_falls(scene: sp.Scene, members: int, seed: int) -> sp.State:
    """The lower body upright on the floor, the upper one above it, in any orientation."""
    rng = np.random.default_rng(seed)
    lower, upper = scene.bodies
    rest = height_at_rest(lower)
    position = np.zeros((members, 2, 3))
    position[:, 0, 2] = rest
    position[:, 1, :2] = rng.uniform(-0.1, 0.1, (members, 2))
    clear = rest + harness.reach(lower) + harness.reach(upper)
    position[:, 1, 2] = clear + rng.uniform(0.05, 0.3, members)
    orientation = np.tile([1.0, 0.0, 0.0, 0.0], (members, 2, 1))
    orientation[:, 1:] = harness.random_turns(rng, members)
    velocity, spin = np.zeros((2, members, 2, 3))
    velocity[:, 1, :2] = rng.uniform(-0.5, 0.5, (members, 2))
    velocity[:, 1, 2] = rng.uniform(-1, 0, members)
    spin[:, 1] = rng.uniform(-1, 1, (members, 3))
    return sp.State(*(jnp.asarray(v) for v in (position, orientation, velocity, spin)))


def height_at_rest(body: sp.Body) -> float:
    """Height of the origin of an upright body whose lowest point touches the floor [m]."""
    lowest = []
    for shape, position, orientation in body.pieces:
        turn = sp.rotation.matrix(orientation)
        lowest.append(float((position + turn @ shape.support(turn.T @ DOWN))[2]))
    return -min(lowest)
