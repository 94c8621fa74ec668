"""One kernel for a whole function on the CPU.

XLA's CPU runtime starts a kernel for every fused loop, at some 100 ns each: several times
the arithmetic of a small problem. A call that carries the marks below becomes one kernel,
which the compiler can do for functions made of small loops alone. (It does so by itself for
loops below 1 kB; the marks are what it uses inside.)

Such a kernel runs many times faster and takes a little longer to compile. What is too large for
one has parts that are not. Where compile time matters more, the environment variable
SILICO_PY_ONE_KERNEL=0 switches kernels off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial, reduce
from itertools import chain, compress
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxpr_as_fun
from jaxtyping import Array

from silico_py.solver.lanes import members_of
from silico_py.solver.leaves import replaced
from silico_py.solver.rules import differentiated_as

ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
LARGEST_ARRAY = 4000  # elements; larger sums and products go to libraries
LARGEST_PROGRAM = 13_800  # operations: more would compile for 20 s
LIBRARY_PRODUCT = 8  # rows, terms or columns of a product that goes to a library
LIBRARY = {  # primitives that call one
    "cholesky",
    "conv_general_dilated",
    "debug_callback",
    "debug_print",
    "eig",
    "eigh",
    "ffi_call",
    "fft",
    "geqrf",
    "io_callback",
    "lu",
    "lu_pivots_to_permutation",
    "pure_callback",
    "random_bits",
    "schur",
    "sort",
    "svd",
    "threefry2x32",
    "top_k",
    "triangular_solve",
    "tridiagonal_solve",
}


_in_kernel: ContextVar[bool] = ContextVar("in_kernel", default=False)
_in_parts: ContextVar[bool] = ContextVar("in_parts", default=False)


@contextmanager
def switched(flag: ContextVar[bool], on: bool = True) -> Iterator[None]:
    """The flag is on, or off, for what is traced inside."""
    token = flag.set(on)
    try:
        yield
    finally:
        flag.reset(token)


def loops_only() -> AbstractContextManager[None]:
    """Trace what is inside without calls to libraries."""
    return switched(_in_kernel)


def undivided() -> AbstractContextManager[None]:
    """Trace what is inside without kernels of its parts, which cannot be differentiated."""
    return switched(_in_parts, on=False)


def in_kernel() -> bool:
    """Whether `loops_only` is in force."""
    return _in_kernel.get()


def in_parts() -> bool:
    """Whether `compact` functions become kernels here: inside what `one_by_one` evaluates."""
    return _in_parts.get() and not in_kernel() and is_available()


def is_available() -> bool:
    """Whether functions become kernels here: on the CPU, where they are wanted."""
    on = os.environ.get("SILICO_PY_ONE_KERNEL", "1") != "0"
    return on and jax.default_backend() == "cpu" and _supported()


def materialized(arrays: Any) -> Any:
    """The same arrays, in memory where batches are evaluated at once.

    A kernel of a GPU has a thread for each entry of its result. XLA fuses a concatenation with what
    computes its parts, and each thread then takes the time of all of them.
    """
    return jax.lax.optimization_barrier(arrays) if abreast() else arrays


def abreast() -> bool:
    """Whether what is traced is for a batch whose members are evaluated at once."""
    return not (in_kernel() or in_turn())


def fused(function: Callable, at_once: Callable | None = None) -> Callable:
    """`function` of arrays, evaluated by one kernel on the CPU where that is possible.

    Batches are those of `one_by_one`. Derivatives are those of `function` itself, outside the
    kernel.
    """
    return one_by_one(compact(function), at_once)


def compact(function: Callable) -> Callable:
    """`function`, as a kernel of its own within a program that is too large for one.

    It becomes one where `one_by_one` evaluates that program, which must not be differentiated
    there unless it is `undivided`. Arguments and results that are no jax arrays are passed on.
    """

    def call(*args: Any) -> Any:
        return _one_kernel(function, *args) if in_parts() else function(*args)

    return call


def one_by_one(function: Callable, at_once: Callable | None = None) -> Callable:
    """`function` of arrays; on the CPU the members of a batch are evaluated one after another.

    A loop under `jax.vmap` runs to its slowest member, takes both branches of every condition
    and copies its state for those that have ended: on the CPU a batch takes 3 to 40 times as
    long as its members. Elsewhere batches are evaluated by `at_once(size, in_batched, args)`,
    or by `jax.vmap`. Parts that are `compact` become kernels.
    """

    @custom_vmap
    @jax.jit  # constants that `custom_vmap` sees must not become batched
    def call(*args: Any) -> Any:
        with switched(_in_parts):
            return function(*args)

    @call.def_vmap
    def batched(size: int, in_batched: list, *args: Any) -> tuple[Any, Any]:
        flags, structure = jax.tree.flatten(in_batched)
        if in_turn():
            out = _map(lambda leaves: call(*structure.unflatten(leaves)), flags, args)
        elif at_once is not None:
            out = at_once(size, in_batched, args)
        else:
            axes = structure.unflatten([0 if flag else None for flag in flags])
            out = jax.vmap(function, in_axes=tuple(axes), axis_size=size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    return differentiated_as(function, lambda *args: (function if in_kernel() else call)(*args))


def in_turn() -> bool:
    """Whether the members of batches are evaluated one after another here."""
    return jax.default_backend() == "cpu"


def _map(function: Callable, flags: list[bool], args: tuple) -> Any:
    """`function` of all leaves, one member of those with a flag after another."""
    rows, leaves_of = members_of(jax.tree.leaves(args), flags)
    return jax.lax.map(lambda row: function(leaves_of(row)), rows)


def _one_kernel(function: Callable, *args: Any) -> Any:
    if not is_available():
        return function(*args)
    leaves, whole_args = _taken_apart(args)
    whole_result: list[Callable] = []

    def flat(*leaves: Array) -> list[Array]:
        arrays, whole = _taken_apart(function(*whole_args(leaves)))
        whole_result[:] = [whole]
        return arrays

    with loops_only():
        # As one call: what is put into the kernel below is then not traced again.
        jaxpr = jax.make_jaxpr(jax.jit(flat))(*leaves)
    equations = list(_equations(jaxpr.jaxpr))
    if len(equations) > LARGEST_PROGRAM or not all(map(_is_small_loop, equations)):
        return function(*args)
    read = sorted(_read(jaxpr.jaxpr))
    # An argument whose value the compiler knows becomes a constant, which the kernel does not read.
    opaque = jax.lax.optimization_barrier([leaves[k] for k in read])
    kernel = partial(_guarded, jaxpr, read)
    results, _ = jax.lax.optimization_barrier(_marked(kernel, _name(function), *opaque))
    found = iter(results)
    out = [next(found) if v.size else jnp.zeros(v.shape, v.dtype) for v in jaxpr.out_avals]
    return whole_result[0](out)


def _taken_apart(tree: Any) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
    """The arrays in a pytree, and a function that rebuilds it from such arrays."""
    leaves, structure = jax.tree.flatten(tree)
    flags = [isinstance(leaf, jax.Array) for leaf in leaves]
    others = [None if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]

    def whole(arrays: Sequence[Array]) -> Any:  # holds none of those taken out: tracers would leak
        return structure.unflatten(replaced(others, flags, arrays))

    return list(compress(leaves, flags)), whole


def _read(jaxpr: Jaxpr) -> set[int]:
    """Indices of the arguments that are read, here or in calls."""
    values = chain(jaxpr.outvars, *map(_read_by, jaxpr.eqns))
    names = {value for value in values if isinstance(value, Var)}
    return {k for k, v in enumerate(jaxpr.invars) if v in names}


def _read_by(equation: JaxprEqn) -> list[Any]:
    if equation.primitive.name != "jit":
        return equation.invars
    return [equation.invars[k] for k in _read(equation.params["jaxpr"].jaxpr)]


def _guarded(jaxpr: ClosedJaxpr, read: list[int], *leaves: Array) -> tuple[list[Array], Array]:
    """The results that are not empty, and something that reads all arguments.

    The compiler aborts over an empty result, and over an argument that nothing reads; an operation
    that takes an argument may still read no entry of it.
    """
    given = dict(zip(read, leaves, strict=True))
    kinds = [v.aval for v in jaxpr.jaxpr.invars]
    whole = [given[k] if k in given else np.zeros(v.shape, v.dtype) for k, v in enumerate(kinds)]
    results = [v for v in jaxpr_as_fun(jaxpr)(*whole) if v.size]
    first = [_first(v).astype(float) for v in leaves if v.size]
    return results, reduce(jax.lax.add, first, jnp.zeros(()))


def _first(v: Array) -> Array:
    """One entry, in the fewest operations."""
    corner = jax.lax.slice(v, (0,) * v.ndim, (1,) * v.ndim) if v.ndim else v
    return jax.lax.reshape(corner, ())


def _name(function: Callable) -> str:
    own = function.func if isinstance(function, partial) else function
    return own.__name__.lstrip("_")


def _marked(function: Callable, name: str, *args: Any) -> Any:
    """`function` as a kernel; programs call it by this name."""

    def unmarked(*args: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(ONE_KERNEL)):
            return function(*args)

    unmarked.__name__ = f"{name}_kernel"
    with set_xla_metadata(**ONE_KERNEL):
        return jax.jit(unmarked)(*args)


@lru_cache
def _supported() -> bool:
    """Whether this compiler knows the marks."""

    def example(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: jnp.sum(v) < 1, lambda v: v[::-1] + 1, x)

    try:
        jax.jit(lambda x: _marked(example, "example", x)).lower(jnp.zeros(3)).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                yield from _equations(getattr(value, "jaxpr", value))


def _is_small_loop(equation: JaxprEqn) -> bool:
    name = equation.primitive.name
    if name in LIBRARY or name.startswith("scatter"):
        return False
    if name == "dot_general":
        return max(_product_sizes(equation)) < LIBRARY_PRODUCT
    if name.startswith("reduce"):
        return all(prod(v.aval.shape) <= LARGEST_ARRAY for v in equation.invars)
    return True


def _product_sizes(equation: JaxprEqn) -> tuple[int, int, int]:
    """Rows, terms and columns of one product of a batch."""
    contracted, batch = equation.params["dimension_numbers"]
    shapes = [v.aval.shape for v in equation.invars]
    terms = prod(shapes[0][i] for i in contracted[0])
    members = prod(shapes[0][i] for i in batch[0])
    rows, columns = (prod(shape) // max(terms * members, 1) for shape in shapes)
    return rows, terms, columns


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, (Jaxpr, ClosedJaxpr))
