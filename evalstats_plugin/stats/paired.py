"""Two models, a and b, on the same items: intervals and tests for the difference b - a.

* right or wrong answers: `dirichlet`, `tango`, `bonett_price`, `agresti_min`, `newcombe`, `wald`,
  `mcnemar_exact`, `mcnemar_mid_p`, `prob_better`. The difference is P(b is right) - P(a is right);
  only discordant items, which one model alone gets right, carry information about its sign.
* the same by a latent bivariate normal model: `latent` [BAI25]_
* scores of any kind: `dirichlet_process_prob`, `t_prob`, `sign_flip`. `differences` has shape
  (P, M), NaN where an item lacks a score.

Exchanging a and b changes the sign of every limit, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.bounded import binomial_cdf, wilson
from evalstats_plugin.stats.interval import (
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)
from evalstats_plugin.stats.means import moments, t_prob_positive

LowerLimit: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Lower limit from the numbers of items that only a, and only b, gets right, and of all items."""

LogDensity: TypeAlias = Callable[..., FloatArray]
"""``f(rows, v, ...)``: log posterior density for the tables `rows`, with b ahead, in stretched
coordinates, the first that of the distance; each of shape (rows, 1, ..., nodes, ..., 1)."""

# Bounds of the stretched coordinates: beyond lies a share of exp(-73) of each range.
WIDEST = 4.3

# A density below exp(-DEPTH) of its peak is left out.
DEPTH = 26.0

# Nodes per coordinate of the search for the peak.
SEARCH_NODES = 10

# Tolerated relative difference between the sums over even and odd nodes: along the distance it is
# the error of the interpolated distribution, along the other coordinates the error's square root.
SETTLED_DISTANCE = 2e-10
SETTLED = 3e-6
MOST_REFINEMENTS = 8

# Numbers processed at a time.
POSTERIOR_BLOCK_SIZE = 2**17

# Initial nodes of each coordinate: the difference of the scores, their location, and atanh of the
# correlation. Odd numbers: of an even number every other node adds nothing by symmetry.
NODES = (41, 25, 21)

# Up to this many nonzero differences, all sign assignments are enumerated.
MOST_ENUMERATED = 16

# From this many on, the normal limit is more accurate than drawn signs.
LIMIT_IS_NORMAL = 10_000

# Sums are formed in blocks of about this many numbers; results do not depend on it.
RESAMPLING_BLOCK_SIZE = 2**22

# Sums that differ by no more than rounding errors are ties.
ROUNDING = 1e-9


class PairedCounts(NamedTuple):
    """2 × 2 tables of right and wrong: arrays of one shape, NaN where there are no items."""

    both: FloatArray
    only_a: FloatArray
    only_b: FloatArray
    neither: FloatArray

    @property
    def n(self) -> FloatArray:
        """Number of items."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def difference(self) -> FloatArray:
        """Share of items that b gets right, minus that of a."""
        return (self.only_b - self.only_a) / self.n


def paired_counts(
    both: ArrayLike, only_a: ArrayLike, only_b: ArrayLike, neither: ArrayLike
) -> PairedCounts:
    """Build tables from counts that broadcast against each other."""
    cells = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (both, only_a, only_b, neither))
    )
    if any(np.any(x < 0) for x in cells):
        raise ValueError("counts of items must not be negative")
    empty = sum(cells) == 0
    return PairedCounts(*(np.where(empty, np.nan, x) for x in cells))


def dirichlet(
    counts: PairedCounts, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Dirichlet posterior of the four cells, equal tails of the difference.

    The difference is a mean of -1, 0 and 1 with Dirichlet weights, whose quantiles
    `bounded.dirichlet_quantile` gives to about 1e-11. Extended if necessary to hold the estimate.

    Parameters
    ----------
    prior
        Of each discordant cell, and of the two others together: (½, 1) is Jeffreys'
        Dirichlet(½, ½, ½, ½); (⅓, 4⅓) makes each model's score uniform.

    Examples
    --------
    >>> low, high = dirichlet(paired_counts(19, 2, 4, 5), confidence_level=0.95, prior=(0.5, 1.0))
    >>> print(f"{low:.4f} {high:.4f}")
    -0.0956 0.2268
    """
    if min(prior) <= 0:
        raise ValueError(f"a Dirichlet prior needs positive numbers, got {prior}")
    tail = tail_probability(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        alike = n - only_a - only_b
        weights = np.stack([only_a + prior[0], alike + prior[1], only_b + prior[0]], axis=1)
        atoms = np.broadcast_to([-1.0, 0.0, 1.0], weights.shape)
        limit = bounded.dirichlet_quantile(atoms, weights, tail)
        return np.minimum(limit, (only_b - only_a) / n)

    return _mirrored(lower, counts)


def prob_better(counts: PairedCounts, *, prior: tuple[float, float]) -> FloatArray:
    """Posterior probability that b is better than a, in closed form.

    P(p_b > p_a) under the model of `dirichlet`: the probability that a Beta variable is below ½.

    >>> print(f"{prob_better(paired_counts(19, 2, 4, 5), prior=(0.5, 1.0)):.6f}")
    0.791026
    """
    a, b = counts.only_a + prior[0], counts.only_b + prior[0]
    # Exactly ½ for equal counts, free of rounding errors.
    return np.where(a == b, 0.5, special.betainc(a, b, 0.5))


def tango(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Score interval: all differences that a score test would not reject [Tan98]_.

    >>> low, high = tango(paired_counts(20, 0, 0, 0), confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    -0.1611 0.1611
    """
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        def excess(at: FloatArray, tables: IntArray) -> tuple[FloatArray, FloatArray]:
            statistic, slope = _score_statistic(at, only_a[tables], only_b[tables], n[tables])
            return z - statistic, -slope

        start = _agresti_min_lower(only_a, only_b, n, z)
        start = np.clip(start, -0.999, 0.999)
        root = increasing_root(excess, start, bracket=(-1.0, 1.0), tolerance=1e-9)
        # If a alone is right on every item, the limit is -1.
        return np.where(only_a == n, -1.0, root)

    return _mirrored(lower, counts)


def _score_statistic(
    at: FloatArray, only_a: FloatArray, only_b: FloatArray, n: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Tango's statistic for a true difference, and its derivative.

    P(only a is right) is the root p of 2n p² + linear p + constant = 0 [Tan98]_ (eq. 24).
    """
    linear = (2 * n - only_b + only_a) * at - only_a - only_b
    constant = -only_a * at * (1 - at)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    # Of the two forms of the solution, the one without cancellation.
    p = np.where(linear > 0, -2 * constant / (linear + root), (root - linear) / (4 * n))
    p_slope = (only_a * (1 - 2 * at) - (2 * n - only_b + only_a) * p) / root
    variance = n * (2 * p + at * (1 - at))
    statistic = (only_b - only_a - n * at) / np.sqrt(variance)
    variance_slope = n * (2 * p_slope + 1 - 2 * at)
    return statistic, -n / np.sqrt(variance) - statistic * variance_slope / (2 * variance)


def bonett_price(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Wald interval after adding one item to each discordant cell [BP12]_."""
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        a, b = (only_a + 1) / (n + 2), (only_b + 1) / (n + 2)
        return b - a - z * np.sqrt((a + b - (b - a) ** 2) / (n + 2))

    return _mirrored(lower, counts)


def agresti_min(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Wald interval after adding half an item to each cell [AM05]_."""
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        return _agresti_min_lower(only_a, only_b, n, z)

    return _mirrored(lower, counts)


def _agresti_min_lower(
    only_a: FloatArray, only_b: FloatArray, n: FloatArray, z: float
) -> FloatArray:
    difference = (only_b - only_a) / (n + 2)
    spread = (only_a + only_b + 1) / (n + 2) - difference**2
    return difference - z * np.sqrt(spread / (n + 2))


def newcombe(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Square-and-add of the two Wilson intervals with their correlation [New98c]_ (method 10).

    The correlation has a continuity correction.
    """
    n = counts.n
    right_a, right_b = counts.both + counts.only_a, counts.both + counts.only_b
    a, b = (wilson(right, n, confidence_level=confidence_level) for right in (right_a, right_b))
    p_a, p_b = right_a / n, right_b / n
    phi = _corrected_phi(counts)

    def combined(one: FloatArray, other: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(one**2 - 2 * phi * one * other + other**2, 0))

    difference = counts.difference
    return Interval(
        difference - combined(p_b - b.low, a.high - p_a),
        difference + combined(b.high - p_b, p_a - a.low),
    )


def _corrected_phi(counts: PairedCounts) -> FloatArray:
    """Continuity-corrected correlation of being right; 0 where it is undefined."""
    both, only_a, only_b, neither = counts
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    product = both * neither - only_a * only_b
    product = np.where(product > 0, np.maximum(product - counts.n / 2, 0), product)
    return np.where(margins > 0, product / np.sqrt(np.where(margins > 0, margins, 1)), 0.0)


def wald(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Interval of the normal approximation, kept for comparison.

    It has no width when no item, or every item, is discordant in the same direction.
    """
    difference, n = counts.difference, counts.n
    spread = np.sqrt((counts.only_a + counts.only_b - n * difference**2) / n**2)
    half = normal_quantile(confidence_level) * spread
    return Interval(difference - half, difference + half)


def _mirrored(lower: LowerLimit, counts: PairedCounts) -> Interval:
    """Both limits from the lower one, within [-1, 1]: exchanging a and b changes the sign."""
    n = counts.n
    there = ~np.isnan(n)
    a, b, total = counts.only_a[there], counts.only_b[there], n[there]
    # Thousands of pairs have few distinct tables, and those of b against a are mirrored.
    keys = np.concatenate([a, b]) + 1j * np.concatenate([b, a])
    tables, where = np.unique(keys, return_inverse=True)
    sizes, size_of = np.unique(total, return_inverse=True)
    cells, cell_of = np.unique(
        where * len(sizes) + np.concatenate([size_of, size_of]), return_inverse=True
    )
    table, size = np.divmod(cells, max(len(sizes), 1))
    limits = lower(tables[table].real, tables[table].imag, sizes[size])
    limits = np.clip(limits, -1.0, 1.0)[cell_of]
    low, high = np.full_like(n, np.nan), np.full_like(n, np.nan)
    low[there], high[there] = limits[: len(a)], -limits[len(a) :]
    return Interval(low, high)


def mcnemar_exact(counts: PairedCounts) -> FloatArray:
    """Two-sided p-value of McNemar's exact test [McN47]_: a sign test on the discordant items."""
    fewer = np.minimum(counts.only_a, counts.only_b)
    return np.minimum(2 * binomial_cdf(fewer, counts.only_a + counts.only_b, 0.5), 1.0)


def mcnemar_mid_p(counts: PairedCounts) -> FloatArray:
    """Two-sided mid-p McNemar test: counts half of the probability of the observed table [FLL13]_.

    Unlike the exact test it is not conservative, and its error rate rarely exceeds the level.
    """
    fewer, differ = np.minimum(counts.only_a, counts.only_b), counts.only_a + counts.only_b
    # Twice (P(X < fewer) + P(X = fewer) / 2).
    return np.minimum(binomial_cdf(fewer, differ, 0.5) + binomial_cdf(fewer - 1, differ, 0.5), 1.0)


def dirichlet_process_prob(
    differences: ArrayLike, *, bounds: tuple[float, float], mass: float
) -> FloatArray:
    """Posterior probability that the mean difference is positive [Fer73]_.

    By the posterior of `bounded.dirichlet_process` with these bounds and mass; exactly ½ if every
    difference is 0, NaN without any.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    seen = ~np.isnan(values)
    values = np.where(seen, values, 0.0)
    # If every difference is 0 the answer is known, and the integral slow.
    unequal = np.any(values != 0, axis=1)
    atoms = values[unequal]
    ends = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (len(atoms), 2))
    atoms = np.concatenate([ends, atoms], axis=1)
    weights = np.concatenate([np.full_like(ends, mass), seen[unequal]], axis=1)
    prob = np.where(seen.any(axis=1), 0.5, np.nan)
    prob[unequal] = 1 - bounded.dirichlet_cdf(atoms, weights, np.zeros(len(atoms)))
    return prob


def t_prob(differences: ArrayLike) -> FloatArray:
    """Posterior probability that the mean difference is positive, of normal differences.

    Under the prior for which the posterior's quantiles are the limits of `means.t_interval`; NaN
    where all differences are equal and not 0, because they do not vary.
    """
    n, mean, std = moments(differences)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = std / np.sqrt(n)
    return t_prob_positive(mean, error, n - 1)


def sign_flip(differences: ArrayLike, *, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """Sign-flip permutation test of the mean difference, two-sided p-values [Fis35]_.

    If the models are exchangeable, each difference is as likely to have the opposite sign. Exact if
    at most 16 differ from 0; by the normal limit from 10,000 on; between, by `n_flips` drawn sign
    assignments, the same for all pairs. 1 if all are 0, NaN without any.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    empty = np.isnan(values).all(axis=1)
    values = np.where(np.isnan(values), 0.0, values)
    n_nonzero = (values != 0).sum(axis=1)
    few, many = n_nonzero <= MOST_ENUMERATED, n_nonzero >= LIMIT_IS_NORMAL
    between = ~few & ~many
    p_values = np.ones(len(values))
    if few.any():
        p_values[few] = _enumerated(values[few], int(n_nonzero[few].max()))
    if between.any():
        p_values[between] = _drawn(values[between], rng, n_flips)
    z = np.abs(values[many].sum(axis=1)) / np.sqrt((values[many] ** 2).sum(axis=1))
    p_values[many] = 2 * special.ndtr(-z)
    return np.where(empty, np.nan, p_values)


def _enumerated(values: FloatArray, n_nonzero: int) -> FloatArray:
    """Share of all 2^n sums at least as far from 0 as the observed one."""
    largest_first = np.argsort(-np.abs(values), axis=1)[:, : max(n_nonzero, 1)]
    values = np.take_along_axis(values, largest_first, axis=1)
    n = int(values.shape[1])
    # Flipping all signs gives the same size: one sign can stay fixed.
    half_of_all = np.arange(2.0 ** (n - 1))
    signs: FloatArray = 1 - 2 * (np.floor(half_of_all / 2.0 ** np.arange(n)[:, None]) % 2)
    step = max(RESAMPLING_BLOCK_SIZE // signs.shape[1], 1)
    parts = [_as_far(values[i : i + step], signs).mean(axis=1) for i in range(0, len(values), step)]
    return np.concatenate(parts)


def _drawn(values: FloatArray, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """As `_enumerated`, by drawn signs; the observed ones count as one draw."""
    count = np.ones(len(values))
    step = max(RESAMPLING_BLOCK_SIZE // max(values.shape), 1)
    for start in range(0, n_flips, step):
        signs = random_signs(rng, values.shape[1], min(step, n_flips - start))
        count += _as_far(values, signs).sum(axis=1)
    return count / (n_flips + 1)


def _as_far(values: FloatArray, signs: FloatArray) -> BoolArray:
    """Which sums with these signs are at least as far from 0 as the observed, shape (P, B)."""
    slack = ROUNDING * np.abs(values).sum(axis=1)
    seen = np.abs(values.sum(axis=1)) - slack
    return np.abs(values @ signs) >= seen[:, None]


def random_signs(rng: np.random.Generator, n_items: int, n_flips: int) -> FloatArray:
    """Draw -1 and 1 with equal probability, shape (M, n_flips)."""
    bits = rng.integers(0, 2, size=(n_flips, n_items), dtype=np.int8).T
    return 2.0 * bits.astype(np.float64) - 1.0


class LatentPosterior(NamedTuple):
    """Posterior of b - a: equal-tailed limits, P(b is better), and the mean."""

    low: FloatArray
    high: FloatArray
    prob_better: FloatArray
    mean: FloatArray


def latent(counts: PairedCounts, *, confidence_level: float) -> LatentPosterior:
    """Latent bivariate normal posterior of the difference, equal tails [BAI25]_.

    Both scores are uniform a priori. The interval is extended where necessary to hold the estimate.
    With equally many discordant items either way, P(b is better) is exactly ½.

    Examples
    --------
    >>> found = latent(paired_counts(19, 2, 4, 5), confidence_level=0.95)
    >>> print(f"{found.low:.4f} {found.high:.4f} {found.prob_better:.4f}")
    -0.1091 0.2420 0.7748
    """
    tables = np.stack([x.ravel() for x in counts], axis=1)
    tail = tail_probability(confidence_level)
    there = ~np.isnan(tables).any(axis=1)
    n = int(there.sum())
    found = np.full((4, len(tables)), np.nan)
    if n > 0:
        seen = tables[there]
        exchanged = seen[:, [0, 2, 1, 3]]
        distinct, where = np.unique(np.concatenate([seen, exchanged]), axis=0, return_inverse=True)
        b, a = where[:n], where[n:]
        other = np.empty(len(distinct), dtype=np.int64)
        other[where] = np.concatenate([a, b])
        ahead = np.arange(len(distinct)), other
        halves = _integrate(_log_density(distinct), len(distinct), NODES)
        lower = _difference_quantile(halves, ahead, tail)
        prob, average = _prob_and_mean(halves, ahead)
        found[:, there] = lower[b], -lower[a], prob[b], average[b]
    low, high, prob, mean = (x.reshape(counts.n.shape) for x in found)
    difference = counts.difference
    return LatentPosterior(np.minimum(low, difference), np.maximum(high, difference), prob, mean)


def _log_density(tables: FloatArray) -> LogDensity:
    """Log posterior density with b ahead of a, from tables (T, 4)."""
    columns = [tables[:, k].reshape(-1, 1, 1, 1) for k in range(4)]

    def log_density(
        rows: IntArray, difference: FloatArray, place: FloatArray, tie: FloatArray
    ) -> FloatArray:
        distance, where, w = _stretched(difference), _stretched(place), np.sinh(tie)
        at = _proportions(distance, where)
        # ρ = tanh(w): the prior, (1 + ρ)³ (1 - ρ), times dρ/dw = 1 - ρ², dw = cosh(tie) d(tie).
        log_prior = 4 * special.log_expit(2 * w) + 2 * special.log_expit(-2 * w)
        only_lower = _only_lower(at, w)
        # Both right, only the model with the lower score, only the other, neither.
        cells = (
            at.lower - only_lower,
            only_lower,
            distance.value + only_lower,
            at.not_upper - only_lower,
        )
        density = at.log_jacobian + log_prior + np.log(np.cosh(tie))
        for count, cell in zip(columns, cells, strict=True):
            # Rounding may make a cell 0 or less.
            density = density + count[rows] * np.log(np.maximum(cell, 1e-300))
        return density

    return log_density


def _only_lower(at: _Proportions, w: FloatArray) -> FloatArray:
    """P(only the model with the lower score is right), ρ = tanh(w), by Owen's T [Owe56]_.

    P(X < h, Y < k) with h and k the normal quantiles of one model's score and of the other's
    failure rate, and correlation -ρ; ρ/√(1 - ρ²) = sinh(w) and 1/√(1 - ρ²) = cosh(w).
    """
    h, k = _normal_quantile(at.lower, at.not_lower), _normal_quantile(at.not_upper, at.upper)
    cosh, sinh = np.cosh(w), np.sinh(w)
    triangles = special.owens_t(h, k / h * cosh + sinh) + special.owens_t(k, h / k * cosh + sinh)
    opposite = np.where((h < 0) != (k < 0), 0.5, 0.0)
    return (at.lower + at.not_upper) / 2 - triangles - opposite


def _normal_quantile(p: FloatArray, rest: FloatArray) -> FloatArray:
    """Normal quantile from the smaller of p and 1 - p; never 0, as it is a divisor."""
    quantile = np.where(p < 0.5, special.ndtri(p), -special.ndtri(rest))
    return np.where(quantile == 0, 1e-300, quantile)


class _Stretched(NamedTuple):
    """A number between 0 and 1, its complement to 1, and the log of its derivative by v."""

    value: FloatArray
    rest: FloatArray
    log_slope: FloatArray


def _stretched(v: FloatArray) -> _Stretched:
    """Map the real line to (0, 1), doubly exponentially close to the ends."""
    u = 2 * np.sinh(v)
    # By the exponent of the tail: the product of value and rest may underflow.
    log_slope = np.log(np.cosh(v)) - np.abs(u) - 2 * np.log1p(np.exp(-np.abs(u)))
    return _Stretched(special.expit(u), special.expit(-u), log_slope)


class _Proportions(NamedTuple):
    """Two proportions, lower ≤ upper, their complements to 1, and the log Jacobian."""

    lower: FloatArray
    not_lower: FloatArray
    upper: FloatArray
    not_upper: FloatArray
    log_jacobian: FloatArray


def _proportions(distance: _Stretched, place: _Stretched) -> _Proportions:
    """Two proportions from their difference and location, without cancellation."""
    d, s, e, f = distance.value, distance.rest, place.value, place.rest
    log_jacobian = distance.log_slope + place.log_slope + np.log(s)
    return _Proportions(s * e, d + s * f, d + s * e, s * f, log_jacobian)


class _Halves(NamedTuple):
    """Density of the distance at equally spaced v, in units of exp(peak).

    `density` has shape (halves, nodes), 0 for padding; the others (halves,).
    """

    density: FloatArray
    first: FloatArray
    step: FloatArray
    peak: FloatArray

    @property
    def nodes(self) -> FloatArray:
        """Coordinates of the densities; constant for the padding."""
        count = np.arange(self.density.shape[1], dtype=np.float64)
        nodes = self.first[:, None] + self.step[:, None] * count
        return np.minimum(nodes, WIDEST)

    def masses(self, *rows: IntArray) -> list[FloatArray]:
        """Integrals of halves of the same pairs, in a common unit."""
        top = np.max([self.peak[row] for row in rows], axis=0)
        mass = self.step * self.density.sum(axis=1)
        return [mass[row] * np.exp(self.peak[row] - top) for row in rows]


def _integrate(log_density: LogDensity, n_halves: int, nodes: tuple[int, ...]) -> _Halves:
    """Integrate out all coordinates but the distance.

    Adds nodes where the sums over even and odd nodes differ. NaN where no number suffices.
    """
    active, wanted = np.arange(n_halves), np.tile(nodes, (n_halves, 1))
    low, high = _in_blocks(partial(_box, log_density, len(nodes)), active, SEARCH_NODES, len(nodes))
    halves = _Halves(np.zeros((n_halves, nodes[0])), *np.zeros((3, n_halves)))
    for _ in range(MOST_REFINEMENTS + 1):
        growth = np.ones(wanted.shape)
        for size in np.unique(wanted[active], axis=0).tolist():
            rows = active[(wanted[active] == size).all(axis=1)]
            on_nodes = partial(_on_nodes, log_density, low, high, size)
            density, step, peak, growth[rows] = _in_blocks(on_nodes, rows, *size)
            more = max(size[0] - halves.density.shape[1], 0)
            halves = halves._replace(density=np.pad(halves.density, ((0, 0), (0, more))))
            halves.density[rows, : size[0]] = density
            halves.first[rows], halves.step[rows], halves.peak[rows] = low[rows, 0], step, peak
        wanted = np.where(growth > 1, 8 * np.ceil(wanted * growth / 8) + 1, wanted).astype(np.int64)
        active = active[(growth[active] > 1).any(axis=1)]
    halves.density[active] = np.nan
    return halves


def _box(log_density: LogDensity, n_axes: int, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Box where each density is not negligible, narrowed from the widest; shape (rows, axes)."""
    low = np.full((len(rows), n_axes), -WIDEST)
    high = -low
    everywhere = tuple(range(1, n_axes + 1))
    moving = np.ones((len(rows), 1), dtype=np.bool_)
    for _ in range(30):
        values = log_density(rows, *_axes(low, high, [SEARCH_NODES] * n_axes))
        near = values > values.max(axis=everywhere, keepdims=True) - DEPTH
        hits = np.stack(
            [near.any(axis=tuple(axis for axis in everywhere if axis != k)) for k in everywhere],
            axis=1,
        )
        first, last = hits.argmax(axis=2), SEARCH_NODES - 1 - hits[:, :, ::-1].argmax(axis=2)
        before, step = high - low, (high - low) / (SEARCH_NODES - 1)
        # A margin of one step: a density that reaches an edge is followed beyond it.
        new_low = np.maximum(low + step * (first - 1), -WIDEST)
        high = np.where(moving, np.minimum(low + step * (last + 1), WIDEST), high)
        low = np.where(moving, new_low, low)
        change = (high - low) / before
        # Each row on its own: results must not depend on the other rows of the block.
        moving &= ((change <= 0.6) | (change > 1)).any(axis=1, keepdims=True)
        if not moving.any():
            break
    return low, high


def _on_nodes(
    log_density: LogDensity, low: FloatArray, high: FloatArray, size: Sequence[int], rows: IntArray
) -> tuple[FloatArray, ...]:
    """Density of the distance, step, peak, and by which factor each coordinate needs more nodes."""
    low, high = low[rows], high[rows]
    values = log_density(rows, *_axes(low, high, size))
    everywhere = tuple(range(1, values.ndim))
    peak = values.max(axis=everywhere, keepdims=True)
    values = np.exp(values - peak)
    total = values.sum(axis=everywhere)
    growth = np.ones((len(rows), len(size)))
    for k, tolerance in enumerate((SETTLED_DISTANCE, *[SETTLED] * (len(size) - 1))):
        kept = (1, k + 1)
        along = values.sum(axis=tuple(axis for axis in everywhere if axis not in kept))
        gap = np.abs(along[..., ::2].sum(axis=-1) - along[..., 1::2].sum(axis=-1))
        gap = (gap if k == 0 else gap.sum(axis=1)) / total
        # The gap falls exponentially with the number of nodes.
        needed = np.log(tolerance) / np.log(np.clip(gap, 1e-300, 0.5))
        growth[:, k] = np.where(gap > tolerance, np.clip(needed, 1.2, 3.0), 1.0)
    steps = (high - low) / (np.asarray(size) - 1)
    density = values.sum(axis=everywhere[1:]) * steps[:, 1:].prod(axis=1)[:, None]
    return density, steps[:, 0], peak.ravel(), growth


def _axes(low: FloatArray, high: FloatArray, size: Sequence[int]) -> list[FloatArray]:
    """Equally spaced nodes of each coordinate, shape (rows, 1, ..., nodes, ..., 1)."""
    axes: list[FloatArray] = []
    for k, n in enumerate(size):
        shape = [len(low)] + [1] * len(size)
        shape[k + 1] = n
        axes.append(np.linspace(low[:, k], high[:, k], n, axis=1).reshape(shape))
    return axes


def _in_blocks(
    function: Callable[[IntArray], tuple[FloatArray, ...]], rows: IntArray, *size: int
) -> list[FloatArray]:
    """Apply a function to blocks of rows, each row of the given size, and join the results."""
    step = max(POSTERIOR_BLOCK_SIZE // int(np.prod(size)), 1)
    parts = [function(rows[start : start + step]) for start in range(0, len(rows), step)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _prob_and_mean(
    halves: _Halves, ahead: tuple[IntArray, IntArray]
) -> tuple[FloatArray, FloatArray]:
    b, a = halves.masses(*ahead)
    distance = _stretched(halves.nodes).value
    average = (halves.density * distance).sum(axis=1) / halves.density.sum(axis=1)
    prob = b / (a + b)
    return prob, prob * average[ahead[0]] - (1 - prob) * average[ahead[1]]


def _difference_quantile(
    halves: _Halves, ahead: tuple[IntArray, IntArray], probability: float
) -> FloatArray:
    """Quantile of the difference; `ahead` numbers the halves with b and with a ahead."""
    b, a = halves.masses(*ahead)
    below = probability * (a + b)
    b_is_ahead = below > a
    rows = np.where(b_is_ahead, *ahead)
    # Share of the half up to the quantile; distances count from 0 outwards.
    looked_for = np.where(b_is_ahead, below - a, a - below)
    share = np.clip(looked_for / np.where(b_is_ahead, b, a), 0, 1)
    weights = halves.density[rows] / halves.density[rows].sum(axis=1, keepdims=True)
    first, step = halves.first[rows], halves.step[rows]
    node = np.arange(weights.shape[1], dtype=np.float64)

    def excess(v: FloatArray, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        offset: FloatArray = ((v - first[pairs]) / step[pairs])[:, None] - node
        # Integral of the sinc series through the nodes: as accurate as the trapezoid rule.
        running = 0.5 + special.sici(np.pi * offset)[0] / np.pi
        slope = (weights[pairs] * np.sinc(offset)).sum(axis=1) / step[pairs]
        return (weights[pairs] * running).sum(axis=1) - share[pairs], slope

    passed = np.cumsum(weights, axis=1) < share[:, None]
    start = first + step * np.minimum(passed.sum(axis=1), len(node) - 1)
    v = increasing_root(excess, start, bracket=(-WIDEST, WIDEST), tolerance=1e-7)
    return np.where(b_is_ahead, 1.0, -1.0) * _stretched(v).value
