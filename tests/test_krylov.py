"""Refinement where the approximate inverse is poor, against dense solves."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silico_py.solver import krylov

SIZE = 30


def system(seed, outliers):
    """A matrix and an inverse of it that is right but for a few eigenvalues."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(SIZE, SIZE)) + SIZE * np.eye(SIZE)
    basis = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    spectrum = np.ones(SIZE)
    spectrum[: len(outliers)] = outliers
    inverse = basis @ np.diag(spectrum) @ basis.T @ np.linalg.inv(matrix)
    return jnp.asarray(matrix), jnp.asarray(inverse), rng


def solved(matrix, inverse, rhs, tolerance=1e-12, **how):
    parts = {"first": rhs[:10], "rest": rhs[10:].reshape(4, 5, -1)}

    def apply(m, tree):
        flat = jnp.concatenate([v.reshape(-1, rhs.shape[-1]) for v in tree.values()])
        out = m @ flat
        return {"first": out[:10], "rest": out[10:].reshape(4, 5, -1)}

    operators = partial(apply, matrix), partial(apply, inverse)
    found, accurate = krylov.solve(*operators, parts, tolerance, **how)
    flat = np.concatenate([np.asarray(v).reshape(-1, rhs.shape[-1]) for v in found.values()])
    defect, size = (
        abs(np.asarray(rhs - matrix @ flat)).max(axis=0),
        abs(np.asarray(rhs)).max(axis=0),
    )
    assert bool(accurate) == bool(np.all(defect <= 1.1 * tolerance * size))
    return np.concatenate([np.asarray(v).reshape(-1, rhs.shape[-1]) for v in found.values()])


@pytest.mark.parametrize("outliers", [(), (0.02,), (1e-3, 4.0, -1.0)])
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_a_dense_solve(seed, outliers):
    matrix, inverse, rng = system(seed, outliers)
    rhs = rng.normal(size=(SIZE, 3))
    found = solved(matrix, inverse, jnp.asarray(rhs))
    np.testing.assert_allclose(found, np.linalg.solve(matrix, rhs), rtol=0, atol=1e-10)
    if outliers:  # plain refinement gets nowhere in as many passes
        error = np.eye(SIZE) - np.asarray(inverse @ matrix)
        assert np.linalg.norm(np.linalg.matrix_power(error, krylov.USUAL.passes)) > 0.1


@pytest.mark.parametrize("stored", [1, 2, 3])
def test_fewer_corrections_are_stored_than_made(stored):
    matrix, inverse, rng = system(11, (0.97, 1.02, 1.04, 0.99))
    rhs = rng.normal(size=(SIZE, 3))
    few = krylov.USUAL._replace(stored=stored)
    found = solved(matrix, inverse, jnp.asarray(rhs), effort=few)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, rhs), rtol=0, atol=1e-11)


def test_columns_do_not_disturb_each_other():
    matrix, inverse, rng = system(7, (0.02,))
    column = rng.normal(size=(SIZE, 1))
    both = np.concatenate([column, 1e-9 * rng.normal(size=(SIZE, 1)), 0 * column], axis=1)
    found = solved(matrix, inverse, jnp.asarray(both))
    exact = np.linalg.solve(matrix, both)
    size = abs(exact[:, :2]).max(0)
    np.testing.assert_allclose(found[:, :2] / size, exact[:, :2] / size, atol=1e-10)
    assert np.all(found[:, 2] == 0)


def test_stops_at_the_tolerance_asked_for():
    matrix, inverse, rng = system(3, (0.5, 1.5, 0.7))
    rhs = rng.normal(size=(SIZE, 1))
    defects = [
        abs(matrix @ solved(matrix, inverse, jnp.asarray(rhs), t) - rhs).max() / abs(rhs).max()
        for t in (1e-2, 1e-12)
    ]
    assert 1e-10 < defects[0] <= 1e-2
    assert defects[1] <= 1e-12


def test_says_when_no_pass_is_left():
    matrix, inverse, rng = system(3, tuple(np.geomspace(1e-6, 1e-1, 25)))
    rhs = jnp.asarray(rng.normal(size=(SIZE, 1)))
    found = solved(matrix, inverse, rhs)  # which compares what is said with the defect
    assert abs(np.asarray(matrix) @ found - rhs).max() > 1e-6


def test_a_last_effort_where_no_pass_is_left():
    matrix, inverse, rng = system(3, tuple(np.geomspace(1e-3, 1e-1, 20)))
    rhs = jnp.asarray(rng.normal(size=(SIZE, 2)))
    exact = np.linalg.solve(matrix, rhs)
    efforts = {"effort": krylov.USUAL}, {"last_effort": krylov.THOROUGH}
    errors = [abs(solved(matrix, inverse, rhs, **how) - exact).max() for how in efforts]
    assert errors[0] > 1e-6
    assert errors[1] < 1e-10


@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_goes_on_until_its_last_member_is_accurate(monkeypatch, shared):
    """Members of one, of a few and of all passes, as elsewhere than on a CPU."""
    monkeypatch.setattr("silico_py.solver.fusion.in_turn", lambda: False)
    spectra = 3 * [(1e-3, 4.0, -1.0)] if shared else [(), (1e-3, 4.0, -1.0), (0.02,)]
    systems = [system(0 if shared else k, spectrum) for k, spectrum in enumerate(spectra)]
    matrices, inverses = (jnp.stack([s[k] for s in systems]) for k in (0, 1))
    rhs = jnp.asarray(systems[0][2].normal(size=(3, SIZE, 2)) * [[[1, 1e-6]]])

    def solution(matrix, inverse, rhs):
        operators = (partial(jnp.matmul, m) for m in (matrix, inverse))
        return krylov.solve(*operators, rhs, 1e-12)

    given = (matrices[0], inverses[0]) if shared else (matrices, inverses)
    axes = (None, None, 0) if shared else 0
    found, accurate = jax.jit(jax.vmap(solution, axes))(*given, rhs)
    assert accurate.all()
    size = jnp.max(jnp.abs(rhs), axis=1, keepdims=True)
    assert jnp.max(abs(matrices @ found - rhs) / size) < 1.1e-12
