"""One kernel or many: the same numbers, derivatives and batches."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import OLD_XLA
from scipy.spatial.transform import Rotation
from stepping import stepped, stepped_each, thrown

import silico_py as sp
from silico_py import rotation
from silico_py.one_step import begin
from silico_py.solver import Options, dense, search
from silico_py.solver.fusion import ONE_KERNEL, compact, fused, loops_only, one_by_one


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """The other tests compile more than they run, and do without."""
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "1")


def newton(matrix, rhs, unused):
    """Something of everything: a loop, a factorisation, an integer, a constant, an input."""
    x = dense.solve(dense.factorize(matrix), rhs)
    steps, x = jax.lax.while_loop(
        lambda c: (jnp.sum(c[1] ** 2) > 1) & (c[0] < 9), lambda c: (c[0] + 1, c[1] / 2), (0, x)
    )
    product = dense.matmul(matrix, x)
    return {"x": x, "steps": steps, "same": rhs, "one": jnp.ones(3), "none": x[:0], "b": product}


def arguments(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n)), rng.normal(size=(n, 2)), np.ones(4)


def marks(lowered):
    """Whether each is in the text of a program."""
    text = lowered.as_text()
    return [f'{name} = "{value}"' in text for name, value in ONE_KERNEL.items()]


def marked(function, *args):
    return all(marks(jax.jit(function).lower(*args)))


@pytest.mark.parametrize("n", [1, 5, 17])
def test_a_kernel_computes_what_many_do(n):
    args = arguments(n)
    assert marked(fused(newton), *args)
    ours, theirs = jax.jit(fused(newton))(*args), newton(*args)
    assert ours["steps"].dtype == theirs["steps"].dtype
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), ours, theirs)


def test_a_kernel_is_none_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "0")
    assert not any(marks(jax.jit(fused(newton)).lower(*arguments(3))))


def test_what_needs_a_library_stays_outside():
    args = arguments(dense.LARGEST_SYSTEM + 1)
    assert "getrf" in jax.jit(fused(newton)).lower(*args).as_text()
    x = fused(newton)(*args)["x"]
    solved = np.linalg.solve(*args[:2])
    direction = np.asarray(x) / np.linalg.norm(x)
    np.testing.assert_allclose(direction, solved / np.linalg.norm(solved), rtol=1e-9)


def test_parts_of_what_needs_a_library_are_kernels():
    """Also those with results or arguments that are empty, and arguments that nothing reads."""

    def part(matrix, rhs, unused, empty, few):
        return {"x": dense.matmul(matrix, rhs)[:, :2], "none": rhs[:0], "few": few[:0].sum() + rhs}

    def whole(matrix, rhs):
        one = compact(part)(matrix, rhs, jnp.ones(4), jnp.ones((3, 0)), matrix[0])
        return one, compact(lambda m, r: dense.matmul(m, r))(matrix, rhs), matrix @ rhs

    args = np.random.default_rng(1).normal(size=(2, 9, 9))
    assert not marked(whole, *args) and marked(one_by_one(whole), *args)
    ours, theirs = jax.jit(one_by_one(whole))(*args), whole(*args)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), ours, theirs)


def test_derivatives_are_those_of_the_function():
    def energy(function):
        return lambda a, b: jnp.sum(function(a, b, jnp.ones(4))["b"] ** 2)

    def smooth(matrix, rhs, unused):
        return {"b": jnp.tanh(dense.matmul(matrix, rhs))}

    a, b, _ = arguments(4)
    ours = jax.hessian(energy(fused(smooth)), argnums=1)(a, b)
    np.testing.assert_allclose(ours, jax.hessian(energy(smooth), argnums=1)(a, b), rtol=1e-12)
    ours = jax.vmap(jax.grad(energy(fused(smooth))), (0, None))(a[None] * [[[1]], [[2]]], b)
    theirs = jax.vmap(jax.grad(energy(smooth)), (0, None))(a[None] * [[[1]], [[2]]], b)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("each", [fused, one_by_one])
@pytest.mark.parametrize("at_once", [False, True])
def test_batches(monkeypatch, each, at_once):
    """One member after another, or all at once as elsewhere than on a CPU."""
    if at_once:
        monkeypatch.setattr("silico_py.solver.fusion.in_turn", lambda: False)
    # A size that no system of another test has: what is compiled with kernels stays so.
    members = [arguments(7, seed) for seed in range(6)]
    matrices, rhs, unused = (np.stack(parts) for parts in zip(*members, strict=True))
    run = jax.vmap(jax.vmap(each(newton), (0, None, None)), (None, 0, None))
    if each is fused:
        assert marked(run, matrices, rhs, unused[0]) != at_once
    ours = jax.jit(run)(matrices, rhs, unused[0])
    assert ours["steps"].dtype == newton(*members[0])["steps"].dtype
    for i, j in ((0, 0), (0, 5), (3, 2)):
        theirs = newton(matrices[j], rhs[i], unused[0])
        np.testing.assert_allclose(ours["x"][i, j], theirs["x"], rtol=1e-9)
        assert int(ours["steps"][i, j]) == int(theirs["steps"])


def landing(bodies):
    """Scenes of other tests, so that many kernels are compiled once."""
    if bodies == 2:
        return thrown(speed=5.0, seed=1)
    scene, _ = sp.scenes.drop("box")
    turn = sp.rotation.normalize(jnp.array([[1.0, 0.2, -0.1, 0.3]]))
    return scene, scene.state([[0, 0, 0.3]], turn, [[0.5, -0.2, -1.0]], [[1.0, 0, 2.0]])


@pytest.mark.parametrize("bodies", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_step_and_its_derivative_are_those_of_many_kernels(monkeypatch, bodies):
    """Of a scene that is one kernel, and of one that has parts that are."""
    scene, state = landing(bodies)
    if not OLD_XLA:  # other tests have kernels there, and what is traced with them stays so
        jax.clear_caches()
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "0")
    following, alone = stepped(scene, state, relaxation=1e-3)
    theirs = *sp.linearize(scene, state, None, 1e-3), following

    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "1")
    # Names of its own: what is compiled for these tests is compiled in them.
    own = [dataclasses.replace(body, name=f"own {body.name}") for body in scene.bodies]
    here = dataclasses.replace(scene, bodies=own)
    lowered = jax.jit(lambda s: sp.linearize(here, s, None, 1e-3, with_step=True)).lower(state)
    assert all(marks(lowered))
    *ours, info = lowered.compile()(state)
    for found in (info, alone):
        assert found.converged and found.contacts.force[:, 2].max() > 10
    assert alone.iterations == info.iterations
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_arguments_that_the_compiler_knows_do_not_leave_a_kernel():
    """Here it finds out that nothing turns a sphere, and jaxlib 0.10.2 aborted over that."""
    scene, state = sp.scenes.drop("sphere")
    own = dataclasses.replace(scene.bodies[0], name="own")
    scene = dataclasses.replace(scene, bodies=[own])

    def falls(state):
        def advance(carry):
            following, info = sp.step(scene, carry[0], None, None, carry[1])
            return following, info.guess

        start = state, sp.no_guess(scene, state)
        return jax.lax.while_loop(lambda c: c[0].position[0, 2] > 0.8, advance, start)[0]

    states = jax.tree.map(lambda v: jnp.stack([v, v]), state)
    ends = jax.jit(lambda states: jax.lax.map(falls, states))(states)
    np.testing.assert_array_equal(ends.position[0], ends.position[1])
    assert 0.75 < ends.position[0, 0, 2] <= 0.8


@pytest.mark.slow
def test_a_batch_of_steps_at_once_is_that_of_its_members(monkeypatch):
    """What a GPU does, of two bodies; test_lanes.py has one."""
    monkeypatch.setenv("SILICO_PY_ONE_KERNEL", "0")
    scene, apart = sp.scenes.collision(timestep=0.05)
    own = [dataclasses.replace(body, name=f"own {body.name}") for body in scene.bodies]
    starts = jax.vmap(lambda share: dataclasses.replace(apart, position=share * apart.position))(
        jnp.array([0.3, 0.6, 1.0])  # inside each other, about to hit each other, and apart
    )
    expected, alone = stepped_each(scene, starts)
    monkeypatch.setattr("silico_py.solver.fusion.in_turn", lambda: False)
    # Names of its own, see above.
    at_once = dataclasses.replace(scene, bodies=own)
    states, info = jax.vmap(lambda s: sp.step(at_once, s))(starts)
    assert info.converged.all()
    assert (info.contacts.force[:, 0, 0] < -1).tolist() == [True, True, False]
    np.testing.assert_array_equal(info.iterations, alone.iterations)
    for a, b in zip(jax.tree.leaves(states), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("m", [1, 3, 12])
def test_products_and_factors_inside_a_kernel(m):
    rng = np.random.default_rng(m)
    a, b = rng.normal(size=(2, m, 7)), rng.normal(size=(2, 7, 3))
    with loops_only():
        np.testing.assert_allclose(dense.matmul(a, b), a @ b, rtol=1e-12, atol=1e-14)
        square = rng.normal(size=(m, m)) * 10.0 ** rng.uniform(-6, 6, size=(m, 1))
        found = dense.solve(dense.factorize(jnp.asarray(square)), jnp.eye(m))
    np.testing.assert_allclose(found @ square, np.eye(m), atol=1e-8)


@pytest.mark.parametrize("terms", [0, 1, 3, 4, 5, 9])
def test_sums_inside_a_kernel(terms):
    rng = np.random.default_rng(terms)
    a, b = rng.normal(size=(2, 3, terms, 2)), rng.normal(size=(terms, 1))
    with loops_only():
        found = dense.dot(jnp.asarray(a), b, axis=-2)
        size = dense.norm(jnp.asarray(b[:, 0]))
    np.testing.assert_allclose(found, (a * b).sum(axis=-2), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(size, np.linalg.norm(b), rtol=1e-12)


@pytest.mark.parametrize("inside", [False, True])
def test_rotations_are_those_of_scipy(inside):
    """Written out inside a kernel, sums over a table outside."""
    rng = np.random.default_rng(0)
    p, q = (v / np.linalg.norm(v, axis=1)[:, None] for v in rng.normal(size=(2, 5, 4)))
    a, b = rng.normal(size=(2, 5, 3))
    first, second = (Rotation.from_quat(v, scalar_first=True) for v in (p, q))
    with loops_only() if inside else contextlib.nullcontext():
        product, matrix = rotation.multiply(p, q), rotation.matrix(p)
        crossed, turned = rotation.cross(a, b), rotation.skew(a) @ b[..., None]
        doubled = rotation.matrix(2 * p)
    sign = np.sign(np.sum(product * (first * second).as_quat(scalar_first=True), axis=1))
    expected = sign[:, None] * (first * second).as_quat(scalar_first=True)
    np.testing.assert_allclose(product, expected, atol=1e-14)
    np.testing.assert_allclose(matrix, first.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(doubled, 4 * first.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(crossed, np.cross(a, b), atol=1e-14)
    np.testing.assert_allclose(turned[..., 0], np.cross(a, b), atol=1e-14)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (sp.scenes.drop, ["search", "derivative"]),
        (sp.scenes.collision, ["search", "derivative"]),
        (sp.scenes.peg_in_hole, ["measure", "accept", "derivative"]),
    ],
)
def test_what_is_a_kernel_in_ready_scenes(make, names):
    """A kernel that grows too large runs many times slower, and nothing else tells."""
    scene, state = make()
    # Other tests trace without kernels, and what they have traced stays so: this is traced anew.
    options = sp.SolverOptions(warm_start=False)
    derive = lambda at: sp.linearize(scene, at, options=options, with_step=True)  # noqa: E731
    lowered = jax.jit(derive).lower(state)
    text = lowered.as_text()
    assert [name for name in names if f"@{name}_kernel" in text] == names


@pytest.mark.parametrize("own", [0, 30])
def test_accumulate_is_a_scatter(own):
    """Also where one target has many more terms than most."""
    rng = np.random.default_rng(0)
    targets = np.concatenate([rng.integers(0, 5, size=12), np.full(own, 3)])
    values = rng.normal(size=(12 + own, 2))
    expected = np.zeros((7, 2))
    np.add.at(expected, targets, values)
    found = dense.accumulate(jnp.asarray(values), targets, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "rows",
    [
        [0, 1, 2, 3, 4],
        [2, 3],
        [3, 3, 3],
        [4],
        [3, 1, 1],
        [2, 1],
        [[0, 1], [2, 3]],
        [[0, 1], [1, 2]],
    ],
)
def test_rows_known_in_advance_are_those_of_a_gather(rows):
    values, rows = np.random.default_rng(0).normal(size=(5, 2, 3)), np.array(rows)

    def of_rows(v, rows):
        return jnp.sum(jnp.sin(dense.taken(v, rows)))

    np.testing.assert_array_equal(dense.taken(jnp.asarray(values), rows), values[rows])
    np.testing.assert_allclose(*(jax.grad(of_rows)(values, r) for r in (rows, jnp.asarray(rows))))


def test_guesses_of_a_tall_tower_are_looked_at_without_compiler_options():
    """Sums that are small for one guess are not for three, and a library is none in a kernel."""
    scene, state = sp.scenes.stack(20)
    options = sp.SolverOptions()

    @jax.jit
    def best(state):
        rho, guess = jnp.asarray(1e-6), sp.no_guess(scene, state, options)
        begun = begin(scene, state, jnp.zeros((20, 6)), rho, guess, options)
        limits = Options(rho, rho / 10, options.max_iterations)
        return search._looked_at(begun.problem, begun.start, limits, begun.guess)

    found = best(state)
    assert not found.usable and not found.exact
