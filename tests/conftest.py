"""Tests run in double precision and keep compiled programs between runs."""

import gc
import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_enable_x64", True)
# A test compiles far more than it runs: what makes programs fast is left out, with half of
# the time to compile them. tests/test_fusion.py is about the kernels.
OLD_XLA = jax.__version_info__ < (0, 11)  # later ones compile one kernel faster than many
os.environ.setdefault("SILICO_PY_ONE_KERNEL", "0" if OLD_XLA else "1")
# Compilers copy again and again from where an operation comes; processes of tests do without too.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
jax.config.update("jax_traceback_in_locations_limit", 0)
FLOATS = "bf16 f4e2m1fn f8e3m4 f8e4m3 f8e4m3b11fnuz f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0fnu"
PASSES = [  # of the compiler that make loops faster, or are about what does not occur here
    *("simplify-while-loops", "while-loop-constant-sinking", "while-loop-invariant-code-motion"),
    *(f"float-normalization-{name}" for name in f"{FLOATS} s4 u4".split()),
    *("dynamic-dimension-simplifier", "tree_reduction_rewriter"),
]
QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 "
    f"--xla_disable_hlo_passes={','.join(PASSES)}"
)
if OLD_XLA:  # a flag that XLA does not know ends the process
    QUICK += " --xla_cpu_use_fusion_emitters=false"
gc.set_threshold(200_000, 50, 100)  # tracing makes many objects, and little garbage
os.environ["XLA_FLAGS"] = f"{QUICK} {os.environ.get('XLA_FLAGS', '')}"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = Path(__file__).parent.parent / ".cache" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

# Linux gives a process 65,530 regions of memory; some versions of XLA take one for each loop.
MOST_REGIONS = 40_000
REGIONS = Path("/proc/self/maps")


# Files that simulate the same scenes, side by side: a process traces them once.
NEIGHBOURS = [
    *("planning", "notebooks", "derivatives", "units", "fusion", "flight", "physics"),
    *("warm_start", "crowds", "folds", "reference", "scenes", "snippets"),
]


def pytest_collection_modifyitems(items):
    """Parts of the list go to processes."""
    place = {f"test_{name}": k for k, name in enumerate(NEIGHBOURS)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(scope="module", autouse=True)
def bounded_programs():
    """After each file, programs are given up if they take too many regions of memory."""
    yield
    if REGIONS.exists() and len(REGIONS.read_text().splitlines()) > MOST_REGIONS:
        jax.clear_caches()
        gc.collect()
