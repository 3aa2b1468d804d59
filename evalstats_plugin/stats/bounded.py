"""Mean of scores between known bounds: partial credit, means of epochs, pass@k, F1 per item.

`scores` has shape (..., M), NaN where missing; every cell has its own number of scores, and NaN
limits where it has none. Scores that are all equal get an interval with width, too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import dirichlet_mean
from evalstats_plugin.stats.interval import FloatArray, Interval, tail_probability
from evalstats_plugin.stats.mean import moments, t_quantile


def dirichlet_process(
    scores: ArrayLike, *, bounds: tuple[float, float], mass: float, confidence_level: float
) -> Interval:
    """Dirichlet-process posterior of the mean, with prior `mass` at each bound [Fer73]_.

    The Beta posterior, for scores between 0 and 1: on zeros and ones it *is* the one with prior
    Beta(mass, mass), Jeffreys' for ½ and uniform for 1. Equal tails, extended where necessary to
    hold the mean of the scores.

    >>> scores = [0.0, 0.5, 0.5, 1.0]
    >>> low, high = dirichlet_process(scores, bounds=(0, 1), mass=0.5, confidence_level=0.95)
    >>> print(f"{low:.3f} {high:.3f}")
    0.191 0.809
    """
    if mass <= 0:
        raise ValueError(f"mass must be positive, got {mass}")
    tail = tail_probability(confidence_level)
    unit = to_unit(scores, bounds)
    found = _distinct(unit)
    prior = np.zeros(found.weights.shape[1])
    prior[[0, -1]] = mass
    mean = moments(unit).mean.ravel()
    low = np.minimum(_lower_limit(found.atoms, found.weights + prior, tail), mean)
    high = np.maximum(1 - _lower_limit(1 - found.atoms, found.weights + prior, tail), mean)
    return _from_unit(low, high, unit, bounds)


def gaffke(scores: ArrayLike, *, bounds: tuple[float, float], confidence_level: float) -> Interval:
    """Clopper–Pearson's interval, generalised to scores between the bounds [Gaf05]_ [LT19]_.

    A further score at the lower bound gives the lower limit, one at the upper bound the upper, as
    quantiles of a mean with uniform Dirichlet weights. On zeros and ones this *is* Clopper–Pearson;
    beyond, that it never covers less than stated is a conjecture no simulation has contradicted.
    """
    tail = tail_probability(confidence_level)
    unit = to_unit(scores, bounds)
    found = _distinct(unit)
    one_below, one_above = np.zeros((2, found.weights.shape[1]))
    one_below[0] = one_above[-1] = 1
    low = _lower_limit(found.atoms, found.weights + one_below, tail)
    high = 1 - _lower_limit(1 - found.atoms, found.weights + one_above, tail)
    return _from_unit(low, high, unit, bounds)


def logit_t(scores: ArrayLike, *, bounds: tuple[float, float], confidence_level: float) -> Interval:
    """Student's t interval on the log odds of the mean, carried back.

    Scores that are all equal have no spread to go by. Then the limits allow for a share of items at
    a bound that n items would all miss with half of the probability that the level leaves out:
    Clopper–Pearson's limits for 0 and n successes.
    """
    unit = to_unit(scores, bounds)
    n, mean, std = moments(unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds = np.log(mean) - np.log1p(-mean)
        half = t_quantile(n - 1, confidence_level=confidence_level) * std / np.sqrt(n)
        half = half / (mean * (1 - mean))
        share = tail_probability(confidence_level) ** (1 / n)
    equal = ~(std > 0)
    low = np.where(equal, share * mean, special.expit(log_odds - half))
    high = np.where(equal, 1 - share * (1 - mean), special.expit(log_odds + half))
    return _from_unit(low.ravel(), high.ravel(), unit, bounds)


class _Distinct(NamedTuple):
    """Distinct scores of each cell and how often they occur, shapes (C, D).

    The first column is 0 and the last 1, seen or not; unused columns between have weight 0.
    """

    atoms: FloatArray
    weights: FloatArray


def _distinct(unit: FloatArray) -> _Distinct:
    values = unit.reshape(int(np.prod(unit.shape[:-1])), unit.shape[-1])
    between = np.sort(np.where((values > 0) & (values < 1), values, np.nan), axis=1)
    cell, column = np.nonzero(~np.isnan(between))
    found = between[cell, column]
    fresh = np.ones(len(found), dtype=np.int64)
    fresh[1:] = (np.diff(found) != 0) | (np.diff(cell) != 0)
    first_of_cell = np.ones(len(found), dtype=np.bool_)
    first_of_cell[1:] = np.diff(cell) != 0
    running = np.cumsum(fresh)
    # Number each cell's distinct values from 1.
    before = np.maximum.accumulate(np.where(first_of_cell, running - 1, 0))
    rank = running - before
    shape = (len(values), int(rank.max(initial=0)) + 2)
    atoms, weights = np.zeros(shape), np.zeros(shape)
    np.add.at(weights, (cell, rank), 1.0)
    atoms[cell, rank] = found
    atoms[:, -1] = 1
    weights[:, 0] = (values == 0).sum(axis=1)
    weights[:, -1] = (values == 1).sum(axis=1)
    return _Distinct(atoms, weights)


def _lower_limit(atoms: FloatArray, weights: FloatArray, tail: float) -> FloatArray:
    """Quantile of the Dirichlet-weighted mean, where one end column is 0 with positive weight."""
    used = weights > 0
    atoms = np.where(used, atoms, 0.0)
    n_distinct = used.sum(axis=1)
    # With two values only the mean is a Beta variable; with one, a top of 0, it is that value.
    top: FloatArray = atoms.max(axis=1, initial=0)
    weight_below: FloatArray = np.where(atoms == 0, weights, 0).sum(axis=1)
    weight_above: FloatArray = np.where(atoms > 0, weights, 0).sum(axis=1)
    limit = top * special.betaincinv(np.maximum(weight_above, 1e-9), weight_below, tail)
    n_columns = used.shape[1]
    for size in (2**power for power in range(2, n_columns.bit_length() + 1)):
        # Cells with few distinct scores do not pay for those with many.
        rows = np.nonzero((n_distinct > max(size // 2, 2)) & (n_distinct <= size))[0]
        if len(rows) > 0:
            columns = np.r_[0 : min(size, n_columns - 1), n_columns - 1]
            block = np.ix_(rows, columns)
            limit[rows] = dirichlet_mean.quantile(atoms[block], weights[block], tail)
    return np.asarray(limit, dtype=np.float64)


def to_unit(scores: ArrayLike, bounds: tuple[float, float]) -> FloatArray:
    """Scores as shares of the way from the lower bound to the upper."""
    low, high = bounds
    if not low < high:
        raise ValueError(f"bounds must be (low, high) with low < high, got {bounds}")
    unit = (np.asarray(scores, dtype=np.float64) - low) / (high - low)
    # Means of epochs may pass a bound by a rounding error.
    if np.any((unit < -1e-9) | (unit > 1 + 1e-9)):
        raise ValueError(f"scores must lie within their bounds {bounds}")
    return np.clip(unit, 0.0, 1.0)


def _from_unit(
    low: FloatArray, high: FloatArray, unit: FloatArray, bounds: tuple[float, float]
) -> Interval:
    empty = np.all(np.isnan(unit), axis=-1)
    limits = [np.where(empty, np.nan, limit.reshape(empty.shape)) for limit in (low, high)]
    scaled = [bounds[0] + (bounds[1] - bounds[0]) * np.clip(limit, 0, 1) for limit in limits]
    return Interval(*scaled)
