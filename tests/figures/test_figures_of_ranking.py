"""Figures of ratings: each estimator, its covariances, ties and features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from figures import Run, changed
from small_evaluations import evaluation

import evalstats_plugin as es
from evalstats_plugin import ranking
from evalstats_plugin.ranking import (
    Contests,
    MlOptions,
    fit_bradley_terry,
    fit_plackett_luce,
)
from evalstats_plugin.ranking.ratings.fit import (
    RankingFit,
    log_prob_order,
    order_entropy,
    prob_better,
    rank_distribution,
    ranks_of,
    significantly_better,
)


@cache
def contests(ties: float = 0.2, *, judged: bool = False, n: int = 120) -> Contests:
    """Five players; the first shown has an advantage, and some outcomes are ties."""
    rng = np.random.default_rng(7)
    strength = np.array([0.0, 0.3, 0.6, 0.9, 1.4])
    pairs = np.array([rng.permutation(5)[:2] for _ in range(n)])
    lead = strength[pairs[:, 0]] - strength[pairs[:, 1]] + 0.3
    outcome = 1.0 * (rng.random(n) < 1 / (1 + np.exp(-lead)))
    outcome[rng.random(n) < ties] = 0.5
    more: dict[str, Any] = {}
    if judged:
        more = {"judge": rng.integers(0, 6, n), "judges": tuple("uvwxyz"),
                "cluster": np.arange(n) // 3, "clusters": tuple(map(str, range(n // 3))),
                "features": rng.normal(size=(n, 1)), "feature_names": ("length",)}  # fmt: skip
    return Contests(
        players=tuple("abcde"), first=pairs[:, 0], second=pairs[:, 1], outcome=outcome,
        weight=np.ones(n), ordered=True, **more,
    )  # fmt: skip


@cache
def unbeaten(n: int = 120) -> Contests:
    """The same with a sixth player, who wins each contest, and a seventh, who loses each."""
    some = contests(judged=True, n=n)
    rng = np.random.default_rng(3)
    first, second, outcome = some.first.copy(), some.second.copy(), some.outcome.copy()
    alone = np.flatnonzero(np.arange(n) % 6 == 0)
    first[alone], second[alone] = 5 + np.arange(len(alone)) % 2, rng.integers(0, 5, len(alone))
    outcome[alone] = 1.0 * (first[alone] == 5)
    return replace(some, players=tuple("abcdefg"), first=first, second=second, outcome=outcome)


def _rank(estimator: str, options: Any = None, ties: float = 0.2, **more: Any) -> Run:
    return partial(es.rank, contests(ties), model="bradley-terry", estimator=estimator, rng=0,
                   options=options, **more)  # fmt: skip


def _rankings() -> list[list[int]]:
    rng = np.random.default_rng(2)
    strength = np.array([0.0, 0.3, 0.6, 0.9, 1.4])
    return [np.argsort(-(strength + rng.gumbel(size=5))).tolist() for _ in range(30)]


def _of_draws(rng: np.random.Generator) -> dict[str, Any]:
    """Of normal draws, some of them equal, what they say of the order."""
    root = rng.normal(size=(4, 4))
    covariance, rating = root @ root.T / 9, np.array([0.0, 0.4, 0.5, 2.5])
    draws = np.round(rating + rng.normal(size=(60, 4)) @ root.T / 3, 1)
    labels = np.array([0, 3, 4, 5, 3, 0, 4, 5, 4, 4, 1, 6, 5, 5, 6, 2]).reshape(4, 4)
    drawn = RankingFit(
        model="bradley-terry", estimator="ep", players=tuple("abcd"), rating=rating,
        covariance=covariance, draws=draws, labels=labels,
    )  # fmt: skip
    centred = drawn.centred()
    orders = np.argsort(-draws[:5], axis=1)
    return {
        "ranks": rank_distribution(ranks_of(draws)), "ahead": prob_better(draws),
        "centred": [centred.rating, centred.covariance, centred.draws, centred.std_error],
        "found": [significantly_better(rating, covariance, draws - rating, confidence_level=level)
                  for level in (0.2, 0.5, 0.9)],
        "orders": [log_prob_order(rating, covariance, orders, rng=rng, n_particles=n, drawn=given)
                   for n in (1, 40) for given in (None, draws[:5])],
    }  # fmt: skip


def _fit(how: Any, *arguments: Any, **options: Any) -> Run:
    def run() -> Any:
        fit = how(*arguments, **options)
        names = ("rating", "covariance", "log_likelihood", "parameters", "parameter_covariance",
                 "std_error", "n_contests", "ties", "position", "features", "judges")  # fmt: skip
        return {name: getattr(fit, name, None) for name in names}

    return run


RUNS: Mapping[str, Mapping[str, Run]] = {
    "ratings": {
        "ml": _rank("ml"),
        "davidson": _rank("ml", MlOptions(ties="davidson")),
        "rao-kupper": _rank("ml", MlOptions(ties="rao-kupper")),
        "position": _rank("ml", MlOptions(position=True, prior_sd=1.0), confidence_level=0.9),
        "elo": _rank("ml", scale="elo"),
        "no ties": _rank("ml", ties=0.0),
        "of scores": partial(es.rank, list(evaluation("binary")), rng=0),
    },
    "covariances": {
        f"{kind}": _fit(fit_bradley_terry, contests(judged=True), covariance=kind,
                        position=True, features=("length",))
        for kind in ("auto", "model", "sandwich", "cluster", "judge")
    } | {
        f"{ties} {kind}": _fit(fit_bradley_terry, contests(judged=True), covariance=kind,
                               ties=ties, prior_sd=sd)
        for ties in ("davidson", "rao-kupper")
        for kind, sd in (("model", None), ("sandwich", 2.0), ("cluster", 2.0))
    },
    "unbeaten": {
        f"{kind} {ties} {n}": _fit(fit_bradley_terry, unbeaten(n), covariance=kind, ties=ties,
                                   position=n == 120)
        for kind in ("auto", "model", "sandwich", "cluster", "judge")
        for ties, n in ((None, 120), ("davidson", 120), ("rao-kupper", 120), (None, 900))
    },
    "many contests": {
        f"{kind} {ties}": _fit(fit_bradley_terry, contests(judged=True, n=n), covariance=kind,
                               ties=ties, features=("length",))
        for n in (2400,) for kind in ("sandwich", "cluster") for ties in (None, "davidson")
    },
    "one cluster": {
        kind: _fit(fit_bradley_terry, replace(contests(judged=True), cluster=np.zeros(120, int),
                                              clusters=("all",)), covariance=kind)
        for kind in ("auto", "sandwich")
    },
    "with no ties or nothing else": {
        f"{model} {share} {kind}": _fit(fit_bradley_terry, contests(share, judged=True),
                                        covariance=kind, ties=model)
        for model in ("davidson", "rao-kupper") for share in (0.0, 1.0)
        for kind in ("model", "sandwich")
    },
    "draws": {
        "all": lambda: _of_draws(np.random.default_rng(6)),
        **{f"entropy of {n}": lambda n=n: order_entropy(
            np.linspace(0, 1, n), 0.2 * np.eye(n) + 0.05, rng=np.random.default_rng(n))
           for n in (1, 2, 4, 12)},
    },
    "profiles": {
        f"{player} {ties} {position}": partial(
            ranking.profile_interval, contests(), player, ties=ties, position=position)
        for player in ("a", "e") for ties in (None, "davidson") for position in (False, True)
    },
    "orders": {
        f"{depth} {covariance} {sd}": _fit(fit_plackett_luce, _rankings(), depth=depth,
                                           covariance=covariance, prior_sd=sd)
        for depth in (None, 1, 2) for covariance in ("sandwich", "model") for sd in (None, 1.0)
    },
    "uneven orders": {
        f"{covariance} {sd}": _fit(fit_plackett_luce, [r[: 2 + k % 4] for k, r in enumerate(
            _rankings())], covariance=covariance, prior_sd=sd)
        for covariance in ("sandwich", "model") for sd in (None, 0.5)
    } | {
        "always before": _fit(fit_plackett_luce, [[0, 1, 2], [0, 2, 1], [0, 1], [0, 2]]),
    },
    "leaderboards": {
        "anchored": partial(ranking.leaderboard, contests(), anchor="a", anchor_rating=1000.0,
                            rng=0),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("ranking", run, RUNS[run]) == []
