"""Logs of which most samples were stopped early, on purpose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin import annotate, compare, read
from evalstats_plugin.adapters.inspect_ai.writer import annotate_log
from evalstats_plugin.errors import DesignError, LogError

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "inspect_ai" / "0.3.285"
N_ASKED = 13
TRUE_SCORE = 0.5807
"""Of all 50 items, by the curves that the model answered by: see `run_adaptive.py` there."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of an adaptive test: 13 of 50 items were asked."""
    [source] = (LOGS / "adaptive").glob("*.eval")
    return Path(shutil.copy(source, tmp_path))


def _changed(log: Path, **results: Any) -> Path:
    """Write a log of 5,000 items of which all but 13 were stopped early."""
    from inspect_ai.log import EvalLog, read_eval_log, write_eval_log
    from inspect_ai.util import EarlyStop

    found: EvalLog = read_eval_log(str(log))
    ids = list(range(1, 5_001))
    found.eval.dataset.sample_ids, found.eval.dataset.samples = ids, len(ids)
    assert found.results is not None
    assert found.results.early_stopping is not None
    asked = {sample.id for sample in found.samples or []}
    stops = [EarlyStop(id=i, epoch=1, reason="enough") for i in ids if i not in asked]
    found.results.early_stopping.early_stops = stops
    for name, value in results.items():
        setattr(found.results.early_stopping, name, value)
    write_eval_log(found, str(log))
    return log


def test_a_few_items_of_a_large_task_are_a_log_all_the_same(log: Path) -> None:
    """So few samples would be no log of an evaluation if nobody had stopped the others."""
    [found] = read(_changed(log)).responses
    assert N_ASKED == len(found.item_ids)
    with pytest.raises(LogError, match="most items must be in each epoch"):
        read(_changed(log, early_stops=[])).matrix()


def test_the_early_stopping_of_others_is_told_too(log: Path) -> None:
    """Not ours, so what it chose by is not known."""
    [found] = read(_changed(log, manager="somebody")).responses

    assert ("4,987 samples stopped early, which may favour some items",) == found.notes
    assert found.population is None


def test_an_adaptive_test_without_predictions_of_items_is_not_compared(log: Path) -> None:
    """As its version logged it; with them, tests/adaptive/test_predicted_scores.py compares."""
    other = min((LOGS / "models").glob("*_arith_*"))

    with pytest.raises(DesignError, match="no predictions of single items: run it again"):
        compare(read(log, other, metric="match"))


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_annotation_and_its_removal(log: Path) -> None:
    """The header shows the predicted score with its bounds; a second time changes nothing."""
    from inspect_ai.log import read_eval_log

    original = read_eval_log(str(log), header_only=True)
    annotate(log, in_place=True)
    once = log.read_bytes()
    annotate(log, in_place=True)
    assert once == log.read_bytes()
    header = read_eval_log(str(log), header_only=True)
    assert header.results is not None
    assert header.results.early_stopping is not None
    assert header.metadata is not None
    found: Any = header.results.early_stopping.metadata
    shown = header.results.scores[0].metrics
    values = [shown[name].value for name in shown if name.startswith("evalstats_full_score")]
    score = found["full_score"]

    assert [score["estimate"], score["low"], score["high"]] == values
    assert score["low"] < TRUE_SCORE < score["high"]
    said = header.metadata["evalstats_summary"]
    assert "13 of 50 items asked adaptively: std_error 0.440 ≤ 0.45); match 0.552" in said
    assert found["stopped"] in json.dumps(header.metadata["evalstats"], ensure_ascii=False)
    assert "trace" not in header.metadata["evalstats"]["adaptive"]

    annotate_log(log, None, log)
    left = read_eval_log(str(log), header_only=True)
    assert left.results is not None
    assert original.results is not None
    assert original.results.scores == left.results.scores
