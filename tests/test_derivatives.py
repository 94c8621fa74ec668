"""Derivatives of a step against central differences and closed forms."""

import dataclasses
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from stepping import assembled, members_of, rolled, stacked, stepped, thrown

import silico_py as sp
from silico_py.assembly import pair_batches
from silico_py.contact_jacobian import SINGLE_LEVEL
from silico_py.one_step import motions_of
from silico_py.simulate import checked_control
from silico_py.solver.problem import forward_jacobian
from silico_py.tangents import difference, perturb

# Of central differences: what polishing leaves shows below, curvature above.
H = {1e-3: 1e-5, 1e-6: 1e-6, 1e-9: 1e-7}
# Largest relative error of a column: the smaller the relaxation, the larger that of differences.
LIMITS = {1e-3: 1e-5, 1e-6: 1e-4, 1e-9: 1e-3}


def derivative(scene, state, rho):
    return sp.linearize(scene, state, smoothing=rho)


moved = jax.jit(jax.vmap(perturb, in_axes=(None, 0)))


def differenced(scene, state, rho, of_controls=1):
    """Central differences of the step: A and B, the latter over so many times `H`."""
    n = len(scene.bodies)
    sizes = H[rho] * np.tile(np.repeat([1, of_controls], [12, 6]), n)
    changes = np.diag(sizes).reshape(18 * n, n, 18)
    changes = np.concatenate([changes, -changes, 0 * changes[:1]])
    starts = members_of(moved(state, changes[..., :12]))
    ends = stacked(
        [
            stepped(scene, start, control, relaxation=rho)[0]
            for start, control in zip(starts, changes[..., 12:], strict=True)
        ]
    )
    base = ends[-1]
    ends = jax.vmap(lambda end: difference(end, base).ravel())(ends)
    slopes = (ends[: 18 * n] - ends[18 * n : -1]) / (2 * sizes[:, None])
    slopes = np.moveaxis(np.asarray(slopes).reshape(n, 18, 12 * n), -1, 0)
    return slopes[..., :12].reshape(12 * n, -1), slopes[..., 12:].reshape(12 * n, -1)


def in_both_modes(function):
    """(value, Jacobian in forward mode, and in reverse mode) by the first argument.

    One program, in which the search for a step is compiled once.
    """

    @jax.jit
    def all_three(at, *others):
        value, push = jax.linearize(lambda at: function(at, *others), at)
        pull = jax.linear_transpose(push, at)
        forward = jax.vmap(push, out_axes=-1)(jnp.eye(at.size))
        weights = jnp.eye(value.size).reshape(-1, *value.shape)
        reverse = jax.vmap(lambda row: pull(row)[0])(weights)
        return value, forward, reverse.reshape(forward.shape)

    return all_three


def worst_column(found, expected):
    error = np.abs(np.asarray(found) - expected).max(axis=0)
    return (error / np.abs(expected).max(axis=0)).max()


def states_of(scene, state, steps):
    trajectory = rolled(scene, state, steps)
    return lambda k: jax.tree.map(lambda v: jnp.asarray(v[k]), trajectory.state)


@pytest.fixture(scope="module")
def drop():
    scene, state = sp.scenes.drop("box")
    return scene, states_of(scene, state, 90)


@pytest.mark.parametrize("rho", LIMITS)
@pytest.mark.parametrize("k", [5, 24, 40, 60, 89])
def test_linearize_agrees_with_differences(drop, rho, k):
    scene, state = drop
    a, b = derivative(scene, state(k), rho)
    expected = differenced(scene, state(k), rho)
    assert worst_column(a, expected[0]) < LIMITS[rho]
    assert worst_column(b, expected[1]) < LIMITS[rho]


@pytest.mark.parametrize("rho", LIMITS)
def test_linearize_of_a_body_that_starts_in_the_floor(drop, rho):
    scene, state = drop
    turn = sp.rotation.normalize(jnp.array([[1.0, 0.2, -0.1, 0.3]]))
    state = dataclasses.replace(state(5), position=jnp.array([[0, 0, 0.1]]), orientation=turn)
    following, _ = stepped(scene, state, relaxation=rho)
    assert following.velocity[0, 2] > 12  # it is in larger units of speed
    found, expected = derivative(scene, state, rho), differenced(scene, state, rho)
    assert max(map(worst_column, found, expected)) < LIMITS[rho]


def test_linearize_of_two_bodies():
    """That hit each other at once, in larger units of speed, and that have come to rest."""
    scene, first = thrown(speed=5.0, seed=1)
    _, info = stepped(scene, first, relaxation=1e-3)
    assert float(info.contacts.alpha.min()) < 1.1
    last = states_of(scene, first, 40)(39)
    for state, (rho, limit) in product((first, last), LIMITS.items()):
        a, b = derivative(scene, state, rho)
        expected = differenced(scene, state, rho, of_controls=10)
        assert worst_column(a, expected[0]) < limit
        assert worst_column(b, expected[1]) < limit


@pytest.mark.parametrize("half_extents", [(0.3, 0.2, 0.002), (0.01, 0.01, 0.5)])
def test_linearize_of_thin_bodies_that_start_many_sizes_away(half_extents):
    body = sp.Body("box", sp.Box(half_extents=half_extents), mass=1.0)
    floor = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)
    scene = sp.Scene([body], [floor], timestep=0.02)
    turn = sp.rotation.normalize(jnp.array([[1.0, 0.05 if half_extents[2] < 0.1 else 0.9, 0, 0]]))
    state = scene.state([[0, 0, 20 * min(half_extents)]], turn, [[0.3, 0, -0.5]], [[0.1, 0.2, 0]])
    slack_unit = assembled(scene, state, 1e-3)[0].groups[0].data.slack_unit
    assert slack_unit >= 2  # it is in units of its own
    found, expected = derivative(scene, state, 1e-3), differenced(scene, state, 1e-3)
    assert max(map(worst_column, found, expected)) < LIMITS[1e-3]


@pytest.mark.parametrize("turning", [False, True])
@pytest.mark.parametrize("name", ["padded_polytope", "minkowski_sum", "two bodies"])
def test_hand_derived_blocks_agree_with_forward_mode(name, turning):
    scene, state = sp.scenes.collision() if name == "two bodies" else sp.scenes.drop(name)
    if turning:
        scene = dataclasses.replace(scene, torsional_radius=0.3, rolling_radius=0.2)
    rng = np.random.default_rng(0)
    problem, w = assembled(scene, state, 1e-6)
    group, cell = problem.groups[0], w.cells[0]
    y = 3 * rng.normal(size=(group.nodes.shape[1], 6))
    x = cell.x[0] + rng.normal(size=cell.x[0].shape)
    z = cell.dual[0] * rng.uniform(0.5, 2, cell.dual[0].shape)
    data = jax.tree.map(lambda v: v[0], group.data)._replace(moment=jnp.asarray(0.3))
    found = jax.jit(SINGLE_LEVEL.jacobian)(y, x, z, data, jnp.zeros(()))
    by_jax = partial(forward_jacobian, group.function, group.split)
    expected = jax.jit(by_jax)(y, x, z, data)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), found, expected)


def test_linearize_of_a_frame_away_from_the_centre_of_mass():
    shape = sp.Box(half_extents=(0.2, 0.3, 0.25))
    body = sp.Body("box", shape, mass=1.2, center_of_mass=(0.05, -0.1, 0.08))
    scene = sp.Scene([body], [sp.HalfSpace(normal=(0, 0, 1), offset=0.0)], friction=0.4)
    turn = sp.rotation.normalize(jnp.array([[0.9, 0.3, -0.2, 0.25]]))
    state = scene.state([[0.1, 0.2, 0.4]], turn, [[0.5, -0.3, -1.0]], [[2.0, -1.0, 1.5]])
    found, expected = derivative(scene, state, 1e-3), differenced(scene, state, 1e-3)
    assert max(map(worst_column, found, expected)) < LIMITS[1e-3]


def test_several_smoothings_are_the_single_ones(drop):
    scene, state = drop
    rhos = (1e-2, 1e-4, 1e-6)
    several = jax.jit(lambda s: sp.linearize(scene, s, smoothing=rhos))(state(60))
    for k, rho in enumerate(rhos):
        for found, alone in zip(several, derivative(scene, state(60), rho), strict=True):
            np.testing.assert_allclose(found[k], alone, rtol=0, atol=1e-6 * np.abs(alone).max())


def flat(state):
    return jnp.concatenate([v.ravel() for v in jax.tree.leaves(state)])


def with_parameters(theta):
    """A box drop as a function of everything that a scene is made of."""
    mass, friction, height, step, *half = theta
    body = sp.Body("box", sp.Box(half_extents=jnp.stack(half)), mass=mass)
    floor = sp.HalfSpace(normal=(0, 0, 1), offset=height)
    gravity = jnp.stack([0.3, 0.0, -9.81 * mass])
    return sp.Scene([body], [floor], timestep=step, friction=friction, gravity=gravity)


THETA = jnp.array([1.3, 0.2, 0.01, 0.012, 0.25, 0.2, 0.3])


def numbers_of(scene, state):
    """All numbers of state and control, quaternions of any length among them, and their places."""
    state = dataclasses.replace(state, orientation=1.2 * state.orientation)
    return ravel_pytree((state, jnp.full((len(scene.bodies), 6), 0.1)))


def numbers_after(scene, state, control, rho, step=sp.step):
    """Numbers of state and forces after a step."""
    following, info = step(scene, state, control, sp.SolverOptions(relaxation=rho))
    return ravel_pytree((following, info.contacts.force / 100))[0]


def by_shared_program(scene, state, control, options):
    state = dataclasses.replace(state, orientation=sp.rotation.normalize(state.orientation))
    return stepped(scene, state, control, relaxation=options.relaxation)


@pytest.fixture(scope="module")
def by_numbers(drop):
    """A step as a function of all numbers of scene, state and control, its derivatives, where."""
    start, whole = numbers_of(drop[0], drop[1](60))

    def outcome(numbers, rho, step=sp.step):
        theta, rest = jnp.split(numbers, [len(THETA)])
        return numbers_after(with_parameters(theta), *whole(rest), rho, step)

    return outcome, in_both_modes(outcome), jnp.append(THETA, start)


@pytest.mark.parametrize("rho", LIMITS)
def test_derivatives_by_all_numbers_in_both_modes(by_numbers, rho):
    outcome, derivatives, at = by_numbers
    # With less of the parameters the error is that of the differences: it grows as 1 / h.
    h = np.diag(np.append(5e-4 * THETA, np.full(len(at) - len(THETA), H[rho])))
    ends = np.stack([outcome(at + s * e, rho, by_shared_program) for s in (1, -1) for e in h])
    expected = (ends[: len(h)] - ends[len(h) :]).T / (2 * np.diag(h))
    _, forward, reverse = derivatives(at, rho)
    assert worst_column(reverse, expected) < LIMITS[rho]
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-11 * np.abs(reverse).max())


# Uneven, so that what is found of its faces stays as it is where the corners move a little.
TENT = np.array([(0.2, 0.2, 0), (0.22, -0.18, 0), (-0.2, 0.17, 0), (0.1, 0, 0.3)])
SHAPE_PARAMETERS = {
    "radii": np.array([0.3, 0.2, 0.15]),
    "capsule": np.array([0.1, 0.3]),
    "offset": np.array([0.35, 0.05, 0.1]),
    "turn": np.array([0.2, -0.3, 0.4]),
    "rows": np.array(
        [[1, 0.1, 0.2], [-1, 0.2, 0.1], [0.1, 1, 0], [0, -1, 0.2], [0, 0.1, 1], [0, 0, -1]]
    ),
    "heights": np.array([0.1, 0.12, 0.1, 0.1, 0.11, 0.14]),
    "corners": TENT,
    "mass": np.array([1.5]),
    "inertia": np.array([0.02, 0.03, 0.04]),
    "gravity": np.array([0.3, 0.1, -9.0]),
    "friction": np.array([0.4]),
    "timestep": np.array([0.01]),
    "floor": np.array([0.0]),
}


def by_shapes(p, rho):
    """A body of four pieces that lie on the floor together, after a step."""
    capsule = sp.Capsule(radius=p["capsule"][0], length=p["capsule"][1])
    turn = sp.rotation.cayley(jnp.asarray(p["turn"]))
    up = jnp.array([1.0, 0, 0, 0])
    pieces = [
        (sp.Ellipsoid(radii=p["radii"]), jnp.array([0, 0, 0.15]), up),
        (capsule, p["offset"], sp.rotation.normalize(turn)),
        (sp.Polytope(p["rows"], p["heights"]), jnp.array([0, 0.4, 0.14]), up),
        (sp.Polytope.from_vertices(p["corners"]), jnp.array([-0.3, -0.3, 0.0]), up),
    ]
    inertia = jnp.diag(p["inertia"])
    mass, friction, timestep, height = (
        p[name][0] for name in ("mass", "friction", "timestep", "floor")
    )
    body = sp.Body("all", pieces, mass=mass, inertia=inertia, center_of_mass=(0.05, 0.0, 0.1))
    floor = sp.HalfSpace(normal=(0, 0, 1), offset=height)
    scene = sp.Scene([body], [floor], timestep, friction, p["gravity"])
    state = scene.state(position=[[0, 0, 0.002]], velocity=[[0.4, -0.2, -0.3]])
    following, info = sp.step(scene, state, options=sp.SolverOptions(relaxation=rho))
    assert isinstance(info.converged, jax.core.Tracer) or info.converged
    return flat(following)


@pytest.mark.slow
def test_derivatives_by_every_shape_parameter():
    for name in SHAPE_PARAMETERS:
        check_the_derivative_by(name)


def check_the_derivative_by(name):
    rho, h = 1e-3, 1e-6
    direction = np.random.default_rng(0).normal(size=SHAPE_PARAMETERS[name].shape)
    # All parameters are differentiated, most along zero: one compilation serves all names.
    tangents = {key: np.zeros_like(value) for key, value in SHAPE_PARAMETERS.items()}
    tangents[name] = direction / np.abs(direction).max()

    def at(t):
        values = {key: value + t * tangents[key] for key, value in SHAPE_PARAMETERS.items()}
        return jax.jvp(lambda p: by_shapes(p, rho), (values,), (tangents,))

    (_, found), (ahead, _), (behind, _) = (at(t) for t in (0.0, h, -h))
    expected = (ahead - behind) / (2 * h)
    assert np.abs(expected).max() > 1e-3, name
    atol = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=name)


DIRECTION = jnp.array([[0.5, -1.0, 2.0]])


def thrown_above(scene, rng):
    """A state at random."""
    turn, place, height = rng.normal(size=4), rng.normal(size=2), rng.uniform(0.05, 0.35)
    return scene.state(
        [[*0.1 * place, height]],
        [turn / np.linalg.norm(turn)],
        [rng.normal(size=3)],
        [2 * rng.normal(size=3)],
    )


@pytest.mark.parametrize("relaxation", [1e-3, 1e-6])
@pytest.mark.parametrize("friction", [0.0, 1e-4])
def test_steps_with_hardly_any_friction_are_polished(friction, relaxation):
    """What friction may carry is then less than the tolerance of the row that says so."""
    scene, _ = sp.scenes.drop("sphere", friction=friction)
    for height in np.linspace(0.25, 0.3, 21):
        state = scene.state([[0, 0, height]], None, [[0.7, -0.4, -1.0]], [[1.0, 2.0, 0.5]])
        _, info = stepped(scene, state, relaxation=relaxation)
        assert info.converged
        assert max(info.residual, info.complementarity) < 1e-6 * relaxation, height


def test_no_derivative_depends_on_the_length_of_a_quaternion():
    """Of poses that are parameters: fixed shapes, pieces, and those that `collide` is given."""
    turns = [sp.rotation.about(axis, 0.4) for axis in np.eye(3)]
    pair = sp.Bundle([(sp.Box((0.1, 0.2, 0.1)), (x, 0, 0), turns[0]) for x in (0.0, 0.3)])
    both = sp.Bundle([(pair, (0, 0, 0), turns[1]), (sp.Sphere(0.1), (0, 0, 0.2), turns[2])])
    scene = sp.Scene([sp.Body("both", both, mass=1.0)], [(sp.Box((1, 1, 1)), (0, 0, -1), turns[0])])
    state = scene.state()

    def of_scene(scene):
        applied = checked_control(scene, state, None)
        batches = pair_batches(scene, motions_of(scene, state, applied))
        contacts = [side for batch in batches for side in (batch.contacts.a, batch.contacts.b)]
        found = jax.tree.leaves([(side.position, side.rotation) for side in contacts])
        inertia = scene.bodies[0].shapes.mass_properties().inertia
        return sum(jnp.sum(jnp.sin(v)) for v in (*found, inertia))

    def of_pose(q):
        place = (0.1, 0.3, 0.3), turns[1]
        return sp.collide(sp.Box((0.2, 0.1, 0.1)), ((0, 0, 0), q), sp.Cone(0.2, 0.3), place).alpha

    slopes = jax.jit(jax.grad(of_scene))(scene)
    outer, own = scene.bodies[0].shapes, slopes.bodies[0].shapes
    for q, slope in (
        (scene.environment[0].orientation, slopes.environment[0].orientation),
        (outer.orientations, own.orientations),
        (outer.shapes[0].orientations, own.shapes[0].orientations),
        (turns[0], jax.grad(of_pose)(turns[0])),
    ):
        assert np.abs(slope).max() > 0.1
        np.testing.assert_allclose(np.sum(np.multiply(q, slope), axis=-1), 0, atol=1e-12)


@pytest.mark.slow
def test_derivatives_by_a_polytope_whose_faces_are_nearly_free():
    """Forward and reverse mode where several faces share a contact, at the usual relaxation."""
    normals = np.array([[1, 0, 0.1], [-1, 0.2, 0], [0, 1, -0.1], [0.1, -1, 0], [0, 0.1, 1]])
    normals = np.concatenate([normals, [[0.05, 0, -1.0]]])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    up = np.array([0.2, 0.1, 1.0]) / np.linalg.norm([0.2, 0.1, 1.0])
    shape = sp.Polytope(normals, np.array([0.2, 0.22, 0.25, 0.21, 0.15, 0.18]))
    whole = sp.Body("polytope", shape, mass=1.3)
    scene = sp.Scene([whole], [sp.HalfSpace(up, -0.05)], timestep=0.02, friction=0.4)
    rng = np.random.default_rng(0)
    drops = [thrown_above(scene, rng) for _ in range(91)]
    states = [drops[k] for k in (25, 41, 74, 90)]
    leaves, tree = jax.tree.flatten(scene)
    (place,) = (k for k, leaf in enumerate(leaves) if leaf is shape.b)

    def velocity(offsets, state):
        here = tree.unflatten([*leaves[:place], offsets, *leaves[place + 1 :]])
        after, _ = sp.step(here, state)
        return jnp.concatenate([after.velocity[0], after.angular_velocity[0]])

    program = partial(jax.jit, compiler_options=sp.compiler_options())
    push = program(
        lambda state, change: jax.jvp(lambda b: velocity(b, state), (shape.b,), (change,))[1]
    )
    pull = program(lambda state: jax.jacrev(velocity)(shape.b, state))
    for state in states:
        assert sp.step(scene, state)[1].converged
        forward = np.stack([push(state, e) for e in np.eye(6)], axis=1)
        largest = np.abs(forward).max()
        np.testing.assert_allclose(pull(state), forward, atol=1e-6 * largest)


@pytest.mark.slow
def test_second_derivatives_of_a_rollout(drop):
    """In reverse mode through its loop, against differences."""
    scene, state = drop

    def loss(velocity, rho):
        start = dataclasses.replace(state(60), velocity=velocity)
        options = sp.SolverOptions(relaxation=rho)
        return jnp.sum(flat(sp.rollout(scene, start, 2, options).state) ** 2)

    @jax.jit
    def both(velocity, rho):
        return jax.jvp(lambda v: jax.grad(loss)(v, rho), (velocity,), (DIRECTION,))

    velocity, h = state(60).velocity, 1e-5
    for rho in (1e-2, 1e-3):
        _, found = both(velocity, rho)
        ahead, behind = (both(velocity + s * h * DIRECTION, rho)[0] for s in (1, -1))
        expected = (ahead - behind) / (2 * h)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_the_derivative_of_a_step_has_derivatives(drop):
    """By state, scene and smoothing, in both modes."""
    scene, state = drop
    weights = np.random.default_rng(1).normal(size=(12, 18))

    def entries(numbers):
        velocity, friction, rho = numbers[:3], numbers[3], 1e-2 * jnp.exp(numbers[4])
        start = dataclasses.replace(state(60), velocity=velocity[None])
        changed = dataclasses.replace(scene, friction=friction)
        a, b, following, _ = sp.linearize(changed, start, smoothing=rho, with_step=True)
        total = jnp.sum(weights * jnp.concatenate([a, b], axis=1)) + following.position.sum()
        return jnp.append(total, following.position)

    start = jnp.append(state(60).velocity[0], jnp.array([scene.friction, 0.0]))
    run, h = in_both_modes(entries), 1e-5 * np.eye(5)
    expected = np.array([run(start + e)[0][0] - run(start - e)[0][0] for e in h]) / 2e-5
    assert np.abs(expected).min() > 1e-3
    by_state = derivative(scene, state(60), 1e-2)[0]
    for found in run(start)[1:]:
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        # The next state is at the same relaxation: its derivative is in the matrix.
        np.testing.assert_allclose(found[1:, :3], by_state[:3, 6:9], rtol=1e-9, atol=1e-15)


@pytest.mark.slow
def test_derivatives_by_the_numbers_of_two_bodies_in_both_modes():
    scene, state = sp.scenes.collision()
    start, whole = numbers_of(scene, states_of(scene, state, 25)(24))

    def after(numbers, step=sp.step):
        return numbers_after(scene, *whole(numbers), 1e-3, step)

    h = 1e-5 * np.eye(len(start))
    ends = np.stack([after(at, by_shared_program) for at in (*(start + h), *(start - h))])
    expected = (ends[: len(h)] - ends[len(h) :]).T / 2e-5
    _, forward, reverse = in_both_modes(after)(start)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(reverse, expected, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-11 * scale)


@pytest.mark.slow
def test_gradient_relaxation_by_the_numbers_of_a_state(drop):
    """In reverse mode as in forward mode, and as in a batch together with a parameter."""
    scene, state = drop
    start, whole = numbers_of(scene, state(24))
    options = sp.SolverOptions(relaxation=1e-6, gradient_relaxation=1e-3)

    def mixed(numbers, friction=scene.friction):
        changed = dataclasses.replace(scene, friction=friction)
        following, info = sp.step(changed, *whole(numbers), options)
        return jnp.sum(jnp.sin(flat(following))) + jnp.sum(jnp.sin(info.contacts.force / 100))

    _, forward, found = in_both_modes(mixed)(start)
    exact = partial(np.testing.assert_allclose, rtol=0, atol=1e-11 * np.abs(found).max())
    exact(forward, found)
    slopes = jax.jit(jax.vmap(jax.grad(mixed, (0, 1)), (0, None)))
    several = jnp.stack([start, start + 1e-9, start])
    for slope in slopes(several, jnp.asarray(scene.friction))[0][::2]:
        exact(slope, found)


def test_the_gradient_of_a_batch_is_that_of_its_members(drop):
    """By what differs between them and by what they share."""
    scene, state = drop
    members = stacked([state(24), state(60)])

    def loss(state, friction):
        after = sp.step(dataclasses.replace(scene, friction=friction), state)[0]
        return jnp.sum(jnp.sin(after.velocity)) + jnp.sum(after.angular_velocity**2)

    def total(states, friction):
        return jnp.sum(jax.vmap(loss, (0, None))(states, friction))

    by_states, by_friction = jax.jit(jax.grad(total, (0, 1)))(members, 0.2)
    alone = jax.jit(jax.grad(loss, (0, 1)))
    each = [alone(member, 0.2) for member in members_of(members)]
    together, apart = flat(by_states), flat(stacked([own for own, _ in each]))
    np.testing.assert_allclose(together, apart, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(by_friction, sum(own for _, own in each), rtol=1e-6)


def test_gradient_relaxation_is_the_derivative_at_that_relaxation(drop):
    scene, state = drop
    base = state(60)

    @jax.jit
    def mixed(velocity, smooth):
        def step(velocity):
            start = dataclasses.replace(base, velocity=velocity)
            following, info = sp.step(scene, start, options=sp.SolverOptions(1e-6, smooth))
            found = following.velocity[0], info.contacts.force[0]
            return found, (following.velocity, info._replace(contacts=None))

        return jax.jacfwd(step, has_aux=True)(velocity)

    (slope, pushed), (value, info) = mixed(base.velocity, 1e-3)
    (tight, alone), (_, smoother) = (stepped(scene, base, relaxation=rho) for rho in (1e-6, 1e-3))
    tight = tight.velocity
    np.testing.assert_allclose(value, tight, atol=1e-12)
    smooth = derivative(scene, base, 1e-3)[0][6:9, 6:9]
    np.testing.assert_allclose(slope[:, 0], smooth, rtol=0, atol=1e-8)
    assert info.converged and info.iterations == alone.iterations + smoother.iterations
    # What the velocity gains is the impulse of the contact, in derivatives too.
    np.testing.assert_allclose(pushed[:, 0], (slope[:, 0] - np.eye(3)) / 0.01, atol=1e-9)
    # Nothing is found at the other relaxation here: the step is right, its derivative is not.
    _, (value, info) = mixed(base.velocity, 1e4)
    np.testing.assert_allclose(value, tight, atol=1e-12)
    assert not info.converged and info.status == sp.Status.MAX_ITERATIONS


@pytest.mark.slow
def test_derivatives_by_the_relaxations(drop):
    """What is found follows the first one; where it is differentiated the other, which changes the
    derivatives alone."""
    scene, state = drop
    start = dataclasses.replace(state(60), velocity=state(60).velocity + 0.1)

    def speed(velocity, *relaxations):
        options = sp.SolverOptions(*relaxations, polish=10)
        moving = dataclasses.replace(start, velocity=velocity)
        return jnp.sin(sp.step(scene, moving, options=options)[0].velocity[0, 2])

    @jax.jit
    def slopes(smooth):
        gradient = lambda rho: jax.grad(speed, (0, 1, 2))(start.velocity, 1e-4, rho)  # noqa: E731
        return jax.jvp(gradient, (smooth,), (1.0,))

    h = 1e-5
    (_, by_first, by_other), (found, _, _) = slopes(1e-2)
    ahead, behind = (
        np.sin(stepped(scene, start, relaxation=1e-2 + s * h, polish=10)[0].velocity[0, 2])
        for s in (1, -1)
    )
    tight = np.cos(stepped(scene, start, relaxation=1e-4, polish=10)[0].velocity[0, 2])
    smooth = np.cos(stepped(scene, start, relaxation=1e-2, polish=10)[0].velocity[0, 2])
    np.testing.assert_allclose(by_first / tight * smooth, (ahead - behind) / (2 * h), rtol=1e-6)
    assert by_other == 0
    expected = (slopes(1e-2 + h)[0][0] - slopes(1e-2 - h)[0][0]) / (2 * h)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_free_flight_in_closed_form(drop):
    scene, h = dataclasses.replace(drop[0], timestep=jnp.asarray(0.02)), 0.02
    state = dataclasses.replace(drop[1](5), position=jnp.array([[0.0, 0.0, 50.0]]))
    a, b = derivative(scene, state, 1e-6)
    mass = float(scene.bodies[0].mass)
    np.testing.assert_allclose(a[:3, :3], np.eye(3), atol=1e-6)
    np.testing.assert_allclose(a[:3, 6:9], h * np.eye(3), atol=1e-6)
    np.testing.assert_allclose(b[6:9, :3], h / mass * np.eye(3), atol=1e-6)
    np.testing.assert_allclose(b[:3, :3], h**2 / mass * np.eye(3), atol=1e-6)


def on_the_floor(push, friction=0.5, rho=1e-6):
    """Derivative of the velocity of a box at rest by a horizontal push along x, after a push."""
    body = sp.Body("box", sp.Box(half_extents=(0.25, 0.25, 0.25)), mass=2.0)
    floor = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)
    scene = sp.Scene([body], [floor], timestep=0.01, friction=friction)
    state = scene.state(position=[[0.0, 0.0, 0.25]], velocity=[[push, 0.0, 0.0]])
    return derivative(scene, state, rho)[1][6, 0]


def test_a_sticking_box_does_not_answer_a_push():
    assert abs(on_the_floor(0.0)) < 1e-5


def test_a_sliding_box_answers_with_its_mass():
    # Before the push takes its part, friction has 0.05 m/s to take away a step.
    assert float(on_the_floor(1.0)) == pytest.approx(0.01 / 2.0, rel=1e-3)


def test_the_derivative_of_a_step_that_fails_is_none(drop):
    """Out of steps, or from a velocity that is none."""
    scene, state = drop
    few = sp.SolverOptions(max_iterations=2)
    lost = dataclasses.replace(state(5), velocity=jnp.nan * state(5).velocity)
    for case in (sp.linearize(scene, state(5), options=few), sp.linearize(scene, lost)):
        assert all(jnp.isnan(matrix).all() for matrix in case)


def test_smoothing_must_be_positive(drop):
    scene, state = drop
    with pytest.raises(ValueError, match="smoothing"):
        sp.linearize(scene, state(5), smoothing=-1.0)
