"""Several files are replaced together or not at all, whatever kills or refuses the writer."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import syscalls
from click.testing import CliRunner

from evalstats_plugin import annotate
from evalstats_plugin.cli import main
from evalstats_plugin.errors import WriteError
from evalstats_plugin.runtime import files, transactions
from evalstats_plugin.runtime.transactions import (
    JOURNAL,
    PREFIX,
    finish_interrupted,
    overwriting,
    revision,
    rewriting_links,
    scratch_folder,
    transaction,
)

followed = pytest.mark.skipif(
    not syscalls.AVAILABLE, reason="system calls are followed on Linux, x86-64"
)

OLD = {"samples.jsonl": b"old " * 3000, "list.json": b"old"}
NEW = {"samples.jsonl": b"new " * 2000, "list.json": b"old+", "run/results.json": b"{}"}


def _make(folder: Path) -> None:
    for name, content in OLD.items():
        (folder / name).write_bytes(content)


def _work(folder: Path) -> None:
    with transaction(folder) as staged:
        staged.write(folder / "samples.jsonl", NEW["samples.jsonl"])
        staged.write(folder / "run" / "results.json", NEW["run/results.json"])
        staged.edit(folder / "list.json", lambda content: content + b"+")


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.startswith(".")
    }


def _left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob(".*"))


def _fresh(root: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=root))
    _make(folder)
    return folder


def _steps(root: Path, work: Callable[[Path], None]) -> int:
    folder = _fresh(root)
    done = syscalls.run(lambda: work(folder), folder)
    assert done.code == 0, done.said
    assert _contents(folder) == NEW
    assert _left(folder) == []
    return len(done.steps)


@followed
def test_after_a_kill_at_any_step_all_files_are_old_or_all_are_new(tmp_path: Path) -> None:
    """Who looks at the folder next finishes what was begun; a second run leaves nothing over."""
    syscalls.in_a_small_process(_kill_at_any_step, tmp_path)


def _kill_at_any_step(tmp_path: Path) -> None:
    states: list[bool] = []
    for at in range(1, _steps(tmp_path, _work) + 1):
        folder = _fresh(tmp_path)
        killed = syscalls.run(lambda f=folder: _work(f), folder, at)
        assert killed.code is None

        finish_interrupted(folder)

        states.append(_contents(folder) == NEW)
        assert _contents(folder) in (OLD, NEW), at
        _make(folder)
        _work(folder)
        assert _contents(folder) == NEW
        assert _left(folder) == []
    # Old until the journal is there, new from then on.
    assert states == sorted(states)
    assert set(states) == {False, True}


@followed
@pytest.mark.parametrize(
    "error",
    [
        errno.ENOSPC,
        pytest.param(errno.EIO, marks=pytest.mark.validation),
        pytest.param(errno.EACCES, marks=pytest.mark.validation),
    ],
)
def test_a_step_that_is_refused_takes_back_those_before_it(error: int, tmp_path: Path) -> None:
    """The error leaves all files as they were, or the work is done."""
    syscalls.in_a_small_process(_refuse_at_any_step, error, tmp_path)


def _refuse_at_any_step(error: int, tmp_path: Path) -> None:
    codes: set[int | None] = set()
    for at in range(1, _steps(tmp_path, _work) + 1):
        folder = _fresh(tmp_path)
        done = syscalls.run(lambda f=folder: _work(f), folder, at, error)
        codes.add(done.code)
        refused = done.code == syscalls.REFUSED
        assert _contents(folder) == (OLD if refused else NEW), (at, done)
        assert refused or done.code == 0, done.said
        if "unlink" not in done.steps[at - 1].call:
            assert _left(folder) == []
    assert codes == {0, syscalls.REFUSED}


@followed
@pytest.mark.validation
def test_a_thousand_kills(tmp_path: Path) -> None:
    """At steps drawn at random, one after the other in one folder, without a clean start."""
    n, rng = _steps(tmp_path, _work), np.random.default_rng(0)
    folder = tmp_path / "soak"
    folder.mkdir()
    for _ in range(1000):
        _make(folder)
        (folder / "run" / "results.json").unlink(missing_ok=True)
        syscalls.run(lambda: _work(folder), folder, int(rng.integers(1, n + 1)))
        finish_interrupted(folder)
        assert _contents(folder) in (OLD, NEW)
    _make(folder)
    _work(folder)
    assert _left(folder) == []


def _append(folder: Path, name: str) -> None:
    for k in range(10):
        with transaction(folder) as staged:
            staged.edit(folder / "list.json", lambda content, k=k: content + f"{name}{k},".encode())
            staged.write(folder / f"{name}{k}.json", b"{}")


def test_four_writers_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """Each adds ten logs, and each log to the list."""
    (tmp_path / "list.json").write_bytes(b"")
    context: Any = get_context("fork" if os.name == "posix" else "spawn")
    writers = [context.Process(target=_append, args=(tmp_path, name)) for name in "abcd"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()

    listed = (tmp_path / "list.json").read_text().split(",")[:-1]
    assert sorted(listed) == sorted(f"{name}{k}" for name in "abcd" for k in range(10))
    assert {f"{name}.json" for name in listed} | {"list.json"} == set(_contents(tmp_path))
    assert _left(tmp_path) == []


def test_one_file_that_has_changed_keeps_all_from_being_written(tmp_path: Path) -> None:
    _make(tmp_path)
    seen = revision(tmp_path / "samples.jsonl")
    (tmp_path / "samples.jsonl").write_bytes(b"by another")

    with (  # noqa: PT012 - leaving the inner block is what raises
        pytest.raises(WriteError, match=r"samples\.jsonl was changed by another process"),
        transaction(tmp_path) as staged,
    ):
        staged.write(tmp_path / "new.json", b"new")
        staged.write(tmp_path / "samples.jsonl", b"new", over=seen)
    assert _contents(tmp_path) == {**OLD, "samples.jsonl": b"by another"}
    assert _left(tmp_path) == []


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    """Neither by a path nor by a link that leads out."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    outside.mkdir()
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    for path in (inside / ".." / "out" / "x", inside / "link" / "x"):
        with (
            pytest.raises(WriteError, match="outside of"),
            transaction(inside) as staged,
        ):
            staged.write(path, b"x")
    assert list(outside.iterdir()) == []


def test_a_journal_that_leads_out_of_its_folder_is_not_followed(tmp_path: Path) -> None:
    """It may come with a folder of logs from others."""
    logs, victim = tmp_path / "logs", tmp_path / "victim"
    logs.mkdir()
    victim.write_text("old")
    new = f"{PREFIX}1-00000000-new"
    (logs / new).write_text("new")
    entry = {"path": "../victim", "new": new, "after": [0, 0, 0], "old": None, "rewrite": False}
    entry["before"] = revision(victim)
    (logs / f"{PREFIX}1-00000000-x{JOURNAL}").write_text(json.dumps([entry]))

    finish_interrupted(logs)

    assert victim.read_text() == "old"


def test_files_with_several_names_are_refused_or_overwritten_under_all(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    path.write_bytes(b"older and longer")
    os.link(path, other)

    with pytest.raises(WriteError, match=r"log has 2 names \(hard links\)"):
        files.write_bytes(path, b"new")
    assert other.read_bytes() == b"older and longer"
    with rewriting_links(allowed=True):
        files.write_bytes(path, b"new")

    assert path.samefile(other)
    assert other.read_bytes() == b"new"
    assert _left(tmp_path) == []


def test_a_rewrite_that_is_killed_is_taken_up_again(tmp_path: Path) -> None:
    if not syscalls.AVAILABLE:
        pytest.skip("system calls are followed on Linux, x86-64")
    syscalls.in_a_small_process(_kill_a_rewrite, tmp_path)


def _kill_a_rewrite(tmp_path: Path) -> None:
    def work() -> None:
        with rewriting_links(allowed=True):
            files.write_bytes(path, b"new")

    path, other = tmp_path / "log", tmp_path / "other"
    path.write_bytes(b"older and longer")
    os.link(path, other)
    n = len(syscalls.run(work, tmp_path).steps)
    for at in range(1, n + 1):
        path.write_bytes(b"older and longer")
        syscalls.run(work, tmp_path, at)
        finish_interrupted(tmp_path)
        assert other.read_bytes() in (b"older and longer", b"new")
        assert path.samefile(other)


def test_a_file_is_replaced_only_where_that_is_allowed_or_it_was_read(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    link.symlink_to(tmp_path / "elsewhere")

    with overwriting(allowed=False):
        for each in (path, link):
            with pytest.raises(WriteError, match="exists already"):
                files.write_bytes(each, b"new")
        files.write_bytes(path, b"read", over=revision(path))
        files.write_bytes(tmp_path / "free", b"new")

    assert path.read_bytes() == b"read"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "free", "link"]
    with overwriting(allowed=True):
        files.write_bytes(link, b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"

    with (
        pytest.raises(WriteError, match="exists already"),
        overwriting(allowed=False),
        files.replacing(path),
    ):
        path.write_bytes(b"of another program")

    assert path.read_bytes() == b"of another program"


LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
LOG = min(LOGS.glob("lm_eval/0.4.13/out_samples/*"))

NAMED = {
    "report": ("report", "LOG", "--html", "FILE.html"),
    "gate": ("gate", "LOG", "--baseline", "m", "--junit", "FILE.xml"),
    "table": ("table", "LOG", "--bib", "FILE.bib"),
    "rank sample": ("rank", "sample", "VOTES", "FILE.jsonl"),
    "rank merge": ("rank", "merge", "VOTES", "-o", "FILE.csv"),
    "irt fit": ("irt", "fit", "LOG", "--save", "FILE.parquet"),
    "irt link": ("irt", "link", "LOG", "--to", "x.parquet", "--save", "FILE.parquet"),
    "adapt bank": ("adapt", "bank", "LOG", "-o", "FILE.parquet"),
    "adapt merge": ("adapt", "merge", "a.parquet", "b.parquet", "-o", "FILE.parquet"),
    "annotate": ("annotate", "LOG", "-o", "FOLDER"),
    "annotate --strip": ("annotate", "LOG", "--strip", "-o", "FOLDER"),
    "export": ("export", "LOG", "-o", "FILE.csv"),
    "rescore": ("rescore", "LOG", "-o", "FOLDER"),
}
"""Commands with an option or argument for a file that is written, besides figures."""

REQUIRED = {
    "irt score": ("--bank", "x.parquet"),
    "irt link": ("--to", "x.parquet"),
    "adapt simulate": ("--bank", "x.parquet"),
    "adapt replay": ("--bank", "x.parquet"),
    "adapt run inspect": ("--bank", "x.parquet", "--model", "m"),
    "adapt run lm-eval": (
        "--bank", "x.parquet", "--model", "m", "--tasks", "t", "--output_path", "x",
    ),
    "judge": ("--human", "h", "--judge", "j"),
}  # fmt: skip


def _commands(group: click.Command, *names: str) -> dict[str, click.Command]:
    if not isinstance(group, click.Group):
        return {" ".join(names): group}
    ctx = click.Context(group, info_name="x")
    found: dict[str, click.Command] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        found |= _commands(command, *names, name)
    return found


WRITING = {
    name: command
    for name, command in _commands(main).items()
    if any(param.name == "overwrite" for param in command.params)
}


def test_each_command_that_writes_is_tried_below() -> None:
    drawing = {n for n, c in WRITING.items() if any(p.name == "figure" for p in c.params)}

    assert {name.removesuffix(" --strip") for name in NAMED} | drawing == set(WRITING)


def _in_vain(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Run a command at a place that is taken by a file, and by a link to nowhere."""
    victim, votes = tmp_path / "victim", tmp_path / "votes.csv"
    votes.write_text("winner,loser\na,b\nb,a\n")
    folder = tmp_path / "folder"
    given = {"LOG": str(LOG), "VOTES": str(votes), "FOLDER": str(folder)}
    targets = [tmp_path / arguments[-1].replace("FILE", n) for n in ("file", "link")]
    if "FOLDER" in arguments:
        log = min(LOG.glob("results*.json"))
        inside = LOG.name if arguments[0] == "rescore" else ""
        (folder / inside).mkdir(parents=True)
        targets = [folder / inside / log.name]
        targets[0].write_text("mine")
    else:
        targets[0].write_text("mine")
        targets[1].symlink_to(victim)
    for target in targets:
        named = [str(target) if a.startswith("FILE") else given.get(a, a) for a in arguments]
        done = CliRunner().invoke(main, named)

        assert done.exit_code == 2, done.output
        assert "exists already" in " ".join(done.stderr.split()), done.output
        assert "--overwrite" in done.stderr
    assert targets[0].read_text() == "mine"
    assert not victim.exists()


@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_is_there_is_kept(name: str, tmp_path: Path) -> None:
    _in_vain(NAMED[name], tmp_path)


@pytest.mark.parametrize(
    "name", [n for n, c in WRITING.items() if any(p.name == "figure" for p in c.params)]
)
def test_a_figure_that_is_there_is_kept(name: str, tmp_path: Path) -> None:
    (option,) = (p for p in WRITING[name].params if p.name == "figure")
    assert isinstance(option, click.Option)
    figure = str(option.help).removeprefix("Draw into FILE: ").rstrip(".").split(", ")[0]
    takes_paths = any(p.name in {"paths", "files", "task"} for p in WRITING[name].params)
    paths = [str(LOG)] if takes_paths else []
    _in_vain(
        (*name.split(), *paths, *REQUIRED.get(name, ()), "--figure", figure, "-o", "FILE.svg"),
        tmp_path,
    )


def test_annotated_copies_stay_in_their_folder(tmp_path: Path) -> None:
    """A link in the folder of copies leads nowhere, and copies are replaced on request."""
    logs, copies = tmp_path / "logs" / "run", tmp_path / "copies"
    logs.mkdir(parents=True)
    (logs / "results_2026.json").write_bytes(min(LOG.glob("results*.json")).read_bytes())
    copies.mkdir()
    (copies / "run").symlink_to(tmp_path)

    with pytest.raises(WriteError, match="outside of"):
        annotate(tmp_path / "logs", output=copies, overwrite=True)

    (copies / "run").unlink()
    first, again = (annotate(tmp_path / "logs", output=copies, overwrite=k > 0) for k in range(2))
    assert first == again
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copies", "logs"]


def test_owner_mode_attributes_and_time_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.utime(path, ns=(10**18, 10**18))
    attributes: dict[str, bytes] = {}
    try:
        os.setxattr(path, "user.note", b"mine")
        attributes["user.note"] = b"mine"
    except (OSError, AttributeError):
        pass
    if os.name == "posix" and os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    before = path.stat()

    files.write_bytes(path, b"new", times_of=path)

    after = path.stat()
    assert path.read_bytes() == b"new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode, before.st_uid, before.st_gid,
    )  # fmt: skip
    assert after.st_mtime_ns == 10**18
    assert {name: os.getxattr(path, name) for name in attributes} == attributes


@followed
def test_a_scratch_folder_of_a_killed_program_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "evalstats-notes").mkdir()

    def work() -> None:
        with scratch_folder() as folder:
            (folder / "copy").write_text("x")

    # Killed as it writes the copy.
    syscalls.run(work, tmp_path, at=2)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(transactions, "_tidied", set[Any]())
    work()

    assert [p.name for p in tmp_path.iterdir()] == ["evalstats-notes"]
