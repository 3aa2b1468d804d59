"""Survey sampling: groups of tasks (strata), samples of a benchmark, and control variates.

* weighted means over independent tasks: `weighted_mean`, `mover`, `beta_effective`
* differences of two models' weighted means: `stratified` with `t_interval` and `t_prob`,
  `beta_shape` with `beta_interval` and `beta_prob`
* the score on all N items when n of them were run (``--limit``): `predictive_hpd`,
  `predictive_equal_tailed`, `shrink`, `finite_population_correction`
* means adjusted by regression on a covariate that is known for more items, such as the scores of
  other models [DXKW13]_: `adjust_to_benchmark`, with `adjusted_bounded_interval` and
  `adjusted_t_interval`
* `imbens_manski_level`: the level of limits for whatever missing items would have scored
* `cross_fitted`, `ppi`: human labels of a few items, a judge's scores of many [ABF23]_ [ADZ23]_

Weights are fixed numbers along the last axis, one per task, and are divided by their sum: items per
task for a micro average, ones for a macro average. A NaN in any task makes the group NaN.

Scores and covariate have shape (..., M): a NaN score is an item that was not run, a NaN covariate
an item outside the population.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import Interval, increasing_root, tail_probability
from evalstats_plugin.stats.means import moments, t_quantile

# Prior weight, in items with the most extreme possible differences, of the whole group.
PRIOR_ITEMS = 1.0


LimitsFunction: TypeAlias = Callable[[FloatArray], tuple[IntArray, IntArray]]
"""Indices of the first and last outcome, from the probabilities of all, shape (cells, outcomes)."""


# Cells are processed in blocks of about this many numbers.
BLOCK_SIZE = 2**21


class Smoothed(NamedTuple):
    """Means between 0 and 1 and the variances of their estimates, for `beta_effective`.

    As if one further item had scored 0 and one 1, so that no task has variance 0.
    """

    mean: FloatArray
    variance: FloatArray


def imbens_manski_level(
    width: ArrayLike, std_error: ArrayLike, *, confidence_level: float
) -> FloatArray:
    """Level at which the intervals of both ends hold a quantity that lies between them [IM04]_.

    The ends are what is found with all missing scores at their lowest, and at their highest. The
    quantity cannot be beyond both at once: c solves Φ(c + width/std_error) - Φ(-c) = level, and the
    level of each end's interval is 2Φ(c) - 1, from 2 x level - 1 (far apart) to the level itself
    (nothing is missing).

    >>> round(float(imbens_manski_level(0.01, 0.05, confidence_level=0.95)), 6)
    0.938478
    """
    tail = tail_probability(confidence_level)
    k, _ = np.broadcast_arrays(
        np.asarray(width, np.float64) / np.maximum(np.asarray(std_error, np.float64), 1e-300), 0.0
    )
    flat = k.ravel()

    def excess(c: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        upper = c + flat[cells]
        value = special.ndtr(upper) - special.ndtr(-c) - confidence_level
        return value, (np.exp(-(upper**2) / 2) + np.exp(-(c**2) / 2)) / np.sqrt(2 * np.pi)

    bracket = (float(-special.ndtri(2 * tail)) - 1e-9, float(-special.ndtri(tail)) + 1e-9)
    start = np.full(len(flat), bracket[1])
    c = increasing_root(excess, start, bracket=bracket, tolerance=1e-9)
    return (2 * special.ndtr(c) - 1).reshape(k.shape)


def weighted_mean(estimates: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Mean of the tasks' estimates, shape (..., T) to (...).

    >>> float(weighted_mean([0.5, 1.0], [300, 100]))
    0.625
    """
    return (np.asarray(estimates, dtype=np.float64) * _shares(weights)).sum(axis=-1)


def mover(estimates: ArrayLike, intervals: Interval, weights: ArrayLike) -> Interval:
    """MOVER interval for the weighted mean, from any intervals of the tasks [ZD08]_.

    Each margin is the root of the sum of squares of the tasks' margins times their weights: exact
    for normal estimates, and within bounds if the tasks' intervals are.
    """
    shares = _shares(weights)
    values = np.asarray(estimates, dtype=np.float64)
    below = ((shares * (values - intervals.low)) ** 2).sum(axis=-1)
    above = ((shares * (intervals.high - values)) ** 2).sum(axis=-1)
    centre = weighted_mean(values, weights)
    return Interval(centre - np.sqrt(below), centre + np.sqrt(above))


def beta_effective(
    estimates: ArrayLike, smoothed: Smoothed, weights: ArrayLike, *, confidence_level: float
) -> Interval:
    """Interval for the weighted mean of scores in [0, 1] by effective sample size [KG98]_.

    The highest-density interval with uniform prior for the number of binary items that would give
    the weighted mean its variance; for a single binary task it is `bounded.beta_hpd`. It keeps its
    level with many small tasks, where `mover` does not: the tasks' asymmetries cancel in their
    mean, but not in the roots of sums of squares that `mover` uses.
    """
    shares = _shares(weights)
    mean = (shares * smoothed.mean).sum(axis=-1)
    variance = (shares**2 * smoothed.variance).sum(axis=-1)
    n_effective = mean * (1 - mean) / variance
    successes = np.clip(weighted_mean(estimates, weights), 0.0, 1.0) * n_effective
    # `successes` need not be a whole number.
    return bounded.beta_hpd(
        np.minimum(successes, n_effective),
        n_effective,
        confidence_level=confidence_level,
        prior=(1, 1),
    )


def smoothed_binary(successes: ArrayLike, n: ArrayLike) -> Smoothed:
    """Smoothed mean and variance of proportions."""
    n_items = np.asarray(n, dtype=np.float64)
    mean = (np.asarray(successes, dtype=np.float64) + 1) / (n_items + 2)
    return Smoothed(mean, mean * (1 - mean) / np.where(n_items > 0, n_items, np.nan))


def smoothed_scores(scores: ArrayLike) -> Smoothed:
    """Smoothed mean and variance of means of scores in [0, 1], shape (..., M), NaN where missing.

    For zeros and ones the same as `smoothed_binary`.
    """
    values = np.asarray(scores, dtype=np.float64)
    ends = np.broadcast_to([0.0, 1.0], (*values.shape[:-1], 2))
    n, mean, std = moments(np.concatenate([values, ends], axis=-1))
    return Smoothed(mean, std**2 * (n - 1) / n / np.where(n > 2, n - 2, np.nan))


def _shares(weights: ArrayLike) -> FloatArray:
    values = np.asarray(weights, dtype=np.float64)
    if np.any(values < 0):
        raise ValueError("weights must not be negative")
    return values / values.sum(axis=-1, keepdims=True)


def predictive_equal_tailed(
    successes: ArrayLike,
    n: ArrayLike,
    population: ArrayLike,
    *,
    confidence_level: float,
    prior: tuple[float, float],
) -> Interval:
    """Beta-binomial prediction of the full score, equal tails, extended to hold k/n.

    The outcomes beyond each limit have a probability of at most (1 - level)/2.
    """
    tail = tail_probability(confidence_level)

    def limits(pmf: FloatArray) -> tuple[IntArray, IntArray]:
        below = np.cumsum(pmf, axis=1)
        # Rounding errors must not move a limit by a whole item.
        slack = 1e-12
        return (below < tail - slack).sum(axis=1), (below < 1 - tail - slack).sum(axis=1)

    return _predict(limits, successes, n, population, prior)


def predictive_hpd(
    successes: ArrayLike,
    n: ArrayLike,
    population: ArrayLike,
    *,
    confidence_level: float,
    prior: tuple[float, float],
) -> Interval:
    """Beta-binomial prediction of the full score, highest density, extended to hold k/n.

    >>> low, high = predictive_hpd(45, 50, 100, confidence_level=0.95, prior=(1, 1))
    >>> print(f"{low:.2f} {high:.2f}")
    0.83 0.94
    """
    tail_probability(confidence_level)

    def limits(pmf: FloatArray) -> tuple[IntArray, IntArray]:
        falling = -np.sort(-pmf, axis=1)
        enough = (np.cumsum(falling, axis=1) < confidence_level - 1e-12).sum(axis=1, keepdims=True)
        # Outcomes as probable as the last one needed belong to the set too.
        least = np.take_along_axis(falling, enough, axis=1) * (1 - 1e-9)
        inside = pmf >= least
        last = pmf.shape[1] - 1 - np.argmax(inside[:, ::-1], axis=1)
        return np.argmax(inside, axis=1), last

    return _predict(limits, successes, n, population, prior)


def _predict(
    limits: LimitsFunction,
    successes: ArrayLike,
    n: ArrayLike,
    population: ArrayLike,
    prior: tuple[float, float],
) -> Interval:
    """Limits of the predicted score, solved once for each distinct (k, n, N)."""
    k, n_items, total = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64),
        np.asarray(n, dtype=np.float64),
        np.asarray(population, dtype=np.float64),
    )
    if np.any((k < 0) | (k > n_items) | (n_items > total)):
        raise ValueError("successes must lie between 0 and n, and n must not exceed the population")
    cells = np.stack([k.ravel(), n_items.ravel(), total.ravel()], axis=1)
    distinct, where = np.unique(cells, axis=0, return_inverse=True)
    low, high = _in_blocks(limits, distinct, prior)
    found_low, found_high = low[where.ravel()], high[where.ravel()]
    with np.errstate(invalid="ignore"):
        estimate = k / n_items
    return Interval(
        np.minimum(found_low.reshape(k.shape), estimate),
        np.maximum(found_high.reshape(k.shape), estimate),
    )


def _in_blocks(
    limits: LimitsFunction, cells: FloatArray, prior: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Limits for rows (k, n, N), in blocks with similar numbers of items left."""
    left = cells[:, 2] - cells[:, 1]
    low, high = np.empty(len(cells)), np.empty(len(cells))
    order = np.argsort(left)
    width = int(left.max(initial=0)) + 1
    rows = max(BLOCK_SIZE // width, 1)
    for start in range(0, len(cells), rows):
        block = order[start : start + rows]
        k, n_items, total = cells[block].T
        first, last = limits(_beta_binomial(k + prior[0], n_items - k + prior[1], left[block]))
        low[block], high[block] = (k + first) / total, (k + last) / total
    return low, high


def _beta_binomial(a: FloatArray, b: FloatArray, left: FloatArray) -> FloatArray:
    """Probability of 0, 1, … further successes among `left`, shape (cells, most left + 1)."""
    outcome: FloatArray = np.indices((int(left.max()) + 1,))[0].astype(np.float64)
    a, b, left = a[:, None], b[:, None], left[:, None]
    rest: FloatArray = np.maximum(left - outcome, 0)
    log_mass = (
        special.gammaln(outcome + a)
        + special.gammaln(rest + b)
        - special.gammaln(outcome + 1)
        - special.gammaln(rest + 1)
    )
    log_mass = np.where(outcome <= left, log_mass, -np.inf)
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True)


def shrink(
    estimates: ArrayLike, interval: Interval, n: ArrayLike, population: ArrayLike
) -> Interval:
    """Shrink an interval for infinitely many items to one for these N: width times √(1 - n/N)."""
    centre = np.asarray(estimates, dtype=np.float64)
    factor = finite_population_correction(n, population)
    return Interval(
        centre - factor * (centre - interval.low), centre + factor * (interval.high - centre)
    )


def finite_population_correction(n: ArrayLike, population: ArrayLike) -> FloatArray:
    """Finite-population correction of a standard error, √(1 - n/N) [Coc77]_.

    >>> float(finite_population_correction(75, 100))
    0.5
    """
    n_items = np.asarray(n, dtype=np.float64)
    total = np.asarray(population, dtype=np.float64)
    if np.any(n_items > total):
        raise ValueError("the items run cannot outnumber those there are")
    return np.sqrt(1 - n_items / total)


class Adjusted(NamedTuple):
    """A mean adjusted by a regression; arrays of shape (...)."""

    n: FloatArray
    """Number of items with a score and the covariate."""
    population: FloatArray
    """Number of items with the covariate."""
    estimate: FloatArray
    slope: FloatArray
    """Slope of the scores on the covariate."""
    variance: FloatArray
    """Variance of the estimate's error."""
    plain_variance: FloatArray
    """Variance of the error of the mean of the scores alone."""
    weight: FloatArray
    """What one item's squared residual adds to `variance`, on average."""

    @property
    def gain(self) -> FloatArray:
        """Factor by which more items would be needed without the covariate.

        Shrunk towards 1, as if two further items had gained nothing: the ratio of two variances
        from few items is too optimistic.
        """
        without = 2 * self.plain_variance / self.n
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.plain_variance + without) / (self.variance + without)


def adjust_to_benchmark(
    scores: ArrayLike, covariate: ArrayLike, *, leverage_power: int = 1
) -> Adjusted:
    """Regression estimate of the mean score over all items of the population.

    The regression estimator of survey sampling [Coc77]_ (ch. 7), for scored items that are a random
    sample of the population. Only the items that were not scored are uncertain.

    Parameters
    ----------
    scores, covariate : shape (..., M)
    leverage_power
        Squared residuals are divided by (1 - leverage) to this power: 1 (HC2), or 2 (HC3) for
        scores without bounds [MW85]_.
    """
    y, x = np.broadcast_arrays(
        np.asarray(scores, dtype=np.float64), np.asarray(covariate, dtype=np.float64)
    )
    has_covariate = ~np.isnan(x)
    seen = has_covariate & ~np.isnan(y)
    n, total = (mask.sum(axis=-1).astype(np.float64) for mask in (seen, has_covariate))
    n = np.where(n > 0, n, np.nan)
    estimate, slope, squared, weights = _regress(y, x, leverage_power)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = (1 - n / total) * _variance(y, seen, n) / n
        unseen = (total - n) / (total**2 * n)
        each = (weights - 1 / total[..., None]) ** 2 + unseen[..., None]
        each = np.where(seen, each, 0.0)
        weight = each.sum(axis=-1) / n
    variance = (each * squared).sum(axis=-1)
    return Adjusted(n, total, estimate, slope, variance, plain, weight)


def adjusted_bounded_interval(
    adjusted: Adjusted, *, unseen_errors: str, confidence_level: float
) -> Interval:
    """Interval of an adjusted mean of scores in [0, 1], by effective sample size [KG98]_.

    The highest-density interval with uniform prior for the number of 0/1 items that would give the
    estimate its variance, as in `survey.beta_effective`. Residuals of 0 must not give an interval
    without width: two more are added, as of one further item that scored 0 and one that scored 1.

    Parameters
    ----------
    unseen_errors
        Weight of the two. ``"full"``: for a covariate that is nearly always right, so that its
        errors are rare events (a judge). ``"damped"``: times p² + (1 - p)², which is 1 at the
        bounds and ½ in the middle, where many residuals are observed anyway (difficulties).
    """
    if unseen_errors not in ("full", "damped"):
        raise ValueError(f"unseen_errors must be 'full' or 'damped', got {unseen_errors!r}")
    p = np.clip(adjusted.estimate, 0.0, 1.0)
    added = p**2 + (1 - p) ** 2
    added = added if unseen_errors == "full" else added**2
    variance = adjusted.variance + adjusted.weight * added
    # The mean is shrunk to ½ for the size only, so that a mean of 1 has one.
    drawn = (adjusted.n * p + 1) / (adjusted.n + 2)
    certain = variance <= 0
    size = drawn * (1 - drawn) / np.where(certain, 1.0, variance)
    limits = bounded.beta_hpd(
        np.minimum(p * size, size), size, confidence_level=confidence_level, prior=(1, 1)
    )
    return Interval(*(np.where(certain, p, limit) for limit in limits))


def adjusted_t_interval(adjusted: Adjusted, *, confidence_level: float) -> Interval:
    """Interval of an adjusted mean of scores without bounds; use HC3 (`leverage_power` 2)."""
    quantile = t_quantile(adjusted.n - 2, confidence_level=confidence_level)
    half = quantile * np.sqrt(adjusted.variance)
    return Interval(adjusted.estimate - half, adjusted.estimate + half)


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
        For the mean of these N items, of which only the unlabelled are uncertain, not of items like
        these.
    shared
        One slope for all models, of differences between them on the same items: what is optimal for
        comparing them, where most items are labelled for several.
    """
    y, f = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (labels, judged)))
    is_judged = ~np.isnan(f)
    seen = is_judged & ~np.isnan(y)
    n, total = (mask.sum(axis=1).astype(np.float64) for mask in (seen, is_judged))
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
    estimate = (weights * rest).sum(axis=1, keepdims=True) / np.maximum(n, 1)[:, None]
    error = weights * (rest - estimate)
    share = (n / np.maximum(total, 1))[:, None]
    of_mean = np.zeros(len(y))
    if finite:
        scores = estimate + np.sqrt(1 - share) * error
    else:
        own = weights * explained
        own = own - np.where(seen, own.sum(axis=1, keepdims=True) / np.maximum(n, 1)[:, None], 0.0)
        of_judge = (
            share if clusters is None else _share_of_clusters(f, is_judged, seen, clusters, share)
        )
        if shared:
            of_judge = of_judge * _part_of_differences(f, is_judged, seen)
        scores = estimate + error + np.sqrt(of_judge) * own
        of_mean = of_judge[:, 0] * (own**2).sum(axis=1) / np.maximum(n, 1) ** 2
    mean_slope = (seen * slopes).sum(axis=1) / np.maximum(n, 1)
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
    if alike == 1 or n_models < 2 or every.sum() < 2:
        return 1.0
    x = f[:, every] - f[:, every].mean(axis=1, keepdims=True)
    whole = float((x**2).sum())
    of_differences = float(((x - x.mean(axis=0)) ** 2).sum()) * n_models / (n_models - 1)
    return alike + (1 - alike) * (of_differences / whole if whole > 0 else 1.0)


def _slopes_without(
    y: FloatArray, x: FloatArray, weights: FloatArray, units: IntArray | None, *, shared: bool
) -> FloatArray:
    """Slope of y on x without each item's unit, shape (N, M); 0 where x does not vary."""
    from evalstats_plugin.stats.clustered import by_cluster

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
    from evalstats_plugin.stats.clustered import by_cluster, cluster_moments

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
        of_label = np.clip(1 - fitted.explained / variance, 0.0, 1.0)
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
    from evalstats_plugin.stats.clustered import by_cluster, cluster_moments

    seen = ~np.isnan(scores)
    totals, sizes = np.where(seen, scores, 0.0), seen * 1.0
    if clusters is not None:
        totals, sizes = by_cluster(totals, clusters), by_cluster(sizes, clusters)
    summary = cluster_moments(totals, sizes)
    return summary.mean, summary.cr2**2, np.where(summary.n > 0, summary.n, np.nan)


def _variance(values: FloatArray, mask: BoolArray, n: FloatArray) -> FloatArray:
    mean = np.where(mask, values, 0.0).sum(axis=-1) / n
    squares = np.where(mask, values - mean[..., None], 0.0) ** 2
    return squares.sum(axis=-1) / np.where(n > 1, n - 1, np.nan)


def _regress(
    y: FloatArray, x: FloatArray, leverage_power: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Estimate, slope, squared residuals inflated by leverage, and weights of the scores.

    Without spread in the covariate the slope is 0 and the estimate the mean of the scores.
    """
    has_covariate = ~np.isnan(x)
    seen = has_covariate & ~np.isnan(y)
    n = np.maximum(seen.sum(axis=-1, keepdims=True), 1)
    y0, x0 = np.where(seen, y, 0.0), np.where(seen, x, 0.0)
    y_mean, x_mean = (v.sum(axis=-1, keepdims=True) / n for v in (y0, x0))
    x_all = np.where(has_covariate, x, 0.0).sum(axis=-1, keepdims=True)
    x_all = x_all / np.maximum(has_covariate.sum(axis=-1, keepdims=True), 1)
    centred = np.where(seen, x0 - x_mean, 0.0)
    spread = (centred**2).sum(axis=-1, keepdims=True)
    # Equal covariates have no spread, whatever the rounding of their mean.
    flat = spread <= 1e-20 * n * (x_mean**2 + 1)
    spread = np.where(flat, np.inf, spread)
    slope = (centred * (y0 - y_mean)).sum(axis=-1, keepdims=True) / spread
    residual = np.where(seen, y0 - y_mean - slope * centred, 0.0)
    kept = np.where(seen, 1 - 1 / n - centred**2 / spread, 1.0)
    alone = kept < 1e-9
    squared = np.where(alone, 0.0, residual**2 / np.where(alone, 1.0, kept) ** leverage_power)
    # A score that alone fixes the slope leaves no residual: use the average of the others.
    others = squared.sum(axis=-1, keepdims=True) / np.maximum(n - alone.sum(-1, keepdims=True), 1)
    squared = np.where(alone, others, squared)
    weights = np.where(seen, 1 / n + (x_all - x_mean) * centred / spread, 0.0)
    estimate = (y_mean + slope * (x_all - x_mean))[..., 0]
    estimate = np.where(seen.any(axis=-1), estimate, np.nan)
    return estimate, slope[..., 0], squared, weights
