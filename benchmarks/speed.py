"""Time of a step, of step and Jacobian, and of a gradient, against MuJoCo in one process.

MuJoCo runs the same scene, exported by `save_model`: Newton, elliptic cone, one thread,
`mujoco.rollout` for steps, `mj_step` for steps called one by one from Python, and
`mjd_transitionFD` for the Jacobian. Ours and theirs alternate on one core; figures are medians,
compile time apart. Twenty blocks and the heap have equations for their nearest contacts alone.
Growth and compile time with the number of stacked blocks are ours alone. Needs the extra `models`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness
from benchmarks.engines import mujoco_c

OPTIONS = sp.SolverOptions(relaxation=1e-6, polish=0)


class Task(NamedTuple):
    """A scene, steps of a rollout and of one that is differentiated, limits of its contacts."""

    make: Callable[[], tuple[sp.Scene, sp.State]]
    steps: int = 200
    gradient_steps: int = 100
    limits: tuple[int, int] | None = None

    @property
    def options(self) -> sp.SolverOptions:
        """Options of every step."""
        return dataclasses.replace(OPTIONS, max_contacts=self.limits)


TASKS = {
    "drop": Task(lambda: sp.scenes.drop("box")),
    "stack4": Task(lambda: sp.scenes.stack(4)),
    "peg": Task(sp.scenes.peg_in_hole),
    "stack20": Task(lambda: sp.scenes.stack(20), 100, 20, (19, 4)),
    "heap16": Task(lambda: sp.scenes.heap(16), 20, 10, (48, 40)),  # as it begins to fall
}
QUICK = ("drop", "stack4", "peg")
STEP_BARS = {"drop": 10.0, "stack4": 25.0}  # times MuJoCo's step
# Jacobian: times MuJoCo's; compile time [s]; steps that did not converge.
BARS = {"Jacobian ratio": 1.0, "compile": 5.0, "unsolved": 0}
GROWTH_BAR, COMPILE_GROWTH_BAR = 1.3, 3.0


def run(quick: bool, console: Console) -> bool:
    """True when every bar is met."""
    repeats = 3 if quick else 9
    results: dict[str, Any] = {"scenes": {}, "growth": {}}
    heads = ("us/step", "MuJoCo", "ratio", "called", "MuJoCo", "unsolved", "compile [s]")
    steps = Table("scene", *heads)
    derivatives, met = Table("scene", "step + Jacobian", "MuJoCo", "ratio", "gradient"), True
    for name in harness.track(QUICK if quick else tuple(TASKS), "speed", console):
        found = results["scenes"][name] = measure(TASKS[name], repeats)
        bars = BARS | {"ratio": STEP_BARS.get(name, np.inf)}
        good = {figure: found[figure] <= bar for figure, bar in bars.items()}
        met &= all(good.values())
        steps.add_row(
            name,
            f"{found['step']:.0f}",
            f"{found['MuJoCo step']:.1f}",
            harness.colored(f"{found['ratio']:.0f}", good["ratio"]),
            f"{found['called']:.0f}",
            f"{found['MuJoCo called']:.1f}",
            harness.colored(f"{found['unsolved']}", good["unsolved"]),
            harness.colored(f"{found['compile']:.0f}", good["compile"]),
        )
        derivatives.add_row(
            name,
            f"{found['Jacobian']:.0f}",
            f"{found['MuJoCo Jacobian']:.0f}",
            harness.colored(f"{found['Jacobian ratio']:.1f}", good["Jacobian ratio"]),
            f"{found['gradient over rollout']:.1f} x",
        )
        harness.save("speed", results, quick)
    console.print(steps, derivatives)
    met &= _growth(results, (2, 4, 8) if quick else (2, 4, 8, 20, 50), repeats, console)
    harness.save("speed", results, quick)
    return met


def measure(task: Task, repeats: int) -> dict[str, Any]:
    """Microseconds, ours and MuJoCo's, alternating."""
    scene, state = task.make()
    roll = partial(sp.rollout, scene, options=task.options)
    steps, compile_step = harness.compiled(lambda s: roll(s, controls=task.steps), state)
    trajectory = jax.block_until_ready(steps(state))
    visited = trajectory.state
    both, compile_both = harness.compiled(lambda s: _step_and_jacobian(scene, s, task), visited)
    gradient, compile_gradient = harness.compiled(lambda s: _gradient(scene, s, task), state)
    forward, compile_forward = harness.compiled(
        lambda s: roll(s, controls=task.gradient_steps).state, state
    )
    called = _called(scene, state, task)
    theirs, their_calls, their_jacobian = _mujoco(scene, state, task.steps)
    times = _microseconds(
        {
            "step": (lambda: steps(state), task.steps),
            "MuJoCo step": (theirs, task.steps),
            "called": (called, task.steps),
            "MuJoCo called": (their_calls, task.steps),
            "Jacobian": (lambda: both(visited), task.steps),
            "MuJoCo Jacobian": (their_jacobian, task.steps),
            "gradient": (lambda: gradient(state), task.gradient_steps),
            "forward": (lambda: forward(state), task.gradient_steps),
        },
        repeats,
    )
    compile_all = compile_step + compile_both + compile_gradient + compile_forward
    return times | {
        "unsolved": int((~trajectory.info.converged).sum()),
        "ratio": times["step"] / times["MuJoCo step"],
        "Jacobian ratio": times["Jacobian"] / times["MuJoCo Jacobian"],
        "Jacobian over step": times["Jacobian"] / times["step"] - 1,
        "gradient over rollout": times["gradient"] / times["forward"],
        "compile": compile_step,
        "compile of all four": compile_all,
    }


def _microseconds(
    functions: dict[str, tuple[Callable[[], Any], int]], repeats: int
) -> dict[str, float]:
    """Median microseconds a step of each."""
    calls = {name: function for name, (function, _) in functions.items()}
    seconds = harness.alternate(calls, repeats)
    return {name: seconds[name] / steps * 1e6 for name, (_, steps) in functions.items()}


def _called(scene: sp.Scene, state: sp.State, task: Task) -> Callable[[], sp.State]:
    """The steps of a rollout, each called from Python and waited for."""
    guess = sp.no_guess(scene, state, task.options)
    advance, _ = harness.compiled(
        lambda *at: sp.step(scene, at[0], None, task.options, at[1]), state, guess
    )

    def steps() -> sp.State:
        here, info = jax.block_until_ready(advance(state, guess))
        for _ in range(task.steps - 1):
            here, info = jax.block_until_ready(advance(here, info.guess))
        return here

    return steps


def _step_and_jacobian(scene: sp.Scene, states: sp.State, task: Task) -> Any:
    """Next state, and (A, B) at the relaxation of the step, at each state of a trajectory."""

    def one(guess: Any, state: sp.State) -> Any:
        how = OPTIONS.relaxation, task.options, guess
        *found, info = sp.linearize(scene, state, None, *how, with_step=True)
        return info.guess, found

    start = states[0]
    return jax.lax.scan(one, sp.no_guess(scene, start, task.options), states)[1]


def _gradient(scene: sp.Scene, state: sp.State, task: Task) -> Any:
    """Gradient of the sum of the last positions by the initial velocities, reverse mode."""

    def loss(velocity: jax.Array) -> jax.Array:
        start = sp.State(state.position, state.orientation, velocity, state.angular_velocity)
        path = sp.rollout(scene, start, task.gradient_steps, task.options)
        return jnp.sum(path.state.position[-1])

    return jax.grad(loss)(state.velocity)


def _mujoco(scene: sp.Scene, state: sp.State, count: int) -> tuple[Callable, Callable, Callable]:
    """A rollout of so many steps, as many calls, and as many Jacobians by finite differences."""
    model = mujoco_c.load_scene(scene, state)
    start = mujoco_c.physics(harness.batch_of(state))
    data = mujoco.MjData(model)
    worker = mujoco.rollout.Rollout(nthread=0)
    path, _ = worker.rollout(model, data, start, nstep=count)
    visited = path[0].copy()
    a = np.zeros((2 * model.nv, 2 * model.nv))

    def steps() -> None:
        worker.rollout(model, data, start, nstep=count)

    def calls() -> None:
        mujoco.mj_setState(model, data, start[0], mujoco_c.PHYSICS)
        for _ in range(count):
            mujoco.mj_step(model, data)

    def jacobians() -> None:
        for point in visited:
            mujoco.mj_setState(model, data, point, mujoco_c.PHYSICS)
            mujoco.mjd_transitionFD(model, data, 1e-6, False, a, None, None, None)

    return steps, calls, jacobians


def _growth(
    results: dict[str, Any], counts: tuple[int, ...], repeats: int, console: Console
) -> bool:
    """Time a step and compile time of towers.

    The exponent is that from four blocks to the most.
    """
    out = Table("blocks", "us/step", "compile [s]")
    for n in counts:
        scene, state = sp.scenes.stack(n)
        steps, seconds = harness.compiled(lambda s, sc=scene: sp.rollout(sc, s, 20, OPTIONS), state)
        _, took = harness.median_seconds(steps, state, repeats=repeats)
        results["growth"][str(n)] = {"step": took / 20 * 1e6, "compile": seconds}
        out.add_row(str(n), f"{took / 20 * 1e6:.0f}", f"{seconds:.1f}")
    first, last = results["growth"][str(counts[1])], results["growth"][str(counts[-1])]
    exponent = np.log(last["step"] / first["step"]) / np.log(counts[-1] / counts[1])
    ratio = last["compile"] / results["growth"][str(counts[0])]["compile"]
    good = exponent <= GROWTH_BAR, ratio <= COMPILE_GROWTH_BAR
    growth = harness.colored(f"n^{exponent:.2f}", good[0])
    compiles = harness.colored(f"{ratio:.1f} x", good[1])
    console.print(out, f"growth {growth}; compile time, most blocks over fewest: {compiles}")
    return all(good)
