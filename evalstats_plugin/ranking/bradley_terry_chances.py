"""What a fitted Bradley–Terry model expects of contests: wins, ties and losses of the first."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests import Contests, FloatArray, IntArray
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.judges import names_of_judges
from evalstats_plugin.ranking.ties import TieModel, check_ties, probabilities, weights_of
from evalstats_plugin.wording import few


def chances(fit: RankingFit, contests: Contests) -> FloatArray:
    """P(the first wins), P(tie) and P(it loses), shape (C, 3), at the estimates.

    An advantage of place, features and judges count where the fit has them; a judge who was not
    among those fitted is an average one.

    Raises
    ------
    DesignError
        A player, or a feature, is not among those of the other.
    """
    place = _places(fit.players, contests.players)
    seen = np.union1d(contests.first, contests.second)
    strange = seen[place[seen] < 0]
    if len(strange):
        names = [contests.players[int(k)] for k in strange]
        msg = f"players found that were not fitted: {few(names)}"
        raise DesignError(msg)
    rating = fit.rating[place]
    x = rating[contests.first] - rating[contests.second]
    x = x * np.exp(_effect(fit, contests, "discrimination"))
    x = x + _effect(fit, contests, "position")
    tie = np.full(len(x), fit.parameters.get("tie", 0.0))
    ties = check_ties(cast(str, fit.diagnostics["ties"]))
    moved = _effect(fit, contests, "tie")
    tie = tie * np.exp(moved) if ties == "rao-kupper" else tie + moved
    for name, value in fit.parameters.items():
        if name == "position":
            x = x + value
        elif name != "tie":
            x = x + value * _feature(contests, name)
    return probabilities(ties, x, tie)


def log_loss(fit: RankingFit, contests: Contests) -> float:
    """Mean log loss of what came of the contests, by weight; a share counts in part for each."""
    ties: TieModel = check_ties(cast(str, fit.diagnostics["ties"]))
    kept = contests.take(~contests.tied) if ties == "drop" else contests
    p = np.maximum(chances(fit, kept), 1e-300)
    weights = np.stack(weights_of(ties, kept.outcome, kept.weight), axis=-1)
    return float(-(weights * np.log(p)).sum() / kept.weight.sum())


def _places(known: tuple[str, ...], names: tuple[str, ...]) -> IntArray:
    at = {name: k for k, name in enumerate(known)}
    return np.array([at.get(name, -1) for name in names], dtype=np.int64)


def _effect(fit: RankingFit, contests: Contests, name: str) -> FloatArray:
    """Each contest's judge's effect; 0 where there is none."""
    effects: dict[str, Any] = fit.diagnostics.get("judge_effects", {})
    if name not in effects or contests.judge is None:
        return np.zeros(len(contests))
    _, of = np.unique(contests.judge, return_inverse=True)
    at = _places(fit.diagnostics["judges"], names_of_judges(contests))
    theirs = np.where(at >= 0, effects[name][at], 0.0)
    return theirs[of]


def _feature(contests: Contests, name: str) -> FloatArray:
    if name not in contests.feature_names or contests.features is None:
        msg = f"feature {name!r}, which the fit has, not found in the comparisons"
        raise DesignError(msg)
    return contests.features[:, contests.feature_names.index(name)]
