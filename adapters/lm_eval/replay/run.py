"""Score a logged run again with lm-eval's own code, without a model.

The samples files of a run hold the model's responses. `replay` gives them to lm-eval in place of
a model, to score other filters or metrics, with groups and standard errors, and returns a result
in the form of the log. `replay_repeats` scores each repeat alone, which lm-eval does not log.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from evalstats_plugin.adapters.lm_eval.layout import KEY
from evalstats_plugin.adapters.lm_eval.replay.model import (
    Answers,
    LoggedRun,
    read_run,
    replaying_model,
)
from evalstats_plugin.adapters.lm_eval.replay.tasks import (
    Definitions,
    Scoring,
    build_groups,
    build_task,
)
from evalstats_plugin.adapters.lm_eval.run_harness import check_harness, harness
from evalstats_plugin.errors import DesignError, EvalStatsError, LogError, SelectionError

_DEFAULT_BOOTSTRAP_ITERS = 100_000  # lm-eval's, where the log does not say

# Filters that treat each repeat by itself; others vote, choose or truncate.
_REPEATWISE = frozenset(
    {"format_span", "lowercase", "map", "multi_choice_regex", "regex", "regex_pos"}
    | {"remove_whitespace", "take_first", "uppercase"}
)

PROVENANCE = "evalstats_rescored"
"""Key of the block that records how a log was scored again."""

# The fields of a definition about scoring; the others are about how the model was asked.
_SCORING_FIELDS = ("filter_list", "metric_list", "process_results", "doc_to_target")


class RepeatScores(NamedTuple):
    """Scores of single repeats of one task.

    Attributes
    ----------
    doc_ids : shape (M,)
    scores : "metric,filter" -> shape (M, R), NaN where a document has no score
    """

    doc_ids: list[Any]
    scores: dict[str, list[list[float]]]


def replay(
    results_path: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    include_path: str | Path | None = None,
    filters: Sequence[Mapping[str, Any]] | None = None,
    metrics: Sequence[str | Mapping[str, Any]] | None = None,
    bootstrap_iters: int | None = None,
    confirm_run_unsafe_code: bool = False,
) -> dict[str, Any]:
    """Score a logged run again, in the form ``lm_eval.simple_evaluate`` returns.

    Parameters
    ----------
    results_path :
        A results file, with its samples files (``--log_samples``) beside it.
    tasks :
        Tasks or groups to score, all by default. The result has no others.
    include_path :
        Folder of the YAML files of tasks and groups. Needed where a definition has Python
        functions: the log holds only their text, which is never run. A task found there is
        scored as it is defined there.
    filters :
        Another ``filter_list``, for the tasks that generate text.
    metrics :
        Another ``metric_list``; a name stands for lm-eval's defaults of that metric.
    bootstrap_iters :
        Bootstrap resamples of some standard errors; as in the run by default.
    confirm_run_unsafe_code :
        Let tasks run code that models wrote.

    Raises
    ------
    LogError
        Responses are missing, or belong to other questions than the task asks.
    SelectionError
        A task, filter or metric does not exist for this run.
    """
    check_harness()
    run = read_run(Path(results_path), tasks)
    scoring = Scoring(filters, _as_mappings(metrics))
    definitions = Definitions(None if include_path is None else Path(include_path))
    if bootstrap_iters is None:
        bootstrap_iters = run.results["config"].get("bootstrap_iters", _DEFAULT_BOOTSTRAP_ITERS)
    answers = Answers(run.tasks, templated=run.templated)
    with _blaming(run.path), sandboxed_templates():
        built = _build(run, definitions, scoring)
        groups, notes = build_groups(run, built, definitions)
        scored = harness("evaluator").evaluate(
            lm=replaying_model(answers),
            task_dict={"tasks": built, "groups": groups},
            bootstrap_iters=bootstrap_iters,
            confirm_run_unsafe_code=confirm_run_unsafe_code,
        )
    answers.check_all_asked()
    return _as_logged(run, scored, scoring, notes)


def replay_repeats(
    results_path: str | Path,
    task: str,
    *,
    include_path: str | Path | None = None,
    filters: Sequence[Mapping[str, Any]] | None = None,
    confirm_run_unsafe_code: bool = False,
) -> RepeatScores:
    """Score every repeat of a task alone, under the filters that do not mix repeats.

    lm-eval logs one score for all repeats of a document; here each repeat is scored as if it
    were the only one. Metrics whose score is not a number are left out.

    Raises
    ------
    DesignError
        Every filter of the task mixes repeats.
    LogError, SelectionError
        As for `replay`.
    """
    check_harness()
    run = read_run(Path(results_path), [task])
    definitions = Definitions(None if include_path is None else Path(include_path))
    logged = run.tasks.get(task)
    if logged is None:
        raise SelectionError(f"{task!r} is a group; repeats are scored task by task")
    scores: dict[str, list[list[float]]] = {}
    with _blaming(run.path), sandboxed_templates():
        built = _build(run, definitions, Scoring(filters))[task]
        _take_repeats_apart(built)
        for repeat in range(logged.repeats):
            answers = Answers(run.tasks, templated=run.templated, only_repeat=repeat)
            scored = harness("evaluator").evaluate(
                lm=replaying_model(answers),
                task_dict={"tasks": {task: built}, "groups": {}},
                bootstrap_iters=0,
                confirm_run_unsafe_code=confirm_run_unsafe_code,
            )
            _collect(scored["samples"][task], (len(logged.docs), logged.repeats), repeat, scores)
    return RepeatScores(logged.doc_ids, scores)


@contextmanager
def sandboxed_templates() -> Generator[None, None, None]:
    """Render templates in Jinja's sandbox: a log can come from an untrusted source."""
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


@contextmanager
def _blaming(path: Path) -> Generator[None, None, None]:
    """Raise any error in scoring as `LogError` with the log's name: tasks run arbitrary code."""
    try:
        yield
    except EvalStatsError:
        raise
    except Exception as error:
        raise LogError(f"{path}: scoring it broke with {type(error).__name__}: {error}") from error


def _as_mappings(
    metrics: Sequence[str | Mapping[str, Any]] | None,
) -> list[Mapping[str, Any]] | None:
    if metrics is None:
        return None
    return [{"metric": one} if isinstance(one, str) else one for one in metrics]


def _build(run: LoggedRun, definitions: Definitions, scoring: Scoring) -> dict[str, Any]:
    built = {name: build_task(run, task, definitions, scoring) for name, task in run.tasks.items()}
    generating = [name for name, task in built.items() if task.OUTPUT_TYPE == "generate_until"]
    if scoring.filters is not None and not generating:
        raise SelectionError(
            f"filters take text apart, and no task here generates text: {', '.join(built)}"
        )
    return built


def _take_repeats_apart(task: Any) -> None:
    """Make a task score one repeat at a time, and drop the filters that mix repeats."""
    pipelines = task.config.filter_list
    # Without a filter list there is one filter, which takes the first response.
    if pipelines is not None:
        apart = {
            pipeline["name"]
            for pipeline in pipelines
            if all(step["function"] in _REPEATWISE for step in pipeline["filter"])
        }
        if not apart:
            raise DesignError(f"every filter of task {task.task_name!r} mixes its repeats")
        task._filters = [ensemble for ensemble in task._filters if ensemble.name in apart]
    task.set_config("repeats", 1)


def _collect(
    samples: list[dict[str, Any]],
    shape: tuple[int, int],
    repeat: int,
    scores: dict[str, list[list[float]]],
) -> None:
    """Write the scores of one repeat into ``scores``; shape is (documents, repeats)."""
    n_docs, n_repeats = shape
    for sample in samples:
        place: int = sample["doc_id"]
        for metric in sample["metrics"]:
            try:
                score = float(sample[metric])
            except (TypeError, ValueError):
                continue  # a pair or a text, which only has a meaning in the aggregate
            key = f"{metric},{sample['filter']}"
            if key not in scores:
                scores[key] = [[nan] * n_repeats for _ in range(n_docs)]
            scores[key][place][repeat] = score


def _as_logged(
    run: LoggedRun, scored: Mapping[str, Any], scoring: Scoring, notes: list[str]
) -> dict[str, Any]:
    """Return the log with new scores, and with what it says on how the model was asked.

    Nothing computed from the old scores is kept: no standard error, group or interval.
    """
    logged = run.results
    samples = _with_logged_ids(run, scored["samples"])
    kept = {*run.tasks, *scored["group_subtasks"]}
    new: dict[str, Any] = {
        "results": scored["results"],
        "groups": scored.get("groups"),
        "group_subtasks": scored["group_subtasks"],
        "configs": {name: _config(run, scored, name) for name in scored["configs"]},
        "versions": _versions(run, scored),
        "n-shot": {name: n for name, n in logged.get("n-shot", {}).items() if name in kept},
        "higher_is_better": scored["higher_is_better"],
        "n-samples": _counts(run, scored),
        "task_hashes": _task_hashes(samples),
    }
    whole = {key: new.get(key, value) for key, value in logged.items() if key != KEY} | new
    if whole["groups"] is None:
        del whole["groups"]
    whole[PROVENANCE] = {
        "source": run.path.name,
        "lm_eval_version": harness("").__version__,
        "filters": scoring.filters,
        "metrics": scoring.metrics,
        "notes": [*notes, *_version_notes(run, scored)],
    }
    return whole | {"samples": samples}


def _with_logged_ids(
    run: LoggedRun, samples: Mapping[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """Give each sample the doc_id of the log; so far it has its position in the log."""
    return {
        name: [{**one, "doc_id": run.tasks[name].doc_ids[one["doc_id"]]} for one in rows]
        for name, rows in samples.items()
    }


def _config(run: LoggedRun, scored: Mapping[str, Any], name: str) -> dict[str, Any]:
    logged, new = run.results["configs"][name], scored["configs"][name]
    config = {
        key: new.get(key) if key in _SCORING_FIELDS else value for key, value in logged.items()
    }
    config |= {key: new[key] for key in _SCORING_FIELDS if key in new}
    return {key: value for key, value in config.items() if value is not None}


def _versions(run: LoggedRun, scored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions of the tasks as scored; a group without a definition keeps its own."""
    logged = run.results["versions"]
    return {
        name: version if name in run.tasks or version != "N/A" else logged.get(name, version)
        for name, version in scored["versions"].items()
    }


def _version_notes(run: LoggedRun, scored: Mapping[str, Any]) -> list[str]:
    logged, now = run.results["versions"], scored["versions"]
    return [
        f"task {name!r} ran as version {logged.get(name)}, and is scored as version {now[name]} "
        "defines it"
        for name in run.tasks
        if str(logged.get(name)) != str(now[name])
    ]


def _counts(run: LoggedRun, scored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the number of documents; only the log has the task's full size ("original")."""
    logged: dict[str, Any] = run.results.get("n-samples", {})
    return {
        name: {**counts, "original": logged.get(name, counts)["original"]}
        for name, counts in scored["n-samples"].items()
    }


def _task_hashes(samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Hash the documents and prompts of each task, as lm-eval does when it saves."""
    hash_string = harness("utils").hash_string
    return {
        name: hash_string(
            "".join(one["doc_hash"] + one["prompt_hash"] + one["target_hash"] for one in rows)
        )
        for name, rows in samples.items()
    }
