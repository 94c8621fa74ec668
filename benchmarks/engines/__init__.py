"""Simulators behind one surface, so that a benchmark treats all of them alike.

Each module here holds a class `Engine` for accuracy and latency of single runs. Those that run
batches have two functions as well, `stepper` and `linearizer`, which make a `Program`, and those
on a GPU a third, `together`. Scenes are ours; `mujoco_c` exports them for MuJoCo and MJX, `drake`
rebuilds boxes and half-spaces.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np

import silico_py as sp

# Modules of this folder, and the package that each needs.
REQUIRES = {"ours": "silico_py", "mujoco_c": "mujoco", "mjx": "mujoco.mjx", "drake": "pydrake"}

PIECE = 10  # steps of the one program that follows a path at every frequency


class Path(NamedTuple):
    """Poses after each step.

    Attributes:
        position: (steps, n, 3) [m].
        orientation: (steps, n, 4) wxyz.
    """

    position: np.ndarray | jax.Array
    orientation: np.ndarray | jax.Array


class Program(NamedTuple):
    """Work on a batch, ready to run.

    Attributes:
        run: does it once; returns when it is done.
        good: share of the batch that converged or, where an engine does not tell, is finite.
        memory: that one run takes [bytes].
        compiling: [s].
    """

    run: Callable[[], Any]
    good: Callable[[], float]
    memory: int
    compiling: float


# A batch simulated for a second with so many steps, piece by piece: paths with the members first,
# in arrays of the device, not finite from where a step failed.
Together = Callable[[int], Iterator[Path]]


class SimulationError(RuntimeError):
    """An engine says itself that it could not simulate this."""


class Engine(Protocol):
    """One scene in one simulator, with one of its `SETTINGS`."""

    NAME: ClassVar[str]
    ABOUT: ClassVar[str]  # what the settings mean
    SETTINGS: ClassVar[tuple[str, ...]]

    def __init__(self, scene: sp.Scene, state: sp.State, setting: str) -> None: ...

    def path(self, state: sp.State, frequency: int, seconds: int) -> Path:
        """Simulate with `frequency` steps a second and keep every pose.

        Raises:
            SimulationError: when the engine reports a failure.
        """

    def timed(
        self, states: sp.State, frequency: int, seconds: int
    ) -> tuple[Callable[[], Any], float]:
        """Simulate from each of a batch of states, one after the other.

        Returns:
            (a function that does it and returns when it is done, seconds spent compiling)
        """


def load(name: str) -> ModuleType | None:
    """A module of this folder, or None where the package that it needs is not installed.

    Raises:
        KeyError: for an unknown name.
    """
    parts = REQUIRES[name].split(".")
    for k in range(len(parts)):  # the parent first: `find_spec` imports it
        if importlib.util.find_spec(".".join(parts[: k + 1])) is None:
            return None
    return importlib.import_module(f"{__name__}.{name}")


def member(states: sp.State, k: int) -> sp.State:
    """One state of a batch, as numpy arrays."""
    fields = (states.position, states.orientation, states.velocity, states.angular_velocity)
    return sp.State(*(np.asarray(field)[k] for field in fields))
