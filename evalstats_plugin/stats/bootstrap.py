"""Bootstrap intervals for a mean, by resampling items [ET93]_. Kept to compare with.

`scores` has shape (..., M), NaN where missing. Limits are NaN where the bootstrap has nothing to
say: fewer than two scores, or all equal (its interval would have no width). With few scores these
intervals are too short, as the studies under `tests/validation` show.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import FloatArray, Interval, tail_probability
from evalstats_plugin.stats.mean import moments

# Resamples are drawn in blocks of about this many numbers, which stay in the processor's cache;
# results do not depend on it.
BLOCK_SIZE = 2**18


def percentile(
    scores: ArrayLike, *, confidence_level: float, rng: np.random.Generator, n_resamples: int
) -> Interval:
    """Quantiles of the resampled means."""
    tail = tail_probability(confidence_level)
    cells = _cells(scores)
    means, _ = _resample(cells, rng, n_resamples)
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return _where_spread(low, high, scores)


def bca(
    scores: ArrayLike, *, confidence_level: float, rng: np.random.Generator, n_resamples: int
) -> Interval:
    """Quantiles of the resampled means, at levels corrected for bias and skew."""
    score = special.ndtri(tail_probability(confidence_level))
    cells = _cells(scores)
    mean = moments(cells).mean
    means, _ = _resample(cells, rng, n_resamples)
    share_below: FloatArray = ((means < mean).mean(axis=0) + (means <= mean).mean(axis=0)) / 2
    deviations = np.where(np.isnan(cells), 0.0, cells - mean[:, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        bias: FloatArray = special.ndtri(share_below)
        # The jackknife's values of a mean deviate from theirs as the scores do, with opposite sign.
        acceleration: FloatArray = (deviations**3).sum(axis=1) / (
            6 * (deviations**2).sum(axis=1) ** 1.5
        )
        levels = [
            special.ndtr(bias + (bias + z) / (1 - acceleration * (bias + z)))
            for z in (score, -score)
        ]
    low, high = (_column_quantiles(means, level) for level in levels)
    return _where_spread(low, high, scores)


def studentised(
    scores: ArrayLike, *, confidence_level: float, rng: np.random.Generator, n_resamples: int
) -> Interval:
    """Quantiles of the resampled t statistics, in units of the standard error.

    A resample whose scores are all equal has a t of ±∞. Where so many do that a limit is not
    finite, the limits are NaN.
    """
    tail = tail_probability(confidence_level)
    cells = _cells(scores)
    n, mean, std = moments(cells)
    means, stds = _resample(cells, rng, n_resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = (means - mean) / (stds / np.sqrt(n))
        # 0/0: the resample hit the mean itself, without spread.
        statistics = np.where(np.isnan(statistics), 0.0, statistics)
        low_t, high_t = np.quantile(statistics, [tail, 1 - tail], axis=0, method="inverted_cdf")
        low, high = mean - high_t * std / np.sqrt(n), mean - low_t * std / np.sqrt(n)
    finite = np.isfinite(low_t) & np.isfinite(high_t)
    return _where_spread(np.where(finite, low, np.nan), np.where(finite, high, np.nan), scores)


def _cells(scores: ArrayLike) -> FloatArray:
    """Shape (C, M), the scores of each cell first and NaN after them."""
    values = np.asarray(scores, dtype=np.float64)
    return np.sort(values.reshape(int(np.prod(values.shape[:-1])), values.shape[-1]), axis=1)


def _resample(
    cells: FloatArray, rng: np.random.Generator, n_resamples: int
) -> tuple[FloatArray, FloatArray]:
    """Means and standard deviations of resamples, shape (B, C)."""
    n = (~np.isnan(cells)).sum(axis=1)[:, None]
    missing = np.isnan(cells)
    means, stds = np.empty((2, n_resamples, len(cells)))
    step = max(BLOCK_SIZE // max(cells.size, 1), 1)
    for start in range(0, n_resamples, step):
        stop = min(start + step, n_resamples)
        chosen = (rng.random((stop - start, *cells.shape)) * n).astype(np.int64)
        drawn = np.take_along_axis(cells[None], chosen, axis=2)
        _, means[start:stop], stds[start:stop] = moments(np.where(missing, np.nan, drawn))
    return means, stds


def _column_quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantile of each column at its own level; NaN where the level is."""
    position = np.where(np.isnan(levels), 0.0, levels) * (len(values) - 1)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    ordered = np.sort(values, axis=0)
    column = np.indices(levels.shape)[0]
    share = position - below
    quantiles = (1 - share) * ordered[below, column] + share * ordered[above, column]
    return np.where(np.isnan(levels), np.nan, quantiles)


def _where_spread(low: FloatArray, high: FloatArray, scores: ArrayLike) -> Interval:
    """Limits of the cells whose scores differ, in the shape of the leading axes."""
    std = moments(scores).std
    limits = [np.where(std > 0, limit.reshape(std.shape), np.nan) for limit in (low, high)]
    return Interval(*limits)
