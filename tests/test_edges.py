"""Edges of rules, which tests of whole analyses pass over: each was changed and nothing failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Responses, Source, compare
from evalstats_plugin.comparisons import compare as compare_module
from evalstats_plugin.comparisons.families import FEW_ITEMS
from evalstats_plugin.comparisons.planning.power import _around
from evalstats_plugin.data.tables import Column
from evalstats_plugin.stats.pairs.power import MOST_ITEMS, items_needed
from evalstats_plugin.stats.pairs.unpaired import independent_counts, miettinen_nurminen


def _responses(n: int, tasks: str = "t", models: str = "abc") -> list[Responses]:
    rng = np.random.default_rng(n)
    return [
        given_responses(
            model=model, task=task, item_ids=np.arange(n), bounds=(0.0, 1.0),
            scores=1.0 * (rng.random((n, 1)) < 0.5), source=Source(Path("a.json"), "test"),
        )
        for task in tasks for model in models
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("right_a", "right_b", "expected"), [(5, 0, (-1.0, None)), (0, 5, (None, 1.0))]
)
def test_a_difference_that_is_whole_has_the_end_of_the_scale_as_a_limit(
    right_a: int, right_b: int, expected: tuple[float | None, float | None]
) -> None:
    """All of one and none of the other; the other limit lies inside."""
    limits = miettinen_nurminen(independent_counts(right_a, 5, right_b, 5), confidence_level=0.95)

    for limit, end in zip(limits, expected, strict=True):
        assert float(limit) == end if end is not None else -1 < float(limit) < 1


@pytest.mark.parametrize(
    ("given", "n_pairs"),
    [({}, 6), ({"design": "tasks"}, 3), ({"baseline": "a"}, 4), ({"baseline": "best"}, 6)],
)
def test_the_size_of_a_comparison_is_that_of_its_pairs(
    given: dict[str, Any], n_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three models on two tasks: over tasks they are compared once."""
    asked: list[int] = []
    monkeypatch.setattr(compare_module, "check_memory", lambda n_bytes, *_: asked.append(n_bytes))
    compare(_responses(8, "uv"), rng=0, **given)

    assert asked[0] == n_pairs * compare_module._PAIR_BYTES


@pytest.mark.parametrize(("n", "is_few"), [(FEW_ITEMS, True), (FEW_ITEMS + 1, False)])
def test_only_few_items_are_told_what_one_more_could_do(n: int, *, is_few: bool) -> None:
    """A note of each pair."""
    rows = compare(_responses(n, models="ab"), rng=0)

    assert is_few == any("if one more item" in note for row in rows for note in row.notes)


def test_a_curve_goes_from_a_twelfth_to_three_times_the_middle() -> None:
    """Of few items from 4 to 40."""
    assert [(_around(x)[0], _around(x)[-1]) for x in (5.0, 1200.0)] == [(4, 40), (100, 3600)]


def test_more_items_than_any_benchmark_has_are_none() -> None:
    """Just below the most there is still a number."""
    n = float(items_needed(0.001, 1.0, tail=0.025, power=0.8))
    variance = np.array([0.999, 1.001]) * MOST_ITEMS / n

    assert np.isinf(items_needed(0.001, variance, tail=0.025, power=0.8)).tolist() == [False, True]


def test_values_of_a_column_that_are_the_same_text_have_one_code() -> None:
    """Untrimmed or repeated ones; what is empty is missing."""
    column = Column.encoded(np.array([0, 1, 2, 3]), ["a", " a", "b", ""])

    assert (("a", "b"), [0, 0, 1, -1]) == (column.values, column.codes.tolist())
    assert ("a", "b") == Column.encoded(np.array([0, 1, 2]), ["a", "a", "b"]).values
