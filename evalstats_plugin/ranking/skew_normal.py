"""The Thurstone posterior itself: a unified skew-normal distribution [AA06]_, [Dur19]_.

Ratings x ~ N(ξ, Ω) and noisy differences z = D x + e are normal together; the answers say between
which bounds each z lies. So the posterior is x given z in a box: SUN(ξ, Ω, Δ, τ, Γ) with Δ = Ω D',
Γ = I + D Ω D' and, where every answer is a win, τ = D ξ less the bounds. Its draws are those of z
in the box, and a normal around what z tells of x.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.ranking.thurstone_design import Answers, Prior, bounds, cholesky
from evalstats_plugin.ranking.tilting import (
    LogProbability,
    TiltedBox,
    acceptance,
    box_probability,
    draw,
    tilted_box,
)

LEAST_ACCEPTANCE = 1e-3
"""Share of accepted proposals below which exact draws are refused."""


class Sample(NamedTuple):
    """Independent draws of P parameters, and their moments."""

    draws: FloatArray
    """Shape (S, P)."""
    mean: FloatArray
    """Over what is expected given each z, which errs less than the draws' own mean."""
    covariance: FloatArray
    mean_std_error: FloatArray
    """Of `mean`, by simulation; shape (P,)."""
    acceptance: float


@dataclass(frozen=True, eq=False)
class SkewNormal:
    """Unified skew-normal posterior of P parameters given m answers."""

    location: FloatArray
    """ξ, shape (P,)."""
    scale: FloatArray
    """Ω, shape (P, P)."""
    design: FloatArray
    """D, shape (m, P), turned so that every win is a win of the first."""
    low: FloatArray
    """Bounds of z, shape (m,): δ and infinity of wins, -δ and δ of ties."""
    high: FloatArray

    @classmethod
    def of(cls, answers: Answers, prior: Prior, tie: float) -> SkewNormal:
        """Make the posterior of answers; ``tie`` is δ, half the width of a tie."""
        turn = np.where(answers.answer < 0, -1.0, 1.0)
        design = answers.design.toarray() * turn[:, None]
        low, high = bounds(np.abs(answers.answer), tie)
        return cls(prior.mean, prior.covariance, design, low, high)

    @property
    def skewness(self) -> FloatArray:
        """Δ, shape (P, m)."""
        return self.scale @ self.design.T

    @property
    def threshold(self) -> FloatArray:
        """τ, shape (m,): that of the lower bounds."""
        return self.design @ self.location - self.low

    @cached_property
    def latent_covariance(self) -> FloatArray:
        """Γ, shape (m, m)."""
        return np.eye(len(self.low)) + self.design @ self.skewness

    @cached_property
    def box(self) -> TiltedBox:
        """The box of z less D ξ, tilted."""
        shift = self.design @ self.location
        return tilted_box(self.latent_covariance, self.low - shift, self.high - shift)

    def acceptance(self, rng: np.random.Generator, size: int = 500) -> float:
        """Estimate the share of proposals that are accepted."""
        return acceptance(self.box, size, rng) if len(self.low) else 1.0

    def sample(
        self, size: int, rng: np.random.Generator, *, least: float = LEAST_ACCEPTANCE
    ) -> Sample:
        """Draw from the posterior.

        Raises
        ------
        DesignError
            Fewer than ``least`` of the proposals are accepted.
        """
        m = len(self.low)
        found = draw(self.box, size, rng, least=least) if m else None
        latent = np.zeros((size, 0)) if found is None else found.values
        weights = np.linalg.solve(self.latent_covariance, self.skewness.T)
        expected = self.location + latent @ weights
        # Ω - Δ Γ⁻¹ Δ': what remains of x when z is known.
        rest = self.scale - self.skewness @ weights
        noise = cholesky(rest)
        draws = expected + rng.normal(size=expected.shape) @ noise.T
        away = expected - expected.mean(axis=0)
        told = away.T @ away / max(size - 1, 1)
        error = np.sqrt(np.diagonal(told) / size)
        accepted = 1.0 if found is None else found.acceptance
        return Sample(draws, expected.mean(axis=0), rest + told, error, accepted)

    def log_evidence(self, rng: np.random.Generator, size: int = 10_000) -> LogProbability:
        """Log probability of the answers, log Φ_m(τ; Γ) where all are wins."""
        if not len(self.low):
            return LogProbability(0.0, 0.0)
        return box_probability(self.box, size, rng)

    def log_probability(
        self, rows: FloatArray, rng: np.random.Generator, size: int = 10_000
    ) -> LogProbability:
        """Log of the posterior probability that every entry of ``rows`` times x is above 0.

        The ratio of two boxes' probabilities, small ones included: rows of a player less each
        other one tell how likely it is the best, those of neighbours in an order how likely the
        order is right.

        Parameters
        ----------
        rows : shape (r, P)
            Linearly independent.
        """
        both = np.concatenate([self.design, rows])
        covariance = both @ self.scale @ both.T
        m = len(self.low)
        covariance[:m, :m] += np.eye(m)
        shift = both @ self.location
        low = np.concatenate([self.low, np.zeros(len(rows))]) - shift
        high = np.concatenate([self.high, np.full(len(rows), np.inf)]) - shift
        joint = box_probability(tilted_box(covariance, low, high), size, rng)
        alone = self.log_evidence(rng, size)
        error = float(np.hypot(joint.std_error, alone.std_error))
        return LogProbability(joint.value - alone.value, error)


def rows_of_best(player: int, players: int, parameters: int) -> FloatArray:
    """Rows that are all above 0 where one player is the best of them, shape (n - 1, P)."""
    rows = np.zeros((players, parameters))
    rows[:, player] = 1
    rows[np.arange(players), np.arange(players)] -= 1
    return np.delete(rows, player, axis=0)
