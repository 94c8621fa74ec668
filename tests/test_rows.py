"""Functions of one row, mapped over one, a few or many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silico_py.blocks import Columns
from silico_py.solver.dense import matmul
from silico_py.solver.fusion import fused, loops_only
from silico_py.solver.rows import MANY, each

COUNTS = [1, 3, MANY]


@pytest.mark.parametrize("n", COUNTS)
def test_each_row_is_that_of_vmap(n):
    """Of arguments that are trees, one the same for all, with derivatives through both kinds."""
    rng = np.random.default_rng(n)
    rows, one = {"a": rng.normal(size=(n, 2)), "b": (np.arange(n), None)}, rng.normal(size=2)

    def of_row(row, one):
        return {"sum": jnp.sin(row["a"]) @ one, "k": row["b"][0], "none": row["b"][1]}

    def energy(run, a, one):
        return jnp.sum(run(rows | {"a": a}, one)["sum"] ** 2)

    ours, theirs = each(of_row, (0, None)), jax.vmap(of_row, (0, None))
    assert jax.tree.structure(ours(rows, one)) == jax.tree.structure(theirs(rows, one))
    at = rows["a"], one
    for found, expected in (
        (ours(rows, one), theirs(rows, one)),
        *((jax.grad(energy, k)(ours, *at), jax.grad(energy, k)(theirs, *at)) for k in (1, 2)),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def contact(a, b, c):
    """Two parts of a matrix, of which one quantity is in both, one in none and one has no columns;
    what there is no column for is left out."""
    columns = Columns({"v": 2, "x": 1, "none": 0, "w": 3})
    upper = columns.blocks(2, v=a, other=a, none=a[:, :0])
    lower = columns.blocks(1, w=c, v=b) + columns.blocks(1, v=b, x=b[:, :1])
    return columns.matrix(upper, lower)


@pytest.mark.parametrize("n", COUNTS)
def test_matrices_of_blocks_in_a_kernel(monkeypatch, n):
    """Of many rows they are written: as one kernel, which contains no scatter."""
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "1")
    rng = np.random.default_rng(n)
    a, b, c = (rng.normal(size=(n, *shape)) for shape in ((2, 2), (1, 2), (1, 3)))
    upper = np.concatenate([a, np.zeros((n, 2, 4))], axis=2)
    lower = np.concatenate([2 * b, b[..., :1], c], axis=2)
    run = jax.jit(fused(each(contact)))
    text = run.lower(a, b, c).as_text()
    assert "xla_cpu_small_call" in text and ("dynamic_update_slice" in text) == (n == MANY)
    np.testing.assert_allclose(run(a, b, c), np.concatenate([upper, lower], axis=1))


def test_derivatives_of_matrices_that_are_written():
    """Inside of a kernel, where one argument is that of all rows."""
    a, c = np.random.default_rng(0).normal(size=(2, MANY, 1, 3))
    change = np.ones_like(a[:, 0])

    def run(a, c):
        return each(contact, (0, None, 0))(jnp.stack([a[:, :2]] * 2, axis=1), c[0, :, :2], c)

    with loops_only():
        found = jax.jvp(run, (a[:, 0], c), (change, 0 * c))
        slope = jax.jacfwd(lambda t: run(a[:, 0] + t * change, c))(0.0)
    expected = jax.jvp(run, (a[:, 0], c), (change, 0 * c))
    for ours, theirs in zip((*found, slope), (*expected, expected[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize(("terms", "columns"), [(7, 0), (7, 1), (7, 2), (7, 3), (4, 3), (0, 2)])
def test_products_of_many(n, terms, columns):
    """Of matrices one by one and of all in one."""
    rng = np.random.default_rng(columns)
    a, b = rng.normal(size=(n, 5, terms)), rng.normal(size=(n, terms, columns))
    np.testing.assert_allclose(each(matmul)(a, b), a @ b, rtol=1e-12)
    np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-12)
    np.testing.assert_allclose(each(matmul, (None, 0))(a[0], b), a[0] @ b, rtol=1e-12)
