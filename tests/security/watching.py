"""Runs commands and functions under watch: ``python -m watching REQUEST.json``.

The request has ``jobs`` (pairs of a folder and of what is done with it: arguments of the command
line, or a name among `FUNCTIONS`), ``free`` (the folders that may be written to) and whether the
kernel is to ``confine`` the process to them. The answer says of each job the exit code, what was
printed, how many audit events there were, and those that change something outside of the free
folders: files, processes, connections, code of the folder that is run.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.lm_eval.replay.confined import write_only_to

CHANGES: Mapping[str, Sequence[tuple[int, int | None]]] = {
    "os.chflags": [(0, None)], "os.chmod": [(0, 2)], "os.chown": [(0, 3)], "os.link": [(1, 3)],
    "os.mkdir": [(0, 2)], "os.remove": [(0, 1)], "os.removexattr": [(0, None)],
    "os.rename": [(0, 2), (1, 3)], "os.rmdir": [(0, 1)], "os.setxattr": [(0, None)],
    "os.symlink": [(1, 2)], "os.truncate": [(0, None)], "os.utime": [(0, 3)],
    "shutil.chown": [(0, None)], "shutil.copyfile": [(1, None)], "shutil.copymode": [(1, None)],
    "shutil.copystat": [(1, None)], "shutil.copytree": [(1, None)],
    "shutil.make_archive": [(0, None)], "shutil.move": [(0, None), (1, None)],
    "shutil.rmtree": [(0, None)], "shutil.unpack_archive": [(1, None)],
    "sqlite3.connect": [(0, None)], "tempfile.mkdtemp": [(0, None)],
    "tempfile.mkstemp": [(0, None)],
}  # fmt: skip
"""Events that change paths: where these stand, and the descriptors that they are relative to."""

STARTS = {
    "os.exec", "os.fork", "os.forkpty", "os.kill", "os.posix_spawn", "os.spawn", "os.startfile",
    "os.system", "pty.spawn", "subprocess.Popen", "ftplib.connect", "http.client.connect",
    "smtplib.connect", "socket.bind", "socket.connect", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.sendto", "socket.sendmsg", "urllib.Request", "webbrowser.open",
}  # fmt: skip
"""Events that no reading needs: processes and connections."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Recorder:
    """The events of this process that change something outside of some folders."""

    def __init__(self, free: Sequence[str]) -> None:
        self.folder = ""
        self.free = tuple(os.path.realpath(each) for each in free)
        self.n_events = 0
        self.seen: list[tuple[str, str]] = []
        self.at_work = True

    def begin(self, folder: str) -> None:
        """Note the events of a job with a folder from now on."""
        self.folder = os.path.realpath(folder)
        self.n_events = 0
        self.seen = []
        self.at_work = False

    def end(self) -> None:
        """Note no more events."""
        self.at_work = True

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event; what this itself does is none."""
        if self.at_work:
            return
        self.n_events += 1
        self.at_work = True
        try:
            self._note(event, arguments)
        finally:
            self.at_work = False

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & _WRITES) or any(letter in (mode or "") for letter in "wax+")
            if writes and not self._is_free(path):
                self.seen.append((event, str(path)))
        elif event in CHANGES:
            places = [
                (arguments[path], None if at is None else arguments[at])
                for path, at in CHANGES[event]
            ]
            if not all(self._is_free(path, at) for path, at in places):
                self.seen.append((event, ", ".join(str(path) for path, _ in places)))
        elif event in STARTS:
            self.seen.append((event, repr(arguments)[:200]))
        elif event in {"import", "exec"}:
            named = arguments[1] if event == "import" else arguments[0].co_filename
            if named and named[0] == os.sep and _inside(os.path.realpath(named), self.folder):
                self.seen.append((event, str(named)))

    def _is_free(self, path: Any, at: Any = None) -> bool:
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
        elif isinstance(at, int) and at >= 0:
            path = Path(f"/proc/self/fd/{at}").readlink() / os.fsdecode(path)
        place = os.path.realpath(os.fsdecode(path))
        if place == os.devnull or place.startswith("/proc/self/fd/pipe:"):
            return True
        return any(_inside(place, each) for each in self.free)


def _inside(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder + os.sep)


def _read(folder: str) -> object:
    import evalstats_plugin as es

    return es.read(folder, include_incomplete=True, skip_broken=True)


def _of_scores(work: Callable[[Any, Any], object]) -> Callable[[str], object]:
    def done(folder: str) -> object:
        import evalstats_plugin as es

        return work(es, _read(folder))

    return done


def _contests(folder: str) -> object:
    import evalstats_plugin as es

    return es.read_contests(folder)


def _careless(folder: str) -> None:
    """Do one of each kind of thing that reading never does; go on where it is refused."""
    path = Path(folder)
    sys.path.insert(0, folder)
    for step in (
        lambda: (path / "new").write_text("new"),
        (path / "made").mkdir,
        lambda: (path / "file").chmod(0o600),
        lambda: os.utime(path / "file"),
        lambda: shutil.copyfile(path / "file", path / "copy"),
        lambda: (path / "file").rename(path / "other"),
        (path / "other").unlink,
        lambda: shutil.rmtree(path / "made"),
        lambda: subprocess.run(["true"], check=True),
        lambda: socket.socket().connect(("127.0.0.1", 9)),
        lambda: import_module("code_of_the_folder"),
    ):
        with suppress(OSError):
            step()


def _silent(folder: str) -> None:
    """Open a file for writing as a library in C does, of which no audit event tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.open(f"{folder}/new".encode(), os.O_CREAT | os.O_WRONLY, 0o600) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


FUNCTIONS: Mapping[str, Callable[[str], object]] = {
    "es.read": _read,
    "es.read_contests": _contests,
    "es.intervals": _of_scores(lambda es, found: es.intervals(found, rng=0)),
    "es.compare": _of_scores(lambda es, found: es.compare(found, rng=0)),
    "es.table": _of_scores(lambda es, found: es.table(found, rng=0)),
    "es.fit_irt": _of_scores(
        lambda es, found: es.fit_irt(
            [r for r in found if r.metric.partition(",")[0] in {"acc", "match"}]
        )
    ),
    "es.compare_items": _of_scores(
        lambda es, found: es.compare_items(found, *sorted({r.model for r in found})[:2])
    ),
    "careless": _careless,
    "silent": _silent,
}


def _work(work: Sequence[str] | str, folder: str, free: str) -> int:
    from evalstats_plugin.errors import EvalStatsError

    if isinstance(work, str):
        try:
            FUNCTIONS[work](folder)
        except EvalStatsError as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
        return 0
    from evalstats_plugin.cli import main

    try:
        arguments = [part.replace("FOLDER", folder).replace("FREE", free) for part in work]
        main(arguments, prog_name="evalstats-plugin")
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def watched(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Do all the work of a request; return what was seen of each."""
    free: list[str] = request["free"]
    tempfile.tempdir = os.environ["TMPDIR"] = free[0]
    said = Path(free[0]) / "said"
    if "inside" in request:
        os.chdir(request["inside"])
    shown = [os.dup(stream) for stream in (1, 2)]
    abi = write_only_to(*map(Path, free)) if request["confine"] else 0
    recorder = Recorder(free)
    sys.addaudithook(recorder)
    results: list[dict[str, Any]] = []
    for folder, work in request["jobs"]:
        stream = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.close(stream)
        code, crash = 70, ""
        recorder.begin(folder)
        try:
            code = _work(work, folder, free[0])
        except BaseException as error:  # noqa: BLE001 - told to the parent
            crash = f"{type(error).__name__}: {error}"
        recorder.end()
        sys.stdout.flush()
        sys.stderr.flush()
        results.append(
            {
                "folder": folder,
                "work": work if isinstance(work, str) else " ".join(work),
                "code": code,
                "said": crash or said.read_text(errors="replace")[-2000:],
                "n_events": recorder.n_events,
                "events": recorder.seen,
                "landlock": abi,
            }
        )
    for stream, to in enumerate(shown, 1):
        os.dup2(to, stream)
    return results


if __name__ == "__main__":
    # Python's own cache of modules, which the first run after an installation fills.
    sys.dont_write_bytecode = True
    sys.stdout.write(json.dumps(watched(json.loads(Path(sys.argv[1]).read_text()))))
