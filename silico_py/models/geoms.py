"""From a geom of a compiled model to primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.models.hull import pieces
from silico_py.models.layout import Pose
from silico_py.models.optional import mujoco
from silico_py.primitives import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, Shape, Sphere

# MuJoCo gives half lengths.
FROM_SIZE: dict[str, Callable[[np.ndarray], Shape]] = {
    "PLANE": lambda size: HalfSpace((0.0, 0.0, 1.0), 0.0),
    "SPHERE": lambda size: Sphere(size[0]),
    "CAPSULE": lambda size: Capsule(size[0], 2 * size[1]),
    "CYLINDER": lambda size: Cylinder(size[0], 2 * size[1]),
    "ELLIPSOID": lambda size: Ellipsoid(size),
    "BOX": lambda size: Box(size),
}
HERE = Pose(np.zeros(3), Rotation.identity())


class Solid(NamedTuple):
    """A geom, or one convex piece of it.

    Attributes:
        shape: a primitive.
        pose: in the frame of the geom.
        remark: what a coarse hull leaves out, if it does.
    """

    shape: Shape
    pose: Pose
    remark: str = ""


def solids(model: Any, geom: int, decompose: bool, max_vertices: int | None) -> list[Solid]:
    """The primitives of one geom; a mesh is its hull or, with `decompose`, several pieces.

    Raises:
        ValueError: for a mesh that spans no volume.
    """
    kind = mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_")
    if kind in FROM_SIZE:
        return [Solid(FROM_SIZE[kind](model.geom_size[geom]), HERE)]
    mesh = int(model.geom_dataid[geom])
    # MuJoCo turns a mesh into its principal axes; faces and cuts are simpler as in the file.
    moved = Pose(model.mesh_pos[mesh], Rotation.from_quat(model.mesh_quat[mesh], scalar_first=True))
    vertices, faces = _vertices_and_faces(model, mesh, decompose)
    vertices = moved.rotation.apply(vertices) + moved.position
    try:
        hulls = pieces(vertices, faces, decompose, max_vertices)
    except ValueError as error:
        raise ValueError(f"mesh {model.mesh(mesh).name!r}: {error}") from error
    return [Solid(hull.polytope, HERE.inside(moved), hull.remark) for hull in hulls]


def with_split_boxes(solids: Iterable[Solid], counts: Iterable[int]) -> list[Solid]:
    """The primitives, boxes among them as so many equal ones along each axis."""
    found = []
    for solid in solids:
        if not isinstance(solid.shape, Box):
            found.append(solid)
            continue
        for piece, position, _ in solid.shape.split(counts).pieces:
            pose = solid.pose.place(HERE._replace(position=np.array(position, float)))
            found.append(Solid(piece, pose))
    return found


def check_counts(counts: Iterable[int] | None) -> None:
    """Refuse numbers that no box can be split into."""
    try:
        if counts is not None:
            Box((1.0, 1.0, 1.0)).split(counts)
    except ValueError as error:
        raise ValueError(f"split_boxes: {error}") from error


def _vertices_and_faces(model: Any, mesh: int, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """The whole mesh, or only the vertices of MuJoCo's own hull, which heeds `maxhullvert`.

    `mesh_graph` holds, from `graphadr` on: vertex count n, face count, n addresses, n indices.
    """
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    vertices = model.mesh_vert[first : first + count].astype(float)
    first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    faces = model.mesh_face[first : first + count]
    start = int(model.mesh_graphadr[mesh])
    if not whole and start >= 0:
        count = int(model.mesh_graph[start])
        vertices = vertices[model.mesh_graph[start + 2 + count : start + 2 + 2 * count]]
    return vertices, faces
