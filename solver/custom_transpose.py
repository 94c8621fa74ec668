"""Linear functions with a transpose of their own.

jax cannot transpose what runs as one kernel on the CPU, or loops until it is accurate. None of its
own functions that accept a transpose can be both batched and differentiated by what else the linear
function depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from silico_py.solver.leaves import axes_first, of_all
from silico_py.solver.rules import jvp_of_some


def linear(forward: Callable, backward: Callable, fixed: Any, v: Any, like: Any) -> Any:
    """`forward(fixed, v)`, linear in v, which jax transposes into `backward`.

    Args:
        forward: `(fixed, v) -> result`.
        backward: `(fixed, weights) -> sums`, its transpose: weights like the result, sums like v.
        fixed: what both depend on; derivatives by it are those of the functions as written.
        v: the argument, a pytree of floating-point arrays.
        like: a pytree of arrays with the shapes and dtypes of the result.
    """
    parts = [jax.tree.flatten(tree) for tree in (fixed, v, like)]
    (at, whole), (given, whole_v), (example, whole_result) = parts
    count = len(at)

    def flat(function: Callable, whole_argument: Any) -> Callable:
        def call(*leaves: Array) -> list[Array]:
            own, rest = leaves[:count], leaves[count:]
            return jax.tree.leaves(function(whole.unflatten(own), whole_argument.unflatten(rest)))

        return call

    out = _linear.bind(
        *at,
        *given,
        fixed=count,
        function=flat(forward, whole_v),
        transpose=flat(backward, whole_result),
        kinds=tuple(map(_kind, example)),
        kinds_of_argument=tuple(map(_kind, given)),
    )
    return whole_result.unflatten(out)


def _kind(array: Array) -> ShapedArray:
    return ShapedArray(jnp.shape(array), jnp.result_type(array))


# `function(*fixed, *argument)`; with another argument, like its result, `transpose` does.
_linear = Primitive("linear")
_linear.multiple_results = True


@_linear.def_impl
def _evaluated(*args: Array, function: Callable, **_: Any) -> list[Array]:
    return function(*args)


@_linear.def_abstract_eval
def _kinds(*_args: Any, kinds: tuple[ShapedArray, ...], **_: Any) -> tuple[ShapedArray, ...]:
    return kinds


def _jvp(args: list, changes: list, *, fixed: int, function: Callable, **how: Any) -> Any:
    flags = [not isinstance(change, ad.Zero) for change in changes]
    if not any(flags[:fixed]):
        run = partial(_linear.bind, *args[:fixed], fixed=fixed, function=function, **how)
        return run(*args[fixed:]), run(*map(ad.instantiate_zeros, changes[fixed:]))
    return jvp_of_some(function, args, changes, flags)


def _transpose(
    weights: list,
    *args: Any,
    fixed: int,
    function: Callable,
    transpose: Callable,
    kinds: tuple[ShapedArray, ...],
    kinds_of_argument: tuple[ShapedArray, ...],
) -> list[Any]:
    sums = _linear.bind(
        *args[:fixed],
        *map(ad.instantiate_zeros, weights),
        fixed=fixed,
        function=transpose,
        transpose=function,
        kinds=kinds_of_argument,
        kinds_of_argument=kinds,
    )
    return [None] * fixed + sums


def _batch(args: list, axes: list, *, fixed: int, **how: Any) -> tuple[list[Array], list[int]]:
    """The rule for a batch of arguments; what is fixed may be common to all members."""
    size, first = axes_first(args, axes)
    flags = [k is not None for k in axes]
    first[fixed:] = of_all(size, flags[fixed:], first[fixed:])

    own = [0 if flag else None for flag in flags[:fixed]]
    for name, argument in (("function", "kinds_of_argument"), ("transpose", "kinds")):
        how[name] = jax.vmap(how[name], own + [0] * len(how[argument]), axis_size=size)
    for name in ("kinds", "kinds_of_argument"):
        how[name] = tuple(kind.update(shape=(size, *kind.shape)) for kind in how[name])
    out = _linear.bind(*first, fixed=fixed, **how)
    return out, [0] * len(out)


mlir.register_lowering(_linear, mlir.lower_fun(_evaluated, multiple_results=True))
ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
