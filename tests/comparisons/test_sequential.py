"""Which model is better, asked again and again?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Responses, Source, intervals
from evalstats_plugin.comparisons.compare import VALID
from evalstats_plugin.comparisons.compare import sequential as sequential_tables
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.families import settle
from evalstats_plugin.comparisons.rows import SEQUENTIAL as METHOD
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.methods import SEQUENTIAL
from evalstats_plugin.stats import sequential as stats_sequential
from evalstats_plugin.stats.pairs.paired import paired_counts


def sequential(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Return the rows, corrected by their families, and the notes."""
    tables, notes = sequential_tables(responses, request)
    return settle(tables, request), notes


def _responses(model: str, scores: list[float] | np.ndarray, **more: object) -> Responses:
    array = np.asarray(scores, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    source = Source(path=Path(f"{model}.json"), harness="test")
    given = {"task": "t", "metric": "acc", "item_ids": np.arange(len(array)), **more}
    return given_responses(model=model, scores=array, source=source, **given)  # pyright: ignore[reportArgumentType]


def _request(**more: object) -> Request:
    given: dict[str, object] = {"confidence_level": 0.95, "rng": np.random.default_rng(0)}
    return Request(**{**given, **more})  # pyright: ignore[reportArgumentType]


def _rows(*responses: Responses, **more: object) -> list[Comparison]:
    return sequential(responses, _request(**more))[0]


def test_binary_scores_are_compared_by_who_gets_them_right() -> None:
    """Difference, limits and p-value of the counts, and what they are good for."""
    a = np.repeat([1.0, 1.0, 0.0, 0.0], [19, 4, 16, 5])
    b = np.repeat([1.0, 0.0, 1.0, 0.0], [19, 4, 16, 5])
    counts = paired_counts(19, 4, 16, 5)
    low, high = stats_sequential.paired_mixture(counts, confidence_level=0.95)
    (row,) = _rows(_responses("a", a), _responses("b", b))

    assert ("a", "b", 44, METHOD, None) == (
        row.model_a, row.model_b, row.n_items, row.method, row.prob_better,
    )  # fmt: skip
    assert (12 / 44, float(low), float(high)) == pytest.approx((row.difference, row.low, row.high))
    assert float(stats_sequential.paired_p_value(counts)) == row.p_value == row.p_adjusted
    assert (VALID,) == row.notes


def test_the_verdict_is_that_of_the_valid_p_value() -> None:
    """16 to 4 is enough for a test made once (p = .012), but not for looking all the time."""
    few, many = (
        _rows(_responses("a", np.repeat([1.0, 0.0], n)), _responses("b", np.repeat([0.0, 1.0], n)))
        for n in ([4, 16], [8, 40])
    )

    assert "unclear" == few[0].verdict
    assert 0.05 < (few[0].p_value or 0) < 0.2
    assert "better" == many[0].verdict
    assert 0 < (many[0].low or 0)


def test_lower_may_be_better() -> None:
    """The sign stays, the word changes."""
    wrong = {"higher_is_better": False}
    (row,) = _rows(_responses("a", np.zeros(40), **wrong), _responses("b", np.ones(40), **wrong))

    assert 1.0 == row.difference
    assert "worse" == row.verdict


def test_partial_credit_bets_on_differences() -> None:
    """Of the scores' bounds, both ways."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(2, 60)).round(3)
    wide = Measure(task="t", metric="acc", scale=Scale(0, 2))
    (row,) = _rows(*(_responses(model, x).under(wide) for model, x in (("a", a), ("b", b))))
    low, high = stats_sequential.betting_mixture(b - a, bounds=(-2, 2), confidence_level=0.95)

    assert (float(low), float(high)) == pytest.approx((row.low, row.high), abs=1e-12)
    p = stats_sequential.p_value(b - a, bounds=(-2, 2), mean=0.0)
    assert float(p) == pytest.approx(row.p_value, rel=1e-12)


def test_the_order_of_the_items_does_not_matter() -> None:
    """Nor does what they are called."""
    a, b = (np.random.default_rng(1).uniform(size=(2, 50)) < [[0.4], [0.7]]) * 1.0
    shuffled = np.random.default_rng(2).permutation(50)
    one = _rows(_responses("a", a), _responses("b", b))
    other = _rows(_responses("a", a[shuffled]), _responses("b", b[shuffled]))

    assert one == other


def test_without_bounds_there_is_no_interval_and_the_note_says_what_to_do() -> None:
    """Any score could be next."""
    (row,) = _rows(_responses("a", [5.0, -3.0, 7.0]), _responses("b", [6.0, 2.0, 30.0]))

    assert (None, None, None, "unclear") == (row.low, row.high, row.p_value, row.verdict)
    assert any("--bounds" in note for note in row.notes)


def test_p_values_of_many_pairs_are_adjusted() -> None:
    """Bonferroni multiplies by the number of pairs; "none" leaves them."""
    models = [_responses(name, np.repeat([1.0, 0.0], n)) for name, n in zip(
        "abc", ([10, 50], [40, 20], [42, 18]), strict=True)]  # fmt: skip
    rows, raw = _rows(*models), _rows(*models, correction="none")
    p = [row.p_value or 0 for row in rows]

    assert 3 * min(p) == pytest.approx(min(row.p_adjusted or 1 for row in rows))
    assert p == [row.p_adjusted for row in raw]
    against = _rows(*models, baseline="b")
    assert [("b", "a"), ("b", "c")] == [(row.model_a, row.model_b) for row in against]


def test_items_missing_on_one_side_and_clusters_are_pointed_out() -> None:
    """Neither is passed over."""
    clusters = {"clusters": np.repeat(["x", "y"], 10)}
    a, b = np.tile([1.0, 0.0], 10), np.tile([1.0, 1.0, 0.0, np.nan], 5)
    (row,) = _rows(_responses("a", a, **clusters), _responses("b", b, **clusters))

    assert 15 == row.n_items
    assert "5 of 20 items lack one model's score: left out" in row.notes
    assert "confidence-sequence treats items in 2 clusters as independent" in row.notes


def test_models_without_an_item_in_common_are_no_obstacle_to_others() -> None:
    """On a task with partial credit, where they share none."""
    a, b = ([_responses(name, [0.2, 0.5, 0.9], task=task) for task in "tu"] for name in "ab")
    b[1] = replace(b[1], item_ids=np.arange(3) + 3)
    first, second = _rows(*a, *b)

    assert (3, 0) == (first.n_items, second.n_items)
    assert (None, None, "the two models share no item") == (
        second.low, second.p_value, second.notes[-1],
    )  # fmt: skip


def test_what_holds_for_a_fixed_number_of_items_only_is_refused() -> None:
    """Other methods."""
    models = (_responses("a", [1.0, 0.0]), _responses("b", [0.0, 1.0]))

    with pytest.raises(DesignError, match="'tango' holds for a number of items fixed"):
        _rows(*models, method="tango")


def test_a_score_may_have_a_confidence_sequence_too() -> None:
    """The same of both methods on 0/1 scores, and wider than what holds for one look."""
    scores = np.repeat([1.0, 0.0], [40, 20])
    wilson, *rows = (
        intervals([_responses("a", scores)], method=method)[0] for method in ("wilson", *SEQUENTIAL)
    )
    (low, high), *others = [(row.low or 0, row.high or 0) for row in rows]

    assert ["beta-mixture", "betting-mixture"] == [row.method for row in rows]
    assert (low, high) == pytest.approx(others[0], abs=1e-9)
    assert 1.4 < (high - low) / ((wilson.high or 0) - (wilson.low or 0)) < 2
