"""Run lm-eval itself: its command followed by annotation, and imports of its modules.

`lm_eval` (the command) runs lm-eval to its end, with its own arguments, then annotates the results
files that it saved. `harness` imports a module of lm-eval; `replay` and `adaptive` use it too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.adapters.lm_eval.layout import KEY
from evalstats_plugin.errors import EvalStatsError, install_hint
from evalstats_plugin.runtime.untrusted import printable_name

_MOST_SHOWN = 20
"""Intervals of a run that are printed when it has ended."""


@click.command(
    "lm-eval",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lm_eval(arguments: tuple[str, ...]) -> None:
    """Run lm-eval with its own arguments, then annotate the results files it wrote.

    lm-eval runs to its end first: its files, output and exit code are its own whatever happens
    to the annotation.
    """
    cli_evaluate = harness("__main__").cli_evaluate
    with _watched() as saved:
        own_arguments, sys.argv = sys.argv, ["lm-eval", *arguments]
        try:
            cli_evaluate()
        finally:
            sys.argv = own_arguments
            _annotate(saved)


@contextmanager
def _watched() -> Generator[list[Path | None], None, None]:
    """Record the results file that lm-eval saves of each run, None where it saves none.

    Errors in recording never disturb the saving.
    """
    tracker: Any = harness("loggers.evaluation_tracker").EvaluationTracker
    save = tracker.save_results_aggregated
    saved: list[Path | None] = []

    def save_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        outcome = save(self, *args, **kwargs)
        # The samples are saved after this: an error here would lose them.
        with suppress(Exception):
            saved.append(saved_by(self))
        return outcome

    tracker.save_results_aggregated = save_and_note
    try:
        yield saved
    finally:
        tracker.save_results_aggregated = save


def saved_by(tracker: Any) -> Path | None:
    """Return the results file a tracker has just written; None if its saving failed silently."""
    output, when = getattr(tracker, "output_path", None), getattr(tracker, "date_id", None)
    if not output or not when:
        return None
    path = Path(output)
    if path.suffix == ".json":
        saved = path.with_name(f"{path.stem}_{when}.json")
    else:
        config = getattr(tracker, "general_config_tracker", None)
        saved = path / str(getattr(config, "model_name_sanitized", "")) / f"results_{when}.json"
    return saved if saved.is_file() else None


def _annotate(saved: Sequence[Path | None]) -> None:
    """Annotate in place; a failure is reported on standard error and changes nothing else."""
    for path in filter(None, saved):
        try:
            import evalstats_plugin

            evalstats_plugin.annotate(path, in_place=True)
            intervals = _intervals_in(path)
        # The user's run is worth more than our annotation: no error may pass.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            why = str(error) or type(error).__name__
            _print_error(f"{path} is as lm-eval wrote it: not annotated ({why})")
        else:
            _print_error("\n  ".join([f"annotated {path}", *intervals]))
    if None in saved:
        _print_error(
            "lm-eval wrote no results file, so nothing is annotated (is --output_path given?)"
        )


def _intervals_in(path: Path) -> list[str]:
    """Return a line for each interval that a results file was annotated with."""
    block: Any = json.loads(path.read_text(encoding="utf-8")).get(KEY, {})
    rows = [row for row in block.get("intervals", ()) if row["low"] is not None]
    lines = [
        f"{printable_name(row['task'])} {printable_name(row['metric'])} {row['estimate']:.4f} "
        f"[{row['low']:.4f}, {row['high']:.4f}]"
        for row in rows[:_MOST_SHOWN]
    ]
    more = len(rows) - len(lines)
    return [*lines, f"and {more} more: evalstats-plugin report {path}"] if more else lines


def _print_error(text: str) -> None:
    sys.stderr.write(f"evalstats: {text}\n")


def harness(module: str) -> Any:
    """Import a module of lm-eval ("" is the package itself).

    Returned as `Any`, because lm-eval's own types are partial.

    Raises
    ------
    EvalStatsError
        lm-eval is not installed; the message says how to install it.
    """
    try:
        return import_module(f"lm_eval.{module}" if module else "lm_eval")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("lm_eval"):
            raise
        raise EvalStatsError(
            f"this runs lm-eval's own code, and lm-eval is not installed: {install_hint('lm-eval')}"
        ) from error


def check_harness() -> None:
    """Raise if lm-eval is missing or too old to score a log again."""
    if not hasattr(harness("api.group"), "Group"):
        raise EvalStatsError(
            f"lm-eval {harness('').__version__} is too old: this needs lm-eval 0.4.12 or later: "
            "pip install --upgrade lm-eval"
        )


@contextmanager
def quiet_harness() -> Generator[None, None, None]:
    """Silence lm-eval's log and progress bars, and send its prints to standard error."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(level)
