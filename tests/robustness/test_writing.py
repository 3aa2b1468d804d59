"""A file is replaced whole or not at all; what is read meanwhile is never a mixture."""

from __future__ import annotations

import os
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import pytest
import syscalls
from click.testing import CliRunner

from evalstats_plugin import annotate
from evalstats_plugin.cli import main
from evalstats_plugin.errors import ChangedError, WriteError
from evalstats_plugin.runtime import writing
from evalstats_plugin.runtime.writing import (
    PREFIX,
    check_inside,
    edit,
    locked,
    new_folder,
    overwriting,
    replacing,
    revision,
    scratch_folder,
    write_bytes,
)

followed = pytest.mark.skipif(
    not syscalls.AVAILABLE, reason="system calls are followed on Linux, x86-64"
)

FILES = {"samples.jsonl": b"new " * 2000, "run/results.json": b"{}"}


def _fill(folder: Path) -> None:
    with new_folder(folder) as new:
        for name, content in FILES.items():
            write_bytes(new / name, content)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob(".*"))


@followed
def test_a_new_folder_is_there_with_all_its_files_or_not_at_all(tmp_path: Path) -> None:
    """Killed or refused at any step; the next run leaves nothing else."""
    syscalls.in_a_small_process(_fill_at_any_step, tmp_path)


def _fill_at_any_step(tmp_path: Path) -> None:
    import errno
    import shutil

    folder = tmp_path / "run"
    steps = syscalls.run(lambda: _fill(folder), tmp_path).steps
    seen: set[bool] = set()
    for at in range(1, len(steps) + 1):
        for what in (syscalls.KILL, errno.ENOSPC):
            shutil.rmtree(folder, ignore_errors=True)
            done = syscalls.run(lambda: _fill(folder), tmp_path, at, what)
            assert not folder.exists() or _contents(folder) == FILES, (at, done)
            seen.add(folder.exists())
            # The parent has tidied the folder already, a child of it never has.
            assert syscalls.run(lambda: write_bytes(tmp_path / "other", b""), tmp_path).code == 0
            (tmp_path / "other").unlink()
            assert _left(tmp_path) == [], (at, what, steps[at - 1])
    assert seen == {False, True}


def test_a_folder_that_is_there_is_filled_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")

    _fill(tmp_path)

    assert _contents(tmp_path) == {**FILES, "mine": b"mine"}
    with pytest.raises(WriteError), new_folder(tmp_path / "a" / "b") as new:
        write_bytes(new / ("x" * 300), b"x")
    assert sorted(_contents(tmp_path)) == sorted({**FILES, "mine": b""})
    assert not (tmp_path / "a").exists()


def test_what_dead_programs_left_goes_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this user, by a name of ours, as it is: a link goes, not what it leads to."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    monkeypatch.setattr(writing, "_tidied", set[Any]())
    dead = f"{PREFIX}{2**22 + 1}-{writing._machine()}-"
    alive = f"{PREFIX}{os.getpid()}-{writing._machine()}-x"
    elsewhere = f"{PREFIX}1-00000000-x"
    for name in (f"{dead}file", alive, elsewhere, f"{PREFIX}notes"):
        (tmp_path / name).write_text("x")
    (tmp_path / f"{dead}folder").mkdir()
    (tmp_path / f"{dead}folder" / "link").symlink_to(victim)
    (tmp_path / f"{dead}link").symlink_to(victim)
    kept = {alive, elsewhere, f"{PREFIX}notes"}
    if os.name == "posix" and os.geteuid() == 0:
        (tmp_path / f"{dead}foreign").write_text("x")
        os.chown(tmp_path / f"{dead}foreign", 1234, 1234)
        kept.add(f"{dead}foreign")

    write_bytes(tmp_path / "new", b"new")

    assert set(_left(tmp_path)) == kept
    assert (victim / "file").read_text() == "mine"


def _append(folder: Path, name: str) -> None:
    for k in range(10):
        edit(folder / "list.json", lambda content, k=k: content + f"{name}{k},".encode())
        write_bytes(folder / f"{name}{k}.json", b"{}")


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


def _hold(folder: Path, seconds: float, holds: Any) -> None:
    with locked(folder):
        holds.set()
        time.sleep(seconds)


@pytest.mark.skipif(os.name != "posix", reason="folders have no locks here")
@pytest.mark.parametrize(("seconds", "patience"), [(0.5, 60.0), (30.0, 0.2)])
def test_a_writer_waits_for_another_and_says_so(
    seconds: float,
    patience: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It goes on when the other has ended, or gives up with a message."""
    monkeypatch.setattr(writing, "_SILENT", 0.1)
    monkeypatch.setattr(writing, "_PATIENCE", patience)
    context: Any = get_context("fork")
    holds = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, seconds, holds))
    other.start()
    holds.wait()

    if seconds < patience:
        write_bytes(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"new"
    else:
        with pytest.raises(WriteError, match="another program has been writing to"):
            write_bytes(tmp_path / "file", b"new")
        assert _contents(tmp_path) == {}
        other.kill()
    other.join()

    assert "note: waiting for another program that writes to" in capsys.readouterr().err
    assert _left(tmp_path) == []


def test_without_locks_it_is_said_where_that_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list").write_bytes(b"a")
    monkeypatch.setitem(__import__("sys").modules, "fcntl", None)

    write_bytes(tmp_path / "file", b"new")
    with pytest.warns(UserWarning, match="only one program at a time"):
        edit(tmp_path / "list", lambda content: content + b"b")

    assert _contents(tmp_path) == {"file": b"new", "list": b"ab"}


def test_a_file_that_has_changed_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"old")
    seen = revision(tmp_path / "log")
    (tmp_path / "log").write_bytes(b"by another")

    with pytest.raises(ChangedError, match="log was changed by another process"):
        write_bytes(tmp_path / "log", b"new", over=seen)
    assert _contents(tmp_path) == {"log": b"by another"}
    assert _left(tmp_path) == []


def test_links_that_lead_out_of_a_folder_are_found(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)

    check_inside(inside / "new" / "x", inside)
    for path in (inside / ".." / "out" / "x", inside / "link" / "x"):
        with pytest.raises(WriteError, match="outside of"):
            check_inside(path, inside)


def test_files_with_several_names_are_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    path.write_bytes(b"old")
    os.link(path, other)

    with pytest.raises(WriteError, match=r"log has 2 names \(hard links\)"):
        write_bytes(path, b"new")

    assert other.read_bytes() == b"old"
    assert path.samefile(other)
    assert _left(tmp_path) == []


def test_a_file_is_replaced_only_where_that_is_allowed_or_it_was_read(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    link.symlink_to(tmp_path / "elsewhere")

    with overwriting(allowed=False):
        for each in (path, link):
            with pytest.raises(WriteError, match="exists already"):
                write_bytes(each, b"new")
        write_bytes(path, b"read", over=revision(path))
        write_bytes(tmp_path / "free", b"new")

    assert path.read_bytes() == b"read"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "free", "link"]
    with overwriting(allowed=True):
        write_bytes(link, b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"new"


def test_the_same_content_once_more_is_no_replacement(tmp_path: Path) -> None:
    """So a command that was interrupted goes on where it ended."""
    path = tmp_path / "file"
    path.write_bytes(b"new")
    before = path.stat()

    with overwriting(allowed=False):
        write_bytes(path, b"new")
        with pytest.raises(WriteError, match="exists already"):
            write_bytes(path, b"old")

    assert path.stat() == before
    assert _left(tmp_path) == []


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"

    with (
        pytest.raises(WriteError, match="exists already"),
        overwriting(allowed=False),
        replacing(path),
    ):
        path.write_bytes(b"of another program")

    assert path.read_bytes() == b"of another program"


LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
LOG = min(LOGS.glob("lm_eval/0.4.13/out_samples/*"))

NAMED = {
    "report": ("report", "LOG", "--html", "FILE.html"),
    "gate": ("gate", "LOG", "--baseline", "m", "--junit", "FILE.xml"),
    "gate --badge": ("gate", "LOG", "--baseline", "m", "--badge", "FILE.svg"),
    "table": ("table", "LOG", "--bib", "FILE.bib"),
    "rank sample": ("rank", "sample", "VOTES", "FILE.jsonl"),
    "rank raw-sample": ("rank", "raw-sample", "3", "FILE.jsonl"),
    "rank merge": ("rank", "merge", "VOTES", "-o", "FILE.csv"),
    "irt fit": ("irt", "fit", "LOG", "--save", "FILE.parquet"),
    "irt link": ("irt", "link", "LOG", "--to", "x.parquet", "--save", "FILE.parquet"),
    "adapt bank": ("adapt", "bank", "LOG", "-o", "FILE.parquet"),
    "adapt merge": ("adapt", "merge", "a.parquet", "b.parquet", "-o", "FILE.parquet"),
    "annotate": ("annotate", "LOG", "-o", "FOLDER"),
    "annotate --strip": ("annotate", "LOG", "--strip", "-o", "FOLDER"),
    "export": ("export", "LOG", "-o", "FILE.csv"),
    "judge label": ("judge", "label", "LOG", "--judge", "acc", "-t", "es_mc", "--to", "FILE.csv"),
    "paper": ("paper", "LOG", "-o", "FOLDER"),
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
    "judge score": ("--human", "h", "--judge", "j"),
    "judge label": ("--judge", "j"),
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

    assert {name.partition(" --")[0] for name in NAMED} | drawing == set(WRITING)


def _in_vain(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Run a command at a place that is taken by a file, and by a link to nowhere."""
    victim, votes = tmp_path / "victim", tmp_path / "votes.csv"
    votes.write_text("winner,loser\na,b\nb,a\n")
    folder = tmp_path / "folder"
    given = {"LOG": str(LOG), "VOTES": str(votes), "FOLDER": str(folder)}
    targets = [tmp_path / arguments[-1].replace("FILE", n) for n in ("file", "link")]
    if "FOLDER" in arguments:
        log = min(LOG.glob("results*.json"))
        inside = {"rescore": f"{LOG.name}/{log.name}", "paper": "main.tex"}
        targets = [folder / inside.get(arguments[0], log.name)]
        targets[0].parent.mkdir(parents=True)
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

    write_bytes(path, b"new", times_of=path)

    after = path.stat()
    assert path.read_bytes() == b"new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode, before.st_uid, before.st_gid,
    )  # fmt: skip
    assert after.st_mtime_ns == 10**18
    assert {name: os.getxattr(path, name) for name in attributes} == attributes


@followed
def test_a_scratch_folder_of_a_killed_program_is_removed_by_the_next_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "evalstats-notes").mkdir()

    def work() -> None:
        with scratch_folder() as folder:
            (folder / "copy").write_text("x")

    # Killed as it writes the copy.
    syscalls.run(work, tmp_path, at=2)
    work()
    assert len(list(tmp_path.iterdir())) == 2, "who only reads removes nothing of others"
    monkeypatch.setattr(writing, "_tidied", set[Any]())
    write_bytes(tmp_path / "logs" / "new", b"")
    (tmp_path / "logs" / "new").unlink()
    (tmp_path / "logs").rmdir()

    assert [p.name for p in tmp_path.iterdir()] == ["evalstats-notes"]
