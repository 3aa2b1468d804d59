"""Clusters of right and wrong answers: a Beta-Binomial model, by quadrature.

Each cluster has its own probability of a right answer, drawn from a Beta distribution with mean θ
and intra-cluster correlation ρ. The posterior of θ is integrated over both, without sampling:
exponentially convergent sums over logit θ and logit ρ, on the part of the plane that matters. The
likelihood needs only how many clusters have more than j right (wrong, in all), so that what it
costs does not depend on how many clusters there are.
"""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    Interval,
    increasing_root,
    tail_probability,
)

Prior: TypeAlias = Literal["uniform-icc", "gamma-dispersion"]
"""Of the correlation: ρ ~ U(0, 1), or 1/ρ - 1 ~ Gamma(1, 1) as in [BAI25]_. θ ~ U(0, 1)."""

# Nodes along logit θ and logit ρ to begin with; doubled until sums with and between them agree.
NODES = (65, 49)
SETTLED = 1e-7
# No more terms than this are summed for one cell, settled or not.
MOST_TERMS = 2**26
# Where the posterior density is below exp(-36) of its peak, it does not matter.
NEGLIGIBLE = 36.0
# Numbers held at a time.
BLOCK_SIZE = 2**21


class _Tails(NamedTuple):
    """How many clusters of one cell have more than 0, 1, 2, … right, wrong, and in all."""

    right: FloatArray
    wrong: FloatArray
    either: FloatArray


class _Marginal(NamedTuple):
    """Posterior density of logit θ at equidistant nodes."""

    nodes: FloatArray
    density: FloatArray


def interval(
    successes: ArrayLike, sizes: ArrayLike, *, confidence_level: float, prior: Prior
) -> Interval:
    """Posterior of the mean probability θ, equal tails, extended to hold the share of successes.

    Parameters
    ----------
    successes, sizes : shape (..., C)
        Of each cluster; size 0 for padding. NaN where a cell has no items.

    Examples
    --------
    >>> right, of = [3, 9, 5, 0, 7], [10, 10, 10, 10, 10]
    >>> low, high = interval(right, of, confidence_level=0.95, prior="uniform-icc")
    >>> print(f"{low:.4f} {high:.4f}")
    0.2129 0.7155
    """
    tail = tail_probability(confidence_level)
    right, size = (np.asarray(x, dtype=np.float64) for x in (successes, sizes))
    right, size = np.broadcast_arrays(right, size)
    shape = size.shape[:-1]
    right, size = (x.reshape(-1, size.shape[-1]) for x in (right, size))
    low, high = np.full((2, len(size)), np.nan)
    for i in np.nonzero(size.sum(axis=1) > 0)[0]:
        there = size[i] > 0
        marginal = _marginal(_tails(right[i, there], size[i, there]), prior)
        mean = right[i].sum() / size[i].sum()
        low[i] = min(special.expit(_quantile(marginal, tail)), mean)
        high[i] = max(special.expit(_quantile(marginal, 1 - tail)), mean)
    return Interval(low.reshape(shape), high.reshape(shape))


def mean(successes: ArrayLike, sizes: ArrayLike, *, prior: Prior) -> float:
    """Posterior mean of θ, of one cell: `successes` and `sizes` have shape (C,)."""
    right, size = (np.asarray(x, dtype=np.float64) for x in (successes, sizes))
    marginal = _marginal(_tails(right, size), prior)
    return float(marginal.density @ special.expit(marginal.nodes) / marginal.density.sum())


def _tails(right: FloatArray, size: FloatArray) -> _Tails:
    def more_than(counts: FloatArray) -> FloatArray:
        frequency = np.bincount(counts.astype(np.int64))
        return np.cumsum(frequency[::-1])[::-1][1:].astype(np.float64)

    return _Tails(more_than(right), more_than(size - right), more_than(size))


def _marginal(tails: _Tails, prior: Prior) -> _Marginal:
    """Density of logit θ, on nodes as dense as it needs."""
    (u_ends, w_ends), peak = _box(tails, prior)

    def density(u: FloatArray, w: FloatArray) -> FloatArray:
        found = np.exp(_log_posterior(tails, prior, u, w) - peak).sum(axis=1)
        return np.asarray(found * (w[1] - w[0]), dtype=np.float64)

    n_terms = len(tails.right) + len(tails.wrong) + len(tails.either)
    u, w = np.linspace(*u_ends, NODES[0]), np.linspace(*w_ends, NODES[1])
    found = density(u, w)
    settled = False
    while not settled and n_terms * u.size * w.size < MOST_TERMS:
        between = _between(w)
        other = density(u, between)
        settled = bool(np.abs(found - other).max() <= SETTLED * found.max())
        w = np.sort(np.concatenate([w, between]))
        found = (found + other) / 2
    settled = False
    while not settled and n_terms * u.size * w.size < MOST_TERMS:
        between = _between(u)
        other = density(between, w)
        settled = bool(abs(found.sum() - other.sum()) <= SETTLED * found.sum())
        order = np.argsort(np.concatenate([u, between]))
        u, found = (np.concatenate(pair)[order] for pair in ((u, between), (found, other)))
    return _Marginal(u, found)


def _between(nodes: FloatArray) -> FloatArray:
    return (nodes[1:] + nodes[:-1]) / 2


def _box(
    tails: _Tails, prior: Prior
) -> tuple[tuple[tuple[float, float], tuple[float, float]], float]:
    """Ends along logit θ and logit ρ that hold the posterior, and its greatest logarithm there."""
    box = (-60.0, 60.0), (-60.0, 60.0)
    peak = 0.0
    # Without correlation the posterior is a ridge at the share of successes, as narrow as they
    # are many: nodes crowd there, lest it be missed.
    share = (tails.right.sum() + 0.5) / (tails.either.sum() + 1)
    crowd = np.log(share / (1 - share)) + np.outer([-1, 1], np.geomspace(1e-4, 30, 30)).ravel()
    for _ in range(6):
        u, w = (np.linspace(*side, 41) for side in box)
        u = np.unique(np.concatenate([u, crowd[(crowd > u[0]) & (crowd < u[-1])]]))
        found = _log_posterior(tails, prior, u, w)
        peak = float(found.max())
        matters = found > peak - NEGLIGIBLE
        smaller = _around(u, matters), _around(w, matters.T)
        shrunk = any(
            new[1] - new[0] < 0.7 * (old[1] - old[0]) for new, old in zip(smaller, box, strict=True)
        )
        box = smaller
        if not shrunk:
            break
    return box, peak


def _around(nodes: FloatArray, matters: NDArray[np.bool_]) -> tuple[float, float]:
    """Ends of the part that matters, one node beyond where there is one."""
    inside = np.nonzero(matters.any(axis=1))[0]
    first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, len(nodes) - 1)
    return float(nodes[first]), float(nodes[last])


def _log_posterior(tails: _Tails, prior: Prior, u: FloatArray, w: FloatArray) -> FloatArray:
    """Up to a constant, in logit θ = u and logit ρ = w, shape (len(u), len(w)).

    With r = ρ/(1 - ρ) a cluster's s right of n have the probability
    Π_{j<s} (θ + j r) · Π_{j<n-s} (1 - θ + j r) / Π_{j<n} (1 + j r), the order being of no account.
    """
    odds = np.exp(w)
    flat_in_theta = special.log_expit(u) + special.log_expit(-u)
    if prior == "uniform-icc":
        log_prior = special.log_expit(w) + special.log_expit(-w)
    else:
        # d = exp(-w) ~ Gamma(1, 1), times the derivative of d.
        log_prior = -np.exp(-w) - w
    likelihood = _sum_of_logs(tails.right, special.expit(u), odds)
    likelihood += _sum_of_logs(tails.wrong, special.expit(-u), odds)
    likelihood -= _sum_of_logs(tails.either, np.ones(1), odds)
    return likelihood + flat_in_theta[:, None] + log_prior


def _sum_of_logs(more_than: FloatArray, theta: FloatArray, odds: FloatArray) -> FloatArray:
    """Σ_j (clusters with more than j) · log(θ + j r), on the grid of θ and r."""
    total = np.zeros((len(theta), len(odds)))
    step = max(BLOCK_SIZE // total.size, 1)
    for start in range(0, len(more_than), step):
        j = np.arange(start, min(start + step, len(more_than)))
        terms = np.log(theta[None, :, None] + j[:, None, None] * odds)
        total += np.tensordot(more_than[j], terms, axes=1)
    return total


def _quantile(marginal: _Marginal, probability: float) -> float:
    """Quantile of logit θ, from the integral of the density's cardinal series."""
    nodes, density = marginal
    step = nodes[1] - nodes[0]
    weights = density / density.sum()
    cumulative = np.cumsum(weights)
    start = nodes[np.searchsorted(cumulative, probability)]

    def excess(at: FloatArray, _: IntArray) -> tuple[FloatArray, FloatArray]:
        offset = (at[:, None] - nodes) / step
        below = 0.5 + np.asarray(special.sici(np.pi * offset), dtype=np.float64)[0] / np.pi
        return below @ weights - probability, np.sinc(offset) @ weights / step

    bracket = (float(nodes[0]), float(nodes[-1]))
    return float(increasing_root(excess, np.array([start]), bracket=bracket, tolerance=1e-9)[0])
