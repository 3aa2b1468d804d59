"""Area under the ROC curve: how likely a positive item gets the higher score; a tie counts half.

`positive` has shape (M,), true for items that are; `scores` (M,) is how sure the model is of it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)

# Weights are drawn in blocks of about this many numbers; results do not depend on it.
BLOCK_SIZE = 2**22


class Placements(NamedTuple):
    """What each item adds: the share of the other kind that it is on the right side of."""

    positive: FloatArray
    negative: FloatArray


def auc(positive: NDArray[np.bool_], scores: FloatArray) -> float:
    """Area under the curve; NaN if all items are positive, or none is.

    >>> auc(np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    placements = _placements(positive, scores)
    if not len(placements.positive) or not len(placements.negative):
        return float("nan")
    return float(placements.positive.mean())


def delong_logit(
    positive: NDArray[np.bool_], scores: FloatArray, *, confidence_level: float
) -> Interval:
    """Interval on the logit scale with DeLong's variance [DDC88]_.

    Where positive and negative items are separated (or only one of either is there), the variance
    is 0 or unknown, and the limits are those of `newcombe`.
    """
    placements = _placements(positive, scores)
    n_positive, n_negative = (len(p) for p in placements)
    area = auc(positive, scores)
    if n_positive < 2 or n_negative < 2 or not 0 < area < 1:
        return newcombe(positive, scores, confidence_level=confidence_level)
    variance = sum(p.var(ddof=1) / len(p) for p in placements)
    half = normal_quantile(confidence_level) * np.sqrt(variance) / (area * (1 - area))
    middle = special.logit(area)
    return Interval(special.expit(middle - half), special.expit(middle + half))


def newcombe(
    positive: NDArray[np.bool_], scores: FloatArray, *, confidence_level: float
) -> Interval:
    """All areas that a z test with their own variance would not reject [New06]_ (method 5).

    Never of zero width. The variance is that of scores that follow exponential distributions,
    with both numbers of items replaced by their mean in the correction.
    """
    tail_probability(confidence_level)
    m, n = int(positive.sum()), int((~positive).sum())
    area = auc(positive, scores)
    if not m or not n:
        nothing = np.asarray(np.nan)
        return Interval(nothing, nothing)
    z, extra = normal_quantile(confidence_level), (m + n) / 2 - 1

    def upper(area: float) -> float:
        # In the logit, in which the limit can be as close to 1 as it will.
        def excess(logit: FloatArray, _: IntArray) -> tuple[FloatArray, FloatArray]:
            t, rest = special.expit(logit), special.expit(-logit)
            spread = 1 + extra * (rest / (2 - t) + t / (1 + t))
            error = z * np.sqrt(t * rest * spread / (m * n))
            slope_spread = extra * (1 / (1 + t) ** 2 - 1 / (2 - t) ** 2)
            slope_error = error / 2 * ((1 - 2 * t) + t * rest * slope_spread / spread)
            return t - area - error, t * rest - slope_error

        start = np.array([_logit(min(max(area, 0.01), 0.99)) + 1.0])
        root = increasing_root(excess, start, bracket=(_logit(area), 700.0), tolerance=1e-10)
        return float(np.asarray(special.expit(root))[0])

    low = 0.0 if area == 0 else 1 - upper(1 - area)
    high = 1.0 if area == 1 else upper(area)
    return Interval(np.asarray(low), np.asarray(high))


def bayesian_bootstrap(
    positive: NDArray[np.bool_],
    scores: FloatArray,
    *,
    confidence_level: float,
    rng: np.random.Generator,
    n_resamples: int,
) -> Interval:
    """Quantiles of the area with exponential weights on the items [Rub81]_.

    NaN where positive and negative items are separated: no weights change that.
    """
    tail = tail_probability(confidence_level)
    if not 0 < auc(positive, scores) < 1:
        nothing = np.asarray(np.nan)
        return Interval(nothing, nothing)
    order = np.argsort(scores, kind="stable")
    _, starts = np.unique(scores[order], return_index=True)
    is_positive = positive[order] * 1.0
    areas = np.empty(n_resamples)
    step = max(BLOCK_SIZE // len(scores), 1)
    for start in range(0, n_resamples, step):
        weights = rng.standard_exponential((min(step, n_resamples - start), len(scores)))
        above, below = (
            np.add.reduceat(weights * kind, starts, axis=1)
            for kind in (is_positive, 1 - is_positive)
        )
        lower = np.cumsum(below, axis=1) - below / 2
        areas[start : start + len(weights)] = (above * lower).sum(axis=1) / (
            above.sum(axis=1) * below.sum(axis=1)
        )
    low, high = np.quantile(areas, [tail, 1 - tail])
    return Interval(low, high)


def _logit(area: float) -> float:
    return float(special.logit(area)) if area > 0 else -700.0


def _placements(positive: NDArray[np.bool_], scores: FloatArray) -> Placements:
    if np.isnan(scores).any():
        raise ValueError("scores must not be missing")
    negatives, positives = np.sort(scores[~positive]), np.sort(scores[positive])

    def below(values: FloatArray, others: FloatArray) -> FloatArray:
        sides = [np.searchsorted(others, values, side=side) for side in ("left", "right")]  # type: ignore[call-overload]
        return (sides[0] + sides[1]) / (2 * max(len(others), 1))

    return Placements(below(scores[positive], negatives), 1 - below(scores[~positive], positives))
