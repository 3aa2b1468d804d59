"""What a log says about samples that did not run because enough was known without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.util import EarlyStop

MANAGER = "evalstats_plugin adaptive"
"""By which our own early stopping is known in a log."""

TASK_ARGS = "task_args"
"""Key in what we say there: arguments of the task that another, ours, was put in front of."""
ADAPTIVE = "evalstats_plugin/adaptive"
"""That task; see `adaptive_task`."""


def task_args_of(log: EvalLog) -> Mapping[str, Any]:
    """Return the arguments of the task itself, not how much of it was asked."""
    found = found_in(log) or {}
    if TASK_ARGS in found:
        return found[TASK_ARGS]
    # A run that was broken off has found nothing yet, and says only what was given.
    given = log.eval.task_args
    return given.get(TASK_ARGS) or {} if _is_ours(log.eval.task_registry_name, given) else given


def _is_ours(name: str | None, given: Mapping[str, Any]) -> bool:
    """Whether a run is of that task, which has no package in its name where we start it."""
    return name == ADAPTIVE or (
        name == ADAPTIVE.rpartition("/")[2] and given.keys() >= {"task", "bank"}
    )


def early_stops(log: EvalLog) -> Sequence[EarlyStop]:
    """Return the samples that were stopped before they ran."""
    stopping = log.results.early_stopping if log.results else None
    return stopping.early_stops if stopping else ()


def found_in(log: EvalLog) -> dict[str, Any] | None:
    """Return what an adaptive test found, where a log is of one."""
    summary = log.results.early_stopping if log.results else None
    return dict(summary.metadata) if summary and summary.manager == MANAGER else None
