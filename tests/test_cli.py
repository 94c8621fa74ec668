"""The command line: what it writes, what it says, and its exit codes."""

import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import silico_py as sp
from silico_py import cli, planning, running
from silico_py.planning import command as planning_command


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def said(result):
    """The message, which stands in a box, broken into lines."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split())


def test_scenes_lists_every_scene():
    result = run("scenes")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.output.splitlines()]
    assert listed == list(cli.SCENES) and "drop:cone" in listed


def test_run_writes_numbers_a_picture_and_a_page_from_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHUNK", 2)  # the second one would be of a step too many
    page, motion = tmp_path / "page.html", tmp_path / "ball.gif"
    wanted = "--out", tmp_path, "--html", page, "--gif", motion
    result = run("run", "drop:sphere", "--steps", 3, *wanted)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "drop_sphere.png").is_file() and motion.read_bytes()[:3] == b"GIF"
    numbers = np.load(tmp_path / "drop_sphere.npz")
    assert numbers["position"].shape == (3, 1, 3) and numbers["converged"].all()
    _, start = sp.scenes.drop("sphere")
    np.testing.assert_array_equal(numbers["start_velocity"], start.velocity)
    assert all(numbers[name].dtype != object for name in numbers)
    assert list(numbers["bodies"]) == ["sphere"]
    assert list(numbers["pairs"]) == ["sphere - environment[0]"]
    replay = json.loads(re.search(r'id="replay">(.*?)</script>', page.read_text())[1])
    assert replay["frames"] == 4


def test_names_may_have_dashes(tmp_path):
    result = run("export", "peg-in-hole", tmp_path / "peg.xml")
    assert result.exit_code == 0 and (tmp_path / "peg.xml").is_file(), result.output
    assert run("plan", "grasp", "--help").exit_code == 0
    assert run("plan", "teapot").exit_code == 2


def test_what_cannot_be_written_is_refused_before_the_simulation(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "_simulate", pytest.fail)
    (tmp_path / "file").touch()
    result = run("run", "teapot", "--out", tmp_path / "out")
    assert result.exit_code == 2 and not (tmp_path / "out").exists()
    for options in (["--out", tmp_path / "file"], ["--out", tmp_path, "--html", tmp_path]):
        result = run("run", "drop:sphere", *options)
        assert result.exit_code == 2, result.output


@pytest.mark.parametrize("command", ["run", "view"])
def test_options_reach_the_solver_and_the_window(command, tmp_path, monkeypatch):
    given = []

    def simulated(scene, ready, steps):
        given.append((vars(ready.options), float(ready.scene.timestep), steps))
        return finished(2), Console(file=io.StringIO())

    monkeypatch.setattr(cli, "_simulate", simulated)
    monkeypatch.setattr(cli.interruption, "leave_to_python", lambda: None)
    monkeypatch.setattr(sp, "view", lambda *_, port, block: given.append((port, block)))
    options = ["--method", "bilevel", "--max-contacts", "3", "--relaxation", "1e-4", "--steps", "7"]
    options += ["--frequency", "20"]
    options += ["--port", "8123"] if command == "view" else ["--out", tmp_path]
    assert run(command, "drop:sphere", *options).exit_code == 0
    wanted = sp.SolverOptions(relaxation=1e-4, method="bilevel", max_contacts=3)
    assert given == [(vars(wanted), 0.05, 7), *[(8123, True)] * (command == "view")]


def finished(steps, failed=()):
    """A run of two bodies with made-up numbers, some steps of which failed."""
    bodies = [sp.Body(name, sp.Sphere(0.1), mass=mass) for name, mass in (("a", 2.0), ("b", 3.0))]
    scene, rng = sp.Scene(bodies), np.random.default_rng(0)
    position, velocity, spin = rng.normal(size=(3, steps, 2, 3))
    state = sp.State(position, np.tile([1.0, 0, 0, 0], (steps, 2, 1)), velocity, spin)
    alpha = 1 + rng.normal(size=(steps, 1))
    contacts = sp.ContactInfo(alpha, *rng.normal(size=(3, steps, 1, 3)))
    converged = ~np.isin(np.arange(steps), failed)
    iterations, sizes = rng.integers(1, 9, steps), rng.uniform(size=(2, steps))
    info = sp.Info(converged, 1 * ~converged, iterations, *sizes, contacts, None)
    return running.Run(scene, scene.state(), sp.Trajectory(state, info), 3.0, 0.5)


def test_a_row_of_the_table_says_what_a_run_was():
    done = finished(20, failed=[4, 7])
    info, (last, before) = done.trajectory.info, done.trajectory.state.velocity[[19, 18]]
    norms = np.linalg.norm([last, before], axis=-1)  # of the last tenth
    assert running.row("two", done) == [
        *("two", "20", "[bold red]2[/bold red]"),
        f"{info.iterations.mean():.1f} / {info.iterations.max()}",
        f"{1 - info.contacts.alpha.min():.1e}",
        f"{(2 * norms[:, 0] + 3 * norms[:, 1]).mean() / 2:.1e}",
        *("25000", "3"),
    ]


def test_momentum_is_that_of_the_centre_of_mass():
    """A body that turns about it, two metres away from its origin."""
    body = sp.Body("hammer", sp.Sphere(0.1), mass=3.0, center_of_mass=(2.0, 0.0, 0.0))
    scene = sp.Scene([body])
    state = scene.state(velocity=[[0.0, -8.0, 1.0]], angular_velocity=[[0.0, 0.0, 4.0]])
    trajectory = jax.tree.map(lambda v: v[None], sp.Trajectory(state, None))
    done = running.Run(scene, state, trajectory, 0.0, 1.0)
    np.testing.assert_allclose(running.momentum(done), 3.0, rtol=1e-12)


def test_only_the_first_failures_are_listed():
    console = Console(record=True, width=40)
    done = finished(9, failed=[1, 2, 4, 5, 6, 8])
    running.list_failures(sp.failures(done.scene, done.trajectory.info), console)
    first, *_, fifth, rest = console.export_text().splitlines()
    message = f"{sp.Status.MAX_ITERATIONS.message}; nearest: a - b"
    assert [first, fifth, rest] == [f"step 2: {message}", f"step 7: {message}", "and 1 more"]


def test_the_demo_runs_three_scenes_and_ends_with_the_failures_of_all(tmp_path, monkeypatch):
    asked = []

    def run_scene(scene, state, steps, progress, name):
        asked.append((name, float(scene.timestep), steps))
        return finished(5, failed=[1, 2] if name == "peg_in_hole" else [])

    monkeypatch.setattr(running, "run", run_scene)
    monkeypatch.setattr(running, "draw", lambda name, done, folder: folder / name)
    result = run("demo", "--frequency", 50, "--out", tmp_path)
    assert result.exit_code == 1 and "2 steps did not converge" in result.output
    assert asked == [("peg_in_hole", 0.02, 250), ("stack", 0.02, 50), ("bundle_drop", 0.02, 75)]


@pytest.mark.slow
def test_run_with_fewer_contacts_than_act_says_so(tmp_path):
    result = run("run", "stack", "--steps", 1, "--max-contacts", 1, "--out", tmp_path)
    assert result.exit_code == 1
    assert f"step 1: {sp.Status.INCOMPLETE.message}; nearest: " in result.output
    assert np.load(tmp_path / "stack.npz")["status"] == [sp.Status.INCOMPLETE]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "teapot"], "no scene 'teapot'"),
        (["run", "drop:sphere", "--frequency", "0"], "--frequency: must be positive"),
        (["run", "drop:sphere", "--relaxation", "1e-20"], "relaxation"),
        (["run", "drop:sphere", "--max-contacts", "0"], "max_contacts"),
        (["run", "nowhere.xml"], "no such model file"),
        (["view", "drop:sphere", "--method", "magic"], "magic"),
        (["view", "drop:sphere", "--port", "99999999"], "--port"),
        (["export", "drop:sphere", "/dev/null/model.xml"], "/dev/null"),
        (["run", "drop:sphere", "--ignore", "motor"], "--ignore"),
        (["demo", "--out", "/dev/null/pictures"], "/dev/null"),
        (["plan", "--out", "/dev/null/plans"], "/dev/null/plans: is no folder"),
        (["study", "--out", "/dev/null/study"], "/dev/null/study/full: is no folder"),
        (["demo", "--frequency", "1e-310"], "--frequency: must be positive"),
        (["plan", "--goal", "nan", "0", "0"], "goal"),
        (["plan", "--seed", "-1"], "seed"),
        (["run", "drop:sphere", "--html", "/dev/null/page.html"], "/dev/null: is no folder"),
        (["run", "drop:sphere", "--gif", "ball.mp4"], "--gif: must end in one of .gif"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    words = said(result)
    assert message in words and "compiling" not in words


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--goal", "nan", "0", "0"],
        ["plan", "--seed", "-1"],
        ["study", "--other", "teapot"],
        ["study", "--other", "all", "--other", "teapot"],
        ["study", "--quick", "--runs", "0"],
    ],
)
def test_what_is_refused_leaves_no_folder(arguments, tmp_path):
    result = run(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert not (tmp_path / "out").exists()


def test_the_version_is_that_of_the_package():
    assert run("--version").output.strip() == metadata.version("silico-py") == sp.__version__


def test_export_writes_what_can_be_loaded(tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "new" / "stack.xml"
    assert run("export", "stack", path).exit_code == 0
    scene, _ = sp.load_model(path)
    assert [body.name for body in scene.bodies] == [f"block{k}" for k in range(4)]


@pytest.mark.parametrize(("options", "timestep"), [([], 0.1), (["--frequency", "50"], 0.02)])
def test_export_keeps_the_time_step_unless_another_is_given(options, timestep, tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "grasp.xml"
    assert run("export", "grasp", path, *options).exit_code == 0
    scene, _ = sp.load_model(path)
    assert float(scene.timestep) == timestep


def test_what_cannot_be_simulated_is_told_with_the_options_that_help():
    pytest.importorskip("mujoco")
    given = ["--ignore", "joint", "--ignore", "actuator"]
    words = said(run("export", Path(__file__).parent / "models" / "arm.xml", os.devnull, *given))
    kinds = ("joint", "actuator", "tendon", "equality")
    assert words.endswith("without them: " + " ".join(f"--ignore {kind}" for kind in kinds))


def test_the_package_as_a_program_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(cli.interruption, "end_at_once", lambda: None)
    monkeypatch.setattr(sys, "argv", ["silico_py", "demo", "--frequency", "a"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("silico_py", run_name="__main__")
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "Usage: silico demo" in told and "'--frequency'" in told


@pytest.mark.parametrize("rounds", [[], [(9, 0.005)]], ids=["at once", "in a round"])
def test_the_bar_of_a_plan_ends_at_its_goal(rounds, tmp_path, monkeypatch):
    _, state = sp.scenes.grasp()

    def found(*_, on_round):
        for seen in rounds:
            on_round(*seen)
        states = jax.tree.map(lambda v: np.asarray(v)[None], state)
        return planning.Plan(np.zeros((0, 3, 6)), states, 9, 0.1, True, 0.005)

    monkeypatch.setattr(planning_command, "solve", found)
    console = Console(file=io.StringIO(), width=80)
    assert planning_command.plan_ready_scene(tmp_path, console=console)
    bar = console.file.getvalue().splitlines()[0]
    assert "searched: 9 nodes" in bar and "100%" in bar


def test_a_plan_that_misses_its_goal_says_so(tmp_path, monkeypatch):
    def missed(problem, on_round):
        np.testing.assert_array_equal(problem.task.goal, [0.1, -0.2, 0.3])
        assert problem.seed == 5
        states = jax.tree.map(lambda v: np.asarray(v)[None], problem.state)
        return planning.Plan(np.zeros((0, 3, 6)), states, 9, 0.1, False, 0.2)

    monkeypatch.setattr(planning_command, "solve", missed)
    result = run("plan", "--goal", 0.1, -0.2, 0.3, "--seed", 5, "--out", tmp_path)
    assert result.exit_code == 1 and "the goal was not reached" in result.output, result.output


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    """A checkout whose benchmarks write down their arguments and end with exit code 1."""
    monkeypatch.setattr(cli, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.chdir(tmp_path)
    note = "import sys; open('given', 'w').write(' '.join(sys.argv[1:])); sys.exit(1)"
    # The second is of another project, in the folder where the command is given.
    programs = {"checkout/benchmarks": note, "benchmarks": "raise SystemExit('the wrong one')"}
    for folder, program in programs.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "__main__.py").write_text(program)
    return tmp_path


def test_bench_runs_the_checkouts_benchmarks(benchmarks):
    assert run("bench", "rest", "speed", "--quick").exit_code == 1
    assert (benchmarks / "given").read_text() == "rest speed --quick"
    assert run("bench", "robustness_floor", "--quick", "--seed", "1").exit_code == 1
    assert (benchmarks / "given").read_text() == "robustness_floor --seed 1 --quick"
    assert run("bench").exit_code == 1
    assert (benchmarks / "given").read_text() == ""


def test_bench_finds_the_real_benchmarks(capfd):
    assert run("bench", "no_such_benchmark").exit_code == 2
    assert "unknown benchmarks ['no_such_benchmark']; known: [" in capfd.readouterr().err


def test_bench_outside_a_checkout_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "CHECKOUT", tmp_path)
    result = run("bench")
    assert result.exit_code == 2
    assert "Clone it" in result.output and "make bench" in result.output


def test_compiled_programs_are_kept_between_runs(tmp_path):
    unset = {"JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"}
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "SILICO_PY_ONE_KERNEL": "0"}
    command = [sys.executable, "-m", "silico_py", "run", "drop:sphere", "--steps", "2"]
    command += ["--out", str(tmp_path / "out")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert any((tmp_path / "silico_py").iterdir())


# Whoever runs these tests in the background has interrupts ignored, here and so there.
HEARS_INTERRUPTS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from silico_py import cli
cli.command()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_ends_a_command_that_compiles(tmp_path):
    """Python itself would wait for XLA, and JAX would crash then."""
    command = [sys.executable, "-c", HEARS_INTERRUPTS, "run", "stack", "--out", str(tmp_path)]
    own = {"JAX_LOG_COMPILES": "1", "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    asked = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | own, **asked) as process:
        for line in process.stderr:
            if "Compiling" in line and "advance" in line:
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    # The log of what the other thread compiles may come in between.
    assert process.returncode == 130 and "\ninterrupted" in said


def test_the_depth_of_a_contact_that_was_not_found_is_not_a_number():
    scene, state = sp.scenes.drop("sphere")
    trajectory = sp.rollout(scene, state, 2)
    contacts = trajectory.info.contacts
    lost = contacts._replace(alpha=contacts.alpha.at[0].set(np.nan))
    info = trajectory.info._replace(contacts=lost)
    done = running.Run(scene, state, trajectory._replace(info=info), 0.0, 1.0)
    assert running.row("[red]", done)[4] == "nan"
    assert running.row("[red]", done)[0] == r"\[red]"
