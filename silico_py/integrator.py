"""First-order variational integrator on position and orientation (Cayley map).

Source: Marsden and West, Discrete mechanics and variational integrators, 2001; single-level contact
simulation, III-B, with the Cayley map for turns: it has no limit on their size.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.solver.dense import dot, matmul, safe_norm

# Bodies that move faster before the step, in units of speed, are measured in a larger unit.
FAST = 2.0


class Motion(NamedTuple):
    """What the integrator needs of one body for one step (centre of mass, SI units).

    Attributes:
        position: centre of mass in the world [m].
        orientation: unit quaternion wxyz.
        velocity: of the centre of mass, world [m/s].
        angular_velocity: body frame [rad/s].
        force: applied force, weight included, world [N].
        torque: applied torque about the centre of mass, world [N m].
        stiffness: of the springs to the commanded displacement, world [N/m, N m/rad].
        command: commanded displacement in this step, world [m, rad].
        memory: 1, or 0 for a quasi-dynamic body, which starts every step from rest.
        mass: [kg].
        inertia: about the centre of mass, body frame [kg m^2].
        timestep: h [s].
    """

    position: Float[Array, "3"]
    orientation: Float[Array, "4"]
    velocity: Float[Array, "3"]
    angular_velocity: Float[Array, "3"]
    force: Float[Array, "3"]
    torque: Float[Array, "3"]
    stiffness: Float[Array, "6"]
    command: Float[Array, "6"]
    memory: Float[Array, ""]
    mass: Float[Array, ""]
    inertia: Float[Array, "3 3"]
    timestep: Float[Array, ""]


def cayley_momentum(t: Float[Array, "3"], momentum: Float[Array, "3"]) -> Float[Array, "3"]:
    """D(t)^T momentum with D(t) = I - [t]x / 2 + t t^T / 4."""
    return momentum + rotation.cross(t, momentum) / 2 + t * dot(t, momentum) / 4


def dynamics(y: Float[Array, "6"], motion: Motion) -> Float[Array, "6"]:
    """Momentum balance without contact impulses; y = (v+, w+), rows in N s and N m s."""
    m = motion
    v, w, h = y[:3], y[3:], m.timestep
    turn = rotation.rotate(m.orientation, w)
    spring = m.stiffness * (m.command - h * jnp.concatenate([v, turn]))
    linear = m.mass * (v - m.memory * m.velocity) - h * (m.force + spring[:3])
    after = cayley_momentum(h * w, matmul(m.inertia, w))
    before = cayley_momentum(-h * m.angular_velocity, matmul(m.inertia, m.angular_velocity))
    momentum = rotation.rotate(m.orientation, after - m.memory * before)
    return jnp.concatenate([linear, momentum - h * (m.torque + spring[3:])])


def row_scale(motion: Motion, unit: Float[Array, ""]) -> Float[Array, "6"]:
    """Change of the rows of `dynamics` with a velocity of the unit of speed, or of the speed of the
    body before the step over `FAST` if that is more."""
    m = motion
    gyration = jnp.sqrt(jnp.trace(m.inertia) / 3 / m.mass)
    arm = jnp.concatenate([jnp.ones(3, gyration.dtype), jnp.broadcast_to(gyration, (3,))])
    # The points of a ball of about its size are at twice the radius of gyration.
    speed = safe_norm(m.velocity) + 2 * gyration * safe_norm(m.angular_velocity)
    speed = jnp.maximum(unit, m.memory * speed / FAST)
    return speed * (m.mass * arm + m.timestep**2 * m.stiffness)


def next_pose(y: Float[Array, "*n 6"], motion: Motion) -> tuple[Array, Array]:
    """Position and orientation after moving with y = (v+, w+) for one step."""
    h = motion.timestep[..., None]
    orientation = rotation.multiply(motion.orientation, rotation.cayley(h * y[..., 3:]))
    return motion.position + h * y[..., :3], orientation
