"""One shape falls on another that lies on the floor: how many runs fail.

Two bodies and, for convex shapes, three contacts. A run fails when any of its steps does not
converge to rho / 10 within 30 iterations. In brackets: runs with a step that does not converge
within the default number of iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import silico_py as sp
from benchmarks import harness
from silico_py.study.starts import random_turns

SECONDS = 1.5
FREQUENCIES = (10, 30, 100)
RELAXATIONS = (1e-3, 1e-6, 1e-8)
QUICK_MEMBERS, FULL_MEMBERS = 10, 100
QUICK_PAIRS = (("box", "box"), ("capsule", "box"), ("cone", "cylinder"))
DOWN = jnp.array([0.0, 0.0, -1.0])


def run(quick: bool, console: Console) -> bool:
    """Every pair of shapes, the first on top; True when no run fails."""
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    falls = starts_of(QUICK_PAIRS if quick else every_pair(), "on", random_falls, members)
    return harness.failures(
        "robustness_pairs", falls, FREQUENCIES, RELAXATIONS, SECONDS, quick, console
    )


def every_pair() -> list[tuple[str, str]]:
    """All pairs of ready shapes, upper and lower, in both orders."""
    return [(upper, lower) for upper in sp.scenes.SHAPES for lower in sp.scenes.SHAPES]


def starts_of(
    pairs: Iterable[tuple[str, str]],
    word: str,
    random_states: Callable[[sp.Scene, int, int], sp.State],
    members: int,
) -> dict[str, Callable[[], tuple[sp.Scene, sp.State]]]:
    """For each pair its scene and so many states; it is named by its shapes with `word` between."""

    def make(upper: str, lower: str) -> tuple[sp.Scene, sp.State]:
        scene = scene_of(upper, lower)
        return scene, random_states(scene, members, 0)

    return {f"{a} {word} {b}": partial(make, a, b) for a, b in pairs}


def scene_of(upper: str, lower: str) -> sp.Scene:
    """Two bodies of 1 kg and the floor."""
    bodies = [
        sp.Body(label, sp.scenes.SHAPES[name](), mass=1.0)
        for label, name in (("lower", lower), ("upper", upper))
    ]
    return sp.Scene(bodies, [sp.scenes.floor()], friction=0.2)


def random_falls(scene: sp.Scene, members: int, seed: int) -> sp.State:
    """The lower body upright on the floor, the upper one above it, in any orientation."""
    rng = np.random.default_rng(seed)
    rest = height_at_rest(scene.bodies[0])
    position = np.zeros((members, 2, 3))
    position[:, 0, 2] = rest
    position[:, 1, :2] = rng.uniform(-0.1, 0.1, (members, 2))
    clear = rest + sum(float(body.shapes.bounding_radius) for body in scene.bodies)
    position[:, 1, 2] = clear + rng.uniform(0.05, 0.3, members)
    orientation = upper_turned(rng, members)
    velocity, spin = np.zeros((2, members, 2, 3))
    velocity[:, 1, :2] = rng.uniform(-0.5, 0.5, (members, 2))
    velocity[:, 1, 2] = rng.uniform(-1, 0, members)
    spin[:, 1] = rng.uniform(-1, 1, (members, 3))
    return sp.State(*(jnp.asarray(v) for v in (position, orientation, velocity, spin)))


def upper_turned(rng: np.random.Generator, members: int) -> np.ndarray:
    """(members, 2, 4) orientations: the lower body upright, the upper one in any."""
    orientation = np.tile([1.0, 0.0, 0.0, 0.0], (members, 2, 1))
    orientation[:, 1:] = random_turns(rng, members)
    return orientation


def height_at_rest(body: sp.Body) -> float:
    """Height of the origin of an upright body whose lowest point touches the floor [m]."""
    return -float(body.shapes.support(DOWN)[2])
