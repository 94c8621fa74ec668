"""Bodies that friction wedges between two sides: how many steps fail.

Pegs are thrown askew onto their hole, boxes and cylinders into a groove of 103 degrees, with
speeds, friction, time step, relaxation and the clearance of the peg at random.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

import silico_py as sp
from benchmarks import harness

STEPS = 150
QUICK_MEMBERS, FULL_MEMBERS = 100, 1000
GROOVE = np.radians(103)
IN_GROOVE: dict[str, sp.Box | sp.Cylinder] = {
    "box": sp.Box((0.25, 0.25, 0.25)),
    "cylinder": sp.Cylinder(radius=0.2, length=0.5),
}


def run(quick: bool, console: Console) -> bool:
    """True when every step converges within the limit."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    kinds: dict[str, Callable] = {"peg over its hole": thrown_peg}
    kinds |= {f"{name} in a groove": in_groove(shape) for name, shape in IN_GROOVE.items()}
    results = {
        name: simulated(member, members)
        for name, member in harness.track(kinds.items(), "wedges", console)
    }
    harness.save("robustness_wedges", results, quick)
    console.print(harness.steps_table(results, "wedges"))
    return all(row["failed"] == 0 for row in results.values())


def simulated(member: Callable, members: int) -> dict:
    """Steps of so many runs."""
    rng = np.random.default_rng(0)
    made = [member(rng) for _ in range(members)]

    def simulate(scene: sp.Scene, state: sp.State, options: sp.SolverOptions) -> tuple:
        info = sp.rollout(scene, state, STEPS, options).info
        return info.converged, info.iterations

    program, _ = harness.compiled(simulate, *made[0])
    runs = [program(*one) for one in made]
    return harness.counted(*(np.stack(part) for part in zip(*runs, strict=True)))


def thrown_peg(rng: np.random.Generator) -> tuple[sp.Scene, sp.State, sp.SolverOptions]:
    """A peg above its hole, turned and moving at random."""
    clearance, timestep = 10 ** rng.uniform(-3.5, -2), 10 ** rng.uniform(-2.4, -1)
    scene, _ = sp.scenes.peg_in_hole(timestep, clearance=clearance)
    turn = np.array([[1.0, 0, 0, 0]]) + rng.uniform(0, 1) * rng.normal(size=(1, 4))
    position = [0, 0, 1.2] + rng.uniform(-0.15, 0.15, (1, 3))
    return _moving(scene, position, turn, rng.uniform(0, 0.6), 0.5, rng)


def in_groove(shape: sp.Box | sp.Cylinder) -> Callable:
    """What throws such a body into a groove."""

    def member(rng: np.random.Generator) -> tuple[sp.Scene, sp.State, sp.SolverOptions]:
        across, up = np.cos(GROOVE / 2), np.sin(GROOVE / 2)
        sides = [sp.HalfSpace((s * across, 0, up), 0.0) for s in (1, -1)]
        scene = sp.Scene([sp.Body("body", shape, mass=1.0)], sides, 10 ** rng.uniform(-2.4, -1))
        return _moving(scene, [[0, 0, 0.6]], rng.normal(size=(1, 4)), rng.uniform(0.5, 2), 2.0, rng)

    return member


def _moving(
    scene: sp.Scene,
    position: ArrayLike,
    turn: np.ndarray,
    friction: float,
    speed: float,
    rng: np.random.Generator,
) -> tuple[sp.Scene, sp.State, sp.SolverOptions]:
    """States with velocities at random, of that size [m/s, rad/s]."""
    velocity, spin = speed * rng.normal(size=(2, 1, 3))
    state = scene.state(position, turn / np.linalg.norm(turn), velocity, spin)
    options = sp.SolverOptions(relaxation=10 ** rng.uniform(-10, -3))
    return dataclasses.replace(scene, friction=friction), state, options
