"""Options of a test are checked before any item is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import SCORE_WIDTH, STD_ERROR, Plan
from evalstats_plugin.adaptive.stopping import Items, ScoreWidth, StdError
from evalstats_plugin.errors import DesignError, EvalStatsError

BANK = ItemBank.from_arrays(
    np.ones(5), np.arange(5.0), models=("old",), abilities=np.zeros(1), scores=np.zeros(1)
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_item": 3}, "did you mean max_items"),
        ({"stop_at": "small"}, "stop_at 'small' is not a number: give a number"),
        ({"batch": True}, "batch True is not a number: give a number"),
        ({"batch": 0}, "batch 0 is not above 0: choose a larger one"),
        ({"stop_at": -1}, "stop_at -1 is not above 0: choose a larger one"),
        ({"reliability": 2}, "reliability 2 is not between 0 and 1: choose one such as 0.9"),
        ({"budget": 3}, "the bank has no costs of items: limit the number of items instead"),
        ({"goal": "compare:new"}, "no model is called 'new'"),
        ({"goal": "compare:old", "rule": "kl"}, "a comparison needs them drawn by chance"),
        ({"goal": "top:3"}, "no goal is called 'top:3'"),
        ({"seed": 1.5}, "seed 1.5 is not a whole number from 0 on"),
        ({"seed": -1}, "seed -1 is not a whole number from 0 on"),
        ({"confidence_level": 95}, "confidence_level 95 is not between 0 and 1"),
    ],
)
def test_options_out_of_range_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """With the problem and the fix."""
    path = BANK.save(tmp_path / "bank.parquet")
    with pytest.raises(EvalStatsError) as raised:
        Plan.of({"bank": path, **options}).load()
    assert message in str(raised.value)


def test_without_a_rule_a_narrow_score_ends_a_test() -> None:
    """Of an ability its standard error; with another rule neither does."""
    assert (ScoreWidth(SCORE_WIDTH),) == Plan(bank="").rules(BANK)
    assert (StdError(STD_ERROR),) == Plan(bank="", goal="ability").rules(BANK)
    assert (Items(3),) == Plan(bank="", max_items=3).rules(BANK)
    of_numpy: Any = np.int64(3)
    assert (Items(3),) == Plan(bank="", max_items=of_numpy, seed=of_numpy).rules(BANK)


def test_items_are_scored_by_the_metrics_of_the_calibration() -> None:
    """Unless the plan names another; a bank may not know."""
    known = ItemBank.from_arrays([1.0], [0.0], provenance={"metrics": ["acc"]})
    assert ("acc",) == Plan(bank="").metrics(known)
    assert ("f1",) == Plan(bank="", metric="f1").metrics(known)
    assert () == Plan(bank="").metrics(BANK)


def test_a_bank_of_items_that_may_not_be_asked_is_refused(tmp_path: Path) -> None:
    """With the reasons."""
    path = BANK.without(np.ones(5, dtype=bool), "misfit").save(tmp_path / "bank.parquet")
    with pytest.raises(DesignError, match=r"misfit \(5\)"):
        Plan(bank=path).load()
