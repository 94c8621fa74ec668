"""Options of the compiler, and where they apply: at the outermost call alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

# Of programs that run a few times: optimising them would take longer than it saves.
UNOPTIMIZED: dict[str, Any] = {"xla_backend_optimization_level": 0}
# Of programs that run once: a few hundred operations compile in a third of the time.
QUICKLY: dict[str, Any] = UNOPTIMIZED | {"xla_cpu_use_fusion_emitters": False}


def jitted(function: Callable, options: Callable[[], dict[str, Any]], **how: Any) -> Callable:
    """`jax.jit`, with `options()` of the compiler where it is the outermost one."""
    inner = jax.jit(function, **how)

    @lru_cache(maxsize=1)  # not before a call: the backend starts with the first question for it
    def outer() -> Callable:
        return jax.jit(function, compiler_options=options(), **how)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (inner if _is_tracing() else outer())(*args, **kwargs)

    return call


def once(function: Callable, **how: Any) -> Callable:
    """`function` as one program that compiles quickly: operation by operation each would be one."""
    return jitted(function, lambda: on_cpu(QUICKLY), **how)


def on_cpu(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that this compiler knows; none on other devices."""
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in options.items() if _is_known(name, value)}


def _is_tracing() -> bool:
    """Whether a function called here is: inside a transformation of jax."""
    here = get_opaque_trace_state()
    with jax.core.eval_context():
        return here != get_opaque_trace_state()


@lru_cache
def _is_known(name: str, value: Any) -> bool:
    """Whether this compiler knows an option."""
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
