"""Two bodies that meet in free flight without friction: what becomes of momenta and energy.

The impulse of a contact acts where the bodies are at the end of the step, with moments about their
centres there. So linear momentum is conserved, and angular momentum changes by
-h (v_a+ - v_b+) x impulse in the step of a hit: its bar, that of linear momentum, is missed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness
from silico_py.study.starts import random_turns

PAIRS = {
    "box, box": (sp.Box((0.25, 0.2, 0.3)), sp.Box((0.2, 0.25, 0.15))),
    "sphere, sphere": (sp.Sphere(0.25), sp.Sphere(0.2)),
    "box, sphere": (sp.Box((0.25, 0.2, 0.3)), sp.Sphere(0.2)),
    "capsule, cylinder": (sp.Capsule(0.1, 0.6), sp.Cylinder(0.2, 0.3)),
}
MASSES = (1.0, 0.7)  # [kg]
FREQUENCIES = (10, 30, 100)  # [Hz]
SECONDS = 0.8
RELAXATION = 1e-6
PUSHED = 1e-2  # change of a velocity of bodies that met [m/s]
MOST = 10 * RELAXATION  # change of a momentum [kg m/s, kg m^2/s], gain of energy
# The most that each may be, and how it is shown; energy is a multiple of that before.
BARS = {
    "linear momentum": (MOST, ".1e"),
    "angular momentum": (MOST, ".1e"),
    "energy": (1 + MOST, ".3f"),
    "failed": (0, "d"),
}
QUICK_MEMBERS, FULL_MEMBERS = 20, 200


def run(quick: bool, console: Console) -> bool:
    """True when momenta change by at most ten relaxations and no energy comes from nowhere."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    results: dict[str, dict[str, Any]] = {}
    for name in harness.track(PAIRS, "collisions", console):
        results |= collided(name, members)
    harness.save("collisions", results, quick)
    console.print(table(results))
    return all(row[name] <= most for row in results.values() for name, (most, _) in BARS.items())


def table(results: dict[str, dict[str, Any]]) -> Table:
    """One row each."""
    out = Table("pair", "met", *BARS, title="largest change of momenta and energy over that before")
    for name, row in results.items():
        cells = [
            harness.colored(format(row[field], form), row[field] <= most)
            for field, (most, form) in BARS.items()
        ]
        out.add_row(name, str(row["met"]), *cells)
    return out


def collided(name: str, members: int) -> dict[str, dict[str, Any]]:
    """The worst of so many collisions at random, at each frequency."""
    bodies = [
        sp.Body(str(k), shape, mass=mass)
        for k, (shape, mass) in enumerate(zip(PAIRS[name], MASSES, strict=True))
    ]
    scene = sp.Scene(bodies, [], friction=0.0, gravity=(0.0, 0.0, 0.0))
    batch, states = harness.runner(scene), thrown(scene, members)
    out = {}
    for frequency in FREQUENCIES:
        found = batch(states, 1 / frequency, RELAXATION, round(SECONDS * frequency))
        whole = jax.vmap(partial(held, harness.retimed(scene, 1 / frequency)))
        before, after = whole(states), jax.vmap(whole)(found.samples)
        linear, angular = (
            float(jnp.abs(now - old[:, None]).max())
            for now, old in zip(after[:2], before[:2], strict=True)
        )
        pushed = jnp.abs(found.samples.velocity[:, -1] - states.velocity).max(axis=(1, 2))
        out[f"{name} {frequency} Hz"] = {
            "met": int((pushed > PUSHED).sum()),
            "linear momentum": linear,
            "angular momentum": angular,
            "energy": float((after[2] / before[2][:, None]).max()),
            "failed": int(found.failed.sum()),
        }
    return out


def thrown(scene: sp.Scene, members: int) -> sp.State:
    """Towards each other, somewhat aside, turned and turning at random."""
    rng = np.random.default_rng(0)
    away = rng.normal(size=(members, 3))
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    still = np.zeros_like(away)
    aside = rng.uniform(-0.4, 0.4, (members, 3))
    turns = random_turns(rng, 2 * members).reshape(members, 2, 4)
    return jax.vmap(scene.state)(
        np.stack([still, 0.9 * away], axis=1),
        turns,
        np.stack([still, aside - 1.5 * away], axis=1),
        rng.normal(size=(members, 2, 3)),
    )


def held(scene: sp.Scene, state: sp.State) -> tuple[Float[Array, "3"], Float[Array, "3"], Array]:
    """Linear and angular momentum and kinetic energy of a state."""
    return *sp.momentum(scene, state), sp.energy(scene, state)
