"""Clusters of right and wrong answers: a Beta-Binomial model, by quadrature.

Each cluster has its own probability of a right answer, drawn from a Beta distribution with mean θ
and intra-cluster correlation ρ. The posterior is integrated over both, without sampling, on grids
of logit θ and logit ρ: thousands of cells in a second, however many clusters each has.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import clustered
from evalstats_plugin.stats.cluster_counts import Tails, log_product, tails
from evalstats_plugin.stats.interval import FloatArray, IntArray, Interval, tail_probability
from evalstats_plugin.stats.posterior_grid import Grid, grids

Prior: TypeAlias = Literal["uniform-icc", "gamma-dispersion"]
"""Of the correlation: ρ ~ U(0, 1), or 1/ρ - 1 ~ Gamma(1, 1) as in [BAI25]_. θ ~ U(0, 1)."""

# Nodes along logit θ and logit ρ to begin with.
NODES = (40, 44)
COARSE_NODES = 15


class Posterior(NamedTuple):
    """Posterior means of θ and ρ, of shape (...); NaN where a cell has no items."""

    mean: FloatArray
    icc: FloatArray
    """Intra-cluster correlation ρ. Clusters of one item say nothing about it."""


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
    right, size, shape = _cells(successes, sizes)
    low, high = np.full((2, len(size)), np.nan)
    for grid in _posteriors(right, size, prior):
        mean = right[grid.cells].sum(axis=1) / size[grid.cells].sum(axis=1)
        low[grid.cells] = np.minimum(special.expit(grid.quantile(0, tail)), mean)
        high[grid.cells] = np.maximum(special.expit(grid.quantile(0, 1 - tail)), mean)
    return Interval(low.reshape(shape), high.reshape(shape))


def posterior_means(successes: ArrayLike, sizes: ArrayLike, *, prior: Prior) -> Posterior:
    """Posterior means of θ and of the intra-cluster correlation; arguments as for `interval`.

    >>> found = posterior_means([3, 9, 5, 0, 7], [10, 10, 10, 10, 10], prior="uniform-icc")
    >>> print(f"{found.mean:.3f} {found.icc:.3f}")
    0.461 0.392
    """
    right, size, shape = _cells(successes, sizes)
    found = np.full((2, len(size)), np.nan)
    for grid in _posteriors(right, size, prior):
        for parameter in range(2):
            share = special.expit(grid.values(parameter))
            found[parameter, grid.cells] = (share * grid.marginal(parameter)).sum(axis=1)
    return Posterior(*found.reshape(2, *shape))


def _cells(
    successes: ArrayLike, sizes: ArrayLike
) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    right, size = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (successes, sizes))
    )
    shape = size.shape[:-1]
    return right.reshape(-1, size.shape[-1]), size.reshape(-1, size.shape[-1]), shape


def _posteriors(right: FloatArray, size: FloatArray, prior: Prior) -> Iterator[Grid]:
    """Posteriors of logit θ and logit ρ; cells without items are left out."""
    there = np.nonzero(size.sum(axis=1) > 0)[0]
    right, size = right[there], size[there]
    outcomes = tails(right), tails(size - right), tails(size)

    def log_density(parameters: list[FloatArray], cells: IntArray) -> FloatArray:
        of_these: list[Tails] = [outcome.part(cells) for outcome in outcomes]
        return _log_posterior(of_these, prior, *parameters)

    centres, scales = _guess(right, size)
    for grid in grids(log_density, centres, scales, sizes=NODES, n_series=1, coarse=COARSE_NODES):
        yield grid._replace(cells=there[grid.cells])


def _guess(right: FloatArray, size: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
    """Where logit θ and logit ρ may be, and on what scale they may vary.

    Without correlation the posterior of θ is as narrow as items are many, with it as narrow as the
    clustered standard error says.
    """
    n = size.sum(axis=1)
    share = (right.sum(axis=1) + 0.5) / (n + 1)
    variance = share * (1 - share)
    found = clustered.moments(right, size)
    spread = np.sqrt(variance / (n + 1) + found.cr0**2) / variance
    excess = n * found.cr0**2 / variance - 1
    mean_size = (size**2).sum(axis=1) / n
    icc = np.clip(excess / np.maximum(mean_size - 1, 1), 0.3 / mean_size / np.sqrt(found.n), 0.9)
    # Some three standard errors wide, the scale leaves room for normal tails, and beyond them for
    # those of few clusters, which fall off like exp(-|u|).
    scales = [np.minimum(3 * spread, 1), np.full_like(n, 2.0)]
    return [special.logit(share), special.logit(icc)], scales


def _log_posterior(outcomes: list[Tails], prior: Prior, u: FloatArray, w: FloatArray) -> FloatArray:
    """Up to a constant, in logit θ = u and logit ρ = w, shape (cells, len(u), len(w)).

    With r = ρ/(1 - ρ) a cluster's s right of n have the probability
    Π_{j<s} (θ + j r) · Π_{j<n-s} (1 - θ + j r) / Π_{j<n} (1 + j r), the order being of no account.
    """
    right, wrong, either = outcomes
    u, w = u[:, :, None], w[:, None, :]
    odds = np.exp(w)
    if prior == "uniform-icc":
        log_prior = special.log_expit(w) + special.log_expit(-w)
    else:
        # d = exp(-w) ~ Gamma(1, 1), times the derivative of d.
        log_prior = -np.exp(-w) - w
    found = log_product(right, special.expit(u), odds)
    found += log_product(wrong, special.expit(-u), odds)
    found += special.log_expit(u) + special.log_expit(-u)
    found += log_prior - log_product(either, np.ones_like(w), odds)
    return found
