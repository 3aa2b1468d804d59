"""A logged run, and a language model that replays its responses.

`read_run` reads what a run asked and what the model answered, from its results file and samples
files. `replaying_model` builds a model for lm-eval that gives these responses again; `Answers`
finds them, and refuses to answer a question that differs from the logged one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.lm_eval.layout import (
    filters_of,
    load_results,
    samples_path,
    section,
)
from evalstats_plugin.adapters.lm_eval.run_harness import harness
from evalstats_plugin.adapters.lm_eval.samples import collect, numbered
from evalstats_plugin.errors import LogError, SelectionError, counted, few
from evalstats_plugin.runtime.files import LogFile


class NoSuchTaskError(SelectionError):
    """A run has no task of a name."""


@dataclass
class LoggedTask:
    """One task as it was asked; each list has one entry per document, in the order logged."""

    name: str
    doc_ids: list[Any] = field(default_factory=list[Any])
    docs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    arguments: list[list[tuple[Any, ...]]] = field(default_factory=list[list[tuple[Any, ...]]])
    """Per document and request, the arguments given to the model."""
    responses: list[list[list[Any]]] = field(default_factory=list[list[list[Any]]])
    """Per document, request and repeat, the model's response."""
    missing: str = ""
    """What the log lacks of what the run scored."""

    @property
    def repeats(self) -> int:
        """Number of responses to each request."""
        counts = {len(request) for requests in self.responses for request in requests}
        if len(counts) != 1:
            raise LogError(
                f"task {self.name!r}: its requests have {sorted(counts)} answers: every request "
                "must have been answered equally often"
            )
        return counts.pop()


@dataclass(frozen=True)
class LoggedRun:
    """One results file and the tasks to replay."""

    path: Path
    results: dict[str, Any]
    tasks: dict[str, LoggedTask]

    @property
    def templated(self) -> bool:
        """Whether a chat template was applied to the prompts."""
        return bool(self.results.get("chat_template"))


def read_run(
    results_path: Path, tasks: Sequence[str] | None, *, allow_partial: bool = False
) -> LoggedRun:
    """Read a results file and the samples files beside it; ``tasks`` may name groups.

    Raises
    ------
    LogError
        A samples file is damaged, missing, or, unless allowed, only a part of what was scored.
    NoSuchTaskError
        The run has no task of a name.
    """
    results = load_results(LogFile(results_path))
    if results is None:
        raise LogError(f"{results_path}: these are not results of lm-eval")
    # 0.5 scores by other rules. It shows in the content: the logged version can be wrong.
    for name, config in results["configs"].items():
        steps = [step for pipe in config.get("filter_list") or () for step in pipe["filter"]]
        if any("kwargs" in part for part in (*steps, *(config.get("metric_list") or ()))):
            raise LogError(
                f"{results_path}: task {name!r} is defined in the way of lm-eval 0.5; "
                "only logs of 0.4 can be scored again"
            )
    read = {name: _read_task(results_path, name, results) for name in _leaves(results, tasks)}
    partial = [f"{name} ({task.missing})" for name, task in read.items() if task.missing]
    if partial and not allow_partial:
        raise LogError(
            f"{results_path} holds only a part of what was scored: {few(partial)}. Bring back the "
            "whole files, or pass --allow-partial to score what is there"
        )
    return LoggedRun(results_path, results, read)


def _leaves(results: dict[str, Any], wanted: Sequence[str] | None) -> list[str]:
    """Return the tasks to replay, in the order of the results; groups become their tasks."""
    configs: dict[str, Any] = results["configs"]
    order = [name for name in results["results"] if name in configs]
    if wanted is None:
        return order
    groups: dict[str, list[str]] = results.get("group_subtasks", {})

    def expand(name: str) -> Iterator[str]:
        if name in configs:
            yield name
        elif name in groups:
            for child in groups[name]:
                yield from expand(child)
        else:
            raise NoSuchTaskError(f"no task {name!r} in this run; there are: {', '.join(order)}")

    chosen = {leaf for name in wanted for leaf in expand(name)}
    return [name for name in order if name in chosen]


def _read_task(results_path: Path, name: str, results: dict[str, Any]) -> LoggedTask:
    path = samples_path(results_path, name, results)
    if not path.is_file():
        raise LogError(
            f"{results_path}: no responses of task {name!r} to score: {path.name} is not beside "
            "it (lm-eval writes it with --log_samples)"
        )
    task = LoggedTask(name)
    filters = filters_of(section(results, "configs", name))
    samples = collect(_kept(path, task), filters, str(path))
    scored = section(results, "n-samples", name).get("effective") or 0
    checksum = section(results, "task_hashes").get(name)
    if not task.docs:
        raise LogError(f"{path} is empty: there are no responses to score")
    if len(task.docs) < scored:
        task.missing = f"{len(task.docs)} of {counted(scored, 'item')}"
    elif checksum not in (None, samples.checksum):
        task.missing = "not the items of the logged checksum"
    return task


def _kept(path: Path, task: LoggedTask) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield the samples of a file, and add each document to the task."""
    positions: dict[Any, int] = {}
    expected = {"doc_id", "doc", "arguments", "resps"}
    for number, doc_id, sample in numbered(path):
        where = f"{path}: line {number}"
        if not (expected <= sample.keys() and _has_valid_types(sample)):
            lacking = ", ".join(sorted(expected))
            old = "those of lm-eval 0.4.2 and older cannot be scored again"
            raise LogError(f"{where} is not a sample of lm-eval, which has {lacking}; {old}")
        yield number, doc_id, sample
        # After it was looked at: an item twice under one filter is refused there.
        if doc_id not in positions:
            positions[doc_id] = len(task.docs)
            task.doc_ids.append(doc_id)
            task.docs.append(sample["doc"])
            task.arguments.append([tuple(asked.values()) for asked in sample["arguments"].values()])
            task.responses.append(sample["resps"])
        elif task.responses[positions[doc_id]] != sample["resps"]:
            raise LogError(f"{where}: doc_id {doc_id} has other responses than on an earlier line")


def _has_valid_types(sample: Mapping[str, Any]) -> bool:
    """Check the types of doc_id, filter and arguments."""
    asked = sample["arguments"]
    typed = isinstance(sample["doc_id"], (int, str)) and isinstance(asked, Mapping)
    named = isinstance(sample.get("filter", ""), str)
    return typed and named and all(isinstance(a, Mapping) for a in asked.values())  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Answers:
    """Logged responses, found by task, document, request and repeat.

    Parameters
    ----------
    tasks :
        The logged tasks. A document is identified by its position in the log, because lm-eval up
        to 0.4.13 can write a wrong doc_id when ``--samples`` chooses documents.
    templated :
        Whether a chat template was applied to the prompts.
    """

    def __init__(self, tasks: Mapping[str, LoggedTask], *, templated: bool) -> None:
        self._tasks = tasks
        self._templated = templated
        self._given: dict[tuple[str, int, int], int] = defaultdict(int)

    def take(self, request: Any) -> Any:
        """Return the next logged response to a request, and restore its logged arguments."""
        task = self._tasks[request.task_name]
        position: int = request.doc_id
        where = f"task {task.name!r}, doc_id {task.doc_ids[position]}"
        logged: list[tuple[Any, ...]] = task.arguments[position]
        answers: list[list[Any]] = task.responses[position]
        if request.idx >= min(len(logged), len(answers)):
            raise LogError(
                f"{where}: the task asks for answer number {request.idx + 1} and the log holds "
                f"{len(answers)}"
            )
        index: int = request.idx
        self._check(request, logged[index], where)
        # The log has the whole prompt (examples, chat template); the request has only its end.
        request.arguments = logged[index]
        key = (task.name, position, index)
        repeat = self._given[key]
        self._given[key] += 1
        if repeat >= len(answers[index]):
            raise LogError(f"{where}: response {repeat + 1} is asked for and missing in the log")
        return answers[index][repeat]

    def check_all_asked(self) -> None:
        """Raise if the log holds responses that no request asked for."""
        asked: dict[tuple[str, int], int] = defaultdict(int)
        for name, position, _ in self._given:
            asked[name, position] += 1
        for (name, position), count in asked.items():
            logged = len(self._tasks[name].responses[position])
            # acc_mutual_info asks each choice twice; without that metric the first half is asked.
            if logged not in (count, 2 * count):
                raise LogError(
                    f"task {name!r}, doc_id {self._tasks[name].doc_ids[position]}: the log holds "
                    f"{counted(logged, 'answer')} and the task asks for {count}"
                )

    def _check(self, request: Any, logged: tuple[Any, ...], where: str) -> None:
        """Compare a request with the logged one, in the fields that both have."""
        asked = request.args
        if asked == logged:
            return
        if request.request_type == "loglikelihood_rolling":
            same_prompt = asked[0] == logged[0]
        # The text before the question (description, examples) is not in the request.
        elif self._templated:
            same_prompt = asked[0].strip() in logged[0]
        else:
            same_prompt = logged[0].endswith(asked[0])
        pairs = [(asked[0], logged[0], same_prompt)]
        if request.request_type == "loglikelihood":
            # lm-eval omits the delimiter where a chat template separates the turns.
            now, then = (t.lstrip() if self._templated else t for t in (asked[1], logged[1]))
            pairs.append((asked[1], logged[1], now == then))
        for now, then, same in pairs:
            if not same:
                raise LogError(
                    f"{where}: the log answers {then[-80:]!r} and the task asks {now[-80:]!r}; "
                    "the task has changed since the run"
                )


def replaying_model(answers: Answers) -> Any:
    """Return a model for lm-eval that gives these responses."""

    def loglikelihood(_model: Any, requests: list[Any], **_: Any) -> list[tuple[float, bool]]:
        pairs = [answers.take(request) for request in requests]
        return [(float(value), greedy in (True, "True")) for value, greedy in pairs]

    def loglikelihood_rolling(_model: Any, requests: list[Any], **_: Any) -> list[float]:
        return [float(answers.take(request)) for request in requests]

    def generate_until(_model: Any, requests: list[Any], **_: Any) -> list[Any]:
        return [answers.take(request) for request in requests]

    methods: dict[str, Callable[..., Any]] = {
        "loglikelihood": loglikelihood,
        "loglikelihood_rolling": loglikelihood_rolling,
        "generate_until": generate_until,
    }
    # Built here because lm-eval, with the base class, is loaded on use.
    return type("ReplayLM", (harness("api.model").LM,), methods)()
