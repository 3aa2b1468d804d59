"""Bayesian models of right and wrong answers, by quadrature on grids.

* `beta_binomial`, `beta_posteriors`: one model, items in clusters; θ and the intra-cluster
  correlation ρ
* `size_beta_binomial`: the same where clusters differ in size, and scores may go with it
* `Tails`, `log_product`: their likelihood, at a cost independent of the number of clusters
* `Axis`, `Grid`, `grids`: posterior densities of a few parameters, many cells at a time

Each parameter is x = centre + scale · sinh t: dense near the centre, sparse far out in the tails.
Sums over equidistant t converge exponentially; between the nodes the density and its integral are
those of the cardinal (sinc) series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.stats import clustered
from evalstats_plugin.stats.arrays import FloatArray, IntArray, as_floats
from evalstats_plugin.stats.interval import Interval, increasing_root, tail_probability

special: Any = import_module("scipy.special")
"""SciPy says little of the types of its functions."""

LogDensity: TypeAlias = Callable[[list[FloatArray], IntArray], FloatArray]
"""Log density, up to a constant, shape (cells, n_1, …, n_D), from the nodes of each of D
parameters, D arrays of shape (cells, n), and the indices of the cells."""


# Parameters are log odds or similar: the density farther out than this is negligible.
FARTHEST = 60.0


# A density below exp(-25) of its peak is negligible.
NEGLIGIBLE = 25.0


COARSE_PASSES = 3


# Greatest relative difference of a sum over every other node from that over all. Halving the step
# squares the error, so that sums over all nodes are accurate to the square of this.
SUM_SETTLED = 3e-5


# The error of the cardinal series is that of the sum over every other node.
SERIES_SETTLED = 2e-8


MOST_REFINEMENTS = 8


# Numbers held at a time: few enough to stay in the processor's cache.
BLOCK_SIZE = 2**16


# Counts in clusters up to this are multiplied factor by factor.
MOST_FACTORS = 64


# Of larger counts, the first factors are; from there four terms of Stirling's series suffice.
FIRST_FACTORS = 16


STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


Prior: TypeAlias = Literal["uniform-icc", "gamma-dispersion"]
"""Prior of the correlation: ρ ~ U(0, 1), or 1/ρ - 1 ~ Gamma(1, 1) as in [BAI25]_. θ ~ U(0, 1)."""


# Initial nodes along logit θ and logit ρ, and nodes of the search for the posterior's box.
BETA_NODES = (40, 44)


BETA_COARSE_NODES = 15


Estimand: TypeAlias = Literal["items", "clusters"]
"""Whether every item counts alike, or every cluster."""


Population: TypeAlias = Literal["random", "fixed"]
"""Clusters are a sample of many such, or all there are."""


# Satterthwaite's degrees of freedom from which the clustered t is as short, for any sizes.
FEW_FREEDOM = 20.0


# Nodes along the logit of the share, its slope on log size, and logit ρ.
SIZE_NODES = (24, 14, 24)


SIZE_COARSE_NODES = 9


# Limits need no more: sums over every other node agree to this.
SIZE_SETTLED = 3e-2


# Points of the share between the nodes; values of the noise of unknown sizes; of its integral.
SIZE_FINE, SIZE_NOISE, SIZE_INTEGRAL = 400, 7, 64


# Factors of a cluster's likelihood; from there four terms of Stirling's series suffice.
SIZE_FACTORS = 6


def beta_binomial(
    successes: ArrayLike, sizes: ArrayLike, *, confidence_level: float, prior: Prior
) -> Interval:
    """Beta-Binomial posterior of θ, equal tails, extended to hold a share of successes of 0 or 1.

    Parameters
    ----------
    successes, sizes : shape (..., C)
        Of each cluster; size 0 for padding. NaN where a cell has no items.

    Examples
    --------
    >>> right, of = [3, 9, 5, 0, 7], [10, 10, 10, 10, 10]
    >>> low, high = beta_binomial(right, of, confidence_level=0.95, prior="uniform-icc")
    >>> print(f"{low:.4f} {high:.4f}")
    0.2129 0.7155
    """
    tail = tail_probability(confidence_level)
    right, size, shape = _cells(successes, sizes)
    low, high = np.full((2, len(size)), np.nan)
    for grid in beta_posteriors(right, size, prior):
        mean = right[grid.cells].sum(axis=1) / size[grid.cells].sum(axis=1)
        low[grid.cells] = np.where(mean == 0, 0.0, special.expit(grid.quantile(0, tail)))
        high[grid.cells] = np.where(mean == 1, 1.0, special.expit(grid.quantile(0, 1 - tail)))
    return Interval(low.reshape(shape), high.reshape(shape))


def size_beta_binomial(
    successes: ArrayLike,
    sizes: ArrayLike,
    *,
    confidence_level: float,
    estimand: Estimand = "items",
    clusters: Population = "random",
) -> Interval:
    """Beta-Binomial posterior of a share of successes that may depend on the size of a cluster.

    A cluster of m items has k ~ Beta-Binomial(m, μ, ρ) with logit μ = a + b log m. The share of
    these sizes, Σ w μ, is uniform a priori, b ~ N(0, 1) and ρ ~ U(0, 1). Sizes of new clusters are
    as unknown as those seen are few: w has the weights of Rubin's Bayesian bootstrap [Rub81]_, with
    exact mean and variance. Clusters of one size leave b out, and this is `beta_binomial`. Where
    the prior would end the limits beside the observed share, as at low levels, they reach to it.

    Parameters
    ----------
    successes, sizes : shape (..., C)
        Of each cluster; size 0 for padding. NaN where a cell has no items.
    estimand
        Every item counts alike, or every cluster does.
    clusters
        ``"random"``: the share of new clusters like these. ``"fixed"``: of new items of these very
        clusters, by a Beta distribution of the posterior's mean and variance.

    Examples
    --------
    A hundred items of one cluster are wrong, and all of 20 clusters of one item right.

    >>> right, of = [0] + 20 * [1], [100] + 20 * [1]
    >>> low, high = size_beta_binomial(right, of, confidence_level=0.95)
    >>> print(f"{low:.2f} {high:.2f}")
    0.12 0.90
    """
    tail = tail_probability(confidence_level)
    right, size, shape = _cells(successes, sizes)
    low, high = np.full((2, len(size)), np.nan)
    largest = size.max(axis=1, initial=0)
    equal = np.all((size == 0) | (size == largest[:, None]), axis=1)
    alike = np.flatnonzero(equal & (largest > 0) & (clusters == "random"))
    if len(alike):
        low[alike], high[alike] = beta_binomial(
            right[alike], size[alike], confidence_level=confidence_level, prior="uniform-icc"
        )
    for i in np.flatnonzero((largest > 0) & ~(equal & (clusters == "random"))).tolist():
        low[i], high[i] = _size_model(size[i], right[i], estimand).limits(tail, clusters)
    weight = size if estimand == "items" else np.sign(size)
    with np.errstate(invalid="ignore"):
        share = (right * weight / np.maximum(size, 1)).sum(axis=1) / weight.sum(axis=1)
    low, high = np.fmin(low, share), np.fmax(high, share)
    return Interval(low.reshape(shape), high.reshape(shape))


def _cells(
    successes: ArrayLike, sizes: ArrayLike
) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Successes and sizes of clusters, a row for each cell, and the shape of the cells."""
    right, size = as_floats(successes, sizes)
    n_clusters = size.shape[-1]
    return right.reshape(-1, n_clusters), size.reshape(-1, n_clusters), size.shape[:-1]


def size_slope(successes: ArrayLike, sizes: ArrayLike) -> float:
    """Posterior mean over standard deviation of b, the slope of the model above, of one cell.

    Negative where larger clusters have a smaller share of successes; 0 for clusters of one size.

    >>> round(size_slope([0] + 20 * [1], [100] + 20 * [1]), 1)
    -2.6
    """
    size, right = (np.asarray(x, dtype=np.float64) for x in (sizes, successes))
    if len(np.unique(size[size > 0])) < 2:
        return 0.0
    grid = _size_model(size, right, "items").grid
    b, weight = grid.values(1)[0], grid.marginal(1)[0]
    mean = float(b @ weight)
    return mean / float(np.sqrt(b**2 @ weight - mean**2))


def _size_model(size: FloatArray, right: FloatArray, estimand: Estimand) -> _SizeModel:
    has_items = size > 0
    counts = np.stack([size[has_items], right[has_items]], axis=1)
    return _solved_size_model(counts[np.lexsort(counts.T)].tobytes(), estimand)


@lru_cache(maxsize=128)
def _solved_size_model(counts: bytes, estimand: Estimand) -> _SizeModel:
    """Solve it once: models of a table have counts in common, and each is looked at twice."""
    return _SizeModel(np.frombuffer(counts).reshape(-1, 2), estimand)


class _SizeModel:
    """Posterior of one cell whose clusters differ in size; `counts` has rows (size, right)."""

    def __init__(self, counts: FloatArray, estimand: Estimand) -> None:
        kinds, times = np.unique(counts, axis=0, return_counts=True)
        self._times = times.astype(np.float64)
        self._size, self._right = kinds.T
        each = self._times * (self._size if estimand == "items" else 1.0)
        self._share = each / each.sum()
        """Weight of each kind of cluster: those of one size and with as many right."""
        log_size = np.log(self._size)
        self._x = log_size - self._share @ log_size
        rate = (self._right + 0.5) / (self._size + 1)
        centre = special.logit(self._share @ rate)
        spread = 4 * np.sqrt((self._share**2 / self._times).sum())
        scales = [np.full(1, min(spread, 1.0)), np.ones(1), np.full(1, 2.0)]
        (self.grid,) = grids(
            lambda parameters, _: self._log_density(parameters),
            [np.array([centre]), np.zeros(1), np.full(1, -1.5)],
            scales,
            sizes=SIZE_NODES, n_series=0, coarse=SIZE_COARSE_NODES, settled=SIZE_SETTLED,
        )  # fmt: skip
        observed = self._right / self._size
        self._agrees = bool(np.all(observed == observed[0]) and observed[0] in (0.0, 1.0))
        self._estimate = float(self._share @ observed)

    def _log_density(self, parameters: list[FloatArray]) -> FloatArray:
        u, b, w = (x[0] for x in parameters)
        odds = np.exp(np.minimum(w, 300))[None, None, None, :]
        logits = self._logits(u, b)
        log_p = np.zeros((1, len(u), len(b), len(w)))
        kinds = zip(self._times, self._size, self._right, np.moveaxis(logits, 2, 0), strict=True)
        for times, size, right, eta in kinds:
            mean = special.expit(eta)[None, :, :, None]
            rest = special.expit(-eta)[None, :, :, None]
            part = log_product(_rising(right), mean, odds)
            part += log_product(_rising(size - right), rest, odds)
            part -= log_product(_rising(size), np.ones_like(odds), odds)
            log_p += times * part
        of_u = special.log_expit(u) + special.log_expit(-u)
        of_w = special.log_expit(w) + special.log_expit(-w)
        return log_p + (of_u[:, None, None] - b[:, None] ** 2 / 2 + of_w)

    def _logits(self, u: FloatArray, b: FloatArray) -> FloatArray:
        """Logit of each kind's mean where the share is expit(u), shape (n_u, n_b, kinds)."""
        slope = (b[:, None] * self._x)[None]
        least, most = (f(slope, axis=2).repeat(len(u), axis=0) for f in (np.min, np.max))
        target = np.broadcast_to(u[:, None], least.shape).ravel()
        flat, span = np.broadcast_to(slope, (len(u), *slope.shape[1:])), most - least
        flat, first, span = flat.reshape(-1, flat.shape[2]), least.ravel(), span.ravel()

        def excess(at: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            # a = u - (least + at * span), from above: turned round, so as to increase.
            a = target[cells] - first[cells] - (1 - at) * span[cells]
            eta = a[:, None] + flat[cells]
            mean, rest = special.expit(eta), special.expit(-eta)
            right, wrong = mean @ self._share, rest @ self._share
            change = (mean * rest) @ self._share / (right * wrong)
            return np.log(right) - np.log(wrong) - target[cells], change * span[cells]

        start = 1 + first / np.maximum(span, 1e-300)
        at = increasing_root(excess, start, bracket=(0, 1), tolerance=1e-6)
        a = target - first - (1 - at) * span
        return (a[:, None] + flat).reshape(len(u), len(b), -1)

    def limits(self, tail: float, clusters: Population) -> tuple[float, float]:
        """Equal tails; extended to hold an estimate of 0 or 1 if all clusters agree on it."""
        if clusters == "fixed":
            mean, variance = self._of_these()
            both = mean * (1 - mean) / variance - 1
            beta = special.betaincinv(mean * both, (1 - mean) * both, [tail, 1 - tail])
            low, high = beta.tolist()
        else:
            low, high = np.interp([tail, 1 - tail], *self._distribution()).tolist()
        if self._agrees:
            low, high = min(low, self._estimate), max(high, self._estimate)
        return low, high

    def _distribution(self) -> tuple[FloatArray, FloatArray]:
        """Cumulative probabilities of the share of new clusters, and its values, in order."""
        weights = self.grid.weights[0].sum(axis=2)
        t = self.grid.nodes[0]
        # Between the nodes of u, by the cardinal series.
        fine: FloatArray = np.linspace(float(t[0, 0]), float(t[0, -1]), SIZE_FINE)[None]
        _, between = cardinal(t, fine)
        u = self.grid.axes[0].values(fine)[0]
        b = self.grid.values(1)[0]
        mass = np.maximum(between[0] @ weights, 0.0)
        used = mass > mass.max() * 1e-8
        # The correction for unknown sizes changes slowly: it is linear between the nodes.
        nodes = self.grid.values(0)[0]
        shift, spread = self._correction(nodes, b)
        every = np.concatenate([shift, spread], axis=1)
        moved = np.array([np.interp(u, nodes, column) for column in every.T], dtype=np.float64).T
        shift, spread = moved[:, : len(b)], moved[:, len(b) :]
        noise, of_noise = np.polynomial.hermite_e.hermegauss(SIZE_NOISE)
        logit = (u[:, None] + shift)[used][:, None] + spread[used][:, None] * noise
        chance = (mass[used][:, None] * of_noise).ravel()
        # Ties, which rounding would put into any order, stay in theirs.
        order = np.argsort(logit.ravel().round(9), kind="stable")
        chance = chance[order] / chance.sum()
        return np.cumsum(chance) - chance / 2, special.expit(logit.ravel()[order])

    def _correction(self, u: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much the logit of the share moves, mean and spread, where sizes are drawn anew.

        The share is a ratio of sums, R = Σ g w μ / Σ g w with g exponential, whose moments are
        integrals: E 1/D = ∫ E exp(-t D) dt, and 1/D² with a factor t.
        """
        times, w = self._times, self._share / self._times
        x, of_x = np.polynomial.legendre.leggauss(SIZE_INTEGRAL)
        scale, share = times.sum(), (x + 1) / 2
        t = scale * share / (1 - share)
        of_t = of_x / 2 * scale / (1 - share) ** 2
        without = np.exp(-np.log1p(np.outer(t, w)) @ times) * of_t
        each = w / (1 + np.outer(t, w))
        first = times * (without @ each)
        second = (each * (without * t)[:, None]).T @ each
        second = second * np.outer(times, times) + np.diag(times * np.diag(second))
        mean = special.expit(self._logits(u, b))
        target = special.expit(u)[:, None]
        away = mean - target[:, :, None]
        moved = away @ first
        variance = np.maximum(np.einsum("ubc,ubc->ub", away @ second, away) - moved**2, 0)
        centre = np.clip(target + moved, 1e-12, 1 - 1e-12)
        slope = centre * (1 - centre)
        return special.logit(centre) - u[:, None], np.sqrt(variance) / slope

    def _of_these(self) -> tuple[float, float]:
        """Mean and variance of the share of new items of these clusters."""
        u, b, w = (self.grid.values(i)[0] for i in range(3))
        both = np.exp(-np.clip(w, -25, 25))
        mean, variance = np.zeros((2, len(u), len(b), len(w)))
        logits = self._logits(u, b)
        kinds = zip(
            self._share, self._times, self._size, self._right, np.moveaxis(logits, 2, 0),
            strict=True,
        )  # fmt: skip
        for share, times, size, right, eta in kinds:
            own = (right + both * special.expit(eta)[:, :, None]) / (size + both)
            mean += share * own
            variance += share**2 / times * own * (1 - own) / (size + both + 1)
        weights = self.grid.weights[0]
        centre = float((weights * mean).sum())
        return centre, float((weights * (variance + (mean - centre) ** 2)).sum())


def _rising(count: float) -> Tails:
    """One cluster's count for `log_product`: the first factors one by one, then a series."""
    n_factors = int(min(count, SIZE_FACTORS))
    rest = count - n_factors
    large = np.array([[rest]]) if rest else np.zeros((1, 0))
    return Tails(np.ones((1, n_factors)), large, np.ones_like(large))


def beta_posteriors(right: FloatArray, size: FloatArray, prior: Prior) -> Iterator[Grid]:
    """Posteriors of logit θ and logit ρ; cells without items are left out."""
    nonempty = np.nonzero(size.sum(axis=1) > 0)[0]
    right, size = right[nonempty], size[nonempty]
    outcomes = tails(right), tails(size - right), tails(size)

    def log_density(parameters: list[FloatArray], cells: IntArray) -> FloatArray:
        of_these: list[Tails] = [outcome.part(cells) for outcome in outcomes]
        return _beta_log_posterior(of_these, prior, *parameters)

    # Where both parameters are, and how narrow, from the clustered standard error.
    n = size.sum(axis=1)
    share = (right.sum(axis=1) + 0.5) / (n + 1)
    variance = share * (1 - share)
    moments = clustered.cluster_moments(right, size)
    spread = np.sqrt(variance / (n + 1) + moments.cr0**2) / variance
    excess = n * moments.cr0**2 / variance - 1
    mean_size = (size**2).sum(axis=1) / n
    icc = np.clip(excess / np.maximum(mean_size - 1, 1), 0.3 / mean_size / np.sqrt(moments.n), 0.9)
    # Three standard errors wide: room for normal tails, and beyond them for those of few clusters,
    # which fall off like exp(-|u|).
    scales = [np.minimum(3 * spread, 1), np.full_like(n, 2.0)]
    centres = [special.logit(share), special.logit(icc)]
    for grid in grids(
        log_density, centres, scales, sizes=BETA_NODES, n_series=1, coarse=BETA_COARSE_NODES
    ):
        yield grid._replace(cells=nonempty[grid.cells])


def _beta_log_posterior(
    outcomes: list[Tails], prior: Prior, u: FloatArray, w: FloatArray
) -> FloatArray:
    """Up to a constant, in logit θ = u and logit ρ = w, shape (cells, len(u), len(w)).

    With r = ρ/(1 - ρ) a cluster's s right of n have the probability
    Π_{j<s} (θ + j r) · Π_{j<n-s} (1 - θ + j r) / Π_{j<n} (1 + j r), up to a constant.
    """
    right, wrong, either = outcomes
    u, w = u[:, :, None], w[:, None, :]
    odds = np.exp(w)
    if prior == "uniform-icc":
        log_prior = special.log_expit(w) + special.log_expit(-w)
    else:
        # d = exp(-w) ~ Gamma(1, 1), times the derivative of d.
        log_prior = -np.exp(-w) - w
    log_p = log_product(right, special.expit(u), odds)
    log_p += log_product(wrong, special.expit(-u), odds)
    log_p += special.log_expit(u) + special.log_expit(-u)
    log_p += log_prior - log_product(either, np.ones_like(w), odds)
    return log_p


class Tails(NamedTuple):
    """Counts of one outcome in the clusters of each cell, summarised by their tails."""

    more_than: FloatArray
    """Shape (cells, J): number of clusters with a count of more than j."""
    excess: FloatArray
    """Shape (cells, D): distinct counts of large clusters, less J; 0 for padding."""
    n_excess: FloatArray
    """Shape (cells, D): number of clusters with each of them."""

    def part(self, cells: IntArray) -> Tails:
        """Some of the cells, without the columns that none of them needs."""
        more_than, excess = self.more_than[cells], self.excess[cells]
        large = excess.any(axis=0)
        used = more_than.shape[1] if large.any() else int(more_than.any(axis=0).sum())
        return Tails(more_than[:, :used], excess[:, large], self.n_excess[cells][:, large])


def tails(counts: ArrayLike) -> Tails:
    """Tail counts of whole numbers, shape (cells, C).

    >>> tails([[3.0, 1.0, 0.0, 1.0]]).more_than
    array([[3., 1., 1.]])
    """
    numbers = np.asarray(counts, dtype=np.int64)
    n_cells = len(numbers)
    largest = int(numbers.max(initial=0))
    n_factors = largest if largest <= MOST_FACTORS else FIRST_FACTORS
    key = np.arange(n_cells)[:, None] * (n_factors + 1) + np.minimum(numbers, n_factors)
    frequency = np.bincount(key.ravel(), minlength=n_cells * (n_factors + 1))
    frequency = frequency.reshape(n_cells, n_factors + 1)
    more_than = np.cumsum(frequency[:, ::-1], axis=1)[:, ::-1][:, 1:].astype(np.float64)
    cells, large = np.nonzero(numbers > n_factors)
    values = numbers[cells, large] - n_factors
    keys, n = np.unique(cells * (largest + 1) + values, return_counts=True)
    cells, values = np.divmod(keys, largest + 1)
    place = np.arange(len(keys)) - np.searchsorted(cells, cells)
    excess, n_excess = np.zeros((2, n_cells, int(place.max(initial=-1)) + 1))
    excess[cells, place], n_excess[cells, place] = values, n
    return Tails(more_than, excess, n_excess)


def log_product(counts: Tails, theta: FloatArray, ratio: FloatArray) -> FloatArray:
    """Σ over clusters of Σ_{j<s} log(θ + j r).

    Parameters
    ----------
    theta, ratio
        θ and r, arrays of the same number of axes that broadcast, the first axis being cells.
    """
    axes = (slice(None), *(None,) * (theta.ndim - 1))
    total = np.zeros(np.broadcast_shapes(theta.shape, ratio.shape))
    if counts.more_than.shape[1]:
        total += np.log(theta) * counts.more_than[:, 0][axes]
    factor = np.empty_like(total)
    for j, n in enumerate(counts.more_than.T[1:], start=1):
        np.add(theta, j * ratio, out=factor)
        np.log(factor, out=factor)
        factor *= n[axes]
        total += factor
    if not counts.excess.shape[1]:
        return total
    start = theta + counts.more_than.shape[1] * ratio
    urn = start / ratio
    log_start, correction = np.log(start), _stirling(urn)
    for m, n in zip(counts.excess.T, counts.n_excess.T, strict=True):
        more = m[axes]
        grown = (urn + more - 0.5) * np.log1p(more / urn) - more
        total += n[axes] * (more * log_start + grown + _stirling(urn + more) - correction)
    return total


def _stirling(x: FloatArray) -> FloatArray:
    """Stirling's series: log Γ(x) less (x - ½) log x - x + ½ log 2π."""
    inverse = 1 / x
    squared = inverse**2
    series = np.full_like(x, STIRLING[-1])
    for coefficient in STIRLING[-2::-1]:
        series = series * squared + coefficient
    return series * inverse


class Axis(NamedTuple):
    """One parameter of each cell: x = centre + scale · sinh t at equidistant t."""

    centre: FloatArray
    scale: FloatArray
    first: FloatArray
    last: FloatArray
    """All of shape (cells,); `first` and `last` are values of t."""

    def part(self, cells: IntArray | NDArray[np.bool_]) -> Axis:
        """The axis of some of the cells."""
        return Axis(*(field[cells] for field in self))

    def nodes(self, n: int) -> FloatArray:
        """Values of t, shape (cells, n)."""
        return np.linspace(self.first, self.last, n, axis=1)

    def values(self, t: FloatArray) -> FloatArray:
        """Values of x at t, shape (cells, n)."""
        return self.centre[:, None] + self.scale[:, None] * np.sinh(t)

    def place(self, x: FloatArray) -> FloatArray:
        """Values of t at x, shape (cells, n)."""
        return np.arcsinh((x - self.centre[:, None]) / self.scale[:, None])


class Grid(NamedTuple):
    """Posterior of some cells on a grid; the weights of each cell add up to 1."""

    cells: IntArray
    axes: list[Axis]
    nodes: list[FloatArray]
    """Values of t of each parameter, shape (cells, n)."""
    weights: FloatArray
    """Shape (cells, n_1, …, n_D)."""

    def values(self, parameter: int) -> FloatArray:
        """Values of a parameter at its nodes, shape (cells, n)."""
        return self.axes[parameter].values(self.nodes[parameter])

    def marginal(self, parameter: int) -> FloatArray:
        """Weights of the values of one parameter, shape (cells, n)."""
        others = tuple(i + 1 for i in range(len(self.axes)) if i != parameter)
        return np.asarray(self.weights.sum(axis=others), dtype=np.float64)

    def part(self, cells: IntArray | NDArray[np.bool_]) -> Grid:
        """The posterior of some of the cells."""
        nodes = [t[cells] for t in self.nodes]
        axes = [axis.part(cells) for axis in self.axes]
        return Grid(self.cells[cells], axes, nodes, self.weights[cells])

    def quantile(self, parameter: int, probability: FloatArray | float) -> FloatArray:
        """Quantile of one parameter, shape (cells,)."""
        nodes, weights = self.nodes[parameter], self.marginal(parameter)
        probability = np.broadcast_to(probability, len(nodes))
        passed = np.cumsum(weights, axis=1) < probability[:, None]
        place = np.minimum(passed.sum(axis=1), nodes.shape[1] - 1)
        start = np.take_along_axis(nodes, place[:, None], axis=1)[:, 0]

        def excess(at: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            below, density = cardinal(nodes[cells], at[:, None])
            value = np.einsum("ck,ck->c", below[:, 0], weights[cells]) - probability[cells]
            return value, np.einsum("ck,ck->c", density[:, 0], weights[cells])

        bracket = (float(nodes.min()), float(nodes.max()))
        root = increasing_root(excess, start, bracket=bracket, tolerance=1e-5)
        return self.axes[parameter].values(root[:, None])[:, 0]


def cardinal(nodes: FloatArray, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Integrals up to `at` and values there of the cardinal functions of equidistant nodes.

    Each function has integral 1. Shape (cells, points, n) from (cells, n) and (cells, points).
    """
    step = (nodes[:, 1] - nodes[:, 0])[:, None, None]
    offset = (at[:, :, None] - nodes[:, None, :]) / step
    below = 0.5 + np.asarray(special.sici(np.pi * offset), dtype=np.float64)[0] / np.pi
    return below, np.sinc(offset) / step


def grids(
    log_density: LogDensity,
    centres: list[FloatArray],
    scales: list[FloatArray],
    *,
    sizes: tuple[int, ...],
    n_series: int,
    coarse: int,
    settled: float = SUM_SETTLED,
) -> Iterator[Grid]:
    """Normalised posteriors of all cells, a few cells at a time; NaN where no grid is fine enough.

    Parameters
    ----------
    centres, scales
        Guesses for each parameter, shape (cells,): where the posterior of each cell is, and how
        narrow. They affect the cost, not the results.
    sizes
        Initial nodes of each parameter, even numbers; increased by half where they are too few.
    n_series
        Number of parameters, the first ones, that need quantiles or values between the nodes.
    coarse
        Nodes of each parameter while searching for the part that carries the posterior.
    settled
        Greatest relative difference of a sum over every other node from that over all.
    """
    n_cells = len(centres[0])
    step = max(BLOCK_SIZE // coarse ** len(sizes), 1)
    everything = np.indices((n_cells,))[0]
    blocks: list[IntArray] = [everything[i : i + step] for i in range(0, n_cells, step)]
    boxes = [
        _box(log_density, [c[i] for c in centres], [s[i] for s in scales], i, coarse)
        for i in blocks
    ]
    if not boxes:
        return
    axes = [
        Axis(*(np.concatenate([box[d][field] for box in boxes]) for field in range(4)))
        for d in range(len(sizes))
    ]
    pending = [(everything, sizes)]
    for refinement in range(MOST_REFINEMENTS + 1):
        unsettled: dict[tuple[int, ...], list[IntArray]] = {}
        for cells, shape in pending:
            rows = max(BLOCK_SIZE // int(np.prod(shape)), 1)
            for i in range(0, len(cells), rows):
                grid, finer = _grid(
                    log_density, axes, cells[i : i + rows], shape, n_series, settled
                )
                done = np.all(finer == shape, axis=1)
                if refinement == MOST_REFINEMENTS:
                    # Unknown rather than wrong.
                    grid.weights[~done] = np.nan
                    done[:] = True
                if done.any():
                    yield grid if done.all() else grid.part(done)
                for wanted in np.unique(finer[~done], axis=0):
                    of_these = ~done & np.all(finer == wanted, axis=1)
                    key = tuple(int(n) for n in wanted)
                    unsettled.setdefault(key, []).append(grid.cells[of_these])
        pending = [(np.concatenate(parts), shape) for shape, parts in unsettled.items()]


def _box(
    log_density: LogDensity,
    centres: list[FloatArray],
    scales: list[FloatArray],
    cells: IntArray,
    coarse: int,
) -> list[Axis]:
    """The range of each parameter that holds the posterior, plus one coarse node.

    The last parameter, whose place is hard to guess, is recentred on the peak.
    """
    ends = [np.arcsinh((FARTHEST + np.abs(c)) / s) for c, s in zip(centres, scales, strict=True)]
    axes = [Axis(c, s, -end, end) for c, s, end in zip(centres, scales, ends, strict=True)]
    for _ in range(COARSE_PASSES):
        nodes = [axis.nodes(coarse) for axis in axes]
        log_weights = _log_weights(log_density, axes, nodes, cells)
        within = tuple(range(1, log_weights.ndim))
        matters = log_weights > log_weights.max(axis=within, keepdims=True) - NEGLIGIBLE
        for d, (axis, t) in enumerate(zip(axes, nodes, strict=True)):
            here = matters.any(axis=tuple(i for i in within if i != d + 1))
            first = np.maximum(np.argmax(here, axis=1) - 1, 0)
            last = np.minimum(coarse - np.argmax(here[:, ::-1], axis=1), coarse - 1)
            ends = (np.take_along_axis(t, i[:, None], axis=1)[:, 0] for i in (first, last))
            axes[d] = Axis(axis.centre, axis.scale, *ends)
        last = axes[-1]
        peak = log_weights.reshape(len(cells), -1).argmax(axis=1) % coarse
        peak_t = np.take_along_axis(nodes[-1], peak[:, None], axis=1)
        recentred = last._replace(centre=last.values(peak_t)[:, 0])
        ends_t = recentred.place(last.values(np.stack([last.first, last.last], axis=1)))
        axes[-1] = Axis(recentred.centre, recentred.scale, *ends_t.T)
    return axes


def _grid(
    log_density: LogDensity,
    axes: list[Axis],
    cells: IntArray,
    shape: tuple[int, ...],
    n_series: int,
    settled: float,
) -> tuple[Grid, IntArray]:
    """The posterior at `shape` nodes, and the nodes that each cell needs, shape (cells, D)."""
    own = [axis.part(cells) for axis in axes]
    nodes = [axis.nodes(n) for axis, n in zip(own, shape, strict=True)]
    weights = _log_weights(log_density, own, nodes, cells)
    within = tuple(range(1, weights.ndim))
    weights -= weights.max(axis=within, keepdims=True)
    np.exp(weights, out=weights)
    needed = np.tile(np.asarray(shape, dtype=np.int64), (len(cells), 1))
    left = weights
    for d in range(len(shape) - 1, -1, -1):
        half: FloatArray = 2 * left[..., ::2].sum(axis=-1)
        left = np.asarray(left.sum(axis=-1), dtype=np.float64)
        error = np.abs(half - left).reshape(len(cells), -1).max(axis=1)
        most = left.reshape(len(cells), -1).max(axis=1)
        enough = SERIES_SETTLED if d < n_series else settled
        needed[:, d] = np.where(error > enough * most, 2 * (3 * shape[d] // 4), shape[d])
    weights /= weights.sum(axis=within, keepdims=True)
    return Grid(cells, own, nodes, weights), needed


def _log_weights(
    log_density: LogDensity, axes: list[Axis], nodes: list[FloatArray], cells: IntArray
) -> FloatArray:
    log_weights = log_density([axis.values(t) for axis, t in zip(axes, nodes, strict=True)], cells)
    for d, (axis, t) in enumerate(zip(axes, nodes, strict=True)):
        others = tuple(i + 1 for i in range(len(axes)) if i != d)
        slope = axis.scale[:, None] * np.cosh(t)
        log_weights += np.expand_dims(np.log(slope), others)
    return log_weights
