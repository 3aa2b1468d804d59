"""Two models on several tasks: the difference of their weighted means, each task a stratum.

Arrays have shape (P, T), pairs by tasks: mean differences, the variances of these means (NaN where
one item or cluster tells nothing of its own), and how many items or clusters they are means of.
Weights are divided by their sum over the tasks. NaN without any item in a task.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import FloatArray, Interval, tail_probability
from evalstats_plugin.stats.mean import t_quantile

# Items, of the most extreme differences there can be, that the whole group is taken to have more.
PRIOR_ITEMS = 1.0


class Stratified(NamedTuple):
    """Weighted mean difference, its variance and that variance's degrees of freedom, shape (P,)."""

    difference: FloatArray
    variance: FloatArray
    degrees_of_freedom: FloatArray


class BetaShape(NamedTuple):
    """Parameters of a Beta distribution, shape (P,)."""

    a: FloatArray
    b: FloatArray


def stratified(
    means: ArrayLike, variances: ArrayLike, n_units: ArrayLike, weights: ArrayLike
) -> Stratified:
    """Σ w d, Σ w² v, and the degrees of freedom of the latter [Sat46]_.

    >>> found = stratified([[0.1, 0.3]], [[0.01, 0.03]], [[20, 20]], [[1, 1]])
    >>> print(*(f"{float(x[0]):.3f}" for x in found))
    0.200 0.010 30.400
    """
    mean, variance, n = (np.asarray(x, dtype=np.float64) for x in (means, variances, n_units))
    shares = _shares(weights)
    parts = shares**2 * variance
    total = parts.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = total**2 / (parts**2 / (n - 1)).sum(axis=-1)
    return Stratified((shares * mean).sum(axis=-1), total, freedom)


def t_interval(found: Stratified, *, confidence_level: float) -> Interval:
    """Student's t interval with the degrees of freedom that the variance is worth [Sat46]_."""
    half = t_quantile(found.degrees_of_freedom, confidence_level=confidence_level)
    half = half * np.sqrt(found.variance)
    half = np.where(half > 0, half, np.nan)
    return Interval(found.difference - half, found.difference + half)


def t_prob(found: Stratified) -> FloatArray:
    """Posterior probability of a positive difference, of which `t_interval` gives quantiles."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = found.difference / np.sqrt(found.variance)
    prob = special.stdtr(found.degrees_of_freedom, t)
    return np.where(found.variance > 0, prob, np.where(found.difference == 0, 0.5, np.nan))


def beta_shape(
    means: ArrayLike,
    variances: ArrayLike,
    n_units: ArrayLike,
    weights: ArrayLike,
    *,
    bounds: tuple[float, float],
) -> BetaShape:
    """Beta distribution, between the least and the greatest possible difference, of the truth.

    It has the mean and variance of the weighted mean, as if half an item more of each bound had
    been seen in the whole group: for a single task nearly `bounded.dirichlet_process` with mass ½.
    A task of a single item is taken to vary as much as it can.
    """
    low, width = bounds[0], bounds[1] - bounds[0]
    mean, n = ((np.asarray(x, dtype=np.float64)) for x in (means, n_units))
    unit = (mean - low) / width
    variance = np.asarray(variances, dtype=np.float64) / width**2
    variance = np.where(np.isnan(variance) & (n > 0), 0.25 / np.maximum(n, 1), variance)
    shares = _shares(weights)
    # What one item more is to the group: 1/n if every item counts the same.
    prior = PRIOR_ITEMS * (shares**2 / n).sum(axis=-1)
    total = ((shares**2 * variance).sum(axis=-1) + prior**2 / 4) / (1 + prior)
    centre = ((shares * unit).sum(axis=-1) + prior / 2) / (1 + prior)
    n_effective = np.maximum(centre * (1 - centre) / total - 1, 0.0)
    return BetaShape(centre * n_effective, (1 - centre) * n_effective)


def beta_interval(
    shape: BetaShape, *, bounds: tuple[float, float], confidence_level: float
) -> Interval:
    """Equal tails of the distribution."""
    tail = tail_probability(confidence_level)
    width = bounds[1] - bounds[0]
    low = special.betaincinv(shape.a, shape.b, tail)
    high = 1 - special.betaincinv(shape.b, shape.a, tail)
    return Interval(
        *(np.asarray(bounds[0] + width * limit, dtype=np.float64) for limit in (low, high))
    )


def beta_prob(shape: BetaShape, *, bounds: tuple[float, float]) -> FloatArray:
    """Posterior probability of a positive difference; ½ exactly where both sides are alike."""
    zero = -bounds[0] / (bounds[1] - bounds[0])
    prob = special.betainc(shape.b, shape.a, 1 - zero)
    return np.where((shape.a == shape.b) & (zero == 0.5), 0.5, prob)


def _shares(weights: ArrayLike) -> FloatArray:
    values = np.asarray(weights, dtype=np.float64)
    return values / values.sum(axis=-1, keepdims=True)
