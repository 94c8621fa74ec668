"""Scenes in which all is random: how many steps fail, by how far bodies move in them.

Two to four convex shapes fall on each other and on a floor. Sizes, proportions, masses, friction
(up to 2), time step (5 to 160 ms), relaxation (1e-9 to 1e-2) and speeds (up to three times that of
a fall over the size) are drawn anew for each member.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness
from silico_py.study.runs import of_each

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


def run(quick: bool, console: Console) -> bool:
    """True when every step converges within the limit."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    found = {
        " + ".join(kinds): outcome(kinds, members)
        for kinds in harness.track(SCENES, "scenes at random", console)
    }
    results = {name: summary(*parts) for name, parts in found.items()}
    whole = [
        np.concatenate([v.ravel() for v in parts]) for parts in zip(*found.values(), strict=True)
    ]
    results["all"] = summary(*whole)
    for low, high in pairwise(WAYS):
        here = (whole[2] >= low) & (whole[2] < high)
        results[f"all, {low:g} to {high:g} sizes a step"] = summary(*(v[here] for v in whole))
    harness.save("robustness_random", results, quick)
    console.print(table(results))
    return results["all"]["failed"] == 0


def outcome(kinds: tuple[str, ...], members: int) -> tuple[np.ndarray, ...]:
    """(members, STEPS) whether it converged, Newton steps, and how far a body moved, in sizes."""
    rng = np.random.default_rng(len(kinds))
    made = [member(kinds, rng) for _ in range(members)]
    size = np.array([one[2] for one in made])
    scenes = jax.tree.map(lambda *v: jnp.stack([jnp.asarray(x) for x in v]), *(m[:2] for m in made))
    relaxation = jnp.asarray(10 ** rng.uniform(-9, -2, members))

    def one(member: Any) -> tuple:
        (scene, state), rho = member
        options = sp.SolverOptions(relaxation=rho)
        trajectory = sp.rollout(scene, state, STEPS, options)
        way = scene.timestep * jnp.linalg.norm(trajectory.state.velocity, axis=-1).max(axis=-1)
        return trajectory.info.converged, trajectory.info.iterations, way

    every = jax.jit(lambda batch: of_each(one, batch), compiler_options=sp.compiler_options())
    converged, iterations, way = map(np.asarray, every((scenes, relaxation)))
    return converged, iterations, way / size[:, None]


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
    turns = harness.random_turns(rng, n)[:, 0]
    return scene, scene.state(position, turns, velocity, turning), size


def summary(converged: np.ndarray, iterations: np.ndarray, _: np.ndarray) -> dict[str, Any]:
    """Of steps: how many there are, failed, and were not solved at all."""
    return {
        "steps": iterations.size,
        "failed": int((iterations > harness.LIMIT).sum()),
        "unsolved": int((~converged).sum()),
        "mean": float(iterations.mean()) if iterations.size else 0.0,
    }


def table(results: dict[str, dict[str, Any]]) -> Table:
    """One row each; in brackets steps that no limit helps."""
    out = Table("scenes", "steps", "failed steps", "iterations", title="random scenes")
    for name, row in results.items():
        share = 100 * row["failed"] / max(row["steps"], 1)
        text = f"{row['failed']} ({row['unsolved']}), {share:.2g} %"
        failed = harness.colored(text, row["failed"] == 0)
        out.add_row(name, str(row["steps"]), failed, f"{row['mean']:.1f}")
    return out
