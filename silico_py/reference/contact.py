"""The conditions of one contact: collision, gap and Coulomb friction, in numpy and cvxpy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from silico_py.reference.certificate import Placed, bound, sensitivity
from silico_py.reference.collision import gauge_placed, solve_pair
from silico_py.reference.geometry import inner_radius
from silico_py.reference.report import Condition, at_most
from silico_py.reference.sets import degree

# Error of a conic solver's optimum, in its own size where that exceeds 1.
CONIC_ERROR = 1e-8


class Contact(NamedTuple):
    """A contact of a step, as reported, with both shapes at their next poses.

    Attributes:
        name: for the report.
        a, b: the two shapes.
        alpha, point, normal: as in `ContactInfo`.
        impulse: on a, force times time step over the unit of impulse.
        slip: velocity of a relative to b at the point, world, over the unit of slip.
        torque: of friction that resists turns, on a, world; as impulse [m].
        spin: of a relative to b, world, over the unit of slip [1/m].
        friction: Coulomb coefficient.
        radii: of friction that resists turns, about the normal and the tangents [m].
        unit: of impulse [kg m/s].
        length: unit of length [m].
    """

    name: str
    a: Placed
    b: Placed
    alpha: float
    point: np.ndarray
    normal: np.ndarray
    impulse: np.ndarray
    slip: np.ndarray
    torque: np.ndarray
    spin: np.ndarray
    friction: float
    radii: tuple[float, float]
    unit: float
    length: float

    @property
    def degree(self) -> int:
        """Number of cones of the two sets: each adds rho to the relaxed alpha."""
        return degree(self.a.shape) + degree(self.b.shape)

    @property
    def effort(self) -> np.ndarray:
        """What friction does: its impulse, and its angular impulse at the radii (6,)."""
        _, tangential = self._about(self.impulse)
        parts = zip(self.radii, self._about(self.torque), strict=True)
        turning = [v / r for r, v in parts if r > 0]
        return np.concatenate([tangential, np.sum([np.zeros(3), *turning], axis=0)])

    @property
    def movement(self) -> np.ndarray:
        """What friction counters: slip, and spin at the radii (6,)."""
        _, slip = self._about(self.slip)
        (torsional, rolling), (along, across) = self.radii, self._about(self.spin)
        return np.concatenate([slip, torsional * along + rolling * across])

    def _about(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parts of a vector along the normal and across it."""
        along = self.normal * (self.normal @ vector)
        return along, vector - along

    @property
    def gamma(self) -> float:
        """Normal impulse over |N|, with N = d alpha / d x_a in units of 1 / length."""
        size = sensitivity(self.a, self.b, self.normal) * self.length
        return float(self.impulse @ self.normal) / size


def collision_conditions(c: Contact, rho: float) -> dict[str, Condition]:
    """The contact point lies in both scaled shapes, and alpha is relaxed but minimal.

    At relaxation rho the duality gap is rho for each cone; one more is granted for the
    residuals, which grow with alpha. Part of the gap is taken off the reported alpha, so the
    point may lie outside by as much, and alpha below the minimum by what was not sure of it.
    """
    tolerance = rho / 10
    exact = solve_pair(c.a, c.b).alpha
    scale = max(1.0, c.alpha)
    room, blur = (c.degree + 1) * rho * scale, CONIC_ERROR * scale
    slender = max(_slenderness(side) for side in (c.a, c.b))
    unsure = sum(side.shape.usual_excess - side.shape.least_excess for side in (c.a, c.b))
    low = -(tolerance * slender + unsure * rho) * scale - blur
    excess = max(_excess(side, c.point, c.alpha) for side in (c.a, c.b))
    proved = bound(c.a, c.b, c.normal)
    return {
        "point": at_most(excess, room + tolerance * slender + CONIC_ERROR, c.name),
        "exact": Condition(c.alpha - exact, low, room + blur, c.name),
        "certificate": Condition(c.alpha - proved, low, room, c.name),
        "normal": at_most(_normal_error(c), tolerance + CONIC_ERROR, c.name),
    }


def force_conditions(c: Contact, rho: float) -> dict[str, Condition]:
    """Signorini's conditions and Coulomb's law, relaxed by rho.

    The friction pair ends at complementarity rho, which bounds the dissipation that is missing.
    """
    tolerance = rho / 10
    # What the stationarity of the contact point leaves open in the reported impulse.
    blur = 2 * tolerance * (1 + abs(c.gamma))
    normal_impulse, effort, movement = float(c.impulse @ c.normal), c.effort, c.movement
    size, speed = float(np.linalg.norm(effort)), float(np.linalg.norm(movement))
    limit = c.friction * normal_impulse
    missing = float(limit * speed + effort @ movement)
    turned = np.outer(effort, movement)
    across = float(np.linalg.norm(turned - turned.T)) / math.sqrt(2)
    work = blur * (1 + speed + size)
    product, slack = (c.alpha - 1) * c.gamma, tolerance * abs(c.gamma)
    return {
        "gap": Condition(product, -slack - tolerance, 2 * rho + slack, c.name),
        "normal_force": Condition(normal_impulse, -blur, math.inf, c.name),
        "friction_cone": at_most(size - limit, blur, c.name),
        "dissipation": Condition(missing, -work, 2 * rho + work, c.name),
        "direction": at_most(across, work, c.name),
    }


def _normal_error(c: Contact) -> float:
    """Error of the length, or from the only direction there is against a half-space."""
    if not c.b.shape.scaled:
        return float(np.linalg.norm(c.normal - c.b.outward))
    return abs(float(np.linalg.norm(c.normal)) - 1)


def _excess(side: Placed, point: np.ndarray, alpha: float) -> float:
    """Scaling beyond alpha that the point asks for; its height above a half-space [m]."""
    if not side.shape.scaled:
        return float(side.outward @ (point - side.center))
    return gauge_placed(side, point) - alpha


def _slenderness(side: Placed) -> float:
    """Length of the shape over the radius of a ball about the centre that it holds."""
    return float(side.shape.characteristic_length) / inner_radius(side.shape)
