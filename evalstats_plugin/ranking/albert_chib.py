"""Draws from the Thurstone posterior by Gibbs sampling of the noisy differences [AC93]_.

Given the ratings each noisy difference is a normal between bounds; given these the ratings are
normal with one covariance for good. Then differences, and δ with them, are stretched by a common
factor drawn from its own distribution, along which single draws would crawl [LS00]_, [LW99]_. All
chains are one batch.

Prior of δ: half-normal(1). It is drawn by a random walk on its logarithm with the noisy differences
integrated out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.ranking.thurstone_design import (
    Answers,
    Prior,
    bounds,
    cholesky,
    information,
    inverse_of,
)
from evalstats_plugin.ranking.truncated_normal import draw_above, draw_between, log_probability

# Acceptance of the random walk that its step is tuned to.
_ACCEPTANCE = 0.44


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long to draw."""

    chains: int = 8
    draws: int = 500
    """Kept, of each chain."""
    warm_up: int = 50
    """Thrown away."""


class Start(NamedTuple):
    """Where K chains start."""

    parameters: FloatArray
    """Shape (K, P)."""
    tie: FloatArray
    """δ, shape (K,); 0 where no answer is a tie."""


class Chains(NamedTuple):
    """K chains of S draws."""

    draws: FloatArray
    """Shape (K, S, P)."""
    tie: FloatArray
    """δ, shape (K, S)."""
    mean: FloatArray
    """Over what is expected given the noisy differences, which errs less; shape (P,)."""
    covariance: FloatArray


class _Model(NamedTuple):
    answers: Answers
    prior: Prior
    covariance: FloatArray
    """Of the ratings given the noisy differences."""
    factor: FloatArray
    pull: FloatArray
    """Prior precision times prior mean."""
    tied: bool


def start_around(
    mean: FloatArray, covariance: FloatArray, tie: float, chains: int, rng: np.random.Generator
) -> Start:
    """Chains apart, twice as wide as a normal around which the posterior lies."""
    noise = rng.normal(size=(chains, len(mean))) @ cholesky(covariance).T
    return Start(mean + 2 * noise, tie * np.exp(0.3 * rng.normal(size=chains)))


def gibbs(
    answers: Answers, prior: Prior, start: Start, rng: np.random.Generator, options: Options
) -> Chains:
    """Draw from the posterior.

    Parameters
    ----------
    answers
        Answers may be of shape (C,), or (C, K) with chains that saw different ones.
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
            step *= np.exp((accepted - _ACCEPTANCE) * (t < 0) / (options.warm_up + t + 1) ** 0.5)
        total, square = _latent(model, difference, tie, rng)
        stretch = _stretch(model, total, square, tie, rng)
        tie = tie * stretch
        mean = model.covariance @ (model.pull[:, None] + total * stretch)
        x = mean + model.factor @ rng.normal(size=x.shape)
        if t >= 0:
            kept[t], expected[t], ties[t] = x.T, mean.T, tie
    flat = expected.reshape(-1, len(x))
    told = np.cov(flat, rowvar=False).reshape(len(x), len(x))
    return Chains(kept.swapaxes(0, 1), ties.T, flat.mean(axis=0), (model.covariance + told))


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
    """Draw the noisy differences: their sums for each parameter (P, K), and of squares (K,)."""
    answer = _columns(model.answers)
    if model.tied:
        low, high = bounds(answer, tie)
        z = difference + draw_between(low - difference, high - difference, rng)
    else:
        turned = answer * difference
        z = answer * (turned + draw_above(-turned, rng))
    return model.answers.design.T @ z, np.einsum("ck,ck->k", z, z)


def _columns(answers: Answers) -> FloatArray:
    answer = answers.answer.astype(np.float64)
    return answer if answer.ndim == 2 else answer[:, None]


def _stretch(
    model: _Model,
    total: FloatArray,
    square: FloatArray,
    tie: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Factor of all noisy differences and δ, given their direction, the ratings integrated out.

    Its square has a gamma distribution where the prior mean is 0; elsewhere it is left out.
    """
    if model.prior.mean.any():
        return np.ones(len(square))
    left = square - np.einsum("pk,pk->k", total, model.covariance @ total) + tie**2
    shape = (model.answers.design.shape[0] + model.tied) / 2
    return np.sqrt(rng.gamma(shape, size=len(square)) / (left / 2)) if shape else np.ones_like(tie)


def _tie(
    model: _Model, difference: FloatArray, tie: FloatArray, step: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Move δ, the noisy differences integrated out."""
    proposed = tie * np.exp(step * rng.normal(size=tie.shape))
    answer = _columns(model.answers)
    values: list[FloatArray] = []
    for delta in (tie, proposed):
        low, high = bounds(answer, delta)
        fit = log_probability(low - difference, high - difference).sum(axis=0)
        values.append(fit - delta**2 / 2 + np.log(delta))
    ratio = values[1] - values[0]
    accepted = ratio > -rng.exponential(size=tie.shape)
    return np.where(accepted, proposed, tie), float(np.exp(np.minimum(ratio, 0)).mean())
