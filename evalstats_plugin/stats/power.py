"""How many items does a difference need, and which difference do so many items need?

A test of no difference rejects when its p-value, or the tail of a posterior, is at most `tail` on
either side. `variance` is that of one item's difference, so that n items give their mean a
standard error of √(variance/n). `power` is the probability to find a difference that is there.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import FloatArray

MOST_ITEMS = 2.0**40
"""Beyond which a search gives up: more questions than anybody has."""

_X = np.linspace(-8.5, 8.5, 201)
_WEIGHT = np.exp(-(_X**2) / 2) / np.exp(-(_X**2) / 2).sum()
"""Trapezoidal rule for a mean over a standard normal: its error falls exponentially."""


def items_needed(
    difference: ArrayLike, variance: ArrayLike, *, tail: float, power: float
) -> FloatArray:
    """Items for a difference, not rounded [Mil24]_: (z_tail + z_power)² variance / difference².

    The variance of a pair is ω² + σ_A²/K_A + σ_B²/K_B: between items, and within for K epochs.

    >>> wanted = {"tail": 0.025, "power": 0.8}
    >>> [round(float(items_needed(0.03, v, **wanted)), 1) for v in (1 / 9, 1 / 9 + 2 / 6)]
    [969.0, 3876.0]
    """
    distance = _distance(tail, power)
    return distance**2 * np.asarray(variance, dtype=np.float64) / np.square(difference)


def difference_needed(
    n_items: ArrayLike, variance: ArrayLike, *, tail: float, power: float
) -> FloatArray:
    """Least difference that n items find [Mil24]_, the minimum detectable effect.

    >>> round(float(difference_needed(198, 1 / 9 + 2 / 6, tail=0.025, power=0.8)), 3)
    0.133
    """
    return _distance(tail, power) * np.sqrt(np.asarray(variance) / np.asarray(n_items))


def epochs_needed(
    difference: ArrayLike,
    n_items: ArrayLike,
    *,
    between: ArrayLike,
    within: ArrayLike,
    tail: float,
    power: float,
) -> FloatArray:
    """Epochs of each of n items for a difference, not rounded; inf where no number will do.

    `within` is what both models add in one epoch, σ_A² + σ_B². More epochs leave the variance
    between items as it is.
    """
    allowed = np.asarray(n_items) * np.square(np.asarray(difference) / _distance(tail, power))
    room = allowed - np.maximum(between, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        epochs = np.asarray(within, dtype=np.float64) / room
    return np.where(room > 0, np.maximum(epochs, 0.0), np.where(np.isnan(room), np.nan, np.inf))


def normal_power(
    n_items: ArrayLike, difference: ArrayLike, variance: ArrayLike, *, tail: float
) -> FloatArray:
    """Power where the mean difference is normal with a known standard error, both sides."""
    z = -float(special.ndtri(tail))
    effect = _effect(n_items, difference, variance)
    return special.ndtr(effect - z) + special.ndtr(-effect - z)


def t_power(
    n_items: ArrayLike, difference: ArrayLike, variance: ArrayLike, *, tail: float
) -> FloatArray:
    """Power of Student's t test of normal differences, exact: noncentral t [Coh88]_.

    >>> print(f"{t_power(34, 0.5, 1.0, tail=0.025):.4f}")
    0.8078
    """
    df = np.asarray(n_items, dtype=np.float64) - 1
    effect = _effect(n_items, difference, variance)
    sizes, place = np.unique(np.maximum(df, 1.0), return_inverse=True)
    # The estimated standard deviation over the true one, as a function of a standard normal x.
    lower = special.gammaincinv(sizes[:, None] / 2, special.ndtr(np.minimum(_X, 0.0)))
    upper = special.gammainccinv(sizes[:, None] / 2, special.ndtr(-np.maximum(_X, 0.0)))
    ratio = np.sqrt(np.where(_X < 0, lower, upper) * 2 / sizes[:, None])
    limit = -special.stdtrit(sizes, tail)[:, None] * ratio
    limit = limit[place.reshape(df.shape)]
    found = special.ndtr(effect[..., None] - limit) + special.ndtr(-effect[..., None] - limit)
    return np.where(df >= 1, np.sum(found * _WEIGHT, axis=-1), 0.0)


def least_items(
    power_of: Callable[[FloatArray], FloatArray], start: FloatArray, *, power: float
) -> FloatArray:
    """Least whole numbers at which the power reaches its goal; inf beyond `MOST_ITEMS`.

    Parameters
    ----------
    power_of
        Power by number of items, both of shape (C,), rising.
    start
        Shape (C,): guesses.
    """
    high = np.clip(np.ceil(np.nan_to_num(start, nan=1.0)), 1.0, MOST_ITEMS)
    while np.any(short := (power_of(high) < power) & (high < MOST_ITEMS)):
        high = np.where(short, 2 * high, high)
    low, top = np.zeros_like(high), high
    while np.any(apart := top - low > 1):
        middle = np.where(apart, np.floor((low + top) / 2), top)
        enough = power_of(middle) >= power
        top, low = np.where(apart & enough, middle, top), np.where(apart & ~enough, middle, low)
    return np.where(high < MOST_ITEMS, top, np.inf)


def least_difference(
    power_of: Callable[[FloatArray], FloatArray], highest: FloatArray, *, power: float
) -> FloatArray:
    """Least differences whose power is at the goal, to 1e-9; NaN where `highest` is too small.

    Parameters
    ----------
    power_of
        Power by difference, both of shape (C,), rising.
    highest
        Shape (C,): the greatest possible differences.
    """
    low, high = np.zeros_like(highest), highest
    for _ in range(60):
        middle = (low + high) / 2
        enough = power_of(middle) >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        if np.all(high - low <= 1e-9):
            break
    return np.where(power_of(highest) >= power, high, np.nan)


def _distance(tail: float, power: float) -> float:
    """How many standard errors a difference must be away from 0."""
    if not 0 < tail < 0.5 or not 0 < power < 1:
        raise ValueError(f"tail must lie in (0, ½) and power in (0, 1), got {tail} and {power}")
    if power <= tail:
        raise ValueError(f"a power of {power} needs no difference at a tail of {tail}")
    return float(special.ndtri(power) - special.ndtri(tail))


def _effect(n_items: ArrayLike, difference: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Difference in standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.abs(difference) / np.sqrt(np.asarray(variance) / np.asarray(n_items))
