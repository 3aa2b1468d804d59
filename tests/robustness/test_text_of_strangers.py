"""Texts that no encoding holds, narrow terminals, closed and named pipes: shown, never a traceback.

What controls a terminal is attacked in `test_hostile_names`.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from threading import Thread

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from evalstats_plugin.cli import main
from evalstats_plugin.runtime.untrusted import printable

LM_EVAL = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
ENCODINGS = ("utf-8", "cp1252", "ascii", "shift_jis")
HALVES = "\ud83d\udc80\udfff"
ANY = st.text(
    st.characters() | st.sampled_from(f"{HALVES}é→–模\u0000\x1b"), min_size=1, max_size=12
).filter(str.strip)
Run = Callable[..., "CompletedProcess[str]"]


def _log(folder: Path, models: tuple[str, str], task: str, text: str) -> str:
    path = folder / "log.jsonl"
    rows = [
        {"model": model, "task": task, "item": f"{i}{text}", "score": int((i * k) % 3 > 0),
         "question": text, "answer": text}
        for k, model in enumerate(models, 1)
        for i in range(12)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _invoke(*arguments: str, encoding: str = "utf-8", **environment: str) -> tuple[int, bytes]:
    """Run a command with output in an encoding; nothing but our own errors comes of it."""
    done = CliRunner(charset=encoding).invoke(main, arguments, env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout_bytes


@settings(max_examples=12, deadline=None)
@given(first=ANY, second=ANY, task=ANY, text=ANY, encoding=st.sampled_from(ENCODINGS))
def test_any_text_is_shown_in_any_encoding(
    first: str, second: str, task: str, text: str, encoding: str
) -> None:
    """Tables in that of the output, JSON and CSV in UTF-8; JSON gives the very names back."""
    with tempfile.TemporaryDirectory() as folder:
        log = _log(Path(folder), (f"a{first}", f"b{second}"), task, text)
        for command in ("report", "compare", "table"):
            code, table = _invoke(command, log, encoding=encoding)
            assert code == 0, table
            table.decode(encoding)
        code, content = _invoke("report", log, "--format", "json", encoding=encoding)
        found = json.loads(content.decode())["results"]
        code, content = _invoke("report", log, "--format", "csv", encoding=encoding)
        rows = list(csv.DictReader(io.StringIO(content.decode())))

    names = [row["model"].strip() for row in found]
    assert [f"a{first}".strip(), f"b{second}".strip()] == names
    assert [printable(name).strip() for name in names] == [row["model"].strip() for row in rows]


def test_names_that_differ_in_half_a_letter_are_shown_apart(tmp_path: Path) -> None:
    """And files that are written hold them escaped; the page opens with such answers."""
    log = _log(tmp_path, ("m\ud83d", "m\udc80"), "t\udfff", "q\ud83d")

    table = _invoke("report", log)[1].decode()
    assert r"m\ud83d" in table
    assert r"m\udc80" in table
    for name in ("x.csv", "x.jsonl", "x.parquet"):
        assert 0 == _invoke("export", log, "-o", str(tmp_path / name))[0]
        again = json.loads(_invoke("report", str(tmp_path / name), "--format", "json")[1])
        assert {r"m\ud83d", r"m\udc80"} == {row["model"] for row in again["results"]}
    page = tmp_path / "page.html"
    assert 0 == _invoke("report", log, "--html", str(page))[0]
    assert r"m\ud83d" in page.read_text() or "m\ufffd" in page.read_text()


def test_half_a_letter_in_an_answer_does_not_stop_the_page(tmp_path: Path) -> None:
    """Of a harness whose logs hold questions and answers."""
    logs = sorted(LM_EVAL.rglob("*"))
    for path in logs:
        if path.is_file() and ("es_bin" in path.name or path.name.startswith("results")):
            copy = tmp_path / "out" / path.relative_to(LM_EVAL)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            if path.name.startswith("samples"):
                text = re.sub(r'("(?:question|target|text|label)": ")', r"\1\\ud83d", text)
            copy.write_text(text)

    code, _ = _invoke("report", str(tmp_path / "out"), "-t", "es_bin", "--html",
                      str(tmp_path / "page.html"))  # fmt: skip

    assert code == 0
    assert "ufffd" in ascii((tmp_path / "page.html").read_text())


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("report",), ("estimate", "low", "high")),
        (("compare", "--details"), ("difference", "low", "high")),
        (("compare", "--models", "models/m0,models/m1"), ("difference", "low", "high")),
        (("gate", "--baseline", "models/m1"), ("difference", "low", "high")),
    ],
)
def test_no_number_is_cut_on_a_narrow_terminal(
    command: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Every number and limit of the results stands whole in the table."""
    asked = (*command, str(LM_EVAL), "-t", "es_group", "-m", "acc")
    rows = json.loads(_invoke(*asked, "--format", "json")[1])["results"]
    wanted = {f"{abs(row[name]):.4f}" for row in rows for name in names if row[name] is not None}
    for width in (30, 40, 59):
        code, table = _invoke(*asked, COLUMNS=str(width))
        words = set(re.findall(r"\d[\d.]+", table.decode()))

        assert code in (0, 3)
        assert wanted <= words, width
        assert max(map(len, table.decode().splitlines())) <= width


def test_a_reader_who_has_enough_is_no_error() -> None:
    """`| head -1`: one line, nothing on standard error."""
    for options in ("--format json", ""):
        command = f"{sys.executable} -m evalstats_plugin report {LM_EVAL} {options} | head -1"
        shown = subprocess.run(["bash", "-c", command], capture_output=True, check=False)

        assert shown.stdout.count(b"\n") == 1
        assert shown.stderr == b""


@pytest.mark.parametrize("command", ["report", "check", "compare", "rank stats", "gate --protocol"])
def test_a_named_pipe_is_refused(tmp_path: Path, command: str) -> None:
    """A program that opens it would wait for its other end."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    # So that what opens it does not wait for ever.
    Thread(target=lambda: pipe.write_text("model,item,score\nm,1,1\n"), daemon=True).start()

    done = CliRunner().invoke(main, [*command.split(), str(pipe), *["x"] * ("gate" in command)])

    assert isinstance(done.exception, SystemExit)
    assert "is a pipe, not a file" in re.sub(r"\s+", " ", done.output)


@pytest.mark.parametrize(
    ("heading", "row", "command"),
    [
        ("model,item,score", "m,2,1_000", ("report",)),
        ("model_a,model_b,winner,weight", "b,a,model_a,1_000", ("rank", "stats")),
    ],
)
def test_an_underscore_separates_no_digits(
    run: Run, tmp_path: Path, heading: str, row: str, command: tuple[str, ...]
) -> None:
    """As in no other program that reads tables."""
    table = tmp_path / "t.csv"
    first = "m,1,3" if "item" in heading else "a,b,model_a,2"
    table.write_text(f"{heading}\n{first}\n{row}\n")

    done = run(*command, table)

    assert 2 == done.returncode
    assert "'1_000'" in done.stderr
