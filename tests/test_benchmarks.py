"""The benchmarks are listed, the pages name only those that there are, and each runs to its end.

What they measure takes minutes to compile. Here steps leave bodies where they are, so that little
is compiled: batches, bars, tables and files are those of the benchmarks.
"""

import ast
import importlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import silico_py as sp
from benchmarks import __main__ as command
from benchmarks import engines, harness, ready
from silico_py import planning

ROOT = Path(__file__).resolve().parents[1]
CALL = re.compile(r"(?:python -m benchmarks|silico bench)((?: [a-z_]+)+)")
SHAPES = ("sphere", "box")
SPHERES = [("sphere", "sphere")]
# What is made small: of any benchmark that has it, and of one.
OF_ANY = {"QUICK_MEMBERS": 2, "QUICK_PAIRS": SPHERES}
OF_ONE = {
    "collision_accuracy": {"QUICK_COUNT": 6},
    "collisions": {"PAIRS": {"spheres": (sp.Sphere(0.2), sp.Sphere(0.1))}},
    "derivatives": {"QUICK_STATES": 1},
    "equal_accuracy": {"FREQUENCIES": (10, 1000)},
    "optimality": {"QUICK_STEPS": {10: 1}},
    "robustness_fast": {"SPEEDS": (20.0,)},
    "robustness_overlaps": {"MEMBERS": 2},
    "robustness_scales": {"SIZES": (10.0,)},
    "robustness_slender": {"KINDS": {"coin": lambda: sp.Cylinder(0.25, 0.02)}},
    "robustness_towers": {"HEIGHTS": (2,)},
    "sizes": {"RATIOS": (1,)},
    "speed": {"QUICK": ("drop",)},
    "throughput": {"QUICK_BATCHES": (1, 2)},
}
ITERATIONS = 5


def info(scene, steps=()):
    """What converged steps say, with a firm contact of every pair."""
    m = len(scene.pairs)
    up, force = (jnp.zeros((*steps, m, 3)).at[..., 2].set(v) for v in (1.0, 9.81))
    contacts = sp.ContactInfo(jnp.ones((*steps, m)), 0 * up, up, force)
    iterations, zero = jnp.full(steps, ITERATIONS), jnp.zeros(steps)
    return sp.Info(zero == 0, 0 * iterations, iterations, zero, zero, contacts, None)


def step(scene, state, control=None, options=None, guess=None):
    return state, info(scene)


def rollout(scene, state, controls, options=None, guess=None):
    """Bodies stay where they are, but half the square of all forces further."""
    controls = controls if hasattr(controls, "shape") else jnp.zeros((controls, 1, 6))
    states = jax.tree.map(lambda v: jnp.broadcast_to(v, (len(controls), *v.shape)), state)
    force = jnp.sum(controls[..., :3], axis=-2, keepdims=True)
    states = replace(states, position=states.position + force**2 / 2)
    return sp.Trajectory(states, info(scene, (len(controls),)))


def linearize(
    scene, state, control=None, smoothing=1e-3, options=None, guess=None, with_step=False
):
    n = len(scene.bodies)
    slopes = jnp.eye(12 * n) * state.orientation[0, 0] ** 0, jnp.zeros((12 * n, 6 * n))
    return (*slopes, *step(scene, state)) if with_step else slopes


def collide(shape_a, pose_a, shape_b, pose_b):
    """Of two spheres."""
    apart, size = pose_a[0] - pose_b[0], shape_a.radius + shape_b.radius
    distance = jnp.linalg.norm(apart)
    point = pose_b[0] + shape_b.radius / size * apart
    return sp.Collision(distance / size, point, apart / distance, distance > 0, distance - size)


def plan_grasp(scene, state, goal, seed=0, tolerance=0.01):
    start = jax.tree.map(lambda v: np.asarray(v)[None], state)
    controls = np.zeros((1, len(scene.bodies), 6))
    return planning.Plan(controls, start, nodes=1, seconds=0.1, reached=False, distance=0.1)


class Inline:
    """A worker without a process of its own."""

    def __init__(self, function, environment=None):
        self.function = function

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, question, timeout):
        return self.function(question)


@pytest.fixture
def still(monkeypatch, tmp_path):
    """The simulator and the peers, in a folder for what is written."""
    monkeypatch.chdir(tmp_path)
    for function in (step, rollout, linearize, collide):
        monkeypatch.setattr(sp, function.__name__, function)
    monkeypatch.setattr(sp, "no_guess", lambda *_: None)
    monkeypatch.setattr(planning, "plan_grasp", plan_grasp)
    shapes = {name: sp.scenes.SHAPES[name] for name in SHAPES}
    monkeypatch.setattr(sp.scenes, "SHAPES", shapes)
    monkeypatch.setattr(ready, "QUICK", ("stack",))
    monkeypatch.setattr(harness.robustness, "violation", lambda *_: jnp.zeros(()))
    monkeypatch.setattr(harness.timing, "TURN", 0.0)
    load = engines.load
    few = {"ours", "mujoco_c"}
    monkeypatch.setattr(engines, "load", lambda name: load(name) if name in few else None)


def benchmark(monkeypatch, name):
    """A small one."""
    module = importlib.import_module(f"benchmarks.{name}")
    common = {size: few for size, few in OF_ANY.items() if hasattr(module, size)}
    for size, few in {**common, **OF_ONE.get(name, {})}.items():
        monkeypatch.setattr(module, size, few)
    if name == "throughput":
        monkeypatch.setattr(module, "Worker", Inline)
    return module


@pytest.mark.parametrize("name", command.ALL)
def test_every_benchmark_runs(monkeypatch, still, name):
    shown = io.StringIO()
    met = benchmark(monkeypatch, name).run(True, Console(file=shown, width=100))
    assert met in (True, False)
    assert len(shown.getvalue().splitlines()) >= 1
    (path,) = Path("out/benchmarks").glob("*.json")
    written = json.loads(path.read_text())
    assert path.stem == name and written["quick"] and written["results"]


def test_options_reach_their_benchmark(monkeypatch, still):
    benchmark(monkeypatch, "robustness_floor")
    options = ["--quick", "--shapes", "box", "--seed", "3", "--cold"]
    monkeypatch.setattr("sys.argv", ["benchmarks", "robustness_floor", *options])
    assert command.main() == 0
    written = json.loads(Path("out/benchmarks/robustness_floor_3_cold.json").read_text())
    assert list(written["results"]) == ["box"]


@pytest.mark.parametrize("given", [["towers"], ["rest", "--shapes", "cube"], ["--scenes", "drop"]])
def test_unknown_names_are_refused(monkeypatch, capsys, given):
    monkeypatch.setattr("sys.argv", ["benchmarks", *given])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "unknown" in capsys.readouterr().err


def defines_run(path):
    functions = [node for node in ast.parse(path.read_text()).body if hasattr(node, "name")]
    return any(function.name == "run" for function in functions)


def test_every_benchmark_is_listed():
    found = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if defines_run(path)}
    assert found == set(command.ALL)


def test_pages_name_benchmarks_that_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    calls = [call for page in pages for call in CALL.findall(page.read_text(encoding="utf-8"))]
    assert len(calls) > 5
    assert {name for call in calls for name in call.split()} <= set(command.ALL)
