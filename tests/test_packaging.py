"""The wheel holds every module once under silico_py, and the rooms keep their layering."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from inspect import ismodule
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Folder in the wheel: folder in the checkout.
ROOMS = {
    "silico_py": "silico_py",
    "silico_py/primitives": "primitives",
    "silico_py/solver": "solver",
}


# Parts of the package that are packages themselves.
PACKAGES = [
    f"silico_py.{path.parent.name}" for path in sorted((ROOT / "silico_py").glob("*/__init__.py"))
]

# What of the solver the primitives may use.
FOR_PRIMITIVES = ("cones", "dense", "compilation", "fusion", "outlining")


def source_files(root, room):
    """The room's Python files, without the rooms that are linked into it."""
    folder = root / room
    linked = {root / package for package in ROOMS if package != room}
    return sorted(path for path in folder.rglob("*.py") if not linked & set(path.parents))


def imported_names(path):
    """`(line, level, name)` of every import, the name as far as the statement tells it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                parts = [node.module or "", "" if alias.name == "*" else alias.name]
                yield node.lineno, node.level, ".".join(filter(None, parts))


def within(name, packages):
    return any(name == package or name.startswith(package + ".") for package in packages)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy of the sources (building in place would leave folders behind)."""
    tmp = tmp_path_factory.mktemp("wheel")
    copy = tmp / "source"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    for folder in sorted(set(ROOMS.values())):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=skip)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp)]
    run = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (path,) = tmp.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return copy, archive.namelist(), {n: archive.read(n) for n in archive.namelist()}


def test_wheel_holds_every_module_once(wheel):
    copy, names, _ = wheel
    expected = [
        f"{package}/{path.relative_to(copy / room)}"
        for package, room in ROOMS.items()
        for path in source_files(copy, room)
    ]
    assert sorted(name for name in names if name.endswith(".py")) == sorted(expected)


def test_wheel_holds_the_parts_of_the_interactive_page(wheel):
    copy, names, _ = wheel
    web = copy / "silico_py" / "viewing" / "web"
    expected = {str(path.relative_to(copy)) for path in web.rglob("*") if path.is_file()}
    assert expected
    assert expected <= set(names)


def test_wheel_puts_nothing_else_at_the_top(wheel):
    _, names, _ = wheel
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"silico_py"}
    assert "silico_py/py.typed" in names


def test_wheel_metadata(wheel):
    _, names, content = wheel
    (info,) = {n.split("/")[0] for n in names if n.split("/")[0].endswith(".dist-info")}
    metadata = content[f"{info}/METADATA"].decode()
    assert "Name: silico-py\n" in metadata
    assert "License-Expression: MIT\n" in metadata
    assert f"{info}/licenses/LICENSE" in names


@pytest.mark.parametrize("package", [package for package in ROOMS if package != "silico_py"])
def test_rooms_are_linked_into_the_package(package):
    """Tools that read the checkout find silico_py.primitives and silico_py.solver."""
    assert (ROOT / package).resolve() == ROOT / ROOMS[package]
    assert not Path(os.readlink(ROOT / package)).is_absolute()


@pytest.mark.parametrize("room", ROOMS.values())
def test_imports_are_absolute_and_named_silico_py(room):
    wrong = [
        f"{path}:{line}: {'.' * level}{name}"
        for path in source_files(ROOT, room)
        for line, level, name in imported_names(path)
        if level or within(name, ["primitives", "solver"])
    ]
    assert not wrong, "import from silico_py by full name:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("solver", ["silico_py.solver"]),
        (
            "primitives",
            [
                "silico_py.primitives",
                *(f"silico_py.solver.{name}" for name in FOR_PRIMITIVES),
            ],
        ),
    ],
)
def test_layering(room, allowed):
    wrong = [
        f"{path}:{line}: {name}"
        for path in source_files(ROOT, room)
        for line, _, name in imported_names(path)
        if within(name, ["silico_py"]) and not within(name, allowed)
    ]
    assert not wrong, f"{room} may import only {' and '.join(allowed)}:\n" + "\n".join(wrong)


IN_SINGLE_PRECISION = {
    "the user's process keeps its precision": """
import silico_py.primitives, silico_py.solver, jax
assert not jax.config.jax_enable_x64
""",
    "numpy's doubles become singles without a warning": """
import warnings, numpy as np, silico_py as sp
warnings.simplefilter("error")
body = sp.Body("ball", sp.Sphere(np.float64(0.1)), np.float64(1), center_of_mass=np.zeros(3))
scene = sp.Scene([body], timestep=np.float64(0.01), gravity=np.zeros(3))
state = scene.state(position=np.ones((1, 3)))
assert state.position.dtype == scene.timestep.dtype == body.mass.dtype == np.float32
""",
}


@pytest.mark.parametrize("code", IN_SINGLE_PRECISION.values(), ids=IN_SINGLE_PRECISION)
def test_single_precision(code):
    env = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    subprocess.run(
        [sys.executable, "-c", "import silico_py\n" + code], check=True, cwd=ROOT, env=env
    )


@pytest.mark.parametrize("package", ["silico_py", *PACKAGES])
def test_no_export_hides_a_module(package):
    """`silico_py.solver.path` is the module of that name, whatever the package exports."""
    exported = vars(importlib.import_module(package))
    folder = Path(exported["__path__"][0])
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    hidden = {name for name in modules & exported.keys() if not ismodule(exported[name])}
    assert not hidden
