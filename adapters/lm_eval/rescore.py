"""A run scored again, written as lm-eval would have written it, and what changed."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evalstats_plugin.adapters.lm_eval.replay_model import harness
from evalstats_plugin.atomic import write_bytes
from evalstats_plugin.errors import WriteError


class Change(NamedTuple):
    """One value before and after; None where there is none."""

    task: str
    metric: str
    old: Any
    new: Any
    old_std_error: Any
    new_std_error: Any


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Pair the values of the tasks and groups that were scored again."""
    for task, after in new["results"].items():
        before: Mapping[str, Any] = old["results"].get(task, {})
        for key in dict.fromkeys((*before, *after)):
            metric, comma, filter_name = key.partition(",")
            # --predict_only logs a metric "bypass" that is always 999: no value of anything.
            if not comma or metric == "bypass" or metric.endswith("_stderr"):
                continue
            error = f"{metric}_stderr,{filter_name}"
            yield Change(
                task, key, before.get(key), after.get(key), before.get(error), after.get(error)
            )


def place_for(source: Path, results: Mapping[str, Any], output: Path) -> Path:
    """Return where a run scored again goes: the layout of lm-eval, the name of the source."""
    # With `--output_path FILE.json` lm-eval makes no folder for the model.
    if source.name.startswith("results"):
        output = output / str(results.get("model_name_sanitized") or source.parent.name)
    place = output / source.name
    if output.resolve() == source.parent.resolve():
        raise WriteError(f"{place} is the log itself: give another --output folder")
    if place.exists():
        raise WriteError(f"{place} exists already: give another --output folder, or remove it")
    return place


def write_run(rescored: Mapping[str, Any], stamp: str, place: Path) -> Path:
    """Write the samples files, then the results file."""
    results = {key: value for key, value in rescored.items() if key != "samples"}
    for task, samples in rescored["samples"].items():
        _write_samples(task, samples, stamp, place)
    text = json.dumps(
        results, indent=2, default=harness("utils").handle_non_serializable, ensure_ascii=False
    )
    return write_bytes(place, text.encode())


def _write_samples(task: str, samples: list[dict[str, Any]], stamp: str, place: Path) -> None:
    path = place.with_name(f"samples_{task}_{stamp}.jsonl")
    if path.exists():
        # lm-eval would append to it.
        raise WriteError(f"{path} exists already: give another --output folder, or remove it")
    # A path that ends in .json makes lm-eval write into the folder itself.
    tracker = harness("loggers").EvaluationTracker(output_path=str(place))
    tracker.date_id = stamp
    tracker.save_results_samples(task_name=task, samples=samples)
    # It reports a failure in its log only.
    written = path.read_bytes().count(b"\n") if path.exists() else 0
    if written != len(samples):
        raise WriteError(f"{path}: lm-eval wrote {written} of {len(samples)} samples")
