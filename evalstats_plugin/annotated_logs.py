"""Logs that are annotated: each looked at, then each written, several at a time inside `workers`.

All are looked at before the first is written, so that nothing is half done where one is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from evalstats_plugin import atomic
from evalstats_plugin.engines import mapped, n_workers
from evalstats_plugin.errors import EvalStatsError, IncompleteLogError, LogError, WriteError
from evalstats_plugin.logs import adapters, as_path, find_logs, read_log
from evalstats_plugin.plugins import Annotation, Plugins
from evalstats_plugin.responses import TABLES, Responses, Selection
from evalstats_plugin.results import Intervals
from evalstats_plugin.wording import few

Analysis = Callable[[Sequence[Responses]], Intervals]


def targets_of(
    paths: Sequence[str | Path],
    output: str | Path | None,
    *,
    in_place: bool,
    plugins: Plugins,
) -> Mapping[Path, Path]:
    """Where each log goes.

    Raises
    ------
    WriteError
        Neither or both of ``output`` and ``in_place`` are given, or two logs go to one place.
    """
    if (output is None) == (not in_place):
        found = "neither was" if output is None else "both were"
        msg = f"an output folder (-o) or --in-place is expected, {found} given"
        raise WriteError(msg)
    targets: dict[Path, Path] = {}
    for given in paths:
        for log in find_logs([given], plugins):
            root = as_path(given) if as_path(given).is_dir() else log.parent
            targets[log] = log if output is None else as_path(output) / log.relative_to(root)
    clashes = len(targets) - len(set(targets.values()))
    if clashes:
        msg = f"{clashes} logs would overwrite each other in {output}: annotate their common folder"
        raise WriteError(msg)
    return targets


@dataclass(frozen=True, slots=True)
class Look:
    """How to look at a log."""

    selection: Selection
    analysis: Analysis
    plugins: Plugins
    keep: bool
    """Whether responses are wanted too, or their analysis alone."""


class Seen(NamedTuple):
    """What there is in a log."""

    responses: Sequence[Responses]
    """None of them where they were not to be kept."""
    intervals: Intervals


def look_at_all(logs: Iterable[Path], named: set[str], look: Look) -> dict[Path, Seen]:
    """Read and analyse each log.

    Runs that were cancelled or failed are left out, unless they are `named`.

    Raises
    ------
    LogError
        A log is broken.
    WriteError
        Tables, which have no place for intervals.
    """
    logs = list(logs)
    seen: dict[Path, Seen] = {}
    tables: list[Path] = []
    outcomes = mapped(partial(_looked_at, look), logs, here=not look.plugins.installed)
    for log, outcome in zip(logs, outcomes, strict=True):
        if isinstance(outcome, Seen):
            seen[log] = outcome
        elif outcome is None:
            tables.append(log)
        elif str(log) in named:
            raise outcome
    _refuse(tables)
    return seen


def _looked_at(look: Look, log: Path) -> Seen | IncompleteLogError | None:
    """None for a table."""
    try:
        responses = read_log(log, look.selection, look.plugins)
    except IncompleteLogError as error:
        return error
    if any(r.source.harness == TABLES for r in responses):
        return None
    return Seen(responses if look.keep else (), look.analysis(responses))


def _refuse(tables: Sequence[Path]) -> None:
    if tables:
        msg = (
            f"{few([str(table) for table in tables])}: a table of scores has no place for "
            f"intervals, expected logs of a harness: 'report {tables[0]} --format csv' prints "
            f"scores with their intervals, 'export {tables[0]} --to every-eval-ever --intervals "
            "-o FOLDER' writes both"
        )
        raise WriteError(msg)


def state_of(log: Path) -> atomic.Revision | None:
    """What tells whether a log has changed; None for one that is not on disk."""
    return None if getattr(log, "protocol", "") else atomic.revision(log)


class _Writing(NamedTuple):
    """A log to be written."""

    log: Path
    annotation: Annotation | None
    target: Path
    state: atomic.Revision | None
    """When it was read; None where that does not matter."""


def write_all(
    annotations: Mapping[Path, Annotation | None],
    targets: Mapping[Path, Path],
    states: Mapping[Path, atomic.Revision | None],
    plugins: Plugins,
) -> list[Path]:
    """Write each log, unless it has changed since it was read.

    One after the other, up to the first that cannot be written. Several processes write the
    others all the same.

    Raises
    ------
    WriteError, LogError
        A log cannot be written; the message says how many were.
    """
    each = [_Writing(log, a, targets[log], states.get(log)) for log, a in annotations.items()]
    together = [each] if _entangled(each) else [[one] for one in each]
    several = plugins.installed and n_workers() > 1
    written: list[Path] = []
    failed: list[EvalStatsError] = []
    for paths, error in mapped(partial(_write_some, plugins), together, here=not several):
        written += paths
        if error is not None:
            failed.append(error)
            if not several:
                break
    if not failed:
        return written
    if not written:
        raise failed[0]
    when = "all the same" if several else "before it"
    done = f"{len(written)} of {len(each)} logs were written {when}"
    raise type(failed[0])(f"{failed[0]}; {done}") from failed[0]


def _entangled(each: Sequence[_Writing]) -> bool:
    """Whether one log has several names, by links, or is written over another."""
    local = [one for one in each if not getattr(one.log, "protocol", "")]
    logs = [one.log.resolve() for one in local]
    targets = [one.target.resolve() for one in local]
    read = set(logs)
    over_another = any(a != b and b in read for a, b in zip(logs, targets, strict=True))
    return over_another or len(read) < len(logs) or len(set(targets)) < len(targets)


def _write_some(
    plugins: Plugins, some: Sequence[_Writing]
) -> tuple[list[Path], EvalStatsError | None]:
    """Write one after the other up to the first that cannot be; what was written, and why not."""
    written: list[Path] = []
    # One log may have several names, by links: what we wrote ourselves has not been changed.
    ours: set[Path] = set()
    for log, annotation, target, state in some:
        try:
            if state is not None and log.resolve() not in ours and state_of(log) != state:
                raise atomic.changed(log)
            written.append(write(log, annotation, target, plugins))
        except EvalStatsError as error:
            return written, error
        if state is not None:
            ours.add(target.resolve())
    return written, None


def write(log: Path, annotation: Annotation | None, target: Path, plugins: Plugins) -> Path:
    """Write one log with an annotation, or without any, through the adapter that knows it."""
    written = plugins.call("evalstats_annotate_log", path=log, annotation=annotation, output=target)
    if written is None:
        msg = (
            f"{log}: no installed adapter annotates logs of this kind (those of "
            f"{adapters(plugins, 'evalstats_annotate_log')} can be)"
        )
        raise LogError(msg)
    return written
