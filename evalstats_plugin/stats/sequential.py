"""Confidence sequences and anytime-valid p-values: valid whenever one looks or stops.

All are based on betting against a candidate mean m. The capital Π (x q/m + (1 - x)(1 - q)/(1 - m))
of a bettor who believes in q has expectation at most 1 if m is true, and so has its average over
q ~ Beta(½, ½). The probability that it ever reaches 1/α is at most α [Rob70]_ [HRMS21]_; the means
not ruled out form the confidence sequence. The capital does not depend on the order of the scores
and is log-convex in m, so that the means not ruled out form an interval around the sample mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray, IntArray, log_mean_exp
from evalstats_plugin.stats.bounded import binomial_counts, to_unit
from evalstats_plugin.stats.interval import Interval, increasing_root, tail_probability
from evalstats_plugin.stats.pairs.paired import PairedCounts

PRIOR = 0.5
"""Both parameters of the mixture over q."""

GRID_SIZE = 256
"""Steps of the grid between the bounds onto which scores are split."""

FEWEST_NODES = 128
"""Least number of values of q in the mixture."""

BLOCK_SIZE = 2**21
"""Numbers held at a time; results do not depend on it."""

_LOWEST_LOGIT, _HIGHEST_LOGIT = -700.0, 40.0


def beta_mixture(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Confidence sequence of a proportion, in closed form [Rob70]_.

    Successes need not be whole: the sequence is also valid for the sum of n scores in [0, 1],
    because each factor of the capital is largest in expectation for scores of 0 and 1 [HRMS21]_.

    >>> low, high = beta_mixture(80, 100, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.6484 0.9090
    """
    k, n_items = binomial_counts(successes, n)
    threshold = _log_threshold(confidence_level)
    return Interval(
        _proportion_limit(k, n_items, threshold),
        1 - _proportion_limit(n_items - k, n_items, threshold),
    )


def betting_mixture(
    scores: ArrayLike, *, bounds: tuple[float, float], confidence_level: float
) -> Interval:
    """Confidence sequence of the mean of scores between bounds; `beta_mixture` on zeros and ones.

    Never wider than `beta_mixture` of their sum, and narrower the less the scores vary.

    Parameters
    ----------
    scores : shape (..., M)
        NaN where missing; limits are NaN where there is none.

    Notes
    -----
    Each score is split in proportion between the two nearest of 257 points, which can only lower
    the capital, because the log of a factor is concave in the score. The limits stay valid, and
    their cost does not depend on the number of items.
    """
    low, high = bounds
    unit = to_unit(scores, bounds)
    atoms, weights = split(unit)
    limits = _mixture_limits(atoms, weights, _log_threshold(confidence_level))
    shape = unit.shape[:-1]
    return Interval(*(low + (high - low) * limit.reshape(shape) for limit in limits))


def paired_mixture(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Confidence sequence of the difference between two models' 0/1 scores on the same items.

    That of the mean difference, whose only values are -1, 0 and 1. It leaves out 0 if and only if
    `paired_p_value` is below 1 - `confidence_level`.
    """
    differ = counts.only_a + counts.only_b
    cells = np.stack([counts.only_a, counts.n - differ, counts.only_b], axis=-1)
    tables, where = np.unique(cells.reshape(-1, 3), axis=0, return_inverse=True)
    atoms = np.array([0.0, 0.5, 1.0])
    limits = _mixture_limits(atoms, tables, _log_threshold(confidence_level))
    return Interval(*((2 * limit - 1)[where].reshape(counts.n.shape) for limit in limits))


def paired_p_value(counts: PairedCounts) -> FloatArray:
    """Anytime-valid p-value of no difference between two models' 0/1 scores, in closed form.

    One over the capital won against a fair coin on the discordant items.
    """
    won = log_capital(counts.only_b, counts.only_a + counts.only_b)
    return np.exp(-np.maximum(won, 0.0))


def log_capital(wins: FloatArray, differ: FloatArray) -> FloatArray:
    """Log of the capital won against a fair coin, by wins of one model on discordant items."""
    return _log_mixture(wins, differ) + differ * np.log(2)


def p_value(scores: ArrayLike, *, bounds: tuple[float, float], mean: float) -> FloatArray:
    """Anytime-valid p-value of a mean of scores between bounds: one over the capital won.

    It uses the final capital, not its maximum: that is valid for any stopping rule, and does not
    depend on the order of the items.
    """
    unit = to_unit(scores, bounds)
    atoms, weights = split(unit)
    at = (mean - bounds[0]) / (bounds[1] - bounds[0])
    won, _ = _log_capital(atoms, weights, np.full(len(weights), at), _nodes(weights))
    empty = weights.sum(axis=1) == 0
    p = np.where(empty, np.nan, np.exp(-np.maximum(won, 0.0)))
    return p.reshape(unit.shape[:-1])


def _log_threshold(confidence_level: float) -> float:
    """Log of 1/α, the capital that rules a mean out."""
    return float(-np.log(2 * tail_probability(confidence_level)))


def _log_mixture(successes: FloatArray, n: FloatArray) -> FloatArray:
    """Log of the average of q^k (1 - q)^(n - k) over q ~ Beta(½, ½)."""
    return np.asarray(
        special.betaln(PRIOR + successes, PRIOR + n - successes) - special.betaln(PRIOR, PRIOR),
        dtype=np.float64,
    )


def _proportion_limit(k: FloatArray, n: FloatArray, threshold: float) -> FloatArray:
    """Least proportion whose log likelihood is no more than `threshold` below the mixture's."""
    # For sums of partial credit below 1e-2 the limit is below 1e-100.
    usable = k > 0.01
    a, b = np.where(usable, k, 1.0).ravel(), np.where(usable, n - k, 1.0).ravel()
    target = _log_mixture(a, a + b) - threshold

    def excess(logit: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        c, d = a[cells], b[cells]
        # Beyond the estimate the likelihood falls again; the limit lies below it.
        p = np.minimum(special.expit(logit), c / (c + d))
        likelihood = special.xlogy(c, p) + special.xlog1py(d, -p)
        return likelihood - target[cells], np.maximum(c - (c + d) * p, 1e-12)

    # The likelihood of the successes alone gives a limit that is too low. Newton steps from there
    # never pass the root of a concave function.
    start = target / a - np.log(-np.expm1(np.minimum(target / a, -1e-300)))
    root = increasing_root(excess, start, bracket=(_LOWEST_LOGIT, _HIGHEST_LOGIT), tolerance=1e-10)
    # Without failures the likelihood is a power, and the limit may be close to 1.
    limit = np.where(b == 0, np.exp(target / a), special.expit(root)).reshape(k.shape)
    return np.where(np.isnan(k), np.nan, np.where(usable, limit, 0.0))


def split(unit: FloatArray, counts: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Grid points that are used, shape (A,), and the weight of scores at each, (cells, A).

    Parameters
    ----------
    unit : shape (..., M)
        Scores on the scale of [0, 1], NaN where missing.
    counts : shape (M,)
        How often each column is there; once by default.
    """
    values = unit.reshape(-1, unit.shape[-1])
    cell, column = np.nonzero(~np.isnan(values))
    place = values[cell, column] * GRID_SIZE
    below = np.minimum(np.floor(place), GRID_SIZE - 1).astype(np.int64)
    share = place - below
    count = 1.0 if counts is None else counts[column]
    at, size = cell * (GRID_SIZE + 1) + below, len(values) * (GRID_SIZE + 1)
    both = np.bincount(at, count * (1 - share), size) + np.bincount(at + 1, count * share, size)
    weights = both.reshape(len(values), GRID_SIZE + 1).astype(np.float64)
    used = weights.any(axis=0)
    return np.flatnonzero(used) / GRID_SIZE, weights[:, used]


def _mixture_limits(atoms: FloatArray, weights: FloatArray, threshold: float) -> Interval:
    """Limits of the mean from the weights of scores at each atom; NaN for cells without scores."""
    scored = weights.sum(axis=1) > 0
    low, high = np.full((2, len(weights)), np.nan)
    if scored.any():
        low[scored] = _lower_limit(atoms, weights[scored], threshold)
        high[scored] = 1 - _lower_limit(1 - atoms, weights[scored], threshold)
    return Interval(low, high)


def _lower_limit(atoms: FloatArray, weights: FloatArray, threshold: float) -> FloatArray:
    n, total = weights.sum(axis=1), weights @ atoms
    mean, nodes = total / n, _nodes(weights)

    def excess(at: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        cells = some[rows]
        # Beyond the mean the capital grows again; the limit lies below it.
        inside = np.minimum(at, mean[cells])
        value, slope = _log_capital(atoms, weights[cells], inside, nodes)
        return threshold - value, np.maximum(-slope, 1e-12)

    # The limit from the sum alone is never too high, and exact for zeros and ones.
    start = _proportion_limit(total, n, threshold)
    some = np.flatnonzero(start > 0)
    limit = np.zeros_like(start)
    limit[some] = increasing_root(excess, start[some], bracket=(1e-300, 1.0), tolerance=1e-10)
    return np.minimum(limit, mean)


def _nodes(weights: FloatArray) -> FloatArray:
    """Equally weighted Gauss-Chebyshev nodes of the mixture Beta(½, ½) over q.

    The capital is no narrower than a binomial likelihood, for which 5 √n nodes leave an error below
    1e-12. A score between a bound and the next grid point can raise it to 0.3 %; but a mixture over
    the nodes alone is as valid as that over all q, and powers of two keep the nodes unchanged while
    items come in.
    """
    n = float(weights.sum(axis=1).max(initial=1))
    count = max(2 ** int(np.ceil(np.log2(5 * np.sqrt(n) + 16))), FEWEST_NODES)
    place: FloatArray = np.indices((count,))[0].astype(np.float64)
    return np.sin((2 * place + 1) * np.pi / (4 * count)) ** 2


def _log_capital(
    atoms: FloatArray, weights: FloatArray, mean: FloatArray, nodes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log of the capital won against each cell's candidate mean, and its derivative in it."""
    value, slope = np.empty((2, len(weights)))
    # There are no atoms where no cell has a score.
    rows = max(BLOCK_SIZE // max(len(atoms) * len(nodes), 1), 1)
    right, wrong = atoms[:, None] * nodes, (1 - atoms[:, None]) * (1 - nodes)
    for start in range(0, len(weights), rows):
        block = slice(start, start + rows)
        m, w = mean[block, None, None], weights[block, None, :]
        up, down = right / m, wrong / (1 - m)
        factor = up + down
        wealth = (w @ np.log(factor))[:, 0]
        rate = (w @ ((down / (1 - m) - up / m) / factor))[:, 0]
        value[block], share = log_mean_exp(wealth)
        slope[block] = (share * rate).sum(axis=1) / share.sum(axis=1)
    return value, slope
