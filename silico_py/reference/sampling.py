"""Random pairs of shapes and poses to check collisions with.

Shapes of one kind differ only in numbers, so pairs of two kinds can be stacked and vmapped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.primitives import (
    Box,
    Capsule,
    Cone,
    ConvexShape,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    MinkowskiSum,
    PaddedPolytope,
    Polytope,
    Sphere,
)
from silico_py.reference.certificate import Pose
from silico_py.reference.collision import collide
from silico_py.reference.geometry import center

SLENDERNESS = 50  # largest extent over the smallest, of slender shapes
FAR = 5.0  # largest alpha of pairs that are apart

Sizes = np.ndarray  # three half extents [m]


class Pair(NamedTuple):
    """Two shapes and their poses: the arguments of `collide`, in order."""

    shape_a: ConvexShape
    pose_a: Pose
    shape_b: ConvexShape
    pose_b: Pose


@cache
def _base() -> Polytope:
    """A box with one corner cut, whose origin lies outside: it is scaled about its centroid."""
    A = np.concatenate([np.eye(3), -np.eye(3), [[0.7, 1.1, 0.4]]])
    b = np.array([1.2, 1.0, 0.8, 1.4, 0.8, 1.2, 1.32])
    return Polytope(A, b + A @ np.array([2.0, 0.5, -1.0]))


def _polytope(sizes: Sizes) -> Polytope:
    """The polytope stretched along the axes, its faces numbered as before."""
    base = _base()
    A = np.asarray(base.A, float) / sizes
    length = np.linalg.norm(A, axis=1)
    leaves = A / length[:, None], np.asarray(base.b) / length, sizes * np.asarray(base.reference)
    return jax.tree.unflatten(jax.tree.structure(base), [jnp.asarray(leaf) for leaf in leaves])


KINDS: dict[str, Callable[[Sizes], ConvexShape]] = {
    "half_space": lambda s: HalfSpace(s / np.linalg.norm(s), s[0] - s[1]),
    "box": lambda s: Box(s),
    "polytope": _polytope,
    "padded_polytope": lambda s: PaddedPolytope(core=_polytope(s), radius=s.min() / 2),
    "sphere": lambda s: Sphere(s[0]),
    "ellipsoid": lambda s: Ellipsoid(s),
    "capsule": lambda s: Capsule(s.min(), s.max()),
    "cylinder": lambda s: Cylinder(s[0], 2 * s[2]),
    "cone": lambda s: Cone(s[0], 2 * s[2]),
    "minkowski_sum": lambda s: MinkowskiSum(Cone(s[0], s[2]), Capsule(s.min(), s.max())),
}
PAIRS = [
    (a, b)
    for i, a in enumerate(KINDS)
    for b in list(KINDS)[i:]
    if (a, b) != ("half_space", "half_space")
]


def random_pair(
    kind_a: str,
    kind_b: str,
    rng: np.random.Generator,
    alpha: float | None = None,
    slender: bool = False,
    aligned: bool = False,
    tilt: float = 0.0,
) -> Pair:
    """Two random shapes, placed so that their scaling has a given value.

    The scaling is proportional to the offset between the centres, so one solution of the
    reference at any offset tells where to put the second shape.

    Args:
        kind_a, kind_b: keys of `KINDS`, not both "half_space".
        rng: source of randomness.
        alpha: wanted scaling: below 1 overlapping, 1 touching; a random one unless given.
        slender: make the shapes 50 times as long as thin.
        aligned: turn the shapes by right angles only, one above the other and up to as far aside:
            faces lie on faces.
        tilt: angle by which the second one is turned besides, about any axis [rad].

    Raises:
        ValueError: if no offset separates the shapes, as for two half-spaces.
    """
    first, second = (KINDS[kind](_sizes(rng, slender)) for kind in (kind_a, kind_b))
    if alpha is None:
        alpha = rng.choice([rng.uniform(0.1, 0.9), 1.0, rng.uniform(1.1, FAR)])
    turn_a, turn_b = _turn(rng, aligned), _turn(rng, aligned)
    direction = np.array([*rng.uniform(-1, 1, 2), 1.0]) if aligned else rng.normal(size=3)
    if tilt:
        turn_b = Rotation.from_rotvec(tilt * Rotation.random(rng=rng).apply([0, 0, 1])) * turn_b
    middle = rng.uniform(-1, 1, 3)
    for toward in (direction, -direction):
        # A shape whose centre lies in a half-space has alpha 0: it is moved to the other side.
        pose_b = _pose(second, turn_b, middle)
        found = collide(first, _pose(first, turn_a, middle + toward), second, pose_b).alpha
        if found > 1e-6:
            break
    else:
        raise ValueError(f"{kind_a}, {kind_b}: no offset along {direction} separates the shapes")
    return Pair(first, _pose(first, turn_a, middle + alpha / found * toward), second, pose_b)


def _sizes(rng: np.random.Generator, slender: bool) -> Sizes:
    """Three half extents; slender ones are a rod or a plate, along any axis."""
    if not slender:
        return rng.uniform(0.1, 0.4, 3)
    thin = np.array([0.5, 0.5, 0.5]) / SLENDERNESS
    axis = rng.integers(3)
    sizes = thin if rng.random() < 0.5 else np.full(3, 0.5)
    sizes[axis] = 0.5 if sizes[axis] < 0.5 else 0.5 / SLENDERNESS
    return sizes


def _turn(rng: np.random.Generator, aligned: bool) -> Rotation:
    if not aligned:
        return Rotation.random(rng=rng)
    group = Rotation.create_group("O")
    return group[int(rng.integers(len(group)))]


def _pose(shape: ConvexShape, turn: Rotation, place: np.ndarray) -> Pose:
    """The pose that puts the centre of the shape at `place`."""
    return place - turn.apply(center(shape)), turn.as_quat(scalar_first=True)
