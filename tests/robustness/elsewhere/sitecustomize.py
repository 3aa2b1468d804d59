"""A Mac or a Windows machine, as far as the package's own code can tell.

Python runs this module at its start where its folder is on the path. The package, and nothing else,
is then given `os`, `sys` and `signal` without what such a machine lacks, and no module that it
lacks; nobody can open what only Linux has. A default encoding that the package relies on is an
error, and files whose names differ in case alone must not both be written.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
import warnings
from typing import Any

WINDOWS = os.environ.get("EVALSTATS_TEST_SYSTEM") == "win32"
PLATFORM = "win32" if WINDOWS else "darwin"

LINUX_ONLY = {
    "O_PATH", "O_TMPFILE", "sched_getaffinity", "sched_setaffinity", "memfd_create", "unshare",
    "posix_fadvise", "copy_file_range", "sendfile", "getxattr", "setxattr", "removexattr",
    "listxattr",
}  # fmt: skip
POSIX_ONLY = {
    "O_CLOEXEC", "O_DIRECTORY", "O_DSYNC", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC",
    "SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "chown", "fchmod", "fchown",
    "fdatasync", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups", "getloadavg",
    "getpgid", "getpgrp", "getpriority", "getsid", "getuid", "initgroups", "killpg", "lchown",
    "lockf", "mkfifo", "mknod", "nice", "openpty", "pipe2", "pread", "pthread_kill",
    "pthread_sigmask", "pwrite", "register_at_fork", "setegid", "seteuid", "setgid", "setitimer",
    "setpgid", "setsid", "setuid", "statvfs", "sync", "sysconf", "uname", "wait", "wait3", "wait4",
    "waitid",
}  # fmt: skip
ABSENT = LINUX_ONLY | (POSIX_ONLY if WINDOWS else set())
ABSENT_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
FOLDERS_OF_LINUX = ("/proc", "/sys", "/dev/shm")  # noqa: S108


class _Other(types.ModuleType):
    """A module as another system has it; what is set goes to the real one."""

    def __init__(self, real: types.ModuleType, changed: dict[str, Any]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _changed=changed)

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT:
            raise AttributeError(f"{self.__name__!r} of {PLATFORM} has no {name!r}", name=name)
        return self._changed[name] if name in self._changed else getattr(self._real, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._real, name, value)


def _msvcrt() -> types.ModuleType:
    """Return what the package uses of Windows' module, with locks of the real system."""
    import fcntl

    made = types.ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, _size: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN if mode == 0 else fcntl.LOCK_EX | fcntl.LOCK_NB)

    made.__dict__.update(locking=locking, LK_UNLCK=0, LK_LOCK=1, LK_NBLCK=2)
    return made


def _become_another() -> None:
    import signal

    names = {"name": "nt"} if WINDOWS else {}
    others: dict[str, types.ModuleType] = {
        "os": _Other(os, names),
        "signal": _Other(signal, {}),
        "sys": _Other(sys, {"platform": PLATFORM}),
    }
    if WINDOWS:
        others["msvcrt"] = _msvcrt()
    load = builtins.__import__

    def import_for(
        name: str,
        globals: Any = None,  # noqa: A002
        locals: Any = None,  # noqa: A002
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        asked_by = str((globals or {}).get("__name__", ""))
        if level == 0 and asked_by.partition(".")[0] == "evalstats_plugin":
            if name in others:
                return others[name]
            if WINDOWS and name in ABSENT_MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, globals, locals, fromlist, level)

    builtins.__import__ = import_for


def _asked_by_the_package() -> bool:
    """Whether the function that opens a file, through pathlib or not, is the package's."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") in ("pathlib", "pathlib._local"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "evalstats_plugin"


def _watch_files() -> None:
    """Have files of Linux be absent, and two names for one file of another system be an error."""
    written: dict[str, str] = {}

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | os.PathLike):
            return
        path, _, flags = str(arguments[0]), *arguments[1:]
        if path.startswith(FOLDERS_OF_LINUX) and _asked_by_the_package():
            raise FileNotFoundError(2, os.strerror(2), path)
        if flags & (os.O_WRONLY | os.O_RDWR):
            name = os.path.abspath(path)  # noqa: PTH100
            known = written.setdefault(name.casefold(), name)
            if known != name:
                raise AssertionError(f"{name} and {known} are one file on {PLATFORM}")

    sys.addaudithook(heard)


if os.environ.get("EVALSTATS_TEST_SYSTEM"):
    _become_another()
    _watch_files()
    warnings.filterwarnings("error", category=EncodingWarning, module=r"evalstats_plugin")
