"""Columns for ``evals_df`` and ``samples_df``: what an annotation holds, one number per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

# Whoever imports this module works with Inspect's data frames.
from inspect_ai.analysis import Column, EvalColumn, SampleColumn  # noqa: TID253

from evalstats_plugin.adapters.inspect_ai.payload import KEY
from evalstats_plugin.runs import is_model

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalSampleSummary

ITEM_PREFIX = "evalstats_"
"""Of what is known of an item, in its sample's metadata."""

HEADLINE = "score_headline"
"""What Inspect calls the one score that stands for an eval."""

Record = Mapping[str, Any]
Number = float | int | str | None


def headline_metrics(scorer: object, score: object) -> tuple[str, ...]:
    """Return what a score may be called as a metric: scorer and key, or the scorer alone."""
    return f"{scorer}:{score}", f"{score}", f"{scorer}"


def pick(rows: Sequence[Record], metrics: Sequence[str]) -> Record:
    """Return the row of the first of these metrics that has one; of no metrics, the first row."""
    by_metric: dict[str, Record] = {}
    for row in rows:
        by_metric.setdefault(str(row.get("metric")), row)
    found = (by_metric[metric] for metric in metrics if metric in by_metric)
    return next(found, rows[0] if rows and not metrics else {})


def offsets(record: Record, of: str) -> dict[str, float | None]:
    """Return how far below and above an estimate its limits lie."""
    estimate, low, high = record.get(of), record.get("low"), record.get("high")
    if estimate is None or low is None or high is None:
        return {"minus": None, "plus": None}
    return {"minus": estimate - low, "plus": high - estimate}


def _block(log: EvalLog) -> Record:
    block = (log.metadata or {}).get(KEY)
    return cast(Record, block) if isinstance(block, dict) else {}


def _rows(log: EvalLog, part: str) -> list[Record]:
    # Nobody promises that the metadata of a log is ours, or still as it was written.
    rows = _block(log).get(part)
    if not isinstance(rows, list):
        return []
    return [cast(Record, row) for row in cast(list[Any], rows) if isinstance(row, dict)]


def _of_headline(log: EvalLog, part: str) -> Record:
    rows = _rows(log, part)
    if part == "comparisons":
        rows = [row for row in rows if is_model(str(row.get("model_b")), log.eval.model)]
    # Logs of Inspect before it had headline metrics: the first score stands for the eval.
    headline = getattr(log.results, "headline", None)
    if headline is None:
        return pick(rows, ())
    # Ours is the interval of a mean: it says nothing of pass@k or of the best of k.
    if headline.reducer not in (None, "mean"):
        return {}
    return pick(rows, headline_metrics(headline.scorer, headline.score))


def _headline(log: EvalLog, *, part: str, key: str, of: str) -> Number:
    record = _of_headline(log, part)
    return offsets(record, of)[key] if key in ("minus", "plus") else record.get(key)


def _every_metric(log: EvalLog) -> dict[str, dict[str, Number]]:
    names = ("estimate", "low", "high", "std_error", "n_items", "n_missing", "method")
    return {
        str(row.get("metric")): {name: row.get(name) for name in names}
        for row in _rows(log, "intervals")
        if row.get("kind") == "task"
    }


def _item(sample: EvalSample | EvalSampleSummary) -> dict[str, Any]:
    return {
        name.removeprefix(ITEM_PREFIX): value
        for name, value in (sample.metadata or {}).items()
        if name.startswith(ITEM_PREFIX)
    }


def _interval(name: str, key: str) -> Column:
    read = partial(_headline, part="intervals", key=key, of="estimate")
    return EvalColumn(f"{HEADLINE}_{name}", path=read)


def _comparison(name: str, key: str) -> Column:
    read = partial(_headline, part="comparisons", key=key, of="difference")
    return EvalColumn(f"{HEADLINE}_{name}", path=read)


EvalStatsColumns: list[Column] = [
    EvalColumn("evalstats_version", path=f"metadata.{KEY}.evalstats_plugin_version"),
    EvalColumn("evalstats_confidence_level", path=f"metadata.{KEY}.confidence_level"),
    _interval("estimate", "estimate"),
    _interval("ci_low", "low"),
    _interval("ci_high", "high"),
    _interval("ci_minus", "minus"),
    _interval("ci_plus", "plus"),
    _interval("ci_method", "method"),
    _interval("n_items", "n_items"),
    _interval("n_missing", "n_missing"),
    EvalColumn("evalstats_*_*", path=_every_metric),
]
"""The headline score's interval, and every score's as ``evalstats_SCORE_low`` and so on."""

ComparisonColumns: list[Column] = [
    _comparison("baseline", "model_a"),
    _comparison("difference", "difference"),
    _comparison("difference_low", "low"),
    _comparison("difference_high", "high"),
    _comparison("difference_ci_minus", "minus"),
    _comparison("difference_ci_plus", "plus"),
    _comparison("p_value", "p_value"),
    _comparison("p_adjusted", "p_adjusted"),
    _comparison("prob_better", "prob_better"),
]
"""The headline score's paired difference from the baseline model; empty for the baseline."""

ItemStatsColumns: list[Column] = [SampleColumn("item_*", path=_item)]
"""What is known of each item: metadata ``evalstats_difficulty`` as ``item_difficulty``, ..."""
