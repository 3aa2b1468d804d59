"""Records that are built by columns."""

from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.comparisons.rows import Comparison, PowerRow, RankSet
from evalstats_plugin.data.results import records
from evalstats_plugin.irt.bootstrap import Uncertainty
from evalstats_plugin.scores.findings import Findings
from evalstats_plugin.scores.rows import ScoreInterval, VariancePart

SAME = {"task": "t", "metric": "acc", "n_models": 2, "confidence_level": 0.95}


def test_records_from_columns_are_those_of_the_constructor():
    """Equal in every field, defaults included, and as frozen."""
    columns = {"model": ["a", "b"], "best_rank": [1, 2], "worst_rank": [1, 2]}
    expected = [
        RankSet(model=model, best_rank=i, worst_rank=i, **SAME)
        for i, model in enumerate("ab", start=1)
    ]
    found = records(RankSet, columns, SAME)

    assert expected == found
    with pytest.raises(AttributeError):
        found[0].model = "c"


def test_a_field_that_is_nowhere_is_refused():
    """As the constructor would."""
    with pytest.raises(TypeError, match="RankSet needs 'worst_rank'"):
        records(RankSet, {"model": ["a"], "best_rank": [1]}, SAME)


def test_columns_of_different_lengths_are_refused():
    """None of them is cut."""
    with pytest.raises(ValueError, match="unpack"):
        records(RankSet, {"model": ["a", "b"], "best_rank": [1], "worst_rank": [1]}, SAME)


def test_records_from_columns_can_be_sent_and_compared() -> None:
    """They are of the class itself, not of one that looks like it."""
    (found,) = records(RankSet, {"model": ["a"], "best_rank": [1], "worst_rank": [2]}, SAME)

    assert type(found) is RankSet
    assert deepcopy(found) == found == replace(found)
    assert len({found, RankSet(model="a", best_rank=1, worst_rank=2, **SAME)}) == 1


def test_every_class_of_records_can_be_built_by_columns() -> None:
    """Of as many fields as it has."""
    for kind in (ScoreInterval, Comparison, RankSet, VariancePart, PowerRow):
        names = [field.name for field in fields(kind)]
        found = records(kind, {name: [f"{name} 1", f"{name} 2"] for name in names}, {})
        assert found == [kind(**{name: f"{name} {i}" for name in names}) for i in (1, 2)]


def test_results_without_rows_have_columns_only_where_their_class_says_of_what() -> None:
    assert es.Results(()).columns == []
    assert Findings(()).columns == ["problem", "task", "models", "detail", "logs"]


def test_print_shows_the_table_and_its_notes() -> None:
    """As people look at it; what Python itself shows of an object stays short."""
    results = es.intervals(np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, np.nan]]))
    lines = str(results).split("\n")

    assert " ".join(lines[0].split()) == "Model Task Metric n Estimate 95 % interval Method"
    assert "model_1" in lines[3]
    assert lines[-1].startswith("* ") or results.notes == ()
    assert repr(results).startswith("<Results: 2 × ScoreInterval")


def test_what_all_rows_share_is_said_once_and_limits_stay_beside_each_other() -> None:
    """A lower limit that is the same in all rows once left the upper one alone."""
    same = {"recipe": "model", "low": -1.0, "std_error": 0.5, "confidence_level": 0.95,
            "coverage": None, "seconds": 0.0}  # fmt: skip
    rows = [
        Uncertainty(model=name, estimate=at, high=at + 1, **same)
        for name, at in (("a", 0.0), ("b", 1.0))
    ]

    shown = str(es.Results(tuple(rows)))

    assert "95 % interval" in shown
    assert "[-1.0000, 2.0000]" in shown
    assert "in every row: std error 0.5000" in shown
