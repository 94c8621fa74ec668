"""Batches of runs and what is measured of them, as compiled programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from silico_py.assembly import pair_batches
from silico_py.collision import ITERATIONS as COLLISION_ITERATIONS
from silico_py.collision import solve_collision
from silico_py.compilation import compiler_options
from silico_py.contact import Pair, current
from silico_py.one_step import arms, motions_of, shift
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import checked_control, step
from silico_py.solver.compilation import UNOPTIMIZED

EXACT, DETECTOR = 1e-10, 1e-4  # relaxations of the collision solves; the second is the paper's


class Outcome(NamedTuple):
    """What became of each run of a batch.

    Attributes:
        failed: whether any step did not converge.
        iterations: mean Newton steps.
        states: after each step; what comes after the last step means nothing.
    """

    failed: Bool[Array, " runs"]
    iterations: Float[Array, " runs"]
    states: State


class Verdict(NamedTuple):
    """How far each run of a batch violates contact, and how much it moves.

    Attributes:
        violation: largest (1 - alpha)+ over all steps, alpha from an exact collision solve;
            infinite where one did not converge.
        detector: the same with alpha relaxed as in the paper.
        linear, angular: mean |m v| [kg m/s] and |J w| [kg m^2/s] of a body.
    """

    violation: Float[Array, " runs"]
    detector: Float[Array, " runs"]
    linear: Float[Array, " runs"]
    angular: Float[Array, " runs"]


Runner = Callable[[State, float, SolverOptions, int], Outcome]
Judge = Callable[[State, int], Verdict]


def compiled_runner(
    scene: Scene, starts: State, options: SolverOptions, longest: int, optimize: bool = True
) -> Runner:
    """`(starts, timestep, options, steps) -> Outcome` for as many starts as these.

    All of these are traced: one compilation serves all cases of a method, of up to `longest`
    steps.
    """

    def run(scene: Scene, options: SolverOptions, steps: Array, start: State) -> Outcome:
        def advance(k: Array, carry: tuple[State, Outcome]) -> tuple[State, Outcome]:
            state, so_far = carry
            state, info = step(scene, state, options=options)
            failed = so_far.failed | ~info.converged
            iterations = so_far.iterations + info.iterations / steps
            states = jax.tree.map(lambda v, s: v.at[k].set(s), so_far.states, state)
            return state, Outcome(failed, iterations, states)

        room = jax.tree.map(lambda v: jnp.zeros((longest, *v.shape), v.dtype), start)
        first = Outcome(jnp.asarray(False), jnp.zeros((), start.position.dtype), room)
        return jax.lax.fori_loop(0, steps, advance, (start, first))[1]

    def batch(
        scene: Scene, starts: State, timestep: Array, options: SolverOptions, steps: Array
    ) -> Outcome:
        scene = dataclasses.replace(scene, timestep=timestep)
        return of_each(partial(run, scene, options, steps), starts)

    program = _compiled(batch, optimize, scene, starts, 0.01, options, 1)
    return lambda *case: program(scene, *case)


def compiled_judge(scene: Scene, starts: State, longest: int, optimize: bool = True) -> Judge:
    """`(states, steps) -> Verdict` on what a runner has returned."""

    def judge(scene: Scene, steps: Array, states: State) -> Verdict:
        def look(k: Array, so_far: Verdict) -> Verdict:
            state = states[k]
            mass = jnp.stack([body.mass for body in scene.bodies])
            inertia = jnp.stack([body.inertia for body in scene.bodies])
            spin = jnp.einsum("nij,nj->ni", inertia, state.angular_velocity)
            _, velocity = shift(state, arms(scene))
            # One program for both relaxations.
            judges = np.array([EXACT, DETECTOR])
            exact, detected = jax.lax.map(partial(violation, scene, state), judges)
            return Verdict(
                jnp.maximum(so_far.violation, exact),
                jnp.maximum(so_far.detector, detected),
                so_far.linear + _mean_norm(mass[:, None] * velocity) / steps,
                so_far.angular + _mean_norm(spin) / steps,
            )

        zero = jnp.zeros((), states.position.dtype)
        return jax.lax.fori_loop(0, steps, look, Verdict(zero, zero, zero, zero))

    def batch(scene: Scene, states: State, steps: Array) -> Verdict:
        return of_each(partial(judge, scene, steps), states)

    room = jax.tree.map(lambda v: np.zeros((len(v), longest, *v.shape[1:]), v.dtype), starts)
    program = _compiled(batch, optimize, scene, room, 1)
    return partial(program, scene)


def of_each(function: Callable, members: State) -> Any:
    """`function` of each member of a batch: one by one on the CPU, all at once elsewhere.

    A batch iterates as long as its slowest member. On the CPU that costs more than it saves.
    """
    together = None if jax.default_backend() == "cpu" else len(members.position)
    return jax.lax.map(function, members, batch_size=together)


def _compiled(function: Callable, optimize: bool, *args: object) -> Callable:
    how = compiler_options() | ({} if optimize else UNOPTIMIZED)
    return jax.jit(function).lower(*args).compile(how)


def violation(scene: Scene, state: State, relaxation: float | Array) -> Float[Array, ""]:
    """Largest (1 - alpha)+ over the pairs of a scene, from collision solves of their own; infinite
    where one of them does not converge."""
    motions = motions_of(scene, state, jnp.asarray(checked_control(scene, state, None)))
    worst = jnp.zeros((), state.position.dtype)

    def alpha(p: Pair) -> Array:
        a, b = current(p.a), current(p.b)
        found = solve_collision(a, b, p.length, relaxation, COLLISION_ITERATIONS)
        return jnp.where(found.converged, found.alpha, -jnp.inf)

    for batch in pair_batches(scene, motions):
        worst = jnp.maximum(worst, jnp.max(1 - jax.vmap(alpha)(batch.contacts)))
    return worst


def _mean_norm(vectors: Float[Array, "n 3"]) -> Float[Array, ""]:
    return jnp.mean(jnp.linalg.norm(vectors, axis=-1))
