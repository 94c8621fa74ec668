"""Functions that are traced once for all of their calls.

A program of many calls of the same function takes less time to trace and to compile if the function
stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial, wraps
from typing import Any, ParamSpec, TypeVar, overload

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from silico_py.solver.fusion import compact, in_kernel, in_parts
from silico_py.solver.rows import are_many, each

P = ParamSpec("P")
R = TypeVar("R")


@overload
def outlined(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def outlined(
    function: Callable[..., R], *static: Hashable, axes: Any = ..., whole: bool = ...
) -> Callable[..., R]: ...


def outlined(
    function: Callable, *static: Hashable, axes: Any = None, whole: bool = False
) -> Callable:
    """`function` with `static` as its first arguments, mapped over `axes` of the others if given.

    It is traced once for all calls with arguments of the same shapes and dtypes. Inside a kernel it
    stays a function of its own, for one long function takes long to compile; outside of one it is
    `compact` if it is to be `whole`.
    """

    @wraps(function)
    def call(*args: Any) -> Any:
        one = whole and in_parts()
        run = _traced_once(function, static, axes, in_kernel(), one, are_many())
        with set_xla_metadata(inlineable="false" if in_kernel() else None):
            return run(*args)

    return call


@lru_cache(maxsize=512)
def _traced_once(
    function: Callable, static: tuple, axes: Any, for_kernel: bool, one: bool, many: bool
) -> Callable:
    """A `jax.jit` for each way of tracing: `for_kernel`, as `one` kernel of its own, for `many`
    rows.

    Kept from call to call, for jax knows its programs by the function that it is given. That is all
    there is to it: what is returned depends on these arguments alone, and one that is dropped is
    traced again.
    """
    bound = partial(function, *static)
    mapped: Callable = bound if axes is None else each(bound, axes)

    def inner(*args: Any) -> Any:
        with set_xla_metadata(inlineable=None):
            return mapped(*args)

    return jax.jit(inner if for_kernel else compact(mapped) if one else mapped)
