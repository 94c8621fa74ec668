"""Values with told derivatives, in loops that are differentiated more than once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero

from silico_py.solver import differentiated_as, one_by_one
from silico_py.solver.custom_derivative import attached, instantiated


def sine(x, scale=1.0):
    """scale * sin x, found in a way that jax does not see, beside a number that is whole."""
    found = jax.lax.stop_gradient(scale * jnp.sin(x))

    def rule(_, at, change):
        (x, scale), (dx, ds) = at, map(instantiated, change)
        return scale * jnp.cos(x) * dx + jnp.sin(x) * ds, 0

    return attached((found, jnp.asarray(1)), rule, (x, scale))[0]


def looped(x):
    return jax.lax.scan(lambda c, _: (sine(c, x), None), x, None, length=3)[0]


def plain(x):
    return x * jnp.sin(x * jnp.sin(x * jnp.sin(x)))


MODES = [jax.jacfwd, jax.jacrev]


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("third", [lambda f: f, *MODES])
def test_derivatives_of_loops(first, second, third):
    expected = third(second(first(plain)))(0.7)
    np.testing.assert_allclose(third(second(first(looped)))(0.7), expected, rtol=1e-12)
    many = jax.jit(jax.vmap(third(second(first(looped)))))(jnp.array([0.7, 0.2]))
    np.testing.assert_allclose(many[0], expected, rtol=1e-12)


def test_batches_of_one_argument():
    def slope(x, scale):
        return jax.grad(lambda x: sine(x, scale))(x)

    x, scale = jnp.linspace(0, 1, 3), jnp.linspace(1, 2, 3)
    np.testing.assert_allclose(jax.vmap(slope, (0, None))(x, 2.0), 2 * np.cos(x))
    np.testing.assert_allclose(jax.vmap(slope, (None, 0))(0.5, scale), scale * np.cos(0.5))


def test_what_stays_is_a_symbolic_zero():
    seen = []

    def rule(_, at, change):
        seen.append([isinstance(c, SymbolicZero) for c in change])
        return instantiated(change[0])

    jax.grad(lambda x: attached(x, rule, (x, 1.0)))(2.0)
    jax.vmap(jax.grad(lambda x, y: attached(x, rule, (x, y))))(jnp.ones(2), jnp.ones(2))
    assert seen == [[False, True]] * 2


TWICE = {
    "jit of vmaps": lambda f: jax.jit(jax.vmap(jax.vmap(f))),
    "vmaps of jit": lambda f: jax.vmap(jax.vmap(jax.jit(f))),
    "vmap of jit of vmap": lambda f: jax.vmap(jax.jit(jax.vmap(f))),
}


@pytest.mark.parametrize("form", TWICE)
@pytest.mark.parametrize(
    "function", [sine, one_by_one(jnp.sin), differentiated_as(jnp.sin, jnp.sin)]
)
def test_derivatives_of_batches_of_batches(form, function):
    """In any order: each slope is that of its own member."""
    x = np.random.default_rng(0).normal(size=(2, 3))
    weights = np.random.default_rng(1).normal(size=(2, 3))
    many = TWICE[form](function)
    slopes = jax.grad(lambda x: jnp.sum(weights * many(x)))(x)
    np.testing.assert_allclose(slopes, weights * np.cos(x), rtol=1e-12)
    _, change = jax.jvp(many, (x,), (weights,))
    np.testing.assert_allclose(change, weights * np.cos(x), rtol=1e-12)
    curvature = jax.grad(lambda x: jnp.sum(weights * TWICE[form](jax.grad(function))(x)))(x)
    np.testing.assert_allclose(curvature, -weights * np.sin(x), rtol=1e-12)


def test_plain_numbers_are_arrays_for_the_rule():
    function = differentiated_as(lambda x, k: x**k.dtype.itemsize, lambda x, k: x)
    np.testing.assert_allclose(jax.grad(function)(1.5, 2.0), 8 * 1.5**7)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: function(x, 2.0)))(1.5), 8 * 1.5**7)
