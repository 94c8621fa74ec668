"""Bundle: a union of convex primitives, in general not convex."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.primitives._base import (
    ConvexShape,
    MassProperties,
    Mesh,
    Scalar,
    Shape,
    Vector3,
    primitive,
)
from silico_py.primitives._checks import (
    Orientation,
    as_quaternions,
    given,
    parameter,
    several,
    unit,
)
from silico_py.primitives._pytree import assign
from silico_py.primitives._rotation import IDENTITY, Quaternion, multiply, orientation_matrix
from silico_py.solver.compilation import once
from silico_py.solver.dense import safe_norm

ORIGIN = (0.0, 0.0, 0.0)
Placement = Shape | tuple[Shape, Any] | tuple[Shape, Any, Any]  # with position and orientation


class Placed(NamedTuple):
    """A shape, and the pose of its frame in that of the bundle."""

    shape: Shape
    position: Vector3
    orientation: Quaternion


@primitive
class Bundle(Shape):
    """The union of shapes, each placed in the bundle's frame; bundles may be nested.

    Contact sees each convex piece on its own. The frame's origin is where the placements put
    it, not the centre of mass.

    Args:
        pieces: sequence of (shape, position (3,) [m], orientation (4,) unit quaternion
            (w, x, y, z) or `Rotation`), from the piece's frame to the bundle's; a shape alone, or
            with a position, stands at the origin, or unturned
        shapes, positions, orientations: the same side by side, instead of pieces

    Raises:
        ValueError: if the bundle is empty, a shape is not a bounded primitive, dtypes differ,
            a position is not finite or an orientation is not of norm 1 within 1e-6.

    Source: single-level contact simulation, VI-A (convex bundles).
    """

    shapes: tuple[Shape, ...]
    positions: Float[Array, "n 3"]
    orientations: Float[Array, "n 4"]

    def __init__(
        self,
        pieces: Iterable[Placement] | None = None,
        *,
        shapes: Iterable[Shape] | None = None,
        positions: ArrayLike | None = None,
        orientations: Orientation | None = None,
    ) -> None:
        turns = as_quaternions(orientations, rows=False)  # jax's are tuples of one array
        fields = {"shapes": shapes, "positions": positions, "orientations": turns}
        if pieces is None:
            pieces = _side_by_side(**fields)
        elif any(field is not None for field in fields.values()):
            raise ValueError(f"pieces: give either them or {', '.join(fields)}, not both")
        pieces = several("pieces", pieces, "(shape, position, orientation)")
        if not pieces:
            raise ValueError("pieces: a bundle needs at least one piece")
        placed = [_checked(f"pieces[{k}]", piece) for k, piece in enumerate(pieces)]
        dtype = placed[0].shape.dtype
        for k, (shape, *_) in enumerate(placed):
            if shape.dtype != dtype:
                raise ValueError(
                    f"pieces[{k}]: has dtype {shape.dtype}, the first has {dtype}; "
                    "build all with one float dtype"
                )
        assign(
            self,
            shapes=tuple(piece.shape for piece in placed),
            positions=jnp.stack([piece.position for piece in placed]),
            orientations=jnp.stack([piece.orientation for piece in placed]),
        )

    @property
    def pieces(self) -> list[tuple[ConvexShape, Vector3, Quaternion]]:
        """The convex pieces with their position and orientation in this frame, nesting undone."""
        flat: list[tuple[ConvexShape, Vector3, Quaternion]] = []
        for k, shape in enumerate(self.shapes):
            position, orientation = self.positions[k], self.orientations[k]
            if isinstance(shape, ConvexShape):
                flat.append((shape, position, orientation))
                continue
            assert isinstance(shape, Bundle)
            rotation = orientation_matrix(orientation)
            for inner, inner_position, inner_orientation in shape.pieces:
                flat.append(
                    (
                        inner,
                        position + rotation @ inner_position,
                        multiply(orientation, inner_orientation),
                    )
                )
        return flat

    def contains(self, x: Vector3) -> Array:
        """Whether any piece contains x."""
        inside = [
            shape.contains(orientation_matrix(orientation).T @ (x - position))
            for shape, position, orientation in self.pieces
        ]
        return jnp.any(jnp.stack(inside))

    def support(self, direction: Vector3) -> Vector3:
        """Furthest point of all pieces along `direction`."""
        points = []
        for shape, position, orientation in self.pieces:
            rotation = orientation_matrix(orientation)
            points.append(position + rotation @ shape.support(rotation.T @ direction))
        furthest = jnp.stack(points)
        return furthest[jnp.argmax(furthest @ direction)]

    @once
    def mass_properties(self) -> MassProperties:
        """Sum of the pieces by the parallel-axis theorem, all of one density.

        Where pieces overlap, the overlap counts once for each of them. As exact as the
        pieces are.
        """
        volumes, centers, inertias = [], [], []
        for shape, position, orientation in self.pieces:
            rotation = orientation_matrix(orientation)
            piece = shape.mass_properties()
            volumes.append(piece.volume)
            centers.append(position + rotation @ piece.center_of_mass)
            inertias.append(rotation @ piece.inertia @ rotation.T)
        volume, center = jnp.stack(volumes), jnp.stack(centers)
        total = jnp.sum(volume)
        mean = volume @ center / total
        offset = center - mean[None, :]
        spread = jnp.einsum("k,ki,kj->ij", volume, offset, offset)
        inertia = jnp.sum(jnp.stack(inertias), axis=0)
        inertia = inertia + jnp.trace(spread) * jnp.eye(3, dtype=self.dtype) - spread
        return MassProperties(total, mean, (inertia + inertia.T) / 2)  # rounding is not symmetric

    def surface_mesh(self, resolution: int | None = None) -> Mesh:
        """The closed meshes of the pieces, side by side (not cut where they overlap)."""
        options = {} if resolution is None else {"resolution": resolution}
        vertices, faces, count = [], [], 0
        for shape, position, orientation in self.pieces:
            points, triangles = shape.surface_mesh(**options)
            rotation = np.asarray(orientation_matrix(orientation), float)
            vertices.append(points @ rotation.T + np.asarray(position, float))
            faces.append(triangles + count)
            count += len(points)
        return np.concatenate(vertices), np.concatenate(faces)

    @property
    def bounding_radius(self) -> Scalar:
        """Radius of a ball about the origin that holds every piece (not the smallest) [m]."""
        radii = [safe_norm(position) + shape.bounding_radius for shape, position, _ in self.pieces]
        return jnp.max(jnp.stack(radii))

    @property
    def characteristic_length(self) -> Scalar:
        """The bounding radius [m]."""
        return self.bounding_radius


def placement(name: str, piece: Placement) -> tuple[Shape, Any, Any]:
    """Shape, position and orientation of a piece, unturned at the origin unless it says more."""
    entries: Any = (piece,) if isinstance(piece, Shape) else piece
    known = isinstance(entries, (tuple, list)) and 1 <= len(entries) <= 3
    if not (known and isinstance(entries[0], Shape)):
        raise ValueError(
            f"{name}: expected a shape or (shape, position, orientation), got {given(piece)}"
        )
    shape, *pose = entries
    usual: list[Any] = [ORIGIN, IDENTITY]
    position, orientation = pose + usual[len(pose) :]
    return shape, position, orientation


def _checked(name: str, piece: Any) -> Placed:
    """One of the pieces, called `name` in messages."""
    shape, position, orientation = placement(name, piece)
    if isinstance(shape, ConvexShape) and not shape.scaled:
        kind = type(shape).__name__
        raise ValueError(
            f"{name}: expected a bounded primitive, got {kind}, which can only be fixed"
        )
    return Placed(
        shape,
        parameter(f"{name} position", position, (3,), shape.dtype),
        unit(f"{name} orientation", as_quaternions(orientation, rows=False), (4,), shape.dtype),
    )


def _side_by_side(**fields: Any) -> Iterable[tuple[Shape, ArrayLike, Orientation]]:
    """Pieces of shapes, positions and orientations."""
    if any(field is None for field in fields.values()):
        raise ValueError("pieces: give them (or shapes, positions and orientations)")
    columns = [several(name, field, "one for each piece") for name, field in fields.items()]
    if len({len(column) for column in columns}) > 1:
        raise ValueError("shapes, positions, orientations: must be equally many")
    return list(zip(*columns, strict=True))
