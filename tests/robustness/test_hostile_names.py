"""Hostile names of models in the logs of every adapter: nothing of them reaches an output raw.

A new adapter is attacked as soon as it is installed, with the logs in its folder of fixtures.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import shutil
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalstats_plugin.adapters.lm_eval.replay.command import place_for
from evalstats_plugin.cli import main
from evalstats_plugin.errors import WriteError
from evalstats_plugin.plugins import load_plugins

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures" / "logs"

NAMES = (
    # Terminals: colours, clear, title, clipboard, hyperlink, C1 controls, bell, overwriting.
    "\x1b[31mred", "\x1b[2J\x1b[Hcleared", "\x1b]0;title\x07", "\x1b]52;c;cm0gLXJm\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "\x9b31mred", "\x9d52;c;eA==\x9c",
    "bell\x07", "over\rwritten", "back\b\b\b\bspace", "nul\x00byte", "\x7fdelete", "tab\tstop",
    # Directions, invisible letters, ends of lines.
    "\u202egnp.exe", "\u2066isolate", "\u200bzero", "\ufeffmark", "\u2028line", "\u2029paragraph",
    "two\nerror: lines", "two\r\nlines", "\U000e0041tag", "\u061carabic mark", "a\u0300" * 40,
    # Paths.
    "../../../etc/passwd", "/etc/passwd", "..", ".", "..\\..\\windows", "~/.bashrc", "CON", "-rf",
    # Spreadsheets.
    "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", "'=1+1", "\uff1d1+1",
    # Markup and templates.
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</script><b>", "]]>",
    "[a](javascript:alert(1))", "![a](http://evil.example/x.png)", "a|b|c", "`code`", "&lt;b&gt;",
    "{{ 7 * 7 }}", "{% raw %}", "${7*7}", "%s%n", "$\\frac{1}", "[bold red]rich[/bold red]",
    '"quoted"', "'; DROP TABLE x; --",
    # Sizes.
    "", " ", "x" * 100_000,
)  # fmt: skip

SMALL = {
    "lm_eval": "lm_eval/0.4.13/out_variant/models__m1",
    "inspect_ai": "inspect_ai/0.3.285/tiny_perfect",
    "every_eval_ever": "every_eval_ever/0.3.0/converted/data/sums",
}
"""Part of an adapter's fixtures that is enough; without an entry, all of them."""

READERS = [p.name for p in load_plugins().listing if "evalstats_read_log" in p.hooks]


@pytest.fixture(scope="module", params=READERS)
def hostile_logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a log of one adapter for each name."""
    folder = tmp_path_factory.mktemp(request.param) / "logs"
    if request.param == "tabular":
        for k, name in enumerate(NAMES):
            place = folder / f"{k:02}" / "table.csv"
            place.parent.mkdir(parents=True)
            with place.open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file)
                rows.writerow(["model", "task", "item", "score"])
                rows.writerows([name.strip() or "none", "sums", i, i % 2] for i in range(3))
        return folder
    source = LOGS / SMALL.get(request.param, request.param)
    assert source.is_dir(), f"add logs of {request.param} to fixtures/logs"
    model = _model(source)
    for k, name in enumerate(NAMES):
        copied = shutil.copytree(source, folder / f"{k:02}")
        for file in filter(Path.is_file, copied.rglob("*")):
            file.write_bytes(_renamed(file.read_bytes(), model, name))
    return folder


def _model(source: Path) -> str:
    done = CliRunner().invoke(main, ["report", str(source), "--format", "json"])
    return json.loads(done.stdout)["results"][0]["model"]


def _renamed(content: bytes, old: str, new: str) -> bytes:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return content.replace(json.dumps(old).encode(), json.dumps(new).encode())
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(packed, "w") as after:
        for member in before.infolist():
            after.writestr(member.filename, _renamed(before.read(member), old, new))
    return packed.getvalue()


COMMANDS = {
    "table": ("report",),
    "csv": ("report", "--format", "csv"),
    "markdown": ("report", "--format", "markdown"),
    "json": ("report", "--format", "json"),
    "html": ("report", "--quiet", "--html", "out/page.html"),
    "findings": ("check",),
    "errors": ("report", "--models", "nobody"),
    "compared": ("compare", "--baseline", "nobody"),
    "exported": ("export", "--output", "out/table.csv"),
    "exported elsewhere": ("export", "--to", "every-eval-ever", "--output", "out/eee"),
    "annotated": ("annotate", "--output", "out/annotated"),
}


@pytest.mark.parametrize("sink", COMMANDS)
def test_names_reach_no_output_raw(
    hostile_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """Terminal, CSV, Markdown, JSON, HTML, messages and files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    command, *options = COMMANDS[sink]
    skip = ["--skip-broken"] if command != "check" else []
    logs = {path: path.read_bytes() for path in hostile_logs.rglob("*") if path.is_file()}

    # Figures of all pairs of models take long: the page has those that could be markup.
    wanted = [k for k, name in enumerate(NAMES) if sink != "html" or set(name) & set("<{\u202e")]
    paths = [str(hostile_logs / f"{k:02}") for k in wanted]
    done = CliRunner().invoke(main, [command, *paths, *skip, *options])

    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert not set(_raw(done.stdout)), sink
    assert not set(_raw(done.stderr)), sink
    assert not [line for line in done.stderr.splitlines() if line.startswith("error: lines")]
    assert {p for p in tmp_path.iterdir() if p.name != "out"} == set()
    assert logs == {path: path.read_bytes() for path in hostile_logs.rglob("*") if path.is_file()}
    if options[-1:] == ["csv"]:
        _check_csv(done.stdout)
    if options[-1:] == ["markdown"]:
        assert "<script" not in done.stdout
        assert "<img" not in done.stdout
        assert "](" not in done.stdout.replace("]\\(", "")
    if sink == "json":
        assert json.loads(done.stdout)["results"]
    if sink == "exported":
        _check_csv((tmp_path / "out" / "table.csv").read_text(encoding="utf-8"))
    if sink == "html":
        page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
        assert not set(_raw(page))
        assert not [name for name in NAMES if "<" in name and name in page]


def _raw(text: str) -> Iterator[str]:
    """Give the characters that control a terminal or are not to be seen."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return (c for c in set(text) - {"\n", "\t"} if unicodedata.category(c) in kinds)


def _check_csv(text: str) -> None:
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            if cell[:1] in tuple("=+-@\t\r\uff1d"):
                float(cell)


DOORS = {"evalstats_plugin/runtime/untrusted.py"}
"""Files that print: its `echo` and `terminal`."""

OF_LOGS = {"model", "task", "metric", "judge", "player", "model_name_sanitized"}
"""Attributes and keys whose values come from logs."""

CHECKED = {"path_part", "_portable"}
"""Functions that return one part of a path."""

READ_ONLY = {"adapters/lm_eval/run_harness.py"}
"""Files that look with such a name for what the harness has just written."""


def test_commands_print_through_one_door_and_no_name_of_a_log_is_joined_to_a_path() -> None:
    """Every module is searched for prints, consoles, and names from logs in paths."""
    printing: list[str] = []
    joining: list[str] = []
    for root in ("evalstats_plugin", "adapters"):
        for file in sorted((ROOT / root).rglob("*.py")):
            named = file.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _prints(node.func):
                    printing += [f"{named}:{node.lineno}"] * (named not in DOORS)
                elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                    raw = _raw_in(node.right)
                    joining += [f"{named}:{node.lineno}"] * (raw and named not in READ_ONLY)

    assert printing == []
    assert joining == []


def _prints(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        of = function.value.id if isinstance(function.value, ast.Name) else ""
        return of == "click" and function.attr in {"echo", "secho"}
    return isinstance(function, ast.Name) and function.id in {"print", "Console"}


def _raw_in(part: ast.expr) -> bool:
    """Whether a part of a path names what a log does, in a text: numbers are divided too."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
        if part.func.id in CHECKED:
            return False
    elif not isinstance(part, ast.JoinedStr | ast.Attribute):
        return False
    found = {n.attr for n in ast.walk(part) if isinstance(n, ast.Attribute)}
    found |= {n.value for n in ast.walk(part) if isinstance(n, ast.Constant)}
    return bool(found & OF_LOGS)


@pytest.mark.parametrize("name", ["/elsewhere", "../../..", "..", "a\\b", "\x1b[2J", "x" * 300])
def test_a_log_does_not_choose_where_rescore_writes(tmp_path: Path, name: str) -> None:
    """The folder of the model is one part of a path, or nothing is written."""
    log = tmp_path / "logs" / "results_2026-01-01.json"

    with pytest.raises(WriteError, match="must be one part of a path"):
        place_for(log, {"model_name_sanitized": name}, tmp_path / "out")
