"""Columns and operations for the data frames of ``inspect_ai.analysis``.

::

    evals = evals_df("logs", columns=EvalInfo + EvalModel + EvalStatsColumns)
    evals = prepare(evals_df("logs"), [add_intervals(), paired_vs("openai/m")])

Columns read annotations in logs; operations compute from the logs in a frame's ``log`` column. Both
give, with the limits of an interval, their distances from the estimate (``..._ci_minus``,
``..._ci_plus``), which Inspect Viz draws; `viz_limits` draws the limits in its ready views.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inspect_ai.analysis import Column, EvalColumn, Operation, SampleColumn

from evalstats_plugin.adapters.inspect_ai.archive.guard import KEY
from evalstats_plugin.adapters.inspect_ai.estimands import annotated_rows, headline_row
from evalstats_plugin.adapters.inspect_ai.writer import PREFIX
from evalstats_plugin.data.runs import is_model
from evalstats_plugin.errors import SelectionError, few

if TYPE_CHECKING:
    import pandas as pd
    from inspect_ai.log import EvalLog, EvalSample, EvalSampleSummary

    from evalstats_plugin.data.responses import Responses


LOG = "log"
"""Column with the location of a row's log, in frames of evals and of samples."""

Record = Mapping[str, Any]

_INTERVAL = {
    "estimate": "estimate",
    "ci_low": "low",
    "ci_high": "high",
    "ci_minus": "minus",
    "ci_plus": "plus",
}

_COMPARISON = {
    "difference": "difference",
    "difference_low": "low",
    "difference_high": "high",
    "difference_ci_minus": "minus",
    "difference_ci_plus": "plus",
    "p_value": "p_value",
    "p_adjusted": "p_adjusted",
    "prob_better": "prob_better",
}

HEADLINE = "score_headline"
"""Inspect's name of the one score that represents an eval."""

Number = float | int | str | None


def add_intervals(
    method: str = "auto", *, confidence_level: float = 0.95, metric: str | None = None
) -> Operation:
    """Add the interval of each log's score, computed from its samples.

    Adds ``score_headline_estimate``, ``..._ci_low``, ``..._ci_high``, ``..._ci_minus`` and
    ``..._ci_plus``: plain numbers, NaN where a log has no scores.

    Parameters
    ----------
    method, confidence_level
        As for `evalstats_plugin.intervals`.
    metric
        Which score: a scorer, or ``"scorer:key"``; the columns are then named after it. Default:
        the headline score if the frame names it, else the first.
    """

    def rows_of(by_log: Mapping[str, Sequence[Responses]]) -> dict[str, list[Record]]:
        from evalstats_plugin.scores.intervals import intervals

        records: dict[str, list[Record]] = {}
        for location, responses in by_log.items():
            rows = intervals(responses, method=method, confidence_level=confidence_level, rng=0)
            records[location] = [r for r in rows.to_dict() if r["kind"] == "task"]
        return records

    return partial(_with_columns, rows_of=rows_of, metric=metric, names=_INTERVAL, of="estimate")


def paired_vs(
    baseline: str | None = None, *, confidence_level: float = 0.95, metric: str | None = None
) -> Operation:
    """Add each model's paired difference from a baseline model on the same task.

    Adds ``score_headline_difference``, ``..._difference_low``, ``..._difference_high``,
    ``..._difference_ci_minus``, ``..._difference_ci_plus``, ``..._p_value``, ``..._p_adjusted``
    and ``..._prob_better``: NaN for the baseline itself. Adjusted p-values account for all the
    models compared on one task.

    Parameters
    ----------
    baseline
        Name of a model. Default: the model of the first log.
    confidence_level
        As for `evalstats_plugin.intervals`.
    metric
        As for `add_intervals`.
    """

    def rows_of(by_log: Mapping[str, Sequence[Responses]]) -> dict[str, list[Record]]:
        from evalstats_plugin.logs.together import Crossed

        crossed = Crossed(by_log, baseline, confidence_level=confidence_level)
        records: dict[str, list[Record]] = {}
        for location, responses in by_log.items():
            models = {r.model for r in responses}
            about = crossed.of_log(location)
            rows = about.to_dict() if about else []
            records[location] = [r for r in rows if r["model_b"] in models]
        return records

    return partial(
        _with_columns, rows_of=rows_of, metric=metric, names=_COMPARISON, of="difference"
    )


def viz_limits(
    data: Any, *, y: str = "model_display_name", score: str = HEADLINE, **options: Any
) -> Any:
    """Return a mark of Inspect Viz that draws our limits in one of its ready views of scores.

    The views compute limits from a standard error, which are as far above a score as below it, and
    beyond 0 and 1 for a perfect one. Leave these out (``ci=False``) and pass this mark::

        data = Data.from_dataframe(prepare(evals_df("logs"), [model_info(), add_intervals()]))
        scores_by_model(data, ci=False, marks=viz_limits(data))

    Parameters
    ----------
    data
        The data of the view, with the columns of `add_intervals` or `EvalStatsColumns`.
    y
        Column by which the view has rows: that of the model, or the factor of `scores_by_factor`
        (with ``fy="model"``).
    score
        What the columns of limits are named after.
    options
        Of the mark, ``inspect_viz.mark.rule_y``.

    Raises
    ------
    SelectionError
        The data has no such columns.
    """
    mark: Any = import_module("inspect_viz.mark")
    low, high = f"{score}_ci_low", f"{score}_ci_high"
    if missing := [name for name in (low, high, y) if name not in data.columns]:
        raise SelectionError(
            f"the data has no column {few(missing)}: add limits by add_intervals(), and name the "
            "view's column of models as y"
        )
    style = {"stroke": "#416AD040", "stroke_width": 15}
    return mark.rule_y(data, x1=low, x2=high, y=y, **(style | options))


def _with_columns(
    df: pd.DataFrame,
    *,
    rows_of: Callable[[Mapping[str, Sequence[Responses]]], Mapping[str, Sequence[Record]]],
    metric: str | None,
    names: Mapping[str, str],
    of: str,
) -> pd.DataFrame:
    """Return a copy with a column of plain numbers for each name, of the rows of each log."""
    import pandas as pd

    from evalstats_plugin.adapters.inspect_ai.live import read_each

    if df.empty:
        return df
    if LOG not in df.columns:
        msg = f"Column '{LOG}' not found in DataFrame: it says where the log of each row lies"
        raise ValueError(msg)
    by_log = read_each([str(location) for location in df[LOG].unique()])
    records = rows_of(by_log)
    values = {log: [v for r in each for v in r.values()] for log, each in by_log.items()}
    metrics = dict.fromkeys(v.metric for each in values.values() for v in each)
    if metric is not None and metrics and metric not in metrics:
        msg = f"no metric is called {metric!r} in these logs; there are: {', '.join(metrics)}"
        raise SelectionError(msg)
    prefix = HEADLINE if metric is None else f"score_{metric}"
    # What the frame says of each log's headline; Inspect has the score's column from 0.3.261.
    nothing = [None] * len(df)
    headlines = (
        df[name].astype(object).where(df[name].notna(), None) if name in df.columns else nothing
        for name in (f"{HEADLINE}_name", f"{HEADLINE}_score", f"{HEADLINE}_value")
    )
    chosen: list[Record] = []
    for location, scorer, score, value in zip(df[LOG], *headlines, strict=True):
        of_log = values.get(str(location), ())
        name = metric if metric is not None else _name_of(scorer, score, value, of_log)
        rows = [row for row in records.get(str(location), ()) if row["metric"] == name]
        chosen.append({**rows[0], **offsets(rows[0], of)} if rows else offsets({}, of))
    df = df.copy()
    for name, key in names.items():
        column = [record.get(key) for record in chosen]
        df[f"{prefix}_{name}"] = pd.Series(column, index=df.index, dtype="float64")
    return df


def _name_of(
    scorer: str | None, score: str | None, value: float | None, values: Sequence[Responses]
) -> str | None:
    """Return the name of the row that holds a headline; None if none does.

    A frame does not say how epochs were reduced, or which group of items a value summarises: the
    logged value decides. Without a headline it is the first row.
    """
    if scorer is None and score is None:
        return values[0].metric if values else None
    if score is None:
        own = [v for v in values if re.split("[:/]", v.metric)[0] == scorer]
    else:
        own = [v for v in values if v.metric.partition("/")[0] in (f"{scorer}:{score}", score)]
    if value is not None:
        own = [v for v in own if v.logged is not None and math.isclose(v.logged, value)]
    return own[0].metric if own else None


def offsets(record: Record, of: str) -> dict[str, float | None]:
    """Return the distances of the limits below and above an estimate."""
    estimate, low, high = record.get(of), record.get("low"), record.get("high")
    if estimate is None or low is None or high is None:
        return {"minus": None, "plus": None}
    return {"minus": estimate - low, "plus": high - estimate}


def _headline(log: EvalLog, *, part: str, key: str, of: str) -> Number:
    name = headline_row(log)
    rows = [row for row in annotated_rows(log, part) if row.get("metric") == name]
    if part == "comparisons":
        rows = [row for row in rows if is_model(str(row.get("model_b")), log.eval.model)]
    record = rows[0] if rows else {}
    return offsets(record, of)[key] if key in ("minus", "plus") else record.get(key)


def _every_metric(log: EvalLog) -> dict[str, dict[str, Number]]:
    names = ("estimate", "low", "high", "std_error", "n_items", "n_missing", "method")
    return {
        str(row.get("metric")): {name: row.get(name) for name in names}
        for row in annotated_rows(log, "intervals")
        if row.get("kind") == "task"
    }


def _item(sample: EvalSample | EvalSampleSummary) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX): value
        for name, value in (sample.metadata or {}).items()
        if name.startswith(PREFIX)
    }


def _columns(names: Mapping[str, str], part: str, of: str) -> list[Column]:
    """Return a column of the headline score for each name, from a part of the annotation."""
    return [
        EvalColumn(f"{HEADLINE}_{name}", path=partial(_headline, part=part, key=key, of=of))
        for name, key in names.items()
    ]


EvalStatsColumns: list[Column] = [
    EvalColumn("evalstats_version", path=f"metadata.{KEY}.evalstats_plugin_version"),
    EvalColumn("evalstats_confidence_level", path=f"metadata.{KEY}.confidence_level"),
    *_columns(
        _INTERVAL | {"ci_method": "method", "n_items": "n_items", "n_missing": "n_missing"},
        "intervals",
        of="estimate",
    ),
    EvalColumn("evalstats_*_*", path=_every_metric),
]
"""The headline score's interval, and every score's as ``evalstats_SCORE_low`` and so on."""

ComparisonColumns: list[Column] = _columns(
    {"baseline": "model_a"} | _COMPARISON, "comparisons", of="difference"
)
"""The headline score's paired difference from the baseline model; empty for the baseline."""

ItemStatsColumns: list[Column] = [SampleColumn("item_*", path=_item)]
"""Statistics of each item: metadata ``evalstats_difficulty`` as ``item_difficulty`` and so on."""
