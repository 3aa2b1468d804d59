"""The score on all N items of a benchmark when a random sample of n was run (``--limit``).

`predictive_hpd` and `predictive_equal_tailed` predict the score of 0/1 items; `shrink` narrows
any interval for infinitely many items by the `finite_population_correction` [Coc77]_.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray, IntArray, as_floats
from evalstats_plugin.stats.interval import Interval, tail_probability

LimitsFunction: TypeAlias = Callable[[FloatArray], tuple[IntArray, IntArray]]
"""Indices of the first and last outcome, from the probabilities of all, shape (cells, outcomes)."""

# Cells are processed in blocks of about this many numbers.
BLOCK_SIZE = 2**21


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
        # Rounding errors must not move a limit by a whole item; exactly the tail may lie beyond it.
        slack = 1e-12
        return (below <= tail + slack).sum(axis=1), (below < 1 - tail - slack).sum(axis=1)

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
    k, n_items, total = as_floats(successes, n, population)
    if np.any((k < 0) | (k > n_items) | (n_items > total)):
        raise ValueError("successes must lie between 0 and n, and n must not exceed the population")
    cells = np.stack([k.ravel(), n_items.ravel(), total.ravel()], axis=1)
    distinct, where = np.unique(cells, axis=0, return_inverse=True)
    low, high = (x[where.reshape(k.shape)] for x in _in_blocks(limits, distinct, prior))
    with np.errstate(invalid="ignore"):
        estimate = k / n_items
    return Interval(np.minimum(low, estimate), np.maximum(high, estimate))


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
    return special.softmax(np.where(outcome <= left, log_mass, -np.inf), axis=1)


def shrink(
    estimates: ArrayLike, limits: ArrayLike, n: ArrayLike, population: ArrayLike
) -> FloatArray:
    """Shrink limits for infinitely many items to those for these N: distances times √(1 - n/N)."""
    centre = np.asarray(estimates, dtype=np.float64)
    away = np.asarray(limits, dtype=np.float64) - centre
    return centre + finite_population_correction(n, population) * away


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
