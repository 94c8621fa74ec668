"""What every primitive shares: mass properties, and the interface of convex ones."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from silico_py.primitives._checks import concrete
from silico_py.primitives._pytree import pytree
from silico_py.solver.cones import ORTHANT, SECOND_ORDER, ProductCone

Scalar = Float[Array, ""]
Vector3 = Float[Array, "3"]
Matrix3 = Float[Array, "3 3"]
Mesh = tuple[np.ndarray, np.ndarray]

ACTIVE_EXCESS = {ORTHANT: 1.0, SECOND_ORDER: 0.5}  # see `ConvexShape.usual_excess`


class MassProperties(NamedTuple):
    """Mass properties at unit density, in the shape's own frame.

    Attributes:
        volume: [m^3]
        center_of_mass: [m], from the origin of the shape's frame
        inertia: about the centre of mass, axes of the shape's frame [m^5]
    """

    volume: Scalar
    center_of_mass: Vector3
    inertia: Matrix3


OF_A_POINT = "gauge", "interior", "contains", "support"  # functions of one point or direction
Class = TypeVar("Class", bound=type)


def primitive(cls: Class) -> Class:
    """Make `cls` a `pytree` whose functions of a point refuse anything but three numbers."""
    for name in set(OF_A_POINT) & set(vars(cls)):
        setattr(cls, name, _of_a_point(vars(cls)[name]))
    return pytree(cls)


def _of_a_point(method: Callable) -> Callable:
    """The method with its argument as an array of three numbers."""
    arguments = signature(method)
    name = list(arguments.parameters)[1]

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        shape, given = arguments.bind(*args, **named).arguments.values()
        try:
            point = jnp.asarray(given)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: expected three numbers, got {given!r}") from error
        if point.shape != (3,):
            raise ValueError(f"{name}: expected shape (3,), got {point.shape}; map with jax.vmap")
        is_float = jnp.issubdtype(point.dtype, jnp.floating)
        return method(shape, point if is_float else point.astype(shape.dtype))

    return call


def sign(x: Array) -> Array:
    """+1 where x >= 0, else -1: a support point must be one end, never the middle."""
    return jnp.where(x >= 0, jnp.ones_like(x), -jnp.ones_like(x))


def fraction(part: Scalar, rest: Scalar) -> Scalar:
    """part / (part + rest), one half where both are 0."""
    total = part + rest
    return jnp.where(total > 0, part / jnp.where(total > 0, total, 1), 0.5)


class Shape:
    """Any primitive, convex or not."""

    # What the decorator makes, for type checkers: `dataclasses.replace` takes shapes.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def dtype(self) -> np.dtype:
        """Float dtype of the parameters."""
        return jax.tree.leaves(self)[0].dtype

    def __repr__(self) -> str:
        parts = [
            f"{f.name}={described(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if not f.metadata.get("static")
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def described(value: Any) -> str:
    """The value in a `repr`: short arrays without their type, longer ones by type and shape."""
    if isinstance(value, tuple):
        return "(" + ", ".join(described(item) for item in value) + ")"
    if isinstance(value, Shape) or not hasattr(value, "dtype"):
        return repr(value)
    known = concrete(value)
    if known is not None and known.size <= 4:
        return np.array2string(known, precision=6, separator=", ")
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


class ConvexShape(Shape, ABC):
    """A convex set {x : slack(x, 1, eps) in cone for some eps}, in its own frame.

    The set scaled by alpha about `reference` is {x : slack(x, alpha, eps) in cone}. `slack`
    is affine in (x, alpha, eps) jointly, so jax.jacfwd of it is exact and constant.

    Every convex primitive defines what is abstract here, and `n_aux` and `interior` where it has
    auxiliaries; the rest is shared.
    """

    scaled: ClassVar[bool] = True  # whether alpha changes the set

    @property
    def n_aux(self) -> int:
        """Number of auxiliaries eps."""
        return 0

    @property
    @abstractmethod
    def cone(self) -> ProductCone:
        """The cone of the slack."""

    @property
    def least_excess(self) -> float:
        """What this shape adds at least to the relaxed scaling, in relaxations.

        At complementarity s o z = rho e the scaling exceeds the smallest one by s.z*, with z*
        the exact dual: rho for an active row of an orthant, rho / 2 for an active second-order
        cone, whose s and z* lie on opposite rays. At least one of them is active.
        """
        return min(ACTIVE_EXCESS[kind] for kind, _ in self.cone.blocks)

    @property
    def usual_excess(self) -> float:
        """What is subtracted from the relaxed scaling on account of it, in relaxations: the least,
        or more where more is usual."""
        return self.least_excess

    @abstractmethod
    def slack(self, x: Vector3, alpha: Scalar, eps: Float[Array, " n_aux"]) -> Float[Array, " dim"]:
        """Lies in the cone, for some eps, where x lies in the shape scaled by alpha [m]."""

    @abstractmethod
    def gauge(self, x: Vector3) -> Scalar:
        """The least alpha for which the scaled shape holds x."""

    @abstractmethod
    def support(self, direction: Vector3) -> Vector3:
        """Furthest point along `direction` [m]."""

    @abstractmethod
    def mass_properties(self) -> MassProperties:
        """Volume, centre of mass and inertia at unit density."""

    @abstractmethod
    def surface_mesh(self, resolution: int = 32) -> Mesh:
        """Closed mesh of the surface: vertices (n, 3) [m], outward triangles (m, 3)."""

    @property
    @abstractmethod
    def bounding_radius(self) -> Scalar:
        """Radius of a ball about the frame's origin that holds the shape [m]."""

    @property
    def reference(self) -> Vector3:
        """Centre of the scaling by alpha, in the shape's frame [m]."""
        return jnp.zeros(3, self.dtype)

    @property
    def characteristic_length(self) -> Scalar:
        """Radius of a ball about `reference` that holds the shape [m]."""
        return self.bounding_radius

    def interior(self, x: Vector3) -> tuple[Scalar, Float[Array, " n_aux"]]:
        """`(bound, eps)`: slack(x, alpha, eps) is strictly in the cone for all alpha > bound."""
        return self.gauge(x), jnp.zeros(0, self.dtype)

    def contains(self, x: Vector3) -> Array:
        """Whether x lies in the closed shape."""
        return self.gauge(x) <= 1
