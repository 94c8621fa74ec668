"""Closed triangle meshes, outward oriented. Plain numpy: meshes are for display and checks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.spatial import ConvexHull

from silico_py.primitives._base import Mesh


def revolve(radius: np.ndarray, height: np.ndarray, segments: int) -> Mesh:
    """Turn a profile about z. Heights ascend; the first and last radius are 0 (the poles)."""
    segments = max(int(segments), 3)
    angle = np.arange(segments) * (2 * np.pi / segments)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = [
        np.concatenate([r * circle, np.full((segments, 1), z)], axis=1)
        for r, z in zip(radius[1:-1], height[1:-1], strict=True)
    ]
    vertices = np.concatenate([[[0, 0, height[0]]], *rings, [[0, 0, height[-1]]]])
    here = np.arange(segments)
    there = (here + 1) % segments
    top = len(vertices) - 1
    faces = [np.stack([np.zeros_like(here), 1 + there, 1 + here], axis=1)]
    for ring in range(len(rings) - 1):
        low, high = 1 + ring * segments, 1 + (ring + 1) * segments
        faces.append(np.stack([low + here, low + there, high + there], axis=1))
        faces.append(np.stack([low + here, high + there, high + here], axis=1))
    last = 1 + (len(rings) - 1) * segments
    faces.append(np.stack([last + here, last + there, np.full_like(here, top)], axis=1))
    return vertices, np.concatenate(faces)


def sphere_profile(resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """Half circle of unit radius, from the south pole to the north pole."""
    polar = np.linspace(-np.pi / 2, np.pi / 2, max(resolution // 2, 2) + 1)
    radius = np.cos(polar)
    radius[[0, -1]] = 0
    return radius, np.sin(polar)


def hull_mesh(points: np.ndarray) -> Mesh:
    """Convex hull of a cloud of points."""
    hull = ConvexHull(points)
    used = np.unique(hull.simplices)
    relabel = np.full(len(points), -1)
    relabel[used] = np.arange(len(used))
    vertices, faces = points[used], relabel[hull.simplices]
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    # Qhull leaves the orientation of its simplices open.
    inward = np.sum(np.cross(b - a, c - a) * hull.equations[:, :3], axis=1) < 0
    faces[inward] = faces[inward][:, ::-1]
    return vertices, faces


@lru_cache(maxsize=8)
def icosphere(level: int) -> Mesh:
    """The icosahedron on the unit sphere, each triangle split into 4^level."""
    g = (1 + np.sqrt(5)) / 2
    corners = [(s, t * g, 0) for s in (-1, 1) for t in (-1, 1)]
    points = np.array([np.roll(c, k) for c in corners for k in range(3)]) / np.hypot(1, g)
    vertices, faces = hull_mesh(points)
    for _ in range(level):
        edges = np.sort(faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
        unique, index = np.unique(edges, axis=0, return_inverse=True)
        middle = vertices[unique].sum(axis=1)
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        m = len(vertices) + index.reshape(-1, 3)
        vertices = np.concatenate([vertices, middle])
        faces = np.concatenate(
            [
                np.stack([faces[:, 0], m[:, 0], m[:, 2]], axis=1),
                np.stack([faces[:, 1], m[:, 1], m[:, 0]], axis=1),
                np.stack([faces[:, 2], m[:, 2], m[:, 1]], axis=1),
                m,
            ]
        )
    return vertices, faces
