"""``evalstats-plugin rescore``: score logged runs again, and write them as lm-eval does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import click

from evalstats_plugin.adapters.lm_eval.layout import load_results, stamp_of, stderr_key
from evalstats_plugin.adapters.lm_eval.run_harness import check_harness, harness, quiet_harness
from evalstats_plugin.errors import EvalStatsError, SelectionError, WriteError
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.files import write_bytes


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the new results and samples files.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="FILE.yaml|NAME=REGEX",
    help="Filter to score instead of the task's own; may be repeated.",
)
@click.option(
    "--metric",
    "-m",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Metric to score instead of the task's own; may be repeated.",
)
@click.option(
    "--include-path",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the tasks' YAML files; needed for tasks with Python functions.",
)
@click.option(
    "--task", "-t", "tasks", multiple=True, metavar="NAME", help="Only this task or group."
)
@click.option(
    "--bootstrap-iters",
    type=click.IntRange(min=0),
    metavar="N",
    help="Resamples behind lm-eval's own standard errors.  [default: as in the run]",
)
@click.option(
    "--confirm-run-unsafe-code", is_flag=True, help="Let tasks run the code that models wrote."
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def rescore(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Score lm-eval's logged responses again, without a model.

    Writes a complete new lm-eval output, and prints each value before and after. Works on runs
    with --log_samples, and so on runs with --predict_only.
    """
    from evalstats_plugin.logs.reading import find_logs
    from evalstats_plugin.plugins import load_plugins

    check_harness()  # what to install, before anything else
    logs = [log for log in find_logs(paths, load_plugins(ctx.obj or ())) if log.suffix == ".json"]
    if not logs:
        raise SelectionError(f"no results files of lm-eval in {', '.join(paths)}")
    rows: list[dict[str, Any]] = []
    failures: list[EvalStatsError] = []
    for log in logs:
        try:
            rows += _rescore(log, chosen)
        except EvalStatsError as error:
            failures.append(error)
    if len(failures) == len(logs):
        raise failures[0]
    _print(rows, chosen["form"])
    for error in failures:
        click.echo(f"error: {error}", err=True)
    ctx.exit(1 if failures else 0)


def _rescore(log: Path, chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Score one run, write it, and return what changed."""
    with quiet_harness():
        from evalstats_plugin.adapters.lm_eval.replay.run import PROVENANCE, replay

        old = load_results(log) or {}
        place = place_for(log, old, chosen["output"])
        new = replay(
            log,
            tasks=chosen["tasks"] or None,
            include_path=chosen["include_path"],
            filters=_filters(chosen["filters"]),
            metrics=chosen["metrics"] or None,
            bootstrap_iters=chosen["bootstrap_iters"],
            confirm_run_unsafe_code=chosen["confirm_run_unsafe_code"],
        )
        write_run(new, stamp_of(log), place)
    for note in new[PROVENANCE]["notes"]:
        click.echo(f"note: {note}", err=True)
    return [_row(log, place, change) for change in changes(old, new)]


def _filters(texts: tuple[str, ...]) -> list[dict[str, Any]] | None:
    """Read the values of --filter, each ``FILE.yaml`` or ``NAME=REGEX``."""
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
            raise SelectionError(f"--filter {text!r} found, expected FILE.yaml or NAME=REGEX")
        steps = [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]
        filters.append({"name": name, "filter": steps})
    return filters or None


class Change(NamedTuple):
    """One value before and after; None where the log has none."""

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
            metric, comma, _ = key.partition(",")
            # --predict_only logs a metric "bypass" that is always 999, which is no score.
            if not comma or metric == "bypass" or metric.endswith("_stderr"):
                continue
            error = stderr_key(key)
            yield Change(
                task, key, before.get(key), after.get(key), before.get(error), after.get(error)
            )


def place_for(source: Path, results: Mapping[str, Any], output: Path) -> Path:
    """Return the path of the new results file: lm-eval's layout, the source's file name.

    Raises
    ------
    WriteError
        It would overwrite the log itself, or an existing file.
    """
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
    """Write the samples files, then the results file; return its path."""
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


def _print(rows: list[dict[str, Any]], form: str) -> None:
    if form == "json":
        about = {"version": VERSION, "command": "rescore"}
        click.echo(json.dumps({"evalstats": about, "results": rows}, indent=2, ensure_ascii=False))
        return
    for place in dict.fromkeys(row["output"] for row in rows):
        click.echo(place)
        cells = [_cells(row) for row in rows if row["output"] == place]
        cells.insert(0, ("task", "metric", "old", "", "new"))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            click.echo(("  " + "  ".join(padded)).rstrip())


def _row(log: Path, place: Path, change: Change) -> dict[str, Any]:
    values = ("old", "new", "old_std_error", "new_std_error")
    return {
        "source": str(log),
        "output": str(place),
        "task": change.task,
        "metric": change.metric,
        **{name: _number(getattr(change, name)) for name in values},
    }


def _number(value: Any) -> float | None:
    """Return a finite number, or None: lm-eval writes "N/A", and JSON has no NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if isfinite(number) else None


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    old, new = (_with_error(row[name], row[f"{name}_std_error"]) for name in ("old", "new"))
    return row["task"], row["metric"], old, "=" if old == new else "→", new


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
