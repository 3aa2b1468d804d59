"""Programs for Bradley–Terry ratings beside ours, on the same contests of known truth.

``python -m benchmarks.ranking``. 100 players with ratings N(0, 1), met as unevenly as in an arena,
an eighth of the contests ties, which count half for each. Ties draw ratings together, so that the
truth is what endless contests of this kind would be fitted with.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import OURS, Job, Program, digits, keep, side_by_side
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

SEED = 20261121
PLAYERS = 100
CONTESTS = 1_000_000
TIES = 0.125
SAMPLES = 1000
"""Of a bootstrap."""

RATINGS = tuple(
    Program(name, requirement, ("fit",))
    for name, requirement in (
        (OURS, None),
        ("choix", "choix==0.4.1"),
        ("evalica", "evalica==0.4.2"),
        ("scikit-learn", "scikit-learn"),
    )
)
INTERVALS = (
    Program(OURS, None, ("intervals",)),
    Program("arena-rank", "arena-rank==0.1.1", ("intervals",)),
    Program("choix", "choix==0.4.1", ("intervals", str(SAMPLES))),
    Program("evalica", "evalica==0.4.2", ("intervals", str(SAMPLES))),
    Program("scikit-learn", "scikit-learn", ("intervals", str(SAMPLES))),
)


def main() -> None:
    """Rate by all, with and without intervals; keep the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = draw(folder)

        def judge(found: Mapping[str, np.ndarray]) -> dict[str, Any]:
            away = found["rating"] - truth
            errors = {"rmse": digits(float(np.sqrt(np.mean(away**2))))}
            if "low" in found:
                inside = (found["low"] <= truth) & (truth <= found["high"])
                errors["coverage"] = round(float(inside.mean()), 3)
            return errors

        rows = side_by_side(Job("ratings", "ranking_fits", folder, judge), RATINGS)
        intervals = Job("ratings with intervals", "ranking_fits", folder, judge)
        rows += side_by_side(intervals, INTERVALS)
    keep("ranking", rows, players=PLAYERS, contests=CONTESTS, samples=SAMPLES)


def draw(folder: Path) -> np.ndarray:
    """Draw contests; some players meet far more often than others. Return the true ratings."""
    rng = np.random.default_rng(SEED)
    rating = rng.standard_normal(PLAYERS)
    often = rng.dirichlet(np.full(PLAYERS, 2.0))
    first, second = np.triu_indices(PLAYERS, 1)
    chance = often[first] * often[second]
    pair = rng.choice(len(first), size=CONTESTS, p=chance / chance.sum())
    i, j = first[pair], second[pair]
    outcome = (rng.random(CONTESTS) < 1 / (1 + np.exp(rating[j] - rating[i]))).astype(float)
    outcome[rng.random(CONTESTS) < TIES] = 0.5
    np.savez(folder / "data.npz", first=i, second=j, outcome=outcome, players=PLAYERS)
    share = (1 - TIES) / (1 + np.exp(rating[second] - rating[first])) + TIES / 2
    endless = Contests.of(first, second, share, players=PLAYERS, weight=chance)
    return fit_bradley_terry(endless, ties="half", covariance="model").rating


if __name__ == "__main__":
    main()
