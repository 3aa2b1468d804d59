"""What a Mac or a Windows machine lacks is taken away, and the answers stay the same.

See ``elsewhere/sitecustomize.py``; the fast tests run there in ``make validate``.
"""

from __future__ import annotations

import hashlib
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
    ("report", "named.csv", "-q"),
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
    """Run the commands in a new folder, in a terminal of Western Europe."""
    folder.mkdir()
    (folder / "named.csv").write_text(
        "model,item,score\n模型 é,1,1\n模型 é,2,0\n", encoding="utf-8"
    )
    encodings = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    return subprocess.run(
        [sys.executable, "-c", _MANY, json.dumps(COMMANDS)],
        capture_output=True,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "EVALSTATS_NO_CONFIG": "1", **encodings, **environment},
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
    assert b"\\u6a21\\u578b \xe9" in done.stdout
    return folder, done.stdout.decode("cp1252")


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
    assert done.stdout.decode("cp1252") == here[1]
    assert here[1].count("exit code 0") >= len(COMMANDS) - 1
    assert _files(tmp_path / "work") == _files(here[0])


def test_two_names_for_one_file_of_another_system_are_refused(tmp_path: Path) -> None:
    """Names that differ in case alone, where both would be written to one folder."""
    log = LM_EVAL / "models__m1"
    for folder, name in (("a", "Runs"), ("b", "runs")):
        shutil.copytree(log, tmp_path / folder / name)

    with pytest.raises(WriteError, match=r"logs would overwrite each other in .*copies"):
        annotate(tmp_path / "a", tmp_path / "b", output=tmp_path / "copies")
    assert not (tmp_path / "copies").exists()


def _sum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


@pytest.mark.parametrize("logs", ["lm_eval/0.4.13/out_samples", "inspect_ai/0.3.285/json",
                                  "every_eval_ever/0.3.0/exported"])  # fmt: skip
def test_lines_that_end_as_on_windows_are_read_the_same(
    logs: str, run: Run, tmp_path: Path
) -> None:
    """And written: annotated copies of them say the same."""
    said: list[str] = []
    for end in (b"\n", b"\r\n"):
        folder = tmp_path / end.hex()
        shutil.copytree(ROOT / "fixtures" / "logs" / logs, folder)
        sums: dict[bytes, bytes] = {}
        for file in sorted(folder.rglob("*.json*"), key=lambda path: path.suffix, reverse=True):
            before = file.read_bytes()
            after = before.replace(b"\n", end)
            # A record names the checksum of its file of samples, as its own system wrote that.
            for old, new in sums.items():
                after = after.replace(old, new)
            file.write_bytes(after)
            sums[_sum(before)] = _sum(after)
        annotate(folder, in_place=True)
        done = run("report", folder, "-q", folder=tmp_path)
        assert done.returncode == 0
        said.append(done.stdout + done.stderr.replace(folder.name, ""))

    assert said[0] == said[1]


def test_tables_whose_lines_end_as_on_windows_are_read_the_same(tmp_path: Path) -> None:
    """With quoted names and a mark of the byte order, as Excel writes them."""
    text = 'model,task,item,score\n"a, é",t,1,0\n"a, é",t,2,1\nb,t,1,1\nb,t,2,1\n'
    (tmp_path / "lf.csv").write_bytes(text.encode())
    (tmp_path / "crlf.csv").write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    lf, crlf = (read(tmp_path / f"{name}.csv").responses for name in ("lf", "crlf"))

    assert [(r.model, r.item_ids.tolist(), r.scores.tolist()) for r in lf] == [
        (r.model, r.item_ids.tolist(), r.scores.tolist()) for r in crlf
    ]
