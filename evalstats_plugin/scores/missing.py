"""Missing scores that lie between known bounds: limits that hold whatever they would have been."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.data.results import finite
from evalstats_plugin.scores.cells import Cell, Missing
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import imbens_manski_level


def open_level(width: ArrayLike, error: ArrayLike, level: float) -> FloatArray:
    """Level of each end's interval where scores are missing, a little more than necessary.

    Rounded up, so that thousands of scores have few levels.
    """
    reached = imbens_manski_level(width, error, confidence_level=level)
    return level - np.floor((level - reached) * 1000 + 1e-9) / 1000


def n_open(cell: Cell) -> int:
    """Items without a score whose score is known to lie between bounds."""
    is_mean = cell.kind in ("binary", "bounded") and cell.composite is None
    return len(cell.responses.item_ids) - cell.n if is_mean and len(cell.values) else 0


def of_all(row: ScoreInterval, worst: float, n: int) -> ScoreInterval:
    """Say what the score is of all items, where it differs from that of those answered."""
    if row.estimate is None or row.low is None or row.high is None or row.low <= worst <= row.high:
        return row
    note = (
        f"of the {row.n_items} items with a score {row.estimate:.3f}; of all {n}, the others "
        f"counting as wrong, {worst:.3f}"
    )
    return replace(row, notes=(*row.notes, note))


def with_open(row: ScoreInterval, low: float, high: float, missing: Missing) -> ScoreInterval:
    """Add limits that hold whatever the missing scores, or take them for the interval itself."""
    row = replace(row, missing_low=finite(low), missing_high=finite(high))
    if row.missing_low is None or row.missing_high is None:
        return row
    if missing == "bounds":
        note = "the interval holds whatever the items without a score would have had"
        return replace(
            row, low=row.missing_low, high=row.missing_high, method=f"{row.method}+bounds",
            notes=(*row.notes, note),
        )  # fmt: skip
    note = f"whatever their scores: {row.missing_low:.3f} to {row.missing_high:.3f}"
    return replace(row, notes=(*row.notes, note))
