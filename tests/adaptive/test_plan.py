"""What people ask of a test is checked before anything is asked of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import STD_ERROR, Plan
from evalstats_plugin.adaptive.stopping import Items, StdError
from evalstats_plugin.errors import DesignError, EvalStatsError, SelectionError

BANK = ItemBank.from_arrays(
    np.ones(5), np.arange(5.0), models=("old",), abilities=np.zeros(1), scores=np.zeros(1)
)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_item": 3}, "did you mean max_items"),
        ({"stop_at": "small"}, "stop_at of 'small' found, expected a number"),
        ({"batch": True}, "batch of True found, expected a number"),
        ({"stop_at": -1}, "stop_at of -1 found, expected a number above 0"),
        ({"reliability": 2}, "reliability of 2 found, expected a number between 0 and 1"),
        ({"budget": 3}, "does not know what items cost"),
        ({"above": "new"}, "no model is called 'new'"),
        ({"confidence_level": 95}, "confidence_level of 95 found"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    """With what was found and what was expected."""
    path = BANK.save(tmp_path / "bank.parquet")
    with pytest.raises(EvalStatsError) as raised:
        Plan.of({"bank": path, **options}).load()
    assert said in str(raised.value)


def test_a_batch_of_none_is_refused() -> None:
    """As a session would never ask anything."""
    with pytest.raises(SelectionError, match="batch of 0"):
        Plan(bank="", batch=0).session(BANK)


def test_without_a_rule_the_standard_error_ends_a_test() -> None:
    """With another rule it does not."""
    assert (StdError(STD_ERROR),) == Plan(bank="").rules(BANK)
    assert (Items(3),) == Plan(bank="", max_items=3).rules(BANK)


def test_items_are_scored_by_what_they_were_calibrated_on() -> None:
    """Unless somebody says otherwise; a bank may not know."""
    known = ItemBank.from_arrays([1.0], [0.0], provenance={"metrics": ["acc"]})
    assert ("acc",) == Plan(bank="").metrics(known)
    assert ("f1",) == Plan(bank="", metric="f1").metrics(known)
    assert () == Plan(bank="").metrics(BANK)


def test_a_bank_of_items_that_may_not_be_asked_is_refused(tmp_path: Path) -> None:
    """With the reasons."""
    path = BANK.without(np.ones(5, dtype=bool), "misfit").save(tmp_path / "bank.parquet")
    with pytest.raises(DesignError, match=r"misfit \(5\)"):
        Plan(bank=path).load()
