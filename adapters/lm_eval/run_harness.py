"""lm-eval's own command, with annotation when it has ended."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import EvalStatsError


@dataclass
class Saved:
    """What lm-eval saved while it was watched."""

    files: list[Path] = field(default_factory=list[Path])
    missing: int = 0
    """Runs that ended without a results file."""


def run_and_annotate(arguments: Sequence[str]) -> None:
    """Run lm-eval with these arguments to its end, then annotate the results files it wrote.

    Whatever lm-eval raises, its exit code included, is passed on.
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
def _watched() -> Generator[Saved, None, None]:
    """Learn which results files lm-eval saves, without a chance to disturb the saving."""
    tracker: Any = harness("loggers.evaluation_tracker").EvaluationTracker
    save = tracker.save_results_aggregated
    saved = Saved()

    def save_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        outcome = save(self, *args, **kwargs)
        # The samples are saved after this: an error here would cost them.
        with suppress(Exception):
            path = saved_by(self)
            if path is None:
                saved.missing += 1
            else:
                saved.files.append(path)
        return outcome

    tracker.save_results_aggregated = save_and_note
    try:
        yield saved
    finally:
        tracker.save_results_aggregated = save


def saved_by(tracker: Any) -> Path | None:
    """Return the file a tracker has just written; it swallows errors, so there may be none."""
    output, when = getattr(tracker, "output_path", None), getattr(tracker, "date_id", None)
    if not output or not when:
        return None
    path = Path(output)
    if path.suffix == ".json":
        found = path.with_name(f"{path.stem}_{when}.json")
    else:
        config = getattr(tracker, "general_config_tracker", None)
        found = path / str(getattr(config, "model_name_sanitized", "")) / f"results_{when}.json"
    return found if found.is_file() else None


def _annotate(saved: Saved) -> None:
    """Annotate in place; a failure is told on standard error and changes nothing else."""
    for path in saved.files:
        try:
            import evalstats_plugin

            evalstats_plugin.annotate(path, in_place=True)
        # The user's run is worth more than our annotation: nothing may get past here.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            _tell(f"{path} is as lm-eval wrote it: not annotated ({_why(error)})")
        else:
            _tell(f"annotated {path}")
    if saved.missing:
        _tell("lm-eval wrote no results file, so nothing is annotated (is --output_path given?)")


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _tell(text: str) -> None:
    sys.stderr.write(f"evalstats: {text}\n")


def harness(module: str) -> Any:
    """Import a module of lm-eval ("" is the package), or say what to install.

    Untyped on purpose: lm-eval's own types are partial.
    """
    try:
        return import_module(f"lm_eval.{module}" if module else "lm_eval")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("lm_eval"):
            raise
        raise EvalStatsError(
            "this runs lm-eval's own code, and lm-eval is not installed: "
            "pip install 'evalstats-plugin[lm-eval]'"
        ) from error


def check_harness() -> None:
    """Raise if lm-eval is missing or too old to score a log again."""
    if not hasattr(harness("api.group"), "Group"):
        raise EvalStatsError(
            f"scoring again needs lm-eval 0.4.12 or later, found {harness('').__version__}: "
            "pip install --upgrade 'evalstats-plugin[lm-eval]'"
        )
