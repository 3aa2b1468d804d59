"""Read `Responses` from a results file and its samples files, or from results in memory.

`read_log` finds the results of a file, `_Run` reads one run of lm-eval task by task and metric by
metric, and `model_identity` names the model and the settings that distinguish it from others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.lm_eval import layout
from evalstats_plugin.adapters.lm_eval.groups import Tree
from evalstats_plugin.adapters.lm_eval.samples import (
    BRIER,
    Samples,
    collect,
    number_records,
    read_records,
    read_samples,
)
from evalstats_plugin.adapters.lm_eval.texts import texts_of
from evalstats_plugin.adapters.lm_eval.values import (
    aggregation_of,
    as_answers,
    as_number,
    as_pairs,
    as_scores,
    brier_scores,
    contradiction,
    disagreement,
    kind_of,
    repeat_scores,
)
from evalstats_plugin.adaptive.records import RECORD, with_prediction
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.data.published import Printed, published
from evalstats_plugin.data.responses import (
    PER_ITEM,
    Group,
    Provenance,
    Responses,
    Selection,
    Source,
    as_clusters,
)
from evalstats_plugin.errors import counted
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.scores.metrics import NAMES, recognise

Settings = tuple[tuple[str, str], ...]

# Model arguments that name the model, in lm-eval's precedence (loggers/evaluation_tracker.py).
_NAMES = ("peft", "delta", "pretrained", "model", "path", "engine")


def read_log(log: LogFile, selection: Selection) -> list[Responses] | None:
    """Read a results file, or the one task of a samples file; None if it is not lm-eval's."""
    if layout.is_samples(log):
        results = layout.results_beside(log.path)
        data = layout.load_results(LogFile(results)) if results else None
        if results is None or data is None:
            return list(_Stray(log.path, selection).responses())
        task = layout.task_of(log.path, data)
        return [] if task is None else list(_Run(data, results, selection).of_task(task))
    data = layout.load_annotated(log, old=True)
    if data is None:
        return None
    if "configs" not in data:
        return list(_read_old(data, log.path, selection))
    clean = layout.without_block(data)
    return read_results(clean, log.path, selection, is_annotated=layout.KEY in data)


def _read_old(data: Mapping[str, Any], path: Path, selection: Selection) -> Iterator[Responses]:
    """Read results of lm-eval 0.3 or older: values and standard errors, in full, of no items."""
    model, settings = model_identity(data)
    source = Source(path=path, harness="lm_eval", version="0.3 or older")
    for task, values in layout.section(data, "results").items():
        for metric, value in values.items():
            number = as_number(value)
            wanted = selection.wants_task(task) and selection.wants_metric(metric, task)
            if number is None or not wanted or metric.endswith("_stderr"):
                continue
            error = as_number(values.get(f"{metric}_stderr"))
            read = published(
                model,
                Measure(task=task, metric=metric),
                source,
                value=Printed.of(number, repr(number)),
                std_error=None if error is None else Printed.of(error, repr(error)),
                in_full=True,
            )
            yield replace(read, settings=settings)


def read_texts(
    log: LogFile, items: Mapping[str, Collection[str]]
) -> dict[tuple[str, str], ItemText] | None:
    """Return texts of some items of a run or of a samples file; None if it is not lm-eval's."""
    read = layout.samples_of(log)
    if read is None:
        return None
    data, files = read
    texts: dict[tuple[str, str], ItemText] = {}
    for task, wanted in items.items():
        inside = layout.section(data, "samples").get(task)
        if inside is not None:
            numbered = number_records(inside, f"{log.path}, samples of {task}")
            records = (record for _, doc_id, record in numbered if str(doc_id) in wanted)
        elif task in files:
            records = read_records(files[task], frozenset(wanted))
        else:
            continue
        texts |= {(task, item): text for item, text in texts_of(records).items()}
    return texts


def read_results(
    data: Mapping[str, Any], path: Path, selection: Selection, *, is_annotated: bool = False
) -> list[Responses]:
    """Read results, from a file or in memory; they may contain the samples."""
    responses = _Run(data, path, selection, is_annotated=is_annotated).responses()
    record = layout.section(data, RECORD)
    return [with_prediction(r, record) for r in responses] if record else responses


class _Metric(NamedTuple):
    """One ``"metric,filter"`` key of one task."""

    task: str
    name: str
    filter: str

    @property
    def key(self) -> str:
        return f"{self.name},{self.filter}"


@dataclass(frozen=True, slots=True)
class _Logged:
    """The samples of a task, and whether they are all that the run scored."""

    samples: Samples
    place: str
    """Where they are, for notes."""
    n_items: int = 0
    """Items that the run scored, under each filter."""
    checksum: str = ""
    """Of all samples, as the run logged it."""
    items: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    """By filter: ids, hashes and clusters, with notes on the clusters."""

    @property
    def is_altered(self) -> bool:
        """Whether the samples are not those that the run logged: cut off, edited, reordered."""
        checksum = self.samples.checksum
        return bool(checksum and self.checksum) and checksum != self.checksum

    def notes(self, n: int, value: float | None) -> tuple[str, ...]:
        """Say what is wrong where a filter has so many items."""
        if n < self.n_items:
            scored = "" if value is None else f"; the value over all of them is {value:.6g}"
            return (f"{n} of {counted(self.n_items, 'item')}: {self.place} is cut off{scored}",)
        if self.is_altered:
            why = "it was cut off, edited or put in another order"
            return (f"{self.place} does not have the checksum that the run logged: {why}",)
        return ()


class _Run:
    """One run of lm-eval: its results and its samples."""

    def __init__(
        self,
        data: Mapping[str, Any],
        path: Path,
        selection: Selection,
        *,
        is_annotated: bool = False,
    ) -> None:
        self.data = data
        self.path = path
        self.selection = selection
        self.tree = Tree(data)
        self.model, self.settings = model_identity(data)
        standard = path.name.startswith("results_")  # the folder is the model's
        self.home = str(data.get("model_name_sanitized") or "") if standard else ""
        self.source = Source(
            path=path,
            harness="lm_eval",
            version=data.get("lm_eval_version"),
            when=layout.stamp_of(path) or str(data.get("date", "")),
            is_annotated=is_annotated,
        )

    def responses(self) -> list[Responses]:
        """Read every task that was asked for, in table order."""
        return [r for task in self.tree.tasks() for r in self.of_task(task)]

    def of_task(self, task: str) -> Iterator[Responses]:
        """Read one task, under each metric that was asked for."""
        names = (task, *self.tree.groups_around(task))
        if not self.selection.wants_task(*names):
            return
        metrics: list[_Metric] = []
        for key in sorted(layout.section(self.data, "results", task)):
            name, comma, filter_name = key.partition(",")
            wanted = self.selection.wants_metric(key, *names)
            if comma and not name.endswith("_stderr") and wanted:
                metrics.append(_Metric(task, name, filter_name))
        if self.selection.header_only:
            yield from (Responses(**self._known(m)) for m in metrics)
            return
        brier = any(m.name == BRIER for m in metrics)
        wanted = metrics or task in self.data["configs"]
        logged = self._logged(task, likelihoods=brier) if wanted else None
        repeats = layout.section(self.data, "configs", task).get("repeats")
        several = isinstance(repeats, int) and repeats > 1 and logged is not None
        notes: dict[str, tuple[str, ...]] = {}
        if several and not self.selection.repeats:
            note = f"{repeats} repeats; --at-k (in Python: read(repeats=True)) scores each"
            choosing = self._choosing_filters(task)
            notes = {m.key: (note,) for m in metrics if m.filter in choosing}
        responses = [self._of_metric(m, logged, *notes.get(m.key, ())) for m in metrics]
        scored = several and self.selection.repeats
        yield from self._with_repeats(task, responses) if scored else responses
        yield from self._repeats(task, logged, {m.key for m in metrics})

    def _logged(self, task: str, *, likelihoods: bool) -> _Logged | None:
        """Read the samples of a task; None if they were not logged, or are gone."""
        config = layout.section(self.data, "configs", task)
        filters = layout.filters_of(config)
        cluster, by = self._cluster_field(task), self.selection.by
        choices = config.get("output_type") == "multiple_choice"
        if "samples" in self.data:
            inside = layout.section(self.data, "samples")
            if task not in inside:
                return None
            where = f"{self.path}, samples of {task}"
            records = number_records(inside[task], where)
            samples = collect(records, filters, where, cluster, by=by, choices=choices)
            place = "the list of samples"
        else:
            # Results in memory have no samples files.
            path = layout.samples_path(self.path, task, self.data) if self.path.name else None
            if path is None or not path.is_file():
                return None
            samples = read_samples(
                path, filters, cluster, by=by, likelihoods=likelihoods, choices=choices
            )
            place = path.name
        scored = layout.section(self.data, "n-samples", task).get("effective") or 0
        checksum = layout.section(self.data, "task_hashes").get(task)
        n_items = max(int(scored), samples.n_items)
        return _Logged(samples, place, n_items, checksum if isinstance(checksum, str) else "")

    def _cluster_field(self, task: str) -> str | None:
        """Return the doc field that names clusters: the caller's, else the task's."""
        metadata = layout.section(self.data, "configs", task, "metadata")
        return self.selection.cluster or metadata.get("cluster_key")

    def _items(self, m: _Metric, logged: _Logged) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return what is known of a filter's items, and notes on their clusters, made once."""
        if m.filter not in logged.items:
            column = logged.samples.by_filter[m.filter]
            fields: dict[str, Any] = {
                "item_ids": np.asarray(column.doc_ids),
                "item_hashes": _as_hashes(column.doc_hashes),
                "provenance": self._provenance(
                    m.task, logged, _as_hashes(column.prompt_hashes, 16)
                ),
            }
            field, notes = self._cluster_field(m.task), ()
            if field is not None:
                fields["clusters"], notes = as_clusters(column.clusters, field)
            if (by := self.selection.by) is not None:
                fields["tags"], _ = as_clusters(column.tags, by)
            logged.items[m.filter] = fields, notes
        return logged.items[m.filter]

    def _provenance(
        self, task: str, logged: _Logged | None, prompts: NDArray[Any] | None = None
    ) -> Provenance:
        return Provenance(
            task_version=str(layout.section(self.data, "versions").get(task, "")),
            prompt_hashes=prompts,
            is_altered=logged.is_altered if logged else False,
            home=self.home,
        )

    def _known(self, m: _Metric) -> dict[str, Any]:
        """Return the fields of responses that the results file gives."""
        logged = layout.section(self.data, "results", m.task)
        size = layout.section(self.data, "n-samples", m.task)
        effective = size.get("effective", logged.get("sample_len"))
        population = size.get("original")
        config = layout.section(self.data, "configs", m.task)
        given = layout.section(self.data, "n-shot").get(m.task)
        direction = layout.section(self.data, "higher_is_better", m.task).get(m.name)
        # The number of examples changes the question.
        shots = () if given is None else (("task.num_fewshot", str(given)),)
        return {
            "model": self.model,
            "measure": Measure(
                task=m.task,
                metric=m.key,
                filter="" if m.filter == "none" else m.filter,
                higher_is_better=direction if isinstance(direction, bool) else None,
                aggregation=aggregation_of(m.name, config),
                population=population if population != effective else None,
            ),
            "source": self.source,
            "provenance": self._provenance(m.task, None),
            "settings": (*self.settings, *shots),
            "groups": tuple(self._groups(m)),
            "logged": as_number(logged.get(m.key)),
            "logged_std_error": as_number(logged.get(layout.stderr_key(m.key))),
            "logged_n": effective,
        }

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
                logged_std_error=as_number(logged.get(layout.stderr_key(m.key))),
                notes=notes,
            )

    def _of_metric(self, m: _Metric, logged: _Logged | None, *more: str) -> Responses:
        """Read one metric of a task; ``more`` are notes that come after its own."""
        fields = self._known(m)
        measure: Measure = fields["measure"]
        if measure.aggregation == "bypass":
            # lm-eval logs 999 here, which is no score.
            note = "--predict_only: nothing was scored (evalstats-plugin rescore can)"
            fields |= {"logged": None, "logged_std_error": None, "notes": (note,)}
            return Responses(**fields)
        if logged is None:
            note = "no samples logged (run lm-eval with --log_samples)"
            if self.path.name and layout.section(self.data, "task_hashes").get(m.task) is not None:
                missing = layout.samples_path(self.path, m.task, self.data).name
                note = f"samples were logged, but {missing} is not there"
            return Responses(**fields, notes=(note, *_doubts(m, fields), *more))
        column = logged.samples.by_filter.get(m.filter)
        values = column.values.get(m.name) if column else None
        if column is None or values is None:
            n = len(column.doc_ids) if column else 0
            notes = logged.notes(n, fields["logged"]) or (
                f"not among the samples of filter {m.filter!r}",
            )
            fields["provenance"] = self._provenance(m.task, logged)
            fields["measure"] = replace(measure, n_cut=logged.n_items - n)
            return Responses(**fields, notes=(*notes, *_doubts(m, fields), *more))
        items, about_items = self._items(m, logged)
        fields["chance"] = column.chance(m.name)
        fields["measure"] = replace(measure, n_cut=logged.n_items - len(column.doc_ids))
        about = logged.notes(len(column.doc_ids), fields["logged"])
        merged = _with_values(fields | items, values)
        merged["notes"] = (*about, *merged.get("notes", ()), *about_items, *more)
        return Responses(**merged)

    def _with_repeats(self, task: str, responses: list[Responses]) -> list[Responses]:
        """Add the scores of each repeat where the filter kept one repeat, or a vote."""
        if not any(len(r.item_ids) for r in responses):
            return responses
        from evalstats_plugin.adapters.lm_eval.replay.repeats import with_repeats

        inside = layout.section(self.data, "samples").get(task)
        records = inside or read_records(layout.samples_path(self.path, task, self.data))
        return with_repeats(responses, task, self.data, records)

    def _choosing_filters(self, task: str) -> set[str]:
        """Return the filters that leave one answer of the repeats of an item."""
        listed = layout.section(self.data, "configs", task).get("filter_list")
        if listed is None:
            return {"none"}
        return {
            pipeline["name"]
            for pipeline in listed
            for step in pipeline.get("filter") or ()
            if step.get("function") in ("take_first", "majority_vote")
        }

    def _repeats(self, task: str, logged: _Logged | None, keys: set[str]) -> Iterator[Responses]:
        """Yield the scores of each repeat (0.5), for metrics without a logged value."""
        if logged is None:
            return
        for name, column in logged.samples.by_filter.items():
            for metric, rows in column.repeats.items():
                m = _Metric(task, metric, name)
                scores = repeat_scores(rows)
                names = (m.task, *self.tree.groups_around(m.task))
                wanted = self.selection.wants_metric(m.key, *names)
                if m.key in keys or scores is None or not wanted:
                    continue
                items, about_items = self._items(m, logged)
                notes = (*logged.notes(len(column.doc_ids), None), "scores of each repeat")
                fields = self._known(m) | items
                fields |= {"scores": scores, "notes": (*notes, *about_items)}
                n_cut = logged.n_items - len(column.doc_ids)
                yield Responses(**fields).measured(aggregation="mean", n_cut=n_cut)


class _Stray(_Run):
    """A samples file without the results file of its run."""

    def __init__(self, path: Path, selection: Selection) -> None:
        self.task = layout.task_of(path, {"configs": {}}) or path.stem
        super().__init__({"results": {self.task: {}}, "configs": {}}, path, selection)
        self.model = selection.model_name or path.resolve().parent.name
        self.settings = ()
        self.source = replace(self.source, when=layout.stamp_of_samples(path))

    def responses(self) -> list[Responses]:
        """Read the metrics that the samples have."""
        if not self.selection.wants_task(self.task):
            return []
        # Before 0.4.7 lines do not name their filter, and only the results file has the names.
        filters = ["none", *(f"filter {n}" for n in range(2, 10))]
        cluster, by = self.selection.cluster, self.selection.by
        samples = read_samples(self.path, filters, cluster, by=by, likelihoods=True)
        logged = _Logged(samples, self.path.name, samples.n_items)
        given = "" if self.selection.model_name else "; the model is named after its folder"
        note = f"no results file of this run: its metrics are taken for means{given}"
        metrics = [
            m
            for name, column in samples.by_filter.items()
            for metric in column.values
            if self.selection.wants_metric((m := _Metric(self.task, metric, name)).key, self.task)
        ]
        scored = [self._of_metric(m, logged) for m in metrics]
        scored += self._repeats(self.task, logged, {m.key for m in metrics})
        return [replace(r, notes=(*r.notes, note)) for r in scored]


def _as_hashes(texts: Sequence[str | None], width: int | None = None) -> NDArray[Any] | None:
    """Return hashes, or so many characters of each, shape (M,); None if one is missing."""
    if None in texts:
        return None
    return np.asarray([str(t)[:width].encode(errors="surrogatepass") for t in texts], dtype="S")


def _doubts(m: _Metric, fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note where a value and its standard error contradict each other."""
    if fields["measure"].aggregation != "mean":
        return ()
    n = fields["logged_n"] or 0
    problem = contradiction(m.name, fields["logged"], fields["logged_std_error"], int(n))
    return (f"mismatch: {problem}",) if problem else ()


def _with_values(fields: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return fields with the values of items, compared with the logged ones if all are there."""
    measure: Measure = fields["measure"]
    aggregation, is_whole = measure.aggregation, not measure.n_cut
    if aggregation in ("weighted_perplexity", "bits_per_byte"):
        pairs = as_pairs(values)
        if pairs is not None:
            return {**fields, "scores": pairs[:, :1], "weights": pairs[:, 1]}
    scores = as_scores(values)
    if scores is None and aggregation == BRIER:
        scores = brier_scores(values)
        # lm-eval's own aggregation is their mean.
        aggregation, measure = "mean", measure.on(Scale(0.0, 2.0), "registry")
    without = {k: v for k, v in fields.items() if k not in PER_ITEM}
    if scores is None:
        answered = with_answers(fields, values)
        if answered is not None:
            return answered
        note = f"not averaged: what is logged for an item is not its score ({kind_of(values)})"
        other = "other" if aggregation == "mean" else aggregation
        return {**without, "measure": replace(measure, aggregation=other), "notes": (note,)}
    # Other aggregations have a bootstrap standard error, or none.
    stderr = fields["logged_std_error"] if aggregation == "mean" else None
    problem = disagreement(scores, fields["logged"], stderr) if is_whole else None
    if aggregation not in ("mean", "nanmean", "perplexity"):
        # The task's own function: taken for a mean if its value is the mean.
        if problem or fields["logged"] is None or not is_whole:
            note = f"not averaged: its aggregation ({aggregation}) is not a mean"
            return {**without, "notes": (note,)}
        aggregation = "mean"
    notes = (f"mismatch: {problem}",) if problem and aggregation != "perplexity" else ()
    measure = replace(measure, aggregation="mean" if aggregation == "nanmean" else aggregation)
    return {**fields, "measure": measure, "scores": scores[:, None], "notes": notes}


def with_answers(fields: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any] | None:
    """Return fields with (expected, answered) pairs; None if no known metric aggregates them."""
    pairs = as_answers(values)
    measure: Measure = fields["measure"]
    if pairs is None or measure.aggregation not in (*NAMES, "custom"):
        return None
    paired: dict[str, Any] = {**fields, "pairs": pairs, "scores": np.empty((len(pairs), 0))}
    if measure.aggregation in NAMES:
        return paired
    name = recognise(Responses(**paired))
    if name is None:
        return None
    note = f"its aggregation gives what {name} gives, and is taken for it"
    measure = replace(measure, aggregation=name)
    return {**paired, "measure": measure, "notes": (*fields.get("notes", ()), note)}


def model_identity(data: Mapping[str, Any]) -> tuple[str, Settings]:
    """Return a model's name, and the settings that distinguish models of the same name."""
    config = layout.section(data, "config")
    given: Any = config.get("model_args")
    # An object since 0.4.10, a text "a=1,b=2" before.
    if isinstance(given, Mapping):
        arguments = {str(k): str(v) for k, v in given.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    else:
        pairs = (part.partition("=") for part in str(given or "").split(",") if "=" in part)
        arguments = {k.strip(): v.strip() for k, _, v in pairs}
    key = next((k for k in _NAMES if k in arguments), None)
    # Without a name among the arguments lm-eval gives the folder a random one.
    # The Open LLM Leaderboard's early results have the name alone.
    name = arguments[key] if key else str(config.get("model") or config.get("model_name", "model"))
    settings = {k: v for k, v in arguments.items() if k != key}
    if config.get("model") == "neox" and "load" in arguments:
        # GPT-NeoX logs its whole configuration of hundreds of entries.
        name, settings = arguments["load"], {"iteration": arguments.get("iteration", "")}
    elif config.get("model") and key:
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
