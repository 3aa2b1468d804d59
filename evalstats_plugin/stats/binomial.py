"""Intervals for a proportion: how many of `n` items a model gets right in the long run.

Every function takes `successes` and `n` that broadcast against each other, and answers NaN where
`n` is 0. Limits for k successes and for n - k mirror each other exactly.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)

LimitFunction: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]


def wald(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Interval of the normal approximation: the "CLT" interval of most reports.

    Kept to compare with. It is not clipped to [0, 1] and has no width at 0 and n successes.
    """
    k, n_items = _counts(successes, n)
    p = k / n_items
    half = normal_quantile(confidence_level) * np.sqrt(p * (1 - p) / n_items)
    return Interval(p - half, p + half)


def wilson(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Score interval: all proportions that a z test would not reject [Wil27]_.

    >>> low, high = wilson(81, 263, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.2553 0.3662
    """
    z = normal_quantile(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        root = z * np.sqrt(k * (n_items - k) / n_items + z**2 / 4)
        # (k + z²/2 - root)/(n + z²), written without the subtraction, so that 0 of n gives 0.
        return k**2 / (n_items * (k + z**2 / 2 + root))

    return _mirrored(lower, *_counts(successes, n))


def wilson_cc(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Wilson interval with continuity correction [New98]_ (method 4)."""
    z = normal_quantile(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        # The formula is for k > 0, where what is under the root is positive.
        k_in = np.maximum(k, 1.0)
        root = z * np.sqrt(z**2 - 2 - 1 / n_items + 4 * k_in * (n_items - k_in + 1) / n_items)
        limit = (2 * k_in + z**2 - 1 - root) / (2 * (n_items + z**2))
        return np.where(k == 0, 0.0, np.maximum(limit, 0.0))

    return _mirrored(lower, *_counts(successes, n))


def agresti_coull(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Wald interval after adding z²/2 successes and failures, clipped to [0, 1] [AC98]_."""
    k, n_items = _counts(successes, n)
    z = normal_quantile(confidence_level)
    total = n_items + z**2
    p = (k + z**2 / 2) / total
    half = z * np.sqrt(p * (1 - p) / total)
    return Interval(np.maximum(p - half, 0.0), np.minimum(p + half, 1.0))


def clopper_pearson(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Exact interval: covers with at least the stated level, whatever the proportion [CP34]_."""
    tail = tail_probability(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        limit = _beta_quantile(np.maximum(k, 1.0), n_items - k + 1, tail)
        return np.where(k == 0, 0.0, limit)

    return _mirrored(lower, *_counts(successes, n))


def mid_p(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Clopper–Pearson that counts only half of the probability of what was seen [New98]_."""
    tail = tail_probability(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        a, b = np.maximum(k, 1.0), np.maximum(n_items - k, 1.0)

        def excess(logit: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            c, d = a[cells], b[cells]
            p, rest = special.expit(logit), special.expit(-logit)
            at_least, more = special.betainc(c, d + 1, p), special.betainc(c + 1, d, p)
            slope = _logit_density(c, d + 1, p, rest) + _logit_density(c + 1, d, p, rest)
            return (at_least + more) / 2 - tail, slope / 2

        jeffreys_limit = _beta_quantile(a + 0.5, b + 0.5, tail)
        start = np.log(jeffreys_limit / (1 - jeffreys_limit))
        inner = special.expit(increasing_root(excess, start, bracket=(-700, 40), tolerance=1e-7))
        everything = (2 * tail) ** (1 / np.maximum(n_items, 1.0))
        return np.where(k == 0, 0.0, np.where(k == n_items, everything, inner))

    return _on_distinct(lambda k, n_items: _mirrored(lower, k, n_items), *_counts(successes, n))


def jeffreys(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Beta(½, ½) posterior, equal tails; reaches 0 at k = 0 and 1 at k = n [BCD01]_."""
    tail = tail_probability(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        return np.where(k == 0, 0.0, _beta_quantile(k + 0.5, n_items - k + 0.5, tail))

    return _mirrored(lower, *_counts(successes, n))


def beta_equal_tailed(
    successes: ArrayLike, n: ArrayLike, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Beta posterior, equal tails.

    With prior (1, 1) this is the Bayesian interval of [BAI25]_; it leaves out the estimate when
    all or none of the items are right.
    """
    k, n_items = _counts(successes, n)
    a, b = _posterior(k, n_items, prior)
    tail = tail_probability(confidence_level)
    return Interval(_beta_quantile(a, b, tail), 1 - _beta_quantile(b, a, tail))


def beta_hpd(
    successes: ArrayLike, n: ArrayLike, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Beta posterior, highest density: the shortest interval that holds `confidence_level` of it.

    With prior (1, 1) its peak is k/n, so that it always holds the estimate, and its coverage
    averaged over all proportions is exactly `confidence_level`.

    Notes
    -----
    A posterior that only falls (or only rises) has its highest density at 0 (or 1), and the
    interval starts there: with prior (1, 1) at k = 0 it is [0, 1 - (1 - level)^(1/(n+1))]. For a
    flat or U-shaped posterior, possible only with next to no data, no single interval is the
    highest; the equal-tailed one is given.

    Examples
    --------
    >>> low, high = beta_hpd(20, 20, confidence_level=0.95, prior=(1, 1))
    >>> print(f"{low:.4f} {high:.4f}")
    0.8671 1.0000
    """
    tail_probability(confidence_level)

    def solve(k: FloatArray, n_items: FloatArray) -> Interval:
        return _highest_density(*_posterior(k, n_items, prior), confidence_level)

    return _on_distinct(solve, *_counts(successes, n))


def _highest_density(a: FloatArray, b: FloatArray, confidence_level: float) -> Interval:
    """Highest-density interval of Beta(a, b)."""
    left_out = 1 - confidence_level
    peaked, falling, rising = (a > 1) & (b > 1), (a <= 1) & (b > 1), (a > 1) & (b <= 1)
    mass_below = np.select([falling, rising], [0.0, left_out], left_out / 2)
    mass_below[peaked] = _mass_below_peaked(a[peaked], b[peaked], left_out)
    low = _beta_quantile(a, b, mass_below)
    return Interval(low, 1 - _beta_quantile(b, a, left_out - mass_below))


def _mass_below_peaked(a: FloatArray, b: FloatArray, left_out: float) -> FloatArray:
    """Posterior mass below the highest-density interval, for a, b > 1.

    The densities at both ends are equal. Solved for the logit of the share of what is left out
    that lies below, in which that condition is nearly linear.
    """

    def log_density_gap(share: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        c, d = a[cells], b[cells]
        below, beyond = left_out * special.expit(share), left_out * special.expit(-share)
        low, above = _beta_quantile(c, d, below), _beta_quantile(d, c, beyond)
        gap = (c - 1) * np.log(low / (1 - above)) + (d - 1) * np.log((1 - low) / above)
        # d(log density)/d(mass) at both ends: x(1 - x) cancels against the density of the logit.
        rate_low = ((c - 1) * (1 - low) - (d - 1) * low) / _logit_density(c, d, low, 1 - low)
        rate_high = ((d - 1) * (1 - above) - (c - 1) * above) / _logit_density(
            d, c, above, 1 - above
        )
        return gap, (rate_low + rate_high) * below * beyond / left_out

    # A fit to exact solutions at level 0.95, close at others: the skewer, the less lies below.
    skew = 2 * (b - a) / np.sqrt((a - 1) * (b - 1) * (a + b - 2))
    start = -skew * (1.56 + 0.2 * np.abs(skew))
    share = increasing_root(log_density_gap, start, bracket=(-700, 700), tolerance=1e-6)
    return left_out * special.expit(share)


def _counts(successes: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Float arrays of one shape, NaN where there are no items."""
    k, n_items = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    )
    if np.any((k < 0) | (k > n_items)):
        raise ValueError("successes must lie between 0 and n")
    empty = n_items == 0
    return np.where(empty, np.nan, k), np.where(empty, np.nan, n_items)


def _posterior(
    k: FloatArray, n_items: FloatArray, prior: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    if min(prior) <= 0:
        raise ValueError(f"a Beta prior needs two positive numbers, got {prior}")
    return k + prior[0], n_items - k + prior[1]


def _mirrored(lower: LimitFunction, k: FloatArray, n_items: FloatArray) -> Interval:
    """Both limits from the lower one: k right is n - k wrong."""
    return Interval(lower(k, n_items), 1 - lower(n_items - k, n_items))


def _on_distinct(
    solve: Callable[[FloatArray, FloatArray], Interval], k: FloatArray, n_items: FloatArray
) -> Interval:
    """Solve once for each distinct pair (k, n): thousands of cells hold few."""
    # A pair packed into one complex number sorts faster than rows do.
    pairs, where = np.unique(k.ravel() + 1j * n_items.ravel(), return_inverse=True)
    distinct = solve(pairs.real, pairs.imag)
    return Interval(distinct.low[where].reshape(k.shape), distinct.high[where].reshape(k.shape))


def _beta_quantile(a: FloatArray, b: FloatArray, probability: float | FloatArray) -> FloatArray:
    return np.asarray(special.betaincinv(a, b, probability), dtype=np.float64)


def _logit_density(a: FloatArray, b: FloatArray, x: FloatArray, rest: FloatArray) -> FloatArray:
    """Density of logit(X), X ~ Beta(a, b), where x + rest = 1."""
    return np.exp(special.xlogy(a, x) + special.xlogy(b, rest) - special.betaln(a, b))
