"""Commands run in this process, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from evalstats_plugin.cli import main


def ran(*arguments: str | Path) -> Result:
    """Run a command as on a terminal of 80 columns; programming mistakes are raised."""
    runner = CliRunner(env={"COLUMNS": "80"})
    return runner.invoke(main, [*map(str, arguments)], catch_exceptions=False)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives its first result again."""
    results: list[Any] = []

    def first(*given: Any, **named: Any) -> Any:
        if not results:
            results.append(function(*given, **named))
        return results[0]

    return first


def digests(folder: Path) -> dict[str, str]:
    """Return a hash of every file of a folder, by its path there."""
    return {
        str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
