"""Markov chains for the Thurstone posterior: Gibbs sampling and split Hamiltonian Monte Carlo.

* `gibbs` [AC93]_: given the ratings, each noisy difference is a truncated normal; given these, the
  ratings are normal with a constant covariance. Differences and δ are then scaled by a common
  factor drawn from its conditional distribution, which improves mixing [LS00]_, [LW99]_. δ moves by
  a random walk on its logarithm with the noisy differences integrated out.
* `split_hamiltonian` [SLJN14]_: exact rotations of a normal approximation, with kicks by the
  gradient of the remainder

The prior of δ is half-normal(1). All chains are one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.ranking.thurstone.design import (
    Answers,
    Prior,
    Sites,
    bounds,
    cholesky,
    information,
    inverse_of,
)
from evalstats_plugin.ranking.thurstone.truncated import (
    LOG_ROOT_2PI,
    draw_above,
    draw_between,
    log_ndtr,
    log_probability,
)
from evalstats_plugin.stats.arrays import FloatArray

_METROPOLIS_ACCEPTANCE = 0.44
"""Target acceptance of the random walk."""
_HAMILTONIAN_ACCEPTANCE = 0.9
"""Target acceptance of Hamiltonian trajectories."""
_MOST_STEPS = 32
_FINE_EVERY, _FINER = 4, 3
"""How often, and by what factor, steps are finer, for chains in regions of steep gradients."""
_WIDER = 1.5
"""Variance of the rotated normal relative to the approximation's, as the posterior's tails are
longer."""


@dataclass(frozen=True, kw_only=True)
class ChainOptions:
    """Number of chains and draws."""

    chains: int = 8
    draws: int = 500
    """Kept draws of each chain."""
    warm_up: int = 50
    """Discarded draws of each chain."""


class Start(NamedTuple):
    """Start values of K chains."""

    parameters: FloatArray
    """Shape (K, P)."""
    tie: FloatArray
    """δ, shape (K,); 0 if no answer is a tie."""


class Chains(NamedTuple):
    """K chains of S draws."""

    draws: FloatArray
    """Shape (K, S, P)."""
    tie: FloatArray
    """δ, shape (K, S)."""
    mean: FloatArray
    """Posterior mean, shape (P,); `gibbs` averages E[parameters | noisy differences]."""
    covariance: FloatArray


def start_around(
    mean: FloatArray, covariance: FloatArray, tie: float, chains: int, rng: np.random.Generator
) -> Start:
    """Overdispersed starts: twice as wide as a normal approximation of the posterior."""
    noise = rng.normal(size=(chains, len(mean))) @ cholesky(covariance).T
    return Start(mean + 2 * noise, tie * np.exp(0.3 * rng.normal(size=chains)))


def gibbs(
    answers: Answers, prior: Prior, start: Start, rng: np.random.Generator, options: ChainOptions
) -> Chains:
    """Draw from the posterior by Gibbs sampling.

    Parameters
    ----------
    answers
        Shape (C,), or (C, K) if chains saw different answers.
    """
    model = _model(answers, prior)
    x, tie = start.parameters.T, start.tie
    k, s = len(tie), options.draws
    kept, expected, ties = np.empty((s, k, len(x))), np.empty((s, k, len(x))), np.empty((s, k))
    step = 0.3
    for t in range(-options.warm_up, s):
        difference = answers.design @ x
        if model.tied:
            tie, accepted = _tie(model, difference, tie, step, rng)
            step *= np.exp(
                (accepted - _METROPOLIS_ACCEPTANCE) * (t < 0) / (options.warm_up + t + 1) ** 0.5
            )
        total, square = _latent(model, difference, tie, rng)
        stretch = _stretch(model, total, square, tie, rng)
        tie = tie * stretch
        mean = model.covariance @ (model.pull[:, None] + total * stretch)
        x = mean + model.factor @ rng.normal(size=x.shape)
        if t >= 0:
            kept[t], expected[t], ties[t] = x.T, mean.T, tie
    flat = expected.reshape(-1, len(x))
    between = np.cov(flat, rowvar=False).reshape(len(x), len(x))
    return Chains(kept.swapaxes(0, 1), ties.T, flat.mean(axis=0), (model.covariance + between))


class _Model(NamedTuple):
    answers: Answers
    prior: Prior
    covariance: FloatArray
    """Covariance of the parameters given the noisy differences."""
    factor: FloatArray
    """Cholesky factor of it."""
    pull: FloatArray
    """Prior precision times prior mean."""
    tied: bool


def _model(answers: Answers, prior: Prior) -> _Model:
    inverse = inverse_of(prior.covariance).inverse
    count = int(answers.design.shape[0])
    covariance = inverse_of(inverse + information(answers.design, np.ones(count))).inverse
    factor = cholesky(covariance)
    tied = bool((answers.answer == 0).any())
    return _Model(answers, prior, covariance, factor, inverse @ prior.mean, tied)


def _latent(
    model: _Model, difference: FloatArray, tie: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw the noisy differences; return their sums by parameter (P, K) and of squares (K,)."""
    answer = model.answers.by_chain
    if model.tied:
        low, high = bounds(answer, tie)
        z = difference + draw_between(low - difference, high - difference, rng)
    else:
        turned = answer * difference
        z = answer * (turned + draw_above(-turned, rng))
    return model.answers.design.T @ z, np.einsum("ck,ck->k", z, z)


def _stretch(
    model: _Model,
    total: FloatArray,
    square: FloatArray,
    tie: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw a common factor of all noisy differences and δ, with the ratings integrated out.

    Its square has a gamma distribution if the prior mean is 0; otherwise this move is left out.
    """
    if model.prior.mean.any():
        return np.ones(len(square))
    left = square - np.einsum("pk,pk->k", total, model.covariance @ total) + tie**2
    shape = (model.answers.design.shape[0] + model.tied) / 2
    return np.sqrt(rng.gamma(shape, size=len(square)) / (left / 2)) if shape else np.ones_like(tie)


def _tie(
    model: _Model, difference: FloatArray, tie: FloatArray, step: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Metropolis step of log δ, with the noisy differences integrated out."""
    proposed = tie * np.exp(step * rng.normal(size=tie.shape))
    answer = model.answers.by_chain
    values: list[FloatArray] = []
    for delta in (tie, proposed):
        low, high = bounds(answer, delta)
        fit = log_probability(low - difference, high - difference).sum(axis=0)
        values.append(fit - delta**2 / 2 + np.log(delta))
    ratio = values[1] - values[0]
    accepted = ratio > -rng.exponential(size=tie.shape)
    return np.where(accepted, proposed, tie), float(np.exp(np.minimum(ratio, 0)).mean())


class NormalApproximation(NamedTuple):
    """Normal approximation of P parameters, followed by log δ if there are ties.

    Draws are correct for any covariance, but mix well only if it is close to the posterior's.
    """

    mean: FloatArray
    covariance: FloatArray


def split_hamiltonian(
    sites: Sites,
    prior: Prior,
    around: NormalApproximation,
    rng: np.random.Generator,
    options: ChainOptions,
) -> Chains:
    """Draw from the posterior; chains start at draws from the normal approximation."""
    target, k = _target(sites, prior, around), options.chains
    u = rng.normal(size=(len(around.mean), k))
    kept = np.empty((options.draws, *u.shape))
    log_steps = np.log(4.0)
    for t in range(-options.warm_up, options.draws):
        steps, fine = int(np.clip(np.exp(log_steps), 2, _MOST_STEPS)), t % _FINE_EVERY == 0
        u, accepted = _trajectory(target, u, steps * _FINER if fine else steps, rng)
        if t < 0 and not fine:
            log_steps -= (accepted - _HAMILTONIAN_ACCEPTANCE) / (options.warm_up + t + 1) ** 0.5
        if t >= 0:
            kept[t] = target.mean + target.factor @ u
    p = len(prior.mean)
    draws = kept[:, :p].transpose(2, 0, 1)
    ties = np.exp(kept[:, p].T) if len(target.drawn) else np.zeros((k, options.draws))
    flat = draws.reshape(-1, p)
    spread = np.atleast_2d(np.cov(flat, rowvar=False)).astype(np.float64)
    return Chains(draws, ties, flat.mean(axis=0), spread)


class _Target(NamedTuple):
    """Posterior in the coordinates u of its normal approximation, mean + L u."""

    decided: Any
    """Differences, signed so that the first won; sparse, shape (W, P)."""
    won: FloatArray
    """Weight of these wins, shape (W, 1)."""
    tied: Any
    """Differences of ties, sparse."""
    drawn: FloatArray
    """Weight of these ties."""
    prior_mean: FloatArray
    """Shape (P, 1)."""
    prior_precision: FloatArray
    mean: FloatArray
    """Shape (P, 1), or (P + 1, 1) with log δ."""
    factor: FloatArray


def _target(sites: Sites, prior: Prior, around: NormalApproximation) -> _Target:
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


# If δ under- or overflows, the gradient is not finite and the proposal is rejected.
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _trajectory(
    target: _Target, u: FloatArray, steps: int, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Propose by about a quarter turn, split into rotations between gradient kicks."""
    momentum = rng.normal(size=u.shape)
    point = _at(target, u)
    before = point.log_ratio - 0.5 * (u * u + momentum * momentum).sum(axis=0)
    # Random length, to avoid periodic trajectories.
    turn = rng.uniform(0.7, 1.3) * np.pi / 2 / steps
    cos, sin = np.cos(turn), np.sin(turn)
    for _ in range(steps):
        momentum = momentum + 0.5 * turn * point.slope
        moved = cos * point.u + sin * momentum
        momentum = cos * momentum - sin * point.u
        point = _at(target, moved)
        momentum = momentum + 0.5 * turn * point.slope
    after = point.log_ratio - 0.5 * (point.u**2 + momentum**2).sum(axis=0)
    # A chain at a point without a finite density accepts any finite proposal.
    before = np.where(np.isfinite(before), before, -np.inf)
    gain = np.where(np.isfinite(after), after - before, -np.inf)
    accepted = gain > -rng.exponential(size=len(gain))
    return np.where(accepted, point.u, u), float(np.exp(np.minimum(gain, 0)).mean())


class _Point(NamedTuple):
    """K chains: positions (P, K), log ratio of posterior to normal (K,), its gradient (P, K)."""

    u: FloatArray
    log_ratio: FloatArray
    slope: FloatArray


def _at(target: _Target, u: FloatArray) -> _Point:
    x = target.mean + target.factor @ u
    log_posterior, slope = _log_posterior(target, x)
    return _Point(u, log_posterior + 0.5 * (u * u).sum(axis=0), target.factor.T @ slope + u)


def _log_posterior(target: _Target, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log posterior up to a constant, shape (K,), and its gradient (P, K)."""
    ratings, log_tie = x[: len(target.prior_mean)], x[len(target.prior_mean) :]
    tie = np.exp(log_tie).sum(axis=0)
    centred = ratings - target.prior_mean
    away = target.prior_precision @ centred
    at: FloatArray = target.decided @ ratings - tie
    log_p = log_ndtr(at)
    pull = target.won * np.exp(-0.5 * at * at - LOG_ROOT_2PI - log_p)
    value = (target.won * log_p).sum(axis=0) - 0.5 * (centred * away).sum(axis=0)
    slope: FloatArray = target.decided.T @ pull - away
    if not len(target.drawn):
        return value, slope
    difference: FloatArray = target.tied @ ratings
    low, high = -tie - difference, tie - difference
    log_p = log_probability(low, high)
    at_low, at_high = (
        target.drawn * np.exp(-0.5 * y * y - LOG_ROOT_2PI - log_p) for y in (low, high)
    )
    slope = slope + target.tied.T @ (at_low - at_high)
    by_tie = (at_low + at_high).sum(axis=0) - pull.sum(axis=0)
    value = value + (target.drawn * log_p).sum(axis=0) - tie**2 / 2 + log_tie[0]
    return value, np.concatenate([slope, (tie * (by_tie - tie) + 1)[None]])
