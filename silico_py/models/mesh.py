"""Mesh files into bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from silico_py.body import Body
from silico_py.models.errors import Element, report
from silico_py.models.hull import MAX_VERTICES, check_limit, pieces
from silico_py.models.optional import trimesh
from silico_py.validation import as_path, flag, number


def load_mesh(
    path: str | Path,
    mass: float,
    *,
    name: str | None = None,
    scale: float = 1.0,
    decompose: bool = False,
    max_hull_vertices: int | None = MAX_VERTICES,
) -> Body:
    """A body from a mesh file (.obj, .stl and what else trimesh reads).

    The mesh collides as its convex hull, or as the pieces of a convex decomposition. Centre
    of mass and inertia are those of the solid that the mesh encloses, at uniform density;
    of its convex pieces where it encloses none, for it has holes or faces of both windings.

    Args:
        path: the file; the body frame is the file's.
        mass: [kg].
        name: of the body; the file's stem unless given.
        scale: of the file's unit [m].
        decompose: cut it into convex pieces (needs the package coacd).
        max_hull_vertices: of each piece; None keeps them whole.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read as a mesh, has a vertex that is not finite or spans no
            volume, for a scale or a mass that is not positive, or arguments of another kind.
        ImportError: without trimesh; install the extra `models`.

    Warns:
        ModelWarning: for a hull that was cut to `max_hull_vertices`, and a mesh that encloses no
            solid.
    """
    flag("decompose", decompose)
    check_limit(max_hull_vertices)
    number("scale", scale, positive=True)
    total = float(number("mass", mass, positive=True))
    path = as_path("path", path)
    name = name or path.stem
    mesh = read_mesh(path)
    mesh.apply_scale(scale)
    try:
        hulls = pieces(mesh.vertices, mesh.faces, decompose, max_hull_vertices)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    remarks = [Element("hull", "mesh", name, hull.remark) for hull in hulls if hull.remark]
    remarks += [] if mesh.is_volume else [Element("open", "mesh", name, _why_open(mesh))]
    report(str(path), remarks)
    shapes = [hull.polytope for hull in hulls]
    if not mesh.is_volume:
        return Body(name, shapes, total)
    inertia = mesh.moment_inertia * (total / mesh.volume)
    return Body(name, shapes, total, inertia, mesh.center_mass)


def _why_open(mesh: Any) -> str:
    return "its faces wind both ways" if mesh.is_watertight else "it has holes"


def read_mesh(path: Path) -> Any:
    """A `trimesh.Trimesh`; several parts become one, and vertices at one place too. Where all faces
    of a closed mesh wind inward they are turned.

    Raises:
        FileNotFoundError, ValueError: as `load_mesh`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such mesh file")
    load = trimesh.load
    try:
        mesh = load(path, force="mesh", process=False)  # which drops what is not finite
    except Exception as error:  # each of its readers has its own
        raise ValueError(f"{path}: trimesh cannot read it: {error}") from error
    if not len(mesh.vertices):
        raise ValueError(f"{path}: holds no triangles")
    if not np.isfinite(mesh.vertices).all():
        raise ValueError(f"{path}: has a vertex that is not finite")
    # Files list a vertex once for each texture coordinate and normal.
    mesh.merge_vertices(merge_tex=True, merge_norm=True)
    if mesh.is_watertight and mesh.is_winding_consistent and mesh.volume < 0:
        mesh.invert()
    return mesh
