"""The units of speed in which a step is relaxed, in numpy."""

from __future__ import annotations

import math

import numpy as np

from silico_py.assembly import LARGE
from silico_py.integrator import FAST
from silico_py.reference.certificate import Placed
from silico_py.reference.motion import Motion, free_load
from silico_py.scene import ContactPair, Scene

Sides = tuple[Placed, Placed]


def of_scene(scene: Scene) -> float:
    """1 m/s, times the root of the smallest shape's size in metres where that is more than one."""
    shapes = [piece[0] for body in scene.bodies for piece in body.pieces]
    shapes += [fixture.shape for fixture in scene.environment if fixture.shape.scaled]
    return math.sqrt(max(1.0, min(float(shape.characteristic_length) for shape in shapes)))


def of_bodies(scene: Scene, sides: list[Sides], control: np.ndarray) -> list[float]:
    """The unit of the scene, doubled until bodies that overlap part with at most `LARGE` of it, and
    what presses on them gives them no more in a step.

    Args:
        scene: the scene.
        sides: of each of its pairs, before the step.
        control: (n, 6) of the step.
    """
    unit, parting = of_scene(scene), np.zeros(len(scene.bodies))
    for pair, (a, b) in zip(scene.pairs, sides, strict=True):
        parting[bodies_of(pair)] += _overlap(a, b) / float(scene.timestep)
    pressed = [_pressed(scene, i, given) for i, given in enumerate(control)]
    ratios = np.maximum(1, np.maximum(parting, pressed) / (LARGE * unit))
    return [unit * 2.0 ** math.ceil(math.log2(ratio)) for ratio in ratios]


def _pressed(scene: Scene, index: int, control: np.ndarray) -> float:
    """What weight and control give a body in a step, where no spring takes their place [m/s]."""
    force = float(np.linalg.norm(free_load(scene, index, control)[:3]))
    return float(scene.timestep) * force / float(scene.bodies[index].mass)


def bodies_of(pair: ContactPair) -> list[int]:
    """The one or two that move."""
    return [i for i in (pair.body_a, pair.body_b) if i is not None]


def of_slip(scene: Scene, pair: ContactPair, before: list[Motion], speed: float) -> float:
    """`speed`, or how fast points of the pair may pass each other before the step, over `FAST`."""
    velocity, sweep = np.zeros(3), []
    for sign, index, piece in ((1, pair.body_a, pair.piece_a), (-1, pair.body_b, pair.piece_b)):
        if index is not None:
            body, motion = scene.bodies[index], before[index]
            shape, position, _ = body.pieces[piece]
            arm = np.array(position, float) - np.array(body.center_of_mass, float)
            reach = np.linalg.norm(arm) + float(shape.characteristic_length)
            velocity = velocity + sign * motion.velocity
            sweep.append(reach * np.linalg.norm(motion.spin))
    return max(speed, float(np.linalg.norm(velocity) + sum(sweep)) / FAST)


def _overlap(a: Placed, b: Placed) -> float:
    """How far two shapes are in each other, along the way between their centres [m]."""
    size = a.growth * float(a.shape.characteristic_length)
    if not b.shape.scaled:
        height = max(0.0, float(b.outward @ (a.center - b.center)))
        return max(0.0, 1 - _scaling(a, a.center - height * b.outward)) * size
    size += b.growth * float(b.shape.characteristic_length)
    # Along the way the scaling of one rises, that of the other falls: the place of both alike.
    way = b.center - a.center
    low, high = 0.0, 1.0
    for _ in range(60):
        part = (low + high) / 2
        point = a.center + part * way
        low, high = (part, high) if _scaling(a, point) < _scaling(b, point) else (low, part)
    point = a.center + low * way
    return max(0.0, 1 - max(_scaling(a, point), _scaling(b, point))) * size


def _scaling(side: Placed, point: np.ndarray) -> float:
    """The least alpha at which a shape holds a world point, or what its shape says at most."""
    bound, _ = side.shape.interior(side.turn.T @ (point - side.position))
    return 1 + (float(bound) - 1) / side.growth
