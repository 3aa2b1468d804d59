"""Which instances belong to which result, beside means over the instances themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from evalstats_plugin.adapters.every_eval_ever import reader
from evalstats_plugin.adapters.every_eval_ever.reader import Column, Key, match, mean_of, scale_of


def _column(*scores: float) -> Column:
    return Column(ids=[str(k) for k in range(len(scores))], scores=list(scores))


def _result(score: float, name: str = "r", result_id: str | None = None) -> dict[str, Any]:
    of_id = {} if result_id is None else {"evaluation_result_id": result_id}
    return {"evaluation_name": name, "score_details": {"score": score}, **of_id}


@pytest.mark.parametrize("seed", range(3))
def test_means_are_over_items_of_their_epochs(seed: int) -> None:
    """Without missing scores, and without items that have none."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 6, 40)
    scores = np.where((rng.random(40) < 0.3) | (ids == 4), np.nan, rng.random(40))
    own = [scores[(ids == k) & np.isfinite(scores)] for k in range(6)]
    column = Column(ids=[f"q{k}" for k in ids], scores=scores.tolist())

    assert mean_of(column) == pytest.approx(np.mean([x.mean() for x in own if len(x)]), rel=1e-13)
    assert math.isnan(mean_of(_column(math.nan)))
    assert math.isnan(mean_of(_column()))


def test_prompts_are_told_apart_by_their_choices() -> None:
    """The same question with other answers to choose from is another."""
    columns: dict[Key, Column] = {}
    for k, choices in enumerate((["a", "b"], ["a", "c"], ["a", "b"], None)):
        asked = {"raw": "q", "choices": choices}
        record = {"sample_id": k, "input": asked, "evaluation": {"score": 1.0}}
        reader._add(columns, record | {"evaluation_name": "r"}, "line")

    (column,) = columns.values()
    first, second, third, none = column.prompts
    assert first == third
    assert len({first, second, none}) == 3


def test_a_score_is_a_mean_or_a_percentage_of_it() -> None:
    """To six digits."""
    assert [scale_of(x, 0.5) for x in (0.5, 0.5000004, 50.0, 50.00004, 0.6, 5.0)] == [
        1.0, 1.0, 100.0, 100.0, None, None
    ]  # fmt: skip
    assert scale_of(0.500002, 0.5) is scale_of(50.0002, 0.5) is None
    assert scale_of(0.0, 0.0) == scale_of(4e-7, 0.0) == 1.0


def test_instances_go_to_the_result_of_their_id_name_or_score() -> None:
    """Each result has those of one key; those of none are left."""
    half, all_right = _column(1, 0), _column(1, 1)
    results = [_result(0.5, result_id="x"), _result(1.0), _result(100.0, "s"), _result(0.5, "s")]

    assert match(results, {Key("x", "other"): all_right}) == ({0: Key("x", "other")}, [])
    assert match(results, {Key("y", "r"): all_right}) == ({1: Key("y", "r")}, [])
    assert match(results, {Key(None, "s"): half}) == ({3: Key(None, "s")}, [])
    assert match(results, {Key(None, "s"): all_right}) == ({2: Key(None, "s")}, [])
    none = {Key(None, "s"): _column(0.3), Key(None, "q"): half}
    assert match(results, none) == ({}, list(none))
    # A name of its own is no matter where there is one key, and one result.
    assert match(results[:1], {Key(None, "q"): all_right}) == ({0: Key(None, "q")}, [])
    assert match(results, {Key(None, "q"): all_right}) == ({1: Key(None, "q")}, [])
    taken = {Key("x", "r"): half, Key(None, "r"): half}
    assert match(results[:1], taken) == ({0: Key("x", "r")}, [Key(None, "r")])


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (0, 1, (0.0, 1.0)), (None, 1, None), (0, None, None), (1, 1, None), (2, 1, None),
        ("x", 1, None), (0, "Infinity", None), (-1, 0.5, (-1.0, 0.5)),
    ],
)  # fmt: skip
def test_bounds_are_two_numbers_in_order(low: Any, high: Any, bounds: Any) -> None:
    """An infinite one is a text in the schema."""
    assert reader._bounds({"min_score": low, "max_score": high}) == bounds


def test_times_are_written_alike() -> None:
    """Seconds since 1970, as numbers or texts; others stay, and nothing is nothing."""
    told = {0: "1970-01-01T00:00:00+00:00", "86400.0": "1970-01-02T00:00:00+00:00",
            "2026-01-01": "2026-01-01", None: "", "": "", 1e30: "1e+30"}  # fmt: skip
    assert [reader._when(value) for value in told] == list(told.values())
