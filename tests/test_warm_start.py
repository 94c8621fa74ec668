"""Steps from the solutions of those before: the same motion in fewer iterations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import members_of, rolled

import silico_py as sp
from silico_py.solver import Variables
from silico_py.warm_start import remember

STEPS = 60
WARM = sp.SolverOptions(relaxation=1e-6, polish=5)
COLD = dataclasses.replace(WARM, warm_start=False)
SOFT_TO_TIGHT = (1e-3, WARM.relaxation)
SMOOTH = dataclasses.replace(WARM, gradient_relaxation=1e-3)


@pytest.fixture(scope="module")
def thrown():
    """A sphere that flies, lands, slides and rolls."""
    scene, state = sp.scenes.drop("sphere", friction=0.3)
    return scene, dataclasses.replace(state, velocity=jnp.array([[1.0, 0.3, -2.0]]))


@jax.jit
def run(scene, state):
    """The trajectory and the slope of where it ends by where it starts to go."""

    def last(velocity):
        start = dataclasses.replace(state, velocity=velocity)
        trajectory = sp.rollout(scene, start, STEPS, WARM)
        return jnp.sum(trajectory.state.position[-1]), trajectory

    return jax.grad(last, has_aux=True)(state.velocity)[::-1]


def slope_of(slopes):
    """The slope of `run` as a product of those of its steps, first to last."""
    total = np.linalg.multi_dot(slopes[::-1])
    return np.sum(total[:3, 6:9], axis=0)[None]


@pytest.fixture(scope="module")
def cold(thrown):
    """The trajectory alone."""
    return rolled(*thrown, STEPS, warm=False, relaxation=WARM.relaxation, polish=WARM.polish)


@pytest.fixture(scope="module")
def warm(thrown):
    return run(*thrown)


def test_warm_start_leads_to_the_same_motion_in_half_the_iterations(cold, warm):
    expected, (found, _) = cold, warm
    assert found.info.converged.all()
    np.testing.assert_allclose(found.state.position, expected.state.position, atol=1e-9)
    force = expected.info.contacts.force
    np.testing.assert_allclose(found.info.contacts.force, force, atol=1e-6 * np.max(force))
    assert found.info.iterations.sum() < 0.5 * expected.info.iterations.sum()


def test_warm_start_leaves_gradients_alone(thrown, cold, warm):
    """They are a product of the derivatives of its steps, each from no guess."""
    scene, state = thrown
    nothing = sp.no_guess(scene, state, WARM)
    before = [state, *members_of(cold.state)[:-1]]
    slopes = [sp.linearize(scene, at, None, SOFT_TO_TIGHT, WARM, nothing)[0][1] for at in before]
    np.testing.assert_allclose(warm[1], slope_of(slopes), rtol=1e-6)


def test_rollout_passes_on_the_guesses_of_its_steps(thrown, warm):
    scene, state = thrown
    guess = sp.no_guess(scene, state, WARM)
    for k in range(STEPS):
        state, info = sp.step(scene, state, None, WARM, guess)
        assert info.iterations == warm[0].info.iterations[k]
        guess = info.guess
    # The first guess and the others are of one type, or a loop would compile its step twice.
    assert not any(v.weak_type for v in jax.tree.leaves((state, guess)))
    np.testing.assert_allclose(state.position, warm[0].state.position[-1], atol=1e-12)


def test_a_rollout_goes_on_from_the_guess_of_its_first_part(thrown, warm):
    scene, state = thrown
    half = STEPS // 2
    nothing = sp.no_guess(scene, state, WARM)
    first, guess = sp.rollout(scene, state, half, WARM, nothing, with_guess=True)
    middle = first.state[-1]
    second = sp.rollout(scene, middle, half, WARM, guess)
    np.testing.assert_array_equal(second.info.iterations, warm[0].info.iterations[half:])
    np.testing.assert_allclose(second.state.position, warm[0].state.position[half:], atol=1e-12)
    none = jax.eval_shape(lambda: sp.rollout(scene, state, 1, COLD, with_guess=True)[1])
    assert none is None
    with pytest.raises(ValueError, match="guess: options"):
        sp.rollout(scene, middle, 1, COLD, guess)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: sp.scenes.heap(5), sp.SolverOptions(max_contacts=(3, 30))),
        (lambda: sp.scenes.drop("cone"), sp.SolverOptions(method="bilevel")),
        (lambda: sp.scenes.drop("padded_polytope"), SMOOTH),
    ],
)
def test_no_guess_is_of_the_type_of_a_guess(make, options):
    scene, state = make()
    nothing = sp.no_guess(scene, state, options)
    left = jax.eval_shape(lambda: sp.step(scene, state, None, options, nothing)[1].guess)
    assert jax.tree.structure(nothing) == jax.tree.structure(left)
    for none, some in zip(jax.tree.leaves(nothing), jax.tree.leaves(left), strict=True):
        assert (none.shape, none.dtype) == (some.shape, some.dtype) and not np.any(none)


def test_a_guess_of_something_else_is_refused():
    limited = dataclasses.replace(WARM, max_contacts=1)
    drop, stack = sp.scenes.drop("sphere"), sp.scenes.stack(3)
    own, of_stack = sp.no_guess(*drop, WARM), sp.no_guess(*stack, WARM)
    cases = [
        (drop, of_stack, WARM),
        (stack, of_stack, limited),
        (stack, sp.no_guess(*stack, limited), WARM),
        (drop, own, dataclasses.replace(WARM, method="bilevel")),
        (drop, own, SMOOTH),
        (drop, sp.no_guess(*drop, SMOOTH), WARM),
    ]
    for scene, guess, options in cases:
        with pytest.raises(ValueError, match="guess: belongs to another"):
            jax.eval_shape(lambda s=scene, g=guess, o=options: sp.step(*s, options=o, guess=g))


def test_both_relaxations_of_a_smoothed_rollout_start_warm(thrown, cold, warm):
    found = sp.rollout(*thrown, STEPS, SMOOTH)
    assert found.info.converged.all()
    smoother = found.info.iterations - warm[0].info.iterations
    assert (smoother >= 0).all()
    assert smoother.sum() < 0.5 * cold.info.iterations.sum()


def test_linearize_from_the_guess_of_the_step(thrown):
    scene, state = thrown
    nothing = sp.no_guess(scene, state, WARM)
    _, info = sp.step(scene, state, None, WARM, nothing)
    cold, warm = (
        sp.linearize(scene, state, None, SOFT_TO_TIGHT, WARM, guess)
        for guess in (nothing, info.guess)
    )
    for found, expected in zip(warm, cold, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-8 * np.max(np.abs(expected)))


def test_a_loop_of_linearize_is_the_rollout_and_its_slopes(thrown, warm):
    scene, state = thrown
    rho, first = WARM.relaxation, sp.no_guess(*thrown, WARM)

    def advance(before, _):
        state, guess = before
        a, _, state, info = sp.linearize(scene, state, None, rho, WARM, guess, with_step=True)
        return (state, info.guess), (a, state, info)

    slopes, path, info = jax.jit(lambda s: jax.lax.scan(advance, s, length=STEPS)[1])(
        (state, first)
    )
    trajectory, by_velocity = warm
    np.testing.assert_array_equal(info.iterations, trajectory.info.iterations)
    for name in ("position", "angular_velocity"):
        expected = getattr(trajectory.state, name)
        np.testing.assert_allclose(getattr(path, name), expected, atol=1e-10)
    force = trajectory.info.contacts.force
    np.testing.assert_allclose(info.contacts.force, force, atol=1e-7 * np.max(force))
    np.testing.assert_allclose(slope_of(np.asarray(slopes)), by_velocity, rtol=1e-6)


def test_step_without_guess_gives_none(thrown):
    assert jax.eval_shape(lambda: sp.step(*thrown)[1].guess) is None
    assert jax.eval_shape(lambda: sp.rollout(*thrown, 1, WARM).info.guess) is None


@pytest.mark.parametrize(("polish", "force"), [(3, 1e-9), (0, 1e-5)])
def test_blocks_at_rest_take_no_iterations_and_still_feel_a_breath(polish, force):
    scene, state = sp.scenes.stack(2, friction=0.0)
    how = {"relaxation": WARM.relaxation, "polish": polish}
    still = rolled(scene, state, STEPS, **how)
    assert not still.info.iterations[STEPS // 2 :].any()
    rest = jax.tree.map(lambda v: jnp.asarray(v[-1]), still.state)
    control = jnp.zeros((2, 6)).at[1, 0].set(force)
    pushed = rolled(scene, rest, STEPS, control=control, **how)
    mass, seconds = scene.bodies[1].mass, STEPS * float(scene.timestep)
    gained = pushed.state.velocity[-1, 1, 0] - rest.velocity[1, 0]
    np.testing.assert_allclose(gained, force * seconds / mass, rtol=1e-3)


def test_a_polynomial_through_the_last_solutions_leads_on():
    path = [Variables.of(jnp.full((1, 6), value), ()) for value in (1.0, 2.0, 4.0, 7.0)]
    kept, yes = None, jnp.asarray(True)
    for solution in path[:3]:
        kept = remember(solution, yes, [], kept)
    np.testing.assert_array_equal(kept.predictions.y[:, 0, 0], [4, 6, 7])
    lost = remember(path[3], yes, [], kept._replace(usable=~yes))
    np.testing.assert_array_equal(lost.predictions.y[:, 0, 0], [7, 7, 7])


def test_flight_and_rolling_take_a_step_or_two():
    """Where velocities change evenly the solutions before tell the next one."""
    scene, state = sp.scenes.drop("sphere", friction=0.3)
    far = dataclasses.replace(state, velocity=jnp.array([[1.0, 0.3, 3.0]]))
    flight = rolled(scene, far, STEPS // 2, polish=0).info
    assert np.mean(flight.iterations[3:]) <= 2
    rolling = rolled(scene, state, 4 * STEPS, polish=0).info
    assert np.mean(rolling.iterations[-STEPS:]) <= 1


@pytest.mark.parametrize("relaxation", [1e-6, 1e-8])
def test_a_tower_at_rest_is_let_alone_within_rounding(relaxation):
    """Steps that only chase rounding would change each velocity again and again."""
    found = rolled(*sp.scenes.stack(4), 4 * STEPS, relaxation=relaxation)
    velocity = found.state.velocity[-2 * STEPS :]
    alike = np.all(velocity[1:] == velocity[:-1], axis=(1, 2))
    assert np.mean(alike) > 0.9
    drift = found.state.position[-1] - found.state.position[-2 * STEPS]
    assert np.max(np.abs(drift)) < 1e-3 * relaxation
    assert np.max(found.info.residual[-2 * STEPS :]) < 1e-4 * relaxation
