"""The bilevel method, and the study that compares it."""

import csv
import dataclasses
import io
import json
from concurrent.futures import Future
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from stepping import rolled, stepped_each

import silico_py as sp
from silico_py import bilevel as bilevel_method
from silico_py.collision import WARM_RELAXATION, locate, optimum, solve_collision
from silico_py.collision_program import Piece, SlackMap, Warm, pair_length
from silico_py.study import command, experiments, report, runs
from silico_py.study.scenes import drop, planar_polytope
from silico_py.tangents import perturb

RHO = 1e-4
SPACING = 1e-6


@pytest.fixture(scope="module")
def ellipsoids():
    """(scene, 6 states): an ellipsoid above the floor, sliding, rolling and landing on it."""
    scene, _ = sp.scenes.drop("ellipsoid", friction=0.3)
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(6, 1, 4))
    turn /= np.linalg.norm(turn, axis=-1, keepdims=True)
    radii = np.array(scene.bodies[0].pieces[0][0].radii)
    up = np.array([np.array(sp.rotation.matrix(q[0]))[2] for q in turn])
    position = np.zeros((6, 1, 3))
    position[:, 0, 2] = np.linalg.norm(radii * up, axis=1) + [0.3, 0, 0, 0.002, 0.002, 0]
    velocity, spin = rng.uniform(-1, 1, (2, 6, 1, 3))
    velocity[..., 2] = -np.abs(velocity[..., 2])
    return scene, sp.State(*map(jnp.asarray, (position, turn, velocity, spin)))


SETTINGS = sp.SolverOptions(relaxation=RHO, collision_relaxation=RHO, method="bilevel")


@pytest.fixture(scope="module")
def bilevel(ellipsoids):
    """`(states, changes, directions)`: step after the change, info, derivative along it."""
    scene, _ = ellipsoids

    def run(state, change, direction):
        step = lambda c: sp.step(scene, perturb(state, c), options=SETTINGS)  # noqa: E731
        following, slope, info = jax.jvp(step, (change,), (direction,), has_aux=True)
        return following, info, slope

    return jax.jit(jax.vmap(run))


def test_both_methods_have_the_same_solutions(ellipsoids, bilevel):
    scene, states = ellipsoids
    nothing = np.zeros((6, 1, 12))
    inner, other, _ = bilevel(states, nothing, nothing)
    single, info = stepped_each(scene, states, relaxation=RHO)
    assert info.converged.all() and other.converged.all()
    assert (np.linalg.norm(info.contacts.force[:, 0], axis=-1) > 1).sum() >= 4
    for name in ("velocity", "angular_velocity"):
        np.testing.assert_allclose(getattr(single, name), getattr(inner, name), atol=5 * RHO)
    scale = np.abs(info.contacts.force).max()
    np.testing.assert_allclose(info.contacts.force, other.contacts.force, atol=1e-3 * scale)


@pytest.mark.parametrize("k", [0, 2, 3])
def test_the_bilevel_step_is_differentiable(ellipsoids, bilevel, k):
    state = jax.tree.map(lambda v: jnp.stack([v[k]] * 6), ellipsoids[1])
    directions = np.random.default_rng(k).normal(size=(6, 1, 12))
    _, info, slopes = bilevel(state, 0 * directions, directions)
    ahead, behind = (bilevel(state, s * SPACING * directions, directions)[0] for s in (1, -1))
    assert info.converged.all()
    for name in ("position", "velocity", "angular_velocity"):
        found = getattr(slopes, name)
        expected = (getattr(ahead, name) - getattr(behind, name)) / (2 * SPACING)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_the_bilevel_gradient_by_the_scene_agrees_with_differences(ellipsoids):
    scene, states = ellipsoids
    state = states[2]
    spin = lambda s: sp.step(s, state, options=SETTINGS)[0].angular_velocity[0].sum()  # noqa: E731
    run = jax.jit(jax.value_and_grad(spin))
    _, slope = run(scene)
    for name in ("friction", "timestep"):
        value = getattr(scene, name)
        ahead, behind = (
            run(dataclasses.replace(scene, **{name: value + s * SPACING}))[0] for s in (1, -1)
        )
        expected = (ahead - behind) / (2 * SPACING)
        assert abs(expected) > 1e-3
        np.testing.assert_allclose(getattr(slope, name), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_collision_program_that_is_not_solved_is_told(monkeypatch):
    """Whatever the step around it makes of it."""
    monkeypatch.setattr(bilevel_method, "COLLISION_ITERATIONS", 1)
    ball = sp.Body("hardly located", sp.Sphere(0.2), mass=1.0)
    scene = sp.Scene([ball], [sp.scenes.floor()])
    _, info = sp.step(scene, scene.state([[0.0, 0.0, 2.0]]), options=SETTINGS)
    assert not info.converged and info.status != sp.Status.CONVERGED
    assert np.isnan(info.contacts.alpha[0])


def test_a_warm_start_changes_nothing_but_the_time():
    """Of a collision program; from a pose that is too far away the usual start takes over."""
    box, cone = (sp.scenes.SHAPES[name]() for name in ("box", "cone"))
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(40, 4))
    turn /= np.linalg.norm(turn, axis=-1, keepdims=True)
    near = rng.uniform(-0.3, 0.3, (40, 3)) + [0, 0, 0.6]
    far = np.where(np.arange(40)[:, None] % 2, near + [0, 0, 3.0], near + 0.01)

    @jax.jit
    @jax.vmap
    def both(turn, here, there):
        b = Piece(box, SlackMap.of(box), jnp.zeros(3), jnp.eye(3))
        a = Piece(cone, SlackMap.of(cone), here, sp.rotation.matrix(turn))
        length = pair_length(cone, box)
        before = solve_collision(a, b, length, WARM_RELAXATION, 50)
        a, rho = a._replace(center=there), jnp.array(1e-8)
        warm = locate(a, b, length, rho, 50, Warm(before.end, jnp.array(True)))
        return solve_collision(a, b, length, rho, 50), optimum(a, b, length, rho, warm)

    cold, warm = both(turn, near, far)
    assert cold.converged.all() and warm.converged.all()
    np.testing.assert_allclose(warm.alpha, cold.alpha, rtol=0, atol=1e-12)
    np.testing.assert_allclose(warm.normal, cold.normal, rtol=0, atol=1e-8)
    assert np.median(warm.iterations[::2]) < 0.75 * np.median(cold.iterations[::2])


@pytest.mark.slow
def test_the_polytope_of_the_paper_stays_in_its_plane():
    scene, starts = planar_polytope()
    state = starts(0, 1)[0]
    trajectory = rolled(scene, state, 100)
    assert np.abs(trajectory.state.position[:, 0, 1]).max() < 1e-6
    assert np.abs(trajectory.state.angular_velocity[..., [0, 2]]).max() < 1e-6
    assert np.abs(trajectory.state.velocity[:10, 0, 0]).max() > 0.1


CASES = {"members": 2, "frequencies": (10,), "relaxations": (1e-3,), "seconds": 0.5}


@pytest.fixture(scope="module")
def rows():
    """Of the single-level method; the bilevel takes long to compile."""
    (row,) = experiments.Grid(drop("sphere"), methods=("single-level",), **CASES).rows()
    return [row, row | {"method": "bilevel"}]


def test_rows_of_the_study(rows):
    row = rows[0]
    assert row["runs"] == 2 and row["failed"] == 0
    assert 2 < row["iterations"] < 10  # of a step
    assert 0 < row["linear momentum"] < 4
    assert row["detector violation"] <= row["violation"] <= 4 * row["relaxation"]
    # It rolls at 1.3 m/s at most, and 1 kg of it turns with 2/5 r^2.
    assert 0 < row["angular momentum"] < 0.4 * 0.25**2 * 1.3 / 0.25


def test_a_study_goes_on_where_it_stopped(rows, tmp_path, monkeypatch):
    asked = []

    def found(grid, done):
        for row in rows:
            case = {name: row[name] for name in ("method", "frequency", "relaxation")}
            if not done(case):
                asked.append(case)
                yield row

    monkeypatch.setattr(experiments.Grid, "rows", found)
    report.save_rows(rows[:1], tmp_path / "spheres")
    grid = experiments.Grid(drop("sphere"), **CASES)
    table = command.Table("spheres", grid, command.DROP_FIELDS)
    for _ in range(2):  # the second time nothing is left but to write what was lost
        known = command._known(table, tmp_path)
        fresh = command._rows_to_come(table, known)
        (tmp_path / "spheres.csv").unlink()
        command._finish(table, known, fresh, tmp_path, Console(quiet=True))
    assert [case["method"] for case in asked] == ["bilevel"]
    assert json.loads((tmp_path / "spheres.json").read_text()) == rows
    with (tmp_path / "spheres.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["single-level", "bilevel"]
    assert (tmp_path / "spheres.png").stat().st_size > 10_000


def test_a_table_of_the_study_fits_into_80_columns(rows):
    console = Console(width=80, file=io.StringIO())
    failed = [row | {"runs": 3600, "failed": 1800, "violation": 1.234e-5} for row in rows]
    console.print(report.summary("planar_polytope", failed))
    text = console.file.getvalue()
    assert "…" not in text
    assert "single-level  3600  1800 (50.0 %)" in text


@pytest.fixture
def figure(monkeypatch):
    """The figure that is drawn next."""
    drawn = report.Figure()
    monkeypatch.setattr(report, "Figure", lambda **_: drawn)
    return drawn


def test_both_methods_have_one_scale_of_colours(rows, figure, tmp_path):
    single, bilevel = (row | {"violation": 1e-6} for row in rows)
    bilevel |= {"failed": 2, "violation": np.inf}
    other = bilevel | {"frequency": 20, "violation": 1e-1}
    rows = [single, bilevel, other]
    report.grids("spheres", rows, command.DROP_FIELDS, tmp_path / "spheres.png")
    panels = {axis.get_title(): axis.images[0] for axis in figure.axes if axis.get_title()}
    assert panels["single-level: failed of 2"].get_clim() == (0, 2)
    assert panels["bilevel: failed of 2"].get_clim() == (0, 2)
    assert panels["single-level: violation"].get_clim() == (1e-6, 1e-1)
    assert panels["bilevel: violation"].get_clim() == (1e-6, 1e-1)
    np.testing.assert_array_equal(panels["bilevel: violation"].get_array(), [[1e-1, 1e-1]])


@pytest.mark.parametrize(("members", "steps"), [(4, 20), (7, 14), (50, 50)])
def test_the_histogram_says_how_many_steps_a_chunk_has(members, steps, figure, tmp_path):
    times = {"single-level": [1.0, 2.0], "bilevel": [30.0]}
    console = Console(file=io.StringIO(), width=20)
    command._show(times, experiments.steps_of_chunk(members), tmp_path, console)
    said = "".join(console.file.getvalue().splitlines())
    assert "single-level: 20.0" in " ".join(console.file.getvalue().split())  # 30 us over 1.5
    assert said.endswith(f"wrote {tmp_path / 'timing.png'}")
    assert figure.axes[0].get_ylabel() == f"chunks of {steps} steps"


@pytest.mark.parametrize("few", [True, False])
def test_a_collision_that_is_not_solved_counts_as_infinite_violation(few, monkeypatch):
    if few:
        monkeypatch.setattr(runs, "COLLISION_ITERATIONS", 1)
    scene, state = sp.scenes.drop("sphere")
    found = jax.jit(partial(runs.violation, scene))(state, 1e-10)
    assert found == (np.inf if few else 0)


def test_an_unknown_experiment_is_named(tmp_path):
    with pytest.raises(ValueError, match="teapot"):
        command.study(tmp_path, quick=True, others=["teapot"])


def test_others_are_studied_once_each(tmp_path, monkeypatch):
    studied = []
    monkeypatch.setattr(command, "_rows_to_come", lambda *_: iter(()))
    monkeypatch.setattr(command, "_finish", lambda table, *_: studied.append(table.name))
    monkeypatch.setattr(command.experiments, "timing", lambda *_: {})
    monkeypatch.setattr(command, "_show", lambda *_: None)
    others = (name for name in ("sphere", "box", "sphere"))  # to be gone through only once
    command.study(tmp_path, quick=True, others=others, console=Console(quiet=True))
    assert studied == ["two_blocks", "planar_polytope", "sphere", "box"]


def test_a_study_interrupted_while_it_writes_goes_on_with_both_files(rows, tmp_path, monkeypatch):
    path = tmp_path / "spheres"
    report.save_rows(rows[:1], path)
    with monkeypatch.context() as patch:
        write, written = report.replace, []

        def interrupted(*given):
            if written:
                raise KeyboardInterrupt
            written.append(write(*given))

        patch.setattr(report, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            report.save_rows(rows, path)
    with path.with_suffix(".csv").open() as file:
        assert len(list(csv.DictReader(file))) >= len(report.load_rows(path))


@pytest.mark.parametrize("members", [4, 7, 50, 300])
def test_steps_are_timed_with_any_number_of_members(members, monkeypatch):
    sizes = set()

    def runner(states, timestep, options, steps):
        sizes.add((len(states.position), steps))
        visited = jax.tree.map(lambda v: np.repeat(v[:, None], 15, axis=1), states)
        return experiments.Outcome(np.zeros(members, bool), np.ones(members), visited)

    compiled = Future()
    compiled.set_result(runner)
    monkeypatch.setattr(experiments.Grid, "runner", lambda grid, method: compiled)
    grid = experiments.Grid(drop("sphere"), members=members, frequencies=(10,))
    times = experiments.timing(grid, 200)
    assert {size for size, _ in sizes} == {members} and all(steps > 0 for _, steps in sizes)
    assert len(times) == 3 and all(values for values in times.values())


def test_only_methods_with_cases_left_compile(monkeypatch):
    asked = []
    monkeypatch.setattr(experiments.Grid, "runner", lambda _, method: asked.append(method))
    monkeypatch.setattr(experiments.Grid, "judge", None)
    grid = experiments.Grid(drop("sphere"), members=2, frequencies=(10,), relaxations=(1e-3,))
    grid.rows(done=lambda case: case["method"] == "bilevel")
    assert asked == ["single-level"]


def test_a_study_needs_runs(tmp_path):
    with pytest.raises(ValueError, match="runs: must be an int, at least 1"):
        command.study(tmp_path, quick=True, runs=0)


@pytest.mark.parametrize("text", ['[{"method": "sing', '[{"method": "single-level"}]', "{}x"])
def test_a_damaged_file_of_a_study_is_named(text, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.Grid, "rows", None)
    path = tmp_path / "full" / "sphere.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match=r"out: .*sphere\.json"):
        command.study(tmp_path, others=["sphere"])


@pytest.mark.parametrize("text", ["{}", "[]", '{"single-level": [1.0], "bilevel": []}'])
def test_a_file_without_times_is_named(text, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.Grid, "rows", None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "timing.json").write_text(text)
    with pytest.raises(ValueError, match=r"out: .*timing\.json has no times"):
        command.study(tmp_path)


def test_rows_of_other_numbers_of_runs_do_not_mix(rows, tmp_path, monkeypatch):
    """And that is told before anything compiles, of the last table too."""
    monkeypatch.setattr(experiments.Grid, "rows", None)
    report.save_rows(rows, tmp_path / "full" / "sphere")
    with pytest.raises(ValueError, match=r"sphere\.json has rows of other than 100 runs"):
        command.study(tmp_path, others=["sphere"])
