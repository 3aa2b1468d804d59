"""Log posterior density of Thurstone's model, for many points at once.

The prior of δ, half the width of a tie, is half-normal(1).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from evalstats_plugin.ranking.hamiltonian import LogPosterior
from evalstats_plugin.ranking.thurstone.design import Prior, Sites, inverse_of
from evalstats_plugin.ranking.thurstone.truncated import LOG_ROOT_2PI, log_ndtr, log_probability
from evalstats_plugin.stats.arrays import FloatArray


def log_posterior_of(sites: Sites, prior: Prior) -> LogPosterior:
    """Make the log posterior of the P parameters, followed by log δ if there are ties."""
    wins, losses, ties = sites.wins, sites.losses, sites.ties
    # Differences, signed so that the first won.
    decided = sparse.vstack([sites.design[wins > 0], -sites.design[losses > 0]], format="csr")
    won = np.concatenate([wins[wins > 0], losses[losses > 0]])[:, None]
    tied, drawn = sites.design[ties > 0], ties[ties > 0][:, None]
    prior_mean, precision = prior.mean[:, None], inverse_of(prior.covariance).inverse

    def log_posterior(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        ratings, log_tie = x[: len(prior_mean)], x[len(prior_mean) :]
        tie = np.exp(log_tie).sum(axis=0)
        centred = ratings - prior_mean
        away = precision @ centred
        at: FloatArray = decided @ ratings - tie
        log_p = log_ndtr(at)
        pull = won * np.exp(-0.5 * at * at - LOG_ROOT_2PI - log_p)
        value = (won * log_p).sum(axis=0) - 0.5 * (centred * away).sum(axis=0)
        slope: FloatArray = decided.T @ pull - away
        if not len(drawn):
            return value, slope
        difference: FloatArray = tied @ ratings
        low, high = -tie - difference, tie - difference
        log_p = log_probability(low, high)
        at_low, at_high = (drawn * np.exp(-0.5 * y * y - LOG_ROOT_2PI - log_p) for y in (low, high))
        slope = slope + tied.T @ (at_low - at_high)
        by_tie = (at_low + at_high).sum(axis=0) - pull.sum(axis=0)
        value = value + (drawn * log_p).sum(axis=0) - tie**2 / 2 + log_tie[0]
        return value, np.concatenate([slope, (tie * (by_tie - tie) + 1)[None]])

    return log_posterior
