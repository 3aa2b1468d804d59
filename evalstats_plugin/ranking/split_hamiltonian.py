"""Draws from the Thurstone posterior by Hamiltonian steps around a normal near it [SLJN14]_.

Where the posterior is nearly the normal that expectation propagation finds, moving along that
normal's own circles, which costs nothing and errs nowhere, leaves a small rest of the slope to
follow in steps. A quarter of a circle gives draws nearly independent of those before, however
lopsided the answers are, and the cost grows with the pairs compared, not with the answers. All
chains are one batch. Where there are ties, log δ is one more parameter; δ ~ half-normal(1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.ranking.albert_chib import Chains, Options
from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.ranking.thurstone_design import Prior, Sites, cholesky, inverse_of
from evalstats_plugin.ranking.truncated_normal import log_ndtr, log_probability

# Acceptance that the steps along the circle are tuned to.
_ACCEPTANCE = 0.9
_MOST_STEPS = 32
# How often steps are finer, and by how much, for a chain that has come where the slope is steep.
_FINE_EVERY, _FINER = 4, 3
# Variance of the normal that is circled around, in that of the approximation: tails are longer.
_WIDER = 1.5
_LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)


class Around(NamedTuple):
    """A normal like the posterior, of P parameters, and of log δ after them where there are ties.

    `covariance` may be narrower or wider than the posterior, which makes draws no less right.
    """

    mean: FloatArray
    covariance: FloatArray


class _Target(NamedTuple):
    """The posterior in the coordinates u of its normal approximation, mean + L u."""

    decided: Any
    """Differences, turned so that they were won, shape (W, P), sparse."""
    won: FloatArray
    """Weight of these wins, shape (W, 1)."""
    tied: Any
    drawn: FloatArray
    prior_mean: FloatArray
    """Shape (P, 1)."""
    prior_precision: FloatArray
    mean: FloatArray
    """Shape (P, 1), or (P + 1, 1) with log δ."""
    factor: FloatArray


class _Point(NamedTuple):
    """Of K chains: place (P, K), log of posterior to normal (K,), and its slope (P, K)."""

    u: FloatArray
    log_ratio: FloatArray
    slope: FloatArray


def split_hamiltonian(
    sites: Sites, prior: Prior, around: Around, rng: np.random.Generator, options: Options
) -> Chains:
    """Draw from the posterior, all chains starting anywhere in ``around``."""
    target, k = _target(sites, prior, around), options.chains
    u = rng.normal(size=(len(around.mean), k))
    kept = np.empty((options.draws, *u.shape))
    log_steps = np.log(4.0)
    for t in range(-options.warm_up, options.draws):
        steps, fine = int(np.clip(np.exp(log_steps), 2, _MOST_STEPS)), t % _FINE_EVERY == 0
        u, accepted = _trajectory(target, u, steps * _FINER if fine else steps, rng)
        if t < 0 and not fine:
            log_steps -= (accepted - _ACCEPTANCE) / (options.warm_up + t + 1) ** 0.5
        if t >= 0:
            kept[t] = target.mean + target.factor @ u
    p = len(prior.mean)
    draws = kept[:, :p].transpose(2, 0, 1)
    ties = np.exp(kept[:, p].T) if len(target.drawn) else np.zeros((k, options.draws))
    flat = draws.reshape(-1, p)
    spread = np.atleast_2d(np.cov(flat, rowvar=False)).astype(np.float64)
    return Chains(draws, ties, flat.mean(axis=0), spread)


def _target(sites: Sites, prior: Prior, around: Around) -> _Target:
    wins, losses, ties = sites.wins, sites.losses, sites.ties
    parts = [sites.design[wins > 0], -sites.design[losses > 0]]
    return _Target(
        sparse.vstack(parts, format="csr"),
        np.concatenate([wins[wins > 0], losses[losses > 0]])[:, None],
        sites.design[ties > 0],
        ties[ties > 0][:, None],
        prior.mean[:, None],
        inverse_of(prior.covariance).inverse,
        around.mean[:, None],
        cholesky(_WIDER * around.covariance),
    )


def _at(target: _Target, u: FloatArray) -> _Point:
    x = target.mean + target.factor @ u
    log_posterior, slope = _log_posterior(target, x)
    return _Point(u, log_posterior + 0.5 * (u * u).sum(axis=0), target.factor.T @ slope + u)


def _log_posterior(target: _Target, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Up to a constant (K,), and its slope (P, K)."""
    ratings, log_tie = x[: len(target.prior_mean)], x[len(target.prior_mean) :]
    tie = np.exp(log_tie).sum(axis=0)
    centred = ratings - target.prior_mean
    away = target.prior_precision @ centred
    at: FloatArray = target.decided @ ratings - tie
    log_p = log_ndtr(at)
    pull = target.won * np.exp(-0.5 * at * at - _LOG_ROOT_2PI - log_p)
    value = (target.won * log_p).sum(axis=0) - 0.5 * (centred * away).sum(axis=0)
    slope: FloatArray = target.decided.T @ pull - away
    if not len(target.drawn):
        return value, slope
    difference: FloatArray = target.tied @ ratings
    low, high = -tie - difference, tie - difference
    log_p = log_probability(low, high)
    at_low, at_high = (
        target.drawn * np.exp(-0.5 * y * y - _LOG_ROOT_2PI - log_p) for y in (low, high)
    )
    slope = slope + target.tied.T @ (at_low - at_high)
    by_tie = (at_low + at_high).sum(axis=0) - pull.sum(axis=0)
    value = value + (target.drawn * log_p).sum(axis=0) - tie**2 / 2 + log_tie[0]
    return value, np.concatenate([slope, (tie * (by_tie - tie) + 1)[None]])


# Where a δ is too small or too large for a number there is no slope: that chain stays.
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _trajectory(
    target: _Target, u: FloatArray, steps: int, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """About a quarter of a circle, by turns between kicks of the rest of the slope."""
    momentum = rng.normal(size=u.shape)
    point = _at(target, u)
    before = point.log_ratio - 0.5 * (u * u + momentum * momentum).sum(axis=0)
    # Of random length, so that no period of any direction is hit.
    turn = rng.uniform(0.7, 1.3) * np.pi / 2 / steps
    cos, sin = np.cos(turn), np.sin(turn)
    for _ in range(steps):
        momentum = momentum + 0.5 * turn * point.slope
        moved = cos * point.u + sin * momentum
        momentum = cos * momentum - sin * point.u
        point = _at(target, moved)
        momentum = momentum + 0.5 * turn * point.slope
    after = point.log_ratio - 0.5 * (point.u**2 + momentum**2).sum(axis=0)
    # A chain that starts where nothing is finite may go anywhere else.
    before = np.where(np.isfinite(before), before, -np.inf)
    gain = np.where(np.isfinite(after), after - before, -np.inf)
    accepted = gain > -rng.exponential(size=len(gain))
    return np.where(accepted, point.u, u), float(np.exp(np.minimum(gain, 0)).mean())
