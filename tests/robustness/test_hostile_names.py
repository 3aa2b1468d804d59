"""Hostile names in the logs of every adapter: nothing of them reaches an output raw.

Names of models, tasks, metrics, filters, items, players, judges and files. A new adapter is
attacked as soon as it is installed, with the logs in its folder of fixtures; a new command as soon
as it reads logs.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shlex
import shutil
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from logs import commands_that_read
from readers import READERS as DAMAGED

from evalstats_plugin import read
from evalstats_plugin.adapters.lm_eval.replay.command import place_for
from evalstats_plugin.cli import main
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import EvalStatsError, WriteError
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
    "@ann see #12", "&#64;ann", "http://evil.example",
    "{{ 7 * 7 }}", "{% raw %}", "${7*7}", "%s%n", "$\\frac{1}", "[bold red]rich[/bold red]",
    '"quoted"', "'; DROP TABLE x; --",
    # Letters that XML forbids; what LaTeX reads as options of the row above.
    "not\uffffa letter", "[9cm]row", "*row",
    # Sizes.
    "", " ", "x" * 100_000,
)  # fmt: skip

SMALL = {
    "lm_eval": "lm_eval/0.4.13/out_variant/models__m1/*38.565217*",
    "inspect_ai": "inspect_ai/0.3.285/tiny_perfect/*",
    "every_eval_ever": "every_eval_ever/0.3.0/converted/data/sums/**/*",
    "mapped": "deepeval/4.3.1/*",
}
"""Part of an adapter's fixtures that is enough; without an entry, all of them."""

READERS = [p.name for p in load_plugins().listing if "evalstats_read_log" in p.hooks]


@pytest.fixture(scope="module")
def hostile_logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give what returns a folder of hostile logs of an adapter, made once."""

    @cache
    def made(adapter: str) -> Path:
        return _hostile_logs(adapter, tmp_path_factory)

    return made


def _hostile_logs(adapter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make logs of one adapter in which all that has a name has a hostile one.

    Each name is that of a model in every second log, and in others of what else has names.
    """
    folder = tmp_path_factory.mktemp(adapter) / "logs"
    made = tmp_path_factory.mktemp(f"{adapter}-made")
    source = _table if adapter == "tabular" else _renaming(_logs_of(adapter, made))
    seen = {kind: set[str]() for kind in KINDS}
    for k in range(0, len(NAMES), 2):
        names = {kind: NAMES[(k + 11 * n) % len(NAMES)] for n, kind in enumerate(KINDS)}
        # What a harness cannot have written, such as a task that its file cannot be named after,
        # is no log: then the model alone has such a name.
        for chosen in (names, {"model": names["model"]}):
            shutil.rmtree(folder / f"{k:02}", ignore_errors=True)
            (folder / f"{k:02}").mkdir(parents=True)
            try:
                source(folder / f"{k:02}", chosen)
                found = read(folder / f"{k:02}").responses
            except (EvalStatsError, OSError, ValueError):
                continue
            for r, kind in product(found, KINDS):
                seen[kind] |= _named(r, kind) & {*NAMES}
            break
        else:
            # Not even the model can have this name in such a log.
            shutil.rmtree(folder / f"{k:02}")

    assert len(list(folder.iterdir())) >= 20
    changed = min(len(seen[kind]) for kind in ("model", "task", "metric"))
    assert changed >= 20, f"names of logs of {adapter} do not change"
    # Readers take control characters out of the others.
    assert len(set().union(*seen.values())) >= 40
    return folder


KINDS = ("model", "task", "metric", "filter", "item")


def _named(r: Responses, kind: str) -> set[str]:
    if kind == "item":
        return set(map(str, r.item_ids))
    metric, _, filter_ = r.metric.partition(",")
    return {{"model": r.model, "task": r.task, "metric": metric, "filter": filter_}[kind]}


def _table(folder: Path, names: Mapping[str, str]) -> None:
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "task", "metric", "item", "score"])
        kinds = ("model", "task", "metric", "item")
        given = [names.get(kind, kind).strip() or "none" for kind in kinds]
        rows.writerows([*given[:3], f"{given[3]}{i}" if i else given[3], i % 2] for i in range(3))


def _logs_of(adapter: str, made: Path) -> list[Path]:
    """Return logs of an adapter: of its fixtures, or as `readers` makes them to be damaged."""
    found = [p for p in LOGS.glob(SMALL.get(adapter, f"{adapter}/**/*")) if p.is_file()]
    makers = [reader.make for name, reader in DAMAGED.items() if name.lower() == adapter]
    if not found and makers:
        makers[0](made)
        found = [p for p in made.rglob("*") if p.is_file()]
    assert found, f"add logs of {adapter} to fixtures/logs, or to READERS of readers.py"
    return found


def _renaming(files: list[Path]) -> Callable[[Path, Mapping[str, str]], None]:
    """Return what writes copies of logs with other names."""
    below = Path(os.path.commonpath([file.parent for file in files]))
    first = max(read(below).responses, key=lambda r: len(r.item_ids))
    metric, _, filter_ = first.metric.partition(",")
    model = first.model.partition(" (")[0]
    item = first.item_ids[0] if first.item_ids.dtype.kind in "UO" else ""
    old = {"model": model, "task": first.task, "metric": metric, "filter": filter_, "item": item}

    def write(folder: Path, names: Mapping[str, str]) -> None:
        new = {str(old[kind]): name for kind, name in names.items() if old[kind]}
        for file in files:
            # Harnesses name files after tasks.
            task = new.get(first.task, first.task)
            place = folder / file.relative_to(below)
            place = place.with_name(place.name.replace(f"_{first.task}_", f"_{task}_"))
            if not place.resolve().is_relative_to(folder.resolve()):
                raise OSError(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_renamed(file.read_bytes(), new))

    return write


def _renamed(content: bytes, names: Mapping[str, str]) -> bytes:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        lines = content.splitlines() if content.count(b"\n{") else [content]
        try:
            return b"\n".join(json.dumps(_with(json.loads(x), names)).encode() for x in lines)
        except ValueError:
            return content
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(packed, "w") as after:
        for member in before.infolist():
            after.writestr(member.filename, _renamed(before.read(member), names))
    return packed.getvalue()


def _with(value: Any, names: Mapping[str, str]) -> Any:
    """Return JSON with other names, also in ``acc_stderr,none`` and ``task:model=name``."""
    if isinstance(value, dict):
        return {_with(k, names): _with(v, names) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_with(each, names) for each in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if value in names:
        return names[value]
    parts = [(part, "_stderr" * part.endswith("_stderr")) for part in re.split("([,:|=])", value)]
    bare = [(part.removesuffix(end), end) for part, end in parts]
    return "".join(names.get(part, part) + end for part, end in bare)


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


WHOLE = {"lm_eval", "inspect_ai", "tabular"}
"""Adapters of whose logs all is shown in every form."""
OF_EACH = {"table", "html", "findings", "exported elsewhere", "annotated"}
"""What is tried with the logs of all adapters: the other forms show what these do."""
SHOWN = [
    pytest.param(
        adapter,
        sink,
        id=f"{adapter}-{sink}",
        marks=[] if adapter in WHOLE or sink in OF_EACH else pytest.mark.validation,
    )
    for adapter, sink in product(READERS, COMMANDS)
]


@pytest.mark.parametrize(("adapter", "sink"), SHOWN)
def test_names_reach_no_output_raw(
    hostile_logs: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    adapter: str,
    sink: str,
) -> None:
    """Terminal, CSV, Markdown, JSON, HTML, messages and files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    command, *options = COMMANDS[sink]
    skip = ["--skip-broken"] if command not in ("annotate", "check") else []
    folder = hostile_logs(adapter)
    logs = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    # Figures of all pairs of models take long: the page has those that could be markup.
    wanted = [k for k, name in enumerate(NAMES) if sink != "html" or set(name) & set("<{\u202e")]
    paths = [str(path) for k in wanted if (path := folder / f"{k:02}").exists()]
    done = CliRunner().invoke(main, [command, *paths, *skip, *options])

    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert not set(_raw(done.stdout)), sink
    assert not set(_raw(done.stderr)), sink
    assert not [line for line in done.stderr.splitlines() if line.startswith("error: lines")]
    assert {p for p in tmp_path.iterdir() if p.name != "out"} == set()
    assert logs == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if options[-1:] == ["csv"]:
        _check_csv(done.stdout)
    if options[-1:] == ["markdown"]:
        _check_markdown(done.stdout)
    if sink == "json":
        assert json.loads(done.stdout)["results"]
    if sink == "exported" and "would hold no row" not in done.stderr:
        _check_csv((tmp_path / "out" / "table.csv").read_text(encoding="utf-8"))
    if sink == "html":
        page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
        assert not set(_raw(page))
        assert not [name for name in NAMES if "<" in name and name in page]


MODELS = [name for name in NAMES if name.strip() and len(name) < 50][::6]
ITEMS = [name[:2000] for name in dict.fromkeys(map(str.strip, NAMES)) if name and name[0] != "'"][
    ::2
]
"""Names in one table: each kind of attack. An array of names is as wide as the longest of them."""


@pytest.fixture(scope="module")
def hostile_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give scores of some models on many items, where all that has a name has a hostile one."""
    path = tmp_path_factory.mktemp("table") / "\x1b[31mt.csv"
    # An apostrophe before a formula is that of a spreadsheet, and no part of the name.
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "task", "metric", "item", "score", "\x1b]0;cluster\x07"])
        for i, model in enumerate(MODELS):
            for j, item in enumerate(ITEMS):
                score = (7 * i + 5 * j + i * j) % 11 < 3 + i % 5
                rows.writerow([model, "\x1b[2Jtask\u202e", "=m\x9b31m", item, int(score), j % 9])
    return path


COMMANDS_OF_LOGS = commands_that_read()

GIVEN = {
    "gate": ("--baseline", MODELS[0], "--junit", "gate.xml"),
    "judge score": ("--human", "=m\x9b31m", "--judge", "=m\x9b31m"),
    "judge label": ("--judge", "=m\x9b31m", "--to", "next.csv"),
    "irt fit": ("--item-model", "rasch"),
    "irt items": ("--item-model", "rasch"),
    "irt score": ("--bank", "\x1b[2Jnone.parquet"),
    "irt link": ("--to", "\x1b[2Jnone.parquet"),
    "irt new-items": ("--features", "features.csv", "--item-model", "rasch"),
    "irt capabilities": ("--dimensions", "1"),
    "irt dif": ("--focal", MODELS[0]),
    "irt holdout": ("--draws", "1", "--item-model", "rasch"),
    "irt choose": ("--draws", "1", "--candidate", "rasch,2pl"),
    "adapt bank": ("--item-model", "rasch", "-o", "bank.parquet"),
    "adapt replay": ("--bank", "\x1b[2Jnone.parquet"),
    "annotate": ("-o", "copies"),
    "export": ("-o", "t.csv"),
    "paper": ("-o", "paper"),
    "rescore": ("-o", "rescored"),
}
"""What a command needs; a new one that needs more is added here."""

SUCCEEDING = {
    "table", "report", "compare", "check", "gate", "irt fit", "adapt bank", "export", "paper",
}  # fmt: skip
"""Commands that answer, and do not only refuse the table."""

SLOW = {"pool", "judge score", "irt choose", "irt holdout", "irt capabilities"}
"""Commands of which one form is enough."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", COMMANDS_OF_LOGS)
def test_no_command_shows_a_name_raw(
    hostile_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Every command that reads logs: the table, CSV and Markdown of those that succeed."""
    monkeypatch.chdir(tmp_path)
    # To choose a penalty takes most of the time.
    monkeypatch.setattr("evalstats_plugin.hierarchical.capabilities.PENALTIES", (1.0,))
    monkeypatch.setattr("evalstats_plugin.hierarchical.capabilities._FOLDS", 2)
    with Path("features.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "size"])
        rows.writerows([name, len(name)] for name in (*ITEMS, *(f"{item} 2" for item in ITEMS)))
    options = {p.name: p.type for p in COMMANDS_OF_LOGS[name].params}
    forms = ["table"]
    if name not in SLOW and "form" in options:
        forms = [form for form in options["form"].choices if form != "json"]
    given = [*name.split(), str(hostile_table), *GIVEN.get(name, ())]
    for form in forms:
        shown = ["--format", form] if form != "table" else []
        done = CliRunner().invoke(
            main, [*given, *shown, *["--overwrite"] * ("overwrite" in options)]
        )

        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "Missing option" not in done.stderr, f"add to GIVEN: {done.stderr}"
        assert not set(_raw(done.stdout)), (form, done.stdout)
        assert not set(_raw(done.stderr)), (form, done.stderr)
        if done.exit_code != 0:
            continue
        if form == "csv":
            _check_csv(done.stdout)
        if form == "markdown":
            _check_markdown(done.stdout)
        if form == "latex":
            _check_latex(done.stdout, least=len(MODELS) if name == "table" else 0)
    if name == "gate":
        suite = ET.fromstring((tmp_path / "gate.xml").read_text())  # noqa: S314 - ours
        assert len(list(suite)) == len(MODELS) - 1
    if name in SUCCEEDING:
        assert done.exit_code in {0, 3, 4}, done.stderr


@pytest.mark.needs("torch")
def test_no_command_on_comparisons_shows_a_player_or_judge_raw(tmp_path: Path) -> None:
    names = dict.fromkeys(map(str.strip, NAMES))
    players = [name for name in names if name and len(name) < 50 and name[0] != "'"]
    votes = tmp_path / "\u202evotes.jsonl"
    rows = [
        {"winner": a, "loser": b, "judge": players[k % 7]}
        for k, (a, b) in enumerate(zip(players, [*players[1:], players[0]], strict=True))
    ]
    votes.write_text("\n".join(json.dumps(row) for row in rows * 2))
    merged = [tmp_path / f"merged.{ending}" for ending in ("csv", "json")]
    page = tmp_path / "arena.html"
    for arguments in (
        ("stats", votes),
        ("stats", votes, "--format", "csv"),
        ("stats", votes, "--format", "markdown"),
        ("leaderboard", votes, "--method", "thurstone", "--html", page),
        *(("merge", votes, "-o", file) for file in merged),
        ("next", merged[1]),
        *(("record", file, "--winner", "\x1b[2Jnobody", "--loser", "b") for file in merged),
        ("sample", votes, "--draws", "5"),
    ):
        done = CliRunner().invoke(main, ["rank", *map(str, arguments)])

        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert not set(_raw(done.stdout + done.stderr)), arguments
        if "markdown" in arguments:
            _check_markdown(done.stdout)
        if "csv" in arguments:
            _check_csv(done.stdout)
    _check_csv(merged[0].read_text(encoding="utf-8"))
    html = page.read_text(encoding="utf-8")
    assert not set(_raw(html))
    assert not [name for name in NAMES if "<" in name and name in html]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "does", ["echo first", "printf '\\033[2J'", "printf '\\033[2J' >&2; exit 3"]
)
def test_nothing_of_items_and_of_judges_that_are_programs_is_shown_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    """Names, texts and prompts of items; the program's name, its replies and its errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evalstats_plugin.ranking.judging.automatic.sleep", lambda _: None)
    judge = tmp_path / "\x1b[31mjudge"
    judge.write_text(f"#!/bin/sh\ncat > /dev/null\n{does}\n")
    judge.chmod(0o700)
    rows = [{"name": f"{name}{k}", "text": name, "prompt": name} for k, name in enumerate(MODELS)]
    items = tmp_path / "\x1b[31mitems.jsonl"
    items.write_text("\n".join(map(json.dumps, rows)))
    program = shlex.quote(str(judge))
    for arguments in (
        ["judge", str(items), "--command", program, "--budget", "2", "-o", "a.json"],
        ["stats", "a.json"],
        ["next", "a.json"],
    ):
        done = CliRunner().invoke(main, ["rank", *arguments])

        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert not set(_raw(done.stdout + done.stderr)), arguments


def _raw(text: str) -> Iterator[str]:
    """Give the characters that control a terminal or are not to be seen."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return (c for c in set(text) - {"\n", "\t"} if unicodedata.category(c) in kinds)


def _check_markdown(text: str) -> None:
    """Check that nothing is an element of HTML, a link, an image, a mention or a reference."""
    assert not re.findall(r"<(?!br>)[a-z]|(?<!\\)]\(|(?<!\w)@\w|(?<![\w&])#\d|https?://", text)


def _check_csv(text: str) -> None:
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            if cell[:1] in tuple("=+-@\t\r\uff1d"):
                float(cell)


LATEX = (
    r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|ldots|addlinespace|textbf"
    r"|[{}#$%&_\\])"
)
"""What our tables hold of LaTeX."""


def _check_latex(text: str, least: int) -> None:
    rows = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()
    assert len(rows) >= least
    for row in rows:
        assert row.lstrip()[0] not in "[*"
        assert "\\" not in re.sub(LATEX, "", row), row


DOORS = {"evalstats_plugin/runtime/untrusted.py"}
"""Files that print: its `echo` and `terminal`."""

OF_LOGS = {"model", "task", "metric", "judge", "player", "model_name_sanitized"}
"""Attributes and keys whose values come from logs."""

CHECKED = {"path_part", "_portable"}
"""Functions that return one part of a path."""

READ_ONLY = {"adapters/lm_eval/run_harness.py"}
"""Files that look with such a name for what the harness has just written."""


_SUSPECT = re.compile(
    r"\b(?:print|Console|click\.s?echo)\("
    rf"|/ *(?:f[\"']|[^/]{{0,200}}\b(?:{'|'.join(OF_LOGS)})\b)"
)
"""What a module must hold to be parsed, which takes a hundred times as long as looking for it."""


def test_commands_print_through_one_door_and_no_name_of_a_log_is_joined_to_a_path() -> None:
    """Every module is searched for prints, consoles, and names from logs in paths."""
    printing: list[str] = []
    joining: list[str] = []
    for root in ("evalstats_plugin", "adapters"):
        for file in sorted((ROOT / root).rglob("*.py")):
            named, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if _SUSPECT.search(text) else ():
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
