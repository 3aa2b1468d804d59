"""Reads logs as the options of a command say."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalstats_plugin.data.responses import Selection
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import LARGE, ResponseStore, is_store
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.logs.reading import OnLog, read, read_results
from evalstats_plugin.plugins import Plugins

OnStep = Callable[[tuple[str, int, int | None]], None]


def store_at(paths: tuple[str, ...], chosen: Mapping[str, Any]) -> ResponseStore | None:
    """Open a response store of so many answers that they are left on disk.

    None for other paths. Smaller ones are read as logs are, which leaves every option.
    """
    if len(paths) != 1 or not is_store(Path(paths[0])):
        return None
    store = ResponseStore(paths[0])
    if math.prod(store.shape) <= LARGE:
        return None
    for name in ("task", "metric", "cluster", "columns", "wide", "at_k"):
        if chosen[name]:
            msg = (
                f"--{name.replace('_', '-')} found, but a store of {math.prod(store.shape):,} "
                f"answers (more than {LARGE:,}) is compared as it is: leave it out, or take a "
                "part of it in Python (ResponseStore(path).matrix(items, models))"
            )
            raise SelectionError(msg)
    return store


def read_logs(paths: tuple[str, ...], chosen: Mapping[str, Any], plugins: Plugins) -> ResponseSet:
    """Read files, folders and patterns, or one JSON object from standard input for ``-``."""
    if paths == ("-",):
        try:
            data = json.load(sys.stdin)
        except ValueError as error:
            msg = (
                f"standard input is not JSON: {error}; expected results as lm-eval's "
                "simple_evaluate returns them (a table has to be a file)"
            )
            raise LogError(msg) from error
        selection = Selection(chosen["task"], chosen["metric"], chosen["cluster"])
        return read_results(data, selection, plugins)
    with progress_on_logs(quiet=chosen["quiet"]) as on_log:
        return read(
            *paths,
            task=chosen["task"],
            metric=chosen["metric"],
            cluster=chosen["cluster"],
            runs=chosen["runs"],
            include_incomplete=chosen["include_incomplete"],
            skip_broken=chosen["skip_broken"],
            columns=chosen["columns"],
            wide=chosen["wide"] or "",
            plugins=plugins,
            on_log=on_log,
        )


def read_patterns(given: str) -> tuple[str, ...]:
    """Read names or patterns of models: from a file, one on a line, or with commas between them.

    Raises
    ------
    LogError
        The file is not text.
    SelectionError
        No pattern is there.
    """
    path = Path(given)
    lines = _text(path).splitlines() if path.is_file() else given.split(",")
    patterns = tuple(text for line in lines if (text := line.strip()) and text[0] != "#")
    if not patterns:
        msg = f"{given!r} names no model, expected names or patterns such as 'chat-*'"
        raise SelectionError(msg)
    return patterns


def read_group_of_model(given: str, models: Sequence[str]) -> dict[str, str]:
    """Read the group of each model from a CSV file with the columns model and group.

    Raises
    ------
    LogError
        There is no such file, or it does not have these columns.
    """
    path = Path(given)
    if not path.is_file():
        msg = f"{given}: no such file, expected a CSV file with the columns model and group"
        raise LogError(msg)
    rows = list(csv.DictReader(_text(path).splitlines()))
    if not rows or not {"model", "group"} <= set(rows[0]):
        found = ", ".join(map(str, rows[0])) if rows else "no rows"
        msg = f"{given}: columns {found} found, expected model and group"
        raise LogError(msg)
    return {row["model"]: row["group"] for row in rows if row["model"] in models}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read as text: {error}"
        raise LogError(msg) from error


@contextmanager
def progress_on_logs(*, quiet: bool) -> Generator[OnLog | None, None, None]:
    """Give a callback that moves a progress bar on standard error."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("reading", total=None)

        def on_log(path: Path, number: int, total: int) -> None:
            progress.update(bar, description=f"reading {path.name}", completed=number, total=total)

        yield on_log


@contextmanager
def progress_on_work(what: str, *, quiet: bool) -> Generator[OnStep | None, None, None]:
    """Show on standard error that work goes on, and for how long it has.

    Gives a callback for how far it is: a name of what is done, how much, and of how much.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(what, total=None)

        def on_step(step: tuple[str, int, int | None]) -> None:
            stage, done, total = step
            of = "" if total is None else f" of {total:,}"
            progress.update(line, description=f"{what}: {stage} {done:,}{of}")

        yield on_step
