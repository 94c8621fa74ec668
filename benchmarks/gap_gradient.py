"""What a gradient knows of a contact that is not yet closed: a ball pushed towards a box.

The ball starts at rest 1 cm from the box and is pushed by a constant force for 10 steps of
0.01 s. Below about 2 N it does not arrive, and the exact derivative of the box's position by
the force vanishes. The smoothed one is compared with randomised smoothing of the exact
roll-out, whose width is fitted, and with MJX's derivative of the same task (if installed):
zero before contact, and not a number with elliptic cones.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import silico_py as sp
from benchmarks import engines, harness

STEPS = 10
FORCES = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0])  # [N]
RELAXATIONS = (1e-2, 3e-3, 1e-3)
RANGE = (-10.0, 16.0)  # of the sampled forces [N]
WIDTHS = np.geomspace(0.2, 3.0, 28)  # standard deviations tried for randomised smoothing [N]
SAMPLES, BATCH = 10_000, 500
AGREEMENT = 0.9  # least correlation of the two curves over `FORCES`
TITLE = "d(box x after 10 steps) / d(push) in m/N, 1 cm gap"
CAPTION = (
    "rho: exact roll-outs, differentiated at that relaxation; random: randomised smoothing of that "
    "width; MJX: nan with elliptic cones, where it differentiates the square root of a tangential "
    "force of 0"
)


class Estimate(NamedTuple):
    """Randomised smoothing at one width: a slope and its standard error for each force."""

    width: float
    slope: np.ndarray
    error: np.ndarray


def at_rest() -> tuple[sp.Scene, sp.State]:
    """`planar_push` with a gap of 1 cm and nothing moving."""
    scene, state = sp.scenes.planar_push(gap=0.01)
    return scene, scene.state(position=state.position)


def box_position(
    scene: sp.Scene, state: sp.State, force: jax.Array, options: sp.SolverOptions
) -> tuple[jax.Array, jax.Array]:
    """x of the box after `STEPS` steps of a constant force on the ball; did all converge."""
    controls = jnp.zeros((STEPS, 2, 6)).at[:, 1, 0].set(force)
    trajectory = sp.rollout(scene, state, controls, options)
    return trajectory.state.position[-1, 0, 0], jnp.all(trajectory.info.converged)


@jax.jit
def smoothed_slopes(
    scene: sp.Scene, state: sp.State, forces: jax.Array, relaxation: float
) -> tuple[jax.Array, jax.Array]:
    """d(box x) / d(force) of exact roll-outs, each step differentiated at `relaxation`."""
    options = sp.SolverOptions(relaxation=1e-6, gradient_relaxation=relaxation)

    def one(force: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(
            lambda u: box_position(scene, state, u, options),
            (force,),
            (jnp.ones_like(force),),
        )[1][0], box_position(scene, state, force, options)[1]

    return jax.vmap(one)(forces)


@jax.jit
def positions(scene: sp.Scene, state: sp.State, forces: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Exact roll-outs, one for each force."""
    options = sp.SolverOptions(relaxation=1e-6, polish=0)
    return jax.vmap(lambda u: box_position(scene, state, u, options))(forces)


def randomised(forces: np.ndarray, moved: np.ndarray, width: float) -> Estimate:
    """Slopes of the smoothed map from one set of uniform samples, weighted to each Gaussian."""
    z = (forces - FORCES[:, None]) / width
    weight = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) / width * (RANGE[1] - RANGE[0])
    # Subtracting the local mean leaves the expectation and lowers the variance.
    center = (weight * moved).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    terms = weight * z / width * (moved - center)
    return Estimate(width, terms.mean(axis=1), terms.std(axis=1) / np.sqrt(len(forces)))


def sampled(
    scene: sp.Scene, state: sp.State, count: int, console: Console
) -> tuple[np.ndarray, np.ndarray, int]:
    """Random forces, where the box ends, and how many roll-outs did not converge."""
    forces = np.random.default_rng(0).uniform(*RANGE, count)
    parts = []
    for chunk in harness.track(forces.reshape(-1, BATCH), "randomised smoothing", console):
        parts.append([np.asarray(v) for v in positions(scene, state, jnp.asarray(chunk))])
    moved, converged = (np.concatenate(v) for v in zip(*parts, strict=True))
    return forces[converged], moved[converged], int((~converged).sum())


def of_mjx(scene: sp.Scene, state: sp.State) -> dict[str, np.ndarray]:
    """What MJX answers, for both kinds of friction cones; nothing where it is not installed."""
    mjx = engines.load("mjx")
    if mjx is None:
        return {}
    cones = ("pyramidal", "elliptic")
    return {cone: mjx.push_slopes(scene, state, FORCES, STEPS, cone) for cone in cones}


def run(quick: bool, console: Console) -> bool:
    """10,000 samples (`quick` 1,000); True when every smoothed slope is positive and agrees."""
    scene, state = at_rest()
    count = 1_000 if quick else SAMPLES
    forces, moved, failed = sampled(scene, state, count, console)
    estimates = [randomised(forces, moved, width) for width in WIDTHS]
    results, met, columns = {"forces": FORCES.tolist(), "failed": failed}, failed == 0, []
    for rho in RELAXATIONS:
        slopes, converged = map(np.asarray, smoothed_slopes(scene, state, FORCES, rho))
        distances = [np.sum((e.slope - slopes) ** 2) for e in estimates]
        best = estimates[int(np.argmin(distances))]
        agreement = float(np.corrcoef(slopes, best.slope)[0, 1])
        size = float(np.median(slopes / best.slope))
        good = bool(converged.all() and (slopes > 0).all() and agreement >= AGREEMENT)
        met &= good
        columns += [(f"rho\n{rho:g}", slopes), (f"random\n{best.width:.2f} N", best.slope)]
        results[f"{rho:g}"] = {
            "smoothed": slopes.tolist(),
            "width": best.width,
            "randomised": best.slope.tolist(),
            "standard error": best.error.tolist(),
            "correlation": agreement,
            "size": size,
        }
        text = harness.colored(f"{agreement:.3f}", good)
        console.print(f"rho {rho:g}: correlation {text}, median size {size:.2f} of randomised")
    for cone, slopes in of_mjx(scene, state).items():
        columns.append((f"MJX\n{cone}", slopes))
        results[f"MJX, {cone}"] = slopes.tolist()
    harness.save("gap_gradient", results, quick)
    console.print(table(columns))
    return met


def table(columns: list[tuple[str, np.ndarray]]) -> Table:
    """Slopes by force, in 80 characters."""
    out = Table(title=TITLE, caption=CAPTION, box=box.SIMPLE_HEAD, padding=0)
    for name in ("push\n[N]", *(name for name, _ in columns)):
        out.add_column(name, justify="right", no_wrap=True)
    for k, force in enumerate(FORCES):
        out.add_row(f"{force:g}", *(f"{values[k]:.1e}" for _, values in columns))
    return out
