"""A problem of one unknown whose path folds and whose solution is known."""

import jax.numpy as jnp
import numpy as np

from silico_py.solver import (
    CellGroup,
    CellResidual,
    CellVariables,
    Problem,
    ProductCone,
    Variables,
)

ONE = ProductCone.orthant(1)


def folded(constant):
    """y^3 - 3 y + constant = z with 0 <= 10 + y, z complementary: a root far behind a minimum.

    Its family y^3 + (1 - 4 share) y + constant has none up to a share of 1/4.
    """

    def node(y, data):
        slope, constant = data
        return y**3 - slope * y + constant

    def cell(y, x, z, _):
        return CellResidual(-z[None], x, 10 + y[0])

    def homotopy(data, share):
        slope, constant = data.nodes
        return data._replace(nodes=(share * (slope + 1) - 1, constant))

    group = CellGroup(ONE, np.zeros((1, 1), int), cell, jnp.zeros((1, 0)), split=1)
    nodes = jnp.full((1, 1), 3.0), jnp.full((1, 1), constant)
    return Problem(node, nodes, (group,), jnp.ones((1, 1)), homotopies=(homotopy,))


def start_at(y):
    cell = CellVariables(jnp.zeros((1, 0)), jnp.full((1, 1), 0.01), jnp.full((1, 1), 10 + y))
    return Variables.of(jnp.array([[y]]), (cell,))


def root_of(constant):
    roots = np.roots([1, 0, -3, constant])
    return roots[np.isreal(roots)].real.item()
