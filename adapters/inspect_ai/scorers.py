"""What was scored: scorers, the keys of those that give several values, and their logged values."""
# PART columns - Item statistics as columns of the viewer's sample list: a score of their own, declared.

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from evalstats_plugin.adapters.inspect_ai.archive.guard import printable
from evalstats_plugin.adapters.inspect_ai.archive.takes import is_unscored

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalScore
    from inspect_ai.viewer import ViewerConfig

    from evalstats_plugin.adapters.inspect_ai.archive.takes import Take


AVERAGES = ("accuracy", "mean")
"""Metrics that are the mean of the scores."""


SCORE = "evalstats_item"
"""Name of the score, in samples and among the header's scorers."""


VIEW = "evalstats"
"""Name of the sample list's view, by which we know our own."""


class Scorer(NamedTuple):
    """A scorer, or one key of a scorer that gives several values."""

    name: str
    key: str | None = None

    @property
    def label(self) -> str:
        """The name of the metric: ``"match"``, ``"rubric:style"``."""
        return printable(self.name if self.key is None else f"{self.name}:{self.key}")

    def is_of(self, score: EvalScore) -> bool:
        """Whether a logged result is of this scorer."""
        return of_result(score) == self

    def value_in(self, take: Take) -> Any:
        """Return its value as logged; NaN where there is none."""
        value = take.scores.get(self.name, math.nan)
        if self.key is None:
            return value
        # Where a dict was expected and something else is, nothing of it is this key's.
        return value.get(self.key, math.nan) if isinstance(value, Mapping) else math.nan  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def of_result(score: EvalScore) -> Scorer:
    """Return the scorer a logged result is of."""
    return Scorer(score.scorer, None if score.name == score.scorer else score.name)


def scorers_of(log: EvalLog, takes: Iterable[Take] = ()) -> list[Scorer]:
    """Return what the header and the samples between them were scored by, in order."""
    found = dict.fromkeys(of_result(s) for s in (log.results.scores if log.results else ()))
    if not found:
        found.update(dict.fromkeys(Scorer(s.name) for s in log.eval.scorers or ()))
    plain: set[str] = set()
    keyed: set[str] = set()
    for take in takes:
        for name, value in take.scores.items():
            if isinstance(value, Mapping):
                keyed.add(name)
                found.update(dict.fromkeys(Scorer(name, str(k)) for k in value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            elif not is_unscored(value):
                plain.add(name)
                found.setdefault(Scorer(name))
    # A scorer that gives several values has no value of its own, whatever the header says of it.
    # What we wrote about an item beside its scores is no metric of the task.
    found = [s for s in found if s.name != SCORE]
    return [s for s in found if s.key is not None or s.name not in keyed - plain]


class Logged(NamedTuple):
    """What the header says a scorer's mean is."""

    value: float | None = None
    std_error: float | None = None
    n: int | None = None
    is_accuracy: bool = False
    notes: tuple[str, ...] = ()


def logged_of(log: EvalLog, scorer: Scorer) -> Logged:
    """Return the logged mean over items of the mean over epochs, and what else was logged."""
    results = [s for s in (log.results.scores if log.results else ()) if scorer.is_of(s)]
    others = sorted({str(s.reducer) for s in results} - {"None", "mean"})
    notes = (f"epochs are also reduced by {', '.join(others)} in the log",) if others else ()
    grouped = {
        str(m.params["group_key"]) for s in results for m in s.metrics.values()
        if m.params and m.params.get("group_key")
    }  # fmt: skip
    if grouped:
        notes = (*notes, f"the log also has values by {', '.join(sorted(grouped))}")
    notes = tuple(printable(note) for note in notes)
    means = [s for s in results if s.reducer == "mean"] or [s for s in results if not s.reducer]
    if not means:
        return Logged(notes=notes)
    by_name = {m.name.rpartition("/")[2]: m for m in means[0].metrics.values() if m.group is None}
    mean = next((by_name[name] for name in AVERAGES if name in by_name), None)
    stderr = by_name.get("stderr")
    return Logged(
        value=None if mean is None else float(mean.value),
        std_error=None if stderr is None else float(stderr.value),
        n=means[0].scored_samples,
        is_accuracy="accuracy" in by_name,
        notes=notes,
    )


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
