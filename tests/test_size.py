"""Bodies of many metres: a fall is the same motion at any size, in units of its own speed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import silico_py as sp
from silico_py import reference

FLOOR = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)
LIMIT = 30  # Newton steps


def block_and_barrel(size, speed):
    """A tilted block that falls with a barrel onto the floor, in units of `size` and `speed`."""
    bodies = [
        sp.Body("block", [sp.Box((1.2 * size, size, 0.8 * size))], mass=2.0),
        sp.Body("barrel", [sp.Cylinder(0.9 * size, 2.0 * size)], mass=1.0),
    ]
    scene = sp.Scene(bodies, [FLOOR], timestep=0.03 * size / speed, friction=0.4)
    turn = sp.rotation.normalize(jnp.array([[1.0, 0.1, 0.3, 0.0], [1.0, 0.4, 0.0, 0.2]]))
    state = scene.state(
        size * np.array([[0, 0, 1.6], [0.3, 0.1, 4.2]]),
        turn,
        speed * np.array([[0.3, 0, -1.0], [0, 0.2, -2.0]]),
        speed / size * np.array([[0, 0.5, 0.1], [0.2, 0, 0]]),
    )
    return scene, state


@pytest.mark.parametrize("rho", [1e-3, 1e-6])
def test_a_fall_is_similar_at_any_size(rho):
    options = sp.SolverOptions(relaxation=rho, polish=5)
    run = jax.jit(lambda scene, state: sp.rollout(scene, state, 40, options))
    small, large = run(*block_and_barrel(1.0, 1.0)), run(*block_and_barrel(25.0, 5.0))
    assert small.info.converged.all()
    assert large.info.converged.all()
    assert float(small.info.contacts.force[:, :, 2].max()) > 5  # they do hit the floor
    for name, unit in [("position", 25.0), ("velocity", 5.0), ("angular_velocity", 0.2)]:
        own, scaled = getattr(small.state, name), getattr(large.state, name) / unit
        np.testing.assert_allclose(scaled, own, rtol=0, atol=1e-6)
    alphas = (t.info.contacts.alpha for t in (large, small))
    np.testing.assert_allclose(*alphas, rtol=0, atol=1e-6)
    scene, _ = block_and_barrel(25.0, 5.0)
    before, last = (jax.tree.map(lambda v, k=k: v[k], large) for k in (-2, -1))
    report = reference.check_step(scene, before.state, None, last.state, last.info, options)
    assert report.ok, report


def test_boxes_of_ten_metres_land_in_few_iterations():
    box = sp.Body("box", [sp.Box((10.0, 6.0, 4.0))], mass=1.0)
    scene = sp.Scene([box], [FLOOR], timestep=1 / 30, friction=0.2)
    rng, members = np.random.default_rng(7), 16
    turn = rng.normal(size=(members, 1, 4))
    place = np.zeros((members, 1, 3))
    place[..., 2] = 12.5 + rng.uniform(0, 5, (members, 1))
    states = sp.State(
        jnp.array(place),
        jnp.array(turn / np.linalg.norm(turn, axis=-1, keepdims=True)),
        jnp.array(rng.uniform(-3, 3, (members, 1, 3))),
        jnp.array(rng.uniform(-0.3, 0.3, (members, 1, 3))),
    )
    options = sp.SolverOptions(relaxation=1e-6)
    run = jax.jit(lambda s: jax.lax.map(lambda at: sp.rollout(scene, at, 90, options), s))
    info = run(states).info
    assert info.converged.all()
    assert int(info.iterations.max()) <= LIMIT
