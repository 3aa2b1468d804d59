"""Thurstone's model: P(i beats j) = Φ(s_i - s_j), with a normal prior on the ratings s [Thu27]_."""

from __future__ import annotations

from time import perf_counter
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests import Contests
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.skew_normal import SkewNormal
from evalstats_plugin.ranking.thurstone_design import (
    Ties,
    answers_of,
    prior_of,
    sites_of,
    without_empty,
)
from evalstats_plugin.ranking.thurstone_estimators import ESTIMATORS, Fitted, Problem
from evalstats_plugin.ranking.thurstone_state import EPState
from evalstats_plugin.wording import no_such

__all__ = ["EPState", "Estimator", "fit_thurstone"]

Estimator = Literal["auto", "exact", "gibbs", "hmc", "ep", "laplace"]
# Answers up to which exact draws are taken, and the share of proposals that must be accepted.
_EXACT, _ACCEPTED = 100, 0.1
# Pairs of players up to which the posterior is drawn from: about 20 seconds.
_DRAWN = 10_000


def fit_thurstone(
    contests: Contests,
    *,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike = 1.0,
    estimator: Estimator = "auto",
    ties: Ties = "threshold",
    draws: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> RankingFit:
    """Fit Thurstone's model to contests: the posterior of the ratings.

    Parameters
    ----------
    contests
        Where these are ordered, standing first may be an advantage, with prior N(0, 1). None at
        all give the prior.
    prior_mean : a number, or shape (n,)
    prior_covariance
        A variance, n variances, or shape (n, n); in squares of the noise of one answer.
    estimator
        ``"exact"``: independent draws of the unified skew-normal posterior, for some hundred
        answers at most. ``"hmc"`` and ``"gibbs"``: Markov chains for more, of which the second
        takes long where some players nearly always win. ``"ep"`` and ``"laplace"``: normal
        approximations, the first much closer: means within .05 standard deviations, and errors of
        players who nearly always win up to an eighth too small. ``"auto"`` chooses, and says why.
    ties
        ``"threshold"``: differences below some δ are ties [GD60]_; δ is drawn with the ratings by
        Markov chains, and otherwise that of the largest evidence. ``"half"``: half a win and half a
        loss, not by `exact` and `gibbs`. ``"drop"``: as though there were none.
    draws
        How many, default 4,000 where the posterior is drawn from; normal ones for `ep` and
        `laplace`, which draw none by default.

    Raises
    ------
    SelectionError
        No such estimator, or way with ties.
    DesignError
        A prior that is none, or answers that the estimator cannot take.
    """
    _named("estimator", estimator, get_args(Estimator))
    _named("way with ties", ties, get_args(Ties))
    if draws is not None and draws < 1:
        msg = f"draws={draws} found, expected at least 1"
        raise DesignError(msg)
    started = perf_counter()
    if len(contests):
        contests.check()
    told = without_empty(contests, ties)
    prior = prior_of(prior_mean, prior_covariance, len(contests.players), ordered=contests.ordered)
    sites = sites_of(told, ties)
    problem = Problem(told, prior, sites, ties, draws, np.random.default_rng(rng))
    reason = "asked for"
    if estimator == "auto":
        estimator, reason = _choose(problem)
    found = ESTIMATORS[estimator](problem)
    found.diagnostics.update(reason=reason, seconds=perf_counter() - started)
    return _result(problem, estimator, found)


def _named(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise SelectionError(no_such(what, name, known, ", ".join(known)))


def _choose(problem: Problem) -> tuple[Estimator, str]:
    """Exact draws while they come easily, chains while they take seconds, then a normal."""
    contests, pairs = problem.contests, len(problem.sites.wins)
    count, tied = contests.weight.sum(), bool(problem.sites.ties.any())
    whole = (contests.weight == np.round(contests.weight)).all()
    whole &= bool(np.isin(contests.outcome, (0.0, 1.0)).all())
    if count <= _EXACT and whole and not tied:
        share = SkewNormal.of(answers_of(contests), problem.prior, 0.0).acceptance(problem.rng)
        if share >= _ACCEPTED:
            return "exact", f"{count:.0f} answers: {share:.0%} of exact proposals are accepted"
    if pairs <= _DRAWN:
        return "hmc", f"{pairs} pairs of players, at most {_DRAWN} are drawn from"
    return "ep", f"{pairs} pairs of players, more than the {_DRAWN} that are drawn from"


def _result(problem: Problem, estimator: str, found: Fitted) -> RankingFit:
    contests, n = problem.contests, len(problem.contests.players)
    parameters: dict[str, float] = {}
    errors: dict[str, float] = {}
    if contests.ordered:
        parameters["position"] = float(found.mean[n])
        errors["position"] = float(found.covariance[n, n] ** 0.5)
    if problem.sites.ties.any():
        parameters["tie"], errors["tie"] = found.tie
    fitted = problem.sites.design @ found.mean
    log_likelihood = problem.sites.log_likelihood(fitted, found.tie.value).sum()
    return RankingFit(
        model="thurstone",
        estimator=estimator,
        players=contests.players,
        rating=found.mean[:n],
        covariance=found.covariance[:n, :n],
        draws=None if found.draws is None else found.draws[:, :n],
        parameters=parameters,
        parameter_std_errors=errors,
        log_likelihood=float(log_likelihood),
        diagnostics=found.diagnostics | {"n_contests": float(contests.weight.sum())},
        notes=found.notes + _never_compared(contests),
    )


def _never_compared(contests: Contests) -> tuple[str, ...]:
    if not len(contests):
        return ("no comparisons: the ratings are the prior",)
    apart = contests.apart()
    return (f"how these stand to each other rests on the prior alone: {apart}",) if apart else ()
