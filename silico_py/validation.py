"""Checks of user input: each names the argument and says what was expected."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from silico_py.primitives._base import concrete

UNIT_TOLERANCE = 1e-6


def vector(name: str, value: Any, *shape: int) -> Array:
    """A finite float array of the given shape."""
    try:
        known = concrete(value)
        if known is not None and known.dtype.kind in "SUb":
            raise TypeError("text and truth values are not read as numbers")
        # Without x64 jax holds no float64, and says so where it is asked for one.
        own = jax.dtypes.canonicalize_dtype(getattr(value, "dtype", float))
        array = jnp.asarray(value, dtype=jnp.result_type(float, own))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: expected numbers of shape {shape}, got {value!r}") from error
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if not isinstance(array, jax.core.Tracer) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError(f"{name}: has NaN or infinite entries; give finite numbers")
    return array


def number(name: str, value: Any, positive: bool = False) -> Array:
    """A finite scalar."""
    array = vector(name, value)
    if positive and not isinstance(array, jax.core.Tracer) and not np.asarray(array) > 0:
        raise ValueError(f"{name}: must be positive, got {array}")
    return array


def count(name: str, value: Any, least: int = 1) -> int:
    """A known integer."""
    if not is_count(value) or value < least:
        raise ValueError(f"{name}: must be an int, at least {least}, got {value!r}")
    return int(value)


def is_count(value: object) -> bool:
    """Whether it is an integer that is known, and no array."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def flag(name: str, value: object) -> bool:
    """True or False."""
    scalar = isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0 and value.dtype == bool
    if not (scalar or isinstance(value, (bool, np.bool_))):
        raise ValueError(f"{name}: must be True or False, got {value!r}")
    return bool(value)


def not_negative(name: str, array: Array) -> Array:
    """The array, refused where an entry is negative."""
    if not isinstance(array, jax.core.Tracer) and np.any(np.asarray(array) < 0):
        raise ValueError(f"{name}: must not be negative, got {array}")
    return array


def quaternions(name: str, value: Any, *shape: int) -> Array:
    """Unit quaternions on the last axis, refused (not normalised) when they are not."""
    array = vector(name, value, *shape, 4)
    if not isinstance(array, jax.core.Tracer):
        check_unit(name, np.asarray(array))
    return array


def check_unit(name: str, known: np.ndarray) -> None:
    """Refuse quaternions that are not unit ones; says nothing where some are not finite."""
    norms = np.linalg.norm(known, axis=-1)
    if np.all(np.isfinite(norms)) and np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
        raise ValueError(
            f"{name}: quaternions (w, x, y, z) must have norm 1 within "
            f"{UNIT_TOLERANCE:g}, got {norms}; normalise them"
        )
