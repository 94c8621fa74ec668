"""One compiled step a kind of scene, shared by the tests that simulate."""

import jax
import jax.numpy as jnp
import numpy as np

import silico_py as sp
from silico_py.one_step import begin
from silico_py.simulate import checked_control


@jax.jit
def compiled_step(scene, state, relaxation):
    """Compiled once for each structure of scene; parameters and relaxation are arguments."""
    return sp.step(scene, state, None, sp.SolverOptions(relaxation=relaxation))


def assembled(scene, state, relaxation, control=None):
    """The problem of a step and its start, by one program instead of hundreds."""
    kept = []

    @jax.jit
    def parts(state):
        applied, rho = checked_control(scene, state, control), jnp.asarray(relaxation)
        begun = begin(scene, state, applied, rho, None, sp.SolverOptions())
        kept.append(begun.problem)
        return begun.problem.data, begun.start

    data, start = parts(state)
    return kept[0].with_data(data), start


PART = 10  # steps


@jax.jit
def _unknown(scene, state, options):
    return sp.no_guess(scene, state, options)


@jax.jit
def _part(scene, state, options, guess):
    return sp.rollout(scene, state, PART, options, guess, with_guess=True)


def rolled(scene, state, steps, **options):
    """A rollout in parts, so that it is compiled once for each structure of scene; all converge."""
    options = sp.SolverOptions(**options)
    guess, parts = _unknown(scene, state, options), []
    for _ in range(-(-steps // PART)):
        part, guess = _part(scene, state, options, guess)
        state = jax.tree.map(lambda v: v[-1], part.state)
        parts.append(part)
    whole = jax.tree.map(lambda *v: np.concatenate(v)[:steps], *parts)
    assert whole.info.converged.all(), np.flatnonzero(~whole.info.converged)
    return whole


def rolled_each(scene, states, steps, **options):
    """The same of several states."""
    members = [jax.tree.map(lambda v, k=k: v[k], states) for k in range(len(states.position))]
    trajectories = [rolled(scene, member, steps, **options) for member in members]
    return jax.tree.map(lambda *v: np.stack(v), *trajectories)


@jax.jit
def _step_each(scene, states, options):
    return jax.lax.map(lambda state: sp.step(scene, state, None, options), states)


def step_each(scene, states, **options):
    """A step of several states, compiled once for each structure of scene."""
    return _step_each(scene, states, sp.SolverOptions(**options))


def simulate(scene, state, steps, relaxation=1e-6):
    """States and infos after each step, stacked over time as numpy arrays."""
    history = []
    for _ in range(steps):
        state, info = compiled_step(scene, state, relaxation)
        history.append(sp.Trajectory(state, info))
    return jax.tree.map(lambda *rows: np.stack([np.asarray(row) for row in rows]), *history)


def simulate_converged(scene, state, steps, relaxation=1e-6):
    """Like `simulate`, every step must have converged."""
    trajectory = simulate(scene, state, steps, relaxation)
    assert trajectory.info.converged.all(), np.flatnonzero(~trajectory.info.converged)
    return trajectory


def turned(rng, *shape):
    """Orientations at random."""
    turn = rng.normal(size=(*shape, 4))
    return jnp.array(turn / np.linalg.norm(turn, axis=-1, keepdims=True))
