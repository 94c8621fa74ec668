"""The benchmarks are listed, and the pages name only those that there are."""

import ast
import re
from pathlib import Path

from benchmarks.__main__ import ALL

ROOT = Path(__file__).resolve().parents[1]
CALL = re.compile(r"(?:python -m benchmarks|silico bench)((?: [a-z_]+)+)")


def defines_run(path):
    functions = [node for node in ast.parse(path.read_text()).body if hasattr(node, "name")]
    return any(function.name == "run" for function in functions)


def test_every_benchmark_is_listed():
    found = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if defines_run(path)}
    assert found == set(ALL)


def test_pages_name_benchmarks_that_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    calls = [call for page in pages for call in CALL.findall(page.read_text(encoding="utf-8"))]
    assert len(calls) > 5
    assert {name for call in calls for name in call.split()} <= set(ALL)
