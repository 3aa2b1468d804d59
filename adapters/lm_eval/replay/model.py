"""What one run asked and what it was answered, from its results file and samples files."""
# PART replay_model - A language model for lm-eval that answers from a log, and refuses to answer another question.

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.adapters.lm_eval.layout import load_results, samples_path
from evalstats_plugin.adapters.lm_eval.run_harness import harness
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


@contextmanager
def sandboxed_templates() -> Generator[None, None, None]:
    """Render templates where they cannot reach Python: a log can come from anywhere."""
    from jinja2.sandbox import SandboxedEnvironment

    owner = harness("utils")
    free: Any = owner.env
    sandbox = SandboxedEnvironment(
        undefined=free.undefined, keep_trailing_newline=free.keep_trailing_newline
    )
    sandbox.filters.update(free.filters)
    owner.env = sandbox
    try:
        yield
    finally:
        owner.env = free


class Answers:
    """Answers to the requests of a run, found by task, document, request and repeat.

    Parameters
    ----------
    tasks :
        What was logged. A document is known by its place in the log, because lm-eval up to
        0.4.13 can write a wrong doc_id when ``--samples`` chooses documents.
    templated :
        Whether a chat template was laid over the questions.
    only_repeat :
        Give this repeat alone, for every request.
    """

    def __init__(
        self, tasks: Mapping[str, LoggedTask], *, templated: bool, only_repeat: int | None = None
    ) -> None:
        self._tasks = tasks
        self._templated = templated
        self._only_repeat = only_repeat
        self._given: dict[tuple[str, int, int], int] = defaultdict(int)

    def take(self, request: Any) -> Any:
        """Return the next logged response to a request, which gets back its logged arguments."""
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
        # The log has the whole prompt (examples, chat template); what was asked here is its end.
        request.arguments = logged[index]
        key = (task.name, position, index)
        repeat = self._given[key] if self._only_repeat is None else self._only_repeat
        self._given[key] += 1
        if repeat >= len(answers[index]):
            raise LogError(f"{where}: response {repeat + 1} is asked for and missing in the log")
        return answers[index][repeat]

    def check_all_asked(self) -> None:
        """Raise if the log holds answers that no question asked for."""
        asked: dict[tuple[str, int], int] = defaultdict(int)
        for name, position, _ in self._given:
            asked[name, position] += 1
        for (name, position), count in asked.items():
            logged = len(self._tasks[name].responses[position])
            # acc_mutual_info asks each choice twice; without that metric the first half is asked.
            if logged not in (count, 2 * count):
                raise LogError(
                    f"task {name!r}, doc_id {self._tasks[name].doc_ids[position]}: the log holds "
                    f"{logged} answers and the task asks for {count}"
                )

    def _check(self, request: Any, logged: tuple[Any, ...], where: str) -> None:
        """Compare what is asked with what was logged, as far as it can be compared."""
        asked = request.args
        if asked == logged:
            return
        same = self._same_end if request.request_type != "loglikelihood_rolling" else _equal
        if not same(asked[0], logged[0]):
            raise _changed(where, asked[0], logged[0])
        if request.request_type == "loglikelihood" and not self._same_choice(asked[1], logged[1]):
            raise _changed(where, asked[1], logged[1])

    def _same_end(self, asked: str, logged: str) -> bool:
        # What stands before the question (description, examples) is not asked again.
        return asked.strip() in logged if self._templated else logged.endswith(asked)

    def _same_choice(self, asked: str, logged: str) -> bool:
        # lm-eval leaves the delimiter out where a chat template separates the turns.
        return asked.lstrip() == logged.lstrip() if self._templated else asked == logged


def _equal(asked: str, logged: str) -> bool:
    return asked == logged


def _changed(where: str, asked: str, logged: str) -> LogError:
    return LogError(
        f"{where}: the log answers {logged[-80:]!r} and the task asks {asked[-80:]!r}; "
        "the task has changed since the run"
    )


def replaying_model(answers: Answers) -> Any:
    """Build the model that gives these answers."""

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
    # Built here because its base class may be imported only now.
    return type("ReplayLM", (harness("api.model").LM,), methods)()
