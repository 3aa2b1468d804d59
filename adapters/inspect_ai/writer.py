"""Annotate logs of Inspect: write annotations, and remove them.

An annotation has a visible part, bounds among the metrics of the header (`with_display`), and a
durable part, metadata and a tag with their history (`with_payload`). Statistics of items go into
the samples (`edited`), and on request into a score that the viewer shows as columns
(`with_columns`). Inspect never recomputes metrics here, as that can run a file named in the log.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from evalstats_plugin.adapters.inspect_ai.adaptive import found_in
from evalstats_plugin.adapters.inspect_ai.archive.editing import edit_log
from evalstats_plugin.adapters.inspect_ai.archive.guard import KEY
from evalstats_plugin.adapters.inspect_ai.archive.header import known_empty
from evalstats_plugin.adapters.inspect_ai.archive.members import Sample
from evalstats_plugin.adapters.inspect_ai.estimands import (
    GROUP,
    SCORE,
    STALE,
    Scorer,
    estimands_of,
    headline_row,
    of_result,
)
from evalstats_plugin.adaptive.records import sentence, with_record
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.results import Results
from evalstats_plugin.data.runs import is_model
from evalstats_plugin.errors import counted, few
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.logs.withholding import WITHHELD, as_logged
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.scores.items import AGAINST
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalMetric, LogUpdate
    from inspect_ai.viewer import ViewerConfig

    from evalstats_plugin.hierarchical.rows import CapabilityLevel, Performance
    from evalstats_plugin.irt.rows import Ability


ResultsT = TypeVar("ResultsT", bound=Results[Any])

PREFIX = "evalstats_"
_SHOWN_IN_HEADER = 5
SUMMARY_KEY = "evalstats_summary"
TAG = "evalstats"

EMPTIED = "emptied"
"""Key in our block: what the header had where Inspect now writes empty tags and metadata.

With `PREFIX` also in the metadata of samples that had no metadata or scores.
"""

_VALUE_TAG = re.compile(r"-?\d+\.\d\d \[-?\d*\.\d\d–-?\d*\.\d\d\]")
"""Our second tag: the headline with its interval, ``0.90 [.76–.97]``."""

_NOUGHT = re.compile(r"(?<!\d)0(?=\.)")
"""The digit that limits in the tag go without."""

_MOST_IN_SUMMARY = 6

_AUTHOR = "evalstats_plugin "
"""Author of our entries in the history, followed by the version."""

_LEGENDS = {
    "p": "mean score of all models",
    "n": "number of scored answers",
    "right": "share of answers with the greatest score",
    "z": "standard deviations from the mean item",
    "difficulty": "ability at which half of the answers are right",
    "discrimination": "how sharply the item tells models apart",
    "capability": "how strongly the item needs it",
    AGAINST: "this model's answer, set against that of",
}
"""What the statistics of items mean, by the end of their names."""

_OUTCOMES: Mapping[str, Literal["good", "bad", "muted"]] = {
    "won": "good", "lost": "bad", "tied": "muted",
}  # fmt: skip
"""Colours of outcomes in the sample list."""

Scalar = str | bool | int | float

Items = Mapping[str, Mapping[str, Scalar]]
"""By ``str(sample id)``: the item's statistics, with names that start with ``evalstats_``."""

VIEW = "evalstats"
"""Name of our view of the sample list."""


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a log with an annotation (None: without any) to ``output``; None if not Inspect's.

    A log in place is not written if nothing changes; header and samples change in one step.
    """
    if annotation is not None:
        # No value in a header is replaced; an annotation says nothing of an earlier one.
        rows = annotation.intervals
        rows = _noted_now(as_logged(rows, annotation.partial) if annotation.rescore else rows)
        pairs = annotation.comparisons and _noted_now(annotation.comparisons)
        annotation = replace(annotation, intervals=rows, comparisons=pairs)
    items: Items | None = {} if annotation is None else annotation.items
    baseline = annotation.baseline if annotation else ""
    shown: list[str] = []
    check_items(items or {})

    def edit_header(log: EvalLog, now: Mapping[str, str]) -> tuple[EvalLog, Mapping[str, str]]:
        # Of a log that is annotated already, what it was like before; the block may be edited.
        block: Any = (log.metadata or {}).get(KEY)
        earlier: Any = (
            cast("dict[str, Any]", block).get(EMPTIED) if isinstance(block, dict) else now
        )
        emptied = known_empty(cast("dict[str, Any]", earlier) if isinstance(earlier, dict) else {})
        header = with_display(
            with_payload(log, annotation, emptied), annotation.intervals if annotation else None
        )
        if items is not None:
            if annotation is not None and annotation.item_columns:
                shown.extend(columns_of(items, headline_row(log)))
            header = with_columns(header, shown, baseline)
        return header, emptied if annotation is None else {}

    def edit_sample(sample: Sample) -> Sample:
        return edited(sample, items or {}, shown, baseline)

    return edit_log(path, output, edit_header, None if items is None else edit_sample)


def _noted_now(results: ResultsT) -> ResultsT:
    """Return results without notes that the log's annotation, to be replaced, is outdated."""
    rows = (
        replace(row, notes=tuple(note for note in row.notes if not note.startswith(STALE)))
        for row in results.rows
    )
    return replace(results, rows=tuple(rows))


def with_display(log: EvalLog, intervals: Intervals | None) -> EvalLog:
    """Return the log with the intervals' bounds in its header (None: without), or the same log.

    Each value that is a mean of all scores has its bounds beside it, and the headline if it is that
    of a group.
    """
    if log.results is None:
        return log
    rows = {row.metric: row for row in intervals or () if row.kind == "task"}
    record = found_in(log) if intervals is not None else None
    results = log.results.model_copy(deep=True)
    for score in results.scores:
        score.metrics = {
            key: metric
            for key, metric in score.metrics.items()
            if metric.group != GROUP or not key.startswith(PREFIX)
        }
    edited = log.model_copy(update={"results": results})
    headline = headline_row(edited)
    for scorer in dict.fromkeys(map(of_result, results.scores)):
        every = list(estimands_of(edited, scorer))
        other = {key for e in every if e.kind == "other" for key in e.keys}
        for estimand in every:
            label, score = estimand.label, estimand.result
            if score is None or not estimand.keys:
                continue
            if record is not None and label == record["metric"]:
                # No bounds of the mean: items had unequal chances to be asked.
                score.metrics = _placed(score.metrics, _predicted(record))
            elif label in rows and (estimand.kind == "scores" or label == headline):
                name = "" if estimand.kind == "scores" else estimand.name
                first = next(iter(score.metrics), "")
                if estimand.kind == "scores" and first in other:
                    # The first value is no mean of the scores: these bounds are of another.
                    name = estimand.keys[0]
                score.metrics = _placed(score.metrics, _bounds(rows[label], name))
    before = [list(score.metrics.items()) for score in log.results.scores]
    after = [list(score.metrics.items()) for score in results.scores]
    return log if before == after else edited


def _placed(
    metrics: Mapping[str, EvalMetric], bounds: Mapping[str, EvalMetric]
) -> dict[str, EvalMetric]:
    """Insert the bounds after the first ungrouped metrics, so that the header shows both of them.

    Never first, because log lists and leaderboards take the first metric for the score.
    """
    items = list(metrics.items())
    place = 0
    while place < len(items) and items[place][1].group is None:
        place += 1
    # If all metrics are in groups, those stay together.
    place = min(place, _SHOWN_IN_HEADER - len(bounds)) or len(items)
    return dict([*items[:place], *bounds.items(), *items[place:]])


def _bounds(row: ScoreInterval, of: str) -> dict[str, EvalMetric]:
    """Return the bounds as metrics, named after the group of items that they are of."""
    if row.low is None or row.high is None:
        return {}
    level = f"{100 * row.confidence_level:g}"
    key, name = (f"{of}_", f"{of} ") if of else ("", "")
    bounds = {
        f"{key}ci{level.replace('.', '_')}_{bound}": (f"{name}ci{level} {bound}", value)
        for bound, value in (("lo", row.low), ("hi", row.high))
    }
    return _as_metrics(bounds, {"level": row.confidence_level, "method": row.method})


def _predicted(record: Mapping[str, Any]) -> dict[str, EvalMetric]:
    """Return the score on all items that an adaptive test predicts, and its bounds."""
    level, score = f"{100 * record['confidence_level']:g}", record["full_score"]
    values = {
        "full_score": ("full score", score["estimate"]),
        f"full_score_ci{level.replace('.', '_')}_lo": (f"full ci{level} lo", score["low"]),
        f"full_score_ci{level.replace('.', '_')}_hi": (f"full ci{level} hi", score["high"]),
    }
    about = {"items": record["n_items"], "of": record["n_in_bank"], "stopped": record["stopped"]}
    return _as_metrics(values, about)


def _as_metrics(
    values: Mapping[str, tuple[str, float]], params: Mapping[str, Any]
) -> dict[str, EvalMetric]:
    """Return values as metrics, from their names in the list by those in the log."""
    from inspect_ai.log import EvalMetric

    return {
        f"{PREFIX}{key}": EvalMetric(name=name, group=GROUP, value=value, params=dict(params))
        for key, (name, value) in values.items()
    }


def with_payload(
    log: EvalLog, annotation: Annotation | None, emptied: Mapping[str, str] | None = None
) -> EvalLog:
    """Return the log with an annotation's block (None: without any), or the same object.

    The block is converted to JSON and back: it must equal what Inspect reads later, or every run
    would add an update to the history. ``emptied`` is written into it, to be restored without it.
    """
    from inspect_ai.log import MetadataEdit, ProvenanceData, TagsEdit, edit_eval_log

    if annotation is None:
        updates = log.log_updates or []
        kept = [update for update in updates if not _is_our_edit(update)]
        if len(kept) < len(updates):
            log = log.model_copy(update={"log_updates": kept or None})
            log.recompute_tags_and_metadata()
        # These remain only if somebody else wrote them.
        tags = TagsEdit(tags_remove=[TAG, *_value_tags(log)])
        metadata = MetadataEdit(metadata_remove=[KEY, SUMMARY_KEY])
        reason = "statistical annotation removed"
    else:
        record = found_in(log)
        block = with_record(annotation.block(), record) | ({EMPTIED: emptied} if emptied else {})
        block = json.loads(json.dumps(block, allow_nan=False))
        headline = headline_row(log)
        text = summary(annotation, headline)
        if record is not None:
            text = f"{sentence(record)}; {text}"
        of_value: list[str] = []
        for row in annotation.intervals:
            if row.metric == headline and None not in (row.estimate, row.low, row.high):
                low, high = (_NOUGHT.sub("", f"{end:.2f}") for end in (row.low, row.high))
                of_value.append(f"{row.estimate:.2f} [{low}–{high}]")
                break
        earlier = [tag for tag in _value_tags(log) if tag not in of_value]
        tags = TagsEdit(tags_add=[TAG, *of_value], tags_remove=earlier)
        metadata = MetadataEdit(metadata_set={SUMMARY_KEY: text, KEY: block})
        reason = "statistical annotation"
    author = f"{_AUTHOR}{VERSION if annotation is None else annotation.version}"
    # Inspect's default, the time of writing, would make two annotations of one log differ.
    when: Any = (log.stats.completed_at if log.stats else "") or log.eval.created
    provenance = ProvenanceData(timestamp=when, author=author, reason=reason)
    return edit_eval_log(log, [tags, metadata], provenance)


def _value_tags(log: EvalLog) -> list[str]:
    """Return the tags of a log that give its value with the interval."""
    return [tag for tag in log.tags if _VALUE_TAG.fullmatch(tag)]


def _is_our_edit(update: LogUpdate) -> bool:
    """Whether an entry of the history is ours, and edits only our annotation."""
    from inspect_ai.log import MetadataEdit, TagsEdit

    names: set[str] = set()
    for edit in update.edits:
        if isinstance(edit, TagsEdit):
            names |= {*edit.tags_add, *edit.tags_remove}
        elif isinstance(edit, MetadataEdit):
            names |= {*edit.metadata_set, *edit.metadata_remove}
    names = {name for name in names if not _VALUE_TAG.fullmatch(name)}
    return update.provenance.author.startswith(_AUTHOR) and names <= {KEY, SUMMARY_KEY, TAG}


def summary(annotation: Annotation, headline: str | None) -> str:
    """Return the intervals and comparisons as one line of text, the headline's first."""
    sentences: list[tuple[bool, str]] = []
    for row in annotation.intervals:
        # A comparison follows the score that it is about.
        about = [c for c in annotation.comparisons or ()
                 if (c.task, c.metric) == (row.task, row.metric)]  # fmt: skip
        texts = [_sentence(row), *(_comparison(c, row.model) for c in about)]
        sentences += [(row.metric != headline, text) for text in texts]
    texts = [text for _, text in sorted(sentences, key=lambda each: each[0])]
    texts += [_ability(row) for row in annotation.abilities or ()]
    texts += [_pooled(row) for row in annotation.pooled or ()]
    texts += [_capability(row) for row in annotation.capabilities or ()]
    shown = texts[:_MOST_IN_SUMMARY]
    if len(texts) > len(shown):
        shown.append(f"and {len(texts) - len(shown)} more")
    return "; ".join(shown) or "no scores"


def _sentence(row: ScoreInterval) -> str:
    if row.estimate is None:
        return f"{row.metric}: no estimate"
    if row.low is None or row.high is None:
        why = next((n for n in row.notes if n.startswith(WITHHELD)), "no interval")
        return f"{row.metric} {row.estimate:.3f}, {why}"
    epochs = f" × {counted(row.n_epochs, 'epoch')}" if row.n_epochs > 1 else ""
    clusters = "" if row.n_clusters is None else f" in {counted(row.n_clusters, 'cluster')}"
    how = f"{100 * row.confidence_level:g} % {row.method}"
    items = f"{counted(row.n_items, 'item')}{epochs}{clusters}"
    return f"{row.metric} {row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}] ({how}, {items})"


def _comparison(row: Comparison, model: str) -> str:
    """Return the verdict on a log's own model, by the p-value adjusted for its family."""
    if row.difference is None or row.low is None or row.high is None:
        return f"{row.model_b} and {row.model_a} cannot be compared"
    simultaneous = row.procedure not in ("", "one pair") and "alone" not in row.procedure
    of_a, of_b = (is_model(each, model) for each in (row.model_a, row.model_b))
    flipped = of_a and not of_b
    sign, other = (-1, row.model_b) if flipped else (1, row.model_a)
    verdict = _OPPOSITE[row.verdict] if flipped else row.verdict
    # Two settings of one model: the reader has to know which is which.
    subject = f"{row.model_b} " if of_a and of_b else ""
    text = (
        f"not distinguishable from {other}" if verdict == "unclear" else f"{verdict} than {other}"
    )
    level = f"{100 * row.confidence_level:g} %{' simultaneous' if simultaneous else ''}"
    # "arith, 3 pairs": what was corrected together.
    family = row.family.rpartition(", ")[2]
    p = "" if row.p_adjusted is None else f", adjusted p {row.p_adjusted:.2g}"
    over = f" over {family}" if p and family else ""
    low, high = sorted((sign * row.low, sign * row.high))
    limits = f"{sign * row.difference:+z.3f} [{low:+z.3f}, {high:+z.3f}]"
    said = f"{subject}{text}: {limits} ({level}, {counted(row.n_items, 'item')}{p}{over})"
    if row.tipping_point is None or row.missing_low is None or row.missing_high is None:
        return said
    low, high = sorted((sign * row.missing_low, sign * row.missing_high))
    return (
        f"{said}, only if scores are missing at random: {low:+z.3f} to {high:+z.3f} whatever they "
        f"were, and it falls if about {100 * row.tipping_point:.0f} % of them go against it"
    )


_OPPOSITE = {"better": "worse", "worse": "better", "unclear": "unclear"}


def _ability(row: Ability) -> str:
    what = f"ability on {row.metric}"
    if row.estimate is None:
        return f"{what}: no estimate"
    limits = "" if row.low is None or row.high is None else f" [{row.low:+.2f}, {row.high:+.2f}]"
    how = f"{row.item_model} {row.estimator}, {counted(row.n_models, 'model')}, {row.scale}"
    return f"{what} {row.estimate:+.2f}{limits} ({how})"


def _pooled(row: Performance) -> str:
    what = f"{row.metric} pooled {'over all tasks' if row.task is None else f'on {row.task}'}"
    if row.estimate is None or row.low is None or row.high is None:
        return f"{what}: no estimate"
    limits = f"[{row.low:.3f}, {row.high:.3f}]"
    return f"{what} {row.estimate:.3f} {limits} (hierarchical {row.method})"


def _capability(row: CapabilityLevel) -> str:
    again = "" if row.found_again is None else f", found again {row.found_again:.2f}"
    what = f"capability {row.capability} of {few(row.tasks)} on {row.metric}"
    return f"{what} {row.level:+.2f} ({counted(row.n_models, 'model')}{again})"


def edited(sample: Sample, items: Items, shown: Sequence[str], baseline: str) -> Sample:
    """Return a sample, or the summary of one, with its statistics and without earlier ones.

    ``shown`` are the columns that the list of samples has of them.
    """
    statistics: dict[str, Any] = dict(items.get(str(sample["id"]), {}))
    metadata: dict[str, Any] = sample.get("metadata") or {}
    scores: dict[str, Any] = sample.get("scores") or {}
    block: Any = metadata.get(PREFIX + EMPTIED)
    noted = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
    # What a field was where Inspect now writes ``{}``: absent, or null.
    emptied: dict[str, str] = {}
    for name in ("metadata", "scores"):
        if sample.get(name) is None:
            emptied[name] = "null" if name in sample else ""
        elif noted.get(name) in ("", "null"):
            emptied[name] = noted[name]
    metadata = {k: v for k, v in metadata.items() if not k.startswith(PREFIX)} | statistics
    scores = {k: v for k, v in scores.items() if k != SCORE}
    # Rounded, because the sample list shows every digit and has little room.
    value = {
        name: round(each, 3) if isinstance(each := statistics[PREFIX + name], float) else each
        for name in shown
        if PREFIX + name in statistics
    }
    if value:
        scores[SCORE] = {"value": value, "explanation": legend_of(value, baseline), "history": []}
    filled = {name: text for name, text in emptied.items() if name == "metadata" or scores}
    if statistics and filled:
        metadata[PREFIX + EMPTIED] = filled
    changed = dict(sample)
    for name, values in (("metadata", metadata), ("scores", scores)):
        text = emptied.get(name)
        if not values and text == "":
            changed.pop(name, None)
        elif values or sample.get(name):
            changed[name] = values or (None if text == "null" else {})
    return changed


def columns_of(items: Items, headline: str | None) -> list[str]:
    """Return the titles of columns with statistics: of one metric, the headline where it has any.

    The statistics of all metrics are in the metadata; the list has no room for dozens of columns.
    """
    names = dict.fromkeys(name.removeprefix(PREFIX) for item in items.values() for name in item)
    of_metrics = {name: name.rpartition("_")[0] for name in names}
    first = next(iter(of_metrics.values()), "")
    metric = headline if headline in of_metrics.values() else first
    return [name for name, of in of_metrics.items() if of == metric]


def legend_of(names: Iterable[str], baseline: str) -> str:
    """Say what the columns with statistics of an item mean."""
    meanings = {
        name: f"{text} {baseline}" if end == AGAINST else text
        for name in names
        if (text := _LEGENDS.get(end := name.rpartition("_")[2].rstrip("0123456789")))
    }
    listed = "; ".join(f"{name}: {text}" for name, text in meanings.items())
    return f"Statistics of this item over all its epochs, by evalstats_plugin. {listed}".strip()


def check_items(items: Items) -> None:
    """Raise `ValueError` on statistics whose name is not ours or whose value is not finite."""
    for item, statistics in items.items():
        for name, value in statistics.items():
            ours = name.startswith(PREFIX)
            if not ours or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(
                    f"item {item!r} has the statistic {name}={value!r}: names start with {PREFIX}, "
                    "and numbers are finite"
                )


def with_columns(log: EvalLog, names: Iterable[str], baseline: str = "") -> EvalLog:
    """Return the log with columns for item statistics (no names: without), or the same log.

    The score is declared among the header's scorers: Inspect takes an undeclared score of a sample
    as one more scorer, and computes its accuracy when it recomputes metrics. A view that the task's
    author made is kept.
    """
    names = list(names)
    spec = log.eval.model_dump()
    scorers: list[dict[str, Any]] = spec["scorers"] or []
    scorers = [s for s in scorers if s["name"] != SCORE]
    viewer = log.eval.viewer
    views = viewer and viewer.task_samples_view
    if views and not isinstance(views, list) and views.name == VIEW:
        viewer = None
    if names:
        several = (log.eval.config.epochs or 1) > 1
        scores = log.results.scores if log.results else ()
        scorers_of_log = [of_result(s) for s in scores if s.scorer != SCORE]
        scorers_of_log += [
            Scorer(s["name"]) for s in scorers if s["name"] not in {x.name for x in scorers_of_log}
        ]
        viewer = viewer or _view(dict.fromkeys(scorers_of_log), names, baseline, epochs=several)
    # Older logs declare no scorers; so does this one then, and stays as it was without the columns.
    if names and scorers:
        scorers.append({"name": SCORE, "metrics": {"*": [{"name": "inspect_ai/mean"}]}})
    spec |= {"viewer": viewer, "scorers": scorers if scorers or log.eval.scorers else None}
    edited = type(log.eval).model_validate(spec)
    return log if edited == log.eval else log.model_copy(update={"eval": edited})


def _view(
    scorers: Iterable[Scorer], names: list[str], baseline: str, *, epochs: bool
) -> ViewerConfig:
    from inspect_ai.viewer import TaskSamplesColumn, TaskSamplesView, ViewerConfig

    own = ("sampleId", *(["epoch"] if epochs else []), "input", "target", "answer")
    columns = [
        *(TaskSamplesColumn(id=each) for each in own),
        *(TaskSamplesColumn.score(scorer.name, scorer.key) for scorer in scorers),
        *(TaskSamplesColumn.score(SCORE, name) for name in names),
    ]
    outcomes = [name for name in names if name.endswith(AGAINST)]
    # The list cuts long titles; the legend has the whole name.
    titles = {name: f"item {name.rpartition('_')[2]}" for name in names}
    titles |= dict.fromkeys(outcomes, f"vs {baseline.rpartition('/')[2]}")
    view = TaskSamplesView(
        name=VIEW,
        columns=columns,
        multiline=False,
        score_labels=titles,
        score_color_scales=dict.fromkeys(outcomes, _OUTCOMES) or None,
        color_scales_enabled=True if outcomes else None,
    )
    return ViewerConfig(task_samples_view=view)
