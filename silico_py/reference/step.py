"""Whether the result of a step satisfies the conditions it is defined by (eq. 20, in 3D)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from silico_py.body import Body
from silico_py.collision_program import SIZE_RATIO
from silico_py.one_step import Info
from silico_py.options import SolverOptions
from silico_py.primitives import ConvexShape
from silico_py.reference import units
from silico_py.reference.certificate import Placed, pair_length
from silico_py.reference.contact import Contact, collision_conditions, force_conditions
from silico_py.reference.motion import Balance, Load, Motion, free_load
from silico_py.reference.report import Condition, StepReport, worst
from silico_py.scene import ContactPair, Scene, State, check_start

ROUNDING = 1e4  # machine epsilons that rounding may add to a balance


def check_step(
    scene: Scene,
    state: State,
    control: ArrayLike | None,
    next_state: State,
    info: Info,
    options: SolverOptions | None = None,
) -> StepReport:
    """Check one step of one scene (no batch) against every condition of its definition.

    Only the next state and what `info.contacts` reports are used. Residuals may reach a tenth
    of the relaxation and complementarity products twice the relaxation.

    Args:
        scene, state, control: what `step` was given.
        next_state, info: what it returned.
        options: what it was given; relaxation and method are read.

    Raises:
        ValueError: for states, controls or contacts that are not those of the scene, such as
            batched ones or those that are not finite, and for options that say less of a contact
            than is checked: `max_contacts`, and a `collision_relaxation` of the bilevel method
            that is not the relaxation.
    """
    options = options or SolverOptions()
    control = _control(scene, state, control, next_state, info)
    rho = _relaxation(options)
    after = [Motion.of(body, next_state, i) for i, body in enumerate(scene.bodies)]
    before = [_before(body, state, i) for i, body in enumerate(scene.bodies)]
    sides = [_sides(scene, before, pair) for pair in scene.pairs]
    speeds = units.of_bodies(scene, sides, control)
    contacts = [_contact(scene, speeds, before, after, info, k) for k in range(len(scene.pairs))]
    rounding = ROUNDING * float(np.finfo(next_state.velocity.dtype).eps)
    rows = [
        _balance(scene, i, speed, before[i], after[i], control[i], contacts, rho / 10).conditions(
            rho / 10, rounding
        )
        for i, speed in enumerate(speeds)
    ]
    rows += [collision_conditions(c, rho) | force_conditions(c, rho) for c in contacts]
    return _report(rows)


def _relaxation(options: SolverOptions) -> float:
    """The one of all conditions."""
    rho = float(options.relaxation)
    if options.contact_limits != (None, None):
        raise ValueError("options: with max_contacts not every contact is reported in full")
    if options.method == "bilevel" and float(options.collision_relaxation) != rho:
        raise ValueError("options: collision_relaxation has to be that of the step, relaxation")
    return rho


def _report(rows: list[dict[str, Condition]]) -> StepReport:
    """The worst of each condition."""
    names = StepReport.__dataclass_fields__
    return StepReport(**{n: worst(row[n] for row in rows if n in row) for n in names})


def _control(scene: Scene, state: State, control: Any, next_state: State, info: Info) -> np.ndarray:
    """Check that everything is of this scene; controls (n, 6), zero if None."""
    n = len(scene.bodies)
    check_start(scene, state)
    check_start(scene, next_state, "next_state")
    if np.shape(info.contacts.alpha) != (len(scene.pairs),):
        raise ValueError(
            f"info: expected the {len(scene.pairs)} contacts of the scene, got "
            f"{np.shape(info.contacts.alpha)}; index a batch or a trajectory first"
        )
    if not np.isfinite(info.contacts.point).all():
        raise ValueError("info: a contact point is not finite")
    control = np.zeros((n, 6)) if control is None else np.asarray(control, float)
    if control.shape != (n, 6):
        raise ValueError(f"control: expected shape {(n, 6)}, got {control.shape}")
    return control


def _before(body: Body, state: State, index: int) -> Motion:
    """How a body starts the step."""
    motion = Motion.of(body, state, index)
    still = motion._replace(velocity=np.zeros(3), spin=np.zeros(3))
    return still if body.quasi_dynamic else motion


def _balance(
    scene: Scene,
    index: int,
    speed: float,
    before: Motion,
    after: Motion,
    control: np.ndarray,
    contacts: list[Contact],
    tolerance: float,
) -> Balance:
    """What moves one body and how it moved."""
    body = scene.bodies[index]
    applied = float(scene.timestep) * _applied(scene, index, control, before, after)
    loads = [Load(applied[:3], moment=applied[3:]), *_pushes(scene, index, contacts, tolerance)]
    return Balance(
        name=body.name,
        mass=float(body.mass),
        speed=speed,
        inertia=np.asarray(body.inertia, float),
        stiffness=np.asarray(body.stiffness, float),
        timestep=float(scene.timestep),
        before=before,
        after=after,
        loads=loads,
    )


def _pushes(scene: Scene, index: int, contacts: list[Contact], tolerance: float) -> list[Load]:
    """Contact impulses on one body."""
    loads = []
    for pair, c in zip(scene.pairs, contacts, strict=True):
        impulse, moment = c.unit * c.impulse, c.unit * c.torque
        if pair.body_a == index:
            loads.append(Load(impulse, c.point, moment))
        if pair.body_b == index:
            # The second body is pushed along its own N, the report gives the one of the first.
            error = c.unit * abs(c.gamma) * tolerance
            loads.append(Load(-impulse, c.point, -moment, error))
    return loads


def _applied(
    scene: Scene, index: int, control: np.ndarray, before: Motion, after: Motion
) -> np.ndarray:
    """Weight and control (6,); in a direction with stiffness the spring instead of both."""
    body = scene.bodies[index]
    turned = np.append(after.velocity, before.turn.apply(after.spin))
    spring = np.asarray(body.stiffness, float) * (control - float(scene.timestep) * turned)
    return spring + free_load(scene, index, control)


def _contact(
    scene: Scene, speeds: list[float], before: list[Motion], after: list[Motion], info: Info, k: int
) -> Contact:
    """Contact k as reported, with its shapes at the next poses."""
    pair, contacts = scene.pairs[k], info.contacts
    a, b = _sides(scene, after, pair)
    bodies = units.bodies_of(pair)
    speed = max(speeds[i] for i in bodies)
    unit = speed * min(float(scene.bodies[i].mass) for i in bodies)
    point, force = np.asarray(contacts.point[k], float), np.asarray(contacts.force[k], float)
    torque = np.zeros(3) if contacts.torque is None else np.asarray(contacts.torque[k], float)
    slip, spin = _slip(scene, bodies, before, after, point), _spin(bodies, after)
    unit_slip = units.of_slip(scene, pair, before, speed)
    return Contact(
        name=f"contact {k}, {_label(scene, pair)}",
        a=a,
        b=b,
        alpha=float(contacts.alpha[k]),
        point=point,
        normal=np.asarray(contacts.normal[k], float),
        impulse=float(scene.timestep) * force / unit,
        slip=slip / unit_slip,
        torque=float(scene.timestep) * torque / unit,
        spin=spin / unit_slip,
        friction=_of_pair(scene, scene.friction, k),
        radii=(
            _of_pair(scene, scene.torsional_radius, k),
            _of_pair(scene, scene.rolling_radius, k),
        ),
        unit=unit,
        length=pair_length(a, b),
    )


def _slip(
    scene: Scene, bodies: list[int], before: list[Motion], after: list[Motion], point: np.ndarray
) -> np.ndarray:
    """How fast the first of one or two bodies slides along the other at a world point [m/s].

    Of what the material points there have moved in the step beyond their common motion each is
    turned and stretched by its own spin: whatever sticks has no slip.
    """
    velocities = [after[i].velocity_at(point) for i in bodies]
    masses = [float(scene.bodies[i].mass) for i in bodies]
    common = np.average(velocities, axis=0, weights=masses) if len(bodies) > 1 else np.zeros(3)
    slips = []
    for i in bodies:
        moved = after[i].displacement_at(point, before[i]) / float(scene.timestep) - common
        half = float(scene.timestep) / 2 * after[i].turn.apply(after[i].spin)
        slips.append(moved + np.cross(half, moved))
    return _relative(slips)


def _spin(bodies: list[int], after: list[Motion]) -> np.ndarray:
    """How fast the first of one or two bodies turns against the other, world [rad/s]."""
    return _relative([after[i].turn.apply(after[i].spin) for i in bodies])


def _relative(vectors: list[np.ndarray]) -> np.ndarray:
    """Of the first of one or two bodies, less that of the second."""
    first, *second = vectors
    return first - sum(second)


def _of_pair(scene: Scene, value: ArrayLike | None, k: int) -> float:
    """What contact k has of one number for all or one for each, 0 of None."""
    return float(np.broadcast_to(0.0 if value is None else value, len(scene.pairs))[k])


def _sides(scene: Scene, motions: list[Motion], pair: ContactPair) -> tuple[Placed, Placed]:
    """Both pieces of a pair, which grow as they do in it."""
    a, b = _placed(scene, motions, pair.body_a, pair.piece_a), _other(scene, motions, pair)
    a, b = (side._replace(growth=_growth(side.shape, pair_length(a, b))) for side in (a, b))
    return a, b


def _growth(shape: ConvexShape, length: float) -> float:
    """Growth of a shape in a contact whose smaller one has this length."""
    size = float(shape.characteristic_length)
    return min(1.0, SIZE_RATIO * length / size) if shape.scaled else 1.0


def _label(scene: Scene, pair: ContactPair) -> str:
    other = "environment" if pair.body_b is None else scene.bodies[pair.body_b].name
    return f"{scene.bodies[pair.body_a].name} - {other}"


def _placed(scene: Scene, after: list[Motion], body: int, piece: int) -> Placed:
    """A piece of a body at the next pose."""
    shape, position, orientation = scene.bodies[body].pieces[piece]
    motion, arm = after[body], np.array(scene.bodies[body].center_of_mass, float)
    turn = motion.turn * Rotation.from_quat(np.array(orientation, float), scalar_first=True)
    offset = motion.turn.apply(np.array(position, float) - arm)
    return Placed(shape, motion.position + offset, turn.as_matrix())


def _other(scene: Scene, after: list[Motion], pair: ContactPair) -> Placed:
    """The second side: a piece of a body, or fixed in the world."""
    if pair.body_b is not None:
        return _placed(scene, after, pair.body_b, pair.piece_b)
    fixture = scene.environment[pair.piece_b]
    return Placed.at(fixture.shape, (fixture.position, fixture.orientation))
