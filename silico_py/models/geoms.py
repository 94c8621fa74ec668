"""From a geom of a compiled model to primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from silico_py.models.errors import Element
from silico_py.models.hull import Hull, pieces
from silico_py.models.layout import Pose, geom_label, geom_pose
from silico_py.models.optional import mujoco
from silico_py.primitives import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, Shape, Sphere

Placed = tuple[Shape, np.ndarray, np.ndarray]

# MuJoCo gives half lengths.
FROM_SIZE: dict[str, Callable[[np.ndarray], Shape]] = {
    "PLANE": lambda size: HalfSpace(normal=(0.0, 0.0, 1.0), offset=0.0),
    "SPHERE": lambda size: Sphere(radius=size[0]),
    "CAPSULE": lambda size: Capsule(radius=size[0], length=2 * size[1]),
    "CYLINDER": lambda size: Cylinder(radius=size[0], length=2 * size[1]),
    "ELLIPSOID": lambda size: Ellipsoid(radii=size),
    "BOX": lambda size: Box(half_extents=size),
}


class Meshes(NamedTuple):
    """How mesh geoms become polytopes.

    Attributes:
        decompose: into several convex pieces instead of one hull.
        max_vertices: of each hull; None is exact.
        cut: filled with the hulls that were not exact.
    """

    decompose: bool
    max_vertices: int | None
    cut: list[Element]


def placed(model: Any, data: Any, geom: int, frame: Pose, meshes: Meshes) -> list[Placed]:
    """The primitives of one geom, (shape, position, quaternion) in `frame`."""
    pose = geom_pose(data, geom).inside(frame)
    return [(shape, pose.position, pose.quaternion) for shape in _shapes(model, geom, meshes)]


def _shapes(model: Any, geom: int, meshes: Meshes) -> Iterator[Shape]:
    kind = mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_")
    if kind in FROM_SIZE:
        yield FROM_SIZE[kind](model.geom_size[geom])
        return
    for found in _hulls(model, geom, meshes):
        if found.remark:
            meshes.cut.append(Element("hull", "geom", geom_label(model, geom), found.remark))
        yield found.polytope


def _hulls(model: Any, geom: int, meshes: Meshes) -> list[Hull]:
    mesh = model.mesh(model.geom_dataid[geom])
    first, count = int(mesh.vertadr[0]), int(mesh.vertnum[0])
    vertices = model.mesh_vert[first : first + count]
    if meshes.decompose:
        face, faces = int(mesh.faceadr[0]), int(mesh.facenum[0])
        triangles = model.mesh_face[face : face + faces]
    else:
        triangles = np.empty((0, 3), int)
        vertices = vertices[_hull_vertices(model, mesh)]
    try:
        return pieces(vertices, triangles, meshes.decompose, meshes.max_vertices)
    except ValueError as error:
        raise ValueError(f"mesh {mesh.name!r}: {error}") from error


def _hull_vertices(model: Any, mesh: Any) -> np.ndarray | slice:
    """Vertices of MuJoCo's own hull, which heeds the file's `maxhullvert`.

    `mesh_graph` holds, from `graphadr` on: vertex count n, face count, n addresses, n indices.
    """
    start = int(mesh.graphadr[0])
    if start < 0:
        return slice(None)
    count = int(model.mesh_graph[start])
    return model.mesh_graph[start + 2 + count : start + 2 + 2 * count]
