"""Values with a prescribed derivative, which outlives every transformation.

jax drops the rule of a `custom_jvp` where it differentiates a loop in reverse: a second derivative
would then silently be taken through the search that found the value. The rule of a primitive is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from silico_py.solver.leaves import axes_first, of_all, replaced


def attached(value: Any, rule: Callable, at: Any) -> Any:
    """`value` as a function of `at`, with the derivative that `rule` prescribes.

    Args:
        value: a pytree of arrays; how it was found is not differentiated.
        rule: `(value, at, change) -> change of the value`, linear in the change, a pytree like `at`
            with a `SymbolicZero` for each array that does not change. Higher derivatives
            differentiate it by value and `at`. What it returns for arrays that are not
            floating-point is ignored.
        at: what the value depends on, a pytree of arrays.
    """
    (own, whole), (given, whole_given) = jax.tree.flatten(value), jax.tree.flatten(at)

    def numbers(own: list, given: list, changes: list) -> list[Array]:
        parts = whole_given.unflatten(given), whole_given.unflatten(changes)
        change = jax.tree.leaves(rule(whole.unflatten(own), *parts))
        return list(compress(change, map(_is_number, own)))

    return whole.unflatten(_attached.bind(*own, *given, count=len(own), rule=numbers))


def instantiated(change: Any) -> Any:
    """A change that may be a `SymbolicZero`, as an array."""
    if not isinstance(change, SymbolicZero):
        return change
    zeros = np if change.aval.dtype == jax.dtypes.float0 else jnp
    return zeros.zeros(change.aval.shape, change.aval.dtype)


def _is_number(value: Array) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)


# Returns its first `count` arguments; its `rule` takes and returns lists.
_attached = Primitive("attached")
_attached.multiple_results = True


@_attached.def_impl
def _value(*args: Array, count: int, rule: Callable) -> list[Array]:
    return list(args[:count])


@_attached.def_abstract_eval
def _kinds(*args: ShapedArray, count: int, rule: Callable) -> list[ShapedArray]:
    return [kind.update(weak_type=False) for kind in args[:count]]


def _jvp(args: list, changes: list, *, count: int, rule: Callable) -> tuple[list, list]:
    args = _as_arrays(args)
    value = _attached.bind(*args, count=count, rule=rule)
    none = [ad.Zero(jax.typeof(v).to_tangent_aval()) for v in value]
    active = changes[count:]
    if all(isinstance(change, ad.Zero) for change in active):
        return value, none
    symbolic = [SymbolicZero(c.aval) if isinstance(c, ad.Zero) else c for c in active]
    numbers = rule(args[:count], args[count:], symbolic)
    return value, replaced(none, [_is_number(v) for v in value], numbers)


def _batch(args: list, axes: list, *, count: int, rule: Callable) -> tuple[list[Array], list[int]]:
    size, first = axes_first(_as_arrays(args), axes)
    first[:count] = of_all(size, [k is not None for k in axes[:count]], first[:count])
    own = [None if k is None else 0 for k in axes[count:]]

    def of_members(value: list, at: list, changes: list) -> list[Array]:
        flags = [not isinstance(change, SymbolicZero) for change in changes]
        still = [
            SymbolicZero(_of_one(c.aval)) if k == 0 and not flag else c
            for c, k, flag in zip(changes, own, flags, strict=True)
        ]

        def of_member(value: list, at: list, active: list) -> list[Array]:
            return rule(value, at, replaced(still, flags, active))

        each = jax.vmap(of_member, (0, own, list(compress(own, flags))), axis_size=size)
        return each(value, at, list(compress(changes, flags)))

    out = _attached.bind(*first, count=count, rule=of_members)
    return out, [0] * count


def _as_arrays(args: Sequence[Any]) -> list[Any]:
    """Some may be plain numbers, which jax treats as constants of its programs."""
    return [v if isinstance(v, (jax.Array, np.ndarray)) else jnp.asarray(v) for v in args]


def _of_one(kind: ShapedArray) -> ShapedArray:
    return kind.update(shape=kind.shape[1:])


mlir.register_lowering(_attached, mlir.lower_fun(_value, multiple_results=True))
ad.primitive_jvps[_attached] = _jvp
batching.primitive_batchers[_attached] = _batch
