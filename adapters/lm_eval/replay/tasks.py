"""Rebuild the tasks and groups of a logged run for lm-eval, on the documents of that run.

A task is defined by a YAML file under ``include_path``; if there is none, by the log, which holds
all of a task but its Python functions (of those it holds the source text, which is never run);
else by the tasks that come with lm-eval. The log names the members of a group, and a YAML file
how to aggregate them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, overload

from evalstats_plugin.adapters.lm_eval.replay.model import LoggedRun, LoggedTask
from evalstats_plugin.adapters.lm_eval.run_harness import harness
from evalstats_plugin.errors import LogError, SelectionError

# How lm-eval writes a function: its source, or str() where there is none.
_FUNCTION = re.compile(
    r"\s*(@\w|(async )?def \w+\(|class \w+[(:]|functools\.partial\(|<(function|class|bound) )"
)

_FUNCTION_FIELDS = ("doc_to_text", "doc_to_target", "doc_to_choice", "process_results")

# What ConfigurableTask.process_results computes for each output type but generate_until.
_METRICS_OF: dict[str, set[str]] = {
    "multiple_choice": {
        *("acc", "acc_bytes", "acc_mutual_info", "acc_norm", "brier_score", "exact_match"),
        *("f1", "likelihood", "mcc"),
    },
    "loglikelihood": {"acc", "perplexity"},
    "loglikelihood_rolling": {"bits_per_byte", "byte_perplexity", "word_perplexity"},
}

_FROM_LIKELIHOODS = set[str]().union(*_METRICS_OF.values())
_UNSUPPORTED_FIELDS = ("doc_to_image", "doc_to_audio", "use_prompt")


@dataclass(frozen=True)
class Scoring:
    """Filters and metrics to use instead of the task's own; None keeps the task's own."""

    filters: Sequence[Mapping[str, Any]] | None = None
    metrics: Sequence[str] | None = None


class LoggedDocs(Sequence[dict[str, Any]]):
    """The documents of a log as a dataset split; each access returns a fresh copy."""

    def __init__(self, docs: list[dict[str, Any]]) -> None:
        self._docs = docs
        self.features: dict[str, None] = dict.fromkeys(docs[0])

    def __len__(self) -> int:
        return len(self._docs)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return deepcopy(self._docs[index])


class _AnySplit(dict[str, LoggedDocs]):
    """A dataset in which every split is the documents of the log."""

    def __init__(self, docs: list[dict[str, Any]], /, **_: Any) -> None:
        super().__init__()
        self._split = LoggedDocs(docs)

    def __missing__(self, _split: str) -> LoggedDocs:
        return self._split


class Definitions:
    """Definitions of tasks and groups: the user's folder first, then lm-eval's own."""

    def __init__(self, include_path: Path | None, *, any_other: bool = True) -> None:
        self.any_other = any_other
        """Whether any but those in the log may be used."""
        if include_path is not None and not include_path.is_dir():
            raise SelectionError(f"--include-path {include_path}: no such folder")
        self._include_path = include_path

    @cached_property
    def _included(self) -> Mapping[str, Any]:
        if self._include_path is None:
            return {}
        manager = harness("tasks").TaskManager
        return manager(include_path=str(self._include_path), include_defaults=False).task_index

    def included(self, name: str) -> dict[str, Any] | None:
        """Return the definition of a task in the user's folder."""
        return _load(self._included.get(name))

    def own(self, name: str) -> dict[str, Any] | None:
        """Return the definition among the tasks that come with lm-eval."""
        return _load(_own_index().get(name)) if self.any_other else None

    def group(self, name: str) -> dict[str, Any] | None:
        """Return the definition of a group; "parent::child" is defined inside its parent."""
        outer, *inner = name.split("::")
        definition = self.included(outer) or self.own(outer)
        for part in inner:
            children: list[Any] = (definition or {}).get("task") or []
            nested = (child for child in children if not isinstance(child, str))
            definition = next((child for child in nested if child.get("group") == part), None)
        return definition if definition is None or "group" in definition else None


@cache
def _own_index() -> Mapping[str, Any]:
    return harness("tasks").TaskManager().task_index  # reads 14000 files: once, and when needed


def _load(entry: Any) -> dict[str, Any] | None:
    if entry is None or entry.yaml_path is None:
        return None
    return harness("tasks._yaml_loader").load_yaml(entry.yaml_path, resolve_func=True)


def build_task(run: LoggedRun, task: LoggedTask, definitions: Definitions, scoring: Scoring) -> Any:
    """Build one task of lm-eval on its logged documents."""
    config = _definition(run, task.name, definitions, scoring)
    for name in _UNSUPPORTED_FIELDS:
        if config.get(name) is not None:
            raise LogError(f"task {task.name!r} cannot be scored again: it uses {name}")
    metadata: Any = config.get("metadata") or {}
    config |= {
        "task": task.name,
        "metadata": metadata if isinstance(metadata, dict) else {"_metadata": metadata},
        "custom_dataset": partial(_AnySplit, task.docs),
        "dataset_kwargs": None,
        # The logged documents are already processed, and the prompts are logged whole, so
        # nothing is prepended to a question here; Answers compares the question itself.
        **dict.fromkeys(("process_docs", "fewshot_config", "fewshot_split", "training_split")),
        "num_fewshot": 0,
        "description": "",
        "repeats": task.repeats,
    }
    if run.templated:
        config["gen_prefix"] = None
    kind: str = config.get("output_type", "generate_until")
    if scoring.filters is not None and kind == "generate_until":
        config["filter_list"] = _filter_list(scoring.filters)
    if scoring.metrics is not None:
        config["metric_list"] = _metric_list(config, kind, scoring.metrics)
    field_names = {field.name for field in fields(harness("config.task").TaskConfig)}
    built = harness("api.task").ConfigurableTask(
        config={key: value for key, value in config.items() if key in field_names}
    )
    built.set_fewshot_seed(0)  # lm-eval refuses to build a prompt without one
    return built


def _definition(
    run: LoggedRun, name: str, definitions: Definitions, scoring: Scoring
) -> dict[str, Any]:
    """Return the definition of a task, with its Python functions if it has any."""
    included = definitions.included(name)
    if included is not None:
        return _without_class(name, included)
    recorded: dict[str, Any] = deepcopy(run.results["configs"][name])
    if scoring.metrics is not None and _predict_only(recorded):
        del recorded["metric_list"]
        recorded.pop("process_results", None)
    lack = next(_lacks(recorded), None)
    if lack is None:
        return recorded
    own = definitions.own(name)
    if own is not None:
        return _without_class(name, own)
    # Reading with repeats uses what is in the log alone, and has no such option.
    cure = "; give the folder of its YAML file with --include-path" if definitions.any_other else ""
    raise LogError(f"task {name!r} cannot be rebuilt from the log alone: {lack}{cure}")


def _without_class(name: str, config: dict[str, Any]) -> dict[str, Any]:
    if "class" in config:
        raise LogError(f"task {name!r} cannot be scored again: it is a Python class, not a YAML")
    return config


def _predict_only(recorded: Mapping[str, Any]) -> bool:
    metrics = recorded.get("metric_list") or ()
    return [metric.get("metric") for metric in metrics] == ["bypass"]


def _lacks(recorded: Mapping[str, Any]) -> Iterator[str]:
    """List what a logged definition lacks for scoring."""
    if _predict_only(recorded):
        yield "it ran with --predict_only, so its metrics are not in the log (--metric names some)"
    if "doc_to_target" not in recorded:
        yield "it is defined by Python code"
    for name in _FUNCTION_FIELDS:
        if _is_function(recorded.get(name)) or (name == "process_results" and name in recorded):
            yield f"{name} is a Python function"
    for metric in recorded.get("metric_list") or ():
        for part in ("metric", "aggregation"):
            if _is_function(metric.get(part)):
                yield f"the {part} of a metric is a Python function"
        # A log must not decide what is downloaded and run.
        if metric.get("hf_evaluate") or metric["metric"] not in _registered_metrics():
            yield f"metric {metric['metric']!r} is not lm-eval's own"
    for pipeline in recorded.get("filter_list") or ():
        if any(step["function"] not in _registered_filters() for step in pipeline["filter"]):
            yield f"filter {pipeline['name']!r} has a Python class"


def _is_function(value: Any) -> bool:
    return isinstance(value, str) and _FUNCTION.match(value) is not None


def _filter_list(filters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check the user's filters, which may come from a file written by hand."""
    registered = _registered_filters()
    for pipeline in filters:
        try:
            unknown = {step["function"] for step in pipeline["filter"]} - set(registered)
        except (KeyError, TypeError) as error:
            raise SelectionError(
                "a filter needs 'name' and 'filter', a list of steps that each have 'function'; "
                f"found {pipeline}"
            ) from error
        if unknown or "name" not in pipeline:
            what = ", ".join(map(str, unknown)) or "no name"
            raise SelectionError(
                f"filter {pipeline.get('name')!r} uses {what}; "
                f"lm-eval has: {', '.join(sorted(registered))}"
            )
    return deepcopy([dict(pipeline) for pipeline in filters])


def _registered_filters() -> Any:
    harness("filters")  # fills the registry
    return harness("api.registry").filter_registry


def _registered_metrics() -> Any:
    harness("api.metrics")  # fills the registry
    return harness("api.registry").metric_registry


def _metric_list(
    config: Mapping[str, Any], kind: str, metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Check the user's metrics: lm-eval would download an unknown one from the hub."""
    name = config["task"]
    if config.get("process_results") is not None:
        raise SelectionError(
            f"task {name!r} scores with its own process_results: no other metric can take its place"
        )
    allowed = _METRICS_OF.get(kind) or (
        set(_registered_metrics()) - _FROM_LIKELIHOODS | {"exact_match"}
    )
    for metric in metrics:
        if metric not in allowed:
            raise SelectionError(
                f"task {name!r} ({kind}) cannot be scored with {metric!r}; "
                f"lm-eval has: {', '.join(sorted(allowed - {'bypass'}))}"
            )
    return [{"metric": metric} for metric in metrics]


def build_groups(
    run: LoggedRun, tasks: Mapping[str, Any], definitions: Definitions
) -> tuple[dict[str, Any], list[str]]:
    """Build every group whose tasks are all there, and a note on each of the others."""
    members: dict[str, list[str]] = run.results.get("group_subtasks", {})
    built: dict[str, Any] = {}
    notes: list[str] = []

    def build(name: str) -> Any | None:
        if name in tasks:
            return tasks[name]
        if name in built:
            return built[name]
        children = [build(child) for child in members.get(name, ())]
        if not children or any(child is None for child in children):
            return None
        group = _empty_group(run, name, definitions, notes)
        for child in children:
            group.add(child)
        built[name] = group
        return group

    # Versions up to 0.4.11 list plain tasks here too, without members.
    partial = [name for name, children in members.items() if children and build(name) is None]
    notes += [f"group {name!r} is left out: not all its tasks are scored again" for name in partial]
    return {name: built[name] for name in members if name in built}, notes


def _empty_group(run: LoggedRun, name: str, definitions: Definitions, notes: list[str]) -> Any:
    """Build a group without members; only a group that had scores needs its definition."""
    group_class = harness("api.group").Group
    config = None
    if name in run.results.get("groups", {}):
        config = definitions.group(name)
        if config is None or not config.get("aggregate_metric_list"):
            notes.append(
                f"group {name!r} gets no scores: lm-eval knows here of no way to sum it up "
                "(--include-path gives the folder of its YAML file)"
            )
    if config is None:
        alias = run.results["results"].get(name, {}).get("alias")
        return group_class(name=name, alias=alias)
    group_config = harness("config.group").GroupConfig
    field_names = {field.name for field in fields(group_config)}
    config = {key: value for key, value in config.items() if key in field_names}
    return group_class.from_config(group_config(**{**config, "group": name}))
