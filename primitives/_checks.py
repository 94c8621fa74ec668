"""Checks of arguments: each raises a `ValueError` that names the argument and what it expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

# Unit quaternions (w, x, y, z), or what `as_quaternions` makes some of.
Orientation: TypeAlias = ArrayLike | Rotation | Sequence[Rotation]

UNIT_TOLERANCE = 1e-6


def concrete(value: Any) -> np.ndarray | None:
    """The value as a numpy array, or None where only its shape is known (under jit or vmap)."""
    try:
        value = _joined(value)
        # stop_gradient unwraps a value that is only being differentiated.
        if isinstance(value, jax.core.Tracer):
            value = jax.lax.stop_gradient(value)
        return np.asarray(value)
    except jax.errors.TracerArrayConversionError:
        return None


def _joined(value: Any) -> Any:
    """A sequence that holds traced numbers as one array; anything else unchanged."""
    if isinstance(value, (list, tuple)) and any(
        isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)
    ):
        return jnp.asarray(value)
    return value


def float_dtype(*values: Any) -> np.dtype:
    """The common dtype of those values that are floating arrays, else jax's default float."""
    found = [
        value.dtype
        for value in jax.tree.leaves(values)
        if isinstance(value, (np.ndarray, np.generic, jax.Array))
        and jnp.issubdtype(value.dtype, jnp.floating)
    ]
    dtype = jnp.dtype(jnp.result_type(float))
    if found:
        widest = max(found, key=lambda d: jnp.finfo(d).bits)
        # Without x64 jax cannot hold a float64.
        dtype = jax.dtypes.canonicalize_dtype(widest)
    return jnp.dtype(dtype)


def parameter(
    name: str, value: Any, shape: tuple[int | None, ...], dtype: np.dtype, positive: bool = False
) -> Array:
    """Check one argument, return it as an array of `dtype`; `None` in `shape` is any length."""
    try:
        value = _joined(value)
        known = concrete(value)
        found = jnp.shape(value if known is None else known)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected {_numbers(shape)}, got {given(value)}") from error
    if known is not None and known.dtype == object and not isinstance(value, int):
        raise ValueError(f"{name}: expected {_numbers(shape)}, got {given(value)}")
    _check_shape(name, shape, found)
    if known is not None:
        if not _are_real_numbers(value, known):
            raise ValueError(f"{name}: expected real numbers, got {value!r}")
        if not np.all(np.isfinite(known)):
            raise ValueError(f"{name}: has NaN or infinite entries; give finite numbers")
        with np.errstate(over="ignore", under="ignore"):
            kept = known.astype(dtype)
        if not np.all(np.isfinite(kept)):
            raise ValueError(f"{name}: {known} is too large for {dtype}")
        if positive and not np.all(kept > 0):
            raise ValueError(f"{name}: must be positive, got {known}; give a value above 0")
    return jnp.asarray(value, dtype=dtype)


def _check_shape(name: str, shape: tuple[int | None, ...], found: tuple[int, ...]) -> None:
    pairs = zip(shape, found, strict=False)
    if len(found) == len(shape) and all(want in (None, got) for want, got in pairs):
        return
    if not shape:
        raise ValueError(f"{name}: expected one number, got an array of shape {found}")
    known = math.prod(size for size in shape if size is not None)
    entries = math.prod(found)
    fits = entries % known == 0 if None in shape and known else entries == known
    advice = "; reshape it" if fits else ""
    raise ValueError(f"{name}: expected shape {_show(shape)}, got {found}{advice}")


def _numbers(shape: tuple[int | None, ...]) -> str:
    return f"numbers of shape {_show(shape)}" if shape else "one number"


def given(value: Any) -> str:
    """What a message shows of it: what was written, or the name of a type."""
    written = value is None or isinstance(value, (str, int, float, complex, list, tuple, dict))
    return repr(value) if written else type(value).__name__


def _are_real_numbers(value: Any, known: np.ndarray) -> bool:
    """Whether all entries are real numbers, and none is a truth value or masked."""
    sequence = isinstance(value, (list, tuple))
    if sequence and any(isinstance(leaf, (bool, np.bool_)) for leaf in jax.tree.leaves(value)):
        return False
    real = np.issubdtype(known.dtype, np.number) and not np.iscomplexobj(known)
    return real and not np.ma.is_masked(value)


def count(name: str, value: Any, least: int = 1) -> int:
    """An integer that is known, at least `least`."""
    if not is_count(value) or value < least:
        raise ValueError(f"{name}: must be an int, at least {least}, got {value!r}")
    return int(value)


def is_count(value: object) -> TypeGuard[int | np.integer]:
    """Whether it is an integer that is known, and no array."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def several(name: str, value: Any, what: str) -> tuple:
    """An iterable as a tuple."""
    try:
        return tuple(value)
    except TypeError as error:
        kind = type(value).__name__
        raise ValueError(f"{name}: expected {what}, several in a list, got {kind}") from error


def as_quaternions(value: Any, rows: bool) -> Any:
    """Numbers (w, x, y, z) of a `Rotation` of scipy's or jax's, or of a list with some; anything
    else unchanged. One rotation is one row, where `rows` are asked for."""
    if isinstance(value, (list, tuple)) and any(hasattr(entry, "as_quat") for entry in value):
        return [as_quaternions(entry, rows=False) for entry in value]
    if not hasattr(value, "as_quat"):
        return value
    found = value.as_quat(scalar_first=True)
    return found[None] if rows and found.ndim == 1 else found


def unit(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Check vectors of norm one on the last axis; they are refused rather than normalised."""
    array = parameter(name, value, shape, dtype)
    check_unit(name, value)
    return array


def check_unit(name: str, value: Any) -> None:
    """Refuse vectors that are known not to have norm one; silent where some are not finite."""
    known = concrete(value)
    if known is None:
        return
    norms = np.linalg.norm(np.asarray(known, float), axis=-1)
    if np.all(np.isfinite(norms)) and np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
        shown = np.array2string(norms, precision=9)
        raise ValueError(
            f"{name}: must have norm 1 (within {UNIT_TOLERANCE:g}), got {shown}; normalise it"
        )


def _show(shape: tuple[int | None, ...]) -> str:
    sizes = ["any" if size is None else str(size) for size in shape]
    return "(" + ", ".join(sizes) + ("," if len(sizes) == 1 else "") + ")"
