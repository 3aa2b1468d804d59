"""Folders of logs as an attacker would leave them, one for each kind of trap."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from evalstats_plugin.runtime import writing

FIXTURES = Path(__file__).parents[2] / "fixtures" / "logs"
LM_EVAL = FIXTURES / "lm_eval" / "0.4.13" / "out" / "models__m1"
INSPECT = min((FIXTURES / "inspect_ai" / "0.3.285" / "tiny_perfect").glob("*.eval"))

DEAD = 2**22 + 1
"""The number of no process."""
_HUGE = 1 << 40


def _revision(path: Path) -> list[int]:
    state = path.stat()
    return [state.st_ino, state.st_size, state.st_mtime_ns]


def _payload(folder: Path) -> Path:
    """Write a program that leaves a trace beside the folder."""
    path = folder / "payload.sh"
    path.write_text(f"#!/bin/sh\nid > '{folder.parent}/PWNED'\n")
    path.chmod(0o755)
    return path


def _journal(ending: str, name: str) -> Callable[[Path], None]:
    """Plant the note of an interrupted write of 0.1 and 0.2, which readers once carried out."""

    def plant(folder: Path) -> None:
        (folder / ".git" / "hooks").mkdir(parents=True)
        victim, gone = folder / "train.py", folder / "notes.txt"
        victim.write_text("print(1)\n")
        gone.write_text("keep\n")
        new = folder / f"{name}-new"
        shutil.copy(_payload(folder), new)
        none = [1, 1, 1]
        entries = [
            {"path": ".git/hooks/pre-commit", "new": new.name, "old": None, "after": none,
             "before": None, "rewrite": False},
            {"path": "train.py", "new": new.name, "old": None, "after": _revision(new),
             "before": _revision(victim), "rewrite": False},
            {"path": "train.py", "new": new.name, "old": new.name, "after": none,
             "before": _revision(victim), "rewrite": True},
            {"path": "notes.txt", "new": ".evalstats-none", "old": None, "after": _revision(gone),
             "before": None, "rewrite": False},
            {"path": "../outside.txt", "new": new.name, "old": None, "after": none,
             "before": None, "rewrite": False},
        ]  # fmt: skip
        (folder / f"{name}{ending}").write_text(json.dumps(entries))

    return plant


def _left_behind(folder: Path) -> None:
    """Leave what a killed program leaves, which only the next that writes removes."""
    name = f"{writing.PREFIX}{DEAD}-{writing._machine()}-"
    (folder / f"{name}file").write_text("half")
    (folder / f"{name}folder").mkdir()
    shutil.copy(min(LM_EVAL.glob("results*")), folder / f"{name}folder")
    (folder / f"{name}link").symlink_to(folder.parent / "outside.txt")


def _links_in(folder: Path) -> None:
    """Let a log be a link to a file outside."""
    log = min(folder.glob("results*.json"))
    elsewhere = folder.parent / f"elsewhere-{folder.name}.json"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)


def _links_out(folder: Path) -> None:
    outside = folder.parent / f"victim-{folder.name}"
    outside.mkdir()
    shutil.copy(min(LM_EVAL.glob("results*")), outside / "results_2026-01-01T00-00-00.json")
    (outside / "notes.txt").write_text("mine")
    (folder / "out").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "results_2026-01-01T00-00-01.json").symlink_to(folder / "nowhere")


def _pipes(folder: Path) -> None:
    for name in ("results_2026-01-01T00-00-00.json", "table.csv", "x.eval", "logs.json"):
        os.mkfifo(folder / name)
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket is short
        try:
            listening.bind("results_2026-01-01T00-00-02.json")
        finally:
            os.chdir(here)


def _devices(folder: Path) -> None:
    """Plant endless and silent devices; where that is not allowed, links to them."""
    for name, minor in (("results_2026-01-01T00-00-00.json", 5), ("x.eval", 3), ("t.csv", 5)):
        try:
            os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        except OSError:
            (folder / name).symlink_to("/dev/zero" if minor == 5 else "/dev/null")


def _sparse(folder: Path) -> None:
    for name in ("results_2026-01-01T00-00-00.json", "x.eval", "y.json", "t.csv", "t.parquet"):
        with (folder / name).open("wb") as file:
            file.truncate(_HUGE)


def _open_to_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o666)
    (folder / "results_2026-01-01T00-00-00.json").write_text("{}")
    (folder / "results_2026-01-01T00-00-00.json").chmod(0o6777)
    folder.chmod(0o1777)


def _repository(folder: Path) -> None:
    """Plant what git runs when somebody asks it for anything, at any place of a checkout."""
    payload = _payload(folder)
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-commit", "post-checkout", "post-index-change", "fsmonitor-watchman"):
        shutil.copy(payload, hooks / name)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "objects").mkdir()
    (folder / ".git" / "refs").mkdir()
    (folder / ".git" / "config").write_text(
        f"[core]\n\tfsmonitor = {payload}\n\tpager = {payload}\n\teditor = {payload}\n"
        f'\tsshCommand = {payload}\n[filter "x"]\n\tclean = {payload}\n\tsmudge = {payload}\n'
    )
    (folder / ".gitattributes").write_text("* filter=x\n")


def _code(folder: Path) -> None:
    """Plant modules that would run if anything here were imported, installed or unpickled."""
    run = f"open({str(folder.parent / 'PWNED')!r}, 'w').close()\n"
    for name in ("sitecustomize", "usercustomize", "conftest", "numpy", "json", "evalstats_plugin",
                 "__init__", "setup", "utils", "tasks", "planted_plugin"):  # fmt: skip
        (folder / f"{name}.py").write_text(run)
    (folder / "planted.pth").write_text(f"import os; {run}")
    info = folder / "planted_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evalstats_plugin]\nplanted = planted_plugin\n")
    (folder / "es_mc.yaml").write_text("task: es_mc\nprocess_docs: !function utils.run\n")
    pickled = b"cposix\nsystem\n(S'touch " + str(folder.parent / "PWNED").encode() + b"'\ntR."
    for name in ("fit.pkl", "fit.npz", "results_2026-01-01T00-00-00.json", "t.parquet"):
        (folder / name).write_bytes(pickled)


def _settings(folder: Path) -> None:
    """Plant settings of a project that would write files."""
    (folder / "pyproject.toml").write_text(
        "[tool.evalstats-plugin]\noverwrite = true\nquiet = true\n"
        '[tool.evalstats-plugin.report]\nhtml = "page.html"\n'
        "[tool.evalstats-plugin.annotate]\nin-place = true\n"
    )
    (folder / ".env").write_text("EVALSTATS_ANNOTATE=1\n")


KINDS: Mapping[str, Callable[[Path], None]] = {
    "journal": _journal(".commit", ".evalstats-1-x"),
    "journal of a dead process": _journal(".commit", f".evalstats-{DEAD}-{writing._machine()}-x"),
    "journal to take back": _journal(".undo", ".evalstats-1-x"),
    "left behind": _left_behind,
    "links in": _links_in,
    "links out": _links_out,
    "pipes": _pipes,
    "devices": _devices,
    "sparse": _sparse,
    "open to all": _open_to_all,
    "repository": _repository,
    "code": _code,
    "settings": _settings,
}


def plant(root: Path, kind: str) -> Path:
    """Make a folder with a run of lm-eval, one of Inspect, and a trap; return it."""
    folder = root / kind.replace(" ", "-")
    folder.mkdir(parents=True)
    for path in (*LM_EVAL.glob("*es_mc*"), *LM_EVAL.glob("results*"), INSPECT):
        shutil.copy(path, folder)
    KINDS[kind](folder)
    return folder


def state(root: Path) -> dict[str, tuple[object, ...]]:
    """Return all there is to know of every file below a folder, but for when it was read."""
    known: dict[str, tuple[object, ...]] = {}
    for path in sorted([root, *root.rglob("*")]):
        about = path.lstat()
        content = ""
        if stat.S_ISLNK(about.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(about.st_mode) and about.st_size < _HUGE:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        known[str(path.relative_to(root))] = (
            about.st_mode, about.st_ino, about.st_uid, about.st_gid, about.st_nlink, about.st_size,
            about.st_mtime_ns, about.st_ctime_ns, content,
        )  # fmt: skip
    return known
