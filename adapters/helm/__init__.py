"""Run folders of HELM: `per_instance_stats.json` and the files beside it, read.

The format is that of HELM's own documentation and data classes (`RunSpec`, `Stat`,
`PerInstanceStats`; https://crfm-helm.readthedocs.io), since 0.1.
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
    "HELM's files have fixed fields, and its pages show no others: "
    "report or export has the intervals"
)


@hookimpl
def evalstats_find_logs(files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return the scores of items in a run folder, or its values alone, with the files beside."""
    from evalstats_plugin.adapters.helm.reader import find_logs

    return find_logs(files)


@hookimpl
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read a run's scores of items, or its values."""
    from evalstats_plugin.adapters.helm.reader import read_log

    return read_log(log, selection)
