"""Records that are built by columns."""

import pytest

from evalstats_plugin.results import RankSet, records

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
