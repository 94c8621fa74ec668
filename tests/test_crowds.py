"""Bodies that have nothing to do with each other: they cost the iterations of one alone."""

import jax.numpy as jnp
import numpy as np
import pytest
from stepping import rolled

import silico_py as sp

STEPS = 40


def balls(count):
    """Balls half a metre apart that land one after another, slide and roll."""
    names = ["sphere"] if count == 1 else [f"ball {k}" for k in range(count)]
    bodies = [sp.Body(name, shapes=[sp.Sphere(0.1)], mass=1.0) for name in names]
    floor = sp.HalfSpace(normal=(0, 0, 1), offset=0.0)
    scene = sp.Scene(bodies=bodies, environment=[floor], timestep=0.02, friction=0.3)
    k = np.arange(count)
    position = np.stack([0.5 * k, 0 * k, 0.15 + 0.1 * k], axis=1)
    velocity = np.stack([1 - 0.4 * k, 0.3 + 0 * k, 0 * k], axis=1)
    return scene, scene.state(position=position, velocity=velocity)


@pytest.fixture(scope="module")
def alone():
    return rolled(*balls(1), STEPS, warm=False, polish=0)


@pytest.fixture(scope="module")
def cold():
    return rolled(*balls(6), STEPS, warm=False, polish=0)


@pytest.fixture(scope="module")
def warm():
    return rolled(*balls(6), STEPS, polish=0)


def test_a_body_moves_as_if_alone(alone, cold):
    np.testing.assert_allclose(cold.state.position[:, :1], alone.state.position, atol=1e-4)


def test_bodies_far_apart_take_about_the_iterations_of_one(alone, cold):
    assert cold.info.converged.all()
    assert jnp.mean(cold.info.iterations) <= 1.6 * jnp.mean(alone.info.iterations)
    assert jnp.max(cold.info.iterations) <= 2.5 * jnp.max(alone.info.iterations)


def test_a_landing_body_does_not_spoil_the_guesses_of_the_others(cold, warm):
    assert warm.info.converged.all()
    np.testing.assert_allclose(warm.state.position, cold.state.position, atol=1e-4)
    assert jnp.sum(warm.info.iterations) < 0.5 * jnp.sum(cold.info.iterations)
