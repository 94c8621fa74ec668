"""Friction of pairs, as MuJoCo has it: of geoms, combined where two of them meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from silico_py.scene import ContactPair, Scene

SAME = 1e-9  # coefficients that differ by less are one

Piece = tuple[int | None, int]  # of a body, or of the environment (None)


def of_geoms(model: Any, pairs: np.ndarray) -> np.ndarray:
    """The coefficient of sliding friction of each of (pairs, 2) geoms.

    MuJoCo takes the geom of higher priority, or the larger of both; condim 1 is frictionless.
    """
    found = _combined(model, pairs, model.geom_friction[:, 0])
    return np.where(_combined(model, pairs, model.geom_condim) == 1, 0.0, found)


def _combined(model: Any, pairs: np.ndarray, value: np.ndarray) -> np.ndarray:
    first, second = pairs.T
    priority = model.geom_priority[first] - model.geom_priority[second]
    larger = np.maximum(value[first], value[second])
    return np.select([priority > 0, priority < 0], [value[first], value[second]], larger)


def in_common(coefficients: np.ndarray) -> float | list[float]:
    """All of them, or the one that they are."""
    known = coefficients.tolist()
    return known if np.ptp(coefficients) > SAME else known[0]


def of_pieces(scene: Scene) -> dict[Piece, float]:
    """A coefficient for each piece, of which that of a pair is the larger one.

    Pieces that may touch nothing are not among them, nor is any where one number holds for all.

    Raises:
        ValueError: for coefficients that are not to be had that way.
    """
    if not np.ndim(scene.friction):
        return {}
    found: dict[Piece, float] = {}
    asked = list(zip(scene.pairs, np.asarray(scene.friction, float).tolist(), strict=True))
    # No piece may have more than any of its pairs, and each of them as much as that allows.
    for pair, coefficient in asked:
        for piece in _both(pair):
            found[piece] = min(found.get(piece, np.inf), coefficient)
    for k, (pair, coefficient) in enumerate(asked):
        largest = max(found[piece] for piece in _both(pair))
        if coefficient - largest > SAME:
            raise ValueError(
                f"friction: MuJoCo takes the larger coefficient of the two geoms that meet, and "
                f"none that suit the other contacts give contact {k} {coefficient:g}: at most "
                f"{largest:g}"
            )
    return found


def _both(pair: ContactPair) -> tuple[Piece, Piece]:
    return (pair.body_a, pair.piece_a), (pair.body_b, pair.piece_b)
