"""Factorisation along the levels of a graph, against dense solves."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from silico_py.solver import (
    CellGroup,
    CellResidual,
    CellVariables,
    Options,
    Problem,
    ProductCone,
    Variables,
    condensed,
    implicit,
    levels,
    solve,
)

NY, NX, COLUMNS = 3, 2, 2

GRAPHS = {
    "chain": [(k, k + 1) for k in range(14)],
    "two chains": [(k, k + 1) for k in range(14) if k != 6],
    "ring": [(k, (k + 1) % 15) for k in range(15)],
    "tree": [((k - 1) // 2, k) for k in range(1, 15)],
    "star": [(0, k) for k in range(1, 15)],
    "shuffled chain": [(7 * k % 15, 7 * (k + 1) % 15) for k in range(14)],
    "nothing": [],
}


def dense_matrix(nodes, own, added):
    """The same matrix by loops."""
    n, total = len(own), NY * len(own) + sum(NX * len(touched) for touched in nodes)
    matrix, start = np.zeros((total, total)), NY * n
    for k, block in enumerate(own):
        matrix[NY * k : NY * k + NY, NY * k : NY * k + NY] += block
    for touched, blocks in zip(nodes, added, strict=True):
        for cell, block in zip(touched, blocks, strict=True):
            place = [NY * k + i for k in cell for i in range(NY)]
            place += [start + i for i in range(NX)]
            matrix[np.ix_(place, place)] += block
            start += NX
    return matrix


def system(pairs, n=15, seed=0):
    """Two groups of cells, one on pairs of nodes and one on single nodes."""
    rng = np.random.default_rng(seed)
    nodes = [np.array(pairs, int).reshape(-1, 2), np.array([[0], [n - 1], [0]])]
    sizes = [arity * NY + NX for arity in (2, 1)]
    own = rng.normal(size=(n, NY, NY)) + 8 * np.eye(NY)
    added = [
        rng.normal(size=(len(touched), v, v)) / 2 + 3 * np.eye(v)
        for touched, v in zip(nodes, sizes, strict=True)
    ]
    rhs = rng.normal(size=(n, NY, COLUMNS)), [rng.normal(size=(len(t), NX, COLUMNS)) for t in nodes]
    return nodes, own, added, rhs


def solved(nodes, own, added, rhs, transposed=False, late=False):
    """By levels; with `late` the nodes of each cell are known to the compiled program alone."""

    def run(chosen, own, added, rhs):
        links = [levels.Links(c, n) for c, n in zip(chosen, nodes, strict=True)]
        factor, solve = condensed.factorize(links, own, added), condensed.solve
        if transposed:
            solve, factor = condensed.solve_transposed, condensed.transposed(factor)
        return solve(links, factor, *rhs)

    call = partial(jax.jit(run), nodes) if late else jax.jit(partial(run, nodes))
    y, local = call(own, added, rhs)
    return np.concatenate([np.asarray(v).reshape(-1, COLUMNS) for v in (y, *local)])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_agrees_with_a_dense_solve(name, late):
    nodes, own, added, rhs = system(GRAPHS[name])
    flat = np.concatenate([v.reshape(-1, COLUMNS) for v in (rhs[0], *rhs[1])])
    matrix = dense_matrix(nodes, own, added)
    expected = np.linalg.solve(matrix, flat)
    found = solved(nodes, own, added, rhs, late=late)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    found = solved(nodes, own, added, rhs, transposed=True, late=late)
    np.testing.assert_allclose(found, np.linalg.solve(matrix.T, flat), rtol=1e-9, atol=1e-11)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40))
def test_neighbours_are_at_most_one_level_apart(pairs):
    links = np.array([p for p in pairs if p[0] != p[1]], int).reshape(-1, 2)
    level = levels.levels(20, [links])
    assert sorted(set(level)) == list(range(level.max() + 1))
    assert np.all(np.abs(level[links[:, 0]] - level[links[:, 1]]) <= 1)


def test_a_chain_is_cut_and_a_clique_is_not():
    chain = np.array(GRAPHS["shuffled chain"])
    rows = condensed.rows_by_level([levels.Links(chain, chain)], 15, 6)
    np.testing.assert_array_equal(np.sort(rows.reshape(-1)), np.arange(15 * 6))
    assert rows.shape == (15, 6)
    clique = np.array([(i, j) for i in range(15) for j in range(i)])
    assert len(condensed.rows_by_level([levels.Links(clique, clique)], 15, 6)) == 1


def isotonic(targets, relaxation=1e-9, chosen=None):
    """argmin |y - targets|^2 with y_0 <= y_1 <= ..., each column for itself: a chain of nodes.

    `chosen` are the links of the chain in an order known at run time.
    """
    n, ny = targets.shape
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    links, graph = (chain, None) if chosen is None else (chosen, chain)
    zeros, ones = jnp.zeros((n - 1, 0)), jnp.ones((n - 1, ny))

    def order(y, x, z, data):
        return CellResidual(jnp.stack([z, -z]), x, y[1] - y[0])

    cells = CellGroup(ProductCone.orthant(ny), links, order, zeros, split=ny, graph=graph)
    problem = Problem(jnp.subtract, targets, (cells,), jnp.ones((n, ny)), monotone=True)
    start = Variables.of(jnp.zeros((n, ny)), (CellVariables(zeros, ones, ones),))
    rho = jnp.asarray(relaxation)
    found = solve(problem, start, Options(rho, jnp.asarray(1e-12), 100))
    return implicit(problem, found.variables, rho).y, found.converged


def shuffled_chain(n=30):
    """The links of the chain of `isotonic` in another order."""
    k = np.random.default_rng(2).permutation(n - 1)
    return jnp.asarray(np.stack([k, k + 1], axis=1))


@pytest.mark.parametrize("late", [False, True])
def test_a_chain_of_variables_solves_isotonic_regression(late):
    targets = np.random.default_rng(0).normal(size=(30, 3)) + 0.05 * np.arange(30)[:, None]
    chosen = shuffled_chain() if late else None
    y, converged = jax.jit(isotonic)(jnp.asarray(targets), chosen=chosen)
    assert converged
    expected = np.stack([isotonic_regression(column).x for column in targets.T], axis=1)
    np.testing.assert_allclose(y, expected, atol=1e-6)


@pytest.mark.parametrize("late", [False, True])
def test_derivatives_along_levels(late):
    rng = np.random.default_rng(1)
    targets, weights, direction = rng.normal(size=(3, 30, 3))
    chosen = shuffled_chain() if late else None

    def loss(targets):
        return jnp.sum(jnp.sin(isotonic(targets, 1e-3, chosen)[0]) * weights)

    @jax.jit
    def in_both_modes(targets):
        value, push = jax.linearize(loss, targets)
        (pull,) = jax.linear_transpose(push, targets)(1.0)
        return value, push(jnp.asarray(direction)), jnp.sum(pull * direction)

    h = 1e-4
    _, forward, reverse = in_both_modes(targets)
    ahead, behind = (in_both_modes(targets + s * h * direction)[0] for s in (1, -1))
    np.testing.assert_allclose(reverse, (ahead - behind) / (2 * h), rtol=1e-5)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8)
