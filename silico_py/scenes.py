"""Ready scenes: each function returns `(scene, state)`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np

from silico_py.body import Body
from silico_py.primitives import (
    Box,
    Bundle,
    Capsule,
    Cone,
    ConvexShape,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    MinkowskiSum,
    PaddedPolytope,
    Polytope,
    Shape,
    Sphere,
)
from silico_py.primitives._checks import concrete
from silico_py.scene import Scene, State
from silico_py.validation import count, not_negative, number

UP = (0.0, 0.0, 1.0)
LOCK = 1e6  # stiffness of a locked direction [N/m, N m/rad]
FINGER_STIFFNESS = 1e3  # [N/m]

SceneAndState = tuple[Scene, State]


def floor() -> HalfSpace:
    """The half-space z <= 0."""
    return HalfSpace(normal=UP, offset=0.0)


def tilt(axis: int, angle: float) -> tuple[float, float, float, float]:
    """Quaternion of a rotation by `angle` [rad] about coordinate axis 0, 1 or 2, in plain numbers.

    Raises:
        ValueError: for another axis.
    """
    if axis not in (0, 1, 2):
        raise ValueError(f"axis: must be 0, 1 or 2, got {axis!r}")
    x, y, z = (math.sin(angle / 2) * (axis == k) for k in range(3))
    return math.cos(angle / 2), x, y, z


def _oblique() -> Polytope:
    """A seven-faced polytope without symmetry."""
    normals = [(1, 0.2, 0.1), (0, 1, 0.2), (-1, -0.3, 0), (0.1, -1, 0.1), (0.8, -0.8, 0.3)]
    rows = jnp.array([*normals, (0.1, 0.1, 1), (0, 0.2, -1)], dtype=float)
    return Polytope(rows, 0.3 * jnp.linalg.norm(rows, axis=1))


def _padded() -> PaddedPolytope:
    rows = jnp.concatenate([jnp.eye(3), -jnp.eye(3)])
    return PaddedPolytope(rows, jnp.full(6, 0.2), 0.05)


def _l_shape() -> Bundle:
    bar = Box(half_extents=(0.25, 0.08, 0.08))
    across = (bar, (0.25, 0.25, 0.0), tilt(2, math.pi / 2))
    return Bundle([bar, across, (Sphere(radius=0.12), (-0.25, 0.0, 0.05))])


SHAPES: dict[str, Callable[[], Shape]] = {
    "box": lambda: Box(half_extents=(0.25, 0.25, 0.25)),
    "polytope": _oblique,
    "padded_polytope": _padded,
    "sphere": lambda: Sphere(radius=0.25),
    "ellipsoid": lambda: Ellipsoid(radii=(0.3, 0.2, 0.15)),
    "capsule": lambda: Capsule(radius=0.12, length=0.4),
    "cylinder": lambda: Cylinder(radius=0.2, length=0.4),
    "cone": lambda: Cone(radius=0.25, height=0.5),
    "minkowski_sum": lambda: MinkowskiSum(
        Cylinder(radius=0.15, length=0.2), Box(half_extents=(0.15, 0.05, 0.05))
    ),
    "bundle": _l_shape,
}


def drop(primitive: str = "box", timestep: float = 0.01, friction: float = 0.2) -> SceneAndState:
    """One body of 1 kg above the floor, turned and moving.

    Args:
        primitive: a key of `SHAPES`.
        timestep: [s].
        friction: Coulomb coefficient.

    Raises:
        ValueError: for an unknown primitive.
    """
    if not isinstance(primitive, str) or primitive not in SHAPES:
        raise ValueError(f"primitive: expected one of {sorted(SHAPES)}, got {primitive!r}")
    body = Body(primitive, SHAPES[primitive](), mass=1.0)
    scene = Scene([body], [floor()], timestep=timestep, friction=friction)
    turned = jnp.array([[0.9, 0.3, -0.2, 0.1]])
    state = scene.state(
        position=[[0.0, 0.0, 0.9]],
        orientation=turned / jnp.linalg.norm(turned),
        velocity=[[0.5, -0.3, -1.0]],
        angular_velocity=[[0.5, 0.8, -0.3]],
    )
    return scene, state


def stack(
    n: int = 4, timestep: float = 0.01, friction: float = 0.5, offset: float = 0.0
) -> SceneAndState:
    """n cubes of half side 0.25 m and 1 kg at rest on each other.

    Args:
        n: number of cubes.
        timestep: [s].
        friction: Coulomb coefficient.
        offset: of every second cube along x [m].

    Raises:
        ValueError: for an n that is no count.
    """
    count("n", n)
    number("offset", offset)
    cube = Box(half_extents=(0.25, 0.25, 0.25))
    bodies = [Body(f"block{i}", cube, mass=1.0) for i in range(n)]
    apart = [(f"block{i}", f"block{j}") for i in range(n) for j in range(i + 2, n)]
    scene = Scene(
        bodies, timestep=timestep, friction=friction, environment=[floor()], exclude=apart
    )
    position = [[offset * (i % 2), 0.0, 0.25 + 0.5 * i] for i in range(n)]
    return scene, scene.state(position=position)


def jenga(timestep: float = 0.01, friction: float = 0.5) -> SceneAndState:
    """Four flat blocks, tilted, falling onto each other."""
    block = Box(half_extents=(0.4, 0.15, 0.1))
    bodies = [Body(f"block{i}", block, mass=1.0) for i in range(4)]
    scene = Scene(bodies, [floor()], timestep=timestep, friction=friction)
    position = [[0.03 * i, 0.02 * i, 0.35 + 0.45 * i] for i in range(4)]
    orientation = [tilt(i % 2, 0.3 * (-1) ** i) for i in range(4)]
    return scene, scene.state(position=position, orientation=orientation)


def peg_in_hole(
    timestep: float = 0.01, friction: float = 0.03, clearance: float = 0.001, angle: float = 0.005
) -> SceneAndState:
    """A square peg that starts tilted in the mouth of a square hole and slides in.

    Args:
        timestep: [s].
        friction: Coulomb coefficient.
        clearance: between peg and wall, a side [m].
        angle: of the start, about y [rad].

    Raises:
        ValueError: for a clearance that is negative or leaves no peg.
    """
    half, depth, thick = 0.25, 0.5, 0.25
    number("angle", angle)
    known = concrete(number("clearance", clearance))
    if known is not None and not 0 <= known < half:
        raise ValueError(f"clearance: must be at least 0 and below {half}, got {clearance}")
    peg = Body("peg", Box(half_extents=(half - clearance, half - clearance, 0.5)), mass=1.0)
    across = Box(half_extents=(thick, half + 2 * thick, depth / 2))
    along = Box(half_extents=(half, thick, depth / 2))
    at = half + thick
    walls = [(across, (s * at, 0.0, depth / 2)) for s in (-1.0, 1.0)]
    walls += [(along, (0.0, s * at, depth / 2)) for s in (-1.0, 1.0)]
    scene = Scene([peg], [floor(), *walls], timestep=timestep, friction=friction)
    state = scene.state(position=[[0.0, 0.0, 0.92]], orientation=[tilt(1, angle)])
    return scene, state


def bundle_drop(timestep: float = 0.01, friction: float = 0.4) -> SceneAndState:
    """Two convex bundles fall on the floor and on each other (Fig. 2 of the paper).

    One unites a cylinder, a capsule and an ellipsoid, the other a Minkowski sum of a box and a
    sphere with a cone.
    """
    first = Bundle(
        [
            (Cylinder(radius=0.15, length=0.5), (0.0, 0.0, 0.0), tilt(1, math.pi / 2)),
            (Capsule(radius=0.08, length=0.5), (0.2, 0.0, 0.0), tilt(0, math.pi / 2)),
            (Ellipsoid(radii=(0.15, 0.25, 0.15)), (-0.25, 0.0, 0.0)),
        ]
    )
    rounded = MinkowskiSum(Box(half_extents=(0.25, 0.1, 0.1)), Sphere(radius=0.05))
    second = Bundle(
        [
            rounded,
            (Cone(radius=0.15, height=0.3), (0.0, 0.0, 0.2)),
        ]
    )
    bodies = [Body("lower", first, mass=1.0), Body("upper", second, mass=1.0)]
    scene = Scene(bodies, [floor()], timestep=timestep, friction=friction)
    state = scene.state(
        position=[[0.0, 0.0, 0.6], [0.05, 0.02, 1.4]],
        orientation=[tilt(0, 0.4), tilt(1, 0.7)],
    )
    return scene, state


def heap(n: int = 16, timestep: float = 0.01, friction: float = 0.4) -> SceneAndState:
    """n bodies of all convex shapes of `SHAPES` in turn fall into a bin of 2.2 m x 2.2 m.

    Args:
        n: number of bodies.
        timestep: [s].
        friction: Coulomb coefficient.

    Raises:
        ValueError: for an n that is no count.
    """
    count("n", n)
    shapes = [shape for make in SHAPES.values() if isinstance(shape := make(), ConvexShape)]
    bodies = [Body(f"body{k}", shapes[k % len(shapes)], mass=1.0) for k in range(n)]
    walls = [HalfSpace(normal, -1.1) for normal in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0))]
    scene = Scene(bodies, [floor(), *walls], timestep=timestep, friction=friction)
    # Four a layer; every layer is turned so that nothing falls straight onto its like.
    layer, place = np.arange(n) // 4, np.pi / 2 * (np.arange(n) % 4) + 0.4 * (np.arange(n) // 4)
    position = np.stack([0.65 * np.cos(place), 0.65 * np.sin(place), 0.5 + 0.9 * layer], axis=-1)
    orientation = [tilt(k % 3, 0.5 + 0.3 * k) for k in range(n)]
    return scene, scene.state(position=position, orientation=orientation)


def planar_push(timestep: float = 0.01, friction: float = 0.4, gap: float = 0.01) -> SceneAndState:
    """A ball slides along the floor towards a box.

    Args:
        timestep: [s].
        friction: Coulomb coefficient.
        gap: between ball and box at the start [m].

    Raises:
        ValueError: for a negative gap.
    """
    not_negative("gap", number("gap", gap))
    box = Body("box", Box(half_extents=(0.25, 0.25, 0.25)), mass=1.0)
    pusher = Body("pusher", Sphere(radius=0.1), mass=1.0)
    scene = Scene([box, pusher], [floor()], timestep=timestep, friction=friction)
    state = scene.state(
        position=[[0.0, 0.0, 0.25], [-0.35 - gap, 0.0, 0.1]],
        velocity=[[0.0, 0.0, 0.0], [1.5, 0.0, 0.0]],
    )
    return scene, state


def collision(timestep: float = 0.01, friction: float = 0.0) -> SceneAndState:
    """Two bodies meet off-centre without gravity."""
    bodies = [
        Body("box", Box(half_extents=(0.2, 0.2, 0.2)), mass=1.0),
        Body("capsule", Capsule(radius=0.1, length=0.4), mass=0.5),
    ]
    scene = Scene(bodies, timestep=timestep, friction=friction, gravity=(0.0, 0.0, 0.0))
    state = scene.state(
        position=[[0.0, 0.0, 0.0], [0.6, 0.1, 0.05]],
        orientation=[tilt(2, 0.3), tilt(0, 0.5)],
        velocity=[[0.5, 0.0, 0.0], [-1.0, 0.0, 0.0]],
    )
    return scene, state


def grasp(timestep: float = 0.1, friction: float = 0.5) -> SceneAndState:
    """Two fingertips beside a T of two boxes on a table, seen from above (Fig. 1 of the paper).

    The T is quasi-dynamic and locked to the plane z = 0; the fingertips are spheres under
    position control that may be lifted over it.

    Args:
        timestep: [s].
        friction: Coulomb coefficient.
    """
    bar = (Box(half_extents=(0.15, 0.05, 0.05)), (0.0, 0.05, 0.0))
    stem = (Box(half_extents=(0.05, 0.1, 0.05)), (0.0, -0.1, 0.0))
    in_plane = (0.0, 0.0, LOCK, LOCK, LOCK, 0.0)
    held = 3 * (FINGER_STIFFNESS,) + 3 * (LOCK,)
    tee = Body("tee", [bar, stem], mass=1.0, stiffness=in_plane, quasi_dynamic=True)
    tip = Sphere(radius=0.04)
    fingers = [
        Body(name, tip, mass=1.0, stiffness=held, quasi_dynamic=True) for name in ("left", "right")
    ]
    scene = Scene(
        [tee, *fingers],
        timestep=timestep,
        friction=friction,
        gravity=(0.0, 0.0, 0.0),
        exclude=[("left", "right")],
    )
    return scene, scene.state(position=[[0.0, 0.0, 0.0], [-0.25, 0.0, 0.0], [0.25, 0.0, 0.0]])


# All of them by name; each takes a `timestep`.
SCENES: dict[str, Callable[..., SceneAndState]] = {
    "peg_in_hole": peg_in_hole,
    "stack": stack,
    "jenga": jenga,
    "bundle_drop": bundle_drop,
    "heap": heap,
    "planar_push": planar_push,
    "collision": collision,
    "grasp": grasp,
    **{f"drop:{shape}": partial(drop, shape) for shape in SHAPES},
}
