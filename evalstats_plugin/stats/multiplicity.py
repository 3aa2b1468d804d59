"""Many comparisons at once: p-values adjusted so that few, or none, of the findings are false.

`p_values` has shape (..., P), the comparisons of one family along the last axis. NaN stands for a
comparison that was not made: it stays NaN and does not count.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjust so that hardly ever is any of the findings false, whatever their dependence [Hol79]_.

    >>> print(np.round(holm([0.01, 0.04, 0.03, 0.005]), 3))
    [0.03 0.06 0.06 0.02]
    """

    def step_down(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        return np.maximum.accumulate((n - rank + 1) * ordered, axis=-1)

    return _adjusted(p_values, step_down)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Adjust so that on average few of the findings are false [BH95]_.

    >>> print(np.round(benjamini_hochberg([0.01, 0.04, 0.03, 0.005]), 3))
    [0.02 0.04 0.04 0.02]
    """

    def step_up(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        scaled = np.where(np.isnan(ordered), np.inf, n * ordered / rank)
        return np.minimum.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]

    return _adjusted(p_values, step_up)


def sidak_level(confidence_level: float, n_comparisons: int) -> float:
    """Level of each of n intervals that hold all true values at once [Sid67]_.

    For any dependence of two-sided intervals about normal estimates.

    >>> round(sidak_level(0.95, 45), 5)
    0.99886
    """
    return float(confidence_level ** (1 / max(n_comparisons, 1)))


def _adjusted(
    p_values: ArrayLike, adjust: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Adjust p-values in ascending order, given their ranks and how many there are."""
    values: FloatArray = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    rank = np.arange(1.0, values.shape[-1] + 1)
    n = (~np.isnan(values)).sum(axis=-1, keepdims=True).astype(np.float64)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, np.minimum(adjust(ordered, rank, n), 1.0), axis=-1)
    return np.where(np.isnan(values), np.nan, adjusted)
