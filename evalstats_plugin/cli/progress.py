"""Progress of long work: on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from evalstats_plugin.logs import OnLog

OnStep = Callable[[tuple[str, int, int | None]], None]


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
