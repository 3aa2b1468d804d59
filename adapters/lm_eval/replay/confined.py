"""Work on a log from others in a process of its own, with limits of time, memory and access.

A log names filters, patterns and templates, and some of these never end or fill the memory. The
process may not use the network, and may write to one folder only, where the system has means for
that (Linux: namespaces, Landlock).
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
_NO_NEW_PRIVILEGES = 38

# Landlock, the same on all machines: system calls, and the rights to change files.
_CREATE_RULES, _ADD_RULE, _RESTRICT = 444, 445, 446
_BENEATH = 1
_WRITE_FILE, _REMOVE_AND_MAKE = 1 << 1, sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14


class Limits(NamedTuple):
    """What the work on one log may use."""

    seconds: int
    """Time of the clock, and of the processor."""
    gib: float
    """Memory beyond what the process holds at its start."""
    folder: Path | None
    """The only folder to write to, and no network; None: files and network as usual."""


def confined(what: str | Path, work: Callable[[], Any], limits: Limits) -> Any:
    """Return what `work` returns, as JSON carries it, from a process with limits.

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
        found: dict[str, Any] = json.loads(ours.recv_bytes())
    except EOFError:
        child.join()
        raise LogError(
            f"{what}: scoring it ended without a result (exit code {child.exitcode}); it may need "
            f"more than {limits.seconds} s or {limits.gib:g} GiB: allow more with --time-limit and "
            "--memory-limit"
        ) from None
    finally:
        if hasattr(os, "killpg"):
            # With the processes that lm-eval begins for bootstraps.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()
        ours.close()
    if "value" in found:
        return found["value"]
    raise _error(found["kind"], found["message"])


def _error(kind: str, message: str) -> EvalStatsError:
    from evalstats_plugin.adapters.lm_eval.replay.model import NoSuchTaskError

    known = {NoSuchTaskError.__name__: NoSuchTaskError, **vars(errors)}
    made: Any = known.get(kind, EvalStatsError)
    return made(message)


def _in_child(pipe: Connection, work: Callable[[], Any], limits: Limits) -> None:
    reply: dict[str, Any]
    try:
        if hasattr(os, "setsid"):
            os.setsid()
        _limit(limits)
        if limits.folder is not None:
            _without_network()
            tempfile.tempdir = os.environ["TMPDIR"] = str(limits.folder)
            _writing_only_to(limits.folder)
        reply = {"value": work()}
    except EvalStatsError as error:
        reply = {"kind": type(error).__name__, "message": str(error)}
    except MemoryError:
        message = f"scoring it needs more than {limits.gib:g} GiB: allow more with --memory-limit"
        reply = {"kind": "LogError", "message": message}
    pipe.send_bytes(json.dumps(reply).encode())


def _limit(limits: Limits) -> None:
    try:
        import resource
    except ImportError:  # Windows: the clock alone limits.
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        until = int(used) + limits.seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (until, until))
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = int(pages * resource.getpagesize() + limits.gib * _GIB)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _without_network() -> None:
    """Leave for a network without devices, where the system lets everybody make one."""
    if sys.platform != "linux":
        return
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_NET) == 0:
        with suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    else:
        libc.unshare(_NEW_NET)


def _writing_only_to(folder: Path) -> None:
    """Let the kernel refuse changes of files elsewhere, where it has Landlock."""
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULES, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    rights = _WRITE_FILE | _REMOVE_AND_MAKE
    rights |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled = ctypes.create_string_buffer(struct.pack("Q", rights))
    rules = libc.syscall(_CREATE_RULES, handled, ctypes.c_size_t(8), 0)
    if rules < 0:
        return
    # Shared memory holds locks between processes.
    writable = {
        folder: rights,
        Path("/dev/shm"): rights & ~_REFER,  # noqa: S108
        Path(os.devnull): _WRITE_FILE,
    }
    for path, allowed in writable.items():
        if not path.exists():
            continue
        place = os.open(path, os.O_PATH)
        beneath = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place))
        libc.syscall(_ADD_RULE, rules, _BENEATH, beneath, 0)
        os.close(place)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.syscall(_RESTRICT, rules, 0)
    os.close(rules)
