"""Power, sample size and minimum detectable difference of comparisons.

* `items_needed`, `difference_needed`, `epochs_needed`, `normal_power`, `t_power`: from the variance
  of a difference. `variance` is that of one item's difference, so that the mean of n items has a
  standard error of √(variance/n).
* `least_items`, `least_difference`: searches for any power function
* `paired_power`, `paired_items_needed`: comparisons of two models' 0/1 scores on the same items, by
  the p-value of `stats.pairs.differences`, summed over all outcomes
* `mixture_power`, `mixture_items_needed`: the mixture test of `stats.sequential`, by simulation

A test rejects when its p-value on either side is at most `tail`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, as_floats, log_mean_exp
from evalstats_plugin.stats.bounded import binomial_cdf
from evalstats_plugin.stats.streams import stream

MOST_ITEMS = 2.0**40
"""Greatest number of items that a search considers."""

N_PATHS = 20_000
"""Simulated courses of a sequential test: a power of .8 has a standard error of .003."""

MOST_LOOKS = 200
"""Most looks of a simulated test, evenly spread: more would raise its power by less than .01."""

_X = np.linspace(-8.5, 8.5, 201)

_WEIGHT = np.exp(-(_X**2) / 2) / np.exp(-(_X**2) / 2).sum()
"""Trapezoidal rule for means over a standard normal: its error falls exponentially."""

N_DRAWN = 1000
"""Simulated courses of differences that are drawn one by one: a standard error of .013."""

_BETS, _FEW_BETS = (np.cos((np.arange(n) + 0.5) * np.pi / n) for n in (400, 64))
"""Bets whose mean stands for the mixture."""

_MOST_SQUARES = 400.0
"""Sum of squares, in units of the span, up to which it is taken."""

_REACH = 8.0
"""Range of the summation over the number of discordant items, in standard deviations."""


def items_needed(
    difference: ArrayLike, variance: ArrayLike, *, tail: float, power: float
) -> FloatArray:
    """Items needed for a difference [Mil24]_: (z_tail + z_power)² variance / difference².

    Not rounded; inf beyond `MOST_ITEMS`. The variance of a pair is ω² + σ_A²/K_A + σ_B²/K_B:
    between items, and within items for K epochs.

    >>> wanted = {"tail": 0.025, "power": 0.8}
    >>> [round(float(items_needed(0.03, v, **wanted)), 1) for v in (1 / 9, 1 / 9 + 2 / 6)]
    [969.0, 3876.0]
    """
    distance = _distance(tail, power)
    with np.errstate(over="ignore"):
        n_items = distance**2 * np.asarray(variance, dtype=np.float64) / np.abs(difference)
        n_items = n_items / np.abs(difference)
    return np.where(n_items > MOST_ITEMS, np.inf, n_items)


def difference_needed(
    n_items: ArrayLike, variance: ArrayLike, *, tail: float, power: float
) -> FloatArray:
    """Minimum detectable difference with n items [Mil24]_.

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
    """Epochs of each of n items needed for a difference, not rounded; inf where none suffices.

    `within` is the sum of both models' variances within items, σ_A² + σ_B². More epochs do not
    reduce the variance between items.
    """
    allowed = np.asarray(n_items) * np.square(np.asarray(difference) / _distance(tail, power))
    room = allowed - np.maximum(between, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        epochs = np.asarray(within, dtype=np.float64) / room
    return np.where(room > 0, np.maximum(epochs, 0.0), np.where(np.isnan(room), np.nan, np.inf))


def _distance(tail: float, power: float) -> float:
    """Difference from 0 that is needed, in standard errors."""
    if not 0 < tail < 0.5 or not 0 < power < 1:
        raise ValueError(f"tail must lie in (0, ½) and power in (0, 1), got {tail} and {power}")
    if power <= tail:
        raise ValueError(f"a power of {power} needs no difference at a tail of {tail}")
    return float(special.ndtri(power) - special.ndtri(tail))


def normal_power(
    n_items: ArrayLike, difference: ArrayLike, variance: ArrayLike, *, tail: float
) -> FloatArray:
    """Power of a two-sided z test, where the mean difference is normal with known variance."""
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
    limit = _t_limits(tuple(sizes.tolist()), tail)[place.reshape(df.shape)]
    conditional = special.ndtr(effect[..., None] - limit) + special.ndtr(-effect[..., None] - limit)
    return np.where(df >= 1, np.sum(conditional * _WEIGHT, axis=-1), 0.0)


@lru_cache(maxsize=64)
def _t_limits(freedom: tuple[float, ...], tail: float) -> FloatArray:
    """Critical values in true standard errors, by the nodes `_X` of the estimated one.

    A search by the difference asks for the same ones often.
    """
    df = np.array(freedom)[:, None]
    lower = special.gammaincinv(df / 2, special.ndtr(np.minimum(_X, 0.0)))
    upper = special.gammainccinv(df / 2, special.ndtr(-np.maximum(_X, 0.0)))
    # Ratio of the estimated to the true standard deviation, as a function of a standard normal x.
    ratio = np.sqrt(np.where(_X < 0, lower, upper) * 2 / df)
    return np.asarray(-special.stdtrit(df, tail) * ratio, dtype=np.float64)


def _effect(n_items: ArrayLike, difference: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Difference in standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.abs(difference) / np.sqrt(np.asarray(variance) / np.asarray(n_items))


def least_items(
    power_of: Callable[[FloatArray], FloatArray], start: FloatArray, *, power: float
) -> FloatArray:
    """Least whole numbers at which the power reaches its goal; inf beyond `MOST_ITEMS`.

    Parameters
    ----------
    power_of
        Power as an increasing function of the number of items, both of shape (C,).
    start
        Shape (C,): initial guesses.
    """
    high = np.clip(np.ceil(np.nan_to_num(start, nan=1.0)), 1.0, MOST_ITEMS)
    while np.any(short := (power_of(high) < power) & (high < MOST_ITEMS)):
        high = np.where(short, 2 * high, high)
    low, top = np.zeros_like(high), high
    while np.any(unsettled := top - low > 1):
        middle = np.where(unsettled, np.floor((low + top) / 2), top)
        enough = power_of(middle) >= power
        top, low = (
            np.where(unsettled & enough, middle, top),
            np.where(unsettled & ~enough, middle, low),
        )
    return np.where(high < MOST_ITEMS, top, np.inf)


def least_difference(
    power_of: Callable[[FloatArray], FloatArray],
    highest: FloatArray,
    *,
    power: float,
    tolerance: float = 1e-9,
) -> FloatArray:
    """Least differences whose power is at the goal; NaN where `highest` is too small.

    Parameters
    ----------
    power_of
        Power as an increasing function of the difference, both of shape (C,).
    highest
        Shape (C,): the greatest possible differences.
    """
    low, high = np.zeros_like(highest), highest
    for _ in range(60):
        middle = (low + high) / 2
        enough = power_of(middle) >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        if np.all(high - low <= tolerance):
            break
    return np.where(power_of(highest) >= power, high, np.nan)


def paired_power(
    n_items: ArrayLike,
    discordance: ArrayLike,
    difference: ArrayLike,
    *,
    tail: float,
) -> FloatArray:
    """Power of a comparison of 0/1 scores: the probability that it finds one, either way.

    Parameters
    ----------
    n_items, discordance, difference
        Broadcast against each other. The discordance is the probability that exactly one of the
        models is right on an item, at least the difference.
    tail
        One-sided significance level.

    Examples
    --------
    >>> print(f"{paired_power(200, 0.2, 0.1, tail=0.025):.4f}")
    0.9051
    """
    n, differing, size = as_floats(n_items, discordance, np.abs(difference))
    if np.any((size > differing) | (differing > 1) | (n < 1)):
        raise ValueError("there must be an item or more, and |difference| <= discordance <= 1")
    mean, spread = n * differing, np.sqrt(n * differing * (1 - differing))
    first = np.floor(np.maximum(mean - _REACH * spread - _REACH**2, 0.0))
    last = np.ceil(np.minimum(mean + _REACH * spread + _REACH**2, n))
    width = int(np.max(last - first, initial=0.0)) + 1
    differ = first[..., None] + np.arange(width)
    inside = differ <= n[..., None]
    differ = np.where(inside, differ, first[..., None])
    weight = np.where(inside, _binomial(differ, n[..., None], differing[..., None]), 0.0)
    least = float(first.min())
    most_of = _critical_counts(least, float(differ.max()), tail)[(differ - least).astype(np.int64)]
    # Where nothing differs both are as likely.
    for_b = ((1 + size / np.maximum(differing, 1e-300)) / 2)[..., None]
    rejects = binomial_cdf(most_of, differ, for_b) + binomial_cdf(most_of, differ, 1 - for_b)
    return (weight * rejects).sum(axis=-1)


def paired_items_needed(
    discordance: ArrayLike,
    difference: ArrayLike,
    *,
    tail: float,
    power: float,
) -> FloatArray:
    """Least number of items from which a comparison of 0/1 scores has this power, shape (C,).

    The power of a test on counts oscillates where nearly every item is discordant: a number is
    enough if every larger one, up to a quarter plus twenty more, is enough too.

    >>> paired_items_needed([0.2, 1.0], [0.1, 0.3], tail=0.025, power=0.8).tolist()
    [145.0, 89.0]
    """
    differing, size = np.broadcast_arrays(*(np.atleast_1d(x) for x in (discordance, difference)))
    start = items_needed(size, differing, tail=tail, power=power)

    def power_of(n: FloatArray) -> FloatArray:
        return paired_power(n, differing, size, tail=tail)

    enough = least_items(power_of, start, power=power)
    for i in np.flatnonzero((enough * (1 - differing) < 10) & np.isfinite(enough)).tolist():
        first = float(enough[i])
        ahead = np.arange(first, 1.25 * first + 20, dtype=np.float64)
        above = paired_power(ahead, differing[i], size[i], tail=tail)
        # One more than the last that is not enough.
        enough[i] = first + np.flatnonzero(np.append(power - 1, above) < power)[-1]
    return enough


def mixture_power(
    looks: FloatArray,
    difference: float,
    *,
    discordance: float | None = None,
    variance: float = 0.0,
    units: tuple[FloatArray, FloatArray] | None = None,
    span: float = 1.0,
    tail: float,
) -> FloatArray:
    """Power of the mixture test [Rob70]_: how often it has rejected by each look, shape (L,).

    For 0/1 scores simulated from the `discordance`; for others from `units`, differences with that
    mean and their probabilities; else from normal sums of differences with a `variance`: with few
    large differences, all of one sign, the power is larger or, against the mean, smaller.

    Parameters
    ----------
    looks
        Shape (L,): rising numbers of items at which one looks and may stop.
    span
        The greatest possible difference.
    tail
        Half the level of the test.

    Examples
    --------
    >>> looks = np.arange(10, 280, 10.0)
    >>> power = mixture_power(looks, 0.1, discordance=0.2, tail=0.025)
    >>> print(f"at 150 items {power[14]:.2f}, at 270 {power[-1]:.2f}")
    at 150 items 0.47, at 270 0.79
    """
    from evalstats_plugin.stats.sequential import log_capital

    rng, size, limit = stream(0, "paths of a sequential test"), abs(difference), -np.log(2 * tail)
    if units is not None:
        return _power_of_units(looks, units[0] / span, units[1], limit, rng)
    first, second = np.zeros((2, N_PATHS))  # sums; and squares, or discordant items
    power = np.empty(len(looks))
    is_count = discordance is not None
    losses = _BETS[:0] if is_count else _loss_by_bet(size / span, np.sqrt(variance) / span)
    for look, step in enumerate(np.diff(looks, prepend=0.0).tolist()):
        if discordance is None:
            first = first + rng.normal(step * size, np.sqrt(step * variance), len(first))
            squares = looks[look] * (variance + size**2) / span**2
            won = _log_capital_of_sums(first / span, looks[look] * losses, squares)
        else:
            new = rng.binomial(int(step), discordance, len(first))
            share = (1 + size / discordance) / 2 if discordance else 0.5
            first, second = first + rng.binomial(new, share), second + new
            won = log_capital(first, second)
        going = won < limit
        first = first[going]
        second = second if discordance is None else second[going]
        power[look] = 1 - len(first) / N_PATHS
    return power


def _power_of_units(
    looks: FloatArray, x: FloatArray, share: FloatArray, limit: float, rng: np.random.Generator
) -> FloatArray:
    """Power where single differences are drawn: each multiplies the capital of a bet by 1 + λx.

    They are split between the points of a grid, as the test splits them.
    """
    from evalstats_plugin.stats.sequential import split

    points, weights = split((np.clip(x, -1.0, 1.0)[None] + 1) / 2, share)
    share = weights[0]
    gains = np.log1p(np.multiply.outer(2 * points - 1, _FEW_BETS))
    won = np.zeros((N_DRAWN, len(_FEW_BETS)))
    power = np.empty(len(looks))
    for look, step in enumerate(np.diff(looks, prepend=0.0).tolist()):
        won += rng.multinomial(int(step), share, len(won)) @ gains
        won = won[special.logsumexp(won, axis=1) - np.log(len(_FEW_BETS)) < limit]
        power[look] = 1 - len(won) / N_DRAWN
    return power


def _loss_by_bet(mean: float, sd: float) -> FloatArray:
    """Return λE[d] - E[log(1 + λd)] of each bet λ on a difference d, a beta on -1 to 1."""
    share = np.clip((1 + mean) / 2, 1e-9, 1 - 1e-9)
    whole = share * (1 - share)
    size = whole / np.clip(sd**2 / 4, 1e-6 * whole, 0.999 * whole) - 1
    d = 2 * special.betaincinv(share * size, (1 - share) * size, (np.arange(200) + 0.5) / 200) - 1
    return _BETS * d.mean() - np.log1p(_BETS[:, None] * d).mean(axis=1)


def _log_capital_of_sums(sums: FloatArray, losses: FloatArray, squares: float) -> FloatArray:
    """Log of the mean capital over the bets λ = cos θ of the mixture, θ uniform.

    Where V, the sum of squares, is large, only bets near S/V win: it is √(π/2V) exp(S²/2V) / π.
    """
    if squares > _MOST_SQUARES:
        return sums**2 / (2 * squares) - np.log(np.pi * squares / 2) / 2
    at = np.linspace(sums.min(initial=-1.0), sums.max(initial=1.0), 129)
    won, _ = log_mean_exp(at[:, None] * _BETS - losses)
    return np.interp(sums, at, won)


def mixture_items_needed(
    difference: float,
    *,
    discordance: float | None = None,
    variance: float,
    units: tuple[FloatArray, FloatArray] | None = None,
    span: float = 1.0,
    look_every: int,
    tail: float,
    power: float,
) -> float:
    """Items after which the mixture test has rejected with this power; inf beyond `MOST_ITEMS`.

    Parameters are those of `mixture_power`; looks are multiples of `look_every`.
    """
    top = 2 * float(items_needed(difference, variance, tail=tail, power=power))
    while top <= MOST_ITEMS:
        looks = looks_up_to(top, look_every)
        powers = mixture_power(
            looks, difference, discordance=discordance, variance=variance, units=units, span=span,
            tail=tail,
        )  # fmt: skip
        if powers[-1] >= power:
            return float(looks[np.argmax(powers >= power)])
        top *= 2
    return np.inf


def looks_up_to(n_items: float, look_every: int) -> FloatArray:
    """Multiples of `look_every` up to a number of items, at most `MOST_LOOKS` of them."""
    last = max(int(n_items) // look_every, 1)
    steps = np.linspace(1, last, min(last, MOST_LOOKS)).round()
    return np.unique(steps) * look_every


@lru_cache(maxsize=16)
def _critical_counts(least: float, most: float, tail: float) -> FloatArray:
    """Critical values of all numbers of discordant items: a search asks for the same ones often."""
    return critical_count(np.arange(least, most + 1), tail=tail)


def critical_count(n: FloatArray, *, tail: float) -> FloatArray:
    """Critical value: greatest k of n discordant items for one model at which the test rejects.

    -1 where none does.
    """
    at_least_one = np.maximum(n, 1.0)

    def rejects(k: FloatArray) -> BoolArray:
        # The one-sided p-value of `differences.Counts`.
        most = np.maximum(k, 0.0)
        return (k >= 0) & (special.betainc(at_least_one - most + 0.5, most + 0.5, 0.5) <= tail)

    # Tails rise with k, and for k ≥ n/2 they are at least ½.
    low, high = np.full_like(n, -1.0), np.ceil(n / 2)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        enough = rejects(middle)
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def _binomial(k: FloatArray, n: FloatArray, p: FloatArray) -> FloatArray:
    """P(X = k) of X ~ Binomial(n, p)."""
    log_ways = -special.betaln(k + 1, n - k + 1) - np.log1p(n)
    return np.exp(log_ways + special.xlogy(k, p) + special.xlog1py(n - k, -p))
