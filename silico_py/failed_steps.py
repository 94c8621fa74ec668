"""Which steps failed, why, and between which bodies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from silico_py.one_step import Info
from silico_py.scene import Scene, check_scene
from silico_py.status import Status
from silico_py.validation import count


class Failure(NamedTuple):
    """A step that did not converge.

    Attributes:
        at: where it stands along the axes of what was asked about: (step,) in a trajectory,
            (member, step) in a batch of them, () if it is a single step.
        status: why.
        contacts: names, as of `Scene.pair_names`, of the pairs of least alpha, the nearest first;
            of those that were not found where that is why.
    """

    at: tuple[int, ...]
    status: Status
    contacts: tuple[str, ...]

    @property
    def message(self) -> str:
        """Why, what to do about it, and where to look."""
        nearest = f"; nearest: {', '.join(self.contacts)}" if self.contacts else ""
        return self.status.message + nearest


def failures(scene: Scene, info: Info, contacts: int = 3) -> list[Failure]:
    """The steps that did not converge.

    Args:
        scene: the scene.
        info: of a step, of a trajectory (`trajectory.info`), or of a batch of them.
        contacts: how many contacts are named, at most.

    Returns:
        A `Failure` for each, in the order of the steps; no entry if all converged.

    Raises:
        ValueError: for what is no `Info`, or that of another scene, and a number that is no int or
            negative.
    """
    check_scene(scene)
    if not isinstance(info, Info):
        kind = type(info).__name__
        raise ValueError(f"info: expected an Info, as `trajectory.info` is, got {kind}")
    count("contacts", contacts, 0)
    names = np.array(scene.pair_names, dtype=object)
    converged, status, alpha = map(np.asarray, (info.converged, info.status, info.contacts.alpha))
    if alpha.shape != (*converged.shape, len(names)):
        raise ValueError(
            f"info: has contacts of shape {alpha.shape}, expected {(*converged.shape, len(names))}"
        )
    found = []
    for at in map(tuple, np.argwhere(~converged).tolist()):
        why = Status(int(status[at]))
        nearest = _nearest(alpha[at], why)[:contacts]
        found.append(Failure(at, why, tuple(names[nearest])))
    return found


def _nearest(alpha: np.ndarray, why: Status) -> np.ndarray:
    """Pairs in the order of their alpha, those without one left out; or these alone."""
    if why == Status.UNLOCATED:
        return np.flatnonzero(np.isnan(alpha))
    order = np.argsort(alpha)
    return order[~np.isnan(alpha[order])]
