"""What a fitted ranking is: ratings, how sure, and how they were found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evalstats_plugin.ranking.contests import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class RankingFit:
    """Ratings of n players on one scale, that of the log odds or of the probit to win."""

    model: str
    """``"bradley-terry"``, ``"thurstone"`` or ``"plackett-luce"``."""
    estimator: str
    """``"ml"``, ``"laplace"``, ``"ep"``, ``"gibbs"``, ``"hmc"`` or ``"exact"``."""
    players: tuple[str, ...]
    rating: FloatArray
    """Shape (n,): estimates or posterior means, with mean 0 unless a prior places them."""
    covariance: FloatArray
    """Of the ratings, shape (n, n)."""
    draws: FloatArray | None = None
    """Draws of the ratings from the posterior, or of bootstraps, shape (S, n)."""
    parameters: dict[str, float] = field(default_factory=dict[str, float])
    """Others of the model by name, such as ``"position"``, ``"tie"``, or a feature's."""
    parameter_std_errors: dict[str, float] = field(default_factory=dict[str, float])
    log_likelihood: float | None = None
    """At the estimate; of a posterior the log evidence stands in the diagnostics."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, seconds, log_evidence, r_hat, ess, n_contests, reason, and more."""
    notes: tuple[str, ...] = ()

    @property
    def std_error(self) -> FloatArray:
        """Of each rating, shape (n,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def centred(self) -> RankingFit:
        """The same ratings relative to their mean: no contest tells how good all are together."""
        return replace(
            self,
            rating=self.rating - self.rating.mean(),
            covariance=self._centred_rows(self._centred_rows(self.covariance).T),
            draws=None if self.draws is None else self._centred_rows(self.draws),
        )

    @staticmethod
    def _centred_rows(values: FloatArray) -> FloatArray:
        return values - values.mean(axis=1, keepdims=True)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw ratings, shape (size, n): the fit's own draws anew, or normal ones around it."""
        if self.draws is not None:
            return self.draws[rng.integers(len(self.draws), size=size)]
        value, vectors = np.linalg.eigh(self.covariance)
        noise = rng.normal(size=(size, len(value))) * np.sqrt(np.clip(value, 0, None))
        return self.rating + noise @ vectors.T
