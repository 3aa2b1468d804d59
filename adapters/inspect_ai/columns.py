"""Item statistics as columns of the viewer's sample list: a score of their own, declared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.viewer import ViewerConfig

SCORE = "evalstats_item"
"""Name of the score, in samples and among the header's scorers."""

VIEW = "evalstats"
"""Name of the sample list's view, by which we know our own."""


def with_columns(log: EvalLog, names: Iterable[str]) -> EvalLog:
    """Return the log with columns for the item statistics (no names: without), or the same.

    Inspect takes a score of a sample that no scorer is declared for as one more scorer, and makes
    an accuracy out of it when it recomputes metrics. A view that the task's author made stays.
    """
    names = list(names)
    spec = log.eval.model_dump()
    scorers: list[dict[str, Any]] = spec["scorers"] or []
    scorers = [s for s in scorers if s["name"] != SCORE]
    viewer = None if _is_ours(log.eval.viewer) else log.eval.viewer
    if names:
        viewer = viewer or _view([s["name"] for s in scorers], names)
        scorers.append({"name": SCORE, "metrics": {"*": [{"name": "inspect_ai/mean"}]}})
    spec |= {"viewer": viewer, "scorers": scorers if scorers or log.eval.scorers else None}
    edited = type(log.eval).model_validate(spec)
    return log if edited == log.eval else log.model_copy(update={"eval": edited})


def _is_ours(viewer: ViewerConfig | None) -> bool:
    views = viewer and viewer.task_samples_view
    return bool(views) and not isinstance(views, list) and views.name == VIEW


def _view(scorers: list[str], names: list[str]) -> ViewerConfig:
    from inspect_ai.viewer import TaskSamplesColumn, TaskSamplesView, ViewerConfig

    columns = [
        *(TaskSamplesColumn(id=each) for each in ("sampleId", "epoch", "input", "target")),
        *(TaskSamplesColumn.score(scorer) for scorer in scorers),
        *(TaskSamplesColumn.score(SCORE, name) for name in names),
    ]
    titles = {name: f"item {name}" for name in names}
    view = TaskSamplesView(name=VIEW, columns=columns, multiline=False, score_labels=titles)
    return ViewerConfig(task_samples_view=view)
