"""Compiler options: used at the outermost call alone, and only where the compiler knows them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import silico_py as sp
from silico_py import compilation
from silico_py.compilation import jitted

X = jnp.arange(3.0)


def square(x):
    return x * x


@pytest.fixture
def nonsense(monkeypatch):
    """Options that no compiler takes: whatever is compiled with them fails."""
    monkeypatch.setattr(compilation, "ON_CPU", {"xla_cpu_no_such_option": True})
    known = compilation._known
    known.cache_clear()
    yield
    known.cache_clear()


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
def test_transformed_calls_are_compiled_by_what_is_around_them(name, nonsense, monkeypatch):
    monkeypatch.setattr(compilation, "_known", lambda name: True)
    np.testing.assert_allclose(TRANSFORMED[name](jitted(square)), X * X)


def test_a_call_with_arrays_uses_them(nonsense, monkeypatch):
    monkeypatch.setattr(compilation, "_known", lambda name: True)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        jitted(square)(X)


def test_options_that_the_compiler_does_not_know_are_left_out(nonsense):
    assert sp.compiler_options() == {}
    np.testing.assert_array_equal(jitted(square)(X), X * X)


def test_static_arguments():
    power = jitted(lambda x, n: x**n if isinstance(n, int) else None, static_argnames="n")
    np.testing.assert_array_equal(power(X, n=2), X * X)
