"""Pairs left out of a step: what they would have done, derivatives, and when a step says so."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import CONVEX, SHAPES, SOLIDS
from stepping import assembled, nothing_known

import silico_py as sp
from silico_py import broad_phase, rotation
from silico_py.assembly import kinds_of, pair_batches
from silico_py.collision_program import Piece, SlackMap, pair_length
from silico_py.one_step import motions_of
from silico_py.solver import Variables
from silico_py.tangents import difference, perturb

RHO = 1e-3
FEWEST = 2  # of each kind that act in `balls`


@pytest.fixture(scope="module")
def balls():
    """One ball on the floor, one close above it, one whose forces on ball and floor fade."""
    bodies = [sp.Body(f"ball{k}", sp.Sphere(radius=0.2), mass=1.0 + k) for k in range(4)]
    scene = sp.Scene(bodies, [sp.HalfSpace((0, 0, 1), 0)], timestep=0.05, friction=0.3)
    state = scene.state(
        position=[[0, 0, 0.2], [0.05, 0.02, 0.62], [0.468, 0, 0.28], [-0.3, 0.4, 0.4]],
        velocity=[[0.1, 0, 0], [0, 0, 0.3], [0.2, 0.3, 0], [0, 0, 1.0]],
        angular_velocity=[[1.0, 2.0, 3.0]] * 4,
    )
    return scene, state


def options(most, relaxation=RHO):
    return sp.SolverOptions(relaxation=relaxation, max_contacts=most)


def stepped(scene, state, most, relaxation=RHO, guess=None):
    """With a guess, though it be none: one program for all."""
    how = options(most, relaxation)
    return sp.step(scene, state, None, how, guess or nothing_known(scene, state, how))


def flat(state):
    return np.concatenate([np.ravel(v) for v in jax.tree.leaves(state)])


def test_pairs_that_act_keep_their_friction(balls):
    scene, state = balls
    own = 0.1 * (1 + np.arange(len(scene.pairs)))
    scene = dataclasses.replace(scene, friction=own)

    @jax.jit
    def acting(state):
        motions = motions_of(scene, state, jnp.zeros((4, 6)))
        batches = pair_batches(scene, motions, (FEWEST, FEWEST))
        chosen = [jnp.asarray(batch.indices)[batch.candidates.chosen] for batch in batches]
        return chosen, [batch.contacts.friction for batch in batches]

    for chosen, friction in zip(*acting(state), strict=True):
        assert len(chosen) == FEWEST
        np.testing.assert_array_equal(friction, own[chosen])


def test_limits_are_of_pairs_of_bodies_and_of_pairs_with_the_environment(balls):
    scene, state = balls
    chosen = sp.no_guess(scene, state, options((3, 1))).chosen
    for (_, pairs), most in zip(kinds_of(scene), chosen, strict=True):
        assert len(most) == (1 if pairs.b.fixed else 3)


def test_what_does_not_act_does_not_matter(balls):
    """Where a ball is that nothing touches: the last, which no equation is for, or the third, which
    then takes equations that are to spare."""
    scene, state = balls

    def moved(ball, *places):
        for place in places:
            at = dataclasses.replace(state, position=state.position.at[ball].set(place))
            following, info = stepped(scene, at, FEWEST)
            assert info.converged
            yield [v[:ball] for v in jax.tree.leaves(following)]

    own = [v[:3] for v in jax.tree.leaves(stepped(scene, state, FEWEST)[0])]
    (away,) = moved(3, [-0.5, 1.2, 0.9])
    spare, other = moved(2, [1.5, 0.0, 1.0], [0.9, -1.4, 0.8])
    for found, expected in zip([*away, *other], [*own, *spare], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("relaxation", [1e-3, 1e-6])
def test_a_step_lacks_relaxed_forces_alone(balls, relaxation):
    some, info = stepped(*balls, FEWEST, relaxation)
    every, reference = stepped(*balls, None, relaxation)
    left = np.all(np.asarray(info.contacts.force) == 0, axis=1)
    alpha, bound = np.asarray(reference.contacts.alpha), np.asarray(info.contacts.alpha)
    assert left.sum() == 6
    assert np.all((bound[left] > 1) & (bound[left] <= alpha[left]))
    # Each would have pushed by rho / (alpha - 1), in units of the lighter mass at 1 m/s.
    lost = np.sum(relaxation / (alpha[alpha > 1.05] - 1))
    change = np.abs(flat(some) - flat(every)).max()
    assert 0.01 * lost < change < 4 * lost


def test_more_pairs_than_allowed_is_said(balls):
    scene, state = balls
    landed = state.position.at[:3].set([[0, 0, 0.2], [1, 0, 0.2], [2, 0, 0.2]])
    _, info = stepped(scene, dataclasses.replace(state, position=landed), FEWEST)
    assert not info.converged
    assert info.status == sp.Status.INCOMPLETE
    assert "max_contacts" in sp.Status(int(info.status)).message


def test_a_body_thrown_at_one_that_hits_another_is_said(balls):
    scene, _ = balls
    place = [[1, 0, 5], [0.5, 0, 5], [0, 0.45, 5], [0, 0, 5]]
    state = scene.state(position=place, velocity=[*np.zeros((3, 3)), [6, 0, 0]])
    assert stepped(scene, state, None)[1].converged
    following, info = stepped(scene, state, FEWEST)
    assert not info.converged and info.status == sp.Status.INCOMPLETE
    assert following.position[1, 0] > following.position[0, 0] - 0.4


def test_a_body_thrown_at_one_of_a_pair_to_spare_is_said(balls):
    """The nearest pair, with equations, but without forces."""
    scene, _ = balls
    state = scene.state(position=[[0, 0, 0.02], [0, 0, 0.57], [3, 0, 2], [0, 3, 3]])
    assert stepped(scene, state, None)[1].converged
    following, info = stepped(scene, state, FEWEST)
    assert not info.converged and info.status == sp.Status.INCOMPLETE
    assert following.position[0, 2] > 0.2  # out of the floor
    assert following.position[1, 2] - following.position[0, 2] < 0.4


@pytest.mark.parametrize("aside", [(0.0, 0.0), (0.02, 0.015), (0.032, 0.036)])
def test_fading_forces_are_differentiated(balls, aside):
    """Of two balls, of ball and floor too, and where the former are too faint to keep apart."""
    scene, state = balls
    shift = jnp.array([aside[0], 0.0, aside[1]])
    state = dataclasses.replace(state, position=state.position.at[2].add(shift))
    following, info = stepped(scene, state, FEWEST)
    size = np.sort(np.linalg.norm(info.contacts.force, axis=1))
    assert np.all(size[-4:] > 0) and np.all(size[-4:-2] < 0.5)
    matrix, _ = sp.linearize(scene, state, None, RHO, options(FEWEST))

    def changed(change):
        moved, _ = stepped(scene, perturb(state, change), FEWEST)
        return difference(moved, following).reshape(-1)

    rng, h = np.random.default_rng(0), 5e-7
    for direction in rng.normal(size=(4, 4, 12)):
        slope = (changed(h * direction) - changed(-h * direction)) / (2 * h)
        np.testing.assert_allclose(matrix @ direction.reshape(-1), slope, atol=1e-6)


@pytest.mark.slow
def test_batches_and_reverse_mode(balls):
    scene, state = balls
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))

    def at(shift):
        return dataclasses.replace(state, position=state.position + shift * jnp.eye(4, 3))

    def loss(shift, velocity):
        start = dataclasses.replace(at(shift), velocity=velocity)
        return jnp.sum(weights * sp.step(scene, start, None, options(FEWEST))[0].position)

    shifts = jnp.asarray([0.0, 0.01])
    slopes = jax.jit(jax.vmap(jax.grad(loss, argnums=1), in_axes=(0, None)))(shifts, state.velocity)
    for shift, slope in zip(shifts, slopes, strict=True):
        matrix, _ = sp.linearize(scene, at(shift), None, RHO, options(FEWEST))
        blocks = matrix.reshape(4, 12, 4, 12)[:, :3, :, 6:9]
        np.testing.assert_allclose(slope, jnp.einsum("ia,iajb->jb", weights, blocks), atol=1e-9)


def test_a_guess_follows_the_pairs_not_their_places(balls):
    scene, state = balls

    def again(guess):
        return stepped(scene, state, FEWEST, guess=guess)

    first, cold = again(None)
    _, warm = again(cold.guess)
    assert 2 * warm.iterations < cold.iterations
    before = cold.guess.differences
    cells = jax.tree.map(lambda v: v[:, ::-1], before.cells)
    turned = cold.guess._replace(
        differences=Variables.of(before.y, cells),
        chosen=jax.tree.map(lambda v: v[::-1], cold.guess.chosen),
    )
    _, same = again(turned)
    assert same.iterations == warm.iterations
    np.testing.assert_allclose(same.contacts.force, warm.contacts.force, atol=1e-12)
    unknown = cold.guess._replace(chosen=jax.tree.map(lambda v: v - 1000, cold.guess.chosen))
    other, info = again(unknown)  # every contact from its start
    assert info.converged
    np.testing.assert_allclose(flat(other), flat(first), atol=1e-6)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(SOLIDS), st.sampled_from(CONVEX), st.integers(0, 10**6))
def test_nothing_in_both_shapes_scales_them_by_less_than_the_bound(name_a, name_b, seed):
    rng = np.random.default_rng(seed)
    shapes = SHAPES[name_a], SHAPES[name_b]
    poses = rng.normal(size=(2, 3)), rng.normal(size=(2, 4))
    bound, needed = bound_and_needed(shapes, *poses, 0.1 * rng.normal(size=(30, 3)))
    assert bound <= needed + 1e-9


@jax.jit
def bound_and_needed(shapes, positions, orientations, aside):
    """The bound, and the least scaling at points between two shapes and aside of them."""
    length = pair_length(*shapes)
    pieces = [
        Piece(shape, SlackMap.of(shape).in_pair(shape, length), position, rotation.matrix(turn))
        for shape, position, turn in zip(
            shapes, positions, rotation.normalize(orientations), strict=True
        )
    ]
    first, last = (piece.reference for piece in pieces)
    between = first + jnp.linspace(0, 1, len(aside))[:, None] * (last - first)
    points = jnp.concatenate([between, between + aside])
    needed = jnp.maximum(*(scalings(piece, points) for piece in pieces))
    return broad_phase.separation(*pieces).alpha, needed.min()


def scalings(piece, points):
    """The least scaling at which a piece holds each point."""
    local = jax.vmap(piece.local)(points)
    if not piece.shape.scaled:
        inside = local @ piece.shape.normal <= piece.shape.offset
        return jnp.where(inside, 0, jnp.inf)
    return 1 + (jax.vmap(piece.shape.gauge)(local) - 1) / piece.map.growth


def test_the_bound_of_two_balls_is_their_scaling():
    pieces = [
        Piece(shape, SlackMap.of(shape), jnp.asarray(position), jnp.eye(3))
        for shape, position in (
            (sp.Sphere(0.2), [0.0, 0.0, 0.0]),
            (sp.Sphere(0.3), [0.7, 0.2, 0.1]),
        )
    ]
    found, between = broad_phase.separation(*pieces), np.array([0.7, 0.2, 0.1])
    apart = np.linalg.norm(between)
    np.testing.assert_allclose(found.alpha, apart / 0.5, rtol=1e-12)
    np.testing.assert_allclose(found.gap, apart - 0.5, rtol=1e-12)
    np.testing.assert_allclose(found.normal, -between / apart, rtol=1e-12)
    np.testing.assert_allclose(found.point, between / apart * (0.2 + (apart - 0.5) / 2))


def first_share(scene, state):
    """Of the families that lead to a step."""
    return assembled(scene, state, RHO)[0].first_share


@jax.jit
def share_in_flight(height, speed, radius):
    """Of a step in which a ball flies freely above a floor."""
    ball = sp.Body("ball", sp.Sphere(radius=radius), mass=1.0)
    scene = sp.Scene([ball], [sp.HalfSpace((0, 0, 1), 0)], timestep=0.1, gravity=(0, 0, 0))
    down = jnp.array([[0.0, 0.0, 1.0]])
    state = scene.state(position=(radius + height) * down, velocity=speed * down)
    return first_share(scene, state)


@given(st.floats(0, 3), st.floats(-30, 30), st.floats(0.05, 1))
@settings(deadline=None)
def test_a_step_is_begun_with_the_share_that_ends_close_to_the_touch(height, speed, radius):
    share, deepest = float(share_in_flight(height, speed, radius)), -broad_phase.DEEP * radius
    if height + 0.1 * speed < deepest:
        assert height + share * 0.1 * speed == pytest.approx(deepest)
    else:
        assert share == 1


def test_two_that_rush_at_each_other_begin_with_part_of_the_step():
    """Bodies of the size of a hundredth of their way in a step."""
    bodies = [sp.Body(name, sp.Sphere(radius=0.01), mass=0.01) for name in "ab"]
    scene = sp.Scene(bodies, timestep=0.1, gravity=(0, 0, 0), friction=0.5)
    step = jax.jit(lambda s: (first_share(scene, s), *sp.step(scene, s, None, options(None))))
    for speed, whole in ((0.1, True), (5.0, False), (20.0, False)):
        state = scene.state(
            position=[[0, 0, 0], [0.1, 0, 0]], velocity=[[speed, 0, 0], [-speed, 0, 0]]
        )
        share, following, info = step(state)
        assert (share == 1) == whole
        assert info.converged
        if not whole:  # they meet and stay
            np.testing.assert_allclose(following.velocity[0], -following.velocity[1], atol=1e-9)
            assert float(following.position[1, 0] - following.position[0, 0]) == pytest.approx(
                0.02, rel=0.01
            )


@pytest.mark.parametrize("stiffness", [0.0, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("quasi_dynamic", [False, True])
def test_free_motion_is_that_of_a_step_without_contacts(stiffness, quasi_dynamic):
    """Springs of any stiffness included."""
    springs = (stiffness,) * 3 + (stiffness / 1e4,) * 3
    ball = sp.Body("ball", sp.Sphere(0.1), 1.0, stiffness=springs, quasi_dynamic=quasi_dynamic)
    scene = sp.Scene([ball], timestep=0.01)
    turn = [[np.cos(0.4), 0, np.sin(0.4), 0]]
    state = scene.state(orientation=turn, velocity=[[5.0, 0, 1]], angular_velocity=[[0, 0.2, 0.1]])
    push = [3.0, 0, 0, 0, 0, 0]
    control = [[0.05, 1.0, 0, 0.01, 0, 0]] if stiffness else [push]
    following, info = sp.step(scene, state, control, options(None))
    assert info.converged
    motions = motions_of(scene, state, jnp.asarray(control))
    found = broad_phase._free_motion(jax.tree.map(lambda v: v[0], motions))
    np.testing.assert_allclose(found[:3], following.velocity[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[3:], following.angular_velocity[0], atol=1e-4)
