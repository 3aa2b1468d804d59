"""THE PLUGIN CONTRACT: what an adapter or a method package may implement.

Implement any of these functions, decorate them with ``evalstats_plugin.hookimpl``, and name
the module under the entry-point group ``evalstats_plugin``. An implementation may take fewer
arguments than its hook. Rules that keep plugins from hurting each other:

* know your logs by their content and answer ``None`` for anyone else's;
* for a broken log of your own raise ``evalstats_plugin.errors.LogError``;
* import no harness, SciPy, pandas or torch when the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from evalstats_plugin.methods import Method
    from evalstats_plugin.plugins import Annotation, Command, Exporter
    from evalstats_plugin.ranking.contests import Contests
    from evalstats_plugin.responses import Responses, Selection

PROJECT = "evalstats_plugin"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def evalstats_find_logs(folder: Path) -> Sequence[Path]:  # pyright: ignore[reportReturnType]
    """Return the logs directly inside one folder that are yours, one path per run."""


@hookspec(firstresult=True)
def evalstats_read_log(path: Path, selection: Selection) -> Sequence[Responses] | None:
    """Return what the models of one log answered, or None if the log is not yours."""


@hookspec(firstresult=True)
def evalstats_read_results(
    results: Mapping[str, Any], selection: Selection
) -> Sequence[Responses] | None:
    """Return the same for a harness's in-memory results, or None if they are not yours."""


@hookspec(firstresult=True)
def evalstats_read_contests(path: Path, columns: Mapping[str, str]) -> Contests | None:
    """Return the comparisons that a judge's log holds, or None if the log is not yours.

    ``columns`` names the field of each part of a comparison, such as ``first=metadata.model_a``.
    """


@hookspec(firstresult=True)
def evalstats_annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a copy of one log with the annotation in it (None: without any) to output."""


@hookspec(firstresult=True)
def evalstats_annotate_results(
    results: Mapping[str, Any], annotation: Annotation
) -> Mapping[str, Any] | None:
    """Return a harness's in-memory results with the annotation added."""


@hookspec
def evalstats_methods() -> Sequence[Method]:  # pyright: ignore[reportReturnType]
    """Return further statistical methods, to be named by ``--method``."""


@hookspec
def evalstats_commands() -> Sequence[Command]:  # pyright: ignore[reportReturnType]
    """Return further commands of ``evalstats-plugin``, loaded when they are run."""


@hookspec
def evalstats_harness_commands() -> Sequence[Command]:  # pyright: ignore[reportReturnType]
    """Return commands of ``evalstats-plugin adapt run``: one for each harness you can drive."""


@hookspec
def evalstats_exporters() -> Sequence[Exporter]:  # pyright: ignore[reportReturnType]
    """Return formats that ``evalstats-plugin export --to NAME`` writes, loaded when used."""


@hookspec(firstresult=True)
def evalstats_generator(model: str) -> Callable[[str], str] | None:
    """Return what puts a text to a model and returns its reply, or None if you can ask none."""
