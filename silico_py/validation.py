"""Checks of user input: each raises a `ValueError` that names the argument and what it expected."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from silico_py.primitives._checks import as_quaternions, concrete, float_dtype, parameter, unit
from silico_py.primitives._checks import count as count
from silico_py.primitives._checks import given as given
from silico_py.primitives._checks import is_count as is_count


def vector(name: str, value: Any, *shape: int | None, positive: bool = False) -> Array:
    """A finite float array of the given shape (None is any length), in the precision of `value`."""
    return parameter(name, value, shape, float_dtype(value), positive)


def number(name: str, value: Any, positive: bool = False) -> Array:
    """A finite scalar."""
    return vector(name, value, positive=positive)


def as_path(name: str, value: object) -> Path:
    """A path."""
    if not isinstance(value, (str, PathLike)):
        raise ValueError(f"{name}: expected a path, got {type(value).__name__}")
    return Path(value)


def flag(name: str, value: object) -> bool:
    """True or False."""
    scalar = isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0 and value.dtype == bool
    if not (scalar or isinstance(value, (bool, np.bool_))):
        raise ValueError(f"{name}: must be True or False, got {value!r}")
    return bool(value)


def listener(name: str, value: object) -> Callable[..., None]:
    """A function to be told of progress; one that does nothing for None."""
    if value is None:
        return lambda *_: None
    if not callable(value):
        raise ValueError(f"{name}: expected a function, got {type(value).__name__}")
    return value


def not_negative(name: str, array: Array) -> Array:
    """The array, refused where an entry is negative."""
    known = concrete(array)
    if known is not None and np.any(known < 0):
        raise ValueError(f"{name}: must not be negative, got {known}")
    return array


def quaternions(name: str, value: Any, *shape: int) -> Array:
    """Unit quaternions on the last axis, refused (not normalised) when they are not; a `Rotation`
    will do, too."""
    value = as_quaternions(value, rows=len(shape) > 0)
    return unit(name, value, (*shape, 4), float_dtype(value))
