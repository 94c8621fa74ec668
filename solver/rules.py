"""How functions are differentiated that are evaluated in another way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from silico_py.solver.lanes import replaced


def differentiated_as(function: Callable, evaluated: Callable) -> Callable:
    """What `evaluated` says, with the derivatives of `function`."""

    @jax.custom_jvp
    def call(*args: Any) -> Any:
        return evaluated(*args)

    call.defjvp(partial(jvp_of_moving, function), symbolic_zeros=True)
    return call


def jvp_of_moving(function: Callable, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp` by what changes alone; the other tangents are symbolic zeros."""
    leaves, structure = jax.tree.flatten(primals)
    changes = structure.flatten_up_to(tangents)
    flags = [not isinstance(change, SymbolicZero) for change in changes]

    def of_moving(*moving: Array) -> Any:
        return function(*structure.unflatten(replaced(leaves, flags, moving)))

    return jax.jvp(of_moving, *(tuple(compress(parts, flags)) for parts in (leaves, changes)))
