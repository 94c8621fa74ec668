"""MuJoCo in C, through `mujoco.rollout` and `mjd_transitionFD`."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import mujoco.rollout
import numpy as np

import silico_py as sp
from benchmarks import engines, harness

PHYSICS = mujoco.mjtState.mjSTATE_FULLPHYSICS
MARGIN = 1e-3  # of a pair [m]
DIFFERENCE = 1e-6  # of the finite differences


def default(model: mujoco.MjModel) -> None:
    """Contacts as MuJoCo makes them unasked."""


def stiff(model: mujoco.MjModel) -> None:
    """The stiffest stable contacts: a time constant of two steps, and next to no give."""
    model.geom_solref[:] = 2 * model.opt.timestep, 1
    model.geom_solimp[:, :3] = 0.99, 0.9999, 0.001
    model.opt.impratio = 10


def stiff_with_margin(model: mujoco.MjModel) -> None:
    """Stiff, and 1 mm early: bodies rest that much above the surface."""
    stiff(model)
    model.geom_margin[:] = MARGIN / 2  # those of a pair add up


SETTINGS: dict[str, Callable[[mujoco.MjModel], None]] = {
    "default": default,
    "stiff": stiff,
    "stiff, margin": stiff_with_margin,
}


class Engine:
    """One scene on one thread."""

    NAME: ClassVar[str] = "MuJoCo C"
    ABOUT: ClassVar[str] = (
        "one thread, Newton, elliptic cones, Euler. default: solref 0.02 1 (at least 2 h), solimp "
        "0.9 0.95. stiff: solref 2h 1, solimp 0.99 0.9999 0.001, impratio 10. margin: 1 mm"
    )
    SETTINGS: ClassVar[tuple[str, ...]] = tuple(SETTINGS)

    def __init__(self, scene: sp.Scene, state: sp.State, setting: str) -> None:
        self.model, self.set_contacts = load_scene(scene, state), SETTINGS[setting]
        self.worker = mujoco.rollout.Rollout(nthread=0)

    def path(self, state: sp.State, frequency: int, seconds: int) -> engines.Path:
        return poses(self.model, self._rollout(harness.batch_of(state), frequency, seconds)()[0])

    def timed(
        self, states: sp.State, frequency: int, seconds: int
    ) -> tuple[Callable[[], Any], float]:
        return self._rollout(states, frequency, seconds), 0.0

    def _rollout(self, states: sp.State, frequency: int, seconds: int) -> Callable[[], np.ndarray]:
        model, starts = copy.copy(self.model), physics(states)
        model.opt.timestep = 1 / frequency
        self.set_contacts(model)
        data, steps = mujoco.MjData(model), frequency * seconds
        return lambda: self.worker.rollout(model, data, starts, nstep=steps)[0]


def stepper(scene: sp.Scene, states: sp.State, steps: int) -> engines.Program:
    """`steps` steps of a batch of states, on as many threads as there are cores."""
    model, starts = load_scene(scene, engines.member(states, 0)), physics(states)
    data = [mujoco.MjData(model) for _ in range(harness.cores())]
    worker = mujoco.rollout.Rollout(nthread=len(data))
    paths = np.zeros((len(starts), steps, starts.shape[1]))

    def run() -> np.ndarray:
        worker.rollout(model, data, starts, nstep=steps, state=paths)
        return paths

    memory = starts.nbytes + paths.nbytes + _memory(model, data, starts[0])
    return engines.Program(run, lambda: _finite(run()), memory, 0.0)


def linearizer(scene: sp.Scene, states: sp.State, steps: int) -> engines.Program:
    """`steps` steps of a batch of states, A and B of each by forward differences, all cores."""
    model = load_scene(scene, engines.member(states, 0), driven=True)
    starts, n = physics(states), 2 * model.nv
    data = [mujoco.MjData(model) for _ in range(harness.cores())]
    a, b = (np.zeros((len(starts), steps, n, columns)) for columns in (n, model.nu))

    def work(thread: int) -> None:
        own = data[thread]
        for k in range(thread, len(starts), len(data)):
            mujoco.mj_setState(model, own, starts[k], PHYSICS)
            for by_state, by_control in zip(a[k], b[k], strict=True):
                slopes = by_state, by_control, None, None
                mujoco.mjd_transitionFD(model, own, DIFFERENCE, False, *slopes)
                mujoco.mj_step(model, own)

    pool = ThreadPoolExecutor(len(data))

    def run() -> np.ndarray:
        list(pool.map(work, range(len(data))))
        return a

    memory = starts.nbytes + a.nbytes + b.nbytes + _memory(model, data, starts[0])
    return engines.Program(run, lambda: _finite(run()), memory, 0.0)


def load_scene(scene: sp.Scene, state: sp.State, driven: bool = False) -> mujoco.MjModel:
    """The scene as `save_model` exports it, with Newton and elliptic cones.

    Args:
        scene, state: of `save_model`.
        driven: with six motors a body, so that a derivative has all the columns of ours.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.xml"
        sp.save_model(scene, state, path)
        spec = mujoco.MjSpec.from_file(str(path))
        if driven:
            _add_motors(spec)
        model = spec.compile()
    model.opt.solver, model.opt.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_ELLIPTIC
    # A run that diverges shall not go on from its start as if nothing had happened.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model


def _add_motors(spec: mujoco.MjSpec) -> None:
    for joint in spec.joints:
        joint.name = f"joint of {joint.parent.name}"
        for gear in np.eye(6):
            spec.add_actuator(
                trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name, gear=gear.tolist()
            )


def coordinates(states: sp.State) -> tuple[np.ndarray, np.ndarray]:
    """qpos (k, 7n) and qvel (k, 6n) of a batch of states of free bodies."""
    qpos = np.concatenate([states.position, states.orientation], axis=-1)
    qvel = np.concatenate([states.velocity, states.angular_velocity], axis=-1)
    return qpos.reshape(len(qpos), -1), qvel.reshape(len(qvel), -1)


def physics(states: sp.State) -> np.ndarray:
    """(k, size) vectors that `mj_setState` and the rollouts take: time, qpos, qvel."""
    qpos, qvel = coordinates(states)
    return np.concatenate([np.zeros((len(qpos), 1)), qpos, qvel], axis=1)


def poses(model: mujoco.MjModel, path: np.ndarray) -> engines.Path:
    """Poses of a path (steps, size) of physics vectors, which start with time and qpos."""
    rows = path[:, 1 : 1 + model.nq].reshape(len(path), -1, 7)
    return engines.Path(rows[..., :3], rows[..., 3:])


def _finite(rows: np.ndarray) -> float:
    """Share of the members without a NaN or an infinity."""
    return float(np.isfinite(rows).reshape(len(rows), -1).all(axis=1).mean())


def _memory(model: mujoco.MjModel, data: list[mujoco.MjData], start: np.ndarray) -> int:
    """What the threads use of their own, judged by one of them at one state [bytes]."""
    mujoco.mj_setState(model, data[0], start, PHYSICS)
    mujoco.mj_forward(model, data[0])
    return len(data) * (data[0].nbuffer + data[0].maxuse_arena)
