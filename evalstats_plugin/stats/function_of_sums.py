"""A value that is a function of sums over units: intervals, and what two models' values differ by.

A unit is an item, or a cluster of items, that adds S numbers to the sums: its cell of a confusion
table, its n-grams, its loglikelihood and its words. `value` takes sums of shape (..., S) and
answers with shape (...). Units of models that are compared are the same, in the same order.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import special

from evalstats_plugin.stats.interval import FloatArray, IntArray, Interval, tail_probability
from evalstats_plugin.stats.mean import t_quantile

Value: TypeAlias = Callable[[FloatArray], FloatArray]

# Weights are drawn in blocks of about this many numbers; results do not depend on it.
BLOCK_SIZE = 2**22
# Differences that differ by no more than rounding errors are ties.
ROUNDING = 1e-12


def percentile(
    statistics: FloatArray,
    value: Value,
    *,
    confidence_level: float,
    rng: np.random.Generator,
    n_resamples: int,
) -> Interval:
    """Quantiles of the values of resamples of the units, `statistics` of shape (U, S) [ET93]_.

    NaN for fewer than two units, or where no resample differs from another.
    """
    tail = tail_probability(confidence_level)
    once = np.ones(len(statistics), dtype=np.int64)
    values = resampled(statistics[None], once, value, rng=rng, n_resamples=n_resamples)[:, 0]
    low, high = np.quantile(values, [tail, 1 - tail])
    return _where_wide(low, high)


def jackknife_t(statistics: FloatArray, value: Value, *, confidence_level: float) -> Interval:
    """Student's t interval with the jackknife standard error [ET93]_; the same shapes.

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
    """Limits from the values without each unit, of shape (..., U)."""
    n = int(without.shape[-1])
    if n < 2:
        nothing = np.full(estimate.shape, np.nan)
        return Interval(nothing, nothing)
    error = np.sqrt((n - 1) * without.var(axis=-1))
    half = t_quantile(np.asarray(n - 1.0), confidence_level=confidence_level) * error
    return _where_wide(estimate - half, estimate + half)


def jackknife_difference(
    difference: FloatArray, without: FloatArray, *, confidence_level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Limits of P differences, and how probable it is that each is positive.

    `without` has shape (P, U): the differences without each unit. The probability is that of the
    t distribution behind the limits; ½ if leaving a unit out never changes anything.
    """
    low, high = jackknife_limits(difference, without, confidence_level=confidence_level)
    n = int(without.shape[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        t = difference / np.sqrt((n - 1) * without.var(axis=-1))
    told_apart = np.isfinite(low)
    prob = special.stdtr(max(n - 1.0, 1.0), np.where(told_apart, t, 0.0))
    unknown = ~told_apart & (difference != 0)
    return low, high, np.where(unknown, np.nan, prob)


def resampled(
    statistics: FloatArray,
    counts: IntArray,
    value: Value,
    *,
    rng: np.random.Generator,
    n_resamples: int,
) -> FloatArray:
    """Values of N models on common resamples of their units, shape (B, N).

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


class Prior(NamedTuple):
    """What two models are taken to have answered before any data."""

    first: FloatArray
    """Shape (U, S), like `second`: statistics of units of both models."""
    second: FloatArray
    counts: FloatArray
    """Shape (U,): how often each is taken to have been seen."""


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
    """Second model's value minus the first's, under a Dirichlet posterior of the units.

    Parameters
    ----------
    statistics : shape (N, U, S)
    counts : shape (U,)
        How often each unit was seen.
    pairs : two of shape (P,)
        First and second models, by number.

    Returns
    -------
    Shape (B, P); the pairs' data have common weights.
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


def swap_p_values(
    statistics: FloatArray,
    counts: IntArray,
    pairs: tuple[IntArray, IntArray],
    value: Value,
    *,
    rng: np.random.Generator,
    n_swaps: int,
) -> FloatArray:
    """Two-sided p-values of differences by exchanging models on units at random [Nor89]_.

    If two models are alike, each one's answer could as well be the other's. What was seen counts
    as one of the assignments, and the pairs have common ones; 1 if two models never differ.

    Parameters
    ----------
    statistics : shape (N, U, S)
    counts : shape (U,)
        How often each unit was seen: every time is exchanged by itself.
    pairs : two of shape (P,)
    """
    a, b = pairs
    n_units, n_sums = statistics.shape[1:]
    step = max(BLOCK_SIZE // max(n_units * n_sums, 1), 1)
    parts = [
        _swapped(
            statistics[a[i : i + step]],
            statistics[b[i : i + step]],
            counts,
            value,
            rng=np.random.default_rng(seed),
            n_swaps=n_swaps,
        )
        for seed in [rng.integers(2**63)]
        for i in range(0, len(a), step)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _swapped(
    first: FloatArray,
    second: FloatArray,
    counts: IntArray,
    value: Value,
    *,
    rng: np.random.Generator,
    n_swaps: int,
) -> FloatArray:
    """P-values of some pairs, from the statistics of both models, shape (P, U, S)."""
    n_pairs, n_units, n_sums = first.shape
    sums = [np.einsum("pus,u->ps", x, counts * 1.0) for x in (first, second)]
    seen = np.abs(value(sums[1]) - value(sums[0]))
    change = (second - first).transpose(1, 0, 2).reshape(n_units, n_pairs * n_sums)
    as_far = np.ones(n_pairs)
    step = max(BLOCK_SIZE // max(n_units, n_pairs * n_sums), 1)
    for start in range(0, n_swaps, step):
        size = min(step, n_swaps - start)
        swaps = rng.binomial(counts, 0.5, size=(size, n_units)).astype(np.float64)
        moved = (swaps @ change).reshape(size, n_pairs, n_sums)
        differences = np.abs(value(sums[1] - moved) - value(sums[0] + moved))
        # A swap that makes a value 0/0 is no reason to believe in a difference: it counts.
        as_far += (~(differences < seen - ROUNDING * (1 + seen))).sum(axis=0)
    return np.where(np.isnan(seen), np.nan, as_far / (n_swaps + 1))


def _where_wide(low: FloatArray, high: FloatArray) -> Interval:
    """Limits that differ; an interval without width says nothing."""
    wide = high - low > ROUNDING * (1 + np.abs(low))
    return Interval(np.where(wide, low, np.nan), np.where(wide, high, np.nan))
