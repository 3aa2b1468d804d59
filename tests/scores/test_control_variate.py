"""How sure are we of the score on the whole benchmark, given how others fared on it?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy import special

from evalstats_plugin import ResponseMatrix, Responses, Source, intervals
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.data.responses import Group
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.control_variate import METHOD, NOTHING_TO_PREDICT, control_variate
from evalstats_plugin.stats.survey import regression


def _scores(n_models: int = 8, n_items: int = 200) -> np.ndarray:
    rng = np.random.default_rng(4)
    hard, able = rng.normal(0, 1.5, n_items), rng.normal(0.3, 0.7, (n_models, 1))
    return (rng.uniform(size=(n_models, n_items)) < special.expit(able - hard)) * 1.0


def _responses(scores: np.ndarray, **more: object) -> list[Responses]:
    return [
        replace(r, **more)  # pyright: ignore[reportArgumentType]
        for r in ResponseMatrix.from_array(scores).to_responses()
    ]


def _limited(scores: np.ndarray, n: int, model: int = 0) -> np.ndarray:
    """Let a model take only the first items, whose order means nothing here."""
    part = scores.copy()
    part[model, n:] = np.nan
    return part


def test_a_model_that_ran_a_part_gets_a_shorter_interval_for_the_whole() -> None:
    """Shorter by a fifth or more, and it holds what the model scores on all 200 items."""
    scores = _scores()
    (row, *_), (plain, *_) = (
        analysis(_responses(_limited(scores, 50))) for analysis in (control_variate, intervals)
    )

    assert METHOD == row.method
    assert 50 == row.n_items
    assert row.low <= scores[0].mean() <= row.high  # pyright: ignore[reportOptionalOperand]
    assert (row.high - row.low) < 0.8 * (plain.high - plain.low)  # pyright: ignore[reportOptionalOperand]
    assert "for all 200 items; 50 of them were run and must be a random part" in row.notes
    assert any("the scores of 7 other models" in n and "worth ×" in n for n in row.notes)
    assert 2 == len(row.notes)


def test_the_numbers_are_those_of_the_regression_on_the_other_models_means() -> None:
    """With complete others, their mean score of each item is the covariate, whatever its zero."""
    scores = _limited(_scores(), 40)
    (row, *_) = control_variate(_responses(scores))
    found = regression.adjust_to_benchmark(scores[0], scores[1:].mean(axis=0))
    low, high = regression.adjusted_bounded_interval(
        found, unseen_errors="damped", confidence_level=0.95
    )

    assert (float(low), float(high)) == pytest.approx((row.low, row.high), abs=1e-9)
    assert float(found.estimate) == pytest.approx(row.estimate, abs=1e-12)
    assert float(np.sqrt(found.variance)) == pytest.approx(row.std_error, abs=1e-12)


def test_where_all_took_the_same_items_nothing_is_gained_and_a_note_says_so() -> None:
    """The rows are those of `intervals`."""
    results = control_variate(_responses(_scores(4, 30)))

    for row, plain in zip(results, intervals(_responses(_scores(4, 30))), strict=True):
        assert NOTHING_TO_PREDICT == row.notes[-1]
        assert plain == replace(row, notes=row.notes[:-1])
    assert any("changed nothing" in note for note in results.notes)


def test_a_model_alone_gains_nothing() -> None:
    """Nobody tells which items are hard."""
    results = control_variate(_responses(_scores(1, 30)))

    assert [NOTHING_TO_PREDICT] == list(results[0].notes)
    (said, *_) = control_variate(_responses(_scores(1)), method="ratio-t").notes
    assert said == "ratio-t does not fit 1 of 1 score: beta-hpd there"


def test_which_of_the_others_answered_an_item_does_not_matter() -> None:
    """A strong and a weak model that answered a half each make no item look easy."""
    scores = _scores(3, 200)
    scores[1], scores[2] = 0.9, 0.1
    scores[1, ::2] = np.nan
    scores[2, 1::2] = np.nan
    (row, *_) = control_variate(_responses(_limited(scores, 40)))

    assert METHOD != row.method
    assert any("does not vary" in note for note in row.notes)


def test_bounds_and_unbounded_scores() -> None:
    """Points out of 100 give 100 times the same; without bounds it is a t interval."""
    scores = _limited(_scores() * 0.5 + _scores()[::-1] * 0.5, 60)
    (unit, *_) = control_variate(_responses(scores))
    (points, *_) = control_variate(_responses(100 * scores), measure=Measure(scale=Scale(0, 100)))
    (free, *_) = control_variate(_responses(1000 * scores))

    assert (unit.low or 0) * 100 == pytest.approx(points.low, rel=1e-9)
    assert (unit.high or 0) * 100 == pytest.approx(points.high, rel=1e-9)
    assert (free.low or 0) + (free.high or 0) == pytest.approx(2 * (free.estimate or 0))


def test_limits_of_a_mean_loss_are_not_below_zero() -> None:
    """Student's limits of few items once were."""
    (row, *_) = control_variate(
        _responses(_limited(100 * (1 - _scores()), 5)), measure=Measure(scale=Scale(0.0))
    )

    assert (row.method, row.low) == (METHOD, 0.0)
    assert 0 < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_too_few_items_are_left_as_they_are() -> None:
    """Four of 200."""
    (row, *_) = control_variate(_responses(_limited(_scores(), 4)))

    assert "beta-hpd" == row.method
    assert any("it is known for 4 of the items run, 5 needed" in note for note in row.notes)


def test_items_that_no_other_model_answered_are_left_out() -> None:
    """Nothing is known of them but this model's score."""
    scores = _limited(_scores(), 50)
    scores[1:, :6] = np.nan
    (row, *_) = control_variate(_responses(scores))

    assert 44 == row.n_items
    assert "6 items without a covariate left out" in row.notes


def test_the_rows_of_groups_are_made_from_those_of_their_tasks() -> None:
    """Above their tasks, as without control variates."""
    scores = _limited(_scores(), 50)
    group = Group("g", 0, "micro", n_tasks=1, logged=0.5)
    rows = list(control_variate(_responses(scores, groups=(group,))))

    assert ["group", "task"] == [row.kind for row in rows[:2]]
    assert 1 == rows[1].depth
    assert rows[0].high - rows[0].low <= 1.01 * (rows[1].high - rows[1].low)  # pyright: ignore[reportOptionalOperand]


def test_a_confidence_level_out_of_range_is_refused() -> None:
    """As everywhere."""
    with pytest.raises(DesignError, match="between 0 and 1"):
        control_variate(_responses(_scores()), confidence_level=95)


def test_a_metric_that_is_no_mean_keeps_its_row() -> None:
    """With the reason."""
    source = Source(path=Path("x"), harness="test")
    logged = given_responses(model="m", task="t", metric="f1", logged=0.5, aggregation="f1",
                       source=source)  # fmt: skip
    (row,) = control_variate([logged])

    assert "none" == row.method
    assert any("not a mean of item scores" in note for note in row.notes)


def test_values_beside_a_score_have_rows_of_their_own() -> None:
    """As without control variates: epochs combined otherwise, or the items of one subject."""
    responses = [
        r.with_beside([r.of_items(np.arange(len(r.item_ids)) < 20).measured(metric="part")])
        for r in _responses(_limited(_scores(3), 50))
    ]
    plain, adjusted = intervals(responses), control_variate(responses)

    assert [(row.model, row.metric) for row in plain] == [
        (row.model, row.metric) for row in adjusted
    ]
    assert METHOD == adjusted[0].method


def test_limits_follow_the_unit_and_the_zero_of_the_scale() -> None:
    """Of shares, points from 1 to 5, and losses."""
    scores = _limited(_scores(), 40)
    plain = control_variate(_responses(scores))
    moved = control_variate(
        ResponseMatrix.from_array(
            1 + 4 * scores, measure=Measure(scale=Scale(1.0, 5.0))
        ).to_responses()
    )
    for row, other in zip(plain, moved, strict=True):
        for name in ("estimate", "low", "high"):
            assert getattr(other, name) == pytest.approx(1 + 4 * getattr(row, name), abs=1e-9)
        assert other.std_error == pytest.approx(4 * row.std_error)
