"""What is printed where: results on standard output, the rest on standard error, colour nowhere."""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
COMMANDS = [
    ("report", LOGS, "-t", "es_mc"),
    ("compare", LOGS, "-t", "es_mc", "-m", "acc"),
    ("power", LOGS, "-t", "es_mc", "-m", "acc", "--difference", ".05"),
    ("plugins",),
    ("plugins", "--methods"),
]

Run = Callable[..., "CompletedProcess[str]"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(map(str, command[::3])))
def test_a_pipe_gets_plain_text(run: Run, command: tuple[str | Path, ...]) -> None:
    """No colour and no progress, on either side; nothing but results on standard output."""
    done = run(*command)

    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""


def _on_a_terminal(*arguments: str | Path, **environment: str) -> tuple[str, str]:
    """Run a command whose standard error, and only that, is a terminal; return both outputs."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evalstats_plugin", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(theirs)
    shown = b""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        ready, _, _ = select.select([ours], [], [], 0.1)
        try:
            read = os.read(ours, 4096) if ready else None
        except OSError:  # the other side is closed
            break
        if read == b"" or (read is None and process.poll() is not None):
            break
        shown += read or b""
    os.close(ours)
    assert process.stdout is not None
    with process:
        return process.stdout.read(), shown.decode()


def test_progress_is_on_the_terminal_and_never_in_the_results() -> None:
    """A person sees how far it is while the file that results go to stays clean.

    Progress has colour, and none with NO_COLOR.
    """
    colour = re.compile(r"\x1b\[[\d;]*3\d")
    for environment in ({}, {"NO_COLOR": "1"}):
        results, shown = _on_a_terminal("report", LOGS, "-t", "es_one", **environment)

        assert "reading" in shown
        assert "reading" not in results
        assert "\x1b" not in results
        assert bool(colour.search(shown)) == (not environment)


def test_quiet_shows_no_progress() -> None:
    """Not on a terminal either."""
    assert _on_a_terminal("report", LOGS, "-t", "es_one", "--quiet")[1] == ""


def test_plugins_are_listed_for_machines(run: Run) -> None:
    """As a table of text, as CSV and as Markdown: the same plugins."""
    rows = list(csv.DictReader(io.StringIO(run("plugins", "--format", "csv").stdout)))
    markdown = run("plugins", "--format", "markdown").stdout.splitlines()

    assert {"lm_eval", "inspect_ai"} <= {row["name"] for row in rows}
    assert "evalstats_read_log" in rows[0]["hooks"]
    assert [row["name"] for row in rows] == [line.split(" | ")[0][2:] for line in markdown[2:]]


def test_the_version_is_told(run: Run) -> None:
    """And nothing else."""
    assert re.fullmatch(r"evalstats-plugin, version \d+\.\d+\.\d+\S*\n", run("--version").stdout)
