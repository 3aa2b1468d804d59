"""Which players are told apart beyond chance, and so which ranks are open to each [MRS24]_."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.ranking.orders import BLOCK_SIZE, differences

BoolArray = NDArray[np.bool_]


def told_apart(
    rating: ArrayLike, covariance: ArrayLike, deviations: ArrayLike, *, confidence_level: float
) -> BoolArray:
    """Whether the player of the row is better than that of the column, beyond chance.

    All that is found is right at once with the confidence level: a difference counts if it is
    larger than chance makes the largest of all, each over its standard error. Pairs found are
    then left aside and the others tried again [RW05]_. Of a posterior it holds given the data, of
    an estimate over repetitions.

    Parameters
    ----------
    rating : shape (n,)
    covariance : shape (n, n)
    deviations : shape (S, n)
        What chance does to the ratings: draws less their mean, or normal ones.

    Returns
    -------
    shape (n, n), for `stats.ranks.rank_limits` and `stats.ranks.groups_alike`
    """
    mean, variance = differences(rating, covariance)
    error = np.sqrt(variance)
    np.fill_diagonal(error, np.inf)
    statistic = mean / error
    found = np.zeros(mean.shape, dtype=np.bool_)
    chance = np.asarray(deviations, dtype=np.float64)
    while True:
        left = ~found
        np.fill_diagonal(left, val=False)
        largest = _largest(chance, np.where(left, 1 / error, 0.0))
        critical = np.quantile(largest, confidence_level, method="higher")
        more = left & (statistic > critical)
        if not more.any():
            return found
        found |= more


def _largest(deviations: FloatArray, precision: FloatArray) -> FloatArray:
    """Return the largest of the pairs' standardised differences, in each draw; shape (S,).

    A difference of row less column counts where `precision`, 1 over its standard error, is not 0.
    """
    by_player = np.ascontiguousarray(deviations.T)
    rows, columns = np.nonzero(precision)
    weight = precision[rows, columns]
    largest = np.zeros(len(deviations))
    step = max(BLOCK_SIZE // 64 // max(len(deviations), 1), 1)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        apart = by_player[rows[block]] - by_player[columns[block]]
        apart *= weight[block, None]
        np.maximum(largest, apart.max(axis=0), out=largest)
    return largest
