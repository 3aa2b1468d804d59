"""Ranks that the items leave open, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, compare, table
from evalstats_plugin.comparisons import rank_sets, ranks
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.ranks import ranks_by_blocks, ranks_of
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.stats.pairs.differences import Differences


def test_models_far_apart_have_one_rank_each_and_twins_share_theirs() -> None:
    """Two equal models between a far better and a far worse one."""
    rng = np.random.default_rng(0)
    middle = rng.permutation(np.arange(200) < 100).astype(float)
    scores = [np.zeros(200), middle, middle, np.ones(200)]
    found = rank_sets(ResponseMatrix.from_array(scores, models=["d", "b", "c", "a"]), rng=0)

    assert {"a": (1, 1), "b": (2, 3), "c": (2, 3), "d": (4, 4)} == {
        row.model: (row.best_rank, row.worst_rank) for row in found
    }


def test_few_items_leave_every_rank_open() -> None:
    """Three items cannot rank three models."""
    scores = [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    for row in rank_sets(ResponseMatrix.from_array(scores), rng=0):
        assert (1, 3) == (row.best_rank, row.worst_rank)


def test_the_true_ranks_are_held_at_once_with_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: five models of which two are equal; 95 % within three standard errors."""
    monkeypatch.setattr(ranks, "N_DRAWS", 2)  # of P(best), which is not looked at
    rng = np.random.default_rng(1)
    ability = np.array([0.8, 0.7, 0.7, 0.55, 0.4])
    best = np.array([1, 2, 2, 4, 5])
    worst = np.array([1, 3, 3, 4, 5])
    held = []
    for _ in range(100):
        scores = (rng.random((5, 150)) < ability[:, None]).astype(float)
        found = rank_sets(ResponseMatrix.from_array(scores), rng=0)
        sets = sorted((row.model, row.best_rank, row.worst_rank) for row in found)
        held.append(all(s[1] <= b and s[2] >= w for s, b, w in zip(sets, best, worst, strict=True)))

    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 100)


def test_one_model_cannot_be_ranked() -> None:
    """There is nobody to compare it with; its interval is still there."""
    matrix = ResponseMatrix.from_array([[1.0, 0.0, 1.0]])

    assert 1 == len(intervals(matrix))
    with pytest.raises(DesignError):
        rank_sets(matrix)


@pytest.mark.parametrize("correction", ["simultaneous", "stepdown", "bh", "none"])
def test_ranks_and_letters_are_those_of_the_comparisons(correction: str) -> None:
    """The two ways, by arrays and from the rows of every pair, agree on partial credit too."""
    rng = np.random.default_rng(4)
    level = np.linspace(0.2, 0.8, 6)[:, None]
    scores = np.clip(rng.normal(level, 0.3, (6, 80)), 0, 1).round(1)
    matrix = ResponseMatrix.from_array(scores)
    found = {row.model: row for row in rank_sets(matrix, correction=correction, rng=0)}  # pyright: ignore[reportArgumentType]
    rows = list(compare(matrix, correction=correction, rng=0))  # pyright: ignore[reportArgumentType]
    by_rows = ranks_of(rows)

    assert [f"model_{i}" for i in range(5, -1, -1)] == [row.model for row in by_rows]
    for row in by_rows:
        same = found[row.model]
        assert (row.best_rank, row.worst_rank) == (same.best_rank, same.worst_rank)
        assert row.letters == same.letters
    for row in rows:
        shared = set(found[row.model_a].letters) & set(found[row.model_b].letters)
        assert (row.verdict == "unclear") == bool(shared)


def test_models_without_letters_have_ranks_from_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaderboard of 223 models was printed pair by pair, 213,277 lines long."""
    monkeypatch.setattr(ranks, "MOST_LETTERED", 2)
    scores = np.random.default_rng(0).random((3, 40))
    rows = list(compare(ResponseMatrix.from_array(scores), rng=0))

    assert [(1, 3, "")] * 3 == [(r.best_rank, r.worst_rank, r.letters) for r in ranks_of(rows)]
    shown = table(ResponseMatrix.from_array(scores), rng=0).to_markdown()
    assert "| Rank | Model |" in shown
    assert "Ties" not in shown


def test_p_best_is_over_the_items_that_all_models_answered_or_not_given() -> None:
    """One model skipped items; another pair shares none."""
    scores = np.random.default_rng(0).integers(0, 2, (3, 30)).astype(float)
    scores[0, :10] = np.nan
    some = rank_sets(ResponseMatrix.from_array(scores), rng=0)
    scores[1, 10:] = np.nan
    none = rank_sets(ResponseMatrix.from_array(scores), rng=0)

    assert ("P(best) from the 20 of 30 items that all models answered",) == some[0].notes
    assert 1 == pytest.approx(sum(row.prob_best for row in some))  # pyright: ignore[reportArgumentType]
    assert [None] * 3 == [row.prob_best for row in none]
    assert ("no P(best): of 30 items, 0 were answered by all models",) == none[0].notes


def test_hundreds_of_models_are_ranked_without_a_row_for_each_pair() -> None:
    """201 models, 20,100 pairs, too many for letters; ranks repeat with the seed to the bit."""
    rng = np.random.default_rng(0)
    right = rng.random((201, 60)) < rng.uniform(0.2, 0.9, (201, 1))
    found = rank_sets(ResponseMatrix.from_array(right), rng=1)
    few = ResponseMatrix.from_array(right[:9])

    assert 201 == len(found)
    assert "" == found[0].letters
    assert rank_sets(few, rng=1) == rank_sets(few, rng=1)


def test_ranks_of_errors_are_those_of_right_answers() -> None:
    """The same verdicts, whichever way scores count, in the same order where verdicts tie."""
    rng = np.random.default_rng(3)
    scores = (rng.random((4, 60)) < [[0.3], [0.5], [0.55], [0.8]]).astype(float)
    up = ResponseMatrix.from_array(scores).to_responses()
    down = [
        r.measured(higher_is_better=False)
        for r in ResponseMatrix.from_array(1 - scores).to_responses()
    ]
    ranked = [
        [(row.model, row.best_rank, row.worst_rank, row.letters) for row in ranks_of(rows)]
        for rows in (list(compare(each, rng=0)) for each in (up, down))
    ]
    sets = [list(rank_sets(each, rng=0)) for each in (up, down)]

    assert ranked[0] == ranked[1]
    assert [row.letters for row in sets[0]] == [row.letters for row in sets[1]]
    assert [row.prob_best for row in sets[0]] == pytest.approx([row.prob_best for row in sets[1]])
    assert [name for name, *_ in ranked[0]] == ["model_3", "model_2", "model_1", "model_0"]


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("kind", ["0/1", "partial"])
def test_ranks_by_blocks_count_models_that_are_clearly_better(
    kind: str,
    higher: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pair alone, at Bonferroni's share; what would take hours is left out with a note."""
    rng = np.random.default_rng(3)
    n = 7
    scores = (rng.random((n, 60)) < np.linspace(0.1, 0.9, n)[:, None]) * 1.0
    if kind == "partial":
        scores *= rng.random(scores.shape)
    matrix = ResponseMatrix.from_array(scores)
    responses = [r.measured(higher_is_better=higher) for r in matrix.to_responses()]
    request = Request(confidence_level=0.95, rng=np.random.default_rng(0))
    better, worse = np.zeros((2, n), dtype=int)
    for i in range(n):
        for j in range(n):
            x = (scores[j] - scores[i])[None] * (1 if higher else -1)
            if i != j and Differences(x, span=1.0).p_value[0] <= 0.05 / 21:
                better[i] += x.mean() > 0
                worse[i] += x.mean() < 0
    for most_pairs in (1, 14, 10**6):
        found, notes = ranks_by_blocks(responses, request, most_pairs=most_pairs)
        assert notes == []
        rows = {row.model: row for row in found["task", "task"]}
        assert [rows[f"model_{i}"].best_rank for i in range(n)] == (1 + better).tolist()
        assert [rows[f"model_{i}"].worst_rank for i in range(n)] == (n - worse).tolist()
        assert [rows[f"model_{i}"].may_be_first for i in range(n)] == (better == 0).tolist()
    assert better.max() > 2
    monkeypatch.setattr(ranks, "MOST_STEPS", 21 * 60 - 1)
    found, notes = ranks_by_blocks(responses, request, most_pairs=100)
    if kind == "0/1":
        assert notes == []
    else:
        assert not found
        assert notes[0].startswith("no ranks on task: 7 models on 60 items would take hours")
    monkeypatch.setattr(ranks, "MOST_STEPS", 21 * 60)
    assert len(ranks_by_blocks(responses, request, most_pairs=100)[0]) == 1
