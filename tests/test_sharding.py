"""The programs of docs/batches.md: a batch over devices and processes is that of one device."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
ROUNDING = 1e-13  # [m]; vectors of another length are summed in another order
TIMEOUT = 600  # [s]


def snippets():
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "batches.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def one_device():
    """(8, 1, 3) where the spheres of the first snippet end."""
    names = {}
    exec(compile(snippets()[0], "batches.md", "exec"), names)
    position = np.asarray(names["position"])
    assert position.shape == (8, 1, 3) and np.ptp(position[:, 0, 0]) > 0.5
    return position


def start(folder, **environment):
    """The program of the page as a process of its own, in a folder."""
    program = folder / "drops.py"
    (sharded,) = (text for text in snippets() if "jax.sharding" in text)
    program.write_text(sharded)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir or "",
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, program], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


def finish(processes):
    """Wait for all; none may fail, and none is left behind."""
    try:
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()


def saved(folder):
    """First members of the saved parts, and all positions in order."""
    files = {int(path.stem.split("-")[1]): np.load(path) for path in folder.glob("drops-*.npz")}
    firsts = sorted(files)
    assert all(files[k]["converged"].all() for k in firsts)
    return firsts, np.concatenate([files[k]["position"] for k in firsts])


def test_four_devices(one_device, tmp_path):
    finish([start(tmp_path, JAX_NUM_CPU_DEVICES="4")])
    firsts, position = saved(tmp_path)
    assert firsts == [0, 2, 4, 6]
    np.testing.assert_allclose(position, one_device, rtol=0, atol=ROUNDING)


@pytest.mark.slow
def test_two_processes(one_device, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    processes = [
        start(
            tmp_path,
            JAX_COORDINATOR_PORT=str(port),
            SLURM_PROCID=number,
            SLURM_LOCALID=number,
            **slurm,
        )
        for number in "01"
    ]
    finish(processes)
    firsts, position = saved(tmp_path)
    assert firsts == [0, 4]
    np.testing.assert_allclose(position, one_device, rtol=0, atol=ROUNDING)
