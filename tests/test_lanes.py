"""Batches of loops that differ in length."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import members_of, rolled

import silico_py as sp
from silico_py.solver import lanes
from silico_py.solver.fusion import one_by_one
from silico_py.solver.lanes import Rounds, in_lanes


def collatz(n, weight):
    """Steps to 1, their sum times a weight, and whether all is well."""

    def step(carry):
        n, steps, total = carry
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1, total + weight * n

    end = jax.lax.while_loop(lambda carry: carry[0] > 1, step, (n, 0, 0 * weight))
    return {"steps": jnp.asarray(end[1]), "total": end[2], "well": end[0] == 1}


def rounds(seen=None, most=3):
    """The same in rounds of three steps; every lane of every round is added to `seen`."""

    def advance(live, state, n, weight):
        if seen is not None:
            jax.debug.callback(seen.append, live)

        def step(carry):
            k, (n, steps, total) = carry
            after = jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1, total + weight * n
            return k + 1, after

        last = jnp.where(live, most, 0)
        return jax.lax.while_loop(lambda c: (c[0] < last) & (c[1][0] > 1), step, (0, state))[1]

    return Rounds(
        lambda n, weight: (n, jnp.asarray(0), 0 * weight),
        advance,
        lambda state, n, weight: state[0] > 1,
        lambda state, n, weight: {
            "steps": state[1],
            "total": state[2],
            "well": state[0] == 1,
        },
    )


@pytest.fixture
def at_once(monkeypatch):
    """Batches as elsewhere than on a CPU, one kernel an operation."""
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "0")
    monkeypatch.setattr("silico_py.solver.fusion.in_turn", lambda: False)


@pytest.mark.parametrize("numbers", [1, 12, 10_000])  # two for each member at the least
def test_any_number_of_lanes_gives_what_each_member_gives(monkeypatch, at_once, numbers):
    monkeypatch.setattr(lanes, "IN_FLIGHT", numbers)
    each = one_by_one(collatz, in_lanes(rounds()))
    n, weight = jnp.arange(1, 28), jnp.linspace(0, 1, 27)
    out = jax.jit(jax.vmap(each))(n, weight)
    expected = [collatz(*pair) for pair in zip(n, weight, strict=True)]
    for key in expected[0]:
        assert out[key].dtype == expected[0][key].dtype
        np.testing.assert_allclose(out[key], [row[key] for row in expected], rtol=1e-12)


def test_batches_of_batches(monkeypatch, at_once):
    monkeypatch.setattr(lanes, "IN_FLIGHT", 12)
    each = one_by_one(collatz, in_lanes(rounds()))
    n, weight = jnp.array([6, 27, 1]), jnp.array([0.5, 2.0])
    out = jax.vmap(jax.vmap(each, (0, None)), (None, 0))(n, weight)
    both = jax.vmap(jax.vmap(each))(jnp.stack([n, n]), weight[:, None] * jnp.ones(3))
    for i, j in np.ndindex(2, 3):
        expected = collatz(n[j], weight[i])
        for key, value in expected.items():
            np.testing.assert_allclose(out[key][i, j], value, rtol=1e-12)
            np.testing.assert_allclose(both[key][i, j], value, rtol=1e-12)
    assert jax.vmap(jax.vmap(each), (None, None), axis_size=2)(n, n * 1.0)["steps"].shape == (2, 3)


def test_a_batch_costs_the_steps_of_its_members(monkeypatch, at_once):
    """One of 400 takes 111 steps, the others one: all but it leave after the first round."""
    monkeypatch.setattr(lanes, "IN_FLIGHT", 24)
    n, seen = jnp.full(400, 2).at[7].set(27), []
    each = one_by_one(collatz, in_lanes(rounds(seen)))
    jax.block_until_ready(jax.vmap(each, (0, None))(n, 1.0))
    jax.effects_barrier()
    assert sum(map(bool, seen)) == 399 + 111 // 3
    assert len(seen) <= 8 * (400 / 7 + 111 / 3)


def test_a_batch_of_steps_in_few_lanes_is_that_of_its_members(monkeypatch, at_once):
    """Resting, landing, flying and tumbling, easy and hard."""
    box = sp.Body("box", [sp.Box(half_extents=(0.2, 0.3, 0.1))], mass=1.0)
    scene = sp.Scene([box], [sp.scenes.floor()], timestep=0.05, friction=0.3)
    rng, shape = np.random.default_rng(0), (9, 1, 3)
    height, speed, spin = [0.1, 0.12, 0.4] * 3, np.repeat([0, 1, 3], 3), np.repeat([0, 0, 5], 3)
    start = scene.state(position=[[0, 0, 0.1]])
    starts = dataclasses.replace(
        jax.tree.map(lambda v: jnp.broadcast_to(v, (9, *v.shape)), start),
        position=jnp.zeros(shape).at[:, 0, 2].set(jnp.array(height)),
        velocity=jnp.asarray(speed[:, None, None] * rng.normal(size=shape)),
        angular_velocity=jnp.asarray(spin[:, None, None] * rng.normal(size=shape)),
    )
    # A name of its own: compiled here.
    here = dataclasses.replace(scene, bodies=[dataclasses.replace(box, name="here")])
    monkeypatch.setattr(lanes, "IN_FLIGHT", 1000)
    cold = sp.SolverOptions(warm_start=False)
    trajectory = jax.vmap(lambda s: sp.rollout(here, s, 3, cold))(starts)
    monkeypatch.undo()
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "0")
    alone = [rolled(scene, member, 3, warm=False) for member in members_of(starts)]
    assert trajectory.info.converged.all()
    for k, expected in enumerate(alone):
        np.testing.assert_array_equal(trajectory.info.iterations[k], expected.info.iterations)
        for a, b in zip(*map(jax.tree.leaves, (trajectory.state, expected.state)), strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-6, atol=1e-9)
