"""Frozen dataclasses that are pytrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T", bound=type)


def static(default: Any = None) -> Any:
    """A dataclass field that is part of the pytree's structure, not one of its leaves."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True)
def pytree_dataclass(cls: T) -> T:
    """`pytree` for a class without `__init__`: type checkers read one off the fields."""
    return pytree(cls)


def pytree(cls: T) -> T:
    """Make `cls` a frozen dataclass and a pytree whose leaves are its non-static fields.

    Unflattening does not run `__init__`: only what a user constructs is validated, so the
    leaves of an unflattened shape may be tracers, batches or placeholders.
    """
    own_init = "__init__" in cls.__dict__
    dataclasses.dataclass(frozen=True, eq=False, repr=False, init=not own_init)(cls)
    fields = dataclasses.fields(cls)
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    statics = tuple(f.name for f in fields if f.metadata.get("static"))
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in leaves)

    children_of, aux_of = _getter(leaves), _getter(statics)

    def flatten(shape: Any) -> tuple[tuple, tuple]:
        return children_of(shape), aux_of(shape)

    def flatten_with_keys(shape: Any) -> tuple[tuple, tuple]:
        children, aux = flatten(shape)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: tuple, children: Iterable[Any]) -> Any:
        shape: Any = object.__new__(cls)
        assign(shape, **dict(zip(leaves, children, strict=True)))
        assign(shape, **dict(zip(statics, aux, strict=True)))
        return shape

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    if cls.__repr__ is object.__repr__:
        type.__setattr__(cls, "__repr__", _fields_shown)
    return cls


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple]:
    """A function that reads these fields; a fast one, as every call of a compiled function does so
    for all of its arguments."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda shape: tuple(getattr(shape, name) for name in names)


def _fields_shown(self: Any) -> str:
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self))
    return f"{type(self).__name__}({', '.join(values)})"


def assign(shape: Any, /, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being built."""
    for name, value in values.items():
        object.__setattr__(shape, name, value)
