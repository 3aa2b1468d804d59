"""Plackett–Luce model of rankings by maximum likelihood.

A ranking is a sequence of choices: the next player is chosen with probability proportional to
e^rating among those who are left [Pla75]_. For two players this is Bradley–Terry.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError, check_known, counted, few
from evalstats_plugin.ranking.contests.contests import components_of, names_of
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.ratings.likelihood import WEAK_SD, inverse
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.newton import Maximum, newton

COVARIANCES = ("model", "sandwich")
_MAX_STEPS, _TOLERANCE = 200, 1e-12


def fit_plackett_luce(
    rankings: Sequence[Sequence[int]],
    players: Sequence[str] | int | None = None,
    *,
    depth: int | None = None,
    covariance: str = "sandwich",
    prior_sd: float | None = None,
) -> RankingFit:
    """Fit Plackett–Luce ratings to rankings by maximum likelihood [Hun04]_.

    Parameters
    ----------
    rankings
        Indices into ``players``, best first; of any lengths.
    players
        Names, or the number of players (default: as many as appear).
    depth
        How many ranks count: with 1, the first of each ranking was chosen among all of it, and the
        others are in no order. Default: all.
    covariance
        ``"model"``, or ``"sandwich"`` with rankings as independent units; the model's if some
        players are always ranked before all others, so that rankings hardly vary.
    prior_sd
        Standard deviation of a normal prior of the ratings; None is maximum likelihood, with a weak
        prior and a note if some players are always ranked before all others.

    Returns
    -------
    Ratings with mean 0, in logits.

    Raises
    ------
    SelectionError
        No such covariance.
    DesignError
        Nothing to rank; a player twice in a ranking or not in the list; players who are never
        ranked, or groups that never meet; a depth or a standard deviation that is not above 0.

    Examples
    --------
    >>> fit = fit_plackett_luce([[0, 1, 2], [0, 1, 2], [1, 0, 2], [2, 0, 1]], ["ant", "bee", "cat"])
    >>> print(fit.rating.round(2))
    [ 0.87  0.13 -1.  ]
    """
    check_known("covariance", covariance, COVARIANCES)
    for name, value in (("depth", depth), ("prior_sd", prior_sd)):
        if value is not None and not value > 0:
            raise DesignError(f"{name} is {value}: give a number above 0")
    at = np.array([place for ranking in rankings for place in ranking], dtype=np.int64)
    names = names_of(players, int(at.max(initial=-1)))
    n = len(names)
    stages = _stages(at, np.array(list(map(len, rankings)), dtype=np.int64), n, depth)
    notes: list[str] = []
    stage, left = np.nonzero(stages.among)
    if prior_sd is None:
        part = components_of(stages.chosen[stage], left, n, directed=False)
        if part.any():
            largest = np.bincount(part).argmax()
            others = [names[int(k)] for k in np.flatnonzero(part != largest)]
            msg = f"no ranking connects these players with the rest: {few(others)}. Leave them out"
            raise DesignError(msg)
    # One group always precedes another.
    if components_of(stages.chosen[stage], left, n, directed=True).any():
        covariance = "model"
        if prior_sd is None:
            prior_sd = WEAK_SD
            notes.append(
                "some players are always ranked before all others: a normal prior with standard "
                f"deviation {WEAK_SD:g} keeps ratings finite"
            )
    precision = 0.0 if prior_sd is None else prior_sd**-2
    optimum = _maximise(stages, n, precision)
    if optimum.convergence.why:
        notes.append(f"the fit {optimum.convergence.why}")
    rating, p = optimum.parameters - optimum.parameters.mean(), optimum.at.p
    information = _information(p, precision)
    middle = bread = inverse(information, n)
    if covariance == "sandwich":
        of_stage = (np.ones(len(p)), (stages.ranking, np.arange(len(p))))
        scores = sparse.csr_array(of_stage) @ _residuals(stages, p)
        middle = bread @ (scores.T @ scores + precision * np.eye(n)) @ bread
    return RankingFit(
        model="plackett-luce",
        estimator="ml" if prior_sd is None else "laplace",
        players=names,
        rating=rating,
        covariance=middle,
        log_likelihood=_choices(stages, 0.0, rating).value,
        diagnostics={
            "covariance": covariance,
            "iterations": optimum.convergence.steps,
            "converged": bool(optimum.convergence.converged),
            "n_rankings": len(rankings),
        },
        notes=tuple(notes),
    )


class _Stages(NamedTuple):
    """Choices of the next player: S stages among n players."""

    among: FloatArray
    """1 for the players who are left, shape (S, n)."""
    chosen: IntArray
    """Player chosen, shape (S,)."""
    ranking: IntArray
    """Ranking of each stage, shape (S,)."""


def _stages(at: IntArray, length: IntArray, n: int, depth: int | None) -> _Stages:
    """Split rankings, one after another, into choices; the last player of each is not a choice."""
    if not (length > 1).any():
        raise DesignError("no ranking has two players: give at least one that has")
    if (at < 0).any() or (at >= n).any():
        msg = f"a ranking has an index outside the list of {counted(n, 'player')}: use 0 to {n - 1}"
        raise DesignError(msg)
    of = np.repeat(np.arange(len(length)), length)
    if len(np.unique(of * n + at)) < len(at):
        raise DesignError("a ranking has a player twice: list each once")
    rank = np.arange(len(at)) - np.repeat(np.cumsum(length) - length, length)
    ranks = np.full((len(length), n), -1)
    ranks[of, at] = rank
    counts = rank < np.minimum(length[of] - 1, length.max() if depth is None else depth)
    among = ranks[of[counts]] >= rank[counts][:, None]
    return _Stages(among.astype(np.float64), at[counts], of[counts])


class _Choices(NamedTuple):
    """Log-likelihood, or log posterior, and the probability of each player's choice (S, n)."""

    value: float
    p: FloatArray


def _choices(stages: _Stages, precision: float, rating: FloatArray) -> _Choices:
    left = np.where(stages.among > 0, rating, -np.inf)
    best = left.max(axis=1)
    weight = np.exp(left - best[:, None])
    total = weight.sum(axis=1)
    value = (rating[stages.chosen] - best - np.log(total)).sum()
    return _Choices(float(value - precision * rating @ rating / 2), weight / total[:, None])


def _maximise(stages: _Stages, n: int, precision: float) -> Maximum[_Choices]:
    def direction(rating: FloatArray, at: _Choices) -> tuple[FloatArray, float]:
        gradient: FloatArray = _residuals(stages, at.p).sum(axis=0) - precision * rating
        step = inverse(_information(at.p, precision), n) @ gradient
        return step, float(gradient @ step)

    return newton(
        np.zeros(n), partial(_choices, stages, precision), direction,
        tolerance=_TOLERANCE, max_steps=_MAX_STEPS,
    )  # fmt: skip


def _residuals(stages: _Stages, p: FloatArray) -> FloatArray:
    """Score of each stage in the ratings, shape (S, n)."""
    out = -p
    out[np.arange(len(out)), stages.chosen] += 1
    return out


def _information(p: FloatArray, precision: float) -> FloatArray:
    return np.diag(p.sum(axis=0) + precision) - p.T @ p
