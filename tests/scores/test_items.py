"""Answers item by item, and which items look wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy.stats import pearsonr

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.data.responses import Source
from evalstats_plugin.scores.items import (
    AGAINST_REST,
    ALL_RIGHT,
    ALL_SAME,
    ALL_WRONG,
    against_rest,
    item_answers,
    items_of_two,
    rest_correlations,
    telling_items,
)


def _simulated(n: int, m: int, seed: int) -> np.ndarray:
    """Answers of a Rasch model: on every item abler models do better."""
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(size=(n, 1)), rng.normal(size=m)
    return (rng.random((n, m)) < 1 / (1 + np.exp(difficulty - ability))).astype(float)


def _answers(scores: np.ndarray, **changed: object):
    responses = ResponseMatrix.from_array(scores).to_responses()
    found, notes = item_answers([r.measured(**changed) for r in responses])
    assert notes == []
    return found[0]


def test_the_correlation_is_pearsons_with_the_mean_of_the_other_items() -> None:
    """SciPy's, item by item, over the models that have a score of the item."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(9, 6))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    found = rest_correlations(scores)
    for j in range(6):
        there = ~np.isnan(scores[:, j])
        rest = np.nanmean(np.delete(scores, j, axis=1), axis=1)

        assert found[j] == pytest.approx(pearsonr(scores[there, j], rest[there]).statistic)


def test_no_correlation_where_nothing_varies() -> None:
    """Neither of the item, nor of a task of one item; rounding does not make it vary."""
    scores = np.array([[0.1, 1, 0.3], [0.1, 0, 0.3], [0.1, 1, 0.3]])

    assert np.isnan(rest_correlations(scores)).tolist() == [True, True, True]
    assert np.isnan(rest_correlations(np.array([[1.0], [0.0]]))).all()


def test_a_wrong_key_is_found_and_right_ones_are_not() -> None:
    """Item 7 is scored the wrong way round; of the others at most one in 20 is flagged."""
    scores = _simulated(40, 200, seed=2)
    scores[:, 7] = scores.sum(axis=1) < np.median(scores.sum(axis=1))
    found = _answers(scores)
    flagged = [i for i, flag in zip(found.item_ids, found.flags, strict=True) if flag]

    assert "item_7" in flagged
    assert len(flagged) <= 10


def test_chance_flags_one_item_in_twenty() -> None:
    """Answers that have nothing to do with ability, beside the models' means on a real task."""
    rng = np.random.default_rng(3)
    means = _simulated(30, 100, seed=4).mean(axis=1)
    scores = rng.integers(0, 2, (30, 4000)) * 1.0
    correlation = np.corrcoef(means, scores.T)[0, 1:]

    # Three standard errors; half of the correlations are below 0.
    assert np.mean(against_rest(scores, correlation)) == pytest.approx(0.05, abs=0.0105)
    assert np.mean(correlation < 0) > 0.4


def test_few_models_flag_no_item_as_against_the_rest() -> None:
    """Of three, the worst alone is right on an item once in three times by chance."""
    scores = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]) * 1.0
    found = _answers(scores)

    assert found.rest_correlation[3] < -0.9
    assert AGAINST_REST not in found.flags


def test_items_that_tell_no_models_apart_are_flagged() -> None:
    """All right or all wrong by the better end of the scale; all the same where it has none."""
    scores = np.array([[1, 0, 1], [1, 0, 0]]) * 1.0

    assert _answers(scores).flags == (ALL_RIGHT, ALL_WRONG, "")
    assert _answers(scores, higher_is_better=False).flags == (ALL_WRONG, ALL_RIGHT, "")
    assert _answers(scores * 3 + 2).flags == (ALL_SAME, ALL_SAME, "")
    assert _answers(scores[:1]).flags == ("", "", "")


def test_models_come_best_first_and_epochs_are_averaged() -> None:
    """A model's mean is over the items that it has a score of."""
    scores = np.array([[[0, 1], [0, 0]], [[1, 1], [np.nan, np.nan]]]) * 1.0
    found = _answers(scores)

    assert found.models == ("model_1", "model_0")
    assert found.means.tolist() == [1.0, 0.25]
    np.testing.assert_array_equal(found.scores, [[1.0, np.nan], [0.5, 0.0]])
    assert found.n_models.tolist() == [2, 1]
    assert found.item_means.tolist() == [0.75, 0.0]


def test_one_id_of_two_questions_is_left_out_and_noted() -> None:
    """Two models must not be set side by side on different questions."""
    responses = [
        given_responses(
            model=model, task="t", metric="acc", item_ids=np.arange(2), scores=np.ones((2, 1)),
            item_hashes=np.array(["a", last]), source=Source(Path(f"{model}.json"), "test"),
        )
        for model, last in (("m", "b"), ("n", "c"))
    ]  # fmt: skip
    [found], notes = item_answers(responses)

    assert found.item_ids == ("0",)
    assert notes == ["t: 1 item dropped, not the same question"]


def _two(scores: list[list[float]], **changed: object) -> list[tuple[str, str, float | None]]:
    """Set model_0 and model_1 side by side; further rows are other models."""
    responses = ResponseMatrix.from_array(np.array(scores)).to_responses()
    listed = [r.measured(**changed) for r in responses]
    return [(x.item, x.outcome, x.others) for x in items_of_two(listed, "model_0", "model_1")[0]]


def test_items_on_which_the_others_agree_come_first_among_equals() -> None:
    """There one of the two stands alone; items on which the two are alike come last."""
    found = _two([[1, 1, 0, 0, 1], [0, 0, 1, 0, 1], [1, 1, 0, 1, 1], [0, 1, 0, 1, 1]])

    assert found == [
        ("item_1", "lost", 1.0), ("item_2", "won", 0.0), ("item_0", "lost", 0.5),
        ("item_3", "neither", 1.0), ("item_4", "both right", 1.0),
    ]  # fmt: skip


def test_the_largest_difference_of_partial_scores_comes_first() -> None:
    """The words are others, and turn round where lower is better; missing scores are left out."""
    scores = [[0.5, 0.2, 1.0, np.nan], [0.4, 0.9, 1.0, 0.5]]

    assert _two(scores) == [
        ("item_1", "better", None), ("item_0", "worse", None), ("item_2", "same", None)
    ]  # fmt: skip
    assert [word for _, word, _ in _two(scores, higher_is_better=False)] == [
        "worse", "better", "same"
    ]  # fmt: skip


def test_right_is_the_least_error_where_lower_is_better() -> None:
    """0 of an error rate."""
    assert _two([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]], higher_is_better=False) == [
        ("item_2", "lost", None), ("item_0", "both right", None), ("item_1", "neither", None)
    ]  # fmt: skip


def test_texts_are_read_of_flagged_items_first() -> None:
    """Wrong keys, then items that nobody gets right, then those that go least with the others."""
    scores = _simulated(30, 10, seed=2)
    scores[:, 7] = 0
    scores[:, 4] = (scores.sum(axis=1) < np.median(scores.sum(axis=1))).astype(float)
    answers = _answers(scores)
    flags = dict(zip(answers.item_ids, answers.flags, strict=True))
    [wrong_key] = [item for item, flag in flags.items() if flag == AGAINST_REST]
    [nobody] = [item for item, flag in flags.items() if flag == ALL_WRONG]
    rest = dict(zip(answers.item_ids, answers.rest_correlation.tolist(), strict=True))
    others = sorted((r, item) for item, r in rest.items() if item not in (wrong_key, nobody))

    listed = telling_items([answers], most=5)[answers.task]

    assert listed == [wrong_key, nobody, *(item for _, item in others[:3])]
