"""The notebooks run from top to bottom, and are kept without outputs."""

import os
from pathlib import Path

import jax
import matplotlib
import nbformat
import pytest
from matplotlib import pyplot as plt
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
matplotlib.use("agg")


@pytest.fixture
def same_cache(monkeypatch):
    """A kernel is a process of its own: it shares compiled programs through the environment."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))
    least = os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", least)


def read(path):
    """A notebook and its code cells."""
    notebook = nbformat.read(path, as_version=4)
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 6


def test_a_notebook_runs_in_a_kernel(tmp_path, same_cache):
    notebook, cells = read(NOTEBOOKS[0])
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()  # raises where a cell does
    assert all(cell.execution_count for cell in cells)
    assert cells[-1].outputs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    """Here, where much of what it compiles is compiled already: cells are plain Python."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for k, cell in enumerate(read(path)[1]):
        exec(compile(cell.source, f"{path.name}, code cell {k}", "exec"), names)
    plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path):
    for cell in read(path)[1]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
