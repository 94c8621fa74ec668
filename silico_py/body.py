"""A rigid body: shapes that move together, with mass and inertia."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from silico_py.primitives import (
    Bundle,
    ConvexShape,
    Shape,
    assign,
    pytree,
    static,
)
from silico_py.primitives._checks import concrete, several
from silico_py.primitives.bundle import Placement
from silico_py.validation import flag, not_negative, number, vector

FLAT = 1e-4  # by which the moment about the normal of a flat body may exceed the sum of the others


@pytree
class Body:
    """A rigid body made of one or more convex shapes.

    The body frame is the frame the shapes are placed in. State positions refer to its
    origin; the dynamics use the centre of mass, wherever that is. `dataclasses.replace` changes a
    body: with another mass or other shapes, inertia and centre of mass stay, unless they are given
    too, or None.

    Args:
        name: used in messages and in the scene's `exclude` list.
        shapes: a primitive, or several, each a primitive or (primitive, position (3,) [m],
            orientation (4,) wxyz or `Rotation`), or without the orientation. The attribute is a
            `Bundle` of them.
        mass: [kg]; positive.
        inertia: (3, 3) about the centre of mass, in the body frame [kg m^2]; from the shapes
            at uniform density unless given.
        center_of_mass: (3,) in the body frame [m]; from the shapes unless given.
        stiffness: (6,) of springs to a commanded displacement, world [N/m, N m/rad]. Where it
            is positive, the control of `step` is that displacement instead of a force, and
            gravity is compensated. It is one from the pose before the step, so a command of zero
            holds no pose: under a load F the body yields at F / (stiffness h). A direction of
            1e9 or more goes where it is told.
        quasi_dynamic: start every step from rest, as planners of manipulation assume.

    Raises:
        ValueError: for a mass that is not positive, an inertia that is not symmetric positive
            definite or has a moment above the sum of the others, a negative stiffness, no shapes,
            or a half-space (which belongs in the environment).
    """

    shapes: Bundle
    mass: Float[Array, ""]
    inertia: Float[Array, "3 3"]
    center_of_mass: Float[Array, "3"]
    stiffness: Float[Array, "6"]
    name: str = static()
    quasi_dynamic: bool = static()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(
        self,
        name: str,
        shapes: Shape | Iterable[Placement],
        mass: ArrayLike,
        inertia: ArrayLike | None = None,
        center_of_mass: ArrayLike | None = None,
        stiffness: ArrayLike | None = None,
        quasi_dynamic: bool = False,
    ) -> None:
        if not isinstance(name, str):
            raise ValueError(f"name: expected a text, got {name!r}")
        bundle = _bundled(shapes)
        total = number("mass", mass, positive=True)
        if inertia is None or center_of_mass is None:
            unit = bundle.mass_properties()
        if inertia is None:
            inertia = total * unit.inertia / unit.volume
        if center_of_mass is None:
            center_of_mass = unit.center_of_mass
        assign(
            self,
            shapes=bundle,
            mass=total,
            inertia=_inertia(inertia),
            center_of_mass=vector("center_of_mass", center_of_mass, 3),
            stiffness=_stiffness(stiffness, total.dtype),
            name=name,
            quasi_dynamic=flag("quasi_dynamic", quasi_dynamic),
        )

    @property
    def pieces(self) -> list[tuple[ConvexShape, Array, Array]]:
        """Convex pieces with position and orientation in the body frame."""
        return self.shapes.pieces

    def __repr__(self) -> str:
        return f"Body({self.name!r}, [{', '.join(_kinds(self.shapes))}], mass={self.mass})"


def _kinds(bundle: Bundle) -> Iterator[str]:
    """Names of the convex primitives in it."""
    for shape in bundle.shapes:
        if isinstance(shape, Bundle):
            yield from _kinds(shape)
        else:
            yield type(shape).__name__


def _bundled(shapes: Shape | Iterable[Placement]) -> Bundle:
    if isinstance(shapes, Bundle):
        return shapes
    entries = [shapes] if isinstance(shapes, Shape) else several("shapes", shapes, "shapes")
    if not entries:
        raise ValueError("shapes: a body needs at least one shape")
    try:
        return Bundle(entries)
    except ValueError as error:
        raise ValueError(f"shapes: {error}") from error


def _inertia(value: Any) -> Float[Array, "3 3"]:
    inertia = vector("inertia", value, 3, 3)
    known = concrete(inertia)
    if known is not None:
        rounding = max(1e-9, 100 * float(np.finfo(known.dtype).eps)) * np.abs(known).max()
        if not np.allclose(known, known.T, rtol=0, atol=rounding):
            raise ValueError("inertia: must be symmetric")
        first, second, third = np.linalg.eigvalsh(known)
        if first <= 0:
            raise ValueError("inertia: must be positive definite")
        if third > (1 + FLAT) * (first + second):
            raise ValueError(
                "inertia: belongs to no body, its largest principal moment "
                f"({third:g}) exceeds the sum of the others ({first + second:g})"
            )
    return jnp.asarray(inertia)


def _stiffness(value: Any, dtype: jnp.dtype) -> Float[Array, "6"]:
    if value is None:
        return jnp.zeros(6, dtype)
    return not_negative("stiffness", vector("stiffness", value, 6))
