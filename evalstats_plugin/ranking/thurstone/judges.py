"""Thurstone's model with judges of unequal accuracy, by Gibbs sampling.

Judge k shows z = a_k (s_i - s_j) + β + e, with the position effect β; a judge with accuracy near 0
answers at random, or by position. log a_k ~ N(0, τ²) with τ ~ half-normal(1), so that judges with
few answers are shrunk towards the others. Given the ratings, each noisy difference is a truncated
normal; given these, the ratings are normal [AC93]_. Accuracies and δ move by random walks with the
noisy differences integrated out. A further move scales all ratings up and all accuracies down,
which the answers do not identify.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.thurstone.design import (
    Answers,
    Prior,
    answers_of,
    bounds,
    inverse_of,
    prior_of,
    usable_contests,
)
from evalstats_plugin.ranking.thurstone.truncated import draw_between, log_probability
from evalstats_plugin.runtime.chain_length import ChainLength
from evalstats_plugin.runtime.chains import chain_agreement, run_chains
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_STEPS = (0.5, 0.3, 0.6, 0.2)
"""Initial steps of the random walks of log a, log δ, log τ and the log scale."""
_ACCEPTANCE = 0.4
"""Target acceptance of the random walks."""
_MOVES = 4
"""Moves of τ and of the scale in one sweep, as they are cheap."""


def fit_thurstone_judges(
    contests: Contests,
    *,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike = 1.0,
    length: ChainLength | None = None,
    rng: np.random.Generator | int | None = None,
) -> RankingFit:
    """Fit ratings and the judges' accuracies, by draws from the posterior.

    Parameters
    ----------
    contests
        With judges. If these are ordered, a position effect with prior N(0, 1) is estimated.
    prior_mean, prior_covariance
        As for `fit_thurstone`.
    length
        Number of chains and draws. Default: 8 chains of 1,000 draws after 300 of warm-up.

    Returns
    -------
    ``parameters`` hold ``"judge_sd"`` (τ), ``"accuracy of NAME"`` of each judge, and ``"position"``
    and ``"tie"`` if the model has them. The ratings' unit is the noise of a judge of accuracy 1.

    Raises
    ------
    DesignError
        No judges, outcomes other than wins, losses and ties, or an invalid prior.

    Examples
    --------
    >>> from dataclasses import replace
    >>> wins = [1] * 18 + [0] * 2 + [1] * 10 + [0] * 10
    >>> played = Contests.of([0] * 40, [1] * 40, wins, players=["ant", "bee"])
    >>> played = replace(played, judge=np.repeat([0, 1], 20), judges=("expert", "dice"))
    >>> length = ChainLength(chains=4, draws=100, warm_up=100)
    >>> found = fit_thurstone_judges(played, length=length, rng=0).parameters
    >>> found["accuracy of expert"] > found["accuracy of dice"]
    True
    """
    if contests.judge is None:
        msg = "the contests do not say who judged them: name the judges, or use fit_thurstone"
        raise DesignError(msg)
    contests.check()
    generator = np.random.default_rng(rng)
    length = length or ChainLength(chains=8)
    used = usable_contests(contests, "threshold")
    n, judges = len(contests.players), len(contests.judges)
    prior = prior_of(prior_mean, prior_covariance, n, ordered=contests.ordered)
    noise = generator.normal(size=(len(prior.mean) + judges + 2, length.chains))
    start = JudgeState(
        prior.mean[:, None]
        + np.sqrt(np.diagonal(prior.covariance))[:, None] * noise[: -judges - 2],
        0.5 * noise[-judges - 2 : -2],
        0.3 * noise[-2] - 1,
        0.3 * noise[-1] - 1,
    )
    kept = judge_chains(answers_of(used), judges, prior, start, rng=generator, length=length)
    return _result(contests, kept)


def _result(contests: Contests, kept: JudgeState) -> RankingFit:
    n = len(contests.players)
    named: dict[str, FloatArray] = {"judge_sd": np.exp(kept.log_spread)}
    if contests.ordered:
        named["position"] = kept.parameters[:, n]
    if contests.tied.any():
        named["tie"] = np.exp(kept.log_tie)
    accuracy = np.exp(kept.log_accuracy)
    named |= {f"accuracy of {name}": accuracy[:, k] for k, name in enumerate(contests.judges)}
    everything = np.concatenate([kept.parameters, kept.log_accuracy, kept.log_spread[:, None]], 1)
    agreement = chain_agreement(everything.transpose(2, 0, 1))
    draws = kept.parameters[:, :n].swapaxes(1, 2).reshape(-1, n)
    covariance = np.atleast_2d(np.cov(draws, rowvar=False)).astype(np.float64)
    return RankingFit(
        model="thurstone",
        estimator="gibbs",
        players=contests.players,
        rating=draws.mean(axis=0),
        covariance=covariance,
        draws=draws,
        parameters={name: float(x.mean()) for name, x in named.items()},
        parameter_std_errors={name: float(x.std()) for name, x in named.items()},
        diagnostics=agreement.diagnostics,
        notes=agreement.notes,
    )


class JudgeState(NamedTuple):
    """State of K chains: parameters (P, K), log accuracies (J, K), log τ and log δ (K,)."""

    parameters: FloatArray
    log_accuracy: FloatArray
    log_spread: FloatArray
    log_tie: FloatArray


def judge_chains(
    answers: Answers,
    judges: int,
    prior: Prior,
    start: JudgeState,
    *,
    rng: np.random.Generator,
    length: ChainLength,
) -> JudgeState:
    """Draw from the posterior; fields of the result have a leading axis of S draws."""
    model, steps = _model(answers, judges, prior), np.array(_STEPS)

    def sweep(state: JudgeState, k: int) -> JudgeState:
        state, shares = _sweep(model, state, steps, rng)
        if k < 0:
            steps[:] *= np.exp((shares - _ACCEPTANCE) / (length.warm_up + k + 1) ** 0.5)
        return state

    kept = run_chains(start, sweep, length)
    return JudgeState(*(np.stack(x) for x in zip(*kept, strict=True)))


class _Model(NamedTuple):
    answer: FloatArray
    """Shape (C, 1), or (C, K) if chains saw different answers."""
    ratings: Any
    """Sparse, shape (C, n)."""
    judge: IntArray
    member: Any
    """Sparse, shape (J, C): 1 for the judge of each answer."""
    ordered: bool
    tied: bool
    precision: FloatArray
    mean: FloatArray
    squares: FloatArray
    """Sum of outer products of each judge's rows of `ratings`, shape (J, n, n)."""


def _model(answers: Answers, judges: int, prior: Prior) -> _Model:
    design, p = answers.design, len(prior.mean)
    judge = np.zeros(design.shape[0], np.int64) if answers.judge is None else answers.judge
    ordered = design.nnz == 3 * design.shape[0]
    ratings = design[:, : p - ordered].tocsr()
    shape = (judges, len(judge))
    member = sparse.csr_array((np.ones(len(judge)), (judge, np.arange(len(judge)))), shape=shape)
    answer = answers.by_chain
    # Sum of the outer products of the sparse rows, by judge.
    where, value = ratings.indices.reshape(-1, 2), ratings.data.reshape(-1, 2)
    squares = np.zeros((judges, p - ordered, p - ordered))
    cells = (judge[:, None, None], where[:, :, None], where[:, None, :])
    np.add.at(squares, cells, value[:, :, None] * value[:, None, :])
    precision = inverse_of(prior.covariance).inverse
    tied = bool((answer == 0).any())
    return _Model(answer, ratings, judge, member, ordered, tied, precision, prior.mean, squares)


def _sweep(
    model: _Model, state: JudgeState, steps: FloatArray, rng: np.random.Generator
) -> tuple[JudgeState, FloatArray]:
    """Draw each block given the rest; also return the mean acceptance of each random walk."""
    difference: FloatArray = model.ratings @ state.parameters[: model.ratings.shape[1]]
    shares = np.full(4, _ACCEPTANCE)
    state, shares[0] = _move_accuracy(model, difference, state, steps[0], rng)
    if model.tied:
        state, shares[1] = _move_tie(model, difference, state, steps[1], rng)
    low, high = _bounds(model, state)
    shown = _shown(model, difference, state)
    state = _draw_parameters(
        model, state, shown + draw_between(low - shown, high - shown, rng), rng
    )
    for _ in range(_MOVES):
        state, shares[2] = _move_spread(state, steps[2], rng)
        state, shares[3] = _move_scale(model, state, steps[3], rng)
    return state, shares


def _move_accuracy(
    model: _Model,
    difference: FloatArray,
    state: JudgeState,
    step: float,
    rng: np.random.Generator,
) -> tuple[JudgeState, float]:
    """Metropolis step of each judge's log accuracy."""
    g, spread = state.log_accuracy, np.exp(state.log_spread)
    there = g + step * rng.normal(size=g.shape)
    proposed = state._replace(log_accuracy=there)
    change = _log_likelihoods(model, difference, proposed) - _log_likelihoods(
        model, difference, state
    )
    gain: FloatArray = model.member @ change
    gain = gain - 0.5 * (there * there - g * g) / (spread * spread)
    accepted, share = _accepted(gain, rng)
    return state._replace(log_accuracy=np.where(accepted, there, g)), share


def _move_tie(
    model: _Model,
    difference: FloatArray,
    state: JudgeState,
    step: float,
    rng: np.random.Generator,
) -> tuple[JudgeState, float]:
    """Metropolis step of log δ."""
    t = state.log_tie
    there = t + step * rng.normal(size=t.shape)
    proposed = state._replace(log_tie=there)
    gain = (
        _log_likelihoods(model, difference, proposed) - _log_likelihoods(model, difference, state)
    ).sum(axis=0)
    gain = gain + there - t - 0.5 * (np.exp(2 * there) - np.exp(2 * t))
    accepted, share = _accepted(gain, rng)
    return state._replace(log_tie=np.where(accepted, there, t)), share


def _draw_parameters(
    model: _Model, state: JudgeState, z: FloatArray, rng: np.random.Generator
) -> JudgeState:
    """Draw ratings and position effect given the noisy differences."""
    accuracy, n = np.exp(state.log_accuracy), model.ratings.shape[1]
    k = z.shape[1]
    held = np.broadcast_to(model.precision, (k, *model.precision.shape)).copy()
    held[:, :n, :n] += np.tensordot(accuracy.T**2, model.squares, axes=1)
    weight = accuracy[model.judge]
    pull = np.broadcast_to((model.precision @ model.mean)[:, None], (len(model.mean), k)).copy()
    pull[:n] += model.ratings.T @ (weight * z)
    if model.ordered:
        cross: FloatArray = (model.ratings.T @ weight).T
        held[:, :n, n] += cross
        held[:, n, :n] += cross
        held[:, n, n] += len(z)
        pull[n] += z.sum(axis=0)
    factor = np.linalg.cholesky(held)
    half = np.linalg.solve(factor, pull.T[..., None]) + rng.normal(size=(k, len(pull), 1))
    drawn = np.linalg.solve(factor.swapaxes(1, 2), half)[..., 0].T
    return state._replace(parameters=drawn.astype(np.float64))


def _move_spread(
    state: JudgeState, step: float, rng: np.random.Generator
) -> tuple[JudgeState, float]:
    """Metropolis step of log τ given the accuracies."""
    t, g = state.log_spread, state.log_accuracy
    square, there = (g * g).sum(axis=0), t + step * rng.normal(size=t.shape)

    def log_density(x: FloatArray) -> FloatArray:
        return (1 - len(g)) * x - 0.5 * (square * np.exp(-2 * x) + np.exp(2 * x))

    accepted, share = _accepted(log_density(there) - log_density(t), rng)
    return state._replace(log_spread=np.where(accepted, there, t)), share


def _move_scale(
    model: _Model, state: JudgeState, step: float, rng: np.random.Generator
) -> tuple[JudgeState, float]:
    """Scale all ratings up and all accuracies down, which changes no answer's probability."""
    n, x, g = model.ratings.shape[1], state.parameters, state.log_accuracy
    spread = np.exp(state.log_spread)
    log_c = step * rng.normal(size=spread.shape)
    moved, lower = x.copy(), g - log_c
    moved[:n] *= np.exp(log_c)
    before, after = x - model.mean[:, None], moved - model.mean[:, None]
    gain = n * log_c - 0.5 * (lower * lower - g * g).sum(axis=0) / (spread * spread)
    away = after * (model.precision @ after) - before * (model.precision @ before)
    accepted, share = _accepted(gain - 0.5 * away.sum(axis=0), rng)
    return state._replace(
        parameters=np.where(accepted, moved, x), log_accuracy=np.where(accepted, lower, g)
    ), share


def _accepted(gain: FloatArray, rng: np.random.Generator) -> tuple[NDArray[np.bool_], float]:
    """Metropolis acceptance of each move, and the mean acceptance probability."""
    share = float(np.exp(np.minimum(gain, 0)).mean())
    return gain > -rng.exponential(size=gain.shape), share


def _log_likelihoods(model: _Model, difference: FloatArray, state: JudgeState) -> FloatArray:
    """Log-likelihood of each answer with the noisy differences integrated out, shape (C, K)."""
    low, high = _bounds(model, state)
    shown = _shown(model, difference, state)
    return log_probability(low - shown, high - shown)


def _bounds(model: _Model, state: JudgeState) -> tuple[FloatArray, FloatArray]:
    return bounds(model.answer, np.exp(state.log_tie) if model.tied else 0.0)


def _shown(model: _Model, difference: FloatArray, state: JudgeState) -> FloatArray:
    shown = np.exp(state.log_accuracy)[model.judge] * difference
    return shown + state.parameters[-1] if model.ordered else shown
