"""What is shown and kept of a benchmark: progress, colours, JSON with the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import track as rich_track

FOLDER = Path("out/benchmarks")
PEERS = ("mujoco", "mujoco-mjx", "drake")  # distributions whose versions are recorded


def track(sequence: Iterable, label: str, console: Console) -> Iterable:
    """Progress display over a sequence."""
    return rich_track(list(sequence), description=label, console=console)


def colored(text: str, good: bool) -> str:
    """Green where a bar is met, red where it is not."""
    return f"[green]{text}[/green]" if good else f"[bold red]{text}[/bold red]"


def save(name: str, results: dict[str, Any] | dict[int, Any], quick: bool) -> Path:
    """Write the results with the machine and the versions."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    document = {"about": about(), "quick": quick, "results": results}
    path.write_text(json.dumps(document, indent=1))
    return path


def about() -> dict[str, Any]:
    """The machine and the versions."""
    names = ("jax", "jaxlib", "numpy", "silico-py", *PEERS)
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "double precision": jnp.result_type(float) == jnp.float64,
    }


def version(name: str) -> str:
    """Version of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
