"""Random drops of every primitive on the floor: how many runs fail, in how many iterations.

A run fails when any of its steps does not converge within 30 iterations to rho / 10; in
brackets stand the runs with a step that the default number of iterations does not solve either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness
from silico_py.study.starts import random_drops

FREQUENCIES = (10, 20, 30, 50, 70, 100)
RELAXATIONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
SILICO_HZ = 100
# Its mean iterations there: 2D, one polytope.
SILICO = {1e-3: 8.9, 1e-4: 10.5, 1e-5: 11.8, 1e-6: 12.6, 1e-8: 13.9, 1e-10: 15.6}
SILICO_RECORD = "Silico.jl, 2D: 1 of 3,600"
SECONDS = 1.5
QUICK_MEMBERS, FULL_MEMBERS = 10, 100


def run(
    quick: bool,
    console: Console,
    shapes: tuple[str, ...] = (),
    seed: int = 0,
    cold: bool = False,
    radii: Sequence[float] | None = None,
) -> bool:
    """All primitives, or `shapes`, from the drops of a seed; every step from its own start if
    `cold`; with a torsional and a rolling radius if `radii` are given; True when every bar is met.
    """
    members = QUICK_MEMBERS if quick else FULL_MEMBERS
    frequencies = (10, 30, 100) if quick else FREQUENCIES
    relaxations = (1e-3, 1e-6, 1e-10) if quick else RELAXATIONS
    results: dict[str, Any] = {}
    file = "robustness_floor" + f"_{seed}" * (seed != 0) + "_cold" * cold + "_radii" * bool(radii)
    torsional, rolling = radii or (None, None)
    for name in shapes or tuple(sp.scenes.SHAPES):
        scene, _ = sp.scenes.drop(name, friction=0.2)
        scene = replace(scene, torsional_radius=torsional, rolling_radius=rolling)
        results[name] = harness.cases(
            scene,
            random_drops(scene.bodies[0], members, seed),
            frequencies,
            relaxations,
            SECONDS,
            name,
            console,
            not cold,
        )
        console.print(table(name, results[name], frequencies, relaxations))
        harness.save(file, results, quick)
    return all(harness.good(c) and all(fewer(c, relaxations)) for c in results.values())


def fewer(cases: dict[str, Any], relaxations: tuple) -> list[bool]:
    """Whether steps take fewer iterations than those of Silico.jl, at each relaxation."""
    return [cases[harness.key(SILICO_HZ, rho)]["iterations"] < SILICO[rho] for rho in relaxations]


def table(name: str, cases: dict[str, Any], frequencies: tuple, relaxations: tuple) -> Table:
    """Failures and mean iterations, one column a relaxation."""
    failed, runs = harness.total(cases, "failed"), harness.total(cases, "runs")
    count = f"{failed} of {runs} runs failed ({harness.total(cases, 'unsolved')} unsolved)"
    title = f"{name}: {harness.colored(count, failed == 0)}"
    depth = harness.depth(harness.largest_violation(cases.values()))
    allowed = f"allowed {harness.ALLOWED_VIOLATION}"
    samples = f"of exact alpha at {harness.SAMPLES} states a run"
    caption = f"largest violation {depth}, {allowed} ({samples}); {SILICO_RECORD}"
    out = Table("Hz", *(f"{rho:g}" for rho in relaxations), title=title, caption=caption)
    for f in frequencies:
        out.add_row(str(f), *(harness.cell(cases[harness.key(f, rho)]) for rho in relaxations))
    below = zip(relaxations, fewer(cases, relaxations), strict=True)
    record = (harness.colored(f"{SILICO[rho]} its", less) for rho, less in below)
    out.add_row(f"Silico {SILICO_HZ}", *record)
    return out
