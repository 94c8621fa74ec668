"""Which body of a compiled model moves with which, and what its geoms are called."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.models.compiling import Compiled
from silico_py.models.optional import mujoco

WORLD = 0


class Pose(NamedTuple):
    """Position (3,) [m] and rotation."""

    position: np.ndarray
    rotation: Rotation

    def inside(self, frame: Pose) -> Pose:
        """This pose as seen from `frame`."""
        back = frame.rotation.inv()
        return Pose(back.apply(self.position - frame.position), back * self.rotation)

    def place(self, inner: Pose) -> Pose:
        """A pose given in this frame, where this frame is given."""
        position = self.position + self.rotation.apply(inner.position)
        return Pose(position, self.rotation * inner.rotation)

    @property
    def quaternion(self) -> np.ndarray:
        """Unit quaternion (w, x, y, z)."""
        return self.rotation.as_quat(scalar_first=True)


def may_touch(model: Any) -> np.ndarray:
    """(ngeom,) whether a geom touches anything, by its contact bits or an explicit pair."""
    touches = (model.geom_contype | model.geom_conaffinity) != 0
    touches[np.concatenate([model.pair_geom1, model.pair_geom2])] = True
    return touches


class Layout(NamedTuple):
    """Every body and geom of a model belongs to a free body, or to the world (0).

    Attributes:
        roots: ids of the free bodies.
        of_body: (nbody,) root of each body.
        of_geom: (ngeom,) root of each geom.
    """

    roots: tuple[int, ...]
    of_body: np.ndarray
    of_geom: np.ndarray

    @classmethod
    def of(cls, model: Any) -> Layout:
        """A free joint can only be at the top of the tree, so the root decides."""
        free = [
            int(body)
            for body, kind in zip(model.jnt_bodyid, model.jnt_type, strict=True)
            if kind == mujoco.mjtJoint.mjJNT_FREE
        ]
        of_body = np.where(np.isin(model.body_rootid, free), model.body_rootid, WORLD)
        return cls(tuple(free), of_body, of_body[model.geom_bodyid])


def body_pose(data: Any, body: int) -> Pose:
    """Frame of a body in the world."""
    return Pose(data.xpos[body], Rotation.from_quat(data.xquat[body], scalar_first=True))


def inertial_pose(data: Any, body: int) -> Pose:
    """Centre of mass and principal axes of a body in the world."""
    return Pose(data.xipos[body], Rotation.from_matrix(data.ximat[body].reshape(3, 3)))


def geom_pose(data: Any, geom: int) -> Pose:
    """Frame of a geom in the world."""
    return Pose(data.geom_xpos[geom], Rotation.from_matrix(data.geom_xmat[geom].reshape(3, 3)))


def body_name(model: Any, body: int) -> str:
    """The body's name, or its number, with as many underscores as make it another."""
    written = model.body(body).name
    if written:
        return str(written)
    name = f"body{body}"
    while mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name) >= 0:
        name += "_"
    return name


def geom_label(model: Any, geom: int) -> str:
    """What messages call a geom."""
    name = model.geom(geom).name
    body = body_name(model, model.geom_bodyid[geom])
    return repr(name) if name else f"#{geom} of body {body!r}"


def lines(compiled: Compiled, elements: str) -> dict[int, str]:
    """`line n` for each id of `spec.<elements>`, as far as MuJoCo remembers it."""
    written = {element.id: element.info for element in getattr(compiled.spec, elements)}
    return {key: info for key, info in written.items() if info and info != "line 0"}
