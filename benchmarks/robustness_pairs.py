"""One shape falls on another that lies on the floor: how many runs fail.

Two bodies and, for convex shapes, three contacts. A run fails when any of its steps does not
converge to rho / 10 within 30 iterations. In brackets: runs with a step that does not converge
within the default number of iterations.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
from rich.console import Console

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
    falls = {f"{a} on {b}": partial(falls_of, a, b, members) for a, b in pairs}
    return harness.failures(
        "robustness_pairs", falls, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def falls_of(upper: str, lower: str, members: int) -> tuple[sp.Scene, sp.State]:
    """The scene of one pair, and so many states."""
    scene = pair_on_floor(upper, lower)
    return scene, random_falls(scene, members, seed=0)


def pair_on_floor(upper: str, lower: str) -> sp.Scene:
    """Two bodies of 1 kg and the floor."""
    bodies = [
        sp.Body(label, sp.scenes.SHAPES[name](), mass=1.0)
        for label, name in (("lower", lower), ("upper", upper))
    ]
    return sp.Scene(bodies, [sp.scenes.floor()], friction=0.2)


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
