"""Work on a log from others in a process of its own, with limits of time, memory and access.

A log names filters, patterns and templates, and some of these never end or fill the memory. The
process may not use the network, and may write to one folder only, where the system has means for
that (Linux: namespaces, Landlock); what it had is said (`Confined.enforced`).
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import platform
import signal
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from evalstats_plugin import errors
from evalstats_plugin.errors import EvalStatsError, LogError

_GIB = 2**30
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_SIGNAL_WITH_PARENT, _NO_NEW_PRIVILEGES = 1, 38

# Landlock, the same on all machines: system calls, and the rights to change files.
_CREATE_RULES, _ADD_RULE, _RESTRICT = 444, 445, 446
_BENEATH = 1
_WRITE_FILE, _REMOVE_AND_MAKE = 1 << 1, sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP, _TCP_SINCE = 0b11, 4
"""Binding and connecting, and the version that knows them."""
_SCOPES, _SCOPED_SINCE = 0b11, 6
"""Abstract sockets and signals, of and to processes outside."""
_SHARED = Path("/dev/shm")  # noqa: S108 - locks between processes lie there


class Limits(NamedTuple):
    """What the work on one log may use."""

    seconds: int
    """Time of the clock, and of the processor."""
    gib: float
    """Memory beyond what the process holds at its start."""
    folder: Path | None
    """The only folder to write to, and no network; None: files and network as usual."""


class Confined(NamedTuple):
    """What came of the work, and what the system refused it."""

    value: Any
    """As JSON carries it."""
    landlock: int
    """Version that confined it; 0 for none."""
    offline: bool
    """Whether it had a network without devices."""

    def enforced(self, folder: Path) -> str:
        """Say what was and what was not enforced, in one line; `folder` is the output's."""
        refused: list[str] = []
        open_to = ["reading files", "modes and times of files", "sockets with a path"]
        if self.landlock:
            refused.append(f"writing outside of {folder} and {_SHARED}")
        else:
            open_to.insert(0, "writing files")
        if self.offline:
            refused.append("the network")
        elif self.landlock >= _TCP_SINCE:
            refused.append("TCP")
            open_to.append("other networks")
        else:
            open_to.append("the network")
        scope = "signals and abstract sockets to other programs"
        (refused if self.landlock >= _SCOPED_SINCE else open_to).append(scope)
        by = f"Landlock {self.landlock}" if self.landlock else "no Landlock here"
        # Elsewhere a process does not know how much memory it holds at its start.
        limited = "time and memory" if sys.platform == "linux" else "time"
        return (
            f"what logs name was limited in {limited} and refused: "
            f"{', '.join(refused) or 'nothing'} ({by}); not refused: {', '.join(open_to)}, "
            "system calls (no seccomp)"
        )


def confined(what: str | Path, work: Callable[[], Any], limits: Limits) -> Confined:
    """Return what `work` returns from a process with limits, and what these were.

    Raises
    ------
    LogError
        It needed more time or memory, or its process ended by itself; the message names ``what``.
    EvalStatsError
        As `work` raises.
    """
    # A copy of this process has the harness loaded; elsewhere than on Linux copies are not safe.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    ours, theirs = context.Pipe(duplex=False)
    child: Any = context.Process(target=_in_child, args=(theirs, work, limits))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    try:
        if not ours.poll(limits.seconds):
            raise LogError(
                f"{what}: scoring it was stopped after {limits.seconds} s; a pattern in the log "
                "may never end. Allow more with --time-limit SECONDS"
            )
        outcome: dict[str, Any] = json.loads(ours.recv_bytes())
    except EOFError:
        child.join()
        raise LogError(
            f"{what}: scoring it ended without a result (exit code {child.exitcode}); it may need "
            f"more than {limits.seconds} s or {limits.gib:g} GiB: allow more with --time-limit and "
            "--memory-limit"
        ) from None
    finally:
        if sys.platform != "win32":
            # With the processes that lm-eval begins for bootstraps.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()
        ours.close()
    if "value" in outcome:
        return Confined(**outcome)
    from evalstats_plugin.adapters.lm_eval.replay.model import NoSuchTaskError

    error_types = {NoSuchTaskError.__name__: NoSuchTaskError, **vars(errors)}
    error_type: Any = error_types.get(outcome["kind"], EvalStatsError)
    raise error_type(outcome["message"])


def _in_child(pipe: Connection, work: Callable[[], Any], limits: Limits) -> None:
    reply: dict[str, Any]
    landlock, offline = 0, False
    try:
        if sys.platform != "win32":
            os.setsid()
        if sys.platform == "linux":
            # Nobody takes its result when the program that started it is killed.
            ctypes.CDLL(None).prctl(_SIGNAL_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        _limit(limits)
        if limits.folder is not None:
            offline = _without_network()
            tempfile.tempdir = os.environ["TMPDIR"] = str(limits.folder)
            landlock = write_only_to(*filter(Path.is_dir, (limits.folder, _SHARED)))
        reply = {"value": work(), "landlock": landlock, "offline": offline}
    except EvalStatsError as error:
        reply = {"kind": type(error).__name__, "message": str(error)}
    except MemoryError:
        message = f"scoring it needs more than {limits.gib:g} GiB: allow more with --memory-limit"
        reply = {"kind": "LogError", "message": message}
    except OSError as error:
        place = limits.folder or error.filename
        message = f"{place} cannot be written ({error.strerror or error})"
        reply = {"kind": "WriteError", "message": message}
    pipe.send_bytes(json.dumps(reply).encode())


def _limit(limits: Limits) -> None:
    if sys.platform == "win32":  # the clock alone limits
        return
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        until = int(used) + limits.seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (until, until))
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        size = int(pages * resource.getpagesize() + limits.gib * _GIB)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _without_network() -> bool:
    """Leave for a network without devices; return whether the system lets everybody make one."""
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_NET) != 0:
        return libc.unshare(_NEW_NET) == 0
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
    return True


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 where it has none."""
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(libc.syscall(_CREATE_RULES, None, ctypes.c_size_t(0), 1), 0)


def write_only_to(*folders: Path) -> int:
    """Let the kernel refuse this process changes of files elsewhere, for good.

    It also refuses connections by TCP, abstract sockets and signals to processes outside, where
    Landlock has these (versions 4 and 6).

    Returns
    -------
    The version of Landlock that does; 0 where nothing is refused.
    """
    version = landlock_version()
    if sys.platform != "linux" or version == 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    files = _WRITE_FILE | _REMOVE_AND_MAKE
    files |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled = struct.pack("QQQ", files, _TCP, _SCOPES)
    size = 24 if version >= _SCOPED_SINCE else 16 if version >= _TCP_SINCE else 8
    rules = libc.syscall(
        _CREATE_RULES, ctypes.create_string_buffer(handled), ctypes.c_size_t(size), 0
    )
    if rules < 0:
        return 0
    for path in (*folders, Path(os.devnull)):
        place = os.open(path, os.O_PATH)
        allowed = files if path.is_dir() else _WRITE_FILE
        beneath = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place))
        libc.syscall(_ADD_RULE, rules, _BENEATH, beneath, 0)
        os.close(place)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    refused = libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return version if refused else 0
