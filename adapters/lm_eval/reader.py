"""Read `Responses` from a results file and its samples files, or from results in memory.

`read_log` finds the results of a file, `_Run` reads one run of lm-eval task by task and metric by
metric, and `model_identity` names the model and the settings that distinguish it from others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.adapters.lm_eval import layout
from evalstats_plugin.adapters.lm_eval.layout import section
from evalstats_plugin.adapters.lm_eval.samples import (
    FilterSamples,
    cluster_field,
    collect,
    number_records,
    read_samples,
)
from evalstats_plugin.adapters.lm_eval.values import (
    Tree,
    aggregation_of,
    as_answers,
    as_number,
    as_pairs,
    as_scores,
    disagreement,
    kind_of,
    repeat_scores,
)
from evalstats_plugin.adaptive.records import RECORD, biased
from evalstats_plugin.data.responses import Group, Responses, Selection, Source, as_clusters
from evalstats_plugin.errors import LogError
from evalstats_plugin.scores.metrics import NAMES, recognise

Settings = tuple[tuple[str, str], ...]

# Model arguments that name the model, in lm-eval's precedence (loggers/evaluation_tracker.py).
_NAMES = ("peft", "delta", "pretrained", "model", "path", "engine")


def read_log(path: Path, selection: Selection) -> list[Responses] | None:
    """Read a results file, or the one task of a samples file; None if it is not lm-eval's."""
    if path.suffix != ".json" and layout.looks_like_samples(path):
        return _read_one_samples_file(path, selection)
    data = layout.load_results(path)
    return None if data is None else read_results(data, path, selection)


def _read_one_samples_file(path: Path, selection: Selection) -> list[Responses]:
    results = layout.results_beside(path)
    data = layout.load_results(results) if results else None
    if results is None or data is None:
        msg = (
            f"{path} has no results file of the same run beside it, which names the model and says "
            "how each metric is averaged; put the results_….json back"
        )
        raise LogError(msg)
    task = layout.task_of(path, data)
    return [r for r in read_results(data, results, selection) if r.task == task]


def read_results(data: Mapping[str, Any], path: Path, selection: Selection) -> list[Responses]:
    """Read results, from a file or in memory; they may contain the samples."""
    found = _Run(data, path, selection).responses()
    record = layout.section(data, RECORD)
    return [replace(r, notes=(*r.notes, *biased(record))) for r in found] if record else found


@dataclass(frozen=True, slots=True)
class _Metric:
    """One ``"metric,filter"`` key of one task."""

    task: str
    name: str
    filter: str

    @property
    def key(self) -> str:
        return f"{self.name},{self.filter}"

    @property
    def stderr_key(self) -> str:
        return layout.stderr_key(self.key)


class _Run:
    """One run of lm-eval: its results and its samples."""

    def __init__(self, data: Mapping[str, Any], path: Path, selection: Selection) -> None:
        self.data = data
        self.path = path
        self.selection = selection
        self.tree = Tree(data)
        self.model, self.settings = model_identity(data)
        self.source = Source(
            path=path,
            harness="lm_eval",
            version=data.get("lm_eval_version"),
            when=layout.stamp_of(path) or str(data.get("date", "")),
        )

    def responses(self) -> list[Responses]:
        return [r for task in self.tree.tasks() for r in self._of_task(task)]

    def _of_task(self, task: str) -> Iterator[Responses]:
        if not self.selection.wants_task(task, *self.tree.groups_around(task)):
            return
        logged = layout.section(self.data, "results", task)
        metrics: list[_Metric] = []
        for key in sorted(logged):
            name, comma, filter_name = key.partition(",")
            if comma and not name.endswith("_stderr") and self.selection.wants_metric(key):
                metrics.append(_Metric(task, name, filter_name))
        if self.selection.header_only:
            yield from (self._base(m) for m in metrics)
            return
        samples = self._samples(task) if metrics or task in self.data["configs"] else None
        for m in metrics:
            yield self._of_metric(m, samples)
        yield from self._repeats(task, samples or {}, {m.key for m in metrics})

    def _samples(self, task: str) -> Mapping[str, FilterSamples] | None:
        pipelines = layout.section(self.data, "configs", task).get("filter_list") or ()
        filters = [f["name"] for f in pipelines if "name" in f] or ["none"]
        if "samples" in self.data:
            inside = layout.section(self.data, "samples")
            if task not in inside:
                return None
            where = f"{self.path}, samples of {task}"
            records = number_records(inside[task], where)
            return collect(records, filters, where, self._cluster_field(task))
        if not self.path.name:
            return None  # results in memory have no samples files
        path = layout.samples_path(self.path, task, self.data)
        if not path.is_file():
            return None
        samples = read_samples(path, filters, self._cluster_field(task))
        expected = layout.section(self.data, "n-samples", task).get("effective")
        if not samples and expected:
            msg = f"{path} is empty, expected {expected} items; the run may have been killed"
            raise LogError(msg)
        return samples

    def _cluster_field(self, task: str) -> str | None:
        config = layout.section(self.data, "configs", task)
        return cluster_field(self.selection.cluster, config)

    def _items(self, task: str, column: FilterSamples) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return ids, hashes and clusters of a filter's items, and notes on the clusters."""
        hashes = None
        if None not in column.doc_hashes:
            texts = [str(h).encode(errors="surrogatepass") for h in column.doc_hashes]
            hashes = np.asarray(texts, dtype="S")
        known: dict[str, Any] = {"item_ids": np.asarray(column.doc_ids), "item_hashes": hashes}
        field = self._cluster_field(task)
        if field is None:
            return known, ()
        clusters, notes = as_clusters(column.clusters, field)
        return known | {"clusters": clusters}, notes

    def _base(self, m: _Metric, **more: Any) -> Responses:
        logged = layout.section(self.data, "results", m.task)
        size = layout.section(self.data, "n-samples", m.task)
        effective = size.get("effective", logged.get("sample_len"))
        population = size.get("original")
        config = layout.section(self.data, "configs", m.task)
        known: dict[str, Any] = {
            "model": self.model,
            "task": m.task,
            "metric": m.key,
            "higher_is_better": layout.section(self.data, "higher_is_better", m.task).get(m.name),
            "aggregation": aggregation_of(m.name, config),
            "source": self.source,
            "settings": (*self.settings, *task_settings(self.data, m.task)),
            "groups": tuple(self._groups(m)),
            "logged": as_number(logged.get(m.key)),
            "logged_std_error": as_number(logged.get(m.stderr_key)),
            "logged_n": effective,
            "population": population if population != effective else None,
        }
        return Responses(**known | more)

    def _groups(self, m: _Metric) -> Iterator[Group]:
        for depth, name in enumerate(self.tree.groups_around(m.task)):
            weighting, notes = self.tree.weighting(name, m.key)
            logged = layout.section(self.data, "results", name)
            yield Group(
                name=name,
                depth=depth,
                weighting=weighting,
                n_tasks=self.tree.n_tasks(name, m.key),
                logged=as_number(logged.get(m.key)),
                logged_std_error=as_number(logged.get(m.stderr_key)),
                notes=notes,
            )

    def _of_metric(self, m: _Metric, samples: Mapping[str, FilterSamples] | None) -> Responses:
        base = self._base(m)
        if base.aggregation == "bypass":
            # lm-eval logs 999 here, which is no score.
            note = "--predict_only: nothing was scored (evalstats-plugin rescore can)"
            return self._base(m, logged=None, logged_std_error=None, notes=(note,))
        if samples is None:
            return self._base(m, notes=(self._why_no_samples(m.task),))
        column = samples.get(m.filter)
        values = column.values.get(m.name) if column else None
        if column is None or values is None:
            note = f"not among the samples of filter {m.filter!r}"
            return self._base(m, notes=(note,))
        return self._with_values(m, base, column, values)

    def _with_values(
        self, m: _Metric, base: Responses, column: FilterSamples, values: Sequence[Any]
    ) -> Responses:
        items, about_items = self._items(m.task, column)
        if base.aggregation in ("weighted_perplexity", "bits_per_byte"):
            pairs = as_pairs(values)
            if pairs is not None:
                return self._base(m, scores=pairs[:, :1], weights=pairs[:, 1], **items)
        scores = as_scores(values)
        if scores is None:
            answered = with_answers(base, values, items | {"notes": about_items})
            if answered is not None:
                return answered
            aggregation = base.aggregation if base.aggregation != "mean" else "other"
            note = f"not averaged: what is logged for an item is not its score ({kind_of(values)})"
            return self._base(m, aggregation=aggregation, notes=(note,))
        aggregation = base.aggregation
        # Other aggregations have a bootstrap standard error, or none.
        stderr = base.logged_std_error if aggregation == "mean" else None
        problem = disagreement(scores, base.logged, stderr)
        if aggregation not in ("mean", "nanmean", "perplexity"):
            # The task's own function: taken for a mean if its value is the mean.
            if problem or base.logged is None:
                note = f"not averaged: its aggregation ({aggregation}) is not a mean"
                return self._base(m, notes=(note,))
            aggregation = "mean"
        notes = (f"mismatch: {problem}",) if problem and aggregation != "perplexity" else ()
        aggregation = "mean" if aggregation == "nanmean" else aggregation
        notes = (*notes, *about_items)
        return self._base(m, aggregation=aggregation, scores=scores[:, None], notes=notes, **items)

    def _why_no_samples(self, task: str) -> str:
        if not self.path.name or layout.section(self.data, "task_hashes").get(task) is None:
            return "no samples logged (run lm-eval with --log_samples)"
        missing = layout.samples_path(self.path, task, self.data).name
        return f"samples were logged, but {missing} is not there"

    def _repeats(
        self, task: str, samples: Mapping[str, FilterSamples], known: set[str]
    ) -> Iterator[Responses]:
        """Yield the scores of each repeat (0.5), for metrics without a logged value."""
        for name, column in samples.items():
            for metric, rows in column.repeats.items():
                m = _Metric(task, metric, name)
                scores = repeat_scores(rows)
                if m.key in known or scores is None or not self.selection.wants_metric(m.key):
                    continue
                items, about_items = self._items(task, column)
                yield self._base(
                    m,
                    aggregation="mean",
                    scores=scores,
                    notes=("scores of each repeat", *about_items),
                    **items,
                )


def with_answers(
    base: Responses, values: Sequence[Any], items: Mapping[str, Any]
) -> Responses | None:
    """Add (expected, answered) pairs to responses; None if no known metric aggregates them."""
    pairs = as_answers(values)
    if pairs is None:
        return None
    found = replace(base, pairs=pairs, scores=np.empty((len(pairs), 0)), **items)
    if found.aggregation in NAMES:
        return found
    name = recognise(found) if found.aggregation == "custom" else None
    if name is None:
        return None
    note = f"its aggregation gives what {name} gives, and is taken for it"
    return replace(found, aggregation=name, notes=(*found.notes, note))


def model_identity(data: Mapping[str, Any]) -> tuple[str, Settings]:
    """Return a model's name, and the settings that distinguish models of the same name."""
    config = section(data, "config")
    arguments = model_arguments(config.get("model_args"))
    key = next((k for k in _NAMES if k in arguments), None)
    # Without a name among the arguments lm-eval gives the folder a random one.
    name = arguments[key] if key else str(config.get("model", "model"))
    settings = {k: v for k, v in arguments.items() if k != key}
    if config.get("model") and key:
        settings["backend"] = str(config["model"])
    for label, value in (
        ("revision", config.get("model_revision")),
        ("sha", config.get("model_sha")),
        ("chat_template", data.get("chat_template_sha")),
        ("system_instruction", data.get("system_instruction_sha")),
    ):
        if value:
            settings[label] = str(value)[:8] if label != "revision" else str(value)  # short hashes
    return name, tuple(sorted(settings.items()))


def model_arguments(arguments: Any) -> dict[str, str]:
    """Read logged ``model_args``: an object since 0.4.10, a text ``a=1,b=2`` before."""
    if isinstance(arguments, Mapping):
        return {str(k): str(v) for k, v in arguments.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    pairs = (part.partition("=") for part in str(arguments or "").split(",") if "=" in part)
    return {k.strip(): v.strip() for k, _, v in pairs}


def task_settings(data: Mapping[str, Any], task: str) -> Settings:
    """Return the settings of a task that change the question: the number of few-shot examples."""
    shots = section(data, "n-shot").get(task)
    return () if shots is None else (("task.num_fewshot", str(shots)),)
