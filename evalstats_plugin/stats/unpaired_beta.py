"""Two models on items of their own: the contrast of two independent Beta posteriors.

For partial credit a Beta variable of the same mean and variance stands for each Dirichlet-process
posterior of `bounded`; for 0/1 scores it is that posterior.
"""

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.beta_contrast import Betas, Posterior, contrast
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.unpaired import Counts


def difference(counts: Counts, *, confidence_level: float, prior: tuple[float, float]) -> Posterior:
    """Posterior of the difference b - a, equal tails, extended to hold the estimate.

    Exchanging a and b changes the sign of the limits, exactly; with equal counts each is better
    with probability ½, exactly.

    >>> from evalstats_plugin.stats.unpaired import independent_counts
    >>> counts = independent_counts(12, 20, 15, 20)
    >>> found = difference(counts, confidence_level=0.95, prior=(1, 1))
    >>> print(f"{found.low:.4f} {found.high:.4f} {found.prob_better:.6f}")
    -0.1384 0.4028 0.836788
    """
    found = contrast(posteriors(counts, prior=prior), "difference", confidence_level)
    return _holding(found, counts.difference)


def ratio(counts: Counts, *, confidence_level: float, prior: tuple[float, float]) -> Posterior:
    """Posterior of the ratio b : a, equal tails, extended to hold the estimate."""
    found = contrast(posteriors(counts, prior=prior), "log ratio", confidence_level)
    return _exponentiated(_holding(found, counts.log_ratio))


def odds_ratio(counts: Counts, *, confidence_level: float, prior: tuple[float, float]) -> Posterior:
    """Posterior of the odds ratio b : a, equal tails, extended to hold the estimate."""
    found = contrast(posteriors(counts, prior=prior), "log odds ratio", confidence_level)
    return _exponentiated(_holding(found, counts.log_odds_ratio))


def posteriors(counts: Counts, *, prior: tuple[float, float]) -> Betas:
    """Beta posteriors of the share of items that each model gets right."""
    if min(prior) <= 0:
        raise ValueError(f"a Beta prior needs two positive numbers, got {prior}")
    right_a, n_a, right_b, n_b = counts
    right, wrong = prior
    return Betas(right_a + right, n_a - right_a + wrong, right_b + right, n_b - right_b + wrong)


def matched(scores: ArrayLike, *, bounds: tuple[float, float], mass: float) -> FloatArray:
    """Shapes of the Beta variables that stand for the posteriors of bounded means.

    With mean and variance of the posterior of `bounded.dirichlet_process`, in units of the bounds;
    from scores (..., M), shape (2, ...), NaN without any.
    """
    low, high = bounds
    unit = (np.asarray(scores, dtype=np.float64) - low) / (high - low)
    seen = ~np.isnan(unit)
    values = np.where(seen, unit, 0.0)
    total = seen.sum(axis=-1) + 2 * mass
    mean = (values.sum(axis=-1) + mass) / total
    squares = np.where(seen, values - mean[..., None], 0.0) ** 2
    spread = (squares.sum(axis=-1) + mass * (mean**2 + (1 - mean) ** 2)) / total
    size = np.where(seen.any(axis=-1), mean * (1 - mean) * (total + 1) / spread - 1, np.nan)
    return np.stack([mean * size, (1 - mean) * size])


def _holding(found: Posterior, estimate: FloatArray) -> Posterior:
    """Extended to an estimate, where there is one."""
    there = ~np.isnan(found.low)
    return found._replace(
        low=np.where(there, np.fmin(found.low, estimate), np.nan),
        high=np.where(there, np.fmax(found.high, estimate), np.nan),
    )


def _exponentiated(found: Posterior) -> Posterior:
    return found._replace(low=np.exp(found.low), high=np.exp(found.high))
