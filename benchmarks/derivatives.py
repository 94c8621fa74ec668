"""`linearize` against central differences of the step, at random states of every ready scene.

States come from runs at 100, 30 and 10 Hz: as they are, or moved by up to 0.1 mm or 1 cm and
a random velocity, so that bodies fly, hover, overlap, stick, slide, lie on faces, edges and
vertices. Differences are of fourth order, each column at the spacing where its neighbours
agree best. Where they still disagree by more than half of the bar, differences cannot judge:
such columns are counted apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness, ready
from silico_py.tangents import difference, perturb

QUICK_STATES, FULL_STATES = 6, 20
FREQUENCIES = (100, 30, 10)
SECONDS = 1.5
SHIFTS = (0.0, 1e-4, 1e-2)  # [m, rad]
KICK = 0.3  # [m/s, rad/s]
# Largest relative error of a column, for each relaxation.
BARS = {1e-3: 1e-5, 1e-6: 1e-4, 1e-9: 1e-3}
SPACINGS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
ZERO = 1e-6  # of the largest entry of all
STENCIL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}


class Errors(NamedTuple):
    """Two numbers for each column: error of `linearize`, and disagreement of the best
    differences."""

    error: np.ndarray
    doubt: np.ndarray


def run(quick: bool, console: Console, scenes: tuple[str, ...] = ()) -> bool:
    """True when every column that differences can judge is within its bar, and all are finite."""
    count = QUICK_STATES if quick else FULL_STATES
    heads = ("scene", "rho", "states", "NaN", "columns", "wrong", "unclear", "largest")
    out, results = Table(*heads, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True), {}
    out.columns[0].no_wrap = True
    for name, make in ready.chosen(quick, scenes).items():
        scene, state = make()
        states = random_states(scene, state, count)
        for rho, bar in BARS.items():
            found = measure(scene, states, rho, bar, f"{name}, {rho:g}", console)
            results[f"{name} {rho:g}"] = found
            out.add_row(name, f"{rho:g}", *cells(found))
            harness.save("derivatives", results, quick)
    bars = ", ".join(f"{bar:g} at {rho:g}" for rho, bar in BARS.items())
    out.caption = (
        f"wrong: beyond {bars}; unclear: differences disagree; largest: error of the others"
    )
    console.print(out)
    return all(not r["wrong"] and not r["not finite"] for r in results.values())


def random_states(scene: sp.Scene, state: sp.State, count: int) -> list[tuple[float, sp.State]]:
    """(time step, state) of runs, a third of them moved a little, a third more."""
    rng = np.random.default_rng(0)
    steps = round(SECONDS * max(FREQUENCIES))
    scenes = {f: harness.retimed(scene, 1 / f) for f in FREQUENCIES}
    runs = {f: sp.rollout(here, state, steps).state for f, here in scenes.items()}
    found = []
    for k in range(count):
        f, shift = FREQUENCIES[k // 3 % 3], SHIFTS[k % 3]
        at = rng.integers(round(SECONDS * f))
        change = np.zeros((len(scene.bodies), 12))
        change[:, :6] = shift * rng.uniform(-1, 1, change[:, :6].shape)
        change[:, 6:] = (shift > 0) * KICK * rng.normal(size=change[:, 6:].shape)
        visited = jax.tree.map(lambda v, at=at: v[at], runs[f])
        found.append((1 / f, perturb(visited, jnp.asarray(change))))
    return found


def measure(
    scene: sp.Scene,
    states: list[tuple[float, sp.State]],
    relaxation: float,
    bar: float,
    label: str,
    console: Console,
) -> dict[str, Any]:
    """Errors of all columns of A and B at all states."""
    unsolved, infinite, columns = 0, 0, [Errors(np.zeros(0), np.zeros(0))]
    for timestep, state in harness.track(states, label, console):
        here = harness.retimed(scene, timestep)
        a, b, _, info = _linearized(here, state, relaxation)
        infinite += not (np.isfinite(a).all() and np.isfinite(b).all())
        slopes, solved = differences(here, state, relaxation)
        if info.converged and solved:
            columns.append(errors(_by_body(a, b), slopes))
        else:
            unsolved += 1
    error, doubt = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    decided = doubt < bar / 2
    return {
        "states": len(states),
        "not converged": unsolved,
        "not finite": infinite,
        "columns": len(error),
        "wrong": int(np.sum(decided & ~(error < bar))),
        "undecided": int(np.sum(~decided)),
        "largest error": float(np.max(error[decided], initial=0)),
    }


@jax.jit
def _linearized(scene: sp.Scene, state: sp.State, relaxation: float) -> tuple:
    return sp.linearize(scene, state, smoothing=relaxation, with_step=True)


def _by_body(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A and B as (12 n, n, 18): the inputs of each body side by side."""
    n = len(a) // 12
    parts = (np.asarray(a).reshape(12 * n, n, 12), np.asarray(b).reshape(12 * n, n, 6))
    return np.concatenate(parts, axis=-1)


def differences(scene: sp.Scene, state: sp.State, relaxation: float) -> tuple[np.ndarray, bool]:
    """(spacings, 12 n, n, 18) slopes, and whether all steps behind them converged."""
    n = len(scene.bodies)
    slopes, solved = [], True
    for h in SPACINGS:
        changes = h * np.eye(18 * n).reshape(18 * n, n, 18)
        slope: Any = 0.0
        for k, weight in STENCIL.items():
            ends, converged = _ends(scene, state, k * changes, relaxation)
            slope, solved = slope + weight / h * np.asarray(ends), solved & bool(converged)
        slopes.append(np.moveaxis(slope, 0, -1).reshape(12 * n, n, 18))
    return np.stack(slopes), solved


@jax.jit
def _ends(scene: sp.Scene, state: sp.State, changes: Any, relaxation: float) -> tuple:
    """Next states after each change of state and control, seen from the one after none."""
    options = sp.SolverOptions(relaxation=relaxation)

    def one(change: Any) -> tuple:
        moved = perturb(state, change[:, :12])
        following, info = sp.step(scene, moved, change[:, 12:], options)
        return following, info.converged

    ends, converged = jax.lax.map(one, jnp.concatenate([changes, 0 * changes[:1]]))
    base = ends[-1]
    seen = jax.vmap(lambda end: difference(end, base).ravel())(ends)
    return seen[:-1], converged.all()


def errors(found: np.ndarray, slopes: np.ndarray) -> Errors:
    """Errors of each column, relative to its largest entry, against the spacing that is best for
    it."""
    # Some columns are zero: a body without memory does not know its velocity.
    size = np.maximum(np.abs(slopes).max(axis=1), ZERO * np.abs(found).max())
    gaps = np.abs(np.diff(slopes, axis=0)).max(axis=1) / np.minimum(size[1:], size[:-1])
    best = np.argmin(gaps, axis=0)[None]
    doubt = np.take_along_axis(gaps, best, axis=0)[0]
    apart = np.abs(found - slopes).max(axis=1) / size
    error = np.take_along_axis(np.minimum(apart[1:], apart[:-1]), best, axis=0)[0]
    return Errors(error.ravel(), doubt.ravel())


def cells(result: dict[str, Any]) -> list[str]:
    """One row of the table."""
    states = f"{result['states'] - result['not converged']}/{result['states']}"
    return [
        states,
        harness.colored(str(result["not finite"]), not result["not finite"]),
        str(result["columns"]),
        harness.colored(str(result["wrong"]), not result["wrong"]),
        str(result["undecided"]),
        f"{result['largest error']:.1e}",
    ]
