"""What users call says what it is."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import silico_py as sp
from silico_py import planning, reference, rotation, scenes, solver, tangents


def public(module):
    """Names of functions and classes that a module offers."""
    names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
    found = {name: getattr(module, name) for name in names}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith("silico_py")
    }


PACKAGES = (sp, sp.primitives, solver, planning, reference, rotation, scenes, tangents)


@pytest.mark.parametrize("module", PACKAGES, ids=lambda module: module.__name__)
def test_every_public_name_has_a_docstring(module):
    offered = public(module)
    assert offered
    for name, value in offered.items():
        assert inspect.getdoc(value), name
        for key, member in vars(value).items() if inspect.isclass(value) else ():
            assert inspect.getdoc(member) or not is_public_function(key, member), f"{name}.{key}"


def is_public_function(name, value):
    callable_here = inspect.isfunction(value) or isinstance(value, property)
    return callable_here and not name.startswith("_")


def test_dir_names_the_packages_that_are_imported_later():
    code = (
        "import sys, silico_py as sp; print(*dir(sp)); assert 'silico_py.study' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    packages = {path.parent.name for path in Path(sp.__file__).parent.glob("*/__init__.py")}
    assert packages <= set(out.stdout.split())
