"""What several test modules share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalstats_plugin import plugins

Run = Callable[..., subprocess.CompletedProcess[str]]

# What a developer's own file says must not change what commands do in tests.
os.environ["EVALSTATS_NO_CONFIG"] = "1"

# A shell that starts the tests in the background has them, and what they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run() -> Run:
    """Run ``python -m evalstats_plugin`` as a person would, in a process of its own."""

    def run_command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "evalstats_plugin", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "80", **environment},
        )

    return run_command


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """Install a one-module plugin, as far as the import system can tell."""
    site = tmp_path / "site"

    def install(name: str, code: str) -> None:
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[evalstats_plugin]\n{name} = {name}\n")
        (site / f"{name}.py").write_text(code)
        plugins._load.cache_clear()

    monkeypatch.syspath_prepend(site)
    yield install
    plugins._load.cache_clear()
