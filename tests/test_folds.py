"""Steps on which Newton's method alone stalls: their central path folds, or leaves no room."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from stepping import stepped, stepped_each

import silico_py as sp
from silico_py import reference

# A cone about to hit the floor, thrown at random; (position, orientation, velocity, spin).
FOLDED = np.array(
    [
        [0.0, 0.0, 0.6295, -0.0593, -0.8237, -0.4456, -0.3456]
        + [0.8688, 0.7747, -1.2129, -0.7742, 0.4102, 0.6957],
        [-0.0233, 0.0114, 0.8481, 0.1911, 0.4573, -0.8442, -0.2041]
        + [-0.2328, 0.1143, -2.0637, -0.948, -0.8834, -0.9002],
        [0.0, 0.0, 0.7406, -0.0326, -0.262, -0.9022, -0.3411]
        + [0.7486, -0.6612, -1.6522, 0.9505, -0.6922, 0.1257],
        [-0.0809, 0.0144, 0.5145, 0.949, -0.2594, 0.179, -0.0001]
        + [-0.8088, 0.1437, -2.6005, 0.3142, 0.8046, 0.5923],
    ]
)

# Others, on each of which the first attempts stall: relaxation and row.
HARD = {
    "cone": (
        1e-4,
        [0.0324, 0.1209, 0.5615, 0.8468, 0.4558, -0.1718, -0.2138]
        + [0.1621, 0.6044, -3.28, 0.7687, -0.4372, 0.9393],
    ),
    "padded_polytope": (
        1e-4,
        [-0.2181, 0.0584, 0.357, 0.2306, 0.6807, -0.6429, 0.2648]
        + [-0.7267, 0.1946, -3.0026, -0.9433, -0.2335, 0.1852],
    ),
}


# A little less friction, or a longer step, and these would slide: shape, frequency and row.
STICKING = {
    "ellipsoid": (
        10,
        [0.0354, -0.1478, 0.3176, 0.4019, -0.7065, -0.423, 0.4006]
        + [0.1771, -0.7388, -3.601, -0.4345, -0.8706, 0.3358],
    ),
    "cone": (
        20,
        [-0.1017, -0.0811, 0.2786, -0.6791, 0.4445, -0.2097, 0.5452]
        + [-0.4961, -0.3883, -1.3208, 1.738, 1.26, 0.0166],
    ),
}


def info_of(shape, rows, relaxation, frequency=10, **limits):
    """Infos of one step from each row."""
    scene, _ = sp.scenes.drop(shape, timestep=1 / frequency)
    position, orientation, velocity, spin = np.split(rows[:, None], [3, 7, 10], axis=-1)
    orientation /= np.linalg.norm(orientation, axis=-1, keepdims=True)
    states = sp.State(*map(jnp.asarray, (position, orientation, velocity, spin)))
    return stepped_each(scene, states, relaxation=relaxation, **limits)[1]


@pytest.mark.parametrize("shape", HARD)
def test_more_attempts_solve_what_the_first_do_not(shape):
    relaxation, row = HARD[shape]
    info = info_of(shape, np.array([row]), relaxation)
    assert np.all(info.converged), info.iterations
    assert np.all(info.iterations > 30), info.iterations
    assert np.all(info.residual <= relaxation / 10)


@pytest.mark.parametrize("relaxation", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("shape", STICKING)
def test_a_body_sticks_where_solutions_that_slide_have_just_ended(shape, relaxation):
    """With less friction alone what is left of these held iterates up for 80 to 118 steps."""
    frequency, row = STICKING[shape]
    info = info_of(shape, np.array([row]), relaxation, frequency, max_iterations=35)
    assert np.all(info.converged), info.iterations
    force, normal = info.contacts.force[0, 0], info.contacts.normal[0, 0]
    along = force @ normal
    assert np.linalg.norm(force - along * normal) < 0.199 * along  # it does stick


def test_folded_steps_converge_to_the_problem_itself():
    info = info_of("cone", FOLDED, 1e-3, max_iterations=30)
    assert np.all(info.converged), info.iterations
    assert np.all(info.residual <= 1e-4)
    # Full Coulomb friction, not the eased one: sliding contacts reach the limit.
    force, normal = info.contacts.force[:, 0], info.contacts.normal[:, 0]
    along = np.sum(force * normal, axis=-1)
    tangential = np.linalg.norm(force - along[:, None] * normal, axis=-1)
    touching = along > 0.1
    assert np.any(touching)
    np.testing.assert_allclose(tangential[touching], 0.2 * along[touching], rtol=0.02)


@pytest.mark.parametrize("relaxation", [1e-6, 1e-8, 1e-10])
def test_faces_that_share_a_load_slide_at_tight_relaxations(relaxation):
    # Two faces of one body on the floor: where each is pressed depends on the ratio of products.
    scene, _ = sp.scenes.drop("bundle", timestep=0.01, friction=0.2)
    turn = 0.44
    state = scene.state(
        position=[[-0.74, 0.2112, 0.08]],
        orientation=[[np.cos(turn / 2), 0, 0, np.sin(turn / 2)]],
        velocity=[[-0.451, 0.0513, 0]],
        angular_velocity=[[0, 0, 0.1927]],
    )
    _, info = stepped(scene, state, relaxation=relaxation, max_iterations=20)
    assert info.converged, info.iterations
    weight = 9.81 * float(scene.bodies[0].mass)
    force = np.sum(info.contacts.force, axis=0)
    np.testing.assert_allclose(force[2], weight, rtol=1e4 * relaxation)
    # Nearly 0.2 of it: each point of a turning body slides in its own direction.
    np.testing.assert_allclose(np.linalg.norm(force[:2]), 0.2 * weight, rtol=0.01)


def test_towers_whose_blocks_move_apart():
    """Many folds in a row: of easing and shorter steps alone three take 89 to 291 iterations."""
    scene, state = sp.scenes.stack(4, timestep=1 / 50)
    velocity = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (16, 4, 3)))
    for moving in velocity:
        _, info = stepped(scene, replace(state, velocity=moving), max_iterations=80)
        assert info.converged, info.iterations


@pytest.mark.parametrize("relaxation", [1e-6, 1e-9])
def test_blocks_at_rest_that_are_struck_at_once(relaxation):
    """Shorter steps are as hard: they solve neither of these. Calmer ones do."""
    scene, state = sp.scenes.stack(4, timestep=1 / 20)
    velocity = np.random.default_rng(4).uniform(-1, 1, (12, 4, 3))[9]
    options = sp.SolverOptions(relaxation=relaxation)
    struck = replace(state, velocity=jnp.asarray(velocity))
    following, info = stepped(scene, struck, relaxation=relaxation)
    assert info.converged, info.iterations
    report = reference.check_step(scene, struck, None, following, info, options)
    assert report.ok, report.failed


@pytest.mark.parametrize("frequency", [10, 15])
def test_a_step_longer_than_many_bodies(frequency):
    """A cube of 1 cm thrown onto another one: free fall would take it ten cubes far in a step."""
    cube = sp.Box(3 * (0.005,))
    bodies = [sp.Body(f"block{k}", cube, mass=1e-3) for k in range(2)]  # as in `scenes.stack`
    scene = sp.Scene(bodies, [sp.scenes.floor()], friction=0.5, timestep=1 / frequency)
    state = scene.state(
        position=[[0.002, 0.001, 0.03], [0, 0, 0.005]],
        orientation=[[0.8, 0.2, 0.4, 0.4], [1, 0, 0, 0]],
        velocity=[[0.1, -0.2, 0.1], [0, 0, 0]],
        angular_velocity=[[2, 1, -3], [0, 0, 0]],
    )
    options = sp.SolverOptions(relaxation=1e-6)
    for _ in range(4):
        following, info = stepped(scene, state)
        assert info.converged, info.iterations
        report = reference.check_step(scene, state, None, following, info, options)
        assert report.ok, report.failed
        state = following
    np.testing.assert_allclose(state.velocity, 0, atol=0.01)
    assert np.all(state.position[:, 2] < 0.03)
