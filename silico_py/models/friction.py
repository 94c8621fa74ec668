"""Friction of pairs, as MuJoCo has it: of geoms, combined where two of them meet."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from silico_py.scene import ContactPair, Scene

SAME = 1e-9  # coefficients that differ by less are one

Piece = tuple[int | None, int]  # of a body, or of the environment (None)


def of_geoms(model: Any, pairs: np.ndarray) -> np.ndarray:
    """The coefficient of sliding friction of each of (pairs, 2) geoms.

    MuJoCo takes that of an explicit pair, else of the geom of higher priority, or the larger of
    both; condim 1 is frictionless.
    """
    combined = _combined(model, pairs, model.geom_friction[:, 0])
    found = np.where(_combined(model, pairs, model.geom_condim) == 1, 0.0, combined)
    own = np.where(model.pair_dim == 1, 0.0, model.pair_friction[:, 0])
    both = zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True)
    known = dict(zip(map(frozenset, both), own.tolist(), strict=True))
    asked = map(frozenset, pairs.tolist())
    return np.array([known.get(pair, value) for pair, value in zip(asked, found, strict=True)])


def _combined(model: Any, pairs: np.ndarray, value: np.ndarray) -> np.ndarray:
    first, second = pairs.T
    priority = model.geom_priority[first] - model.geom_priority[second]
    larger = np.maximum(value[first], value[second])
    return np.select([priority > 0, priority < 0], [value[first], value[second]], larger)


def in_common(coefficients: np.ndarray) -> float | list[float]:
    """The coefficients, or the one that all of them are."""
    known = coefficients.tolist()
    return known if np.ptp(coefficients) > SAME else known[0]


class OfPieces(NamedTuple):
    """Coefficients as MuJoCo has them.

    Attributes:
        pieces: of which that of a pair is the larger one. Those that may touch nothing are not
            among them, nor is any where one number holds for all.
        pairs: what is not to be had that way.
    """

    pieces: dict[Piece, float]
    pairs: dict[tuple[Piece, Piece], float]


def of_pieces(scene: Scene) -> OfPieces:
    """The friction of a scene's contacts."""
    if not np.ndim(scene.friction):
        return OfPieces({}, {})
    found: dict[Piece, float] = {}
    asked = list(zip(scene.pairs, np.asarray(scene.friction, float).tolist(), strict=True))
    # No piece may have more than any of its pairs, and each of them as much as that allows.
    for pair, coefficient in asked:
        for piece in _both(pair):
            found[piece] = min(found.get(piece, np.inf), coefficient)
    others = {
        _both(pair): coefficient
        for pair, coefficient in asked
        if coefficient - max(found[piece] for piece in _both(pair)) > SAME
    }
    return OfPieces(found, others)


def _both(pair: ContactPair) -> tuple[Piece, Piece]:
    return (pair.body_a, pair.piece_a), (pair.body_b, pair.piece_b)
