"""Of k takes of an item: is one of them right, are all, are most? Without bias, from R ≥ k takes.

Every function takes, for each item, how many of its `n` takes are right. What it returns is the
average over all ways of choosing k of the takes, so its expectation is exactly what k fresh takes
would give; NaN for an item taken fewer than k times. Of plugging the share of right takes into a
formula, such as 1 - (1 - p)^k, the same cannot be said.
"""

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray


def pass_at_k(successes: ArrayLike, n: ArrayLike, *, k: int) -> FloatArray:
    """Probability that one or more of k takes are right, pass@k [Che21]_ (eq. 1).

    >>> float(pass_at_k(2, 5, k=3))
    0.9
    """
    right, takes = _counts(successes, n, k)
    return 1 - _all_from(takes - right, takes, k)


def pass_hat_k(successes: ArrayLike, n: ArrayLike, *, k: int) -> FloatArray:
    """Probability that all of k takes are right, pass^k [Yao24]_.

    >>> round(float(pass_hat_k(4, 5, k=2)), 12)
    0.6
    """
    right, takes = _counts(successes, n, k)
    return _all_from(right, takes, k)


def majority_at_k(successes: ArrayLike, n: ArrayLike, *, k: int) -> FloatArray:
    """Probability that more than half of k takes are right, a tie counting as half.

    For an even k it is that of k - 1: a tie broken by a coin is one vote left out.

    >>> float(majority_at_k(3, 4, k=3)), float(majority_at_k(3, 4, k=4))
    (1.0, 1.0)
    """
    right, takes = _counts(successes, n, k)
    # The more frequent answer, whose probability is a sum of positive terms.
    more, fewer = np.maximum(right, takes - right), np.minimum(right, takes - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        majority, draw = more / takes, 1 / takes
        for votes in range(1, k - 1, 2):
            # Two more votes change an outcome that was decided by one vote. `split` is the
            # probability, but for a factor, that the votes so far differ by one.
            left = (takes - votes) * (takes - votes - 1)
            lost = (votes - 1) // 2
            split = draw * np.maximum(more - lost, 0) * np.maximum(fewer - lost, 0) / left
            majority = majority + split * (more - fewer)
            draw = split * (2 * votes + 4) / (lost + 2)
    majority = np.where(right == more, majority, 1 - majority)
    majority = np.where(more == fewer, 0.5, majority)
    return np.where(takes >= k, np.clip(majority, 0.0, 1.0), np.nan)


def _counts(successes: ArrayLike, n: ArrayLike, k: int) -> tuple[FloatArray, FloatArray]:
    right, takes = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (successes, n)))
    if k < 1:
        raise ValueError(f"k must be 1 or more, got {k}")
    if np.any((right < 0) | (right > takes)):
        raise ValueError("the number of right takes must lie between 0 and the number of takes")
    return right, takes


def _all_from(chosen: FloatArray, takes: FloatArray, k: int) -> FloatArray:
    """Probability that k takes drawn without replacement all come from `chosen` many of them."""
    probability = np.ones_like(takes)
    with np.errstate(divide="ignore", invalid="ignore"):
        for drawn in range(k):
            probability *= np.maximum(chosen - drawn, 0) / (takes - drawn)
    return np.where(takes >= k, probability, np.nan)
