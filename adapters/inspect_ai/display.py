"""The visible part of an annotation: bounds among the metrics of a log's header.

Inspect's viewer shows them beside the score and offers them as columns of its log list. They are
lost when somebody lets Inspect recompute the metrics; annotating again brings them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from evalstats_plugin.adapters.inspect_ai.early_stops import found_in
from evalstats_plugin.results import Intervals, ScoreInterval

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalMetric, EvalScore

GROUP = "evalstats"
PREFIX = "evalstats_"
_SHOWN_IN_HEADER = 5


def with_display(log: EvalLog, intervals: Intervals | None) -> EvalLog:
    """Return the log with the intervals' bounds in its header (None: without), or the same."""
    if log.results is None:
        return log
    rows = {row.metric: row for row in intervals or () if row.kind == "task"}
    found = found_in(log) if intervals is not None else None
    results = log.results.model_copy(deep=True)
    for score in results.scores:
        score.metrics = {k: m for k, m in score.metrics.items() if not _is_ours(k, m)}
    for label, score in averages(results.scores):
        if found is not None and label == found["metric"]:
            # Not bounds of the mean: items were chosen for what they tell.
            score.metrics = _placed(score.metrics, _predicted(found))
        elif label in rows:
            score.metrics = _placed(score.metrics, _bounds(rows[label]))
    before = [list(score.metrics.items()) for score in log.results.scores]
    after = [list(score.metrics.items()) for score in results.scores]
    return log if before == after else log.model_copy(update={"results": results})


def averages(scores: Iterable[EvalScore]) -> list[tuple[str, EvalScore]]:
    """Return the scores that are means over epochs, with their metric's name.

    A task may reduce epochs in several ways; an interval of the mean is not one of pass@k.
    """
    found: dict[str, EvalScore] = {}
    for score in scores:
        label = score.name if score.name == score.scorer else f"{score.scorer}:{score.name}"
        if score.reducer == "mean" or (score.reducer is None and label not in found):
            found[label] = score
    return list(found.items())


def _is_ours(key: str, metric: EvalMetric) -> bool:
    return metric.group == GROUP and key.startswith(PREFIX)


def _bounds(row: ScoreInterval) -> dict[str, EvalMetric]:
    from inspect_ai.log import EvalMetric

    if row.low is None or row.high is None:
        return {}
    level = f"{100 * row.confidence_level:g}"
    params = {"level": row.confidence_level, "method": row.method}
    return {
        f"{PREFIX}ci{level.replace('.', '_')}_{bound}": EvalMetric(
            name=f"ci{level} {bound}", group=GROUP, value=value, params=params
        )
        for bound, value in (("lo", row.low), ("hi", row.high))
    }


def _predicted(found: Mapping[str, Any]) -> dict[str, EvalMetric]:
    """Return the score of all items that an adaptive test predicts, and its bounds."""
    from inspect_ai.log import EvalMetric

    level = f"{100 * found['confidence_level']:g}"
    names = {
        "full_score": ("full score", "estimate"),
        f"full_score_ci{level.replace('.', '_')}_lo": (f"full ci{level} lo", "low"),
        f"full_score_ci{level.replace('.', '_')}_hi": (f"full ci{level} hi", "high"),
    }
    params = {"items": found["n_items"], "of": found["n_in_bank"], "stopped": found["stopped"]}
    return {
        f"{PREFIX}{key}": EvalMetric(
            name=name, group=GROUP, value=found["full_score"][part], params=params
        )
        for key, (name, part) in names.items()
    }


def _placed(
    metrics: Mapping[str, EvalMetric], bounds: Mapping[str, EvalMetric]
) -> dict[str, EvalMetric]:
    """Put the bounds after the metrics that start the header, so that it shows both of them.

    Never first: what comes first is what log lists and leaderboards take for the score.
    """
    items = list(metrics.items())
    place = 0
    while place < len(items) and items[place][1].group is None:
        place += 1
    # Metrics that form a group from the start stay together.
    place = min(place, _SHOWN_IN_HEADER - len(bounds)) or len(items)
    return dict([*items[:place], *bounds.items(), *items[place:]])
