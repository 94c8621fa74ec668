"""The transposed Newton system: <u, A v> = <A^T u, v>."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import tower

from silico_py.solver import dense, kkt
from silico_py.solver.fusion import loops_only
from silico_py.solver.problem import no_easing


def random_vector(w, rng, columns=2):
    """A vector of the Newton system."""

    def noise(v):
        return jnp.asarray(rng.normal(size=(*v.shape, columns)))

    cells = (kkt.CellVector(noise(cell.x), noise(cell.dual)) for cell in w.cells)
    return kkt.SystemVector(noise(w.y), tuple(cells))


def dot(a, b):
    """Of each column."""
    parts = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(np.sum(np.asarray(x * y).reshape(-1, x.shape[-1]), axis=0) for x, y in parts)


@pytest.mark.parametrize("blocks", [2, 10])  # the latter are cut into levels
def test_transposed_system_and_its_inverse(blocks):
    problem, w = tower(blocks)
    rng = np.random.default_rng(blocks)
    u, v = random_vector(w, rng), random_vector(w, rng)

    @jax.jit
    def images(data, w):
        factor = kkt.factorize(problem.with_data(data), w, no_easing(jnp.float64))
        ahead = [f(v) for f in kkt.system(problem, factor)]
        back = [f(u) for f in kkt.transposed_system(problem, factor)]
        return ahead, back

    for ahead, back in zip(*images(problem.data, w), strict=True):
        np.testing.assert_allclose(dot(u, ahead), dot(back, v), rtol=1e-9)


@pytest.mark.parametrize("kernel", [False, True])
def test_transposed_substitution(kernel):
    rng = np.random.default_rng(0)
    matrix, rhs = jnp.asarray(rng.normal(size=(7, 7))), jnp.asarray(rng.normal(size=(7, 3)))

    def solve(matrix, rhs):
        return dense.solve_transposed(dense.factorize(matrix), rhs)

    def looped(matrix, rhs):
        with loops_only():
            return solve(matrix, rhs)

    found = jax.jit(looped if kernel else solve)(matrix, rhs)
    np.testing.assert_allclose(found, np.linalg.solve(matrix.T, rhs), rtol=1e-10)
