"""Friction of pairs, as MuJoCo has it: of geoms, combined where two of them meet.

It has coefficients of sliding, torsional and rolling friction. The latter two are lengths, by which
the normal force is multiplied: radii times the coefficient of sliding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from silico_py.scene import ContactPair, Scene

SAME = 1e-9  # coefficients that differ by less are one
CONDIM = 3, 4, 6  # from which on contacts have sliding, torsional and rolling friction
TORSION, ROLLING = 0.005, 0.0001  # MuJoCo's own defaults [m]

PieceIndex = tuple[int | None, int]  # of a body, or of the environment (None)


def of_geoms(model: Any, pairs: np.ndarray) -> np.ndarray:
    """(pairs, 3) coefficients of each of (pairs, 2) geoms.

    MuJoCo takes those of an explicit pair, else of the geom of higher priority, or the larger of
    both.
    """
    combined = _combined(model, pairs, model.geom_friction)
    found = acting(combined, _combined(model, pairs, model.geom_condim[:, None]))
    own = acting(model.pair_friction[:, [0, 2, 3]], model.pair_dim[:, None])
    both = zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True)
    known = dict(zip(map(frozenset, both), own, strict=True))
    asked = map(frozenset, pairs.tolist())
    return np.array([known.get(pair, value) for pair, value in zip(asked, found, strict=True)])


def acting(coefficients: np.ndarray, condim: np.ndarray | int) -> np.ndarray:
    """The (..., 3) coefficients, zero where contacts of this condim do not have them."""
    return np.where(np.greater_equal(condim, CONDIM), coefficients, 0.0)


def _combined(model: Any, pairs: np.ndarray, value: np.ndarray) -> np.ndarray:
    first, second = pairs.T
    priority = (model.geom_priority[first] - model.geom_priority[second])[:, None]
    larger = np.maximum(value[first], value[second])
    return np.select([priority > 0, priority < 0], [value[first], value[second]], larger)


def in_scene(coefficients: np.ndarray) -> dict[str, float | list[float]]:
    """The arguments of a scene with such (pairs, 3) coefficients."""
    sliding, *turning = coefficients.T
    given = {"friction": _in_common(sliding)}
    for name, coefficient in zip(("torsional_radius", "rolling_radius"), turning, strict=True):
        if np.any(coefficient > 0):
            radii = np.divide(coefficient, sliding, np.zeros_like(sliding), where=sliding > 0)
            given[name] = _in_common(radii)
    return given


def _in_common(values: np.ndarray) -> float | list[float]:
    """The values, or the one that all of them are."""
    known = values.tolist()
    return known if np.ptp(values) > SAME else known[0]


def condim(scene: Scene) -> int:
    """Of the contacts of a scene."""
    sliding, torsional, rolling = CONDIM
    if scene.rolling_radius is not None:
        return rolling
    return sliding if scene.torsional_radius is None else torsional


def of_scene(scene: Scene) -> np.ndarray:
    """(3,) coefficients of a scene's contacts, or (pairs, 3)."""
    sliding = np.asarray(scene.friction, float)
    radii = scene.torsional_radius, scene.rolling_radius
    turning = (
        usual if radius is None else sliding * np.asarray(radius, float)
        for usual, radius in zip((TORSION, ROLLING), radii, strict=True)
    )
    return np.stack(np.broadcast_arrays(sliding, *turning), axis=-1)


class OfPieces(NamedTuple):
    """(3,) coefficients as MuJoCo has them.

    Attributes:
        pieces: of which that of a pair is the larger one. Those that may touch nothing are not
            among them, nor is any where one number holds for all.
        pairs: what is not to be had that way.
    """

    pieces: dict[PieceIndex, np.ndarray]
    pairs: dict[tuple[PieceIndex, PieceIndex], np.ndarray]


def of_pieces(scene: Scene) -> OfPieces:
    """The friction of a scene's contacts."""
    coefficients = of_scene(scene)
    if coefficients.ndim == 1:
        return OfPieces({}, {})
    found: dict[PieceIndex, np.ndarray] = {}
    asked = list(zip(scene.pairs, coefficients, strict=True))
    # No piece may have more than any of its pairs, and each of them as much as that allows.
    for pair, coefficient in asked:
        for piece in _both(pair):
            found[piece] = np.minimum(found.get(piece, np.inf), coefficient)
    others = {
        _both(pair): coefficient
        for pair, coefficient in asked
        if np.any(coefficient - np.maximum(*(found[piece] for piece in _both(pair))) > SAME)
    }
    return OfPieces(found, others)


def _both(pair: ContactPair) -> tuple[PieceIndex, PieceIndex]:
    return (pair.body_a, pair.piece_a), (pair.body_b, pair.piece_b)
