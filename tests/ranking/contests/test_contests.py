"""Contests counted, tied together, and refused."""

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests, count_contests


def test_wins_are_counted_by_weight_and_ties_as_half():
    """0 beats 1 twice (weights 1 and 2), ties with 2; 2 beats 0."""
    made = Contests.of([0, 1, 0, 2], [1, 0, 2, 0], [1, 0, 0.5, 1], weight=[1, 2, 1, 1])

    np.testing.assert_array_equal(made.wins(), [[0, 3, 0.5], [0, 0, 0], [1.5, 0, 0]])
    with pytest.raises(DesignError, match="needs wins, losses and ties"):
        count_contests(Contests.of([0], [1], [0.3]), "davidson")


def test_groups_never_compared_are_found():
    made = Contests.of([0, 1, 3, 2], [1, 0, 4, 1], [1, 1, 1, 1], players=6, weight=[1, 1, 1, 0])

    parts = made.components()
    assert parts[0] == parts[1]
    assert parts[3] == parts[4]
    assert len(set(parts.tolist())) == 4
    # 0 and 1 beat each other; 3 beat 4 and not the other way round.
    assert len(set(made.strong_components().tolist())) == 5


def test_take_selects_contests():
    made = Contests.of([0, 1, 0], [1, 2, 2], [1, 0, 0.5])

    kept = made.take(made.tied)
    assert len(kept) == 1
    assert kept.players == made.players == ("player_0", "player_1", "player_2")
    assert len(made.take([2, 2, 0])) == 3


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (([], [], []), "no comparisons: give at least one"),
        (([0, 1], [1, 1], [1, 1]), "player_1 with itself: 1 comparison, the first of them nu"),
        (([0], [1], [1.5]), r"outcomes are outside \[0, 1\]"),
        (([0], [1], [float("nan")]), r"outcomes are outside \[0, 1\]"),
        (([0], [-1], [1]), "index is outside the list"),
    ],
)
def test_invalid_contests_are_refused(made, message):
    with pytest.raises(DesignError, match=message):
        Contests.of(*made)


@pytest.mark.parametrize("weight", [-1, float("inf"), float("nan"), 1e300])
def test_weights_are_numbers_that_do_not_drown_each_other(weight):
    with pytest.raises(DesignError, match=r"some weights are not between 0 and 1e\+12"):
        Contests.of([0], [1], [1], weight=[weight])


def test_every_comparison_needs_both_players():
    with pytest.raises(DesignError, match="2 first players, 1 second players, 2 outcomes and 2"):
        Contests.of([0, 1], [2], [1, 1])


def test_taking_all_contests_copies_nothing():
    made = Contests.of([0, 1, 0], [1, 2, 2], [1, 0, 0.5])

    assert made.take(np.ones(3, dtype=bool)) is made
