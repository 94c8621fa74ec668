"""How programs are compiled on the CPU.

A step is many small loops. XLA's emitters for fused loops take as long over them as all the rest
of compiling, and the loops do not run faster for it. Sums of many small products, given to a
library one after another, run slower than loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

ON_CPU: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
}


def compiler_options() -> dict[str, Any]:
    """Options of `jax.jit` for functions that step: on the CPU they compile in half the time.

    `step`, `rollout`, `linearize` and `collide` use them by themselves where they are called with
    arrays. A function that calls them inside `jax.jit` is compiled as that `jax.jit` says:

        jax.jit(function, compiler_options=sp.compiler_options())

    JAX takes such options at the outermost `jax.jit` alone. Empty on other devices.
    """
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in ON_CPU.items() if _known(name)}


def jitted(function: Callable, **how: Any) -> Callable:
    """`jax.jit`, with `compiler_options` where it is the outermost one."""
    inner = jax.jit(function, **how)

    @lru_cache(maxsize=1)  # not before a call: the backend starts with the first question for it
    def outer() -> Callable:
        return jax.jit(function, compiler_options=compiler_options(), **how)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (inner if _is_tracing() else outer())(*args, **kwargs)

    return call


def _is_tracing() -> bool:
    """Whether a function called here is: inside a transformation of jax."""
    here = get_opaque_trace_state()
    with jax.core.eval_context():
        return here != get_opaque_trace_state()


@lru_cache
def _known(name: str) -> bool:
    """Whether this compiler knows an option."""
    try:
        options = {name: ON_CPU[name]}
        jax.jit(lambda: jnp.zeros(()), compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
