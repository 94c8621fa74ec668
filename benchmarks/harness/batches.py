"""Batches: their members, and devices that share them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import silico_py as sp


def batch_of(member: Any) -> Any:
    """A batch of one."""
    return jax.tree.map(lambda v: v[None], member)


def members(states: Any) -> list[Any]:
    """The members of a batch, each a pytree of its own."""
    count = len(jax.tree.leaves(states)[0])
    return [jax.tree.map(lambda v, k=k: v[k], states) for k in range(count)]


def divided(number: int, divisor: int) -> int:
    """number / divisor.

    Raises:
        ValueError: when that is not whole.
    """
    quotient, rest = divmod(number, divisor)
    if rest:
        raise ValueError(f"number: expected a multiple of {divisor}, got {number}")
    return quotient


def over_devices(function: Callable, fixed: Any, members: Any) -> tuple[Callable, Any, Any]:
    """A function of what is fixed and of a batch, its members shared among as many devices as
    divide their number, and both arguments where these devices need them."""
    count = math.gcd(len(jax.tree.leaves(members)[0]), jax.device_count())
    if count == 1:
        return function, fixed, members
    mesh = jax.make_mesh((count,), ("members",), devices=jax.devices()[:count])
    specs = PartitionSpec(), PartitionSpec("members")
    placed = (
        jax.device_put(v, NamedSharding(mesh, spec))
        for v, spec in zip((fixed, members), specs, strict=True)
    )
    shared = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=specs[1], check_vma=False)
    return shared, *placed


def retimed(scene: sp.Scene, timestep: float) -> sp.Scene:
    """The scene with another time step [s]; programs compiled for the one serve the other."""
    return dataclasses.replace(scene, timestep=jnp.asarray(timestep, scene.timestep.dtype))
