"""Derivative of the rows of one single-level contact, by hand.

Each vector of the contact gets a block of columns for each quantity that changes it: the linear and
the angular coordinates of a body, local primals, duals. What the coordinates of a body are,
y = (v+, w+) or its pose before the step, is in its `Tangent`. Matrices are put together last.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.blocks import Blocks, Columns, Matrix
from silico_py.contact import (
    Contact,
    Formulation,
    Kinematics,
    Side,
    both_kinematics,
    shared_spin,
    slip_at,
    spin_shares,
)
from silico_py.friction import Radii, squared_norm
from silico_py.primitives import ConvexShape
from silico_py.rotation import skew
from silico_py.single_level import (
    Unknowns,
    contact_cone,
    contact_rows,
    start_contact,
    touch,
    unpack,
)
from silico_py.solver import CellJacobian
from silico_py.solver.dense import dot, matmul


class Tangent(NamedTuple):
    """How a body at the end of the step changes with its coordinates, world frame.

    The linear coordinates move it and speed it up along themselves, the angular ones turn it
    and change its spin.
    """

    position: Float[Array, ""] | float
    velocity: Float[Array, ""] | float
    turn: Float[Array, "3 3"]
    spin: Float[Array, "3 3"]


class Rows(NamedTuple):
    """Derivatives of the rows of a contact, part by part."""

    nodes: list[Blocks]
    local: list[Blocks]
    slack: list[Blocks]  # of shapes and gap
    friction: list[Blocks]  # the slack of friction


class SideDerivative(NamedTuple):
    """What one body brings to a contact, with derivatives."""

    normal: Float[Array, "3"]
    arm: Float[Array, "3"]  # from the centre of mass to the contact point [m]
    velocity: Float[Array, "3"]  # of the material point at the contact point [m/s]
    d_turned: Blocks  # of the normal, at fixed duals
    d_pressed: Blocks  # of the normal, by the duals
    d_arm: Blocks
    d_velocity: Blocks
    d_spin: Blocks
    d_bend: Blocks  # of the point's acceleration about the centre of mass
    d_slack: Blocks

    @property
    def d_normal(self) -> Blocks:
        """Derivative of the normal, by all it depends on."""
        return self.d_turned + self.d_pressed


def _of_bodies(c: Contact) -> Columns:
    """Columns of the coordinates of the bodies."""
    names = "linear", "angular"
    return Columns({f"{name}_{side}": 3 for side in "ab"[: c.arity] for name in names})


def _of_primals(a: ConvexShape, b: ConvexShape) -> Columns:
    """Columns of the local primals."""
    return Columns({"point": 3, "alpha": 1, "eps_a": a.n_aux, "eps_b": b.n_aux, "psi": 1})


def _of_duals(c: Contact) -> Columns:
    """Columns of the duals."""
    a, b = c.a.shape.cone.dim, c.b.shape.cone.dim
    turns = {} if c.radii is None else {"turning": 3}
    return Columns({"dual_a": a, "dual_b": b, "gamma": 1, "limit": 1, "beta": 3, **turns})


def contact_jacobian(
    y: Float[Array, "arity 6"],
    x: Float[Array, " nx"],
    z: Float[Array, " dim"],
    c: Contact,
    easing: Float[Array, ""],
) -> CellJacobian:
    """Derivative of `contact_rows`.

    `easing` takes away what is not monotone: how the friction limit follows the normal
    impulse, and how the direction of the impulse follows the collision duals.
    """
    duals = _of_duals(c)
    by_v = _of_bodies(c) | _of_primals(c.a.shape, c.b.shape)
    early = duals.without("limit", "beta", "turning")
    ends = both_kinematics(y, c)
    moving = zip(y, c.sides, ends[: c.arity], strict=True)
    tangents = [_motion_tangent(v, side, end) for v, side, end in moving]
    rows = _derivatives(ends, x, z, c, tangents, easing, by_v | duals)
    upper, late = rows.nodes + rows.local, rows.friction
    return CellJacobian(
        to_v=by_v.matrix(*upper),
        to_dual=duals.matrix(*upper),
        slack_to_v=by_v.matrix(*rows.slack, *rows.friction),
        slack_to_dual=early.matrix(*late),
    )


def pose_derivative(
    y: Float[Array, "arity 6"], x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact
) -> tuple[Matrix, Matrix, Matrix]:
    """Derivative of `contact_rows` (nodes, local, slack) with respect to the poses before the
    step: position of the centre of mass and rotation vector, world frame, body after body."""
    columns = _of_bodies(c)
    tangents = [_pose_tangent(v, side) for v, side in zip(y, c.sides, strict=True)]
    ends = both_kinematics(y, c)
    rows = _derivatives(ends, x, z, c, tangents, jnp.zeros((), x.dtype), columns)
    parts = rows.nodes, rows.local, rows.slack + rows.friction
    nodes, local, slack = (columns.matrix(*part) for part in parts)
    return nodes, local, slack


def _motion_tangent(y: Float[Array, "6"], side: Side, end: Kinematics) -> Tangent:
    """Derivative by y = (v+, w+), which leads to this end."""
    h = side.motion.timestep
    before = rotation.matrix(side.motion.orientation)
    turn = h * matmul(end.turn, rotation.cayley_tangent(h * y[3:]))
    # cay(h w) leaves w where it is, so the spin in the world is R w before and after.
    return Tangent(position=h, velocity=1.0, turn=turn, spin=before)


def _pose_tangent(y: Float[Array, "6"], side: Side) -> Tangent:
    """Derivative by position and rotation vector before the step."""
    spin = rotation.rotate(side.motion.orientation, y[3:])
    return Tangent(position=1.0, velocity=0.0, turn=jnp.eye(3, dtype=y.dtype), spin=-skew(spin))


def _derivatives(
    ends: tuple[Kinematics, Kinematics],
    x: Array,
    z: Array,
    c: Contact,
    tangents: list[Tangent],
    easing: Array,
    columns: Columns,
) -> Rows:
    """Every row of a contact by every quantity that has columns."""
    u = unpack(x, z, c)
    a, b = (
        _side(name, at, tangent, u, c, columns)
        for name, at, tangent in zip_longest("ab", ends, tangents)
    )
    normal, d_normal = (a.normal + b.normal) / 2, (a.d_normal + b.d_normal).times(0.5)
    slip, d_slip = slip_at(u.primal.point, ends, c), _d_slip(a, b, ends, c)
    project = jnp.eye(3, dtype=x.dtype) - jnp.outer(normal, normal) / squared_norm(normal)
    tangential = matmul(project, u.beta[1:4])
    d_tangential = d_normal.mapped(_d_project(normal, project, u.beta[1:4]))
    d_tangential += columns.blocks(3, beta=project)
    d_friction = [d_normal.mapped(_d_project(normal, project, slip)) + d_slip.mapped(project)]
    d_torque = columns.blocks(3)
    if c.radii is not None:
        turned = partial(_d_at_radii, normal, d_normal, project, c.radii)
        d_torque = turned(u.beta[4:], columns.blocks(3, turning=jnp.eye(3, dtype=x.dtype)))
        d_friction.append(turned(ends[0].spin - ends[1].spin, a.d_spin - b.d_spin))
    wrenches = [
        part.times(sign * c.impulse)
        for side, sign in ((a, -1.0), (b, 1.0))[: c.arity]
        for part in _wrench(
            side, u.gamma, tangential, d_tangential, d_torque, columns, c.moment, easing
        )
    ]
    one = jnp.ones((1, 1), x.dtype)
    limit = _limit(u.gamma, normal, d_normal, c.friction * (1 - easing), columns)
    gap, psi = columns.blocks(1, alpha=one), columns.blocks(1, psi=one / c.sliding)
    shapes = [side.d_slack.times(1 / c.slack_unit) for side in (a, b)]
    return Rows(
        nodes=wrenches,
        local=[a.d_normal - b.d_normal, *_optimality(c, columns), limit],
        slack=[*shapes, gap],
        friction=[psi, *(part.times(1 / c.sliding) for part in d_friction)],
    )


def _side(
    name: str, at: Kinematics, tangent: Tangent | None, u: Unknowns, c: Contact, columns: Columns
) -> SideDerivative:
    """Normal, arm, velocity and slack of side `name`; N_b = -d alpha / d x_b."""
    sign, dual = (1.0, u.dual_a) if name == "a" else (-1.0, u.dual_b)
    piece, eye = at.piece, jnp.eye(3, dtype=dual.dtype)
    to_point = c.length / piece.length * matmul(piece.map.to_x, piece.rotation.T)
    normal = sign * dot(dual[:, None], to_point, axis=0)
    arm = u.primal.point - at.center_of_mass
    lever, spin, turned = skew(arm), skew(at.spin), skew(normal)
    # A fixed body has no columns: what it is given here is dropped.
    t = tangent or Tangent(0.0, 0.0, eye, eye)
    leaned, tilted, twice = matmul(lever, t.turn), -matmul(turned, t.turn), matmul(spin, spin)
    carried = t.velocity * eye - t.position * spin
    bent = skew(matmul(spin, arm)) + matmul(spin, lever)
    blocks = partial(_blocks_of, name, columns)
    return SideDerivative(
        normal=normal,
        arm=arm,
        velocity=at.velocity_at(u.primal.point),
        d_turned=blocks(3, angular=tilted),
        d_pressed=blocks(3, dual=sign * to_point.T),
        d_arm=blocks(3, linear=-t.position * eye, point=c.length * eye),
        d_velocity=blocks(3, linear=carried, angular=-matmul(lever, t.spin), point=c.length * spin),
        d_spin=blocks(3, angular=t.spin),
        d_bend=blocks(
            3, linear=-t.position * twice, angular=-matmul(bent, t.spin), point=c.length * twice
        ),
        d_slack=blocks(
            len(dual),
            linear=-t.position / c.length * to_point,
            angular=matmul(to_point, leaned) / c.length,
            point=to_point,
            alpha=piece.map.to_alpha[:, None],
            eps=piece.map.to_eps,
        ),
    )


def _blocks_of(name: str, columns: Columns, rows: int, **named: Array) -> Blocks:
    """Blocks whose columns of side `name` are named without it."""
    own = ("linear", "angular", "eps", "dual")
    renamed = {f"{k}_{name}" if k in own else k: v for k, v in named.items()}
    return columns.blocks(rows, **renamed)


def _d_slip(
    a: SideDerivative, b: SideDerivative, ends: tuple[Kinematics, Kinematics], c: Contact
) -> Blocks:
    """Derivative of `slip_at`."""
    half, (share_a, share_b) = c.a.motion.timestep / 2, spin_shares(c)
    velocity = a.velocity - b.velocity
    to_slip = jnp.eye(3, dtype=velocity.dtype) + half * skew(shared_spin(ends, c))
    d_slip = (a.d_velocity - b.d_velocity).mapped(to_slip) - (a.d_bend - b.d_bend).times(half)
    d_spin = a.d_spin.times(share_a) + b.d_spin.times(share_b)
    return d_slip - d_spin.mapped(half * skew(velocity))


def _d_project(normal: Array, project: Array, v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Derivative of P v with respect to N."""
    outer = normal[:, None] * matmul(project, v)
    return -(dot(normal, v) * project + outer) / squared_norm(normal)


def _d_at_radii(
    normal: Array, d_normal: Blocks, project: Array, radii: Radii, w: Array, d_w: Blocks
) -> Blocks:
    """Derivative of M w with M = r_t n n^T + r_r P."""
    across = radii.rolling - radii.torsional
    matrix = radii.torsional * jnp.eye(3, dtype=w.dtype) + across * project
    return d_normal.mapped(across * _d_project(normal, project, w)) + d_w.mapped(matrix)


def _wrench(
    side: SideDerivative,
    gamma: Array,
    tangential: Array,
    d_tangential: Blocks,
    d_torque: Blocks,
    columns: Columns,
    share: Array,
    easing: Array,
) -> tuple[Blocks, Blocks]:
    """Derivatives of the impulse gamma N + P b and of a share of all moments."""
    impulse = gamma * side.normal + tangential
    d_normal = side.d_turned + side.d_pressed.times(1 - easing)
    d_impulse = d_normal.times(gamma) + d_tangential
    d_impulse += columns.blocks(3, gamma=side.normal[:, None])
    by_arm = side.d_arm.mapped(share * skew(impulse))
    moment = d_impulse.mapped(share * skew(side.arm)) - by_arm
    return d_impulse, moment + d_torque.times(share)


def _optimality(c: Contact, columns: Columns) -> list[Blocks]:
    """Derivatives of the alpha row and of the auxiliary rows."""
    a, b = c.a.map, c.b.map
    rows = [columns.blocks(1, dual_a=a.to_alpha[None], dual_b=b.to_alpha[None])]
    for name, own in (("a", a), ("b", b)):
        count = own.to_eps.shape[1]
        if count:
            blocks = {f"dual_{name}": own.to_eps.T}
            if own.held is not None:
                blocks[f"eps_{name}"] = jnp.diag(own.held)
            rows.append(columns.blocks(count, **blocks))
    return rows


def _limit(
    gamma: Array, normal: Array, d_normal: Blocks, friction: Array, columns: Columns
) -> Blocks:
    """Derivative of b0 - mu gamma |N|."""
    size = jnp.sqrt(squared_norm(normal))
    one = jnp.ones((1, 1), normal.dtype)
    row = columns.blocks(1, limit=one, gamma=-friction * size * one)
    return row - d_normal.mapped(friction * gamma / size * normal[None])


SINGLE_LEVEL = Formulation(
    cone=contact_cone,
    primals=lambda a, b: sum(_of_primals(a, b).sizes.values()),
    rows=contact_rows,
    jacobian=contact_jacobian,
    pose_derivative=pose_derivative,
    start=start_contact,
    touch=touch,
)
