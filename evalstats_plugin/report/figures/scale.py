"""The scale that models and items share, as figures show it."""

from __future__ import annotations

from typing import Any

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.interval import FloatArray

FARTHEST = 8.0
"""Logits from the middle of the scale beyond which nothing is drawn."""


def check_one_ability(fit: Any) -> None:
    """Raise where a model has several abilities.

    Raises
    ------
    DesignError
        It has, or this is no fit.
    """
    if getattr(fit, "item_model", None) == "factor" or not hasattr(fit, "difficulty"):
        what = getattr(fit, "item_model", type(fit).__name__)
        msg = f"a fit of {what} found, expected one with one ability for each model"
        raise DesignError(msg)


def span(fit: Any, n: int = 201) -> FloatArray:
    """Return n abilities from the left to the right of where models and most items are."""
    ability = fit.ability[np.isfinite(fit.ability)]
    difficulty = fit.difficulty[np.isfinite(fit.difficulty)]
    most = np.quantile(difficulty, [0.05, 0.95]) if len(difficulty) else difficulty
    ends: list[float] = [*ability.tolist(), *most.tolist()]
    middle = float(np.median(ends)) if ends else 0.0
    low, high = (min(ends), max(ends)) if ends else (-1.0, 1.0)
    low, high = max(low - 1, middle - FARTHEST), min(high + 1, middle + FARTHEST)
    return np.linspace(low, high, n)


def spread_out(wanted: FloatArray, apart: FloatArray) -> FloatArray:
    """Move labels as little as possible so that none overlaps the next.

    Parameters
    ----------
    wanted : shape (n,), increasing
        Where each should stand.
    apart : shape (n,)
        Room that each takes.

    Returns
    -------
    FloatArray
        Where each stands: neighbours at least half the room of both apart. Sums of squares of the
        moves are least.

    >>> spread_out(np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.0, 1.0])).tolist()
    [-0.5, 0.5, 5.0]
    """
    steps = np.concatenate([[0.0], np.cumsum((apart[1:] + apart[:-1]) / 2)])
    # Less the room before it, a place only must not be left of the one before: isotonic regression.
    blocks: list[tuple[float, int]] = []
    for value in (wanted - steps).tolist():
        mean, size = value, 1
        while blocks and blocks[-1][0] >= mean:
            before, many = blocks.pop()
            mean, size = (before * many + mean * size) / (many + size), many + size
        blocks.append((mean, size))
    means, sizes = zip(*blocks, strict=True) if blocks else ((), ())
    return np.repeat(np.array(means, dtype=np.float64), sizes) + steps
