"""Families of easier steps, which lead to a step that cannot be solved without a guess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silico_py import broad_phase
from silico_py.contact import Contact, Side
from silico_py.integrator import Motion
from silico_py.solver import ProblemData
from silico_py.solver.rows import each


def shorter(data: ProblemData, share: Float[Array, ""]) -> ProblemData:
    """The data of the same step with a share of its duration: the less moves, the less can hit."""
    return _mapped(data, lambda m: m._replace(timestep=share * m.timestep), lambda c: c)


def calmer(data: ProblemData, share: Float[Array, ""]) -> ProblemData:
    """The data of the same step with a share of all velocities, forces and friction, and of the
    size of shapes. Contacts act on bodies by that share as well.

    Bodies that touch hit each other at once, however short a step is, and those that overlap have
    to part. The less friction there is, the fewer folds. Where contact points are far from what the
    start takes them for, impulses would throw the bodies about before the points are found; but
    bodies that rush at each other have to be stopped.
    """

    def calm(m: Motion) -> Motion:
        names = "velocity", "angular_velocity", "force", "torque", "command"
        return m._replace(**{name: share * getattr(m, name) for name in names})

    def lenient(c: Contact) -> Contact:
        return c._replace(
            friction=share * c.friction,
            least_alpha=share * c.least_alpha,
            impulse=jnp.where(data.begins_with_member, 1, share) * c.impulse,
        )

    return _mapped(data, calm, lenient)


def first_share(pairs: list[tuple[Side, Side]]) -> Float[Array, ""] | None:
    """Share of a family's first member: there free motion drives no pair deep into each other."""
    parts = [jnp.min(each(broad_phase.shallow)(*pair)) for pair in pairs]
    return jax.lax.stop_gradient(jnp.min(jnp.stack(parts))) if parts else None


def _mapped(
    data: Any, motion: Callable[[Motion], Motion], contact: Callable[[Contact], Contact]
) -> Any:
    """The data with other motions, those of contacts included, and other contacts."""

    def of(part: Any) -> Any:
        if isinstance(part, Motion):
            return motion(part)
        if isinstance(part, Contact):
            a, b = (_mapped(side, motion, contact) for side in (part.a, part.b))
            return contact(part)._replace(a=a, b=b)
        return part

    return jax.tree.map(of, data, is_leaf=lambda part: isinstance(part, (Motion, Contact)))
