"""Of every value that a bundled log has, how many do our rows equal, and which say why not?"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import evalstats_plugin as es
from evalstats_plugin.logs.withholding import is_printed_as
from evalstats_plugin.scores.rows import ScoreInterval

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"

OLD = "0.3.0"
"""Version of lm-eval whose files say how many items there were nowhere, and are refused."""

NO_VALUE = re.compile(r"alias|sample_len|bypass|name$|.*_stderr")
"""Entries of lm-eval's results that are no values of a metric; bypass writes 999 for none."""


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _lm_eval() -> Iterator[tuple[Path, int]]:
    for path in sorted((LOGS / "lm_eval").rglob("*.json")):
        results = json.loads(path.read_text()).get("results")
        if isinstance(results, dict) and OLD not in path.parts:
            entries = [entry for task in results.values() for entry in task.items()]
            yield (
                path,
                sum(
                    _number(value) is not None and not NO_VALUE.match(name)
                    for name, value in entries
                ),
            )


def _inspect() -> Iterator[tuple[Path, int]]:
    from inspect_ai.log import read_eval_log

    spread = {"stderr", "std", "var", "bootstrap_stderr", "lower", "upper"}
    for path in sorted((LOGS / "inspect_ai").rglob("*")):
        if path.suffix == ".eval" or (path.suffix == ".json" and path.name[:2] == "20"):
            log = read_eval_log(str(path), header_only=True)
            scores = log.results.scores if log.results else []
            keys = [key for score in scores for key, metric in score.metrics.items()
                    if metric.name.rpartition("/")[2] not in spread]  # fmt: skip
            yield path, len(keys)


def _every_eval_ever() -> Iterator[tuple[Path, int]]:
    for path in sorted((LOGS / "every_eval_ever").rglob("*.json")):
        held = json.loads(path.read_text())
        if "evaluation_results" in held:
            yield path, len(held["evaluation_results"])


@cache
def _rows(path: Path) -> tuple[ScoreInterval, ...]:
    return es.intervals(es.read(path, runs="all", include_incomplete=True), rng=0).rows


@pytest.mark.needs("inspect_ai")
@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        (_lm_eval, {"equal": 264}),
        # Of an adaptive test the score on all items is predicted; invalidated samples do not count.
        (_inspect, {"equal": 72, "another, and why": 2}),
        (_every_eval_ever, {"equal": 22}),
    ],
    ids=["lm_eval", "inspect_ai", "every_eval_ever"],
)
def test_every_logged_value_has_a_row_that_equals_it_or_says_why_not(
    logs: Any, expected: dict[str, int]
) -> None:
    """All 360; and what has no interval says why."""
    found: Counter[str] = Counter()
    for path, n_logged in logs():
        rows = [row for row in _rows(path) if row.logged is not None]
        assert n_logged == len(rows), path
        for row in rows:
            assert row.logged is not None
            same = row.estimate is not None and is_printed_as(row.estimate, row.logged)
            found["equal" if same else "another, and why" if row.notes else "another"] += 1
            assert row.low is not None or row.notes, row

    assert found == expected
