"""`sp.collide` against conic solvers and closed-form certificates, on every pair of primitives.

Random shapes and poses, apart, touching and overlapping. Of six samples two are slender (1:50)
and two lie face to face: one of them is both, the other one is tilted by 1e-9 to 1e-4. Needs the
extra `reference`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import harness
from silico_py import reference
from silico_py.reference.collision import solvers
from silico_py.reference.sampling import PAIRS
from silico_py.solver.compilation import UNOPTIMIZED

QUICK_COUNT, FULL_COUNT = 30, 1000
QUICK_PAIRS = PAIRS[::5]  # compiling takes most of the time
BATCH = 10  # pairs a call; a batch waits for its slowest member
# Largest errors: of alpha and of the point over max(1, alpha), of the normal absolute, of the
# slope over its size.
BARS = {"alpha": 1e-6, "proof": 1e-8, "normal": 1e-4, "slope": 1e-5, "point": 1e-8}
SPACINGS = (1e-3, 1e-4, 1e-5, 1e-6)  # of central differences, in lengths; a kink within spoils one


def run(quick: bool, console: Console) -> bool:
    """Every pair (`quick` some); True when all converge and every error is below its bar."""
    count, met = QUICK_COUNT if quick else FULL_COUNT, True
    results: dict[str, Any] = {}
    out = Table("pair", box=box.SIMPLE_HEAD, padding=0, caption=caption(count))
    for head in ("failed", *BARS, "worst"):
        out.add_column(head, justify="right", no_wrap=True)
    for kinds in harness.track(QUICK_PAIRS if quick else PAIRS, "pairs", console):
        found = results[" - ".join(kinds)] = measure(kinds, count)
        good = {name: found[name] <= bar for name, bar in BARS.items()}
        met &= all(good.values()) and found["failed"] == 0
        out.add_row(
            " -\n".join(kinds),  # 80 characters hold no two long names in a line
            harness.colored(str(found["failed"]), found["failed"] == 0),
            *(harness.colored(f"{found[name]:.1e}", good[name]) for name in BARS),
            str(found["worst sample"]),
        )
        harness.save("collision_accuracy", results, quick)
    console.print(out)
    return met


def caption(count: int) -> str:
    """What the columns are."""
    return (
        f"{count} samples a pair. alpha: error against {' and '.join(solvers())}; "
        "proof: against the bound that the normal proves in closed form; "
        "normal: against the conic duals (faces not parallel); "
        "slope: d alpha / d position against central differences at the best of four spacings; "
        "point: scaling beyond alpha that holds it; "
        "worst: number of the sample with the largest error of proof, see sample(kinds, number)."
    )


def sample(kinds: tuple[str, str], number: int) -> reference.Pair:
    """One pair; every number is the same pair on every machine."""
    rng = np.random.default_rng([PAIRS.index(kinds), number])
    slender = number % 6 in (3, 4)
    tilt = 10 ** rng.uniform(-9, -4) if number % 6 == 5 else 0.0
    return reference.random_pair(
        *kinds, rng, slender=slender, aligned=is_aligned(number), tilt=tilt
    )


def is_aligned(number: int) -> bool:
    """Whether faces lie on faces, or nearly so, where the normal need not be unique."""
    return number % 6 in (4, 5)


def measure(kinds: tuple[str, str], count: int) -> dict[str, Any]:
    """Largest errors over `count` samples, and which sample had the worst proof."""
    pairs = [sample(kinds, number) for number in range(count)]
    found, off = collide(pairs)
    rows = [
        errors(pair, jax.tree.map(lambda v, k=k: v[k], found), off[k], is_aligned(k))
        for k, pair in enumerate(pairs)
    ]
    largest = {name: float(np.max([row[name] for row in rows])) for name in BARS}
    return {
        "samples": count,
        "failed": int(np.sum(~found.converged)),
        **largest,
        "worst sample": int(np.argmax([row["proof"] for row in rows])),
        "not converged": np.flatnonzero(~found.converged).tolist(),
        "given up by a conic solver": sum(row["judges"] < len(solvers()) for row in rows),
    }


def collide(pairs: list[reference.Pair]) -> tuple[sp.Collision, np.ndarray]:
    """`sp.collide` of all pairs and the errors of its slopes, in batches of equal size."""
    batches = [pairs[k : k + BATCH] for k in range(0, len(pairs), BATCH)]
    compiled = jax.jit(
        jax.vmap(lambda pair: (sp.collide(*pair), slope_error(*pair))),
        compiler_options=UNOPTIMIZED,
    )
    parts = [compiled(jax.tree.map(lambda *v: np.stack(v), *batch)) for batch in batches]
    return jax.tree.map(lambda *v: np.concatenate([np.asarray(part) for part in v]), *parts)


def slope_error(shape_a: Any, pose_a: tuple, shape_b: Any, pose_b: tuple) -> jax.Array:
    """Largest difference of d alpha / d position of a and central differences, over its size."""
    lengths = [s.characteristic_length for s in (shape_a, shape_b) if s.scaled]
    length = jnp.min(jnp.stack(lengths))

    def alpha(shift: jax.Array) -> jax.Array:
        return sp.collide(shape_a, (pose_a[0] + length * shift, pose_a[1]), shape_b, pose_b).alpha

    slope = jax.grad(alpha)(jnp.zeros(3))
    shifts = jnp.array(SPACINGS)[:, None, None] * jnp.stack([jnp.eye(3), -jnp.eye(3)])[:, None]
    ahead, behind = jax.lax.map(alpha, shifts.reshape(-1, 3)).reshape(2, len(SPACINGS), 3)
    differences = (ahead - behind) / (2 * jnp.array(SPACINGS)[:, None])
    off = jnp.max(jnp.abs(differences - slope), axis=1)
    return jnp.min(off) / jnp.max(jnp.abs(slope))


def judged(pair: reference.Pair, aligned: bool) -> list[reference.Collision]:
    """What the conic solvers find; one may give up where faces are nearly parallel."""
    found = []
    for solver in solvers():
        with suppress(*([RuntimeError] if aligned else [])):
            found.append(reference.collide(*pair, solver))
    return found


def errors(
    pair: reference.Pair, found: sp.Collision, slope: float, aligned: bool
) -> dict[str, float]:
    """The errors of one sample, `slope` its slope's; the names are those of `BARS`, and how many
    conic solvers have judged it: what none has is left to the proof."""
    exact, alpha = judged(pair, aligned), float(found.alpha)
    scale = max(1.0, alpha)
    proved = reference.certified_bound(*pair, found.normal)
    return {
        "alpha": max((abs(alpha - e.alpha) for e in exact), default=0.0) / scale,
        "proof": abs(alpha - proved) / scale,
        "normal": 0.0 if aligned else float(np.abs(found.normal - exact[0].normal).max()),
        "judges": len(exact),
        "slope": 0.0 if aligned else float(slope),
        "point": max(0.0, excess(pair, found)) / scale,
    }


def excess(pair: reference.Pair, found: sp.Collision) -> float:
    """Scaling beyond alpha that the point asks for; its height above a half-space [m]."""
    beyond = []
    for shape, pose in (pair[:2], pair[2:]):
        if isinstance(shape, sp.HalfSpace):
            up = np.asarray(sp.rotation.rotate(jnp.asarray(pose[1]), shape.normal))
            beyond.append(up @ (found.point - pose[0]) - float(shape.offset))
        else:
            beyond.append(reference.gauge(shape, pose, found.point) - found.alpha)
    return float(max(beyond))
