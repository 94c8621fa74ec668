"""Every step of every ready scene against the conditions that define it, by other code.

`reference.check_step` calls neither solver nor integrator: numpy, scipy and a conic solver, in the
units of the simulator. Needs the extra `reference`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness, ready
from silico_py import reference

# Steps at each frequency: the bodies fall, meet and come to rest within them.
QUICK_STEPS, FULL_STEPS = {10: 8}, {10: 20, 100: 100}
QUICK_RELAXATIONS, FULL_RELAXATIONS = (1e-6,), (1e-3, 1e-6, 1e-9)


def run(quick: bool, console: Console) -> bool:
    """True when every step converges and satisfies every condition."""
    steps = QUICK_STEPS if quick else FULL_STEPS
    relaxations = QUICK_RELAXATIONS if quick else FULL_RELAXATIONS
    heads = ("scene", "steps", "not converged", "violating a condition", "tightest condition")
    out, results = Table(*heads), {}
    for name, make in ready.chosen(quick).items():
        cases = [(f, rho) for f in steps for rho in relaxations]
        found = [check(*make(), f, rho, steps[f]) for f, rho in harness.track(cases, name, console)]
        results[name] = total(found)
        out.add_row(name, *cells(results[name]))
        harness.save("optimality", results, quick)
    out.caption = "tightest: largest share of what relaxation and tolerance leave room for"
    console.print(out)
    return all(not r["not converged"] and not r["violating"] for r in results.values())


def check(
    scene: sp.Scene, state: sp.State, frequency: int, relaxation: float, steps: int
) -> dict[str, Any]:
    """`steps` steps of one scene, each checked; one that did not converge is only counted."""
    scene = harness.retimed(scene, 1 / frequency)
    options = sp.SolverOptions(relaxation=relaxation)
    unsolved, violating, tightest = 0, 0, ("", 0.0)
    failed: Counter[str] = Counter()
    for _ in range(steps):
        following, info = sp.step(scene, state, None, options)
        if not info.converged:
            unsolved += 1
        else:
            report = reference.check_step(scene, state, None, following, info, options)
            violating += not report.ok
            failed.update(report.failed)
            strains = {name: condition.strain for name, condition in vars(report).items()}
            tightest = max(tightest, *strains.items(), key=lambda item: item[1])
        state = following
    return {
        "steps": steps,
        "not converged": unsolved,
        "violating": violating,
        "conditions": failed,
        "tightest": tightest,
    }


def total(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of all cases of one scene."""
    counts = {k: sum(f[k] for f in found) for k in ("steps", "not converged", "violating")}
    failed: Counter[str] = sum((f["conditions"] for f in found), Counter())
    tightest = max((f["tightest"] for f in found), key=lambda item: item[1])
    return counts | {"conditions": failed, "tightest": tightest}


def cells(result: dict[str, Any]) -> list[str]:
    """One row of the table."""
    named = ", ".join(f"{name} {count}" for name, count in result["conditions"].items())
    name, strain = result["tightest"]
    return [
        str(result["steps"]),
        harness.colored(str(result["not converged"]), not result["not converged"]),
        harness.colored(f"{result['violating']} {named}".strip(), not result["violating"]),
        f"{name} {strain:.2f}",
    ]
