"""Progress of long work: on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evalstats_plugin.logs import OnLog


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
def progress_on_work(what: str, *, quiet: bool) -> Generator[None, None, None]:
    """Show on standard error that work goes on, and for how long it has."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield
