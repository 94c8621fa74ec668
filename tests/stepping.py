"""One compiled step a kind of scene, shared by the tests that simulate."""

import jax
import jax.numpy as jnp
import numpy as np

import silico_py as sp
from silico_py.one_step import begin
from silico_py.simulate import checked_control


def begun(scene, state, relaxation, control=None, guess=None):
    """A step before its search, by one program instead of hundreds."""
    kept = []

    @jax.jit
    def parts(state, guess):
        applied, rho = checked_control(scene, state, control), jnp.asarray(relaxation)
        found = begin(scene, state, applied, rho, guess, sp.SolverOptions())
        kept.append(found.problem)
        return found._replace(problem=found.problem.data)

    found = parts(state, guess)
    return found._replace(problem=kept[0].with_data(found.problem))


def assembled(scene, state, relaxation, control=None):
    """The problem of a step and its start."""
    found = begun(scene, state, relaxation, control)
    return found.problem, found.start


def tower(blocks):
    """The problem of a stack, at its start: an interior point."""
    return assembled(*sp.scenes.stack(blocks), 1e-4)


@jax.jit
def nothing_known(scene, state, options):
    """What stands for the guess of a step before, compiled too."""
    return sp.no_guess(scene, state, options)


def stepped(scene, state, control=None, guess=None, **options):
    """A step, compiled once for each structure of scene: with a guess, though it be none."""
    options = sp.SolverOptions(**options)
    guess = nothing_known(scene, state, options) if guess is None else guess
    return sp.step(scene, state, control, options, guess)


def rolled(scene, state, steps, warm=True, control=None, **options):
    """A rollout by such steps, all of which converge, as numpy arrays."""
    guess, history = None, []
    for _ in range(steps):
        state, info = stepped(scene, state, control, guess, **options)
        guess = info.guess if warm else None
        history.append(sp.Trajectory(state, info._replace(guess=None)))
    whole = stacked(history)
    assert whole.info.converged.all(), np.flatnonzero(~whole.info.converged)
    return whole


def rolled_each(scene, states, steps, **options):
    """The same of several states."""
    return stacked([rolled(scene, member, steps, **options) for member in members_of(states)])


def stepped_each(scene, states, **options):
    """A step of several states."""
    return stacked([stepped(scene, member, **options) for member in members_of(states)])


def members_of(states):
    """The states of a batch."""
    return [jax.tree.map(lambda v, k=k: v[k], states) for k in range(len(states.position))]


def stacked(parts):
    """Pytrees as one, of numpy arrays with a leading axis."""
    return jax.tree.map(lambda *v: np.stack(v), *parts)


def turned(rng, *shape):
    """Orientations at random."""
    turn = rng.normal(size=(*shape, 4))
    return jnp.array(turn / np.linalg.norm(turn, axis=-1, keepdims=True))


def thrown(speed, seed, members=None):
    """A box and a cone at random that pass and hit each other and the floor this fast."""
    bodies = [
        sp.Body("box", [sp.Box((0.3, 0.2, 0.15))], mass=1.0),
        sp.Body("cone", [sp.Cone(0.2, 0.5)], mass=2.0),
    ]
    scene = sp.Scene(bodies, [sp.scenes.floor()], timestep=0.02, friction=0.4)
    rng = np.random.default_rng(seed)
    shape = () if members is None else (members,)
    turn = turned(rng, *shape, 2)
    place = rng.uniform(-0.1, 0.1, (*shape, 2, 3)) + [[0, 0, 0.35], [0, 0, 0.9]]
    velocity = speed * rng.uniform((-1, -1, -1), (1, 1, 0), (*shape, 2, 3))
    spin = 2 * speed * rng.uniform(-1, 1, (*shape, 2, 3))
    return scene, sp.State(*map(jnp.array, (place, turn, velocity, spin)))
