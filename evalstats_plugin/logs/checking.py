"""Auditing logs before their numbers are believed: `check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.data.runs import label_models
from evalstats_plugin.errors import DesignError, IncompleteLogError, LogError
from evalstats_plugin.logs.reading import Unread, find_logs, read_log
from evalstats_plugin.plugins import Plugins, load_plugins
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.scores.findings import Finding, Findings, find_problems


def check(
    *paths: str | Path,
    task: str | Sequence[str] = (),
    metric: str | Sequence[str] = (),
    plugins: Plugins | None = None,
) -> Findings:
    """Return what is wrong with logs: everything to look at before a number is believed.

    All runs are looked at, also those that `read` leaves out. `scores.findings.PROBLEMS` lists what
    is looked for.

    Parameters
    ----------
    paths, task, metric
        As in `read`.

    Raises
    ------
    LogError
        A path holds no log.

    Examples
    --------
    >>> for finding in check("fixtures/logs/lm_eval/0.4.13/out"):
    ...     print(finding.problem, finding.task, finding.detail)
    unscored es_odd nan_metric,none: 4 of 10 items
    unscored es_odd partial_metric,none: 7 of 10 items
    """
    plugins = plugins or load_plugins()
    selection = Selection(_names(task), _names(metric))
    logs = find_logs(paths, plugins)
    run = partial(_outcome, selection=selection, plugins=plugins)
    found: list[Responses] = []
    broken: list[Finding] = []
    for log, outcome in zip(logs, parallel_map(run, logs, here=not plugins.installed), strict=True):
        if isinstance(outcome, Unread):
            broken.append(_unreadable(log, outcome))
        else:
            found += outcome
    rows = (*broken, *find_problems(label_models(found)))
    return Findings(rows, (f"{len(logs)} log{'s'[: len(logs) != 1]} checked", *plugins.problems))


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _outcome(log: Path, selection: Selection, plugins: Plugins) -> list[Responses] | Unread:
    try:
        return read_log(log, selection, plugins)
    except (LogError, DesignError) as error:
        return error


def _unreadable(log: Path, error: Unread) -> Finding:
    why = "its run did not end: " if isinstance(error, IncompleteLogError) else ""
    return Finding(
        problem="unreadable", task=None, models=(), detail=f"{why}{error}", logs=(str(log),)
    )
