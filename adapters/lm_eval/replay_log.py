"""What one run asked and what it was answered, from its results file and samples files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.adapters.lm_eval.layout import load_results, samples_path
from evalstats_plugin.errors import LogError, SelectionError


@dataclass
class LoggedTask:
    """One task as it was asked; every list runs over the documents, in the order logged."""

    name: str
    doc_ids: list[Any] = field(default_factory=list[Any])
    docs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    arguments: list[list[tuple[Any, ...]]] = field(default_factory=list[list[tuple[Any, ...]]])
    """What each request handed to the model."""
    responses: list[list[list[Any]]] = field(default_factory=list[list[list[Any]]])
    """What came back: requests, then repeats."""

    @property
    def repeats(self) -> int:
        """How often each request was answered."""
        counts = {len(request) for requests in self.responses for request in requests}
        if len(counts) != 1:
            raise LogError(
                f"task {self.name!r}: every request must have been answered equally often, "
                f"found {sorted(counts)} answers"
            )
        return counts.pop()


@dataclass(frozen=True)
class LoggedRun:
    """One results file and the tasks that were asked for."""

    path: Path
    results: dict[str, Any]
    tasks: dict[str, LoggedTask]

    @property
    def templated(self) -> bool:
        """Whether a chat template was laid over the questions."""
        return bool(self.results.get("chat_template"))


def read_run(results_path: Path, tasks: Sequence[str] | None) -> LoggedRun:
    """Read a results file and the samples files beside it; ``tasks`` may name groups."""
    results = load_results(results_path)
    if results is None:
        raise LogError(f"{results_path}: these are not results of lm-eval")
    _check_dialect(results_path, results)
    read = {name: _read_task(results_path, name, results) for name in _leaves(results, tasks)}
    return LoggedRun(results_path, results, read)


def _check_dialect(path: Path, results: dict[str, Any]) -> None:
    """Refuse the task definitions of 0.5, which scores by other rules; its version can mislead."""
    for name, config in results["configs"].items():
        steps = [step for pipe in config.get("filter_list") or () for step in pipe["filter"]]
        if any("kwargs" in part for part in (*steps, *(config.get("metric_list") or ()))):
            raise LogError(
                f"{path}: task {name!r} is defined in the way of lm-eval 0.5; "
                "only logs of 0.4 can be scored again"
            )


def _leaves(results: dict[str, Any], wanted: Sequence[str] | None) -> list[str]:
    """Names of the tasks to replay, in the order of the results; groups stand for their tasks."""
    known: dict[str, Any] = results["configs"]
    order = [name for name in results["results"] if name in known]
    if wanted is None:
        return order
    groups: dict[str, list[str]] = results.get("group_subtasks", {})

    def expand(name: str) -> Iterator[str]:
        if name in known:
            yield name
        elif name in groups:
            for child in groups[name]:
                yield from expand(child)
        else:
            raise SelectionError(f"no task {name!r} in this run; there are: {', '.join(order)}")

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
    positions: dict[Any, int] = {}
    seen: set[tuple[Any, Any]] = set()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            sample = _read_sample(line, where)
            # Before 0.4.7 a line does not name its filter, so repetition proves nothing there.
            key = (sample["doc_id"], sample.get("filter"))
            if key in seen and "filter" in sample:
                raise LogError(f"{where}: doc_id {key[0]} comes twice under filter {key[1]!r}")
            seen.add(key)
            _add(task, positions, sample, where)
    scored = results.get("n-samples", {}).get(name, {}).get("effective", 1)
    if len(task.docs) < max(scored, 1):
        raise LogError(f"{path}: holds {len(task.docs)} of the {scored} documents that were scored")
    return task


def _read_sample(line: bytes, where: str) -> dict[str, Any]:
    if line.startswith(b"["):
        raise LogError(f"{where}: the samples of lm-eval 0.4.2 and older cannot be scored again")
    try:
        sample: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{where}: not JSON ({error}); was the run cut off?") from error
    expected = {"doc_id", "doc", "arguments", "resps"}
    whole = isinstance(sample, dict) and expected <= sample.keys()
    if not whole or not _is_laid_out(cast("dict[str, Any]", sample)):
        raise LogError(f"{where}: expected a sample of lm-eval with {', '.join(sorted(expected))}")
    return cast("dict[str, Any]", sample)


def _is_laid_out(sample: Mapping[str, Any]) -> bool:
    """Whether the parts of a sample that are looked into are what they should be."""
    asked = sample["arguments"]
    known = isinstance(sample["doc_id"], (int, str)) and isinstance(asked, Mapping)
    named = isinstance(sample.get("filter", ""), str)
    return known and named and all(isinstance(a, Mapping) for a in asked.values())  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _add(task: LoggedTask, positions: dict[Any, int], sample: dict[str, Any], where: str) -> None:
    """Add a document the first time it comes; under further filters, check that it is the same."""
    doc_id = sample["doc_id"]
    if doc_id in positions:
        if task.responses[positions[doc_id]] != sample["resps"]:
            raise LogError(f"{where}: doc_id {doc_id} has other responses than on an earlier line")
        return
    positions[doc_id] = len(task.docs)
    task.doc_ids.append(doc_id)
    task.docs.append(sample["doc"])
    task.arguments.append([tuple(asked.values()) for asked in sample["arguments"].values()])
    task.responses.append(sample["resps"])
