"""Tests run in double precision and keep compiled programs between runs."""

import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = Path(__file__).parent.parent / ".cache" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
