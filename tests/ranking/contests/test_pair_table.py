"""Contests counted and checked in one pass agree with contests counted and checked one by one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests import contests
from evalstats_plugin.ranking.contests.contests import Contests, pair_table
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry


def _drawn(size, players=5):
    rng = np.random.default_rng(0)
    first = rng.integers(0, players, size)
    second = (first + rng.integers(1, players, size)) % players
    return first, second, rng.choice([0, 0.5, 1], size)


@pytest.mark.parametrize("size", [75, 1000])
@pytest.mark.parametrize("block", [64, 2**15])
def test_the_table_holds_each_contest_once(size, block, monkeypatch):
    """Also where blocks end in the middle, and of arrays that are parts of others."""
    monkeypatch.setattr(contests, "BLOCK", block)
    first, second, outcome = _drawn(size)

    found = pair_table(first, second, outcome, 5)
    assert found.shape == (5, 5, 3)
    assert found.sum() == size
    expected = Counter(zip(first, second, 2 * outcome, strict=True))
    assert all(found[int(i), int(j), int(end)] == n for (i, j, end), n in expected.items())
    apart = pair_table(first[::2], second[::2], outcome[::2], 3 if size == 75 else 5)
    # 38 contests are fewer than the 75 numbers of a table, and too many places for 3 players.
    assert apart is None if size == 75 else apart.sum() == size / 2


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("where", "what", "message"),
    [
        ("first", -1, "index is outside the list of 5"),
        ("second", 5, "index is outside the list of 5"),
        ("second", 2**32, "index is outside the list of 5"),
        ("outcome", 1.5, r"outcomes are outside \[0, 1\]"),
        ("outcome", -0.5, r"outcomes are outside \[0, 1\]"),
        ("outcome", np.nan, r"outcomes are outside \[0, 1\]"),
        ("outcome", np.inf, r"outcomes are outside \[0, 1\]"),
        ("itself", 3, "player_3 with itself: 1 comparison, the first of them number 8"),
    ],
)
def test_an_invalid_contest_is_found_in_small_and_large_data(where, what, message, many):
    """With the same words; nothing else is said, such as by the processor of a cast."""
    arrays = dict(zip(("first", "second", "outcome"), _drawn(900 if many else 20), strict=True))
    arrays |= {key: values.copy() for key, values in arrays.items()}
    assert (pair_table(*arrays.values(), 5) is None) != many
    for name in ("first", "second") if where == "itself" else (where,):
        arrays[name][7] = what

    assert pair_table(*arrays.values(), 5) is None
    with pytest.raises(DesignError, match=message):
        Contests.of(*arrays.values(), players=5)


def test_shares_are_not_counted_in_the_table():
    """However little they differ from a tie."""
    first, second, outcome = _drawn(900)
    outcome[11] = np.nextafter(0.5, 1)
    made = Contests.of(first, second, outcome, players=5)

    assert made.outcome_counts is None
    assert replace(made, outcome=outcome.round(3)).outcome_counts is not None


def test_ratings_do_not_depend_on_the_table():
    """Neither do their errors: the same contests, counted one by one as they have a weight each."""
    first, second, outcome = _drawn(900)
    made = Contests.of(first, second, outcome, players=5)
    weight = np.ones(900)
    weight[0] = np.nextafter(1, 2)
    other = Contests.of(first, second, outcome, players=5, weight=weight)

    fits = [fit_bradley_terry(contests) for contests in (made, other)]
    np.testing.assert_allclose(fits[0].rating, fits[1].rating, rtol=0, atol=1e-13)
    np.testing.assert_allclose(fits[0].covariance, fits[1].covariance, rtol=1e-10)


def test_strong_components_agree_with_a_graph():
    """In many random sets of contests, of which some hang together by a thread."""
    rng = np.random.default_rng(2)
    one_group = 0
    for _ in range(300):
        n, size = int(rng.integers(2, 9)), int(rng.integers(1, 30))
        first = rng.integers(0, n, size)
        second = (first + rng.integers(1, n, size)) % n
        made = Contests.of(first, second, rng.choice([0, 0.5, 1], size), players=n)
        graph = sparse.csr_array(made.wins() > 0)
        count, expected = csgraph.connected_components(graph, connection="strong")
        found = made.strong_components()
        one_group += count == 1
        assert len(np.unique(found)) == count
        assert len({*zip(found.tolist(), expected.tolist(), strict=True)}) == count
    assert 50 < one_group < 250
