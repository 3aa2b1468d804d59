"""Plackett–Luce model of rankings by maximum likelihood.

A ranking is a sequence of choices: the next player is chosen with probability proportional to
e^rating among those who are left [Pla75]_. For two players this is Bradley–Terry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.ratings.likelihood import WEAK_SD, inverse
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_MAX_STEPS, _TOLERANCE = 200, 1e-12
_LONGEST = 3.0
"""Largest change of a rating in one step, in logits."""


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
        ``"model"``, or ``"sandwich"`` with rankings as independent units.
    prior_sd
        Standard deviation of a normal prior of the ratings; None is maximum likelihood, with a weak
        prior and a note if some players are always ranked before all others.

    Returns
    -------
    Ratings with mean 0, in logits.

    Raises
    ------
    DesignError
        Nothing to rank; a player twice in a ranking or not in the list; players who are never
        ranked, or groups that never meet.

    Examples
    --------
    >>> fit = fit_plackett_luce([[0, 1, 2], [0, 1, 2], [1, 0, 2], [2, 0, 1]], ["ant", "bee", "cat"])
    >>> print(fit.rating.round(2))
    [ 0.87  0.13 -1.  ]
    """
    n, names = _players(rankings, players)
    stages = _stages(rankings, n, depth)
    notes: list[str] = []
    if prior_sd is None:
        connected, ordered = _components(stages, n)
        _check_connected(connected, names)
        if ordered:
            prior_sd = WEAK_SD
            notes.append(
                "some players are always ranked before all others: a normal prior with standard "
                f"deviation {WEAK_SD:g} keeps ratings finite"
            )
    precision = 0.0 if prior_sd is None else prior_sd**-2
    rating, iterations = _maximise(stages, n, precision)
    p = _probabilities(stages, rating)
    information = _information(p, precision)
    middle = bread = inverse(information, n)
    if covariance == "sandwich":
        scores = _by_ranking(stages, _residuals(stages, p))
        middle = bread @ (scores.T @ scores + precision * np.eye(n)) @ bread
    return RankingFit(
        model="plackett-luce",
        estimator="ml" if prior_sd is None else "laplace",
        players=names,
        rating=rating,
        covariance=middle,
        log_likelihood=plackett_luce_log_likelihood(rankings, rating, depth=depth),
        diagnostics={"covariance": covariance, "iterations": iterations,
                     "converged": iterations < _MAX_STEPS, "n_rankings": len(rankings)},
        notes=tuple(notes),
    )  # fmt: skip


def plackett_luce_log_likelihood(
    rankings: Sequence[Sequence[int]], rating: FloatArray, *, depth: int | None = None
) -> float:
    """Log-likelihood of rankings at ratings of shape (n,).

    >>> round(plackett_luce_log_likelihood([[2, 0, 1]], np.zeros(3)), 6)
    -1.791759
    """
    stages = _stages(rankings, len(rating), depth)
    return float(_value(stages, np.asarray(rating, dtype=np.float64)))


def _players(
    rankings: Sequence[Sequence[int]], players: Sequence[str] | int | None
) -> tuple[int, tuple[str, ...]]:
    if players is None:
        players = max((max(ranking, default=-1) for ranking in rankings), default=-1) + 1
    if isinstance(players, int):
        players = [f"player_{k}" for k in range(players)]
    return len(players), tuple(players)


class _Stages(NamedTuple):
    """Choices of the next player: S stages among n players."""

    among: FloatArray
    """1 for the players who are left, shape (S, n)."""
    chosen: IntArray
    """Player chosen, shape (S,)."""
    ranking: IntArray
    """Ranking of each stage, shape (S,)."""


def _stages(rankings: Sequence[Sequence[int]], n: int, depth: int | None) -> _Stages:
    """Split rankings into choices; the last player of each is not a choice."""
    length = np.array([len(ranking) for ranking in rankings], dtype=np.int64)
    if not (length > 1).any():
        msg = "no ranking of two players or more found, expected at least one"
        raise DesignError(msg)
    at = np.array([place for ranking in rankings for place in ranking], dtype=np.int64)
    if (at < 0).any() or (at >= n).any():
        msg = f"a place outside the list of {n} players found in a ranking"
        raise DesignError(msg)
    of = np.repeat(np.arange(len(length)), length)
    if len(np.unique(of * n + at)) < len(at):
        msg = "a player found twice in one ranking, expected each once"
        raise DesignError(msg)
    rank = np.arange(len(at)) - np.repeat(np.cumsum(length) - length, length)
    ranks = np.full((len(length), n), -1)
    ranks[of, at] = rank
    counts = rank < np.minimum(length[of] - 1, length.max() if depth is None else depth)
    among = ranks[of[counts]] >= rank[counts][:, None]
    return _Stages(among.astype(np.float64), at[counts], of[counts])


def _components(stages: _Stages, n: int) -> tuple[IntArray, bool]:
    """Connected component of each player, and whether one group always precedes another."""
    picked = sparse.csr_array(
        (np.ones(len(stages.chosen)), (stages.chosen, np.arange(len(stages.chosen)))),
        shape=(n, len(stages.chosen)),
    )
    beat = sparse.csr_array(picked @ stages.among)
    connected = csgraph.connected_components(beat, directed=False)[1].astype(np.int64)
    strong = csgraph.connected_components(beat, directed=True, connection="strong")[0]
    return connected, bool(strong > 1)


def _check_connected(part: IntArray, names: tuple[str, ...]) -> None:
    if part.max() == 0:
        return
    largest = np.bincount(part).argmax()
    apart = [names[int(k)] for k in np.flatnonzero(part != largest)]
    msg = f"ratings need rankings that connect all players; found apart from the rest: {few(apart)}"
    raise DesignError(msg)


def _maximise(stages: _Stages, n: int, precision: float) -> tuple[FloatArray, int]:
    """Newton's method with step halving: ratings with mean 0, and the number of iterations."""
    rating: FloatArray = np.zeros(n)
    iterations = 0
    for _ in range(_MAX_STEPS):
        iterations += 1
        p = _probabilities(stages, rating)
        gradient: FloatArray = _residuals(stages, p).sum(axis=0) - precision * rating
        information = _information(p, precision)
        regular: FloatArray = information + np.trace(information) / n**2
        solved: Any = np.linalg.solve(regular, gradient)
        step: FloatArray = solved * min(1, _LONGEST / np.abs(solved).max(initial=1e-300))
        before = _value(stages, rating) - precision * rating @ rating / 2
        for _ in range(40):
            tried = rating + step
            if _value(stages, tried) - precision * tried @ tried / 2 >= before - 1e-9:
                break
            step = step / 2
        rating = np.asarray(rating + step, dtype=np.float64)
        if gradient @ step < _TOLERANCE:
            break
    return rating - rating.mean(), iterations


def _value(stages: _Stages, rating: FloatArray) -> float:
    """Log-likelihood."""
    left, top = _left(stages, rating)
    return float((rating[stages.chosen] - top - np.log(left.sum(axis=1))).sum())


def _probabilities(stages: _Stages, rating: FloatArray) -> FloatArray:
    """Probability of each player to be chosen next, shape (S, n)."""
    weight = _left(stages, rating)[0]
    return weight / weight.sum(axis=1, keepdims=True)


def _left(stages: _Stages, rating: FloatArray) -> tuple[FloatArray, FloatArray]:
    """e^(rating - best) of the players who are left, shape (S, n); and the best rating (S,)."""
    left = np.where(stages.among > 0, rating, -np.inf)
    best = left.max(axis=1)
    return np.exp(left - best[:, None]), best


def _residuals(stages: _Stages, p: FloatArray) -> FloatArray:
    """Score of each stage in the ratings, shape (S, n)."""
    out = -p
    out[np.arange(len(out)), stages.chosen] += 1
    return out


def _information(p: FloatArray, precision: float) -> FloatArray:
    return np.diag(p.sum(axis=0) + precision) - p.T @ p


def _by_ranking(stages: _Stages, scores: FloatArray) -> FloatArray:
    """Sum scores of the stages of each ranking."""
    stage = np.arange(len(scores))
    gather: Any = sparse.csr_array((np.ones(len(scores)), (stages.ranking, stage)))
    return gather @ scores
