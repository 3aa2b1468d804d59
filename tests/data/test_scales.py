"""On which scale scores are: the same for an array, a table and a log; strays are asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from given_responses import given_responses

import evalstats_plugin as es
from evalstats_plugin.data.scales import observed, settled, strays

SOURCE = es.Source(path=Path("x"), harness="test")
RNG = np.random.default_rng(20)
GRADES = RNG.integers(1, 11, (2, 40)).astype(float)
RIGHT = RNG.integers(0, 2, 40).astype(float)


def _frame(scores: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model": np.repeat(["model_0", "model_1"][: len(scores)], scores.shape[1]),
            "task": "task",
            "item": np.tile([f"item_{i}" for i in range(scores.shape[1])], len(scores)),
            "score": scores.ravel(),
        }
    )


def _responses(scores: np.ndarray, **more: Any) -> list[es.Responses]:
    ids = np.array([f"item_{i}" for i in range(scores.shape[1])])
    known = {"task": "task", "metric": "score", "source": SOURCE, "item_ids": ids, **more}
    return [
        given_responses(model=f"model_{i}", scores=row[:, None], **known)
        for i, row in enumerate(scores)
    ]


def _figures(row: Any) -> tuple[Any, ...]:
    names = ("difference", "estimate", "low", "high", "p_value", "prob_better", "std_error")
    return row.method, *(getattr(row, name, None) for name in names)


@pytest.mark.parametrize("scores", [GRADES, GRADES * 10, (GRADES - 1) / 9, GRADES - 30])
@pytest.mark.parametrize("ask", [es.intervals, es.compare])
def test_the_same_numbers_give_the_same_row(scores: np.ndarray, ask: Any, tmp_path: Path) -> None:
    """As an array, a DataFrame, a CSV file and responses of a reader, to the last digit."""
    table = tmp_path / "scores.csv"
    _frame(scores).to_csv(table, index=False)
    forms = [
        es.ResponseMatrix.from_array(scores), _frame(scores), table, _responses(scores),
        es.read(table).matrix(),
    ]  # fmt: skip
    found = [[_figures(row) for row in ask(form, rng=0)] for form in forms]

    assert all(rows == found[0] for rows in found)


def test_given_bounds_and_the_same_bounds_in_a_measure_give_the_same_row() -> None:
    """A scale is part of the scores, not of the call."""
    bounded = es.ResponseMatrix.from_array(GRADES, measure=es.Measure(scale=es.Scale(0, 10)))
    given = es.compare(
        es.ResponseMatrix.from_array(GRADES), measure=es.Measure(scale=es.Scale(0, 10)), rng=0
    )

    assert _figures(es.compare(bounded, rng=0)[0]) == _figures(given[0])
    assert bounded.measures[0].scale_from == "given"


@pytest.mark.parametrize("stray", [-1.0, 2.0, 9.0, 99.0, 999.0])
def test_one_stray_value_is_asked_about(stray: float) -> None:
    """It is no score of 0 and 1, and changes neither scale nor method of the others."""
    scores = RIGHT.copy()
    scores[3] = stray
    [row] = es.intervals(_frame(scores[None]))
    known = es.intervals(es.read(_frame(scores[None]), missing_code=stray))[0]

    assert (row.estimate, row.low, row.method) == (None, None, "none")
    assert "a code for missing? --missing-code" in row.notes[0]
    assert (known.method, known.n_items, known.n_missing) == ("beta-hpd", 39, 1)


def test_half_a_grade_among_whole_ones_is_on_their_scale() -> None:
    """One 8.5 among grades from 1 to 10."""
    scores = GRADES[0].copy()
    scores[5] = 8.5

    assert es.intervals(es.ResponseMatrix.from_array(scores[None]))[0].method == "reach"


@pytest.mark.parametrize(
    ("scores", "bounds"),
    [
        ([0, 1] * 20 + [-1, -1, -1], (0, 1)),
        ([0, 1] * 20 + [0.5, 2], (0, 1)),
        ([0, 1] * 20 + [1.5], (0, 1)),
        ([*np.linspace(0, 1, 40), -1], (0, 1)),
        ([*np.linspace(0, 1, 40), 1.08], None),
        ([*np.linspace(0, 1, 40), -0.09], None),
        ([1] * 30 + [5], (1, 5)),
        *(([3, 4, 5] * 9 + [code], (1, 5)) for code in (77, 88, 99, 777, 888, 999, 9999)),
        ([3, 4, 5] * 9 + [998], None),
        ([40.5, 90] * 9 + [-1], (0, 100)),
        ([40.5, 90] * 9 + [999], (0, 100)),
        ([40.5, -90] * 9, None),
        ([0, 1, 2] * 9, None),
        ([0, 1] * 20 + [1.6] * 4 + [9], None),
        ([0, 1] * 20 + [1.9] * 4 + [9], (0, 10)),
        ([0.5, 1], None),
        ([np.nan], None),
    ],
)
def test_the_scale_that_scores_show(
    scores: list[float], bounds: tuple[float, float] | None
) -> None:
    """A few codes do not hide it; where many values differ there is no telling."""
    scale = observed(np.array(scores, dtype=float))

    assert bounds == (None if scale is None else scale.bounds)


def test_a_scale_of_the_registry_gives_way_to_scores_plainly_on_another() -> None:
    """Accuracies of 100, with a note; a few values beyond it are strays."""
    usual = es.Measure(task="task", metric="acc").on((0.0, 1.0), "registry")
    percent, few = (
        settled([r.under(usual) for r in _responses(scores[None])])[0]
        for scores in (100 * RIGHT, np.where(np.arange(40) == 3, 7, RIGHT))
    )

    assert (percent.bounds, few.bounds) == ((0.0, 100.0), (0.0, 1.0))
    assert percent.measure.scale_from == "observed"
    assert "acc, not on its usual scale (0 to 1): taken as" in percent.notes[0]
    assert strays(few.scores, (0.0, 1.0)) == (1, (7.0,))
    assert strays(np.array([0.0, 100 + 5e-8]), (0.0, 100.0)) is None  # a rounding error


def test_equal_scores_on_no_known_scale_have_no_interval() -> None:
    """Rather than one of no width; on a known scale they have one inside it."""
    [free] = es.intervals(es.ResponseMatrix.from_array(np.full((1, 20), 1000.0)))
    [known] = es.intervals(es.ResponseMatrix.from_array(np.full((1, 20), 100.0)))

    assert (free.low, free.high) == (None, None)
    assert "all 20 scores are equal, on a scale that is not known" in free.notes[0]
    assert known.low is not None
    assert known.low < known.high == 100.0  # type: ignore[operator]


def test_many_stray_values_are_no_code() -> None:
    """Two may be codes for missing scores."""
    of_two, of_three = (strays(np.array([0, 1, *beyond]), (0, 1)) for beyond in ((7, 9), (7, 8, 9)))

    assert of_two is not None
    assert of_three is not None
    assert "--missing-code 7 leaves such out" in of_two.question("score", "0 to 1")
    assert of_three.question("score", "0 to 1") == (
        "3 values of 7, 8, 9 beyond the scale 0 to 1: --bounds score=LOW,HIGH sets another scale"
    )


@pytest.mark.parametrize(
    ("known", "weighting"),
    [
        ([], "either"),
        ([("acc", "macro", 0.5)], "macro"),
        ([("acc,none", "micro", 0.5)], "micro"),
        # By the same metric first, else by another; of a group that the harness sums up.
        ([("f1", "macro", 0.5)], "macro"),
        ([("f1", "macro", 0.5), ("acc", "micro", 0.5)], "micro"),
        ([("acc", "either", 0.5), ("f1", "parts", 0.5), ("f1", "macro", 0.5)], "parts"),
        ([("acc", "macro", None)], "either"),
    ],
)
def test_how_a_group_weighs_its_tasks_is_what_other_logs_tell(
    known: list[tuple[str, Any, float | None]], weighting: str
) -> None:
    logs = [
        replace(r.measured(metric=metric), groups=(es.Group("g", 0, how, 2, logged),))
        for metric, how, logged in [("acc", "either", 0.5), *known]
        for r in _responses(RIGHT[None])
    ]
    other = replace(logs[0], groups=(es.Group("other", 0, "micro", 2, 0.5),))

    assert settled([*logs, other])[0].groups[0].weighting == weighting
