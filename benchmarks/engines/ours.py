"""silico_py itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import silico_py as sp
from benchmarks import engines, harness

RELAXATIONS = {"relaxation 1e-4": 1e-4, "relaxation 1e-6": 1e-6}
# On a GPU a step of a batch waits for its last member: a rare hard one is given up early.
BATCH_OPTIONS = sp.SolverOptions(relaxation=1e-6, polish=0, max_iterations=100)


class Engine:
    """One scene, stepped by `sp.rollout`."""

    NAME: ClassVar[str] = "silico_py"
    ABOUT: ClassVar[str] = "polish 0; every step must converge"
    SETTINGS: ClassVar[tuple[str, ...]] = tuple(RELAXATIONS)

    def __init__(self, scene: sp.Scene, state: sp.State, setting: str) -> None:
        self.scene = scene
        self.options = sp.SolverOptions(relaxation=RELAXATIONS[setting], polish=0)

    def path(self, state: sp.State, frequency: int, seconds: int) -> engines.Path:
        scene, parts = harness.retimed(self.scene, 1 / frequency), []
        for _ in range(harness.divided(frequency * seconds, engines.PIECE)):
            part = sp.rollout(scene, state, engines.PIECE, self.options)
            if not part.info.converged.all():
                raise engines.SimulationError("a step did not converge")
            parts.append(engines.Path(part.state.position, part.state.orientation))
            state = part.state[-1]
        return jax.tree.map(lambda *v: np.concatenate(v), *parts)

    def timed(
        self, states: sp.State, frequency: int, seconds: int
    ) -> tuple[Callable[[], Any], float]:
        scene, starts = harness.retimed(self.scene, 1 / frequency), harness.members(states)

        def simulate(scene: sp.Scene, state: sp.State, options: sp.SolverOptions) -> sp.State:
            return sp.rollout(scene, state, frequency * seconds, options).state

        program, compiling = harness.compiled(simulate, scene, starts[0], self.options)
        return lambda: [
            jax.block_until_ready(program(scene, start, self.options)) for start in starts
        ], compiling


def together(scene: sp.Scene, states: sp.State, setting: str) -> engines.Together:
    """A batch at every frequency, all members at once."""
    options = dataclasses.replace(BATCH_OPTIONS, relaxation=RELAXATIONS[setting])

    def piece(scene: sp.Scene, state: sp.State) -> Any:
        trajectory = sp.rollout(scene, state, engines.PIECE, options)
        well = trajectory.info.converged[:, None, None]
        position = jnp.where(well, trajectory.state.position, jnp.nan)
        last = trajectory.state[-1]
        return engines.Path(position, trajectory.state.orientation), last

    program, _ = harness.compiled(jax.vmap(piece, in_axes=(None, 0)), scene, states)

    def simulate(frequency: int) -> Iterator[engines.Path]:
        here, state = harness.retimed(scene, 1 / frequency), states
        for _ in range(harness.divided(frequency, engines.PIECE)):
            path, state = program(here, state)
            yield path

    return simulate


def stepper(scene: sp.Scene, states: sp.State, steps: int) -> engines.Program:
    """`steps` steps of a batch of states."""

    def one(scene: sp.Scene, state: sp.State) -> Any:
        trajectory = sp.rollout(scene, state, steps, BATCH_OPTIONS)
        last = trajectory.state[-1]
        return last, trajectory.info.converged.all()

    return _program(one, scene, states)


def linearizer(scene: sp.Scene, states: sp.State, steps: int) -> engines.Program:
    """`steps` steps of a batch of states, and A and B of each at the same relaxation."""
    rho = BATCH_OPTIONS.relaxation

    def one(scene: sp.Scene, state: sp.State) -> Any:
        def advance(before: Any, _: None) -> tuple[Any, Any]:
            here, guess = before
            how = rho, BATCH_OPTIONS, guess
            a, b, following, info = sp.linearize(scene, here, None, *how, with_step=True)
            return (following, info.guess), (a, b, info.converged)

        first = state, sp.no_guess(scene, state, BATCH_OPTIONS)
        *found, converged = jax.lax.scan(advance, first, length=steps)[1]
        return found, converged.all()

    return _program(one, scene, states)


def _program(one: Callable, scene: sp.Scene, states: sp.State) -> engines.Program:
    mapped = jax.vmap(one, in_axes=(None, 0))
    mapped, scene, states = harness.over_devices(mapped, scene, states)
    batch, compiling = harness.compiled(mapped, scene, states)
    return engines.Program(
        run=lambda: jax.block_until_ready(batch(scene, states)),
        good=lambda: float(np.mean(batch(scene, states)[1])),
        memory=harness.program_memory(batch),
        compiling=compiling,
    )
