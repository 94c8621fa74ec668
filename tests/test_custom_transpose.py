"""Functions that are differentiated in another way than they are evaluated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silico_py.solver import differentiated_as, linear


def ahead(fixed, v):
    """A matrix that depends on t, and what it does to a pair of vectors."""
    t, tilt = fixed
    return {"sum": jnp.sin(t) * v[0][:2] + tilt * v[1]}


def back(fixed, weights):
    t, tilt = fixed
    first = jnp.concatenate([jnp.sin(t) * weights["sum"], jnp.zeros(1)])
    return first, tilt * weights["sum"]


def called(t, v, tilt=2.0):
    return linear(ahead, back, (t, tilt), v, {"sum": jnp.zeros(2)})


def plain(t, v, tilt=2.0):
    return ahead((t, tilt), v)


def norm(function, t, v):
    return jnp.sum(function(t, v)["sum"] ** 3)


T, V = jnp.asarray(0.7), (jnp.array([1.0, -2.0, 3.0]), jnp.array([0.5, 0.3]))
DIRECTION = (jnp.array([0.2, 0.1, -1.0]), jnp.array([-0.4, 1.0]))


def same(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), found, expected)


@pytest.mark.parametrize(
    "derived",
    [
        lambda f: f(T, V),
        lambda f: jax.jvp(lambda v: f(T, v), (V,), (DIRECTION,)),
        lambda f: jax.jvp(f, (T, V), (jnp.ones(()), DIRECTION)),
        lambda f: jax.grad(lambda v: norm(f, T, v))(V),
        lambda f: jax.grad(lambda t: norm(f, t, V))(T),
        lambda f: jax.hessian(lambda t: norm(f, t, V))(T),
        lambda f: jax.hessian(lambda v: norm(f, T, v))(V),
        lambda f: jax.jacrev(jax.grad(lambda v: norm(f, T, v)))(V),
        lambda f: jax.jvp(lambda t: jax.grad(lambda v: norm(f, t, v))(V), (T,), (jnp.ones(()),)),
        lambda f: jax.vmap(f, (0, None))(jnp.arange(3.0), V),
        lambda f: jax.vmap(f, (None, 0))(T, jax.tree.map(lambda v: jnp.stack([v, 2 * v]), V)),
        lambda f: jax.vmap(f, (None, 1))(T, jax.tree.map(lambda v: jnp.stack([v, 2 * v], 1), V)),
        lambda f: jax.vmap(jax.grad(lambda t, v: norm(f, t, v), (0, 1)), (0, None))(
            jnp.arange(3.0), V
        ),
        lambda f: jax.jacrev(lambda v: f(T, v))(V),
        lambda f: jax.jacfwd(lambda v: f(T, v))(V),
        lambda f: jax.linear_transpose(lambda v: f(T, v), V)({"sum": jnp.array([1.0, 2.0])}),
        lambda f: jax.grad(
            lambda v: jnp.sum(
                jax.lax.scan(lambda s, t: (f(t, (V[0], s))["sum"], s), v, jnp.arange(3.0))[1]
            )
        )(V[1]),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_linear_function_is_what_it_calls(derived, compiled):
    """Derivatives of all orders and modes, batches and transposes are those of the function."""
    run = (lambda f: jax.jit(lambda: derived(f))()) if compiled else derived
    same(run(called), run(plain))


def test_the_transpose_is_the_one_that_is_given():
    def wrong(fixed, weights):
        return jax.tree.map(lambda v: 3 * v, back(fixed, weights))

    def function(v):
        return linear(ahead, wrong, (T, 2.0), v, {"sum": jnp.zeros(2)})["sum"].sum()

    expected = jax.tree.map(lambda v: 3 * v, jax.grad(lambda v: plain(T, v)["sum"].sum())(V))
    same(jax.grad(function)(V), expected)


def test_nothing_comes_back_of_nothing():
    """A result that does not count has no slope, and costs no transpose."""

    def function(v):
        return jnp.sum(v[1]), called(T, v)

    same(jax.vjp(function, V)[1]((jnp.ones(()), {"sum": jnp.zeros(2)}))[0][1], np.ones(2))


def test_another_derivative():
    function = differentiated_as(lambda x, k: x**2, lambda x, k: jnp.floor(x) + k)
    assert function(2.5, 1) == 3.0
    assert jax.grad(function)(2.5, 1) == 5.0
    assert jax.grad(jax.grad(function))(2.5, 1) == 2.0
