"""Compiler options: used at the outermost call alone, and only where the compiler knows them."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import silico_py as sp
from silico_py import compilation
from silico_py.compilation import jitted
from silico_py.solver.compilation import _is_known, once

X = jnp.arange(3.0)


def square(x):
    return x * x


@pytest.fixture
def nonsense(monkeypatch):
    """Options that no compiler takes: whatever is compiled with them fails."""
    monkeypatch.setattr(compilation, "ON_CPU", {"xla_cpu_no_such_option": True})
    _is_known.cache_clear()
    yield
    _is_known.cache_clear()


@pytest.fixture
def unquestioned(nonsense, monkeypatch):
    """Such options, taken for known."""
    monkeypatch.setattr("silico_py.solver.compilation._is_known", lambda name, value: True)


TRANSFORMED = {
    "jit": lambda f: jax.jit(f)(X),
    "constants of jit": lambda f: jax.jit(lambda: f(X))(),
    "vmap": lambda f: jax.vmap(f)(X),
    "jvp": lambda f: jax.jvp(f, (X,), (X,))[0],
    "grad": lambda f: jax.vjp(f, X)[1](X)[0] / 2,
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(X) * X / 2,
    "linearize": lambda f: jax.linearize(f, X)[1](X) / 2,
    "scan": lambda f: jax.lax.map(f, X),
    "checkpoint": lambda f: jax.vjp(jax.checkpoint(f), X)[1](X)[0] / 2,
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_calls_are_compiled_by_what_is_around_them(name, unquestioned):
    np.testing.assert_allclose(TRANSFORMED[name](jitted(square)), X * X)


def test_a_call_with_arrays_uses_them(unquestioned):
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        jitted(square)(X)


def test_options_that_the_compiler_does_not_know_are_left_out(nonsense):
    assert sp.compiler_options() == {}
    np.testing.assert_array_equal(jitted(square)(X), X * X)


def test_static_arguments():
    power = jitted(lambda x, n: x**n if isinstance(n, int) else None, static_argnames="n")
    np.testing.assert_array_equal(power(X, n=2), X * X)


def test_what_runs_once_is_one_program():
    """In the same precision as operation by operation."""
    count = []
    function = once(lambda x, n: count.append(n) or jnp.sin(x) ** n / 3, static_argnames="n")
    for _ in range(2):
        np.testing.assert_allclose(function(X, n=2), jnp.sin(X) ** 2 / 3, rtol=1e-15)
    assert count == [2]  # traced once
    slope = jax.jit(jax.grad(lambda x: function(x, n=2)))(0.5)
    np.testing.assert_allclose(slope, np.sin(1.0) / 3, rtol=1e-14)


BOX, BALL = sp.Box(half_extents=(0.2, 0.3, 0.4)), sp.Sphere(radius=0.3)
CORE = sp.Polytope.from_vertices(np.vstack([np.eye(3), -np.eye(3)]))
ROUNDED = sp.PaddedPolytope(core=CORE, radius=0.1)
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
BALL_SCENE = sp.Scene([sp.Body("ball", BALL, mass=1.0)], [sp.HalfSpace((0, 0, 1), 0.0)], 0.01)
CALLS = {
    "collide": lambda x: sp.collide(BOX, (x, UPRIGHT), BALL, (-x, UPRIGHT)).alpha,
    "gauge of a sum": lambda x: sp.MinkowskiSum(BOX, BALL).gauge(x),
    "gauge of a padded polytope": lambda x: ROUNDED.gauge(x),
    "an empty guess": lambda x: (
        sp.no_guess(BALL_SCENE, BALL_SCENE.state([x])).differences.flat.size
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_from_python_compiles_nothing(name, caplog):
    CALLS[name](np.array([1.0, 0.5, -0.3]))
    with jax.log_compiles():
        assert float(CALLS[name](np.array([0.7, -0.9, 1.4]))) > 1
    assert not caplog.messages


LEAKING = {
    "a distance": lambda scene, state: sp.collide(
        scene.bodies[0].pieces[0][0],
        (state.position[0], state.orientation[0]),
        scene.environment[0].shape,
        (jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0])),
    ),
    "a rollout": lambda scene, state: sp.rollout(scene, state, 2),
    "its gradient": jax.grad(lambda scene, state: sp.rollout(scene, state, 2).state.position.sum()),
    "second derivatives": lambda scene, state: jax.hessian(
        lambda v: sp.step(scene, dataclasses.replace(state, velocity=v))[0].position.sum()
    )(state.velocity),
    "the nearest contacts": partial(sp.step, options=sp.SolverOptions(max_contacts=1)),
    "the bilevel method": partial(sp.step, options=sp.SolverOptions(method="bilevel")),
}


@pytest.mark.parametrize("name", LEAKING)
def test_no_tracer_outlives_its_trace(name):
    with jax.checking_leaks():
        jax.eval_shape(LEAKING[name], *sp.scenes.drop("sphere"))
