"""Power of tests on two models' 0/1 scores of the same items, by summation over all outcomes.

Of n items, D tell the models apart, a binomial number with probability `discordance`; of these, b
is right on a binomial number with probability (1 + difference/discordance)/2. Nothing is
approximated but the sum over D, which leaves out what has a probability below 1e-14.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.power import items_needed, least_items

BoolArray: TypeAlias = NDArray[np.bool_]

_REACH = 8.0
"""Standard deviations of D that are summed over, on either side."""


def _mid_p(k: FloatArray, n: FloatArray) -> FloatArray:
    return (_at_most(k, n, 0.5) + _at_most(k - 1, n, 0.5)) / 2


def _dirichlet(k: FloatArray, n: FloatArray) -> FloatArray:
    return np.asarray(special.betainc(n - k + 0.5, k + 0.5, 0.5), dtype=np.float64)


def _score(k: FloatArray, n: FloatArray) -> FloatArray:
    return np.asarray(special.ndtr((2 * k - n) / np.sqrt(n)), dtype=np.float64)


TAILS: Mapping[str, Callable[[FloatArray, FloatArray], FloatArray]] = MappingProxyType(
    {"mcnemar-mid-p": _mid_p, "dirichlet": _dirichlet, "tango": _score}
)
"""By what finds a difference, the tail it gives to k of n discordant items for the one model.

The p-value of `compare`, and the two intervals that leave out 0 by the discordant items alone: the
posterior probability of the Dirichlet interval of prior (½, 1), the score statistic of Tango's.
"""


def paired_power(
    n_items: ArrayLike,
    discordance: ArrayLike,
    difference: ArrayLike,
    *,
    tail: float,
    test: str = "mcnemar-mid-p",
) -> FloatArray:
    """Probability that a test finds a difference, in whichever direction.

    Parameters
    ----------
    n_items, discordance, difference
        Broadcast against each other. The discordance, the probability that just one of the two
        models is right on an item, cannot be less than the difference.
    tail
        Greatest probability, on one side, at which the test rejects.
    test
        One of `TAILS`.

    Examples
    --------
    >>> print(f"{paired_power(200, 0.2, 0.1, tail=0.025):.4f}")
    0.9027
    """
    n, apart, size = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (n_items, discordance, np.abs(difference)))
    )
    if np.any((size > apart) | (apart > 1) | (n < 1)):
        raise ValueError("expected |difference| <= discordance <= 1 and one item or more")
    mean, spread = n * apart, np.sqrt(n * apart * (1 - apart))
    first = np.floor(np.maximum(mean - _REACH * spread - _REACH**2, 0.0))
    last = np.ceil(np.minimum(mean + _REACH * spread + _REACH**2, n))
    width = int(np.max(last - first, initial=0.0)) + 1
    differ = first[..., None] + np.arange(width)
    inside = differ <= n[..., None]
    differ = np.where(inside, differ, first[..., None])
    weight = np.where(inside, _binomial(differ, n[..., None], apart[..., None]), 0.0)
    least = float(first.min())
    sizes = np.arange(least, differ.max() + 1)
    most_of = critical(sizes, tail=tail, test=test)[(differ - least).astype(np.int64)]
    with np.errstate(divide="ignore", invalid="ignore"):
        for_b = np.where(apart > 0, (1 + size / np.where(apart > 0, apart, 1.0)) / 2, 0.5)[
            ..., None
        ]
    rejects = _at_most(most_of, differ, for_b) + _at_most(most_of, differ, 1 - for_b)
    return (weight * rejects).sum(axis=-1)


def paired_items_needed(
    discordance: ArrayLike,
    difference: ArrayLike,
    *,
    tail: float,
    power: float,
    test: str = "mcnemar-mid-p",
) -> FloatArray:
    """Least number of items from which on a test finds a difference with this power.

    Shape (C,). The power of a test on counts goes up and down where nearly every item tells the
    models apart: a number is enough if no larger one, up to a quarter and twenty more, is not.

    >>> paired_items_needed([0.2, 1.0], [0.1, 0.3], tail=0.025, power=0.8).tolist()
    [152.0, 89.0]
    """
    apart, size = np.broadcast_arrays(*(np.atleast_1d(x) for x in (discordance, difference)))
    spread = np.maximum(apart - np.square(size), 0.01 * apart)
    start = items_needed(size, spread, tail=tail, power=power)

    def power_of(n: FloatArray) -> FloatArray:
        return paired_power(n, apart, size, tail=tail, test=test)

    enough = least_items(power_of, start, power=power)
    for i in np.flatnonzero((enough * (1 - apart) < 10) & np.isfinite(enough)).tolist():
        first = float(enough[i])
        ahead = np.arange(first, np.ceil(1.25 * first) + 20, dtype=np.float64)
        above = paired_power(ahead, apart[i], size[i], tail=tail, test=test)
        enough[i] = ahead[np.flatnonzero(np.append(power - 1, above) < power)[-1]]
    return enough


def critical(n: FloatArray, *, tail: float, test: str) -> FloatArray:
    """Greatest k at which n discordant items, k of them for the one model, show a difference.

    -1 where none does.
    """
    at_least_one = np.maximum(n, 1.0)

    def shown(k: FloatArray) -> BoolArray:
        return (k >= 0) & (TAILS[test](np.maximum(k, 0.0), at_least_one) <= tail)

    # Tails rise with k, and with half of the items, or more, none is below ½.
    low, high = np.full_like(n, -1.0), np.ceil(n / 2)
    guess = np.floor(n / 2 + special.ndtri(tail) * np.sqrt(n) / 2)
    for near in (np.maximum(guess - 2, low), np.minimum(guess + 3, high)):
        enough = shown(near)
        low, high = np.where(enough, near, low), np.where(enough, high, np.maximum(near, low + 1))
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        enough = shown(middle)
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def _binomial(k: FloatArray, n: FloatArray, p: FloatArray) -> FloatArray:
    """Probability of k among n."""
    log_ways = -special.betaln(k + 1, n - k + 1) - np.log1p(n)
    return np.exp(log_ways + special.xlogy(k, p) + special.xlog1py(n - k, -p))


def _at_most(k: FloatArray, n: FloatArray, p: FloatArray | float) -> FloatArray:
    """P(X ≤ k) of X ~ Binomial(n, p)."""
    inside = special.betainc(np.maximum(n - k, 0.5), np.maximum(k + 1, 0.5), 1 - np.asarray(p))
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))
