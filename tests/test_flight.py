"""Flat and slender bodies in free flight near a floor: closed form, and the fewest iterations."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from stepping import assembled, stepped, stepped_each, turned

import silico_py as sp
from silico_py import contact
from silico_py.assembly import pair_batches
from silico_py.integrator import next_pose
from silico_py.one_step import motions_of
from silico_py.simulate import checked_control
from silico_py.solver.problem import Easing

SIZE, COUNT, TIMESTEP, RHO = 0.3, 60, 0.01, 1e-6
FLOOR = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)
FLAT = {
    "cone": sp.Cone(SIZE, 0.02 * SIZE),
    "disc": sp.Ellipsoid((SIZE, SIZE, 0.01 * SIZE)),
    "needle": sp.Cone(0.02 * SIZE, SIZE),
    "cigar": sp.Ellipsoid((0.1 * SIZE, 0.1 * SIZE, SIZE)),
    "coin": sp.Cylinder(SIZE, 0.05 * SIZE),
}


def above_floor(timestep, friction, **shapes):
    bodies = [sp.Body(name, [shape], mass=1.0) for name, shape in shapes.items()]
    return sp.Scene(bodies, [FLOOR], timestep=timestep, friction=friction)


def thrown(seed):
    """Tumbling at random heights that its bounding ball keeps above the floor."""
    rng = np.random.default_rng(seed)
    turn = turned(rng, COUNT, 1)
    place = np.zeros((COUNT, 1, 3))
    place[..., 2] = 1.2 * SIZE + rng.uniform(0.05, 1, (COUNT, 1))
    return sp.State(
        jnp.array(place),
        turn,
        jnp.array(rng.normal(size=(COUNT, 1, 3))),
        jnp.array(3 * rng.normal(size=(COUNT, 1, 3))),
    )


@pytest.mark.parametrize(("name", "share"), [("cone", 0.6), ("coin", 0.2)])
def test_long_steps_in_which_flat_bodies_land(name, share):
    """With moments at full share while easing lasts 0.78 and 0.42 of them take more iterations."""
    state, scene = thrown(6), above_floor(0.1, 0.2, **{name: FLAT[name]})
    place, velocity = np.array(state.position), np.array(state.velocity)
    place[..., 2] /= 2
    velocity[..., 2] -= 1
    state = replace(state, position=jnp.array(place), velocity=jnp.array(velocity))
    _, info = stepped_each(scene, state, relaxation=RHO, polish=0)
    assert (info.iterations > 30).mean() < share


@pytest.mark.parametrize(("far", "shallow", "moment"), [(1, 1, 0.05), (0, 1, 1), (1, 0, 1)])
def test_contacts_turn_bodies_less_while_a_step_is_eased_far_from_its_solution(
    far, shallow, moment
):
    scene = above_floor(TIMESTEP, 0.5, coin=FLAT["coin"])
    problem, _ = assembled(scene, scene.state([[0, 0, 0.1]]), RHO)
    touching = problem.groups[0].data._replace(
        shallow=jnp.array([shallow], bool), in_flight=jnp.zeros(1, bool)
    )

    def of(share):
        eased = contact.ease(touching, Easing(jnp.asarray(share), jnp.asarray(far, bool)))
        return float(eased.moment[0]), float(eased.impulse[0] / touching.impulse[0])

    assert of(0.0) == (1, 1)
    for share in (1.0, -1.0):
        np.testing.assert_allclose(of(share), (moment, 0.5 if moment < 1 else 1))
    np.testing.assert_allclose(of(-0.5)[0], moment**0.5)


def test_first_steps_of_a_flat_cone_that_flies_beside_a_box_at_rest():
    scene = above_floor(TIMESTEP, 0.5, box=sp.Box((0.2, 0.2, 0.1)), cone=FLAT["cone"])
    resting = scene.state([[1, 0, 0.1], [0, 0, 0]])
    states = jax.tree.map(
        lambda flying, still: jnp.concatenate([jnp.tile(still[:1], (COUNT, 1, 1)), flying], axis=1),
        thrown(4),
        resting,
    )
    _, info = stepped_each(scene, states, relaxation=1e-3, polish=0)
    assert info.converged.all()
    assert (info.iterations > 30).mean() < 0.1  # all of them before such pairs were known


@pytest.mark.parametrize("name", FLAT)
def test_first_steps_of_flat_bodies_in_flight(name):
    kind = type(FLAT[name]).__name__.lower()  # as in `scenes.drop`: one program for all of a kind
    scene = above_floor(TIMESTEP, 0.5, **{kind: FLAT[name]})
    states = thrown(3)
    after, info = stepped_each(scene, states, relaxation=RHO, polish=0)
    assert info.converged.all()
    assert info.iterations.max() <= 30
    free = states.velocity + TIMESTEP * jnp.array([0, 0, -9.81])
    # What the relaxation pushes at a distance: rho N / (alpha - 1), N up to an inverse thickness.
    np.testing.assert_allclose(after.velocity, free, atol=1e3 * RHO)


@pytest.mark.parametrize("half_side", [0.0025, 0.01, 0.02])
def test_forces_of_rods_fade_where_they_begin_to_fly_apart(half_side):
    """Tilted by 45 degrees above the floor; the start is many of its sides away."""
    half_length, h = 0.5, 0.01
    rod = sp.Box((half_side, half_side, half_length))
    scene = above_floor(h, 0.5, box=rod)
    reach = (half_side + half_length) / np.sqrt(2)
    tilt = [[np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0]]

    def force(scaling):
        height = scaling * reach + 9.81 * h**2  # after free motion at that scaling
        _, info = stepped(scene, scene.state([[0, 0, height]], tilt), relaxation=1e-2, polish=0)
        assert info.converged
        return float(info.contacts.force[0, 2])

    assert force(1.05 - 1e-6) < 1.05 * force(1.05 + 1e-6)
    forces = [force(scaling) for scaling in np.linspace(1, 3, 41)]
    assert all(b < a < 2.5 * b for a, b in pairwise(forces[1:]))


@pytest.mark.parametrize(("timestep", "spin"), [(0.1, 300.0), (0.01, 5e3), (0.001, 3e4)])
def test_bodies_that_spin_by_many_turns_a_step_fly_on(timestep, spin):
    """As accurately as the momentum of such a turn is rounded."""
    scene = sp.Scene([sp.Body("box", sp.Box((0.1, 0.2, 0.3)), mass=2.0)], timestep=timestep)
    for seed in range(5):
        axis = np.random.default_rng(seed).normal(size=3)
        state = scene.state(angular_velocity=[spin * axis / np.linalg.norm(axis)])
        after, info = stepped(scene, state)
        assert info.converged and info.iterations <= 30
        np.testing.assert_allclose(after.velocity, [[0, 0, -9.81 * timestep]], atol=1e-12)


@pytest.mark.parametrize("friction", [0.0, 0.5])
@pytest.mark.parametrize("height", [5.0, 500.0])
def test_a_floor_far_below_hardly_brakes_a_spin(height, friction):
    """What is left are relaxed forces, at the arm of the height."""
    scene = above_floor(TIMESTEP, friction, sphere=sp.Sphere(0.02))
    spin = np.array([[30.0, 20.0, 10.0]])
    state = scene.state([[0, 0, height]], angular_velocity=spin)
    for _ in range(3):
        state, info = stepped(scene, state, relaxation=1e-4)
        assert info.converged and info.iterations <= 40
    np.testing.assert_allclose(state.angular_velocity, spin, rtol=2e-5)


@pytest.mark.parametrize("height", [20.0, 100.0])
def test_small_bodies_far_above_a_floor_in_single_precision(height):
    scene = jax.tree.map(jnp.float32, above_floor(TIMESTEP, 0.5, sphere=sp.Sphere(0.02)))
    state = jax.tree.map(jnp.float32, scene.state([[0, 0, height]], angular_velocity=[[5, 3, 0]]))
    for k in range(3):
        state, info = stepped(scene, state, relaxation=1e-5)
        assert info.converged and info.iterations <= 40
        fallen = [[0, 0, -9.81 * TIMESTEP * (k + 1)]]
        np.testing.assert_allclose(state.velocity, fallen, atol=1e-4)
    np.testing.assert_allclose(state.angular_velocity, [[5, 3, 0]], atol=1e-4)


def motions(scene, state):
    return motions_of(scene, state, checked_control(scene, state, None))


@jax.jit
def flies(scene, state):
    (batch,) = pair_batches(scene, motions(scene, state))
    return contact.flies(batch.contacts.clearance[0])


def test_what_flies_apart_is_apart():
    """Of pairs at random, against their exact scaling after free motion; not all are found."""
    rng = np.random.default_rng(5)
    shapes = FLAT["cone"], sp.Box((0.2, 0.1, 0.15))
    bodies = [sp.Body(f"body {k}", [shape], mass=1.0) for k, shape in enumerate(shapes)]
    scene = sp.Scene(bodies, timestep=0.05, gravity=(0, 0, 0))
    turn = turned(rng, 200, 2)
    place = rng.uniform(-0.4, 0.4, (200, 2, 3))
    speeds = (rng.normal(size=(200, 2, 3)) for _ in range(2))
    states = sp.State(*map(jnp.array, (place, turn, *speeds)))
    found = np.array(jax.vmap(lambda s: flies(scene, s))(states))
    position, orientation = jax.jit(jax.vmap(lambda s: drifted(scene, s)))(states)

    def scaling(p, q):
        return sp.collide(shapes[0], (p[0], q[0]), shapes[1], (p[1], q[1])).alpha

    alpha = np.array(jax.jit(jax.vmap(scaling))(position, orientation))
    assert (alpha[found] > 1).all()
    assert found.sum() > 0.5 * (alpha > 1).sum()


def drifted(scene, state):
    """Where the bodies are after a step in which nothing pushes."""
    y = jnp.concatenate([state.velocity, state.angular_velocity], axis=1)
    return next_pose(y, motions(scene, state))


def test_bodies_that_pass_through_each_other_are_not_apart():
    bodies = [sp.Body(name, sp.Sphere(0.1), mass=1.0) for name in "ab"]
    scene = sp.Scene(bodies, timestep=0.1, gravity=(0, 0, 0))
    for height, apart in ((0.1, False), (0.3, True)):
        rushing = scene.state(
            position=[[0, 0, 0], [1, 0, height]], velocity=[[10, 0, 0], [-10, 0, 0]]
        )
        assert bool(flies(scene, rushing)) == apart


@pytest.mark.parametrize("torque", [1e3, 1e4])
def test_a_large_torque_spins_a_body_up(torque):
    """From rest, about a principal axis: (1 + (h w)^2 / 4) J w = h torque."""
    scene = sp.Scene([sp.Body("box", sp.Box((0.1, 0.2, 0.3)), mass=1.0)], gravity=(0, 0, 0))
    following, info = stepped(scene, scene.state(), [[0.0, 0, 0, 0, 0, torque]])
    assert bool(info.converged)
    h, moment = 0.01, float(scene.bodies[0].inertia[2, 2])
    speed = np.roots([h**2 / 4, 0.0, 1.0, -h * torque / moment])
    expected = speed[np.isreal(speed)].real.item()
    spin = following.angular_velocity[0]
    np.testing.assert_allclose(spin, [0, 0, expected], rtol=1e-10, atol=1e-9)


def test_torques_and_springs_turn_about_axes_of_the_world():
    """From rest, a body that is turned: so little that (J + h^2 K) w = h torque, in the world."""
    h, turn = 0.01, Rotation.from_euler("xyz", [0.4, -0.7, 1.1])
    torque, stiffness = np.array([2e-4, -1e-4, 3e-4]), np.array([0.0, 0.0, 500.0])
    for springs in (0 * stiffness, stiffness):
        body = sp.Body("box", sp.Box((0.1, 0.2, 0.3)), 1.0, stiffness=[0, 0, 0, *springs])
        scene = sp.Scene([body], timestep=h, gravity=(0, 0, 0))
        state = scene.state(orientation=[turn.as_quat(scalar_first=True)])
        given = np.where(springs > 0, 1e-4, torque)  # a displacement where there is a spring
        following, info = stepped(scene, state, [[0, 0, 0, *given]])
        assert info.converged
        axes = turn.as_matrix()
        inertia = axes @ np.asarray(body.inertia) @ axes.T
        pushed = h * np.where(springs > 0, springs * given, given)
        expected = np.linalg.solve(inertia + h**2 * np.diag(springs), pushed)
        found, size = axes @ following.angular_velocity[0], np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * size)


@pytest.mark.parametrize("shape", [sp.Box((0.3, 0.2, 0.005)), sp.Box((0.01, 0.01, 0.01))])
def test_what_comes_from_afar_overlaps_no_more_than_the_rest(shape):
    """A body that falls many of its sizes in one step, against its exact scaling afterwards."""
    rng, count = np.random.default_rng(7), 40
    size, scene = 3 * float(shape.half_extents[1]), above_floor(0.1, 0.3, box=shape)
    turn = turned(rng, count, 1)
    place, speed = np.zeros((2, count, 1, 3))
    place[..., 2] = 20 * size
    speed[..., 2] = -20 * size / scene.timestep
    states = sp.State(*map(jnp.array, (place, turn, speed, rng.normal(size=(count, 1, 3)))))

    after, info = stepped_each(scene, states, relaxation=RHO, polish=0)
    assert info.converged.all()
    ground = jnp.zeros(3), jnp.array([1.0, 0, 0, 0])
    poses = zip(after.position[:, 0], after.orientation[:, 0], strict=True)
    found = np.array([1 - sp.collide(shape, pose, FLOOR, ground).alpha for pose in poses])
    assert found.max() < 4 * RHO
    assert found.max() > -10 * RHO  # some touch
