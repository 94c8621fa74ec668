"""Energy and momentum of a state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import rotation
from silico_py.compilation import jitted
from silico_py.integrator import Motion, cayley_momentum
from silico_py.one_step import motions_of
from silico_py.scene import Scene, State, check_state
from silico_py.solver.dense import dot, matmul


class Momentum(NamedTuple):
    """Result of `momentum`, of all bodies together.

    Attributes:
        linear: (3,) world [kg m/s].
        angular: (3,) about the origin of the world [kg m^2/s].
    """

    linear: Float[Array, "3"]
    angular: Float[Array, "3"]


def energy(scene: Scene, state: State) -> Float[Array, ""]:
    """Kinetic and potential energy of all bodies [J]; potential is zero at the world's origin.

    A step moves bodies with the velocity at its end: in free fall under g it takes m (g h)^2 / 2
    from this.

    Args:
        scene: the scene.
        state: one of its states; map over a trajectory with `jax.vmap`.

    Raises:
        ValueError: for a state that does not fit the scene.
    """
    check_state(scene, state)
    return _energy(scene, state)


def momentum(scene: Scene, state: State) -> Momentum:
    """Linear and angular momentum of all bodies, as steps of the scene's time step keep them.

    The spin of a body about a principal axis counts J w (1 + (h |w| / 2)^2), which is J w where a
    step turns by little. Weight and contacts with the environment change both momenta.

    Args:
        scene: the scene.
        state: one of its states; map over a trajectory with `jax.vmap`.

    Raises:
        ValueError: for a state that does not fit the scene.
    """
    check_state(scene, state)
    return _momentum(scene, state)


@jitted
def _energy(scene: Scene, state: State) -> Float[Array, ""]:
    m = unforced(scene, state)
    spin = m.angular_velocity
    kinetic = m.mass * dot(m.velocity, m.velocity) + dot(spin, jax.vmap(matmul)(m.inertia, spin))
    return jnp.sum(kinetic / 2 - m.mass * matmul(m.position, scene.gravity))


@jitted
def _momentum(scene: Scene, state: State) -> Momentum:
    m = unforced(scene, state)
    linear = m.mass[:, None] * m.velocity

    def own(w: Array, inertia: Array) -> Array:
        return cayley_momentum(-scene.timestep * w, matmul(inertia, w))

    turning = rotation.rotate(m.orientation, jax.vmap(own)(m.angular_velocity, m.inertia))
    angular = rotation.cross(m.position, linear) + turning
    return Momentum(jnp.sum(linear, axis=0), jnp.sum(angular, axis=0))


def unforced(scene: Scene, state: State) -> Motion:
    """The bodies about their centres of mass, without a control."""
    return motions_of(scene, state, jnp.zeros((len(scene.bodies), 6), state.position.dtype))
