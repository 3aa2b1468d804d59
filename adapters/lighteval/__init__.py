"""Results of lighteval with their details in Parquet, also those of the Open LLM Leaderboard (v1).

The format is that of lighteval's documentation (https://huggingface.co/docs/lighteval, "Saving and
reading results"). Details of the leaderboard's second version are lm-eval's own files.
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
    "lighteval and its leaderboards show only the fields they write, and details are Parquet: "
    "report or export has the intervals"
)


@hookimpl
def evalstats_find_logs(files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return results files, and details whose results are not there."""
    from evalstats_plugin.adapters.lighteval.reader import find_logs

    return find_logs(files)


@hookimpl
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read results with their details, or the details of one task."""
    from evalstats_plugin.adapters.lighteval.reader import read_log

    return read_log(log, selection)
