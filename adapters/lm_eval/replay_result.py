"""New scores in the form of the log they replace."""

from collections.abc import Mapping
from typing import Any

from evalstats_plugin.adapters.lm_eval.block import KEY
from evalstats_plugin.adapters.lm_eval.replay_log import LoggedRun
from evalstats_plugin.adapters.lm_eval.replay_model import harness
from evalstats_plugin.adapters.lm_eval.replay_tasks import Scoring

PROVENANCE = "evalstats_rescored"
"""Key of the block that tells how a log was scored again."""

# What a definition says about scoring; the rest tells how the model was asked.
_SCORING_FIELDS = ("filter_list", "metric_list", "process_results", "doc_to_target")


def as_logged(
    run: LoggedRun, scored: Mapping[str, Any], scoring: Scoring, notes: list[str]
) -> dict[str, Any]:
    """Put the new scores in the place of the old; keep what tells how the model was asked.

    Nothing computed from the old scores survives: not a standard error, group or interval.
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
    """Give each sample the doc_id it has in the log; here it is its place there."""
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
    """Versions of the tasks as scored; a group keeps its own where it was not defined anew."""
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
    """Count documents; how many the task has in all, only the log knows."""
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
