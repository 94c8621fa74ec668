"""MJX, MuJoCo on JAX."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

with contextlib.redirect_stdout(io.StringIO()):  # it prints what else could be installed
    from mujoco import mjx

import silico_py as sp
from benchmarks import engines, harness
from benchmarks.engines import mujoco_c

# Iterations of the solver, and of its line search. With more than ENOUGH the drops of
# `equal_accuracy` sink as deep, and a batch waits for the member that takes most.
ENOUGH, FEW = (20, 20), (4, 8)


def stiff(model: mujoco.MjModel) -> None:
    """Settings as MuJoCo's, but impratio 1: with 10 and elliptic cones MJX throws a tower apart."""
    mujoco_c.stiff(model)
    model.opt.impratio = 1


# No margin: MJX's contacts with a plane do not begin early.
SETTINGS = {"stiff": ENOUGH, "stiff, few": FEW}


class Engine:
    """One scene, stepped in `lax.scan`."""

    NAME: ClassVar[str] = "MJX"
    ABOUT: ClassVar[str] = (
        "Newton, elliptic cones, Euler, in lax.scan, double precision (as fast as single on a "
        "CPU). stiff: as MuJoCo C, but impratio 1, at most 20 iterations and as many of the "
        "line search, which do as well as 100 and 50. few: 4 and 8"
    )
    SETTINGS: ClassVar[tuple[str, ...]] = tuple(SETTINGS)

    def __init__(self, scene: sp.Scene, state: sp.State, setting: str) -> None:
        self.source = mujoco_c.load_scene(scene, state)
        self.source.opt.iterations, self.source.opt.ls_iterations = SETTINGS[setting]
        stiff(self.source)
        self.model, self.data = mjx.put_model(self.source), mjx.make_data(self.source)

    def path(self, state: sp.State, frequency: int, seconds: int) -> engines.Path:
        model, start = self.retimed(frequency), self._start(state)
        parts = []
        for _ in range(harness.divided(frequency * seconds, engines.PIECE)):
            part, start = _chunk(model, self.data, *start)
            parts.append(np.asarray(part))
        rows = np.concatenate(parts).reshape(frequency * seconds, -1, 7)
        return engines.Path(rows[..., :3], rows[..., 3:])

    def timed(
        self, states: sp.State, frequency: int, seconds: int
    ) -> tuple[Callable[[], Any], float]:
        model = self.retimed(frequency)
        starts = [self._start(state) for state in harness.members(states)]
        program, compiling = harness.compiled(
            lambda m, d, qpos, qvel: _advance(m, d, qpos, qvel, frequency * seconds)[0],
            *(model, self.data, *starts[0]),
            options={},
        )
        return lambda: [
            jax.block_until_ready(program(model, self.data, *start)) for start in starts
        ], compiling

    def retimed(self, frequency: int) -> mjx.Model:
        """The model with so many steps a second; only arrays change, nothing compiles again."""
        self.source.opt.timestep = 1 / frequency
        stiff(self.source)
        changed = {"opt.timestep": 1 / frequency, "geom_solref": self.source.geom_solref}
        return self.model.tree_replace({name: jnp.array(v) for name, v in changed.items()})

    def _start(self, state: sp.State) -> tuple[jax.Array, jax.Array]:
        qpos, qvel = mujoco_c.coordinates(harness.batch_of(state))
        # Committed to a device as results are, else the second piece would compile again.
        return jax.device_put((qpos[0], qvel[0]), jax.devices()[0])


def _advance(model: mjx.Model, data: mjx.Data, qpos: Any, qvel: Any, steps: int) -> Any:
    """Positions after each step, and the last positions and velocities."""

    def advance(d: mjx.Data, _: None) -> tuple[mjx.Data, jax.Array]:
        d = mjx.step(model, d)
        return d, d.qpos

    last, path = jax.lax.scan(advance, data.replace(qpos=qpos, qvel=qvel), length=steps)
    return path, (last.qpos, last.qvel)


@jax.jit
def _chunk(model: mjx.Model, data: mjx.Data, qpos: jax.Array, qvel: jax.Array) -> Any:
    return _advance(model, data, qpos, qvel, engines.PIECE)


def together(scene: sp.Scene, states: sp.State, setting: str) -> engines.Together:
    """A batch at every frequency, all members at once."""
    with _precision():
        engine = Engine(scene, engines.member(states, 0), setting)
        start = tuple(map(jnp.asarray, mujoco_c.coordinates(states)))
        piece = jax.vmap(partial(_advance, steps=engines.PIECE), in_axes=(None, None, 0, 0))
        program, _ = harness.compiled(piece, engine.model, engine.data, *start, options={})

    def simulate(frequency: int) -> Iterator[engines.Path]:
        with _precision():
            model, at = engine.retimed(frequency), start
        for _ in range(harness.divided(frequency, engines.PIECE)):
            path, at = program(model, engine.data, *at)
            rows = path.reshape(*path.shape[:2], -1, 7)
            yield engines.Path(rows[..., :3], rows[..., 3:])

    return simulate


@contextlib.contextmanager
def _precision() -> Iterator[None]:
    """Double on a CPU, where it is as fast; single elsewhere, its products not in TF32, with
    whose 10 bits boxes sink in."""
    with jax.enable_x64(jax.default_backend() == "cpu"), jax.default_matmul_precision("highest"):
        yield


def stepper(scene: sp.Scene, states: sp.State, steps: int) -> engines.Program:
    """`steps` steps of a batch of states, elliptic cones, few iterations."""
    source = mujoco_c.load_scene(scene, engines.member(states, 0))
    source.opt.iterations, source.opt.ls_iterations = FEW

    def one(model: mjx.Model, data: mjx.Data, qpos: jax.Array, qvel: jax.Array) -> Any:
        return _advance(model, data, qpos, qvel, steps)[1]

    return _program(one, source, states)


def linearizer(scene: sp.Scene, states: sp.State, steps: int) -> engines.Program:
    """`steps` steps of a batch of states, and the derivative of each by forward mode.

    With pyramidal cones: through elliptic ones the derivative is NaN.
    """
    source = mujoco_c.load_scene(scene, engines.member(states, 0), driven=True)
    source.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL

    def one(model: mjx.Model, data: mjx.Data, qpos: jax.Array, qvel: jax.Array) -> Any:
        start = data.replace(qpos=qpos, qvel=qvel)
        return jax.lax.scan(lambda d, _: _step_and_slopes(model, d), start, length=steps)[1]

    return _program(one, source, states)


def _step_and_slopes(model: mjx.Model, data: mjx.Data) -> tuple[mjx.Data, Any]:
    """The data after a step, and the derivatives of qpos and qvel by tangent, qvel and control."""

    def following(turn: jax.Array, v: jax.Array, ctrl: jax.Array) -> Any:
        after = mjx.step(model, data.replace(qpos=_moved(data.qpos, turn), qvel=v, ctrl=ctrl))
        return (after.qpos, after.qvel), after

    by_all = jax.jacfwd(following, argnums=(0, 1, 2), has_aux=True)
    slopes, after = by_all(jnp.zeros_like(data.qvel), data.qvel, data.ctrl)
    return after, slopes


def _moved(qpos: jax.Array, tangent: jax.Array) -> jax.Array:
    """Poses (7n) moved by displacements and rotation vectors (6n), to first order."""
    pose, by = qpos.reshape(-1, 7), tangent.reshape(-1, 6)
    turned = jnp.concatenate([jnp.ones_like(by[:, :1]), by[:, 3:] / 2], axis=1)
    orientation = jax.vmap(sp.rotation.multiply)(pose[:, 3:], turned)
    return jnp.concatenate([pose[:, :3] + by[:, :3], orientation], axis=1).ravel()


def _program(one: Callable, source: mujoco.MjModel, states: sp.State) -> engines.Program:
    with _precision():
        fixed = mjx.put_model(source), mjx.make_data(source)
        starts = tuple(map(jnp.asarray, mujoco_c.coordinates(states)))
        mapped = jax.vmap(lambda fixed, start: one(*fixed, *start), in_axes=(None, 0))
        mapped, *given = harness.over_devices(mapped, fixed, starts)
        batch, compiling = harness.compiled(mapped, *given, options={})

    def finite() -> float:
        leaves = jax.tree.leaves(batch(*given))
        rows = [np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]
        return float(np.all(rows, axis=0).mean())

    return engines.Program(
        run=lambda: jax.block_until_ready(batch(*given)),
        good=finite,
        memory=harness.program_memory(batch),
        compiling=compiling,
    )


def push_slopes(
    scene: sp.Scene, state: sp.State, forces: np.ndarray, steps: int, cone: str
) -> np.ndarray:
    """d(x of the first body after `steps` steps) / d(constant force on the second along x).

    Args:
        scene, state: two bodies.
        forces: [N].
        steps: number of steps.
        cone: "pyramidal" or "elliptic".
    """
    source = mujoco_c.load_scene(scene, state)
    source.opt.cone = getattr(mujoco.mjtCone, f"mjCONE_{cone.upper()}")
    model, data = mjx.put_model(source), mjx.make_data(source)
    qpos, qvel = (jnp.asarray(v[0]) for v in mujoco_c.coordinates(harness.batch_of(state)))

    def moved(force: jax.Array) -> jax.Array:
        pushed = data.xfrc_applied.at[2, 0].set(force)  # body 0 is the world
        path, _ = _advance(model, data.replace(xfrc_applied=pushed), qpos, qvel, steps)
        return path[-1, 0]

    slope = jax.jit(lambda force: jax.jvp(moved, (force,), (jnp.ones_like(force),))[1])
    return np.array([slope(force) for force in jnp.asarray(forces)])
