"""Unknowns and conditions as vectors: the parts that were put in come out, in every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silico_py.solver.vectors import CellConditions, CellVariables, Conditions, Variables

SIZES = (2, 6), ((3, 5, 4), (1, 0, 2))  # nodes; of each group cells, local primals, cone


def random(rng, *shape):
    return jnp.asarray(rng.normal(size=shape))


def parts(seed, lead=(), columns=()):
    """Vectors of the nodes, and (x or local, dual or slack, slack or product) of each group."""
    rng, (nodes, groups) = np.random.default_rng(seed), SIZES
    cells = [
        [random(rng, *lead, m, size, *columns) for size in (nx, dim, dim)] for m, nx, dim in groups
    ]
    return random(rng, *lead, *nodes, *columns), cells


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, tuple(found), tuple(expected))


@pytest.mark.parametrize("lead", [(), (7,)])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_variables_give_back_their_parts(lead, columns):
    y, cells = parts(0, lead, columns)
    w = Variables.of(y, [CellVariables(*cell) for cell in cells], columns=bool(columns))
    np.testing.assert_array_equal(w.y, y)
    axis = len(lead)
    for found, pair, cell in zip(w.cells, w.pairs, cells, strict=True):
        assert_same(found, cell)
        np.testing.assert_array_equal(pair, jnp.stack(cell[1:], axis))


def test_conditions_give_back_their_parts():
    nodes, cells = parts(1)
    c = Conditions.of(nodes, [CellConditions(*cell) for cell in cells])
    np.testing.assert_array_equal(c.nodes, nodes)
    for found, cell in zip(c.cells, cells, strict=True):
        assert_same(found, cell)
    own = [part.reshape(-1) for cell in cells for part in cell[:2]]
    np.testing.assert_array_equal(c.own, jnp.concatenate(own))
    np.testing.assert_array_equal(c.rows, jnp.concatenate([nodes.reshape(-1), *own]))
    np.testing.assert_array_equal(
        c.products, jnp.concatenate([cell[2].reshape(-1) for cell in cells])
    )
    alone = c.of_products([cell[2] for cell in cells])
    assert not alone.rows.any()
    np.testing.assert_array_equal(alone.products, c.products)


def test_vectors_side_by_side():
    made = []
    for seed in range(3):
        nodes, cells = parts(seed)
        made.append(Conditions.of(nodes, [CellConditions(*cell) for cell in cells]))
    table = Conditions.side_by_side(made)
    for k, one in enumerate(made):
        np.testing.assert_array_equal(table.column(k).flat, one.flat)
        np.testing.assert_array_equal(table.nodes[..., k], one.nodes)
        np.testing.assert_array_equal(table.cells[0].product[..., k], one.cells[0].product)


def test_views_under_vmap_are_those_of_the_members():
    y, cells = parts(0, (7,))
    batch = Variables.of(y, [CellVariables(*cell) for cell in cells])
    duals = jax.vmap(lambda w: w.cells[0].dual)(batch)
    np.testing.assert_array_equal(duals, cells[0][1])
    turned = jax.vmap(lambda w: Variables.of(w.y, w.cells))(batch)
    np.testing.assert_array_equal(turned.flat, batch.flat)
