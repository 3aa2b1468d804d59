"""Does each item behave as the fitted model says? Mean squares and item–total correlations.

Formulas take arrays of N models × M items and allow missing cells; `item_fit` is the table of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.factor_fit import FactorFit
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    import pandas as pd

# Wilson and Hilferty's cube root is no use for wider distributions; R's mirt stops here as well.
_WIDEST = 2**0.5


class Cells(NamedTuple):
    """Answers and what the fit expected of them; each of shape (N, M)."""

    right: FloatArray
    """Sum of the scores of the epochs."""
    trials: FloatArray
    """Epochs scored; 0 where the cell is missing."""
    probability: FloatArray
    """P(right) of one trial."""

    @property
    def variance(self) -> FloatArray:
        """Of `right`: Binomial, n p (1 - p)."""
        return self.trials * self.probability * (1 - self.probability)

    @property
    def residual(self) -> FloatArray:
        """Answers above expectation, 0 where the cell is missing."""
        return self.right - self.trials * self.probability


class MeanSquares(NamedTuple):
    """How much noisier answers are than the model says: 1 is as expected [WM82]_.

    The z values are nearly standard normal where the model holds.
    """

    outfit: FloatArray
    """Every answer counts the same: rare answers far from one's level stand out."""
    outfit_z: FloatArray
    infit: FloatArray
    """Answers count by their information."""
    infit_z: FloatArray


class ItemTotals(NamedTuple):
    """Correlations of item scores with the models' mean scores, each of shape (M,)."""

    item_total: FloatArray
    """Point-biserial where scores are 0 and 1."""
    item_rest: FloatArray
    """Corrected: the item itself is not in the mean."""


def cells_of(fit: IRTFit | FactorFit, matrix: ResponseMatrix) -> Cells:
    """Put the answers beside what the fit expects.

    Raises
    ------
    DesignError
        The matrix has other models or items than the fit, or has them in another order.
    """
    _check_same("models", fit.models, matrix.models)
    both = (
        [f"{task}/{item}" for task, item in zip(part.tasks, part.item_ids, strict=True)]
        for part in (fit, matrix)
    )
    _check_same("items", *map(tuple, both))
    trials = (~np.isnan(matrix.scores)).sum(axis=2, dtype=np.float64)
    # Residuals are from what the estimates say.
    expected = fit.predict(plug_in=True) if isinstance(fit, IRTFit) else fit.predict()
    return Cells(np.nansum(matrix.scores, axis=2), trials, expected)


def _check_same(what: str, expected: tuple[str, ...], found: tuple[str, ...]) -> None:
    if expected == found:
        return
    odd = [
        name for name in dict.fromkeys(found + expected) if (name in found) != (name in expected)
    ]
    seen = f": only one of them has {few(odd)}" if odd else ", in another order"
    msg = (
        f"the matrix has {len(found)} {what} and the fit has {len(expected)}{seen}; expected the "
        "matrix that was fitted. For new models score_models(fit, matrix) gives a fit of them"
    )
    raise DesignError(msg)


def mean_squares(cells: Cells, axis: int = 0) -> MeanSquares:
    """Infit and outfit of items (``axis=0``) or of models (``axis=1``) [WM82]_.

    Cells with P(right) of exactly 0 or 1 are left out, as are missing ones: no answer there could
    be a surprise. NaN where nothing is left.
    """
    variance = cells.variance
    used = variance > 0
    safe = np.where(used, variance, 1.0)
    square = np.where(used, cells.residual**2, 0.0)
    # Of a Binomial: the fourth central moment is v (1 + 3 v - 6 p (1 - p)).
    fourth = variance * (1 + 3 * variance - 6 * cells.probability * (1 - cells.probability))
    count, total = used.sum(axis=axis), variance.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        outfit = (square / safe).sum(axis=axis) / count
        outfit_spread = (np.where(used, fourth, 0) / safe**2).sum(axis=axis) / count**2 - 1 / count
        infit = square.sum(axis=axis) / total
        infit_spread = (fourth - variance**2).sum(axis=axis) / total**2
        return MeanSquares(
            outfit, _cube_root_z(outfit, outfit_spread), infit, _cube_root_z(infit, infit_spread)
        )


def _cube_root_z(mean_square: FloatArray, variance: FloatArray) -> FloatArray:
    """Wilson and Hilferty's transformation to a normal variable."""
    spread = np.minimum(np.sqrt(np.maximum(variance, 0)), _WIDEST)
    return (np.cbrt(mean_square) - 1) * 3 / spread + spread / 3


def item_totals(right: FloatArray, trials: FloatArray) -> ItemTotals:
    """Correlate each item with the mean score of all items, and of the others.

    Where cells are missing, a model's mean is over the items it took. NaN where nothing varies.

    >>> right = np.array([[1.0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
    >>> print(np.round(item_totals(right, np.ones((4, 3))).item_rest, 3))
    [0.522 0.707 0.522]
    """
    there = trials > 0
    score = np.where(there, right / np.where(there, trials, 1), 0.0)
    total, count = score.sum(axis=1, keepdims=True), there.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = (total - score) / (count - there)
        mean = np.broadcast_to(total / count, score.shape)
        return ItemTotals(_correlation(score, mean, there), _correlation(score, rest, there))


def _correlation(x: FloatArray, y: FloatArray, there: np.ndarray) -> FloatArray:
    """Of the columns, over the cells that are there."""
    there = there & np.isfinite(y)
    count = there.sum(axis=0)
    x, y = (np.where(there, v - np.where(there, v, 0).sum(axis=0) / count, 0) for v in (x, y))
    # Rounding errors of what does not vary must not pass for variation.
    spread = [np.where(s := (v * v).sum(axis=0), s, np.nan) for v in (x, y)]
    tiny = [s <= 1e-24 * count for s in spread]
    return np.where(tiny[0] | tiny[1], np.nan, (x * y).sum(axis=0) / np.sqrt(spread[0] * spread[1]))


def item_fit(fit: IRTFit, matrix: ResponseMatrix) -> pd.DataFrame:
    """One line per item: how often taken, how hard, and how it fits.

    Parameters
    ----------
    fit
        Of the same models and items as the matrix.
    """
    import pandas as pd

    cells = cells_of(fit, matrix)
    with np.errstate(invalid="ignore"):
        mean = cells.right.sum(axis=0) / cells.trials.sum(axis=0)
    return pd.DataFrame(
        {
            "item": fit.item_ids,
            "task": fit.tasks,
            "n_models": (cells.trials > 0).sum(axis=0),
            "mean": mean,
            **mean_squares(cells)._asdict(),
            **item_totals(cells.right, cells.trials)._asdict(),
        }
    )
