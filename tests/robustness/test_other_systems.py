"""What a Mac or a Windows machine lacks is taken away, and the answers stay the same.

See ``elsewhere/sitecustomize.py``; the fast tests run there in ``make validate``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evalstats_plugin import annotate, read
from evalstats_plugin.errors import WriteError

ROOT = Path(__file__).parents[2]
LM_EVAL = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = (
    ("report", str(LM_EVAL), "-t", "es_bin", "-t", "es_group", "-q"),
    ("compare", str(LM_EVAL), "-t", "es_mc", "-q"),
    ("table", str(LM_EVAL), "-m", "acc", "-t", "es_mc", "-t", "es_bin", "-q"),
    ("gate", str(LM_EVAL), "-t", "es_mc", "--baseline", "models/m1", "-q"),
    ("annotate", str(LM_EVAL / "models__m1"), "-o", "copies", "-q"),
    ("export", str(LM_EVAL), "-t", "es_mc", "-m", "acc", "--to", "csv", "-o", "scores.csv", "-q"),
    ("report", "scores.csv", "--html", "page.html", "-q"),
    ("irt", "fit", "scores.csv", "-q"),
)  # fmt: skip

_MANY = """
import json, sys
from evalstats_plugin.cli import main

for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments, prog_name="evalstats-plugin")
    except SystemExit as ended:
        print("exit code", ended.code)
"""


def _run_all(folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir()
    return subprocess.run(
        [sys.executable, "-c", _MANY, json.dumps(COMMANDS)],
        capture_output=True,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "EVALSTATS_NO_CONFIG": "1", **environment},
    )


def _elsewhere(system: str) -> dict[str, str]:
    return {
        "EVALSTATS_TEST_SYSTEM": system,
        "PYTHONPATH": str(Path(__file__).parent / "elsewhere"),
        "PYTHONWARNDEFAULTENCODING": "1",
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Give a folder with what the commands write, and what they say."""
    folder = tmp_path_factory.mktemp("here") / "work"
    done = _run_all(folder)
    assert done.stderr == b""
    return folder, done.stdout.decode()


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".html"
    }


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_commands_answer_the_same_on_other_systems(
    system: str, here: tuple[Path, str], tmp_path: Path
) -> None:
    """Without fcntl, resource, pwd, os.getuid, os.fork, /proc and Landlock where there are none."""
    done = _run_all(tmp_path / "work", **_elsewhere(system))

    assert done.stderr.decode() == ""
    assert done.stdout.decode() == here[1]
    assert here[1].count("exit code 0") >= len(COMMANDS) - 1
    assert _files(tmp_path / "work") == _files(here[0])
