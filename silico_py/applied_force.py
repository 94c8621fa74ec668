"""Forces at points of bodies, as controls."""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py import rotation
from silico_py.compilation import jitted
from silico_py.primitives._checks import concrete
from silico_py.scene import Scene, State, body_index, check_state
from silico_py.validation import vector

FRAMES = ("world", "body")


def force_at(
    scene: Scene,
    state: State,
    body: str,
    point: ArrayLike,
    force: ArrayLike,
    torque: ArrayLike = (0.0, 0.0, 0.0),
    frame: Literal["world", "body"] = "world",
) -> Float[Array, "n 6"]:
    """The control of `step` by which a force acts at a point of a body.

    Its arm is that before the step. Of several forces add the controls.

    Args:
        scene: the scene.
        state: before the step.
        body: name of the body.
        point: (3,) where the force acts, in the body frame [m].
        force: (3,) [N].
        torque: (3,) [N m] that acts, too.
        frame: whose axes force and torque are along: `"world"`, or `"body"` for those of the body.

    Raises:
        ValueError: for a state that does not fit the scene, a name that is none of its bodies, one
            with stiffness, whose control is a displacement, arrays of other shapes or not finite,
            or another frame.
    """
    check_state(scene, state)
    index = body_index(scene, "body", body)
    stiffness = concrete(scene.bodies[index].stiffness)
    if stiffness is not None and np.any(stiffness > 0):
        raise ValueError(f"body: {body!r} has stiffness, so that its control is a displacement")
    if frame not in FRAMES:
        raise ValueError(f"frame: expected one of {FRAMES}, got {frame!r}")
    given = {"point": point, "force": force, "torque": torque}
    rows = [vector(name, value, 3) for name, value in given.items()]
    return _control(scene, state, *rows, index, frame)


@partial(jitted, static_argnames=("index", "frame"))
def _control(
    scene: Scene, state: State, point: Array, force: Array, torque: Array, index: int, frame: str
) -> Float[Array, "n 6"]:
    turn = rotation.matrix(rotation.normalize(state.orientation[index]))
    if frame == "body":
        force, torque = turn @ force, turn @ torque
    arm = turn @ (point - scene.bodies[index].center_of_mass)
    wrench = jnp.concatenate([force, torque + rotation.cross(arm, force)])
    nothing = jnp.zeros((len(scene.bodies), 6), state.position.dtype)
    return nothing.at[index].set(wrench.astype(nothing.dtype))
