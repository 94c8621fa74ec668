"""Batches of runs and what is measured of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from silico_py.assembly import contact_batches
from silico_py.collision import solve_collision
from silico_py.contact import Contact, current
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State
from silico_py.simulate import checked_control, motions_of, step

EXACT = 1e-10  # relaxation of the collision solve that judges
DETECTOR = 1e-4  # relaxation of the paper's own detector
COLLISION_ITERATIONS = 50


class Outcome(NamedTuple):
    """Of each run.

    Attributes:
        failed: whether any step did not converge.
        iterations: mean Newton steps.
        violation: largest (1 - alpha)+ over all steps, alpha from an exact collision solve.
        detector: the same with alpha relaxed as in the paper.
        linear, angular: mean |m v| [kg m/s] and |J w| [kg m^2/s] of a body.
    """

    failed: Bool[Array, " runs"]
    iterations: Float[Array, " runs"]
    violation: Float[Array, " runs"]
    detector: Float[Array, " runs"]
    linear: Float[Array, " runs"]
    angular: Float[Array, " runs"]


Runner = Callable[[Scene, State, float, float, int], Outcome]


def runner(options: SolverOptions) -> Runner:
    """`(scene, starts, timestep, relaxation, steps) -> Outcome`.

    Time step, relaxation and steps are traced: one compilation serves all cases of a scene.
    """

    def run(
        scene: Scene, start: State, timestep: Array, relaxation: Array, steps: Array
    ) -> Outcome:
        scene = dataclasses.replace(scene, timestep=timestep)
        chosen = dataclasses.replace(
            options, relaxation=relaxation, collision_relaxation=relaxation
        )

        def advance(_: int, carry: tuple[State, Outcome]) -> tuple[State, Outcome]:
            state, so_far = carry
            state, info = step(scene, state, options=chosen)
            mass = jnp.stack([body.mass for body in scene.bodies])
            inertia = jnp.stack([body.inertia for body in scene.bodies])
            spin = jnp.einsum("nij,nj->ni", inertia, state.angular_velocity)
            found = Outcome(
                so_far.failed | ~info.converged,
                so_far.iterations + info.iterations / steps,
                jnp.maximum(so_far.violation, violation(scene, state, EXACT)),
                jnp.maximum(so_far.detector, violation(scene, state, DETECTOR)),
                so_far.linear + _mean_norm(mass[:, None] * state.velocity) / steps,
                so_far.angular + _mean_norm(spin) / steps,
            )
            return state, found

        zero = jnp.zeros((), timestep.dtype)
        first = Outcome(jnp.asarray(False), zero, zero, zero, zero, zero)
        return jax.lax.fori_loop(0, steps, advance, (start, first))[1]

    @jax.jit
    def batch(scene: Scene, starts: State, *case: Array) -> Outcome:
        # A batch iterates as long as its slowest member. On the CPU that costs more than it saves.
        together = None if jax.default_backend() == "cpu" else len(starts.position)
        return jax.lax.map(lambda start: run(scene, start, *case), starts, batch_size=together)

    return batch


def violation(scene: Scene, state: State, relaxation: float) -> Float[Array, ""]:
    """Largest (1 - alpha)+ over the pairs of a scene, from collision solves of their own."""
    motions = motions_of(scene, state, checked_control(scene, state, None))
    worst = jnp.zeros((), state.position.dtype)

    def alpha(c: Contact) -> Array:
        a, b = current(c.a), current(c.b)
        return solve_collision(a, b, c.length, relaxation, COLLISION_ITERATIONS).alpha

    for batch in contact_batches(scene, motions, jnp.asarray(relaxation)):
        worst = jnp.maximum(worst, jnp.max(1 - jax.vmap(alpha)(batch.contacts)))
    return worst


def _mean_norm(vectors: Float[Array, "n 3"]) -> Float[Array, ""]:
    return jnp.mean(jnp.linalg.norm(vectors, axis=-1))
