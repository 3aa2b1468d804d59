"""Per-item scores of several models as contests between them."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin.comparisons.compare import compare
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.responses import Source
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.from_scores import contests_from_scores
from evalstats_plugin.ranking.rank import rank
from evalstats_plugin.runtime.memory import limited

NAN = float("nan")


def meetings(scores):
    """By hand: every pair on every item; (first, second, outcome, item)."""
    found = []
    for item in range(scores.shape[1]):
        for i, j in combinations(range(len(scores)), 2):
            a, b = scores[i, item], scores[j, item]
            if np.isnan(a) or np.isnan(b) or a == b:
                continue
            found.append((i, j, float(a > b), item))
    return found


def shown(made):
    columns = (made.first, made.second, made.outcome, made.cluster)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_every_pair_meets_on_every_item_both_answered(monkeypatch):
    """Also where the items do not fit into one block."""
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, size=(5, 40)).astype(float)
    scores[rng.random(scores.shape) < 0.2] = NAN
    scores[0, 0], scores[1, 0], scores[2, 0] = np.inf, np.inf, -np.inf
    matrix = ResponseMatrix.from_array(scores)
    expected = meetings(scores)

    assert shown(contests_from_scores(matrix)) == expected
    monkeypatch.setattr("evalstats_plugin.ranking.contests.from_scores._BLOCK", 30)
    assert shown(contests_from_scores(matrix)) == expected
    lower = ResponseMatrix.from_array(scores, measure=Measure(higher_is_better=False))
    worse = contests_from_scores(lower)
    assert shown(worse) == [(i, j, 1 - y, c) for i, j, y, c in expected]


def test_epochs_are_averaged():
    """.1 + .2 + .3 and its reverse are one mean, though not to the last digit."""
    scores = [[[0.1, 0.2, 0.3], [1, 1, 0]], [[0.3, 0.2, 0.1], [1, 0, NAN]]]
    matrix = ResponseMatrix.from_array(scores)
    assert np.sum([0.1, 0.2, 0.3]) != np.sum([0.3, 0.2, 0.1])

    assert shown(contests_from_scores(matrix)) == [(0, 1, 1.0, 1)]
    assert "means over epochs are compared" in contests_from_scores(matrix).notes


def test_items_of_a_cluster_share_one():
    matrix = ResponseMatrix.from_array(
        [[1, 1, 0, 1], [0, 0, 1, 0]], tasks=["s", "s", "t", "t"], clusters=["p", "p", "p", "q"]
    )
    made = contests_from_scores(matrix)

    assert made.clusters == ("s/p", "t/p", "t/q")
    assert made.cluster.tolist() == [0, 0, 1, 2]
    assert not made.ordered


def responses(model, task, scores, **more):
    return given_responses(
        model=model,
        task=task,
        metric="m",
        item_ids=np.arange(len(scores)),
        scores=np.asarray(scores, dtype=float)[:, None],
        source=Source(Path(), "test"),
        **more,
    )


def test_the_lower_score_wins_if_lower_is_better():
    """Each task its own way; a value that is no mean over items is left out, and this is said."""
    found = ResponseSet(
        (
            responses("a", "up", [1, 0], higher_is_better=True),
            responses("b", "up", [0, 0], higher_is_better=True),
            responses("a", "down", [3, 1], higher_is_better=False),
            responses("b", "down", [2, 2], higher_is_better=False),
            responses("a", "f1", [1], aggregation="f1"),
            responses("b", "silent", [1]),
            responses("a", "silent", [2]),
        )
    )
    made = contests_from_scores(found)

    assert made.players == ("a", "b")
    named = [(made.clusters[c], y) for c, y in zip(made.cluster, made.outcome, strict=True)]
    assert named == [("up/0", 1.0), ("down/0", 0.0), ("down/1", 1.0), ("silent/0", 1.0)]
    assert "not compared, no mean over items: f1/m" in made.notes
    assert "higher is taken as better, the log does not say: silent/m" in made.notes


def rasch(rng, n_models, n_items):
    ability = np.linspace(-1, 1, n_models)
    logit = ability[:, None] - rng.normal(size=n_items)
    return ability, (rng.random((n_models, n_items)) < 1 / (1 + np.exp(-logit))).astype(float)


def fitted(made):
    """Bradley-Terry by Zermelo's fixed point, apart from the package's own estimators."""
    wins = made.wins()
    met = wins + wins.T
    strength = np.ones(len(wins))
    for _ in range(2000):
        share = met / (strength[:, None] + strength)
        strength = wins.sum(axis=1) / share.sum(axis=1)
        strength /= np.exp(np.log(strength).mean())
    return np.log(strength)


def test_discordant_items_recover_rasch_abilities():
    """Bradley-Terry has their scale; with ties as half wins it is shrunk: the control."""
    rng = np.random.default_rng(2)
    ability, scores = rasch(rng, 8, 4000)
    matrix = ResponseMatrix.from_array(scores)
    dropped = contests_from_scores(matrix)
    wins = (scores[:, None] > scores).sum(axis=2) + (scores[:, None] == scores).sum(axis=2) / 2
    i, j = np.nonzero(~np.eye(8, dtype=bool))
    half = Contests.of(i, j, 1, players=8, weight=wins[i, j])
    slopes = [np.polyfit(ability, fitted(made), 1)[0] for made in (dropped, half)]

    assert slopes[0] == pytest.approx(1, abs=0.06)
    assert slopes[1] < 0.6
    assert any("conditional likelihood of the Rasch model" in note for note in dropped.notes)
    assert any("of one item depend on each other" in note for note in dropped.notes)


def test_too_many_contests_are_refused_before_they_are_made():
    """87,000 meetings at 40 bytes."""
    _, scores = rasch(np.random.default_rng(3), 30, 200)
    matrix = ResponseMatrix.from_array(scores)
    refused = "contests of 30 models on 202 items need about 3.5 MB .* give fewer models"
    with limited("3.5MB"):
        assert len(contests_from_scores(matrix)) < 87_000
        with pytest.raises(DesignError, match=refused):
            contests_from_scores(ResponseMatrix.from_array(np.tile(scores, 2)[:, :202]))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1, 0]], "1 model .*: give two or more"),
        ([[1, NAN], [NAN, 1]], "share no item: give items"),
        ([[1, 0], [1, 0]], "2 models on 2 items tie on every item"),
        (np.empty((2, 0)), "share no item: give items"),
    ],
)
def test_scores_without_contests_are_refused(scores, message):
    with pytest.raises(DesignError, match=message):
        contests_from_scores(ResponseMatrix.from_array(scores))


def test_notes_of_the_scores_are_kept():
    matrix = replace(ResponseMatrix.from_array([[1], [0]]), notes=("3 items dropped",))

    assert contests_from_scores(matrix).notes[0] == "3 items dropped"


def test_a_ranking_of_scores_and_compare_agree_on_who_is_above_whom():
    """Where either finds a difference, which is of b less a, the other has the same sign."""
    told = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(3, 7)), int(rng.choice([40, 150]))
        ability, difficulty = rng.normal(0, 0.7, (n, 1)), rng.normal(0, 1.2, m)
        right = rng.random((n, m)) < 1 / (1 + np.exp(difficulty - ability))
        matrix = ResponseMatrix.from_array(right.astype(float))
        ranking = {row.player: row for row in rank(matrix, rng=0)}
        for row in compare(matrix, rng=0):
            a, b = ranking[row.model_a], ranking[row.model_b]
            told_apart = not set(a.letters) & set(b.letters)
            if row.low > 0 or row.high < 0 or told_apart:
                told += 1
                assert (b.mean - a.mean) * row.difference > 0, (seed, row.model_a, row.model_b)

    assert told > 20
