"""How programs that step are compiled on the CPU.

A step is many small loops. XLA's emitters for fused loops take long over those that are no kernels
(see `solver.fusion`), and the loops do not run faster for it. Sums of many small products, given to
a library one after another, run slower than loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from silico_py.solver import compilation

ON_CPU: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
}


def compiler_options() -> dict[str, Any]:
    """Options of `jax.jit` for functions that step: on the CPU they compile up to a fifth faster.

    `step`, `rollout`, `linearize` and `collide` use them by themselves where they are called with
    arrays. A function that calls them inside `jax.jit` is compiled as that `jax.jit` says:

        jax.jit(function, compiler_options=sp.compiler_options())

    JAX takes such options at the outermost `jax.jit` alone. Empty on other devices.
    """
    return compilation.on_cpu(ON_CPU)


def jitted(function: Callable, **how: Any) -> Callable:
    """`jax.jit`, with `compiler_options` where it is the outermost one."""
    return compilation.jitted(function, compiler_options, **how)
