"""Two models, a and b, on the same items, each right or wrong: by how much is b better?

The difference is P(b is right) - P(a is right). Only the items that one of the two gets right, and
the other does not, tell them apart. Exchanging a and b changes the sign of every limit, exactly.
"""
# PART difference_posterior - Posterior of the difference of two proportions, b - a, by quadrature.
# PART latent_pairs - Two models on the same items by a latent bivariate normal model [BAI25]_.
# PART paired_scores - Two models on the same items, with scores of any kind: what their differences say.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.bounded import wilson
from evalstats_plugin.stats.interval import (
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)
from evalstats_plugin.stats.means import moments

LowerLimit: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Lower limit by how many items only a gets right, only b does, and by the number of items."""


LogDensity: TypeAlias = Callable[..., FloatArray]
"""``f(rows, v, ...)``: log posterior density of the tables `rows`, b being ahead, in stretched
coordinates, the first that of the distance; each of shape (rows, 1, ..., nodes, ..., 1)."""


# Stretched coordinates go no further: beyond lies a share of exp(-73) of each range.
WIDEST = 4.3


# What is exp(-DEPTH) of the peak is left out.
DEPTH = 26.0


# Nodes per coordinate of the search for where the peak is.
SEARCH_NODES = 10


# Disagreement of every other node with those between that is small enough: along the distance it
# is the error of the interpolated distribution, along the rest the error's square root.
SETTLED_DISTANCE = 2e-10


SETTLED = 3e-6


MOST_REFINEMENTS = 8


# Numbers worked on at a time.
POSTERIOR_BLOCK_SIZE = 2**17


# Coordinates: the difference of the scores, where they are, and atanh of the correlation.
NODES = (41, 25, 21)


# Up to this many differences other than 0, every assignment of signs is counted.
MOST_ENUMERATED = 16


# From here on the distribution over all signs is normal, to more digits than drawn signs give.
LIMIT_IS_NORMAL = 10_000


# Sums are formed in blocks of about this many numbers; results do not depend on it.
RESAMPLING_BLOCK_SIZE = 2**22


# Sums that differ by no more than rounding errors are ties.
ROUNDING = 1e-9


class PairedCounts(NamedTuple):
    """How many items each model gets right: arrays of one shape, NaN where there are no items."""

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


def prob_better(counts: PairedCounts, *, prior: tuple[float, float]) -> FloatArray:
    """Posterior probability that b is better than a, in closed form.

    P(p_b > p_a) under the model of `dirichlet`: of a Beta variable to lie below ½.

    >>> print(f"{prob_better(paired_counts(19, 2, 4, 5), prior=(0.5, 1.0)):.6f}")
    0.791026
    """
    a, b = counts.only_a + prior[0], counts.only_b + prior[0]
    # Equally many of both are exactly as likely either way, whatever the rounding.
    return np.where(a == b, 0.5, special.betainc(a, b, 0.5))


def dirichlet(
    counts: PairedCounts, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Dirichlet posterior of the four cells, equal tails of the difference.

    The difference is a mean of -1, 0 and 1 with Dirichlet weights, whose quantiles
    `dirichlet_mean` gives to about 1e-11. Extended where necessary to hold the estimate.

    Parameters
    ----------
    prior
        Of each of the cells that tell a and b apart, and of the two others together: (½, 1) is
        Jeffreys' Dirichlet(½, ½, ½, ½); (⅓, 4⅓) makes each model's score uniform.

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
        # If a alone is right on every item, no difference is too low.
        return np.where(only_a == n, -1.0, root)

    return _mirrored(lower, counts)


def bonett_price(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Wald interval after adding one item to each of the cells that differ [BP12]_."""
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


def wald(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Interval of the normal approximation, kept to compare with.

    It has no width when no item, or every item, tells the models apart.
    """
    difference, n = counts.difference, counts.n
    spread = np.sqrt((counts.only_a + counts.only_b - n * difference**2) / n**2)
    half = normal_quantile(confidence_level) * spread
    return Interval(difference - half, difference + half)


def newcombe(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Combines the two models' Wilson intervals, allowing for their correlation [New98c]_.

    His method 10, the correlation corrected for continuity.
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


def mcnemar_exact(counts: PairedCounts) -> FloatArray:
    """Two-sided p-value of McNemar's exact test [McN47]_: a sign test on the items that differ."""
    fewer = np.minimum(counts.only_a, counts.only_b)
    return np.minimum(2 * _at_most(fewer, counts.only_a + counts.only_b), 1.0)


def mcnemar_mid_p(counts: PairedCounts) -> FloatArray:
    """McNemar's test with half of the probability of what was seen [FLL13]_.

    Unlike the exact test it is not conservative, and its error rate hardly ever exceeds the level.
    """
    fewer, differ = np.minimum(counts.only_a, counts.only_b), counts.only_a + counts.only_b
    # Twice (P(X < fewer) + P(X = fewer) / 2).
    return np.minimum(_at_most(fewer, differ) + _at_most(fewer - 1, differ), 1.0)


def _at_most(k: FloatArray, n: FloatArray) -> FloatArray:
    """P(X ≤ k) of X ~ Binomial(n, ½)."""
    inside = special.betainc(np.maximum(n - k, 0.5), np.maximum(k + 1, 0.5), 0.5)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))


def _score_statistic(
    at: FloatArray, only_a: FloatArray, only_b: FloatArray, n: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Tango's statistic for a true difference, and its derivative.

    P(only a is right) is the root p of 2n p² + linear p + constant = 0 [Tan98]_ (eq. 24).
    """
    linear = (2 * n - only_b + only_a) * at - only_a - only_b
    constant = -only_a * at * (1 - at)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    # Of the two forms of the solution, the one that does not subtract.
    p = np.where(linear > 0, -2 * constant / (linear + root), (root - linear) / (4 * n))
    p_slope = (only_a * (1 - 2 * at) - (2 * n - only_b + only_a) * p) / root
    variance = n * (2 * p + at * (1 - at))
    statistic = (only_b - only_a - n * at) / np.sqrt(variance)
    variance_slope = n * (2 * p_slope + 1 - 2 * at)
    return statistic, -n / np.sqrt(variance) - statistic * variance_slope / (2 * variance)


def _agresti_min_lower(
    only_a: FloatArray, only_b: FloatArray, n: FloatArray, z: float
) -> FloatArray:
    difference = (only_b - only_a) / (n + 2)
    spread = (only_a + only_b + 1) / (n + 2) - difference**2
    return difference - z * np.sqrt(spread / (n + 2))


def _corrected_phi(counts: PairedCounts) -> FloatArray:
    """Correlation of being right, drawn towards 0 by half an item; 0 where it is undefined."""
    both, only_a, only_b, neither = counts
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    product = both * neither - only_a * only_b
    product = np.where(product > 0, np.maximum(product - counts.n / 2, 0), product)
    return np.where(margins > 0, product / np.sqrt(np.where(margins > 0, margins, 1)), 0.0)


def _mirrored(lower: LowerLimit, counts: PairedCounts) -> Interval:
    """Both limits from the lower one, within [-1, 1]: exchanging a and b changes the sign."""
    n = counts.n
    there = ~np.isnan(n)
    a, b, total = counts.only_a[there], counts.only_b[there], n[there]
    # Thousands of pairs hold few distinct tables, and those of b against a are the same again.
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


class Posterior(NamedTuple):
    """What is known of b - a: an interval, P(b is ahead), and the mean."""

    low: FloatArray
    high: FloatArray
    prob_better: FloatArray
    mean: FloatArray


class Stretched(NamedTuple):
    """A number between 0 and 1, what is missing to 1, and the log of its derivative by v."""

    value: FloatArray
    rest: FloatArray
    log_slope: FloatArray


class Proportions(NamedTuple):
    """Two proportions, lower ≤ upper, what is missing of each to 1, and the log Jacobian."""

    lower: FloatArray
    not_lower: FloatArray
    upper: FloatArray
    not_upper: FloatArray
    log_jacobian: FloatArray


class Halves(NamedTuple):
    """Density of the distance at equally spaced v, in units of exp(peak).

    `density` has shape (halves, nodes), 0 for padding; the others (halves,).
    """

    density: FloatArray
    first: FloatArray
    step: FloatArray
    peak: FloatArray

    @property
    def nodes(self) -> FloatArray:
        """Where the densities were taken; no further where they are padding."""
        count = np.arange(self.density.shape[1], dtype=np.float64)
        nodes = self.first[:, None] + self.step[:, None] * count
        return np.minimum(nodes, WIDEST)

    def masses(self, *rows: IntArray) -> list[FloatArray]:
        """Integrals of halves of the same pairs, in units common to them."""
        top = np.max([self.peak[row] for row in rows], axis=0)
        mass = self.step * self.density.sum(axis=1)
        return [mass[row] * np.exp(self.peak[row] - top) for row in rows]


def stretched(v: FloatArray) -> Stretched:
    """Map all real numbers to those between 0 and 1, doubly exponentially close to the ends."""
    u = 2 * np.sinh(v)
    # The slope by the exponent of the tail: value times rest may be too small a number.
    log_slope = np.log(np.cosh(v)) - np.abs(u) - 2 * np.log1p(np.exp(-np.abs(u)))
    return Stretched(special.expit(u), special.expit(-u), log_slope)


def proportions(distance: Stretched, place: Stretched) -> Proportions:
    """Two proportions by their difference and where they are, without any cancellation."""
    d, s, e, f = distance.value, distance.rest, place.value, place.rest
    log_jacobian = distance.log_slope + place.log_slope + np.log(s)
    return Proportions(s * e, d + s * f, d + s * e, s * f, log_jacobian)


def difference_posterior(
    tables: FloatArray,
    log_density: Callable[[FloatArray], LogDensity],
    *,
    exchange: Sequence[int],
    nodes: tuple[int, ...],
    confidence_level: float,
) -> Posterior:
    """Posterior of the difference b - a, equal tails.

    Parameters
    ----------
    tables : shape (P, counts)
        What was seen of each pair; NaN where there is nothing to go by.
    log_density
        Of distinct tables, given as an array of that kind.
    exchange
        Order of the counts when a and b are exchanged.
    nodes
        For each coordinate at the start. Odd numbers: of an even number, every other one tells
        nothing new of what is symmetric.
    """
    tail = tail_probability(confidence_level)
    there = ~np.isnan(tables).any(axis=1)
    n = int(there.sum())
    found = np.full((4, len(tables)), np.nan)
    if n > 0:
        seen = tables[there]
        distinct, where = np.unique(
            np.concatenate([seen, seen[:, exchange]]), axis=0, return_inverse=True
        )
        b, a = where[:n], where[n:]
        other = np.empty(len(distinct), dtype=np.int64)
        other[where] = np.concatenate([a, b])
        ahead = np.arange(len(distinct)), other
        halves = integrate(log_density(distinct), len(distinct), nodes)
        lower = _difference_quantile(halves, ahead, tail)
        prob, average = _prob_and_mean(halves, ahead)
        found[:, there] = lower[b], -lower[a], prob[b], average[b]
    return Posterior(*found)


def integrate(log_density: LogDensity, n_halves: int, nodes: tuple[int, ...]) -> Halves:
    """Integrate out all coordinates but the distance.

    Where nodes are too few, because every other one says something else than those between, more
    are taken. NaN where no number of nodes is enough.
    """
    active, wanted = np.arange(n_halves), np.tile(nodes, (n_halves, 1))
    low, high = _in_blocks(partial(_box, log_density, len(nodes)), active, SEARCH_NODES, len(nodes))
    halves = Halves(np.zeros((n_halves, nodes[0])), *np.zeros((3, n_halves)))
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


def _prob_and_mean(
    halves: Halves, ahead: tuple[IntArray, IntArray]
) -> tuple[FloatArray, FloatArray]:
    b, a = halves.masses(*ahead)
    distance = stretched(halves.nodes).value
    average = (halves.density * distance).sum(axis=1) / halves.density.sum(axis=1)
    prob = b / (a + b)
    return prob, prob * average[ahead[0]] - (1 - prob) * average[ahead[1]]


def _difference_quantile(
    halves: Halves, ahead: tuple[IntArray, IntArray], probability: float
) -> FloatArray:
    """Quantile of the difference; `ahead` numbers the halves with b and with a ahead."""
    b, a = halves.masses(*ahead)
    below = probability * (a + b)
    b_is_ahead = below > a
    rows = np.where(b_is_ahead, *ahead)
    # Share of the half up to the distance looked for, which counts from 0 outwards.
    looked_for = np.where(b_is_ahead, below - a, a - below)
    share = np.clip(looked_for / np.where(b_is_ahead, b, a), 0, 1)
    weights = halves.density[rows] / halves.density[rows].sum(axis=1, keepdims=True)
    first, step = halves.first[rows], halves.step[rows]
    node = np.arange(weights.shape[1], dtype=np.float64)

    def excess(v: FloatArray, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        offset: FloatArray = ((v - first[pairs]) / step[pairs])[:, None] - node
        # Integral of the sinc series through the nodes: as exact as the trapezoid rule.
        running = 0.5 + special.sici(np.pi * offset)[0] / np.pi
        slope = (weights[pairs] * np.sinc(offset)).sum(axis=1) / step[pairs]
        return (weights[pairs] * running).sum(axis=1) - share[pairs], slope

    passed = np.cumsum(weights, axis=1) < share[:, None]
    start = first + step * np.minimum(passed.sum(axis=1), len(node) - 1)
    v = increasing_root(excess, start, bracket=(-WIDEST, WIDEST), tolerance=1e-7)
    return np.where(b_is_ahead, 1.0, -1.0) * stretched(v).value


def _in_blocks(
    function: Callable[[IntArray], tuple[FloatArray, ...]], rows: IntArray, *size: int
) -> list[FloatArray]:
    """Join what a function finds of few rows at a time, each of which holds that many numbers."""
    step = max(POSTERIOR_BLOCK_SIZE // int(np.prod(size)), 1)
    parts = [function(rows[start : start + step]) for start in range(0, len(rows), step)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _on_nodes(
    log_density: LogDensity, low: FloatArray, high: FloatArray, size: Sequence[int], rows: IntArray
) -> tuple[FloatArray, ...]:
    """Density of the distance, step, peak, and which coordinates need more nodes."""
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
        # The gap falls exponentially: how many times as many nodes will do?
        needed = np.log(tolerance) / np.log(np.clip(gap, 1e-300, 0.5))
        growth[:, k] = np.where(gap > tolerance, np.clip(needed, 1.2, 3.0), 1.0)
    steps = (high - low) / (np.asarray(size) - 1)
    density = values.sum(axis=everywhere[1:]) * steps[:, 1:].prod(axis=1)[:, None]
    return density, steps[:, 0], peak.ravel(), growth


def _box(log_density: LogDensity, n_axes: int, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Where each density is not negligible, closed in from the widest; shape (rows, axes)."""
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
        # A step of margin: what reaches an edge is followed beyond it.
        new_low = np.maximum(low + step * (first - 1), -WIDEST)
        high = np.where(moving, np.minimum(low + step * (last + 1), WIDEST), high)
        low = np.where(moving, new_low, low)
        change = (high - low) / before
        # Each on its own: what is found must not depend on what is worked on beside it.
        moving &= ((change <= 0.6) | (change > 1)).any(axis=1, keepdims=True)
        if not moving.any():
            break
    return low, high


def _axes(low: FloatArray, high: FloatArray, size: Sequence[int]) -> list[FloatArray]:
    """Equally spaced nodes of each coordinate, shape (rows, 1, ..., nodes, ..., 1)."""
    axes: list[FloatArray] = []
    for k, n in enumerate(size):
        shape = [len(low)] + [1] * len(size)
        shape[k + 1] = n
        axes.append(np.linspace(low[:, k], high[:, k], n, axis=1).reshape(shape))
    return axes


def latent(counts: PairedCounts, *, confidence_level: float) -> Posterior:
    """Posterior of the difference of two scores, equal tails, and that b is better.

    The interval is extended where necessary to hold the estimate. Exchanging a and b changes the
    sign of both limits, exactly, and of two models with equally many items of their own each is
    better with probability ½, exactly.

    Examples
    --------
    >>> from evalstats_plugin.stats.paired import paired_counts
    >>> found = latent(paired_counts(19, 2, 4, 5), confidence_level=0.95)
    >>> print(f"{found.low:.4f} {found.high:.4f} {found.prob_better:.4f}")
    -0.1091 0.2420 0.7748
    """
    tables = np.stack([x.ravel() for x in counts], axis=1)
    found = difference_posterior(
        tables,
        _log_density,
        exchange=(0, 2, 1, 3),
        nodes=NODES,
        confidence_level=confidence_level,
    )
    low, high, prob, mean = (x.reshape(counts.n.shape) for x in found)
    difference = counts.difference
    return Posterior(np.minimum(low, difference), np.maximum(high, difference), prob, mean)


class _Cells(NamedTuple):
    """Probabilities of who gets an item right: counted from the lower of two scores."""

    both: FloatArray
    only_lower: FloatArray
    only_upper: FloatArray
    neither: FloatArray


def _log_density(tables: FloatArray) -> LogDensity:
    """Log posterior density, where a is the model with the lower score; tables (..., 4)."""
    columns = [tables[:, k].reshape(-1, 1, 1, 1) for k in range(4)]

    def log_density(
        rows: IntArray, difference: FloatArray, place: FloatArray, tie: FloatArray
    ) -> FloatArray:
        distance, where, w = stretched(difference), stretched(place), np.sinh(tie)
        at = proportions(distance, where)
        # ρ = tanh(w): the prior, (1 + ρ)³ (1 - ρ), times dρ/dw = 1 - ρ², dw = cosh(tie) d(tie).
        log_prior = 4 * special.log_expit(2 * w) + 2 * special.log_expit(-2 * w)
        only_lower = _only_lower(at, w)
        cells = _Cells(
            at.lower - only_lower,
            only_lower,
            distance.value + only_lower,
            at.not_upper - only_lower,
        )
        density = at.log_jacobian + log_prior + np.log(np.cosh(tie))
        for count, cell in zip(columns, cells, strict=True):
            # Cells that rounding makes 0 or less have next to no probability.
            density = density + count[rows] * np.log(np.maximum(cell, 1e-300))
        return density

    return log_density


def _only_lower(at: Proportions, w: FloatArray) -> FloatArray:
    """P(only the model with the lower score is right), ρ = tanh(w), by Owen's T [Owe56]_.

    That X < h and Y < k, h and k the normal quantiles of one's score and of the other's failures,
    and -ρ their correlation; -(−ρ)/√(1 - ρ²) = sinh(w) and 1/√(1 - ρ²) = cosh(w).
    """
    h, k = _normal_quantile(at.lower, at.not_lower), _normal_quantile(at.not_upper, at.upper)
    cosh, sinh = np.cosh(w), np.sinh(w)
    triangles = special.owens_t(h, k / h * cosh + sinh) + special.owens_t(k, h / k * cosh + sinh)
    opposite = np.where((h < 0) != (k < 0), 0.5, 0.0)
    return (at.lower + at.not_upper) / 2 - triangles - opposite


def _normal_quantile(p: FloatArray, rest: FloatArray) -> FloatArray:
    """Normal quantile from the smaller of p and 1 - p; never 0, by which nothing can be divided."""
    quantile = np.where(p < 0.5, special.ndtri(p), -special.ndtri(rest))
    return np.where(quantile == 0, 1e-300, quantile)


def dirichlet_process_prob(
    differences: ArrayLike, *, bounds: tuple[float, float], mass: float
) -> FloatArray:
    """Posterior probability that the mean difference is positive [Fer73]_.

    Of the posterior behind `bounded.dirichlet_process` with these bounds and mass; ½ exactly if
    every difference is 0, NaN without any.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    seen = ~np.isnan(values)
    values = np.where(seen, values, 0.0)
    # Only where some difference is not 0: the integral of the others is slow, and known.
    told_apart = np.any(values != 0, axis=1)
    atoms, n_atoms = values[told_apart], values.shape[1] + 2
    ends = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (len(atoms), 2))
    atoms = np.concatenate([ends, atoms], axis=1)
    weights = np.concatenate([np.full_like(ends, mass), seen[told_apart]], axis=1)
    rows = max(bounded.DIRICHLET_BLOCK_SIZE // n_atoms, 1)
    parts = [
        bounded.dirichlet_cdf_and_density(
            atoms[i : i + rows],
            weights[i : i + rows],
            np.zeros(len(atoms[i : i + rows])),
            refinements=bounded.REFINEMENTS,
        )[0]
        for i in range(0, len(atoms), rows)
    ]
    prob = np.where(seen.any(axis=1), 0.5, np.nan)
    prob[told_apart] = 1 - np.concatenate([np.zeros(0), *parts])
    return prob


def t_prob(differences: ArrayLike) -> FloatArray:
    """Posterior probability that the mean difference is positive, of normal differences.

    Under the prior for which the posterior's quantiles are the limits of `mean.t_interval`; NaN
    where all differences are equal and not 0, for want of any spread to judge by.
    """
    n, mean, std = moments(differences)
    with np.errstate(divide="ignore", invalid="ignore"):
        prob = special.stdtr(np.where(n > 1, n - 1, np.nan), mean * np.sqrt(n) / std)
    return np.where(std > 0, prob, np.where((std == 0) & (mean == 0), 0.5, np.nan))


def sign_flip(differences: ArrayLike, *, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """Two-sided p-value of the mean difference, over all signs of the differences [Fis35]_.

    If the models are exchangeable, each difference was as likely to have the opposite sign. Exact
    if no more than 16 differ from 0; with 10,000 and more by the normal limit; between, by
    `n_flips` drawn assignments of signs, the same for all pairs. 1 if all are 0, NaN without any.
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


def random_signs(rng: np.random.Generator, n_items: int, n_flips: int) -> FloatArray:
    """Draw -1 and 1 with equal probability, shape (M, n_flips)."""
    bits = rng.integers(0, 2, size=(n_flips, n_items), dtype=np.int8).T
    return 2.0 * bits.astype(np.float64) - 1.0


def _enumerated(values: FloatArray, n_nonzero: int) -> FloatArray:
    """Share of all 2^n sums at least as far from 0 as the one seen."""
    largest_first = np.argsort(-np.abs(values), axis=1)[:, : max(n_nonzero, 1)]
    values = np.take_along_axis(values, largest_first, axis=1)
    n = int(values.shape[1])
    # Opposite signs throughout give the same size: one of them can stay.
    half_of_all = np.arange(2.0 ** (n - 1))
    signs: FloatArray = 1 - 2 * (np.floor(half_of_all / 2.0 ** np.arange(n)[:, None]) % 2)
    step = max(RESAMPLING_BLOCK_SIZE // signs.shape[1], 1)
    parts = [_as_far(values[i : i + step], signs).mean(axis=1) for i in range(0, len(values), step)]
    return np.concatenate(parts)


def _drawn(values: FloatArray, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """As `_enumerated`, by drawn signs; what was seen counts as one of them."""
    count = np.ones(len(values))
    step = max(RESAMPLING_BLOCK_SIZE // max(values.shape), 1)
    for start in range(0, n_flips, step):
        signs = random_signs(rng, values.shape[1], min(step, n_flips - start))
        count += _as_far(values, signs).sum(axis=1)
    return count / (n_flips + 1)


def _as_far(values: FloatArray, signs: FloatArray) -> NDArray[np.bool_]:
    """Which sums with these signs are at least as far from 0 as those without, shape (P, B)."""
    slack = ROUNDING * np.abs(values).sum(axis=1)
    seen = np.abs(values.sum(axis=1)) - slack
    return np.abs(values @ signs) >= seen[:, None]
