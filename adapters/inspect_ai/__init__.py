"""Inspect (inspect_ai): read its logs, and annotate them so that its viewer shows the results.

========= ===================================================================================
archive/  logs as files: recognised, read within limits, edited in place
reader    logs → `Responses`;  estimands: scorers, and which values the header gives, each a row;
          judging: comparisons, judges
memory    logs in memory and data frames, as Inspect gives them in Python
writer    annotations in a log's header and samples
registry  what Inspect loads in every process: hooks (with live), metrics, the adaptive task
frames    columns and operations for data frames of ``inspect_ai.analysis``
adaptive/ adaptive tests inside Inspect
========= ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.hookspecs import Annotation, Command, ItemText, hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.runtime.files import LogFile


@hookimpl
def evalstats_find_logs(files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return the logs of a folder."""
    from evalstats_plugin.adapters.inspect_ai.archive.guard import find_logs

    return dict.fromkeys(find_logs(files), ())


@hookimpl
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read one log, without its samples' transcripts."""
    from evalstats_plugin.adapters.inspect_ai.reader import read_log

    return read_log(log, selection)


@hookimpl
def evalstats_read_results(results: Any, selection: Selection) -> Sequence[Responses] | None:
    """Read a log in memory, or the logs of a data frame of Inspect's."""
    if not (hasattr(results, "eval") or hasattr(results, "columns")):
        return None
    from evalstats_plugin.adapters.inspect_ai.memory import read_results

    return read_results(results, selection)


@hookimpl
def evalstats_read_contests(log: LogFile, columns: Mapping[str, str]) -> Contests | None:
    """Return the comparisons in the samples of a log."""
    from evalstats_plugin.adapters.inspect_ai.judging import read_contests

    return read_contests(log, columns)


@hookimpl
def evalstats_read_texts(
    log: LogFile, items: Mapping[str, Collection[str]]
) -> Mapping[tuple[str, str], ItemText] | None:
    """Return texts of items from the samples of a log; only theirs are read."""
    from evalstats_plugin.adapters.inspect_ai.reader import read_texts

    return read_texts(log, items)


@hookimpl
def evalstats_annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Add intervals to a log's metadata, tags and header metrics, or remove them."""
    from evalstats_plugin.adapters.inspect_ai.writer import annotate_log

    return annotate_log(path, annotation, output)


@hookimpl
def evalstats_generator(model: str) -> Callable[[str], str] | None:
    """Return a function that asks a model of Inspect, such as a judge."""
    from evalstats_plugin.adapters.inspect_ai.judging import generator

    return generator(model)


@hookimpl
def evalstats_harness_commands() -> Sequence[Command]:
    """Offer ``adapt run inspect``."""
    return (
        Command(
            "inspect",
            "Run a task of Inspect adaptively.",
            "evalstats_plugin.adapters.inspect_ai.adaptive.command:inspect",
        ),
    )
