"""Meshes of a scene, ready to be drawn: pieces of bodies, fixtures, planes of half-spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.transform import Rotation

from silico_py.primitives import HalfSpace
from silico_py.scene import Scene

RESOLUTION = 32  # segments around a full circle
CREASE = 35.0  # edges sharper than this are drawn sharp [degrees]


class PieceMesh(NamedTuple):
    """The mesh of one convex piece.

    Attributes:
        body: index of its body, or None for a fixture.
        vertices: (v, 3) about `reference`, axes of the body (of the world for a fixture) [m].
        triangles: (f, 3) indices, outward oriented; vertices are split along sharp edges, so
            that normals averaged over the triangles of a vertex shade it well.
        reference: (3,) what alpha scales the piece about, in the frame of the body (in the
            world for a fixture) [m].
    """

    body: int | None
    vertices: np.ndarray
    triangles: np.ndarray
    reference: np.ndarray


class Plane(NamedTuple):
    """The surface of a half-space.

    Attributes:
        point: (3,) the point of the plane nearest the fixture's origin, world [m].
        normal: (3,) outward unit normal, world.
    """

    point: np.ndarray
    normal: np.ndarray


def body_pieces(scene: Scene) -> Iterator[PieceMesh]:
    """The pieces of every body, body by body."""
    for index, body in enumerate(scene.bodies):
        for placed in body.pieces:
            yield _piece(index, *placed)


def fixtures(scene: Scene) -> Iterator[PieceMesh | Plane]:
    """One piece or plane for each entry of `scene.environment`."""
    for fixture in scene.environment:
        if isinstance(fixture.shape, HalfSpace):
            yield _plane(fixture.shape, fixture.position, fixture.orientation)
        else:
            yield _piece(None, fixture.shape, fixture.position, fixture.orientation)


def split_creases(
    vertices: np.ndarray, triangles: np.ndarray, angle: float = CREASE
) -> tuple[np.ndarray, np.ndarray]:
    """Give triangles that meet at more than `angle` [degrees] vertices of their own.

    Args:
        vertices: (v, 3) of a closed mesh.
        triangles: (f, 3) indices.
        angle: between the normals.

    Returns:
        The same triangles in the same order, on more vertices.
    """
    first, second = _neighbours(triangles)
    normals = _normals(vertices, triangles)
    smooth = np.sum(normals[first] * normals[second], axis=1) > np.cos(np.radians(angle))
    links = (np.ones(smooth.sum()), (first[smooth], second[smooth]))
    count = len(triangles)
    _, patch = connected_components(coo_array(links, shape=(count, count)), directed=False)
    keys = np.stack([triangles, np.broadcast_to(patch[:, None], triangles.shape)], axis=-1)
    corners, index = np.unique(keys.reshape(-1, 2), axis=0, return_inverse=True)
    return vertices[corners[:, 0]], index.reshape(-1, 3)


def _neighbours(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of triangles that share an edge."""
    edges = np.sort(triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    owner = np.repeat(np.arange(len(triangles)), 3)
    order = np.lexsort(edges.T)
    edges, owner = edges[order], owner[order]
    shared = np.all(edges[1:] == edges[:-1], axis=1)
    return owner[:-1][shared], owner[1:][shared]


def _normals(vertices: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)


def _piece(body: int | None, shape: Any, position: Any, orientation: Any) -> PieceMesh:
    vertices, triangles = split_creases(*shape.surface_mesh(RESOLUTION))
    turn = _turn(orientation)
    local = np.array(shape.reference, float)
    reference = turn.apply(local) + np.asarray(position, float)
    return PieceMesh(body, turn.apply(vertices - local), triangles, reference)


def _plane(shape: HalfSpace, position: Any, orientation: Any) -> Plane:
    normal = _turn(orientation).apply(np.array(shape.normal, float))
    point = np.asarray(position, float) + float(shape.offset) * normal
    return Plane(point, normal)


def _turn(orientation: Any) -> Rotation:
    # Copies: scipy refuses the read-only views of jax arrays.
    return Rotation.from_quat(np.array(orientation, float), scalar_first=True)
