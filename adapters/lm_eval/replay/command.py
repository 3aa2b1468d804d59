"""``evalstats-plugin rescore``: score logged runs again, and write them as lm-eval does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import click

from evalstats_plugin.adapters.lm_eval.layout import load_results, stamp_of, stderr_key
from evalstats_plugin.adapters.lm_eval.replay.confined import Limits, confined
from evalstats_plugin.adapters.lm_eval.replay.model import NoSuchTaskError
from evalstats_plugin.adapters.lm_eval.run_harness import check_harness, harness, quiet_harness
from evalstats_plugin.adapters.lm_eval.values import as_number
from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import OUTPUT, command, paths, takes, under
from evalstats_plugin.cli.shell.running import loaded_plugins
from evalstats_plugin.errors import EvalStatsError, SelectionError, WriteError, counted
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import echo, echo_data, echo_message, json_text, path_part
from evalstats_plugin.runtime.writing import (
    check_free,
    check_inside,
    new_folder,
    replacing,
    scratch_folder,
)

_scored = under("What is scored")

_OWN_CODE = (
    "tasks of --include-path are your own code: only time and memory were limited, not files, "
    "network or other programs"
)


@dataclass(frozen=True, kw_only=True)
class RescoreOptions:
    """What is scored again, how, and where it goes."""

    output: str = shared.file(
        "Folder for the new results and samples files.", "-o", metavar="FOLDER", required=True
    )
    form: Literal["table", "json"] = under(OUTPUT)(
        "Form of the results.", "--format", default="table", type=click.Choice(["table", "json"])
    )
    tasks: tuple[str, ...] = _scored(
        "Only this task or group; may be repeated.", "--task", "-t", default=(), metavar="NAME"
    )
    filters: tuple[str, ...] = _scored(
        "Filter to score instead of the task's own; may be repeated.",
        "--filter",
        default=(),
        metavar="FILE.yaml|NAME=REGEX",
    )
    metrics: tuple[str, ...] = _scored(
        "Metric to score instead of the task's own; may be repeated.",
        "--metric",
        "-m",
        default=(),
        metavar="NAME",
    )
    include_path: str | None = _scored(
        "Folder of the tasks' YAML files; needed for tasks with Python functions.",
        metavar="FOLDER",
        type=click.Path(),
    )
    bootstrap_iters: int | None = _scored(
        "Resamples of lm-eval's own standard errors.  [default: as in the run]",
        metavar="N",
        type=click.IntRange(min=0),
    )
    allow_partial: bool = _scored(
        "Also score logs that hold only a part of what the run asked; the new results say so.",
        default=False,
    )
    confirm_run_unsafe_code: bool = _scored(
        "Let tasks run the code that models wrote.", default=False
    )
    time_limit: int = _scored(
        "Most seconds to score one log.", default=600, metavar="SECONDS", type=click.IntRange(min=1)
    )
    memory_limit: float = _scored(
        "Most memory to score one log, beyond that of lm-eval.",
        default=8.0,
        metavar="GIB",
        type=click.FloatRange(min=0.1),
    )


@command()
@paths
@takes("asked", RescoreOptions)
@click.pass_context
def rescore(ctx: click.Context, paths: tuple[str, ...], *, asked: RescoreOptions) -> None:
    """Score lm-eval's logged responses again, without a model.

    Writes a complete new lm-eval output, and prints each value before and after. Works on runs
    with --log_samples, and so on runs with --predict_only.

    Each log is scored in a process of its own. Without --include-path all that runs comes from the
    log, and the process has no network and writes to the output folder only, where the system
    lets it.
    """
    from evalstats_plugin.logs.reading import find_logs

    check_harness()  # what to install, before anything else
    logs = [log for log in find_logs(paths, loaded_plugins()) if log.suffix == ".json"]
    if not logs:
        raise SelectionError(f"no results files of lm-eval in {', '.join(paths)}")
    rows: list[dict[str, Any]] = []
    limits: set[str] = set()
    failures: list[EvalStatsError] = []
    without: list[SelectionError] = []
    for log in logs:
        try:
            changed, enforced = _rescore(log, asked)
            rows += changed
            limits.add(enforced)
        except NoSuchTaskError as error:
            # No error if another log has the task.
            without.append(error)
        except EvalStatsError as error:
            failures.append(error)
    if len(failures) + len(without) == len(logs):
        raise [*failures, *without][0]
    _print(rows, asked.form)
    for line in sorted(limits):
        echo_message("note", line)
    for error in without:
        echo_message("note", f"left as it is: {error}")
    for error in failures:
        echo_message("error", error)
    ctx.exit(1 if failures else 0)


def _rescore(log: Path, asked: RescoreOptions) -> tuple[list[dict[str, Any]], str]:
    """Score one run and write it; return the changes, and what the code was kept from."""
    old = load_results(LogFile(log)) or {}
    output = Path(asked.output)
    place = place_for(log, old, output)
    check_inside(place, output)
    with new_folder(place.parent) as folder, scratch_folder(folder) as scratch:
        limits = Limits(
            asked.time_limit, asked.memory_limit, None if asked.include_path else scratch
        )
        work = partial(_scored_into, scratch / place.name, log, asked)
        done = confined(log, work, limits)
        made: dict[str, Any] = done.value
        # The results file is the last: a run without it is no log, and is scored again.
        for name in made["files"]:
            part = path_part(name, "the samples file")
            check_inside(folder / part, folder)
            with replacing(folder / part) as temporary:
                (scratch / part).replace(temporary)
    for note in made["notes"]:
        echo_message("note", note)
    about = {"source": str(log), "output": str(place)}
    rows = [about | change for change in made["changes"]]
    return rows, _OWN_CODE if asked.include_path else done.enforced(output)


def _scored_into(place: Path, log: Path, asked: RescoreOptions) -> dict[str, Any]:
    """Score one run and write it to a folder; return the names of its files, and the changes.

    The name of the results file is the last.
    """
    with quiet_harness():
        from evalstats_plugin.adapters.lm_eval.replay.run import PROVENANCE, replay

        old = load_results(LogFile(log)) or {}
        new = replay(
            log,
            tasks=asked.tasks or None,
            include_path=asked.include_path,
            filters=read_filters(asked.filters),
            metrics=asked.metrics or None,
            bootstrap_iters=asked.bootstrap_iters,
            allow_partial=asked.allow_partial,
            confirm_run_unsafe_code=asked.confirm_run_unsafe_code,
        )
        files = write_run(new, stamp_of(log), place)
    return {
        "files": [file.name for file in files],
        "notes": new[PROVENANCE]["notes"],
        "changes": list(changes(old, new)),
    }


def read_filters(texts: Sequence[str]) -> list[dict[str, Any]] | None:
    """Read the values of --filter, each ``FILE.yaml`` or ``NAME=REGEX``.

    Raises
    ------
    SelectionError
        A file is not a list of filters, or a pattern is not a regular expression.
    """
    import yaml

    filters: list[dict[str, Any]] = []
    for text in texts:
        name, equals, pattern = text.partition("=")
        try:
            if Path(text).suffix in {".yaml", ".yml"}:
                content: Any = yaml.safe_load(Path(text).read_text(encoding="utf-8"))
                # A list of filters, or a task that has one.
                filters += content if isinstance(content, list) else content["filter_list"]
                continue
            re.compile(pattern)
        except (
            OSError,
            TypeError,
            LookupError,
            ValueError,
            RecursionError,
            yaml.YAMLError,
            re.error,
        ) as error:
            reason = " ".join(str(error).split())
            raise SelectionError(f"--filter {text!r} cannot be used: {reason}") from error
        if not equals:
            msg = f"--filter {text!r} is neither a YAML file nor NAME=REGEX, such as last='(\\d+)'"
            raise SelectionError(msg)
        steps = [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]
        filters.append({"name": name, "filter": steps})
    return filters or None


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Pair the values of the tasks and groups that were scored again; None where a log has none."""
    for task, after in new["results"].items():
        before: Mapping[str, Any] = old["results"].get(task, {})
        for key in dict.fromkeys((*before, *after)):
            metric, comma, _ = key.partition(",")
            # --predict_only logs a metric "bypass" that is always 999, which is no score.
            if not comma or metric == "bypass" or metric.endswith("_stderr"):
                continue
            error = stderr_key(key)
            yield {
                "task": task, "metric": key,
                "old": _number(before.get(key)), "new": _number(after.get(key)),
                "old_std_error": _number(before.get(error)),
                "new_std_error": _number(after.get(error)),
            }  # fmt: skip


def place_for(source: Path, results: Mapping[str, Any], output: Path) -> Path:
    """Return the path of the new results file: lm-eval's layout, the source's file name.

    Raises
    ------
    WriteError
        It would overwrite the log itself, or an existing file.
    """
    # With `--output_path FILE.json` lm-eval makes no folder for the model.
    if source.name.startswith("results"):
        named = str(results.get("model_name_sanitized") or source.parent.name)
        output = output / path_part(named, f"{source}: the name of the model,")
    place = output / source.name
    if output.resolve() == source.parent.resolve():
        raise WriteError(f"{place} is the log itself: give another --output folder")
    check_free(place)
    return place


def write_run(rescored: Mapping[str, Any], stamp: str, place: Path) -> list[Path]:
    """Write the samples files, then the results file, to a new folder; return their paths."""
    results = {key: value for key, value in rescored.items() if key != "samples"}
    files: list[Path] = []
    for task, samples in rescored["samples"].items():
        path = place.with_name(path_part(f"samples_{task}_{stamp}.jsonl", "the samples file"))
        # A path that ends in .json makes lm-eval write into the folder itself.
        tracker = harness("loggers").EvaluationTracker(output_path=str(place))
        tracker.date_id = stamp
        tracker.save_results_samples(task_name=task, samples=samples)
        # It reports a failure in its log only.
        written = path.read_bytes().count(b"\n") if path.exists() else 0
        if written != len(samples):
            said = f"lm-eval wrote {written} of {counted(len(samples), 'sample')}"
            raise WriteError(f"{path}: {said}")
        files.append(path)
    text = json.dumps(
        results, indent=2, default=harness("utils").handle_non_serializable, ensure_ascii=False
    )
    place.write_bytes(text.encode())
    return [*files, place]


def _print(rows: list[dict[str, Any]], form: str) -> None:
    if form == "json":
        about = {"version": VERSION, "command": "rescore"}
        echo_data(json_text({"evalstats": about, "results": rows}) + "\n")
        return
    for place in dict.fromkeys(row["output"] for row in rows):
        echo(place)
        cells = [("task", "metric", "old", "", "new")]
        for row in rows:
            if row["output"] != place:
                continue
            old, new = (_with_error(row[name], row[f"{name}_std_error"]) for name in ("old", "new"))
            cells.append((row["task"], row["metric"], old, "=" if old == new else "→", new))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            echo(("  " + "  ".join(padded)).rstrip())


def _number(value: Any) -> float | None:
    """Return a finite number, or None: lm-eval writes "N/A", and JSON has no NaN."""
    number = as_number(value)
    return None if number is None or not isfinite(number) else number


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
