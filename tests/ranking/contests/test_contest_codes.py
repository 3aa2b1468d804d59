"""Contests counted as whole numbers agree with contests counted one by one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests, rows_of
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry


def _drawn(players, size, outcomes, weights):
    rng = np.random.default_rng(0)
    first = rng.integers(0, players, size)
    second = (first + rng.integers(1, players, size)) % players
    return Contests.of(
        first, second, rng.choice(outcomes, size), players=players, weight=rng.choice(weights, size)
    )


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("weights", [[1], [0.5, 1, 3]])
@pytest.mark.parametrize("outcomes", [[0, 0.5, 1], [0.1, 0.9, 0.3], [1]])
@pytest.mark.parametrize(("players", "size"), [(4, 200), (150, 300)])
def test_rows_agree_with_counting_one_by_one(players, size, outcomes, weights, ordered):
    """Few players are counted in a table, many are sorted."""
    made = _drawn(players, size, outcomes, weights)

    rows, row_of_each = rows_of(made, ordered=ordered)
    each = zip(made.first, made.second, made.outcome, made.weight, strict=True)
    every = [(j, i, 1 - y, w) if i > j and not ordered else (i, j, y, w) for i, j, y, w in each]
    found = list(zip(rows.first, rows.second, rows.outcome, rows.weight, strict=True))
    assert Counter(every) == dict(zip(found, rows.times, strict=True))
    assert found == sorted(found)
    assert [found[row] for row in row_of_each()] == every


def test_a_million_battles_are_rated_in_less_than_half_a_second(within_in_memory):
    """CPU time, of which .012 s are needed, or .031 s where memory is mapped anew at each use."""
    made = _drawn(100, 1_000_000, [0, 0.5, 1], [1])

    def fitted():
        again = Contests.of(made.first, made.second, made.outcome, players=100)
        return fit_bradley_terry(again, covariance="sandwich")

    fit = within_in_memory(0.06, fitted)
    assert np.isfinite(fit.covariance).all()


def test_more_distinct_contests_than_integers_are_refused():
    """As a code that is too large would wrap round, and stand for another contest."""
    rng = np.random.default_rng(0)
    first, outcome, weight = np.zeros(100_000, dtype=int), rng.random(100_000), rng.random(100_000)
    made = Contests.of(first, first + 1, outcome, players=40_000, weight=weight)

    with pytest.raises(DesignError, match="round outcomes or weights"):
        rows_of(made, ordered=False)
    rows, _ = rows_of(replace(made, weight=weight.round(2)), ordered=False)
    assert rows.times.sum() == 100_000


def test_clusters_by_numbers_with_gaps_are_the_same_clusters():
    made = _drawn(6, 400, [0, 0.5, 1], [1])
    cluster = np.arange(400) // 8

    fits = [
        fit_bradley_terry(replace(made, cluster=number), covariance="cluster")
        for number in (cluster, cluster * 3 + 1, cluster * 10**9 - 5)
    ]
    assert {fit.diagnostics["n_clusters"] for fit in fits} == {50}
    for fit in fits[1:]:
        np.testing.assert_array_equal(fits[0].covariance, fit.covariance)
