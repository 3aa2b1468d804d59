"""Blocking work of the hooks: read several logs, compare their models, write annotations.

`read_each` is used by data frames too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.data.runs import is_model, label_models
from evalstats_plugin.errors import EvalStatsError, IncompleteLogError
from evalstats_plugin.logs import reading
from evalstats_plugin.logs.annotating import annotate
from evalstats_plugin.plugins import load_plugins

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


EVAL_SET = "eval-set.json"
"""File in which Inspect lists the tasks of an eval set, in the order requested."""

OnError = Callable[[str, Exception], None]
"""Called with the log that could not be read or written, and the error."""

# Tasks that end together are annotated in several threads, which all update the one logs.json of
# their eval set.
_WRITING = threading.Lock()


class RunLogs(NamedTuple):
    """The logs of a run or eval set, and its first model, if known."""

    locations: list[str]
    first_model: str | None


def annotate_alone(location: str) -> EvalLog:
    """Write the intervals of one log into it; return its new header."""
    with _WRITING:
        annotate(location, in_place=True)
        return _header(location)


def annotate_together(run: RunLogs, baseline: str | None, on_error: OnError) -> dict[str, EvalLog]:
    """Compare the models of several logs and annotate each log; return the new headers.

    A log that cannot be read or written is reported to ``on_error``, and the others are processed.
    The default ``baseline`` is the first model of the run, or if its run did not end well the first
    that did.
    """

    def on_broken(path: Path, error: EvalStatsError) -> None:
        if not isinstance(error, IncompleteLogError):
            on_error(str(path), error)

    first: list[str] = []
    model = run.first_model
    for location in run.locations:
        with suppress(EvalStatsError):
            names = Selection(header_only=True)
            responses = reading.read_log(reading.as_path(location), names, load_plugins())
            if model is not None and any(is_model(r.model, model) for r in responses):
                first.append(location)
    in_order = dict.fromkeys((*first, *run.locations))
    with _WRITING:
        written = annotate(
            *in_order, in_place=True, compare=True, baseline=baseline, on_broken=on_broken
        )
        names = {str(path) for path in written}
        return {at: _header(at) for at in in_order if str(reading.as_path(at)) in names}


def _header(location: str) -> EvalLog:
    from inspect_ai.log import read_eval_log

    return read_eval_log(location, header_only=True)


def logs_of_set(folder: str) -> RunLogs:
    """Return the logs of an eval set's folder."""
    paths = reading.find_logs([folder], load_plugins())
    listed = reading.as_path(folder) / EVAL_SET
    first_model: str | None = None
    # If the file is missing or of another shape, the first log decides.
    with suppress(OSError, ValueError, LookupError, TypeError):
        first_model = str(json.loads(listed.read_text())["tasks"][0]["model"])
    return RunLogs([str(path) for path in paths], first_model)


def read_each(locations: Sequence[str]) -> dict[str, list[Responses]]:
    """Read several logs, by location, with models labelled so that they differ between logs.

    Logs of runs that did not end well are skipped.
    """
    plugins = load_plugins()
    by_log: dict[str, list[Responses]] = {}
    for location in locations:
        with suppress(IncompleteLogError):
            by_log[location] = reading.read_log(reading.as_path(location), Selection(), plugins)
    together = iter(label_models(r for each in by_log.values() for r in each))
    return {location: [next(together) for _ in each] for location, each in by_log.items()}
