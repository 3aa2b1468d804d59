"""Figures of ratings: each estimator, its covariances, ties and features."""

from __future__ import annotations

from collections.abc import Mapping
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


def _rank(estimator: str, options: Any = None, ties: float = 0.2, **more: Any) -> Run:
    return partial(es.rank, contests(ties), model="bradley-terry", estimator=estimator, rng=0,
                   options=options, **more)  # fmt: skip


def _rankings() -> list[list[int]]:
    rng = np.random.default_rng(2)
    strength = np.array([0.0, 0.3, 0.6, 0.9, 1.4])
    return [np.argsort(-(strength + rng.gumbel(size=5))).tolist() for _ in range(30)]


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
    "profiles": {
        f"{player} {ties} {position}": partial(
            ranking.profile_interval, contests(), player, ties=ties, position=position)
        for player in ("a", "e") for ties in (None, "davidson") for position in (False, True)
    },
    "orders": {
        f"{depth} {covariance} {sd}": _fit(fit_plackett_luce, _rankings(), depth=depth,
                                           covariance=covariance, prior_sd=sd)
        for depth in (None, 2) for covariance in ("sandwich", "model") for sd in (None, 1.0)
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
