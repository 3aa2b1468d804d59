"""What the hook does beside the event loop: blocking reads, statistics and writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evalstats_plugin import __version__, logs
from evalstats_plugin.adapters.inspect_ai.crossing import OnError, read_each
from evalstats_plugin.annotated_logs import write
from evalstats_plugin.annotations import annotate, default_analysis
from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.plugins import Annotation, load
from evalstats_plugin.runs import is_model

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from evalstats_plugin.responses import Responses

EVAL_SET = "eval-set.json"
"""Where Inspect writes down the tasks of an eval set, in the order they were asked for."""

# Tasks that end together are annotated in threads of their own, and each brings the one
# logs.json of their eval set up to date.
_WRITING = threading.Lock()


class RunLogs(NamedTuple):
    """The logs of a run or eval set, and the model it was asked for first, where that is known."""

    locations: list[str]
    first_model: str | None


def annotate_alone(location: str) -> EvalLog:
    """Write the intervals of one log into it; return its new header."""
    with _WRITING:
        annotate(location, in_place=True)
        return _header(location)


def annotate_together(run: RunLogs, baseline: str | None, on_error: OnError) -> dict[str, EvalLog]:
    """Compare the models of several logs and write that into each; return the new headers.

    A log that cannot be read or written is told to `on_error`, and the others go on. Where no
    task was answered by two models nothing is written. Without a `baseline` the first model of
    the run is it, or if that did not end well the first that did.
    """
    from evalstats_plugin.analyses.crossing import Crossed

    found = read_each(run.locations, on_error)
    found = dict(sorted(found.items(), key=lambda item: not _is_of(item[1], run.first_model)))
    crossed = Crossed(found, baseline)
    headers: dict[str, EvalLog] = {}
    if not crossed.comparisons:
        return headers
    for location, responses in found.items():
        try:
            annotation = Annotation(
                default_analysis()(responses),
                __version__,
                comparisons=crossed.of_log(location),
                ranks=crossed.ranks_of_log(location),
            )
            with _WRITING:
                path = logs.as_path(location)
                write(path, annotation, path, load())
                headers[location] = _header(location)
        except EvalStatsError as error:
            on_error(location, error)
    return headers


def logs_of_set(folder: str) -> RunLogs:
    """Return the logs of an eval set's folder."""
    found = logs.find_logs([folder], load())
    return RunLogs([str(path) for path in found], _first_model(logs.as_path(folder)))


def _is_of(responses: Sequence[Responses], model: str | None) -> bool:
    return model is not None and any(is_model(r.model, model) for r in responses)


def _first_model(folder: Path) -> str | None:
    # Without the file, or with one of another shape, the first log decides.
    with suppress(OSError, ValueError, LookupError, TypeError):
        return str(json.loads((folder / EVAL_SET).read_text())["tasks"][0]["model"])
    return None


def _header(location: str) -> EvalLog:
    from inspect_ai.log import read_eval_log

    return read_eval_log(location, header_only=True)
