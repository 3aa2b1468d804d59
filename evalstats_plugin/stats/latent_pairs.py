"""Two models on the same items by a latent bivariate normal model [BAI25]_.

Each model gets an item right if its latent normal number is above a threshold. The scores of both
are uniform a priori, and of the correlation ρ of the two numbers (1 + ρ)/2 ~ Beta(4, 2), for what
is hard for one model is likely to be hard for the other. The paper draws from the prior and weights
the draws, of which next to none count once there are hundreds of items; here the same posterior is
integrated, to 1e-9 however many items there are.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.stats import difference_posterior
from evalstats_plugin.stats.difference_posterior import (
    LogDensity,
    Posterior,
    Proportions,
    proportions,
    stretched,
)
from evalstats_plugin.stats.interval import FloatArray, IntArray
from evalstats_plugin.stats.paired_binary import PairedCounts

# Coordinates: the difference of the scores, where they are, and atanh of the correlation.
NODES = (41, 25, 21)


def latent(counts: PairedCounts, *, confidence_level: float) -> Posterior:
    """Posterior of the difference of two scores, equal tails, and that b is better.

    The interval is extended where necessary to hold the estimate. Exchanging a and b changes the
    sign of both limits, exactly, and of two models with equally many items of their own each is
    better with probability ½, exactly.

    Examples
    --------
    >>> from evalstats_plugin.stats.paired_binary import paired_counts
    >>> found = latent(paired_counts(19, 2, 4, 5), confidence_level=0.95)
    >>> print(f"{found.low:.4f} {found.high:.4f} {found.prob_better:.4f}")
    -0.1091 0.2420 0.7748
    """
    tables = np.stack([x.ravel() for x in counts], axis=1)
    found = difference_posterior.posterior(
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
    h, k = _quantile(at.lower, at.not_lower), _quantile(at.not_upper, at.upper)
    cosh, sinh = np.cosh(w), np.sinh(w)
    triangles = special.owens_t(h, k / h * cosh + sinh) + special.owens_t(k, h / k * cosh + sinh)
    opposite = np.where((h < 0) != (k < 0), 0.5, 0.0)
    return (at.lower + at.not_upper) / 2 - triangles - opposite


def _quantile(p: FloatArray, rest: FloatArray) -> FloatArray:
    """Normal quantile from the smaller of p and 1 - p; never 0, by which nothing can be divided."""
    quantile = np.where(p < 0.5, special.ndtri(p), -special.ndtri(rest))
    return np.where(quantile == 0, 1e-300, quantile)
