"""Many comparisons at once: p-values adjusted so that few, or none, of the findings are false.

`p_values` has shape (..., P), the comparisons of one family along the last axis. NaN stands for a
comparison that was not made: it stays NaN and does not count.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.paired_scores import BLOCK_SIZE, ROUNDING, random_signs


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


def max_t(differences: ArrayLike, *, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """Step-down p-values from the largest of all statistics under common sign flips [WY93]_.

    Like `holm` it keeps the probability of any false finding, but it makes use of how the
    comparisons depend on each other, and so finds more.

    Parameters
    ----------
    differences : shape (P, M)
        Of the pairs of one family on the same items, NaN where an item lacks a score.
    n_flips
        Assignments of signs to the items that are drawn; what was seen counts as one more.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    empty = np.isnan(values).all(axis=1)
    values = np.where(np.isnan(values), 0.0, values)
    size = np.sqrt((values**2).sum(axis=1))
    values = values / np.where(size > 0, size, 1.0)[:, None]
    observed = np.abs(values.sum(axis=1))
    order = np.argsort(-observed, kind="stable")
    values, ordered = values[order], observed[order, None] - ROUNDING
    count = np.ones(len(values))
    step = max(BLOCK_SIZE // max(values.shape), 1)
    for start in range(0, n_flips, step):
        flipped = np.abs(values @ random_signs(rng, values.shape[1], min(step, n_flips - start)))
        # For each comparison, the largest statistic among it and those that stand out less.
        largest = np.maximum.accumulate(flipped[::-1], axis=0)[::-1]
        count += (largest >= ordered).sum(axis=1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(count / (n_flips + 1))
    return np.where(empty, np.nan, adjusted)


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
