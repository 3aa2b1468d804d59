"""Reads the logs of a run together, those that ended well."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from evalstats_plugin import logs
from evalstats_plugin.errors import EvalStatsError, IncompleteLogError
from evalstats_plugin.plugins import load
from evalstats_plugin.responses import Responses, Selection
from evalstats_plugin.runs import label_models

_log = logging.getLogger(__name__)

OnError = Callable[[str, Exception], None]
"""Told which log could not be read or written, and why."""


def read_each(
    locations: Sequence[str], on_error: OnError | None = None
) -> dict[str, list[Responses]]:
    """Read several logs, each still known by its location, models told apart across them.

    Logs of runs that did not end well are passed over.

    Raises
    ------
    EvalStatsError
        For a log that cannot be read, unless there is an `on_error` to tell it to.
    """
    plugins = load()
    found: dict[str, list[Responses]] = {}
    for location in locations:
        try:
            found[location] = logs.read_log(logs.as_path(location), Selection(), plugins)
        except IncompleteLogError:
            _log.debug("passed over, its run did not end well: %s", location)
        except EvalStatsError as error:
            if on_error is None:
                raise
            on_error(location, error)
    together = iter(label_models(r for each in found.values() for r in each))
    return {location: [next(together) for _ in each] for location, each in found.items()}
