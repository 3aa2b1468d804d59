"""Do intervals of ratings from models' right and wrong answers hold the truth?

Writes fixtures/validation/ranking_discordant.json. 10 models with abilities from -1 to 1 answer
items of difficulty N(0, 1.2²) as the Rasch model says. An item that one model gets right and
another wrong is a contest won by the first; other pairs are dropped. 95 % intervals of ratings of
mean 0 and of all their differences, normal, and for clusters by Student's t. Taking the 45 contests
of an item as independent must fail, as must half a win for each model where both are right or both
wrong.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "ranking_discordant.json"
N, REPLICATIONS = 10, 400
ITEMS = (50, 200)
TRUTH = np.linspace(-1, 1, N)


def contests(items, rng):
    """Every pair of models on every item."""
    difficulty = rng.normal(0, 1.2, size=items)
    right = rng.random((N, items)) < 1 / (1 + np.exp(difficulty - TRUTH[:, None]))
    first, second = np.triu_indices(N, 1)
    outcome = (1 + right[first].astype(float) - right[second]) / 2
    cluster = np.tile(np.arange(items), len(first))
    made = Contests.of(
        np.repeat(first, items), np.repeat(second, items), outcome.ravel(), players=N
    )
    return replace(made, cluster=cluster), right.mean(axis=1)


def held(fit, quantile):
    """Share of ratings, and of differences, whose interval holds the truth."""
    v, i, j = fit.covariance, *np.triu_indices(N, 1)
    away = np.abs(fit.rating - TRUTH) <= quantile * fit.std_error
    spread = np.sqrt(np.diagonal(v)[i] + np.diagonal(v)[j] - 2 * v[i, j])
    missed = np.abs(fit.rating[i] - fit.rating[j] - TRUTH[i] + TRUTH[j])
    return away.mean(), (missed <= quantile * spread).mean()


@cache
def rows():
    found = []
    for items in ITEMS:
        rng = np.random.default_rng(items)
        t = stats.t.ppf(0.975, items - 1)
        kinds = {"model": 1.96, "sandwich": 1.96, "cluster": t}
        ways = [("drop", kind, q) for kind, q in kinds.items()] + [("half", "cluster", t)]
        every = {way[:2]: [] for way in ways}
        for _ in range(REPLICATIONS):
            made, accuracy = contests(items, rng)
            for ties, kind, quantile in ways:
                fit = fit_bradley_terry(made, ties=ties, covariance=kind)
                same = np.array_equal(
                    np.argsort(fit.rating.round(9), kind="stable"),
                    np.argsort(accuracy.round(9), kind="stable"),
                )
                slope = fit.rating @ TRUTH / (TRUTH @ TRUTH)
                every[ties, kind].append((*held(fit, quantile), slope, same))
        for (ties, kind), values in every.items():
            mean = np.mean(values, axis=0).tolist()
            error = float(np.std([v[0] for v in values]) / REPLICATIONS**0.5)
            found.append(
                {"items": items, "ties": ties, "covariance": kind, "coverage": mean[0],
                 "std_error": error, "coverage_of_differences": mean[1], "slope": mean[2],
                 "ordered_as_accuracy": mean[3]}
            )  # fmt: skip
    return found


def chosen(ties, kind):
    return [row for row in rows() if (row["ties"], row["covariance"]) == (ties, kind)]


def test_clustered_by_item_they_hold_what_they_say():
    for row in chosen("drop", "cluster"):
        assert 0.93 <= row["coverage"] <= 0.97, row
        assert 0.93 <= row["coverage_of_differences"] <= 0.97, row
        assert abs(row["slope"] - 1) < 0.06, row


@pytest.mark.parametrize("kind", ["model", "sandwich"])
def test_contests_of_an_item_taken_as_independent_fail(kind):
    assert all(row["coverage"] < 0.75 for row in chosen("drop", kind))


def test_ties_as_half_wins_order_models_as_accuracy_does_and_shrink_them():
    for row in chosen("half", "cluster"):
        assert row["ordered_as_accuracy"] == 1
        assert row["slope"] < 0.5
        assert row["coverage"] < 0.6


def test_the_study_is_written():
    figures = [
        {key: round(x, 5) if isinstance(x, float) else x for key, x in row.items()}
        for row in rows()
    ]
    about = {"about": " ".join(__doc__.split()), "replications": REPLICATIONS}
    FILE.write_text(json.dumps({**about, "rows": figures}, indent=1) + "\n", encoding="utf-8")

    assert len(figures) == 4 * len(ITEMS)
