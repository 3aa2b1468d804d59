"""Human labels of a few items and a judge's scores of many: prediction-powered means [ABF23]_.

* `cross_fitted`: labels corrected by the judge, for any analysis of means of items [ADZ23]_
* `ppi`: the means of models with their intervals
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, as_floats
from evalstats_plugin.stats.clustered import by_cluster, cluster_moments
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.survey.regression import (
    Adjusted,
    adjusted_bounded_interval,
    adjusted_t_interval,
)


class CrossFitted(NamedTuple):
    """Labels of N models, each with what a judge says of it and of all others taken into account.

    The mean of a model's labelled items is its prediction-powered estimate, and they vary as that
    does: any analysis of means of items is one of the estimates.
    """

    scores: FloatArray
    """Shape (N, M): NaN where an item has no label."""
    slope: FloatArray
    """Shape (N,): weight of the judge, on average over the items."""
    explained: FloatArray
    """Shape (N,): variance of the estimate that is the judge's mean's; 0 for these items."""
    n: FloatArray
    """Shape (N,): labelled items."""
    population: FloatArray
    """Shape (N,): judged items."""


def cross_fitted(
    labels: ArrayLike,
    judged: ArrayLike,
    *,
    clusters: IntArray | None = None,
    probabilities: ArrayLike | None = None,
    finite: bool = False,
    shared: bool = False,
) -> CrossFitted:
    """Return labels corrected by a judge's scores of all items (PPI++ [ADZ23]_ with cross-fitting).

    With λ₋ⱼ the slope of labels on judge without item j (or its cluster), f̄ the judge's mean of all
    N items and n labels, item j is yⱼ - λ₋ⱼ (fⱼ - f̄), whose mean is unbiased and whose spread is
    that of items that had no part in the slope [ZC24]_. That the N items are a sample themselves
    adds √(n/N) of what the judge explains; with labels of all items it is the label.

    Parameters
    ----------
    labels, judged : shape (N, M)
        NaN where there is none. A label counts only where the judge has scored too.
    clusters : shape (M,)
        Of the items, by number.
    probabilities : shape (N, M)
        With which each item was chosen for a label; equal where None.
    finite
        For the mean of these N items, where only the unlabelled are uncertain, not of items like
        these.
    shared
        One slope for all models, of differences between them on the same items: what is optimal for
        comparing them, where most items are labelled for several.
    """
    y, f = as_floats(labels, judged)
    is_judged = ~np.isnan(f)
    seen = is_judged & ~np.isnan(y)
    n, total = (mask.sum(axis=1).astype(np.float64) for mask in (seen, is_judged))
    count = np.maximum(n, 1)[:, None]
    weights = seen * 1.0
    if probabilities is not None:
        weights = np.where(seen, 1 / np.asarray(probabilities, dtype=np.float64), 0.0)
    weights = weights * (n / np.maximum(weights.sum(axis=1), 1e-300))[:, None]
    centre = np.where(is_judged, f, 0.0).sum(axis=1) / np.maximum(total, 1)
    x = np.where(seen, f - centre[:, None], 0.0)
    slopes = _slopes_without(np.where(seen, y, 0.0), x, weights, clusters, shared=shared)
    slopes = np.where((n < total)[:, None], slopes, 0.0)
    explained = slopes * x
    rest = np.where(seen, y - explained, 0.0)
    estimate = (weights * rest).sum(axis=1, keepdims=True) / count
    error = weights * (rest - estimate)
    share = (n / np.maximum(total, 1))[:, None]
    of_mean = np.zeros(len(y))
    if finite:
        scores = estimate + np.sqrt(1 - share) * error
    else:
        own = weights * explained
        own = own - np.where(seen, own.sum(axis=1, keepdims=True) / count, 0.0)
        of_judge = (
            share if clusters is None else _share_of_clusters(f, is_judged, seen, clusters, share)
        )
        if shared:
            of_judge = of_judge * _part_of_differences(f, is_judged, seen)
        scores = estimate + error + np.sqrt(of_judge) * own
        of_mean = (of_judge * (own / count) ** 2).sum(axis=1)
    mean_slope = (seen * slopes / count).sum(axis=1)
    scores = np.where(seen, scores, np.nan)
    return CrossFitted(scores, mean_slope, of_mean, n, total)


def _part_of_differences(f: FloatArray, is_judged: BoolArray, seen: BoolArray) -> float:
    """What of the judge's variance counts where models are compared that were labelled apart.

    The judge scored all models on the same items: their means vary together, which labels of the
    same items show and others do not.
    """
    both = seen.sum(axis=0)
    alike = float((both > 1).sum() / max(int((both > 0).sum()), 1))
    every = is_judged.all(axis=0)
    n_models = len(f)
    if n_models < 2 or every.sum() < 2:
        return 1.0
    x = f[:, every] - f[:, every].mean(axis=1, keepdims=True)
    whole = float((x**2).sum())
    of_differences = float(((x - x.mean(axis=0)) ** 2).sum()) * n_models / (n_models - 1)
    return alike + (1 - alike) * (of_differences / whole if whole > 0 else 1.0)


def _slopes_without(
    y: FloatArray, x: FloatArray, weights: FloatArray, units: IntArray | None, *, shared: bool
) -> FloatArray:
    """Slope of y on x without each item's unit, shape (N, M); 0 where x does not vary."""
    if shared:
        both = (weights > 0).sum(axis=0)
        several: BoolArray = np.asarray(both > 1)
        if several.sum() >= max(3, 0.5 * (both > 0).sum()):
            weights = np.where(several, weights, 0.0)
            y, x = (_centred(v, weights, axis=0) for v in (y, x))
    y, x = (_centred(v, weights, axis=1) for v in (y, x))
    numbers: IntArray = np.arange(y.shape[1], dtype=np.int64)
    if units is not None:
        numbers = np.asarray(np.unique(units, return_inverse=True)[1], dtype=np.int64)

    def by_unit(values: FloatArray) -> FloatArray:
        return values if units is None else by_cluster(values, numbers)

    w, wx, wy = by_unit(weights), by_unit(weights * x), by_unit(weights * y)
    left = np.maximum(w.sum(axis=1, keepdims=True) - w, 1e-300)
    least = 1e-12 * max(float(np.max(np.abs(x), initial=0.0)) ** 2, 1e-300)

    def slopes_of(xy: FloatArray, xx: FloatArray) -> FloatArray:
        if shared:
            xy, xx = xy.sum(axis=0, keepdims=True), xx.sum(axis=0, keepdims=True)
        return np.where(xx > least, xy / np.where(xx > least, xx, 1.0), np.nan)

    own_xy, own_xx = by_unit(weights * x * y), by_unit(weights * x * x)
    all_xy, all_xx = (own.sum(axis=1, keepdims=True) for own in (own_xy, own_xx))
    slopes = slopes_of(all_xy - own_xy - wx * wy / left, all_xx - own_xx - wx * wx / left)
    # A unit that alone has a spread cannot be left out: its slope is that of all.
    slopes = np.where(np.isnan(slopes), np.nan_to_num(slopes_of(all_xy, all_xx)), slopes)
    return np.broadcast_to(slopes[:, numbers], y.shape)


def _centred(values: FloatArray, weights: FloatArray, *, axis: int) -> FloatArray:
    total = np.maximum(weights.sum(axis=axis, keepdims=True), 1e-300)
    mean = (weights * values).sum(axis=axis, keepdims=True) / total
    return np.where(weights > 0, values - mean, 0.0)


def _share_of_clusters(
    f: FloatArray, is_judged: BoolArray, seen: BoolArray, units: IntArray, least: FloatArray
) -> FloatArray:
    """Variance of the judge's mean of all items over that of the labelled ones, by clusters."""
    both: list[FloatArray] = []
    for mask in (is_judged, seen):
        sizes = by_cluster(mask.astype(np.float64), units)
        totals: FloatArray = np.where(mask, f, 0.0)
        moments_of = cluster_moments(by_cluster(totals, units), sizes)
        both.append(np.nan_to_num(moments_of.cr0) ** 2)
    share = both[0] / np.where(both[1] > 0, both[1], np.inf)
    return np.clip(share[:, None], least, 1.0)


class Powered(NamedTuple):
    """Prediction-powered estimates with limits; arrays of shape (N,)."""

    estimate: FloatArray
    interval: Interval
    std_error: FloatArray
    power: FloatArray
    """Weight λ of the judge."""
    gain: FloatArray
    """Factor by which more labels would be needed without a judge."""
    n: FloatArray
    """Number of labelled items."""
    population: FloatArray
    """Number of judged items."""
    of_label: FloatArray
    """Share of the variance that more labels make smaller; the rest is that of the judged items."""


def ppi(
    labels: ArrayLike,
    judged: ArrayLike,
    *,
    bounds: tuple[float, float] | None,
    confidence_level: float,
    clusters: IntArray | None = None,
    probabilities: ArrayLike | None = None,
    finite: bool = False,
) -> Powered:
    """Prediction-powered means of the labels (PPI++ with cross-fitting) [ADZ23]_.

    Parameters
    ----------
    labels, judged : shape (N, M)
        Human and judge scores of the same items; NaN labels are unlabelled. A label counts only
        where the judge has scored too.
    bounds
        Least and greatest possible label, or None. With bounds the interval is that of an effective
        number of 0/1 labels, valid for few labels too; without, a t interval.
    clusters, probabilities, finite
        As for `cross_fitted`.

    Notes
    -----
    The normal interval of the papers has no width while no labelled item shows an error. With few
    labels of a good judge or a strong model its coverage is far too low.
    """
    low, high = (0.0, 1.0) if bounds is None else bounds
    span = high - low
    values = (np.asarray(labels, dtype=np.float64) - low) / span
    if bounds is not None and np.any((values < -1e-9) | (values > 1 + 1e-9)):
        raise ValueError(f"labels must lie within their bounds {bounds}")
    fit = partial(cross_fitted, clusters=clusters, probabilities=probabilities, finite=finite)
    fitted = fit(values, judged)
    alone = fit(values, np.where(np.isnan(judged), np.nan, 0.0))
    (estimate, variance, units), (_, plain, _) = (
        _mean_of_units(each.scores, clusters) for each in (fitted, alone)
    )
    n, total = fitted.n, fitted.population
    with np.errstate(divide="ignore", invalid="ignore"):
        left = 1 - n / total if finite else 1.0
        adjusted = Adjusted(units, total, estimate, fitted.slope, variance, plain, left / units**2)
        of_label = np.maximum(1 - fitted.explained / variance, 0.0)
    if bounds is None:
        unit = adjusted_t_interval(adjusted, confidence_level=confidence_level)
    else:
        unit = adjusted_bounded_interval(
            adjusted, unseen_errors="full", confidence_level=confidence_level
        )
        estimate = np.clip(estimate, 0.0, 1.0)
    return Powered(
        low + span * estimate,
        Interval(*(low + span * limit for limit in unit)),
        span * np.sqrt(variance),
        span * fitted.slope,
        adjusted.gain,
        n,
        total,
        of_label,
    )


def _mean_of_units(
    scores: FloatArray, clusters: IntArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means, squared standard errors (clustered, CR2) and numbers of items or clusters, (N,)."""
    seen = ~np.isnan(scores)
    totals, sizes = np.where(seen, scores, 0.0), seen * 1.0
    if clusters is not None:
        totals, sizes = by_cluster(totals, clusters), by_cluster(sizes, clusters)
    summary = cluster_moments(totals, sizes)
    return summary.mean, summary.cr2**2, np.where(summary.n > 0, summary.n, np.nan)
