"""How functions are differentiated that are evaluated in another way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
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


def linear(forward: Callable, backward: Callable, fixed: Any, v: Any, like: Any) -> Any:
    """`forward(fixed, v)`, linear in v, which jax transposes into `backward`.

    Args:
        forward: `(fixed, v) -> result`; like `backward` it is differentiated as it is, by `fixed`.
        backward: `(fixed, weights) -> (v)`, its transpose.
        fixed: what both depend on.
        v: the argument, of floating-point numbers.
        like: a pytree of arrays like the result's.
    """
    parts = [jax.tree.flatten(tree) for tree in (fixed, v, like)]
    (at, whole), (given, whole_v), (example, whole_result) = parts

    def flat(function: Callable, whole_argument: Any) -> Callable:
        def call(*leaves: Array) -> list[Array]:
            own, rest = leaves[: len(at)], leaves[len(at) :]
            return jax.tree.leaves(function(whole.unflatten(own), whole_argument.unflatten(rest)))

        return call

    how = {
        "function": flat(forward, whole_v),
        "transpose": flat(backward, whole_result),
        "kinds": tuple(_kind(leaf) for leaf in example),
        "kinds_of_argument": tuple(_kind(leaf) for leaf in given),
    }
    return whole_result.unflatten(_linear.bind(*at, *given, **how))


def _kind(array: Array) -> ShapedArray:
    return ShapedArray(jnp.shape(array), jnp.result_type(array))


# A function of `fixed` leaves, then those of what it is linear in.
_linear = Primitive("linear")
_linear.multiple_results = True


@_linear.def_impl
def _evaluated(*args: Array, function: Callable, **_: Any) -> list[Array]:
    return function(*args)


@_linear.def_abstract_eval
def _kinds(*_args: Any, kinds: tuple, **_: Any) -> tuple:
    return kinds


mlir.register_lowering(_linear, mlir.lower_fun(_evaluated, multiple_results=True))


def _linear_jvp(args: list, changes: list, *, function: Callable, **how: Any) -> tuple[Any, Any]:
    count = len(args) - len(how["kinds_of_argument"])
    flags = [not isinstance(change, ad.Zero) for change in changes]
    if not any(flags[:count]):
        run = partial(_linear.bind, function=function, **how)
        moved = map(ad.instantiate_zeros, changes[count:])
        return run(*args), run(*args[:count], *moved)

    def of_moving(*moving: Array) -> list[Array]:
        return function(*replaced(args, flags, moving))

    return jax.jvp(of_moving, *(list(compress(parts, flags)) for parts in (args, changes)))


def _linear_transpose(
    weights: list, *args: Any, function: Callable, transpose: Callable, **how: Any
) -> list[Any]:
    argument = how["kinds_of_argument"]
    fixed = args[: len(args) - len(argument)]
    turned = {"kinds": argument, "kinds_of_argument": how["kinds"]}
    given = map(ad.instantiate_zeros, weights)
    out = _linear.bind(*fixed, *given, function=transpose, transpose=function, **turned)
    return [None] * len(fixed) + list(out)


def _linear_batch(args: list, axes: list, **how: Any) -> tuple[Any, Any]:
    """Of a batch of arguments; what is fixed may be the same for all."""
    count = len(args) - len(how["kinds_of_argument"])
    size = next(jnp.shape(v)[k] for v, k in zip(args, axes, strict=True) if k is not None)
    moved = [v if k is None else jnp.moveaxis(v, k, 0) for v, k in zip(args, axes, strict=True)]
    whole = [
        jnp.broadcast_to(v, (size, *v.shape)) if k is None else v
        for v, k in zip(moved[count:], axes[count:], strict=True)
    ]
    each = [None if k is None else 0 for k in axes[:count]] + [0] * len(whole)
    for name in ("function", "transpose"):
        others = len(how["kinds_of_argument" if name == "function" else "kinds"])
        how[name] = jax.vmap(how[name], each[:count] + [0] * others, axis_size=size)
    for name in ("kinds", "kinds_of_argument"):
        how[name] = tuple(kind.update(shape=(size, *kind.shape)) for kind in how[name])
    out = _linear.bind(*moved[:count], *whole, **how)
    return out, [0] * len(out)


ad.primitive_jvps[_linear] = _linear_jvp
ad.primitive_transposes[_linear] = _linear_transpose
batching.primitive_batchers[_linear] = _linear_batch
