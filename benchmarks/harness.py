"""What every benchmark shares: retimed scenes, batched runs, JSON with the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import silico_py as sp

FOLDER = Path("out/benchmarks")


class Outcome(NamedTuple):
    """One batch of runs: what failed, Newton steps, and the last states."""

    failed: np.ndarray
    steps: np.ndarray
    iterations: np.ndarray
    worst: np.ndarray
    state: sp.State


def retimed(scene: sp.Scene, timestep: Any) -> sp.Scene:
    """The same scene with another (possibly traced) time step."""

    def swap(path: tuple, leaf: Any) -> Any:
        return timestep if getattr(path[0], "name", "") == "timestep" else leaf

    return jax.tree_util.tree_map_with_path(swap, scene)


def runner(scene: sp.Scene) -> Callable[..., Outcome]:
    """`(states, timestep, relaxation, steps)`: a batch; a member stops at its first failure."""

    def run(state: sp.State, timestep: Any, relaxation: Any, steps: Any) -> tuple:
        here = retimed(scene, timestep)
        options = sp.SolverOptions(relaxation=relaxation)
        zero = jnp.zeros((), int)

        def going(carry: tuple) -> Any:
            return (carry[2] < steps) & ~carry[1]

        def advance(carry: tuple) -> tuple:
            current, _, done, total, worst = carry
            following, info = sp.step(here, current, options=options)
            failed, count = ~info.converged, info.iterations
            return following, failed, done + 1, total + count, jnp.maximum(worst, count)

        start = (state, jnp.asarray(False), zero, zero, zero)
        return jax.lax.while_loop(going, advance, start)

    compiled = jax.jit(jax.vmap(run, in_axes=(0, None, None, None)))

    def batch(states: sp.State, timestep: float, relaxation: float, steps: int) -> Outcome:
        state, failed, done, total, worst = jax.block_until_ready(
            compiled(states, timestep, relaxation, steps)
        )
        return Outcome(*(np.asarray(v) for v in (failed, done, total, worst)), state)

    return batch


def random_drops(body: sp.Body, members: int, seed: int) -> sp.State:
    """Random poses above the floor: any orientation, 0.2 to 0.8 m of clearance, moving."""
    rng = np.random.default_rng(seed)
    reach = max(
        float(np.linalg.norm(position) + shape.bounding_radius)
        for shape, position, _ in body.pieces
    )
    orientation = rng.normal(size=(members, 1, 4))
    orientation /= np.linalg.norm(orientation, axis=-1, keepdims=True)
    position = np.zeros((members, 1, 3))
    position[:, 0, 2] = reach + rng.uniform(0.2, 0.8, members)
    velocity = rng.uniform(-1, 1, (members, 1, 3))
    velocity[..., 2] = rng.uniform(-2, 0, (members, 1))
    spin = rng.uniform(-1, 1, (members, 1, 3))
    return sp.State(*(jnp.asarray(v) for v in (position, orientation, velocity, spin)))


def save(name: str, results: dict[str, Any]) -> Path:
    """Write the results with the machine and the versions."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    about = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "devices": [str(device) for device in jax.devices()],
    }
    path.write_text(json.dumps({"about": about, "results": results}, indent=1))
    return path
