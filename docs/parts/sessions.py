"""Runs what a page shows being run: console sessions, and Python examples as doctests.

The commands of one page run in order in a folder of their own, where `fixtures/` is as in the
repository: a reader can repeat them there.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from parts import ROOT

_SESSION = re.compile(r"(?:(<!-- nearly: draws -->)\n)?```console\n(.*?)```", re.DOTALL)
_EXAMPLES = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?")
_DECIMAL = re.compile(r"(?<![\w.])[+-]?\d*\.\d+(?![\w.])")


@contextlib.contextmanager
def workspace() -> Generator[Path]:
    """Give an empty folder in which the fixtures are to be found."""
    with tempfile.TemporaryDirectory(prefix="page-") as name:
        folder = Path(name)
        (folder / "fixtures").symlink_to(ROOT / "fixtures")
        yield folder


def rendered_sessions(text: str, folder: Path) -> str:
    """Return a page with the output that its commands give now."""

    def replace(match: re.Match[str]) -> str:
        nearly, session = match.groups()
        shown = "".join(f"$ {command}\n{_run(command, folder)}" for command in _commands(session))
        return f"{nearly}\n```console\n{shown}```" if nearly else f"```console\n{shown}```"

    return _SESSION.sub(replace, text)


def shown(page: Path) -> list[tuple[str, bool]]:
    """Return the commands of a page's sessions, and whether what they print is drawn."""
    return [
        (command, bool(match[1]))
        for match in _SESSION.finditer(page.read_text())
        for command in _commands(match[2])
    ]


def _commands(session: str) -> list[str]:
    """Return the commands of a session; one that goes on ends its line with a backslash."""
    commands: list[str] = []
    for line in session.splitlines():
        if line.startswith("$ "):
            commands.append(line[2:])
        elif commands and commands[-1].endswith("\\"):
            commands[-1] += f"\n{line}"
    return commands


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as in a terminal of 80 columns."""
    return subprocess.run(
        ["/bin/bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, cwd=folder, env=environment(folder),
    )  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    """Variables that commands of a page run with."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "80",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }


def _run(command: str, folder: Path) -> str:
    """Return what a command prints."""
    done = shell(command, folder)
    if done.returncode != 0:
        sys.exit(f"`{command}` ended with {done.returncode}:\n{done.stdout}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def run_examples(text: str, folder: Path, name: str) -> str:
    """Run the Python examples of a page, one after the other, and return what fails."""
    examples = "\n".join(_EXAMPLES.findall(text))
    test = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
    said: list[str] = []
    with contextlib.chdir(folder):
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    return "".join(said)


def same(found: str, expected: str) -> bool:
    """Whether a page is up to date: sessions to a unit of a number's last decimal, draws nearly.

    Another processor rounds otherwise, and a chain that rounds otherwise ends elsewhere.
    """
    texts, sessions = zip(*(_parted(page) for page in (found, expected)), strict=True)
    return texts[0] == texts[1] and all(
        _near(a, b) if drawn else _rounded_alike(a, b)
        for (drawn, a), (_, b) in zip(*sessions, strict=True)
    )


def _parted(page: str) -> tuple[str, list[tuple[bool, str]]]:
    """Return a page without its sessions, and these: whether they show draws, and what is shown."""
    sessions = [(bool(match[1]), match[2]) for match in _SESSION.finditer(page)]
    return _SESSION.sub(lambda match: f"{match[1]}```console", page), sessions


def _rounded_alike(found: str, expected: str) -> bool:
    """Whether two sessions are the same but for the last decimal of a number, by one."""
    if _DECIMAL.sub("#", found) != _DECIMAL.sub("#", expected):
        return False
    pairs = zip(_DECIMAL.findall(found), _DECIMAL.findall(expected), strict=True)
    return all(
        len(a.partition(".")[2]) == len(decimals := b.partition(".")[2])
        and abs(float(a) - float(b)) < 1.5 * 10 ** -len(decimals)
        for a, b in pairs
    )


def _near(found: str, expected: str) -> bool:
    """Whether two sessions say the same, numbers to a tenth or a unit."""
    words = [_NUMBER.sub("#", " ".join(one.split())).replace("-", " ") for one in (found, expected)]
    if " ".join(words[0].split()) != " ".join(words[1].split()):
        return False
    numbers = [[float(x) for x in _NUMBER.findall(one)] for one in (found, expected)]
    return all(abs(a - b) <= max(1.0, 0.1 * abs(b)) for a, b in zip(*numbers, strict=True))
