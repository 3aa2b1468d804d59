"""Many small logs, and what a process uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from lm_eval_logs import write_log

from evalstats_plugin.cli import main


def commands_that_read() -> dict[str, click.Command]:
    """Return the commands that read logs, by name."""
    return dict(_reading(main))


def _reading(group: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(group, click.Group):
        ctx = click.Context(group, info_name="x")
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield from _reading(command, *names, name)
    elif any(p.name == "paths" and isinstance(p, click.Argument) for p in group.params):
        yield " ".join(names), group


def write_small_logs(folder: Path, n: int) -> None:
    """Write so many runs of lm-eval on six items, all in one folder: the hardest case."""
    write_log(folder, "model", {"task": [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]})
    inside = folder / "model"
    (results,), (samples,) = (list(inside.glob(p)) for p in ("results*", "samples*"))
    texts = results.read_text(), samples.read_text()
    for i in range(n):
        stamp = f"2026-11-{1 + i // 3600:02d}T00-{i // 60 % 60:02d}-{i % 60:02d}.000000"
        (folder / f"results_{stamp}.json").write_text(texts[0].replace('"model"', f'"model_{i}"'))
        (folder / f"samples_task_{stamp}.jsonl").write_text(texts[1])
    for path in (results, samples):
        path.unlink()
    inside.rmdir()


def open_files() -> int:
    """Count the files that this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of no folder on a disk


def megabytes() -> float:
    """Return the memory that this process has now."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if "VmRSS" in line)) / 1024
