"""JSON of any tool, by a mapping in TOML: promptfoo, EvalPlus, simple-evals, OpenCompass, DeepEval.

``formats`` has a mapping for each of these tools, `reader` reads what it or the caller's says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection
    from evalstats_plugin.runtime.files import LogFile


READ_ONLY = (
    "a mapping says where scores are read, and these tools show only the fields that they write: "
    "report or export has the intervals"
)


_TEXTS: Mapping[str, tuple[tuple[bytes, ...], ...]] = {
    "deepeval": ((b'"testCases"', b'"metricsData"'),),
    "evalplus": ((b'"eval"', b'"base_status"'),),
    "opencompass": ((b'"details"', b'"example_abbr"'), (b'"details"', b'"origin_prediction"')),
    "promptfoo": ((b'"evalId"', b'"testPassCount"'),),
    "simple_evals": ((b'"score"', b'"metrics"', b'"htmls"'),),
}
"""Texts in the first bytes of each tool's files: all are there, or all others."""


def tool_of(log: LogFile) -> str | None:
    """Return the tool that wrote a file, None for others."""
    if not log.head.lstrip().startswith(b"{"):
        return None
    fitting = (
        tool
        for tool, either in _TEXTS.items()
        if any(all(text in log.head for text in texts) for texts in either)
    )
    return next(fitting, None)


@hookimpl
def evalstats_find_logs(files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return the files of tools for which there is a mapping."""
    return {file.path: [] for file in files if file.path.suffix == ".json" and tool_of(file)}


@hookimpl(tryfirst=True)
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read a file by the caller's mapping, whatever it is, or by the one for its tool."""
    tool = None if selection.mapping is not None else tool_of(log)
    if tool is None and selection.mapping is None:
        return None
    from evalstats_plugin.adapters.mapped.reader import read_log

    return read_log(log, selection, tool)
