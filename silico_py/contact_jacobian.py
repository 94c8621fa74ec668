"""Derivative of the rows of one single-level contact, by hand.

Each vector of the contact gets a matrix with one column an entry of `Columns`: three linear and
three angular coordinates of each body, local primals, duals. What the coordinates of a body
are, y = (v+, w+) or its pose before the step, is in its `Tangent`.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.contact import Contact, Formulation, Kinematics, Side, both_kinematics, posed
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
from silico_py.solver.dense import matmul

Matrix = Float[Array, "rows columns"]

DUALS = "dual_a", "dual_b", "gamma", "limit", "beta"  # the last columns of a derivative


class Tangent(NamedTuple):
    """How a body at the end of the step changes with its coordinates, world frame.

    The linear coordinates move it and speed it up along themselves, the angular ones turn it
    and change its spin.
    """

    position: Float[Array, ""] | float
    velocity: Float[Array, ""] | float
    turn: Float[Array, "3 3"]
    spin: Float[Array, "3 3"]


class Columns(NamedTuple):
    """How many columns of a derivative each quantity has, in their order."""

    sizes: dict[str, int]

    @classmethod
    def of_bodies(cls, c: Contact) -> Columns:
        """The coordinates of the bodies alone."""
        names = "linear", "angular"
        return cls({f"{name}_{side}": 3 for side in "ab"[: c.arity] for name in names})

    @classmethod
    def of_all(cls, c: Contact) -> Columns:
        """Those, the local primals and the duals."""
        own = {"point": 3, "alpha": 1, "eps_a": c.a.shape.n_aux, "eps_b": c.b.shape.n_aux, "psi": 1}
        duals = (c.a.shape.cone.dim, c.b.shape.cone.dim, 1, 1, 3)
        return cls(cls.of_bodies(c).sizes | own | dict(zip(DUALS, duals, strict=True)))

    @property
    def primals(self) -> Columns:
        """All but the duals."""
        return Columns({name: size for name, size in self.sizes.items() if name not in DUALS})

    @property
    def total(self) -> int:
        """Of all quantities."""
        return sum(self.sizes.values())

    def place(self, rows: int, **blocks: Array) -> Matrix:
        """A matrix that is zero but for the named blocks; those without columns are dropped."""
        start, total = 0, self.total
        out = jnp.zeros((rows, total), next(iter(blocks.values())).dtype)
        for name, size in self.sizes.items():
            if name in blocks and size:
                # A sum of padded blocks compiles to one loop, a concatenation to many.
                block = blocks[name]
                widths = ((0, 0, 0), (start, total - start - size, 0))
                out += jax.lax.pad(block, jnp.zeros((), block.dtype), widths)
            start += size
        return out


class Rows(NamedTuple):
    """Derivatives of the rows of a contact.

    Those of the shapes' slacks are by bodies and primals alone: no dual changes them.
    """

    nodes: Matrix
    local: Matrix
    shapes: Matrix
    ends: Matrix  # slacks of gap and friction


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
    columns = Columns.of_all(c)
    tangents = [_motion_tangent(v, side) for v, side in zip(y, c.sides, strict=True)]
    rows = all_derivatives(y, x, z, c, tangents, easing, columns)
    cuts = Columns.of_bodies(c).total, columns.primals.total
    nodes, local, ends = (jnp.split(m, cuts, axis=1) for m in (rows.nodes, rows.local, rows.ends))
    shapes = jnp.split(rows.shapes, cuts[:1], axis=1)
    slack = [jnp.concatenate(pair) for pair in zip(shapes, ends[:2], strict=True)]
    by_duals = jnp.pad(ends[2], ((len(rows.shapes), 0), (0, 0)))
    return CellJacobian(tuple(nodes), tuple(local), (*slack, by_duals))


def pose_derivative(
    y: Float[Array, "arity 6"], x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact
) -> tuple[Matrix, Matrix, Matrix]:
    """Derivative of `contact_rows` (nodes, local, slack) with respect to the poses before the
    step: position of the centre of mass and rotation vector, world frame, body after body."""
    columns = Columns.of_bodies(c)
    tangents = [_pose_tangent(v, side) for v, side in zip(y, c.sides, strict=True)]
    rows = all_derivatives(y, x, z, c, tangents, jnp.zeros((), x.dtype), columns)
    return rows.nodes, rows.local, jnp.concatenate([rows.shapes, rows.ends])


def unit_derivative(
    y: Float[Array, "arity 6"], x: Float[Array, " nx"], z: Float[Array, " dim"], c: Contact
) -> Matrix:
    """What `pose_derivative` leaves out: the unit of a distant pair follows the poses."""

    def distance(change: Float[Array, "arity 6"]) -> Float[Array, ""]:
        return start_contact(posed(c, change))[0].distance

    def rows(distance: Float[Array, ""]) -> Float[Array, " rows"]:
        part = contact_rows(y, x, z, c._replace(distance=distance))
        return jnp.concatenate([part.nodes.reshape(-1), part.local, part.slack])

    _, change = jax.jvp(rows, (c.distance,), (jnp.ones_like(c.distance),))
    return jnp.outer(change, jax.jacfwd(distance)(jnp.zeros_like(y)))


def _motion_tangent(y: Float[Array, "6"], side: Side) -> Tangent:
    """By y = (v+, w+)."""
    h = side.motion.timestep
    before = rotation.matrix(side.motion.orientation)
    after = rotation.matrix(next_pose(y, side.motion)[1])
    turn = h * matmul(after, rotation.cayley_tangent(h * y[3:]))
    # cay(h w) leaves w where it is, so the spin in the world is R w before and after.
    return Tangent(position=h, velocity=1.0, turn=turn, spin=before)


def _pose_tangent(y: Float[Array, "6"], side: Side) -> Tangent:
    """By position and rotation vector before the step."""
    spin = rotation.rotate(side.motion.orientation, y[3:])
    return Tangent(position=1.0, velocity=0.0, turn=jnp.eye(3, dtype=y.dtype), spin=-skew(spin))


def all_derivatives(
    y: Array,
    x: Array,
    z: Array,
    c: Contact,
    tangents: list[Tangent],
    easing: Array,
    columns: Columns,
) -> Rows:
    """Every row of a contact against every column."""
    u = unpack(x, z, c)
    a, b = (
        _side(name, at, tangent, u, c, columns)
        for name, at, tangent in zip_longest("ab", both_kinematics(y, c), tangents)
    )
    normal, d_normal = (a.normal + b.normal) / 2, (a.d_normal + b.d_normal) / 2
    slip, d_slip = a.velocity - b.velocity, a.d_velocity - b.d_velocity
    project = jnp.eye(3, dtype=x.dtype) - jnp.outer(normal, normal) / squared_norm(normal)
    tangential = matmul(project, u.beta[1:])
    d_tangential = matmul(_d_project(normal, project, u.beta[1:]), d_normal)
    d_tangential += columns.place(3, beta=project)
    wrenches = [
        sign * c.impulse * _wrench(side, u.gamma, tangential, d_tangential, columns, easing)
        for side, sign in ((a, -1.0), (b, 1.0))[: c.arity]
    ]
    d_friction = matmul(_d_project(normal, project, slip), d_normal) + matmul(project, d_slip)
    head = jnp.eye(2, dtype=x.dtype)
    limit = _limit(u.gamma, normal, d_normal, c.friction * (1 - easing), columns)
    gap = columns.place(2, alpha=head[:, :1], psi=head[:, 1:] / c.sliding)
    return Rows(
        nodes=jnp.concatenate(wrenches),
        local=jnp.concatenate([a.d_normal - b.d_normal, _optimality(c, columns), limit]),
        shapes=jnp.concatenate([a.d_slack, b.d_slack]) / c.distance,
        ends=jnp.concatenate([gap, d_friction / c.sliding]),
    )


def _side(
    name: str, at: Kinematics, tangent: Tangent | None, u: Unknowns, c: Contact, columns: Columns
) -> SideDerivative:
    """Normal, arm, velocity and slack of side `name`; N_b = -d alpha / d x_b."""
    sign, dual = (1.0, u.dual_a) if name == "a" else (-1.0, u.dual_b)
    piece, eye = at.piece, jnp.eye(3, dtype=dual.dtype)
    to_point = c.length / piece.length * matmul(piece.map.to_x, piece.rotation.T)
    normal = sign * jnp.sum(dual[:, None] * to_point, axis=0)
    arm = u.primal.point - at.center_of_mass
    lever, spin, turned = skew(arm), skew(at.spin), skew(normal)
    # A fixed body has no columns: what it is given here is dropped by `place`.
    t = tangent or Tangent(0.0, 0.0, eye, eye)
    leaned = matmul(lever, t.turn)

    def place(rows: int, among: Columns = columns, **blocks: Array) -> Matrix:
        own = ("linear", "angular", "eps", "dual")
        return among.place(rows, **{f"{k}_{name}" if k in own else k: v for k, v in blocks.items()})

    return SideDerivative(
        normal=normal,
        arm=arm,
        velocity=at.velocity_at(u.primal.point),
        d_normal=place(3, angular=-matmul(turned, t.turn), dual=sign * to_point.T),
        d_turned=place(3, angular=-matmul(turned, t.turn)),
        d_arm=place(3, linear=-t.position * eye, point=c.length * eye),
        d_velocity=place(
            3,
            linear=t.velocity * eye - t.position * spin,
            angular=-matmul(lever, t.spin),
            point=c.length * spin,
        ),
        d_slack=place(
            len(dual),
            columns.primals,
            linear=-t.position / c.length * to_point,
            angular=matmul(to_point, leaned) / c.length,
            point=to_point,
            alpha=piece.map.to_alpha[:, None],
            eps=piece.map.to_eps,
        ),
    )


def _d_project(normal: Array, project: Array, v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Derivative of P v with respect to N."""
    outer = normal[:, None] * matmul(project, v)
    return -(jnp.sum(normal * v) * project + outer) / squared_norm(normal)


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
    d_moment = matmul(skew(side.arm), d_impulse) - matmul(skew(impulse), side.d_arm)
    return jnp.concatenate([d_impulse, d_moment])


def _optimality(c: Contact, columns: Columns) -> Matrix:
    """Derivative of the alpha row and of the auxiliary rows."""
    a, b = c.a.map, c.b.map
    rows = [columns.place(1, dual_a=a.to_alpha[None], dual_b=b.to_alpha[None])]
    for name, own in (("a", a), ("b", b)):
        if own.to_eps.size:
            blocks = {f"dual_{name}": own.to_eps.T}
            if own.held is not None:
                blocks[f"eps_{name}"] = jnp.diag(own.held)
            rows.append(columns.place(own.to_eps.shape[1], **blocks))
    return jnp.concatenate(rows)


def _limit(
    gamma: Array, normal: Array, d_normal: Matrix, friction: Array, columns: Columns
) -> Matrix:
    """Derivative of b0 - mu gamma |N|."""
    size = jnp.sqrt(squared_norm(normal))
    one = jnp.ones((1, 1), normal.dtype)
    row = columns.place(1, limit=one, gamma=-friction * size * one)
    return row - friction * gamma / size * matmul(normal[None], d_normal)


SINGLE_LEVEL = Formulation(
    contact_cone,
    contact_rows,
    contact_jacobian,
    pose_derivative,
    start_contact,
    touch,
    unit_derivative,
)
