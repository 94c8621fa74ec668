"""Scenes in which all is random: how many steps fail, by how far bodies move in them.

Two to four convex shapes fall on each other and on a floor. Sizes, proportions, masses, friction
(up to 2), time step (5 to 160 ms), relaxation (1e-9 to 1e-2) and speeds (up to three times that of
a fall over the size) are drawn anew for each member.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness
from silico_py.study.starts import random_turns

SCENES = (
    ("sphere", "capsule"),
    ("box", "cone"),
    ("box", "cylinder", "cone"),
    ("sphere", "box", "ellipsoid", "capsule"),
)
SCALED = {
    "sphere": lambda u: sp.Sphere(u[0]),
    "ellipsoid": lambda u: sp.Ellipsoid(u),
    "box": lambda u: sp.Box(u),
    "capsule": lambda u: sp.Capsule(u[0] / 2, u[1]),
    "cylinder": lambda u: sp.Cylinder(u[0], u[1]),
    "cone": lambda u: sp.Cone(u[0], 2 * u[1]),
}
STEPS = 25
QUICK_MEMBERS, FULL_MEMBERS = 50, 300
FRICTIONS = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0)
WAYS = (0.0, 0.1, 0.3, 1.0, 3.0, np.inf)  # of the fastest body in a step, in sizes of the scene


class Steps(NamedTuple):
    """(members, STEPS) whether each converged, Newton steps, and the way of its fastest body."""

    converged: np.ndarray
    iterations: np.ndarray
    way: np.ndarray


def run(quick: bool, console: Console) -> bool:
    """True when every step converges within the limit."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    found = {
        " + ".join(kinds): simulated(kinds, members)
        for kinds in harness.track(SCENES, "scenes at random", console)
    }
    found["all"] = whole = Steps(*map(np.concatenate, zip(*found.values(), strict=True)))
    results = {name: harness.counted(*steps[:2]) for name, steps in found.items()}
    for low, high in pairwise(WAYS):
        here = (whole.way >= low) & (whole.way < high)
        if here.any():
            name = f"all, {low:g} to {high:g} sizes a step"
            results[name] = harness.counted(whole.converged[here], whole.iterations[here])
    harness.save("robustness_random", results, quick)
    console.print(harness.steps_table(results, "random scenes"))
    return results["all"]["failed"] == 0


def simulated(kinds: tuple[str, ...], members: int) -> Steps:
    """Steps of so many scenes with these shapes."""
    rng = np.random.default_rng(len(kinds))
    made = [member(kinds, rng) for _ in range(members)]
    chosen = [sp.SolverOptions(relaxation=rho) for rho in 10 ** rng.uniform(-9, -2, members)]

    def simulate(scene: sp.Scene, state: sp.State, options: sp.SolverOptions) -> tuple:
        trajectory = sp.rollout(scene, state, STEPS, options)
        speed = jnp.linalg.norm(trajectory.state.velocity, axis=-1).max(axis=-1)
        info = trajectory.info
        return info.converged, info.iterations, scene.timestep * speed

    program, _ = harness.compiled(simulate, *made[0][:2], chosen[0])
    runs = [
        program(scene, state, options)
        for (scene, state, _), options in zip(made, chosen, strict=True)
    ]
    steps = Steps(*(np.stack(part) for part in zip(*runs, strict=True)))
    size = np.array([size for *_, size in made])
    return steps._replace(way=steps.way / size[:, None])


def member(kinds: tuple[str, ...], rng: np.random.Generator) -> tuple[sp.Scene, sp.State, float]:
    """A scene, its state and its size [m]."""
    n, size = len(kinds), 10 ** rng.uniform(-1.3, 0.5)
    bodies = [
        sp.Body(
            f"{kind}{k}",
            SCALED[kind](size * rng.uniform(0.3, 1, 3) * 10 ** rng.uniform(-0.3, 0.3)),
            mass=10 ** rng.uniform(-1, 1),
        )
        for k, kind in enumerate(kinds)
    ]
    timestep, friction = 10 ** rng.uniform(-2.3, -0.8), rng.choice(FRICTIONS)
    scene = sp.Scene(bodies, [sp.scenes.floor()], timestep=timestep, friction=friction)
    height = np.cumsum(size * rng.uniform(1.5, 3, n))
    position = np.column_stack([size * rng.uniform(-0.5, 0.5, (n, 2)), height])
    speed = np.sqrt(9.81 * size) * 10 ** rng.uniform(-1, 0.5)
    spin = speed / size * 10 ** rng.uniform(-1, 0)
    velocity, turning = speed * rng.normal(size=(n, 3)), spin * rng.normal(size=(n, 3))
    turns = random_turns(rng, n)[:, 0]
    return scene, scene.state(position, turns, velocity, turning), size
