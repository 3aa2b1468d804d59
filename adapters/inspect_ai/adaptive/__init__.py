"""Adaptive tests in Inspect, and what a log says about one: result, early stops, arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.util import EarlyStop


MANAGER = "evalstats_plugin adaptive"
"""Name of our early stopping in a log."""

TASK_ARGS = "task_args"
"""Key in its metadata: the arguments of the task that our adaptive task runs."""

ADAPTIVE = "evalstats_plugin/adaptive"
"""Registry name of our adaptive task, `adaptive_task`."""


def found_in(log: EvalLog) -> dict[str, Any] | None:
    """Return the result of an adaptive test, None if the log is of no such test."""
    summary = log.results.early_stopping if log.results else None
    return dict(summary.metadata) if summary and summary.manager == MANAGER else None


def early_stops(log: EvalLog) -> Sequence[EarlyStop]:
    """Return the samples that were stopped before they ran."""
    stopping = log.results.early_stopping if log.results else None
    return stopping.early_stops if stopping else ()


def task_args_of(log: EvalLog) -> Mapping[str, Any]:
    """Return the arguments of the task itself, without those of an adaptive test of it."""
    record = found_in(log) or {}
    if TASK_ARGS in record:
        return record[TASK_ARGS]
    # An interrupted run has no result yet, only the arguments it was given.
    given, name = log.eval.task_args, log.eval.task_registry_name
    # Our task has no package in its name if we started it.
    short = name == ADAPTIVE.rpartition("/")[2] and given.keys() >= {"task", "bank"}
    return given.get(TASK_ARGS) or {} if name == ADAPTIVE or short else given
