"""How programs are compiled on the CPU.

A step is many small loops. XLA's emitters for fused loops take as long over them as all the rest
of compiling, and the loops do not run faster for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

ON_CPU = {"xla_cpu_use_fusion_emitters": False}


def compiler_options() -> dict[str, Any]:
    """For `jax.jit` around functions that step: on the CPU they compile in half the time.

    `step`, `rollout`, `linearize` and `collide` use them by themselves where they are called with
    arrays. A function that calls them inside `jax.jit` is compiled as that `jax.jit` says:

        jax.jit(function, compiler_options=sp.compiler_options())

    JAX takes such options at the outermost `jax.jit` alone. Empty on other devices.
    """
    return dict(ON_CPU) if jax.default_backend() == "cpu" and _known() else {}


def jitted(function: Callable, **how: Any) -> Callable:
    """`jax.jit`, with `compiler_options` where that is the outermost one."""
    inner = jax.jit(function, **how)

    @lru_cache(maxsize=1)  # not before a call: the backend starts with the first question for it
    def outer() -> Callable:
        return jax.jit(function, compiler_options=compiler_options(), **how)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (inner if _traced(args, kwargs) else outer())(*args, **kwargs)

    return call


def _traced(*args: Any) -> bool:
    """Whether a function called here with these arguments is being traced."""
    leaves = jax.tree.leaves((args, _constant()))
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


@jax.jit
def _constant() -> Array:
    """An array, but where everything is traced: inside `jax.jit` and loops."""
    return jnp.zeros(())


@lru_cache
def _known() -> bool:
    """Whether this compiler knows the options."""
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=ON_CPU).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
