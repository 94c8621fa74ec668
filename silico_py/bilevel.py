"""Contact with its collision program solved inside: the baseline the paper compares with.

The collision data alpha(y), p(y), N(y) of each contact come from a solve of its own at each
evaluation of the residual, and their derivatives from the implicit function theorem
(section IV of the single-level paper). Friction, integrator, units, the outer interior
point and its tolerances are those of the single-level method.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import friction
from silico_py.collision import ITERATIONS as COLLISION_ITERATIONS
from silico_py.collision import WARM_RELAXATION, Located, locate, optimum, solve_collision
from silico_py.collision_program import START_GAP, Warm, without_excess
from silico_py.contact import (
    Contact,
    Formulation,
    Kinematics,
    Nested,
    Touch,
    both_kinematics,
    current,
    exchange,
    exchange_cone,
    posed,
)
from silico_py.primitives import ConvexShape
from silico_py.solver import CellJacobian, CellResidual, CellVariables, ProductCone
from silico_py.solver.problem import forward_jacobian


def formulation(collision_relaxation: float | Array, warm_start: bool | Array) -> Formulation:
    """The bilevel formulation with collision programs solved at `collision_relaxation`.

    With `warm_start` each begins at the solution for the pose before the step.
    """
    return Formulation(
        cone=contact_cone,
        primals=lambda a, b: 1,
        rows=contact_rows,
        jacobian=contact_jacobian,
        pose_derivative=pose_derivative,
        start=partial(start_contact, relaxation=collision_relaxation, warm_start=warm_start),
        touch=touch,
        prepare=prepare,
        fusible=False,
    )


def contact_cone(a: ConvexShape, b: ConvexShape, radii: friction.Radii | None) -> ProductCone:
    """Cone of one contact: the gap and friction."""
    return exchange_cone(radii)


def prepare(y: Float[Array, "arity 6"], c: Contact) -> Located:
    """Solve the collision program at the next pose."""
    a, b = (side.piece for side in both_kinematics(y, c))
    return locate(a, b, c.length, c.nested.relaxation, COLLISION_ITERATIONS, c.nested.warm)


def touch(
    y: Float[Array, "arity 6"], x: Float[Array, "1"], z: Float[Array, " dim"], c: Contact
) -> Touch:
    """Geometry from the collision program at the next pose, impulses from the duals; alpha is NaN
    where that program was not solved."""
    located = prepare(y, c)
    found = _touch(both_kinematics(y, c), x, z, (c, located))
    return found._replace(alpha=jnp.where(located.converged, found.alpha, jnp.nan))


def _touch(
    ends: tuple[Kinematics, Kinematics],
    x: Float[Array, "1"],
    z: Float[Array, " dim"],
    prepared: tuple[Contact, Located],
) -> Touch:
    c, located = prepared
    a, b = (side.piece for side in ends)
    found = optimum(a, b, c.length, c.nested.relaxation, located)
    alpha = without_excess(found.alpha, c.a.shape, c.b.shape, c.nested.relaxation)
    return Touch(alpha, found.point, found.normal, found.normal, z[0], x[0], z[1:])


def contact_rows(
    y: Float[Array, "arity 6"],
    x: Float[Array, "1"],
    z: Float[Array, " dim"],
    prepared: tuple[Contact, Located],
    easing: Float[Array, ""] | float = 0.0,
) -> CellResidual:
    """Impulses on the bodies, gap and friction; x = (psi), z = (gamma, b0, b)."""
    c, _ = prepared
    ends = both_kinematics(y, c)
    return CellResidual(*exchange(_touch(ends, x, z, prepared), ends, c, easing))


def contact_jacobian(
    y: Array, x: Array, z: Array, prepared: tuple[Contact, Located], easing: Float[Array, ""]
) -> CellJacobian:
    """Derivative of `contact_rows`."""
    split = friction.first_row(len(z), prepared[0].radii)
    return forward_jacobian(partial(contact_rows, easing=easing), split, y, x, z, prepared)


def pose_derivative(
    y: Array, x: Array, z: Array, prepared: tuple[Contact, Located]
) -> tuple[Array, Array, Array]:
    """Derivative of (nodes, local, slack) by the poses of the bodies before the step."""
    c, located = prepared

    def moved(change: Float[Array, "arity 6"]) -> tuple[Array, Array, Array]:
        rows = contact_rows(y, x, z, (posed(c, change), located))
        return rows.nodes.ravel(), rows.local, rows.slack

    blocks = jax.jacfwd(moved)(jnp.zeros_like(y))
    return tuple(block.reshape(len(block), -1) for block in blocks)


def start_contact(
    c: Contact, relaxation: float | Array, warm_start: bool | Array
) -> tuple[Contact, CellVariables]:
    """The start at the current pose: the gap there, or `START_GAP`. No solution follows it, so it
    has no derivatives."""
    rho = jnp.asarray(relaxation, c.relaxation.dtype)
    first = jnp.where(warm_start, jnp.maximum(rho, WARM_RELAXATION), rho)
    program = jax.lax.stop_gradient((current(c.a), current(c.b), c.length, first))
    found = solve_collision(*program, COLLISION_ITERATIONS)
    slip, load = friction.start(c.friction, c.radii)
    gap = jnp.maximum(found.alpha - 1, START_GAP)[None]
    dual = jnp.concatenate([jnp.ones_like(gap), load])
    variables = CellVariables(c.sliding * slip[:1], dual, jnp.concatenate([gap, slip]))
    return c._replace(nested=Nested(rho, Warm(found.end, jnp.asarray(warm_start)))), variables
