"""Shares of right answers with a Beta(1, 1) prior each, in closed form: no borrowing at all.

``pooled``: a model has one probability, the same on all tasks. ``per_task``: one on each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.hierarchical.posterior import FloatArray, Posterior


class Shares(NamedTuple):
    """Beta posteriors: shapes a and b, (N, T)."""

    a: FloatArray
    b: FloatArray
    pooled: bool

    @property
    def mean(self) -> FloatArray:
        """Posterior means, (N, T)."""
        return self.a / (self.a + self.b)

    def quantile(self, level: float) -> FloatArray:
        """Posterior quantiles, (N, T)."""
        return np.asarray(special.betaincinv(self.a, self.b, level), dtype=np.float64)


def shares(right: FloatArray, trials: FloatArray, *, pooled: bool) -> Shares:
    """Update Beta(1, 1) with right answers and trials, both (N, T).

    >>> shares(np.array([[3.0, 0.0]]), np.array([[4.0, 2.0]]), pooled=True).mean
    array([[0.5, 0.5]])
    """
    wrong = trials - right
    if pooled:
        right, wrong = (
            np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape) for x in (right, wrong)
        )
    return Shares(1 + right, 1 + wrong, pooled)


def log_left_out(found: Shares, right: FloatArray, trials: FloatArray) -> FloatArray:
    """Log probability of each cell's answers given all others, (N, T); 0 where there are none."""
    wrong = trials - right
    return special.betaln(found.a, found.b) - special.betaln(found.a - right, found.b - wrong)


def log_evidence(found: Shares, right: FloatArray, trials: FloatArray) -> float:
    """Log probability of all answers, in the order given, shares integrated out.

    >>> one = np.array([[1.0]])
    >>> float(np.exp(log_evidence(shares(one, one, pooled=False), one, one)).round(12))
    0.5
    """
    if found.pooled:
        return float(special.betaln(found.a[:, 0], found.b[:, 0]).sum())
    return float(special.betaln(1 + right, 1 + trials - right).sum())


def draw(
    found: Shares,
    right: FloatArray,
    trials: FloatArray,
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:
    """Draw independently (K, S), for what is not a quantile of one cell."""
    shape = (*size, *found.a.shape)
    width = (*shape[:3], 1) if found.pooled else shape
    a, b = (x[:, :1] if found.pooled else x for x in (found.a, found.b))
    accuracy = np.broadcast_to(rng.beta(a, b, width), shape)
    with np.errstate(divide="ignore"):
        log_likelihood = special.xlogy(right, accuracy) + special.xlog1py(trials - right, -accuracy)
    if not found.pooled:
        # The cell's own parameter integrated out leaves the same number in every draw.
        own = special.betaln(1 + right, 1 + trials - right)
        log_likelihood = np.broadcast_to(own, shape)
    return Posterior(
        accuracy=accuracy,
        parameters={},
        log_likelihood=np.asarray(log_likelihood, dtype=np.float64),
        replicated=rng.binomial(np.rint(trials).astype(np.int64), accuracy).astype(np.float64),
    )
