"""One compiled step a kind of scene, shared by the tests that simulate."""

import jax
import numpy as np

import silico_py as sp


@jax.jit
def compiled_step(scene, state, relaxation):
    """Compiled once for each structure of scene; parameters and relaxation are arguments."""
    return sp.step(scene, state, None, sp.SolverOptions(relaxation=relaxation))


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
