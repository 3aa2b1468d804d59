"""Columns and operations for the data frames of ``inspect_ai.analysis``.

::

    evals = evals_df("logs", columns=EvalInfo + EvalModel + EvalStatsColumns)
    evals = prepare(evals_df("logs"), [add_intervals(), paired_vs("openai/m")])

The columns read what annotations hold; the operations compute anew from the logs that a frame's
``log`` column names. Both put beside the limits of an interval their distances from the estimate
(``..._ci_minus``, ``..._ci_plus``), which is what Inspect Viz draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

# Whoever imports this module works with Inspect's data frames.
from inspect_ai.analysis import Operation  # noqa: TID253

from evalstats_plugin.adapters.inspect_ai.frame_columns import (
    HEADLINE,
    ComparisonColumns,
    EvalStatsColumns,
    ItemStatsColumns,
    headline_metrics,
    offsets,
    pick,
)
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ComparisonColumns",
    "EvalStatsColumns",
    "ItemStatsColumns",
    "add_intervals",
    "paired_vs",
]

LOG = "log"
"""Column that says where the log of a row lies, in the frames of evals and of samples."""

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
        Which score: a scorer, or ``"scorer:key"``; the columns are then called after it. Default:
        the headline score, where the frame names it, else the first.
    """

    def transform(df: pd.DataFrame) -> pd.DataFrame:
        if df.empty:
            return df
        locations = _locations(df)
        from evalstats_plugin.adapters.inspect_ai.crossing import read_each
        from evalstats_plugin.analyses.intervals import intervals

        records: dict[str, list[Record]] = {}
        for location, responses in read_each(locations).items():
            rows = intervals(responses, method=method, confidence_level=confidence_level, rng=0)
            records[location] = [r for r in rows.to_dict() if r["kind"] == "task"]
        return _with_columns(df, records, metric, _INTERVAL, of="estimate")

    return transform


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
        Name of a model. Default: that of the first log.
    confidence_level
        As for `evalstats_plugin.intervals`.
    metric
        As for `add_intervals`.
    """

    def transform(df: pd.DataFrame) -> pd.DataFrame:
        if df.empty:
            return df
        locations = _locations(df)
        from evalstats_plugin.adapters.inspect_ai.crossing import read_each
        from evalstats_plugin.analyses.crossing import Crossed

        found = read_each(locations)
        crossed = Crossed(found, baseline, confidence_level=confidence_level)
        records: dict[str, list[Record]] = {}
        for location, responses in found.items():
            models = {r.model for r in responses}
            about = crossed.of_log(location)
            rows = about.to_dict() if about else []
            records[location] = [r for r in rows if r["model_b"] in models]
        return _with_columns(df, records, metric, _COMPARISON, of="difference")

    return transform


def _locations(df: pd.DataFrame) -> list[str]:
    if LOG not in df.columns:
        msg = f"Column '{LOG}' not found in DataFrame: it says where the log of each row lies"
        raise ValueError(msg)
    return [str(location) for location in df[LOG].unique()]


def _with_columns(
    df: pd.DataFrame,
    records: Mapping[str, Sequence[Record]],
    metric: str | None,
    names: Mapping[str, str],
    *,
    of: str,
) -> pd.DataFrame:
    """Return a copy with a column of plain numbers for each name."""
    import pandas as pd

    if metric is not None:
        _check_metric(metric, {str(r["metric"]): None for rows in records.values() for r in rows})
    prefix = HEADLINE if metric is None else f"score_{metric}"
    chosen: list[Record] = []
    for location, metrics in zip(df[LOG], _metrics(df, metric), strict=True):
        rows = records.get(str(location), ())
        record = pick([r for r in rows if metric in (None, r["metric"])], metrics)
        chosen.append({**record, **offsets(record, of)})
    df = df.copy()
    for name, key in names.items():
        values = [record.get(key) for record in chosen]
        df[f"{prefix}_{name}"] = pd.Series(values, index=df.index, dtype="float64")
    return df


def _check_metric(metric: str, known: Mapping[str, None]) -> None:
    if known and metric not in known:
        msg = f"no metric is called {metric!r} in these logs; there are: {', '.join(known)}"
        raise SelectionError(msg)


def _metrics(df: pd.DataFrame, metric: str | None) -> list[tuple[str, ...]]:
    """Say for each row which metrics are asked for, the most wanted first."""
    columns = [f"{HEADLINE}_name", f"{HEADLINE}_score"]
    if metric is not None or not set(columns) <= set(df.columns):
        return [()] * len(df)
    names: Any = zip(*(df[column] for column in columns), strict=True)
    return [headline_metrics(scorer, score) for scorer, score in names]
