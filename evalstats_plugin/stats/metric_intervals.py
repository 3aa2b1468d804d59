"""Intervals and tests for the metrics of `metrics`: F1, MCC, AUC, BLEU and other non-means.

* any function of sums over units: `percentile_bootstrap`, `jackknife_t`, `kurtosis`; for two
  models on the same units `jackknife_difference`, `resampled`, `posterior_differences`
* confusion tables: `wilson_f1`, `dirichlet_f1`, `dirichlet_interval`, `prior_of_pairs`
* area under the ROC curve: `auc_newcombe`

`statistics` has shape (..., U, S): what each unit adds to each of the S sums.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import Interval, normal_quantile, tail_probability
from evalstats_plugin.stats.means import t_prob_positive, t_quantile
from evalstats_plugin.stats.metrics import CONFUSION_METRICS, Value, auc

# Weights are drawn in blocks of about this many numbers. Bootstraps do not depend on it; posteriors
# that need more do, as each block draws for its tables, or for data and prior, in turn.
BLOCK_SIZE = 2**22

# Values that differ by no more than rounding errors are ties.
ROUNDING = 1e-12

_HALVINGS = 60


def percentile_bootstrap(
    statistics: FloatArray,
    value: Value,
    *,
    confidence_level: float,
    rng: np.random.Generator,
    n_resamples: int,
) -> Interval:
    """Percentile bootstrap over units, `statistics` of shape (U, S) [ET93]_.

    NaN for fewer than two units, or where no resample differs from another.
    """
    tail = tail_probability(confidence_level)
    once = np.ones(len(statistics), dtype=np.int64)
    values = resampled(statistics[None], once, value, rng=rng, n_resamples=n_resamples)[:, 0]
    low, high = np.quantile(values, [tail, 1 - tail])
    return _where_wide(low, high)


def resampled(
    statistics: FloatArray,
    counts: IntArray,
    value: Value,
    *,
    rng: np.random.Generator,
    n_resamples: int,
) -> FloatArray:
    """Values of N models on common bootstrap resamples of their units, shape (B, N).

    Parameters
    ----------
    statistics : shape (N, U, S)
    counts : shape (U,)
        How often each unit was seen.
    """
    n_models, n_units, n_sums = statistics.shape
    columns = statistics.transpose(1, 0, 2).reshape(n_units, n_models * n_sums)
    values = np.empty((n_resamples, n_models))
    unit_of: IntArray = np.repeat(np.arange(n_units, dtype=np.int64), counts)
    step = max(BLOCK_SIZE // max(len(unit_of), n_models * n_sums), 1)
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        drawn = unit_of[rng.integers(0, len(unit_of), size=(size, len(unit_of)))]
        drawn += np.arange(size)[:, None] * n_units
        weights = np.bincount(drawn.ravel(), minlength=size * n_units).reshape(size, n_units)
        sums = (weights.astype(np.float64) @ columns).reshape(size, n_models, n_sums)
        values[start : start + size] = value(sums)
    return values


def jackknife_t(statistics: FloatArray, value: Value, *, confidence_level: float) -> Interval:
    """Student's t interval with the jackknife standard error [ET93]_, from shape (..., U, S).

    NaN for fewer than two units, or where leaving one out changes nothing.
    """
    estimate = value(statistics.sum(axis=-2))
    return jackknife_limits(
        estimate, leave_one_out(statistics, value), confidence_level=confidence_level
    )


def leave_one_out(statistics: FloatArray, value: Value) -> FloatArray:
    """Value without each unit in turn, shape (..., U) from (..., U, S)."""
    # Sums of whole numbers stay exact, others may fall below 0 by rounding.
    left = statistics.sum(axis=-2, keepdims=True) - statistics
    return value(left)


def jackknife_limits(
    estimate: FloatArray, without: FloatArray, *, confidence_level: float
) -> Interval:
    """Student's t limits from the leave-one-out values, of shape (..., U)."""
    n = int(without.shape[-1])
    if n < 2:
        nothing = np.full(estimate.shape, np.nan)
        return Interval(nothing, nothing)
    error = np.sqrt((n - 1) * without.var(axis=-1))
    half = t_quantile(np.asarray(n - 1.0), confidence_level=confidence_level) * error
    return _where_wide(estimate - half, estimate + half)


def kurtosis(without: FloatArray) -> FloatArray:
    """Kurtosis (3 of a normal distribution) of the leave-one-out values, of shape (..., U)."""
    centred = without - without.mean(axis=-1, keepdims=True)
    return (centred**4).mean(axis=-1) / (centred**2).mean(axis=-1) ** 2


def jackknife_difference(
    difference: FloatArray, without: FloatArray, *, confidence_level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Limits of P differences, and the probability that each is positive.

    `without` has shape (P, U): the differences without each unit. The probability is that of the
    t distribution behind the limits. Where leaving a unit out never changes anything it is ½ for a
    difference of 0, else NaN.
    """
    low, high = jackknife_limits(difference, without, confidence_level=confidence_level)
    n = int(without.shape[-1])
    error = np.where(np.isfinite(low), np.sqrt((n - 1) * without.var(axis=-1)), 0.0)
    return low, high, t_prob_positive(difference, error, np.asarray(max(n - 1.0, 1.0)))


def _where_wide(low: FloatArray, high: FloatArray) -> Interval:
    """NaN where an interval has no width, which means that the resamples never differed."""
    wide = ~np.isclose(high, low, rtol=ROUNDING, atol=ROUNDING)
    return Interval(np.where(wide, low, np.nan), np.where(wide, high, np.nan))


class Prior(NamedTuple):
    """Prior pseudo-counts of units that two models answer together."""

    first: FloatArray
    """Shape (U, S), like `second`: statistics of the prior's units under each model."""
    second: FloatArray
    counts: FloatArray
    """Shape (U,): prior count of each unit."""


def posterior_differences(
    statistics: FloatArray,
    counts: FloatArray,
    pairs: tuple[IntArray, IntArray],
    prior: Prior,
    value: Value,
    *,
    rng: np.random.Generator,
    n_resamples: int,
) -> FloatArray:
    """Draws of second model's value minus the first's from a Dirichlet posterior over units.

    Parameters
    ----------
    statistics : shape (N, U, S)
    counts : shape (U,)
        How often each unit was seen.
    pairs : two of shape (P,)
        Indices of the first and the second models.

    Returns
    -------
    Shape (B, P); all pairs share the weights of the data.
    """
    n_models, n_units, n_sums = statistics.shape
    columns = statistics.transpose(1, 0, 2).reshape(n_units, n_models * n_sums)
    a, b = pairs
    differences = np.empty((n_resamples, len(a)))
    step = max(BLOCK_SIZE // max(n_units, max(n_models, len(a)) * n_sums), 1)
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        weights = rng.standard_gamma(counts, size=(size, n_units))
        before = rng.standard_gamma(prior.counts, size=(size, len(prior.counts)))
        sums = (weights @ columns).reshape(size, n_models, n_sums)
        first = sums[:, a] + (before @ prior.first)[:, None]
        second = sums[:, b] + (before @ prior.second)[:, None]
        differences[start : start + size] = value(second) - value(first)
    return differences


def wilson_f1(true_positives: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Interval of F1 by the score interval of a proportion [Wil27]_.

    F1 = 2r/(1 + r), where r is the share of true positives among the `n` items that are positive
    or predicted to be positive. NaN where `n` is 0.

    >>> low, high = wilson_f1(35, 50, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.7200 0.8944
    """
    return _f1_of_share(bounded.wilson(true_positives, n, confidence_level=confidence_level))


def dirichlet_f1(
    true_positives: ArrayLike, n: ArrayLike, *, confidence_level: float, prior: float
) -> Interval:
    """Interval of F1 from the Dirichlet posterior of the table, in closed form [BAI25]_.

    With `prior` on each of the four cells, r as in `wilson_f1` is Beta(tp + a, fp + fn + 2a).
    Equal tails, so that F1 = 1 is left out where all items are right.
    """
    share = bounded.beta_equal_tailed(
        true_positives, n, confidence_level=confidence_level, prior=(prior, 2 * prior)
    )
    return _f1_of_share(share)


def _f1_of_share(share: Interval) -> Interval:
    low, high = (2 * r / (1 + r) for r in share)
    return Interval(low, high)


def dirichlet_interval(
    tables: FloatArray,
    *,
    metric: str,
    prior: float,
    confidence_level: float,
    rng: np.random.Generator,
    n_resamples: int,
) -> Interval:
    """Equal-tailed interval of a confusion metric from draws of the table's Dirichlet posterior.

    Parameters
    ----------
    tables : shape (C, K, K)
        Counts.
    metric
        A name of `CONFUSION_METRICS`.
    prior
        Counts added to each row: half of them to its right cell, half spread over the wrong ones,
        so that 1 is Jeffreys' prior of the row where there are two labels. A row without counts
        gets none: a label that is never gold stays so.

    Notes
    -----
    A prior spread evenly over the cells of a row would put a model's prior accuracy with K labels
    at 1/K, and the intervals too low. Limits that would leave out the estimate (no mistakes at
    all) are moved to it.
    """
    tail = tail_probability(confidence_level)
    function, n_labels = CONFUSION_METRICS[metric], tables.shape[-1]
    right = np.eye(n_labels)
    per_row = prior * (right + (1 - right) / max(n_labels - 1, 1)) / 2
    shapes = tables + np.where(tables.sum(axis=-1, keepdims=True) > 0, per_row, 0.0)
    step = max(BLOCK_SIZE // (n_resamples * n_labels**2), 1)
    limits = [
        np.quantile(
            function(rng.standard_gamma(block, size=(n_resamples, *block.shape))),
            [tail, 1 - tail],
            axis=0,
        )
        for block in (shapes[i : i + step] for i in range(0, len(shapes), step))
    ]
    low, high = np.concatenate([np.zeros((2, 0)), *limits], axis=1)
    estimate = function(tables)
    return Interval(np.fmin(low, estimate), np.fmax(high, estimate))


def prior_of_pairs(table: FloatArray, *, prior: float) -> Prior:
    """Prior of `posterior_differences` for two models that label the same items.

    For each gold label seen, a count of `prior` each on both right, only the first, only the
    second, and neither; wrong answers are spread evenly over the wrong labels.

    Parameters
    ----------
    table : shape (K, K)
        Counts of either model; the row sums show which gold labels were seen.
    """
    n_labels = len(table)
    right = np.eye(n_labels)
    wrong = (1 - right) / max(n_labels - 1, 1)
    seen = table.sum(axis=1) > 0

    def rows(cells: FloatArray) -> FloatArray:
        """One flat table per gold label, whose row of that label holds the answers."""
        return (right[:, :, None] * cells[:, None, :])[seen].reshape(-1, n_labels**2)

    first = np.concatenate([rows(x) for x in (right, right, wrong, wrong)])
    second = np.concatenate([rows(x) for x in (right, wrong, right, wrong)])
    return Prior(first, second, np.full(len(first), prior))


def auc_newcombe(positive: BoolArray, scores: FloatArray, *, confidence_level: float) -> Interval:
    """Score interval of the area: all areas that a z test does not reject [New06]_ (method 5).

    Never of zero width. The variance is that of exponentially distributed scores, with both
    numbers of items replaced by their mean in the correction.
    """
    tail_probability(confidence_level)
    m, n = int(positive.sum()), int((~positive).sum())
    area = auc(positive, scores)
    if not m or not n:
        nothing = np.asarray(np.nan)
        return Interval(nothing, nothing)
    z, extra = normal_quantile(confidence_level), (m + n) / 2 - 1

    def upper(area: float) -> float:
        # On the logit scale, where the limit may come arbitrarily close to 1.
        below, above = -700.0, 700.0
        for _ in range(_HALVINGS):
            logit = (below + above) / 2
            t, rest = float(special.expit(logit)), float(special.expit(-logit))
            spread = 1 + extra * (rest / (2 - t) + t / (1 + t))
            inside = t - area <= z * math.sqrt(t * rest * spread / (m * n))
            below, above = (logit, above) if inside else (below, logit)
        return float(special.expit(below))

    low = 0.0 if area == 0 else 1 - upper(1 - area)
    high = 1.0 if area == 1 else upper(area)
    return Interval(np.asarray(low), np.asarray(high))
