"""Derivative of the rows of one single-level contact, by hand.

Each vector of the contact gets a matrix with one column an entry of `Columns`: pose and
twist of each body in the world frame, local primals, duals. The last lines turn poses and
twists into y = (v+, w+).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.contact import Contact, Formulation, Kinematics, Side, both_kinematics
from silico_py.friction import squared_norm
from silico_py.integrator import next_pose
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

Matrix = Float[Array, "rows columns"]
PLACEMENT = ("position", "turn", "velocity", "spin")  # of a body, world frame
PLACEMENT_SIZE = 3 * len(PLACEMENT)


class Columns:
    """Where each quantity stands among the columns of a derivative."""

    def __init__(self, c: Contact) -> None:
        sizes = {f"{name}_{side}": 3 for side in "ab"[: c.arity] for name in PLACEMENT}
        self.bodies = sum(sizes.values())
        sizes |= {"point": 3, "alpha": 1, "eps_a": c.a.shape.n_aux, "eps_b": c.b.shape.n_aux}
        sizes |= {"psi": 1}
        self.primal = sum(sizes.values())
        sizes |= {"dual_a": c.a.shape.cone.dim, "dual_b": c.b.shape.cone.dim}
        sizes |= {"gamma": 1, "limit": 1, "beta": 3}
        self.sizes = sizes

    def place(self, rows: int, **blocks: Array) -> Matrix:
        """A matrix that is zero but for the named blocks; blocks of fixed bodies are dropped."""
        start, total = 0, sum(self.sizes.values())
        out = 0.0
        for name, size in self.sizes.items():
            if name in blocks and size:
                # A sum of padded blocks compiles to one loop, a concatenation to many.
                block = blocks[name]
                widths = ((0, 0, 0), (start, total - start - size, 0))
                out += jax.lax.pad(block, jnp.zeros((), block.dtype), widths)
            start += size
        return out


class SideDerivative(NamedTuple):
    """What one body brings to a contact, with derivatives."""

    normal: Float[Array, "3"]
    arm: Float[Array, "3"]  # from the centre of mass to the contact point [m]
    velocity: Float[Array, "3"]  # of the material point at the contact point [m/s]
    d_normal: Matrix
    d_turned: Matrix  # of the normal, at fixed duals
    d_arm: Matrix
    d_velocity: Matrix
    d_slack: Matrix


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
    columns = Columns(c)
    rows = all_derivatives(y, x, z, c, easing, columns)
    bodies, to_x, to_z = jnp.split(rows, (columns.bodies, columns.primal), axis=1)
    blocks = zip(jnp.split(bodies, c.arity, axis=1), y, c.sides, strict=True)
    to_y = jnp.concatenate([b @ placement_tangent(v, s) for b, v, s in blocks], axis=1)
    cuts = (6 * c.arity, 6 * c.arity + x.size)
    return CellJacobian(*zip(*(jnp.split(m, cuts) for m in (to_y, to_x, to_z)), strict=True))


def pose_derivative(
    y: Float[Array, "arity 6"], x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact
) -> tuple[Matrix, Matrix, Matrix]:
    """Derivative of `contact_rows` (nodes, local, slack) with respect to the poses before the
    step: position of the centre of mass and rotation vector, world frame, body after body."""
    columns = Columns(c)
    rows = all_derivatives(y, x, z, c, jnp.zeros((), x.dtype), columns)
    blocks = jnp.split(rows[:, : columns.bodies], c.arity, axis=1)
    eye, zero = jnp.eye(3, dtype=x.dtype), jnp.zeros((3, 3), x.dtype)
    spins = [
        rotation.rotate(side.motion.orientation, v[3:]) for v, side in zip(y, c.sides, strict=True)
    ]
    moved = [jnp.block([[eye, zero], [zero, eye], [zero, zero], [zero, -skew(w)]]) for w in spins]
    to_pose = jnp.concatenate([b @ m for b, m in zip(blocks, moved, strict=True)], axis=1)
    return tuple(jnp.split(to_pose, (6 * c.arity, 6 * c.arity + x.size)))


def placement_tangent(y: Float[Array, "6"], side: Side) -> Float[Array, "12 6"]:
    """How position, turn, velocity and spin of a body change with y = (v+, w+)."""
    h = side.motion.timestep
    before = rotation.matrix(side.motion.orientation)
    after = rotation.matrix(next_pose(y, side.motion)[1])
    eye, zero = jnp.eye(3, dtype=y.dtype), jnp.zeros((3, 3), y.dtype)
    turn = h * after @ rotation.cayley_tangent(h * y[3:])
    # cay(h w) leaves w where it is, so the spin in the world is R w before and after.
    return jnp.block([[h * eye, zero], [zero, turn], [eye, zero], [zero, before]])


def all_derivatives(
    y: Array, x: Array, z: Array, c: Contact, easing: Array, columns: Columns
) -> Matrix:
    """Every row of a contact (node forces, local, slack) against every column."""
    u = unpack(x, z, c)
    a, b = (
        _side(name, at, u, c, columns) for name, at in zip("ab", both_kinematics(y, c), strict=True)
    )
    normal, d_normal = (a.normal + b.normal) / 2, (a.d_normal + b.d_normal) / 2
    slip, d_slip = a.velocity - b.velocity, a.d_velocity - b.d_velocity
    project = jnp.eye(3, dtype=x.dtype) - jnp.outer(normal, normal) / squared_norm(normal)
    tangential = project @ u.beta[1:]
    d_tangential = _d_project(normal, project, u.beta[1:]) @ d_normal
    d_tangential += columns.place(3, beta=project)
    wrenches = [
        sign * c.mass * _wrench(side, u.gamma, tangential, d_tangential, columns, easing)
        for side, sign in ((a, -1.0), (b, 1.0))[: c.arity]
    ]
    d_friction = _d_project(normal, project, slip) @ d_normal + project @ d_slip
    head = jnp.eye(2, dtype=x.dtype)
    return jnp.concatenate(
        [
            *wrenches,
            a.d_normal - b.d_normal,
            _optimality(c, columns),
            _limit(u.gamma, normal, d_normal, c.friction * (1 - easing), columns),
            a.d_slack,
            b.d_slack,
            columns.place(2, alpha=head[:, :1], psi=head[:, 1:]),
            d_friction,
        ]
    )


def _side(name: str, at: Kinematics, u: Unknowns, c: Contact, columns: Columns) -> SideDerivative:
    """Normal, arm, velocity and slack of side `name`; N_b = -d alpha / d x_b."""
    sign, dual = (1.0, u.dual_a) if name == "a" else (-1.0, u.dual_b)
    piece, eye = at.piece, jnp.eye(3, dtype=dual.dtype)
    to_point = c.length / piece.length * piece.map.to_x @ piece.rotation.T
    normal = sign * dual @ to_point
    arm = u.primal.point - at.center_of_mass
    lever, spin = skew(arm), skew(at.spin)

    def place(rows: int, **blocks: Array) -> Matrix:
        own = (*PLACEMENT, "eps", "dual")
        return columns.place(
            rows, **{f"{k}_{name}" if k in own else k: v for k, v in blocks.items()}
        )

    return SideDerivative(
        normal=normal,
        arm=arm,
        velocity=at.velocity_at(u.primal.point),
        d_normal=place(3, turn=-skew(normal), dual=sign * to_point.T),
        d_turned=place(3, turn=-skew(normal)),
        d_arm=place(3, position=-eye, point=c.length * eye),
        d_velocity=place(3, position=-spin, point=c.length * spin, velocity=eye, spin=-lever),
        d_slack=place(
            len(dual),
            position=-to_point / c.length,
            turn=to_point @ lever / c.length,
            point=to_point,
            alpha=piece.map.to_alpha[:, None],
            eps=piece.map.to_eps,
        ),
    )


def _d_project(normal: Array, project: Array, v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Derivative of P v with respect to N."""
    outer = jnp.outer(normal, project @ v)
    return -((normal @ v) * project + outer) / squared_norm(normal)


def _wrench(
    side: SideDerivative,
    gamma: Array,
    tangential: Array,
    d_tangential: Matrix,
    columns: Columns,
    easing: Array,
) -> Matrix:
    """Derivative of the impulse gamma N + P b and of its moment."""
    impulse = gamma * side.normal + tangential
    d_normal = (1 - easing) * side.d_normal + easing * side.d_turned
    d_impulse = gamma * d_normal + d_tangential
    d_impulse += columns.place(3, gamma=side.normal[:, None])
    d_moment = skew(side.arm) @ d_impulse - skew(impulse) @ side.d_arm
    return jnp.concatenate([d_impulse, d_moment])


def _optimality(c: Contact, columns: Columns) -> Matrix:
    """Derivative of the alpha row and of the auxiliary rows."""
    a, b = c.a.map, c.b.map
    scale = columns.place(1, dual_a=a.to_alpha[None], dual_b=b.to_alpha[None])
    rows = [scale]
    if a.to_eps.size:
        rows.append(columns.place(a.to_eps.shape[1], dual_a=a.to_eps.T))
    if b.to_eps.size:
        rows.append(columns.place(b.to_eps.shape[1], dual_b=b.to_eps.T))
    return jnp.concatenate(rows)


def _limit(
    gamma: Array, normal: Array, d_normal: Matrix, friction: Array, columns: Columns
) -> Matrix:
    """Derivative of b0 - mu gamma |N|."""
    size = jnp.sqrt(squared_norm(normal))
    one = jnp.ones((1, 1), normal.dtype)
    row = columns.place(1, limit=one, gamma=-friction * size * one)
    return row - friction * gamma / size * (normal @ d_normal)[None]


SINGLE_LEVEL = Formulation(
    contact_cone, contact_rows, contact_jacobian, pose_derivative, start_contact, touch
)
