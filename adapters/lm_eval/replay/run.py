"""Score a logged run again with lm-eval's own code, without a model.

The samples files of a run hold the model's responses. `replay` gives them to lm-eval in place of
a model, to score other filters or metrics, with groups and standard errors, and returns a result
in the form of the log.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from evalstats_plugin.errors import EvalStatsError, LogError, SelectionError

_DEFAULT_BOOTSTRAP_ITERS = 100_000  # lm-eval's, where the log does not say

PROVENANCE = "evalstats_rescored"
"""Key of the block that records how a log was scored again."""

# The fields of a definition about scoring; the others are about how the model was asked.
_SCORING_FIELDS = ("filter_list", "metric_list", "process_results", "doc_to_target")


def replay(
    results_path: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    include_path: str | Path | None = None,
    filters: Sequence[Mapping[str, Any]] | None = None,
    metrics: Sequence[str] | None = None,
    bootstrap_iters: int | None = None,
    allow_partial: bool = False,
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
        Names of metrics of lm-eval instead, with its defaults.
    bootstrap_iters :
        Bootstrap resamples of some standard errors; as in the run by default.
    allow_partial :
        Also score tasks that the log holds only in part; the provenance names them.
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
    run = read_run(Path(results_path), tasks, allow_partial=allow_partial)
    scoring = Scoring(filters, metrics)
    definitions = Definitions(None if include_path is None else Path(include_path))
    if bootstrap_iters is None:
        bootstrap_iters = run.results["config"].get("bootstrap_iters", _DEFAULT_BOOTSTRAP_ITERS)
    answers = Answers(run.tasks, templated=run.templated)
    with blaming(run.path), sandboxed_templates():
        built = {
            name: build_task(run, task, definitions, scoring) for name, task in run.tasks.items()
        }
        generating = [task for task in built.values() if task.OUTPUT_TYPE == "generate_until"]
        if scoring.filters is not None and not generating:
            raise SelectionError(
                f"filters take text apart, and no task here generates text: {', '.join(built)}"
            )
        groups, notes = build_groups(run, built, definitions)
        scored = harness("evaluator").evaluate(
            lm=replaying_model(answers),
            task_dict={"tasks": built, "groups": groups},
            bootstrap_iters=bootstrap_iters,
            confirm_run_unsafe_code=confirm_run_unsafe_code,
        )
    answers.check_all_asked()
    return _as_logged(run, scored, scoring, notes)


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
def blaming(what: str | Path) -> Generator[None, None, None]:
    """Raise any error in scoring as `LogError` with the log's name: tasks run arbitrary code."""
    try:
        yield
    except EvalStatsError:
        raise
    except Exception as error:
        raise LogError(f"{what}: scoring it broke with {type(error).__name__}: {error}") from error


def _as_logged(
    run: LoggedRun, scored: Mapping[str, Any], scoring: Scoring, notes: list[str]
) -> dict[str, Any]:
    """Return the log with new scores, and with what it says on how the model was asked.

    Nothing computed from the old scores is kept: no standard error, group or interval.
    """
    logged, versions = run.results, run.results["versions"]
    sizes: dict[str, Any] = logged.get("n-samples", {})
    # So far the doc_id of a sample is its position in the log.
    samples = {
        name: [{**sample, "doc_id": run.tasks[name].doc_ids[sample["doc_id"]]} for sample in rows]
        for name, rows in scored["samples"].items()
    }
    kept = {*run.tasks, *scored["group_subtasks"]}
    new: dict[str, Any] = {
        "results": scored["results"],
        "groups": scored.get("groups"),
        "group_subtasks": scored["group_subtasks"],
        "configs": {name: _config(run, scored, name) for name in scored["configs"]},
        # A group without a definition keeps its own.
        "versions": {
            name: version if name in run.tasks or version != "N/A" else versions.get(name, version)
            for name, version in scored["versions"].items()
        },
        "n-shot": {name: n for name, n in logged.get("n-shot", {}).items() if name in kept},
        "higher_is_better": scored["higher_is_better"],
        # Only the log has the task's full size.
        "n-samples": {
            name: {**counts, "original": sizes.get(name, counts)["original"]}
            for name, counts in scored["n-samples"].items()
        },
        "task_hashes": _task_hashes(samples),
    }
    whole = logged | new
    if whole["groups"] is None:
        del whole["groups"]
    parts = [
        f"task {task.name!r} is scored in part: {task.missing}"
        for task in run.tasks.values()
        if task.missing
    ]
    whole[PROVENANCE] = {
        "source": run.path.name,
        "lm_eval_version": harness("").__version__,
        "filters": scoring.filters,
        "metrics": scoring.metrics,
        "notes": [*parts, *notes, *_version_notes(run, scored)],
    }
    return whole | {"samples": samples}


def _config(run: LoggedRun, scored: Mapping[str, Any], name: str) -> dict[str, Any]:
    logged, new = run.results["configs"][name], scored["configs"][name]
    config = {
        key: new.get(key) if key in _SCORING_FIELDS else value for key, value in logged.items()
    }
    config |= {key: new[key] for key in _SCORING_FIELDS if key in new}
    return {key: value for key, value in config.items() if value is not None}


def _version_notes(run: LoggedRun, scored: Mapping[str, Any]) -> list[str]:
    logged, now = run.results["versions"], scored["versions"]
    return [
        f"task {name!r} ran as version {logged.get(name)}, and is scored as version {now[name]} "
        "defines it"
        for name in run.tasks
        if str(logged.get(name)) != str(now[name])
    ]


def _task_hashes(samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Hash the documents and prompts of each task, as lm-eval does when it saves."""
    hash_string = harness("utils").hash_string
    return {
        name: hash_string(
            "".join(
                sample["doc_hash"] + sample["prompt_hash"] + sample["target_hash"]
                for sample in rows
            )
        )
        for name, rows in samples.items()
    }
