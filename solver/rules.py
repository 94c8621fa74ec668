"""Derivatives of functions that are evaluated in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from silico_py.solver.custom_derivative import attached
from silico_py.solver.leaves import replaced


def differentiated_as(function: Callable, evaluated: Callable) -> Callable:
    """The values of `evaluated` with the derivatives of `function`."""

    def rule(_: Any, at: tuple, changes: tuple) -> Any:
        return jvp_of_active(function, at, changes)[1]

    def call(*args: Any) -> Any:
        return attached(evaluated(*jax.lax.stop_gradient(args)), rule, args)

    return call


def jvp_of_active(function: Callable, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp` by those arguments alone whose tangents are not symbolic zeros."""
    leaves, structure = jax.tree.flatten(primals)
    changes = structure.flatten_up_to(tangents)
    flags = [not isinstance(change, SymbolicZero) for change in changes]
    return jvp_of_some(lambda *v: function(*structure.unflatten(v)), leaves, changes, flags)


def jvp_of_some(
    function: Callable, args: Sequence[Any], changes: Sequence[Any], flags: Sequence[bool]
) -> tuple[Any, Any]:
    """`jax.jvp` by the flagged arguments."""

    def of_some(*own: Array) -> Any:
        return function(*replaced(args, flags, own))

    return jax.jvp(of_some, *(tuple(compress(parts, flags)) for parts in (args, changes)))
