"""Intervals for a proportion, and for the mean of scores between known bounds.

* `wald`, `wilson`, `clopper_pearson`, `jeffreys`, `beta_hpd` and others: how many of `n` items a
  model gets right in the long run. `successes` and `n` broadcast against each other; NaN where
  `n` is 0. Limits for k and for n - k successes mirror each other exactly.
* `dirichlet_process`, `gaffke`, `logit_t`: partial credit, means of epochs, pass@k, F1 per item.
  `scores` has shape (..., M), NaN where missing.
* `dirichlet_quantile`, `dirichlet_cdf`: the distribution of a mean with Dirichlet weights,
  Σ pᵢ xᵢ with p ~ Dirichlet(w), behind the first two of these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray, IntArray, as_floats
from evalstats_plugin.stats.interval import (
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)
from evalstats_plugin.stats.means import moments, t_quantile

LimitFunction: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
ComplexArray: TypeAlias = NDArray[np.complex128]

# For the distribution of a Dirichlet mean: the trapezoid rule starts with an error near exp(-15)
# and squares it with each refinement.
FIRST_EXPONENT = 15.0

# How often the step may be halved.
REFINEMENTS = 7

# A change this small means that the refined sum is exact to rounding.
SETTLED = 1e-6

# Relative size at which the terms of a sum no longer matter.
NEGLIGIBLE = 1e-14

# Cells are processed in blocks of about this many numbers, which stay in the processor's cache.
BLOCK_SIZE = 2**15

# Most terms of a sum that are computed at once.
_NODES = 16


def wald(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Interval of the normal approximation: the "CLT" interval of most reports.

    Kept for comparison. It is not clipped to [0, 1] and has no width at 0 and n successes.
    """
    k, n_items = binomial_counts(successes, n)
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

    return _mirrored(lower, *binomial_counts(successes, n))


def wilson_cc(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Wilson interval with continuity correction [New98]_ (method 4)."""
    z = normal_quantile(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        # The formula is for k > 0, where the radicand is positive.
        k_in = np.maximum(k, 1.0)
        root = z * np.sqrt(z**2 - 2 - 1 / n_items + 4 * k_in * (n_items - k_in + 1) / n_items)
        limit = (2 * k_in + z**2 - 1 - root) / (2 * (n_items + z**2))
        return np.where(k == 0, 0.0, np.maximum(limit, 0.0))

    return _mirrored(lower, *binomial_counts(successes, n))


def agresti_coull(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Wald interval after adding z²/2 successes and failures, clipped to [0, 1] [AC98]_."""
    k, n_items = binomial_counts(successes, n)
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

    return _mirrored(lower, *binomial_counts(successes, n))


def mid_p(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Mid-p Clopper–Pearson: counts half of the probability of the observed result [New98]_."""
    tail = tail_probability(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        a, b = np.maximum(k, 1.0), np.maximum(n_items - k, 1.0)

        def excess(logit: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            c, d = a[cells], b[cells]
            p, rest = special.expit(logit), special.expit(-logit)
            at_least, more = special.betainc(c, d + 1, p), special.betainc(c + 1, d, p)
            slope = _logit_density(c, d + 1, p, rest) + _logit_density(c + 1, d, p, rest)
            return (at_least + more) / 2 - tail, slope / 2

        # From Jeffreys' limit.
        start = special.logit(_beta_quantile(a + 0.5, b + 0.5, tail))
        inner = special.expit(increasing_root(excess, start, bracket=(-700, 40), tolerance=1e-7))
        everything = (2 * tail) ** (1 / np.maximum(n_items, 1.0))
        return np.where(k == 0, 0.0, np.where(k == n_items, everything, inner))

    return _on_distinct(
        lambda k, n_items: _mirrored(lower, k, n_items), *binomial_counts(successes, n)
    )


def jeffreys(successes: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Beta(½, ½) posterior, equal tails; reaches 0 at k = 0 and 1 at k = n [BCD01]_."""
    tail = tail_probability(confidence_level)

    def lower(k: FloatArray, n_items: FloatArray) -> FloatArray:
        return np.where(k == 0, 0.0, _beta_quantile(k + 0.5, n_items - k + 0.5, tail))

    return _mirrored(lower, *binomial_counts(successes, n))


def beta_equal_tailed(
    successes: ArrayLike, n: ArrayLike, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Beta posterior, equal tails.

    With prior (1, 1) this is the Bayesian interval of [BAI25]_; it leaves out the estimate when
    all or none of the items are right.
    """
    k, n_items = binomial_counts(successes, n)
    a, b = beta_posterior(k, n_items, prior)
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
    left_out = 1 - confidence_level

    def solve(k: FloatArray, n_items: FloatArray) -> Interval:
        a, b = beta_posterior(k, n_items, prior)
        peaked, falling, rising = (a > 1) & (b > 1), (a <= 1) & (b > 1), (a > 1) & (b <= 1)
        mass_below = np.select([falling, rising], [0.0, left_out], left_out / 2)
        mass_below[peaked] = _mass_below_peaked(a[peaked], b[peaked], left_out)
        low = _beta_quantile(a, b, mass_below)
        return Interval(low, 1 - _beta_quantile(b, a, left_out - mass_below))

    return _on_distinct(solve, *binomial_counts(successes, n))


def _mass_below_peaked(a: FloatArray, b: FloatArray, left_out: float) -> FloatArray:
    """Posterior mass below the highest-density interval, for a, b > 1.

    The densities at both ends are equal. Solved for the logit of the share of the left-out mass
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

    # Fitted to exact solutions at level 0.95, close at others: more skew, less mass below.
    skew = 2 * (b - a) / np.sqrt((a - 1) * (b - 1) * (a + b - 2))
    start = -skew * (1.56 + 0.2 * np.abs(skew))
    share = increasing_root(log_density_gap, start, bracket=(-700, 700), tolerance=1e-6)
    return left_out * special.expit(share)


def binomial_counts(successes: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Successes and numbers of items as float arrays of one shape, NaN where there are no items."""
    k, n_items = as_floats(successes, n)
    if np.any((k < 0) | (k > n_items)):
        raise ValueError("successes must lie between 0 and n")
    empty = n_items == 0
    return np.where(empty, np.nan, k), np.where(empty, np.nan, n_items)


def beta_posterior(
    k: FloatArray, n_items: FloatArray, prior: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Shapes of the Beta posterior after k successes among `n_items`."""
    if min(prior) <= 0:
        raise ValueError(f"a Beta prior needs two positive numbers, got {prior}")
    return k + prior[0], n_items - k + prior[1]


def binomial_cdf(k: FloatArray, n: FloatArray, p: FloatArray | float) -> FloatArray:
    """P(X ≤ k) of X ~ Binomial(n, p); 0 for k < 0."""
    inside = special.betainc(np.maximum(n - k, 0.5), np.maximum(k + 1, 0.5), 1 - np.asarray(p))
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))


def _mirrored(lower: LimitFunction, k: FloatArray, n_items: FloatArray) -> Interval:
    """Both limits from the lower one: k successes are n - k failures."""
    return Interval(lower(k, n_items), 1 - lower(n_items - k, n_items))


def _on_distinct(
    solve: Callable[[FloatArray, FloatArray], Interval], k: FloatArray, n_items: FloatArray
) -> Interval:
    """Solve once for each distinct pair (k, n): thousands of cells have few distinct ones."""
    # Pairs packed into complex numbers sort faster than rows.
    pairs, where = np.unique(k.ravel() + 1j * n_items.ravel(), return_inverse=True)
    distinct = solve(pairs.real, pairs.imag)
    return Interval(distinct.low[where].reshape(k.shape), distinct.high[where].reshape(k.shape))


def _beta_quantile(a: FloatArray, b: FloatArray, probability: float | FloatArray) -> FloatArray:
    return np.asarray(special.betaincinv(a, b, probability), dtype=np.float64)


def _logit_density(a: FloatArray, b: FloatArray, x: FloatArray, rest: FloatArray) -> FloatArray:
    """Density of logit(X), X ~ Beta(a, b), where x + rest = 1."""
    return np.exp(special.xlogy(a, x) + special.xlogy(b, rest) - special.betaln(a, b))


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
    atoms, weights = distinct_scores(unit)
    weights[:, [0, -1]] += mass
    mean = moments(unit).mean.ravel()
    low = np.minimum(lower_limit(atoms, weights, tail), mean)
    high = np.maximum(1 - lower_limit(1 - atoms, weights, tail), mean)
    return _from_unit(low, high, unit, bounds)


def gaffke(scores: ArrayLike, *, bounds: tuple[float, float], confidence_level: float) -> Interval:
    """Clopper–Pearson's interval, generalised to scores between the bounds [Gaf05]_ [LT19]_.

    The limits are quantiles of a mean with uniform Dirichlet weights, after adding one score at
    the lower bound for the lower limit, and one at the upper bound for the upper. On zeros and
    ones this *is* Clopper–Pearson. For other scores, that it never covers less than stated is a
    conjecture that no simulation has contradicted.
    """
    tail = tail_probability(confidence_level)
    unit = to_unit(scores, bounds)
    atoms, weights = distinct_scores(unit)
    one_below, one_above = np.zeros((2, weights.shape[1]))
    one_below[0] = one_above[-1] = 1
    low = lower_limit(atoms, weights + one_below, tail)
    high = 1 - lower_limit(1 - atoms, weights + one_above, tail)
    return _from_unit(low, high, unit, bounds)


def logit_t(scores: ArrayLike, *, bounds: tuple[float, float], confidence_level: float) -> Interval:
    """Student's t interval on the log odds of the mean, transformed back.

    Scores that are all equal have no spread. Their limits allow for a share of items at a bound
    that n items would all miss with probability (1 - level)/2: Clopper–Pearson's limits for 0 and
    n successes.
    """
    unit = to_unit(scores, bounds)
    n, mean, std = moments(unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = t_quantile(n - 1, confidence_level=confidence_level) * std / np.sqrt(n)
    low, high = logit_limits(mean, half, n, confidence_level=confidence_level)
    return _from_unit(low.ravel(), high.ravel(), unit, bounds)


def logit_limits(
    mean: FloatArray, half: FloatArray, n: FloatArray, *, confidence_level: float
) -> Interval:
    """Limits mean ± half of a mean in [0, 1], on the logit scale; of n equal units as `logit_t`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        half = half / (mean * (1 - mean))
        log_odds = np.log(mean) - np.log1p(-mean)
        share = tail_probability(confidence_level) ** (1 / n)
    equal = ~(half > 0)
    low = np.where(equal, share * mean, special.expit(log_odds - half))
    high = np.where(equal, 1 - share * (1 - mean), special.expit(log_odds + half))
    return Interval(low, high)


def to_unit(scores: ArrayLike, bounds: tuple[float, float]) -> FloatArray:
    """Rescale scores from their bounds to [0, 1]."""
    low, high = bounds
    if not low < high:
        raise ValueError(f"bounds must be (low, high) with low < high, got {bounds}")
    unit = (np.asarray(scores, dtype=np.float64) - low) / (high - low)
    # Means of epochs may exceed a bound by a rounding error.
    if np.any((unit < -1e-9) | (unit > 1 + 1e-9)):
        raise ValueError(f"scores must lie within their bounds {bounds}")
    return np.clip(unit, 0.0, 1.0)


def _from_unit(
    low: FloatArray, high: FloatArray, unit: FloatArray, bounds: tuple[float, float]
) -> Interval:
    """Rescale limits from [0, 1] to the bounds; NaN for cells without scores."""
    empty = np.all(np.isnan(unit), axis=-1)
    limits = [np.where(empty, np.nan, limit.reshape(empty.shape)) for limit in (low, high)]
    scaled = [bounds[0] + (bounds[1] - bounds[0]) * np.clip(limit, 0, 1) for limit in limits]
    return Interval(*scaled)


def distinct_scores(unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distinct scores of each cell and how often they occur, shapes (C, D).

    The first column is 0 and the last 1, seen or not; unused columns between have weight 0.
    """
    values = unit.reshape(int(np.prod(unit.shape[:-1])), unit.shape[-1])
    between = np.sort(np.where((values > 0) & (values < 1), values, np.nan), axis=1)
    cell, column = np.nonzero(~np.isnan(between))
    scores = between[cell, column]
    fresh = np.ones(len(scores), dtype=np.int64)
    fresh[1:] = (np.diff(scores) != 0) | (np.diff(cell) != 0)
    first_of_cell = np.ones(len(scores), dtype=np.bool_)
    first_of_cell[1:] = np.diff(cell) != 0
    running = np.cumsum(fresh)
    # Number each cell's distinct values from 1.
    before = np.maximum.accumulate(np.where(first_of_cell, running - 1, 0))
    rank = running - before
    shape = (len(values), int(rank.max(initial=0)) + 2)
    atoms, weights = np.zeros(shape), np.zeros(shape)
    np.add.at(weights, (cell, rank), 1.0)
    atoms[cell, rank] = scores
    atoms[:, -1] = 1
    weights[:, 0] = (values == 0).sum(axis=1)
    weights[:, -1] = (values == 1).sum(axis=1)
    return atoms, weights


def lower_limit(atoms: FloatArray, weights: FloatArray, tail: float) -> FloatArray:
    """Quantile of the Dirichlet-weighted mean, where one end column is 0 with positive weight."""
    used = weights > 0
    atoms = np.where(used, atoms, 0.0)
    n_distinct = used.sum(axis=1)
    # The mean of two values is a Beta variable times the upper one; of one, it is that value.
    top: FloatArray = atoms.max(axis=1, initial=0)
    weight_below: FloatArray = np.where(atoms == 0, weights, 0).sum(axis=1)
    weight_above: FloatArray = np.where(atoms > 0, weights, 0).sum(axis=1)
    limit = top * special.betaincinv(np.maximum(weight_above, 1e-9), weight_below, tail)
    n_columns = used.shape[1]
    for size in (2**power for power in range(2, n_columns.bit_length() + 1)):
        # Group cells by size, so that those with few distinct scores do not pay for the others.
        rows = np.nonzero((n_distinct > max(size // 2, 2)) & (n_distinct <= size))[0]
        if len(rows) > 0:
            columns = np.r_[0 : min(size, n_columns - 1), n_columns - 1]
            block = np.ix_(rows, columns)
            limit[rows] = dirichlet_quantile(atoms[block], weights[block], tail)
    return np.asarray(limit, dtype=np.float64)


def dirichlet_quantile(atoms: FloatArray, weights: FloatArray, probability: float) -> FloatArray:
    """Quantile of a Dirichlet-weighted mean, exact to about 1e-11 of the range of the atoms.

    Parameters
    ----------
    atoms : shape (C, D)
    weights : shape (C, D)
        Positive, or zero for padding, whose atom must not lie outside the others. At least two
        distinct atoms of each cell need a positive weight, and all together .2 or more: with less
        the sum ends before its terms are small.

    Examples
    --------
    >>> atoms, weights = np.array([[0.0, 0.5, 1.0]]), np.array([[1.0, 1.0, 1.0]])
    >>> print(f"{dirichlet_quantile(atoms, weights, 1 / 2)[0]:.9f}")  # symmetric about its middle
    0.500000000
    """
    return _in_blocks(partial(_quantile_block, probability=probability), atoms, weights)


def _in_blocks(of_block: Callable[..., FloatArray], *arrays: FloatArray) -> FloatArray:
    rows = max(BLOCK_SIZE // arrays[0].shape[1], 1)
    blocks = ([x[i : i + rows] for x in arrays] for i in range(0, len(arrays[0]), rows))
    return np.concatenate([np.zeros(0), *(of_block(*block) for block in blocks)])


def _quantile_block(atoms: FloatArray, weights: FloatArray, probability: float) -> FloatArray:
    """Root in the normal score of the Beta variable with the same mean and variance.

    The distribution is so close to that variable that one or two Newton steps suffice.
    """
    lowest, highest = atoms.min(axis=1), atoms.max(axis=1)
    unit_atoms = (atoms - lowest[:, None]) / (highest - lowest)[:, None]
    total = weights.sum(axis=1)
    mean = _total(weights, unit_atoms) / total
    spread = _total(weights, (unit_atoms - mean[:, None]) ** 2) / total
    size = mean * (1 - mean) * (total + 1) / spread - 1
    a, b = mean * size, (1 - mean) * size
    target = float(special.ndtri(probability))

    def newton(start: FloatArray, refinements: int, max_steps: int) -> FloatArray:
        def excess(score: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            at = np.asarray(
                special.betaincinv(a[cells], b[cells], special.ndtr(score)), dtype=np.float64
            )
            below, density = dirichlet_cdf_and_density(
                unit_atoms[cells], weights[cells], at, refinements=refinements
            )
            probit = special.ndtri(below)
            log_beta_density = (
                special.xlogy(a[cells] - 1, at)
                + special.xlog1py(b[cells] - 1, -at)
                - special.betaln(a[cells], b[cells])
            )
            slope = density * np.exp((probit**2 - score**2) / 2 - log_beta_density)
            return probit - target, slope

        return increasing_root(excess, start, bracket=(-37, 8), tolerance=1e-6, max_steps=max_steps)

    rough = newton(np.full(len(atoms), target), refinements=0, max_steps=1)
    score = newton(rough, refinements=REFINEMENTS, max_steps=100)
    return lowest + (highest - lowest) * special.betaincinv(a, b, special.ndtr(score))


def dirichlet_cdf(atoms: FloatArray, weights: FloatArray, at: FloatArray) -> FloatArray:
    """P(mean ≤ at) of Dirichlet-weighted means, to all digits; arguments as below."""

    def below(*block: FloatArray) -> FloatArray:
        return dirichlet_cdf_and_density(*block, refinements=REFINEMENTS)[0]

    return _in_blocks(below, atoms, weights, at)


def dirichlet_cdf_and_density(
    atoms: FloatArray, weights: FloatArray, at: FloatArray, *, refinements: int
) -> tuple[FloatArray, FloatArray]:
    """P(mean ≤ at) and its derivative.

    Parameters
    ----------
    atoms, weights : shape (C, D)
        As for `dirichlet_quantile`.
    at : shape (C,)
        Between the atoms of each cell.
    refinements
        How often the step may be halved: `REFINEMENTS` for all digits, 0 for about four.
    """
    mean = _total(weights, atoms) / weights.sum(axis=1)
    # Integrate the smaller tail: P(mean > at) by reflection.
    sign = np.where(at > mean, -1.0, 1.0)
    lowest: FloatArray = atoms.min(axis=1)
    highest: FloatArray = atoms.max(axis=1)
    reach = np.where(at > mean, highest - at, at - lowest)
    # With s in units of 1/reach the nearest singularity lies at 1.
    distance = (at[:, None] - atoms) * (sign / reach)[:, None]
    # The sum along an unsuitable path overflows; another path is used then.
    with np.errstate(over="ignore", invalid="ignore"):
        tail, density = _integral(distance, weights, refinements)
    return np.where(at > mean, 1 - tail, tail), density / reach


class _Path(NamedTuple):
    """Integration paths s(u) = saddle + scale · (tan(bend) (cosh u - 1) + i sinh u), per cell."""

    saddle: FloatArray
    scale: FloatArray
    bend: FloatArray


def _integral(
    distance: FloatArray, weights: FloatArray, refinements: int
) -> tuple[FloatArray, FloatArray]:
    """Integrals for P(mean ≤ t) and its derivative by the trapezoid rule, refined until settled."""
    path = _steepest_descent(distance, weights)
    step = 2 * np.pi * (np.pi / 2 - np.abs(path.bend)) / FIRST_EXPONENT
    total, peak = _sum_along(distance, weights, path, step, offset=0.0)
    # Where terms grow along the path, digits cancel; along a straight path they never grow.
    growing = ~(peak <= 10)
    if np.any(growing):
        path = path._replace(bend=np.where(growing, 0.0, path.bend))
        straight = _Path(*(part[growing] for part in path))
        total[:, growing], _ = _sum_along(
            distance[growing], weights[growing], straight, step[growing], offset=0.0
        )
    active = np.arange(len(distance))
    for _ in range(refinements):
        part = _Path(*(field[active] for field in path))
        between, _ = _sum_along(distance[active], weights[active], part, step[active], offset=0.5)
        refined = (total[:, active] + between) / 2
        change = np.abs(refined - total[:, active])
        total[:, active] = refined
        step[active] /= 2
        active = active[np.any(change > SETTLED * np.abs(refined), axis=0)]
        if len(active) == 0:
            break
    return total[0], total[1]


def _steepest_descent(distance: FloatArray, weights: FloatArray) -> _Path:
    """Path of constant phase, to second order in the distance from the saddle."""
    saddle = _saddle(distance, weights)
    ratio = distance / (1 - saddle[:, None] * distance)
    weighted = weights * ratio**2
    curvature = weighted.sum(axis=1) + saddle**-2
    third = 2 * (_total(weighted, ratio) - saddle**-3)
    scale = np.minimum(2 / np.sqrt(curvature), np.minimum(saddle, 1 - saddle))
    tangent = np.clip(scale * third / (3 * curvature), -0.7, 0.7)
    return _towards_decay(distance, weights, _bent(saddle, scale, tangent))


def _saddle(distance: FloatArray, weights: FloatArray) -> FloatArray:
    """Saddle point: where the integrand is lowest on (0, 1), hence highest on a crossing path."""

    def derivative(logit: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        s, rest = special.expit(logit), special.expit(-logit)
        ratio = distance[cells] / (1 - s[:, None] * distance[cells])
        first = _total(weights[cells], ratio)
        second = _total(weights[cells] * ratio, ratio)
        # s times the derivative of the integrand's logarithm.
        return s * first - 1, s * rest * (first + s * second)

    # Any path through (0, 1) gives the same integral; near the saddle it needs the fewest nodes.
    start = np.zeros(len(distance))
    root = increasing_root(derivative, start, bracket=(-36, 36), tolerance=0.1)
    return np.asarray(special.expit(root), dtype=np.float64)


def _bent(saddle: FloatArray, scale: FloatArray, tangent: FloatArray) -> _Path:
    """Path with the largest scale that keeps both singularities π/2 - |bend| off real u."""
    bend = np.arctan(tangent)
    room = np.minimum((1 - saddle) / (1 - np.sin(bend)), saddle / (1 + np.sin(bend)))
    return _Path(saddle, np.minimum(scale, room * np.cos(bend)), bend)


def _towards_decay(distance: FloatArray, weights: FloatArray, path: _Path) -> _Path:
    """Choose another bend where the integrand decays slowly: nearly equal scores, or very few.

    Nearly equal scores act like a factor exp(δ s), which decays to one side only; the saddle does
    not show to which.
    """
    slow = np.nonzero(_log_size(distance, weights, path, (4,)) > -20)[0]
    if len(slow) == 0:
        return path
    few, few_weights = distance[slow], weights[slow]
    here = _Path(*(part[slow] for part in path))
    paths = [here, *(_bent(here.saddle, here.scale, np.full(len(slow), t)) for t in (-1.0, 1.0))]
    sizes = np.stack([_log_size(few, few_weights, each, (4, 8, 12, 16)) for each in paths])
    best = np.argmin(sizes, axis=0)
    for part, choices in zip(path, zip(*paths, strict=True), strict=True):
        part[slow] = np.choose(best, choices)
    return path


def _log_size(
    distance: FloatArray, weights: FloatArray, path: _Path, places: tuple[int, ...]
) -> FloatArray:
    """Largest log size of the integrand's product over `places` u, relative to the saddle."""
    ratio = distance / (1 - path.saddle[:, None] * distance)
    sizes: list[FloatArray] = []
    for u in places:
        move = path.scale * (np.tan(path.bend) * (np.cosh(u) - 1) + 1j * np.sinh(u))
        squared = (1 - move.real[:, None] * ratio) ** 2 + (move.imag[:, None] * ratio) ** 2
        sizes.append(-0.5 * _total(weights, np.log(squared)))
    return np.max(sizes, axis=0)


def _sum_along(
    distance: FloatArray, weights: FloatArray, path: _Path, step: FloatArray, *, offset: float
) -> tuple[FloatArray, FloatArray]:
    """Sums over u = (node + offset) · step, shape (2, C): for P(mean ≤ t) and its derivative.

    Also the largest term relative to that at the saddle.
    """
    at_saddle = 1 - path.saddle[:, None] * distance
    factor = step / np.pi * np.exp(-_total(weights, np.log(at_saddle)))
    ratio, weights_at_saddle = distance / at_saddle, weights / at_saddle
    tangent = np.tan(path.bend)
    sums = np.zeros((2, len(distance)))
    peak = np.ones(len(distance))
    # Few cells take longer to start than to compute: several nodes at once.
    together = max(1, min(_NODES, BLOCK_SIZE // (4 * distance.size)))
    for first in range(0, 4000, together):
        node = np.arange(first, first + together)[:, None] + offset
        # Larger u would overflow in cells whose sums are already complete.
        u = np.minimum(node * step, 200.0)
        move = path.scale * (tangent * (np.cosh(u) - 1) + 1j * np.sinh(u))
        direction = path.scale * (tangent * np.sinh(u) + 1j * np.cosh(u))
        product, rate = _factors(move, ratio, weights, weights_at_saddle)
        # The first node is an end point of the rule, with weight ½.
        below = np.where(node == 0, 0.5, 1.0) * product * direction / (path.saddle + move)
        terms = np.stack([below, below * (path.saddle + move) * rate])
        sums += terms.imag.sum(axis=1)
        size = np.abs(terms)
        peak = np.maximum(peak, size[0].max(axis=0) * path.saddle / path.scale)
        if np.all(size[:, -1] <= NEGLIGIBLE * np.abs(sums)):
            break
    return sums * factor, peak


def _factors(
    move: ComplexArray, ratio: FloatArray, weights: FloatArray, weights_at_saddle: FloatArray
) -> tuple[ComplexArray, ComplexArray]:
    """Π (1 - s d)^-w relative to that at the saddle, and Σ w / (1 - s d).

    Real arithmetic is several times as fast here as complex logarithms.
    """
    # (1 - s d) / (1 - saddle d) = real - i imaginary.
    real = 1 - move.real[..., None] * ratio
    imaginary = move.imag[..., None] * ratio
    squared = real**2 + imaginary**2
    angle = np.arctan(imaginary / real)
    if np.any(real < 0):
        angle += np.where(real < 0, np.copysign(np.pi, imaginary), 0)
    product = np.exp(-0.5 * _total(weights, np.log(squared)) + 1j * _total(weights, angle))
    inverse = weights_at_saddle / squared
    return product, _total(inverse, real) + 1j * _total(inverse, imaginary)


def _total(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Weighted sum over the atoms of each cell; more axes may stand before."""
    return np.asarray(np.einsum("...d,...d->...", weights, values), dtype=np.float64)
