"""Runs work in a child process and kills it, or makes a system call fail, at a step of writing.

Steps are the system calls that change the file system, whoever makes them (Python, C, a library):
the kernel stops the child at each of them, and the parent decides. Linux on x86-64 only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

AVAILABLE = sys.platform == "linux" and platform.machine() == "x86_64"

KILL = -1
"""Instead of an error number: the process ends at once, as by ``kill -9``."""
EVERY = -1
"""Instead of the number of a step: all of them."""
REFUSED, CRASHED = 2, 70
"""Exit codes of the child: an error of ours, any other."""

# Number of each call, and where its path or file descriptor stands.
_BY_DESCRIPTOR = {
    1: "write", 18: "pwrite64", 20: "writev", 40: "sendfile", 74: "fsync", 75: "fdatasync",
    77: "ftruncate", 91: "fchmod", 93: "fchown", 285: "fallocate",
}  # fmt: skip
_BY_PATH = {
    2: "open", 76: "truncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link",
    87: "unlink", 88: "symlink", 90: "chmod", 92: "chown",
}  # fmt: skip
_BY_PATH_AT = {
    257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat", 265: "linkat",
    266: "symlinkat", 268: "fchmodat", 316: "renameat2",
}  # fmt: skip
_COPY_FILE_RANGE = 326
_NAMES = {**_BY_DESCRIPTOR, **_BY_PATH, **_BY_PATH_AT, _COPY_FILE_RANGE: "copy_file_range"}
_OPENS = {2: 1, 257: 2}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_TRACE_ME, _CONT, _GET_REGS, _SET_REGS, _SET_OPTIONS = 0, 7, 12, 13, 0x4200
_OPTIONS = 0x2 | 0x4 | 0x8 | 0x80 | 0x100000
"""Follow forks, vforks and clones; stop at what the filter picks; die with the parent."""
_SECCOMP_EVENT = signal.SIGTRAP | 7 << 8
_STARTS = (1, 2, 3)
_GET_EVENT = 0x4201
_WALL = 0x40000000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-4, 3.2e-3
"""Seconds between two looks at the child."""
_RAX, _R10, _RDX, _RSI, _RDI, _ORIG_RAX = 10, 7, 12, 13, 14, 15


@dataclass(frozen=True)
class Step:
    """A system call that changes the file system."""

    call: str
    path: str


@dataclass
class Outcome:
    """What became of a child."""

    steps: list[Step] = field(default_factory=list[Step])
    code: int | None = None
    """Exit code; None where it was killed."""
    said: str = ""
    """What it wrote to standard error."""


def run(work: Callable[[], object], root: Path, at: int = 0, what: int = KILL) -> Outcome:
    """Run work in a child; its at-th step below root (from 1, or EVERY; 0: none) fails or kills."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(libc, work, read_end, write_end)
    os.close(write_end)
    tracer = _Tracer(libc, child, root, at, what)
    tracer.follow()
    with os.fdopen(read_end, "rb") as pipe:
        tracer.outcome.said = pipe.read().decode(errors="replace")
    return tracer.outcome


def in_a_small_process(work: Callable[..., object], *arguments: object) -> None:
    """Do work in a Python of its own, and fail if it fails.

    To fork the process of all tests takes a tenth of a second, and work at every step is forked
    hundreds of times.
    """
    import cloudpickle

    module = sys.modules[work.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        code = cloudpickle.dumps((work, arguments))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD],
        input=code,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr.decode()


_LOAD = """
import pickle, sys
work, arguments = pickle.load(sys.stdin.buffer)
work(*arguments)
"""


def _be_child(libc: ctypes.CDLL, work: Callable[[], object], read_end: int, write_end: int) -> None:
    code = CRASHED
    try:
        os.close(read_end)
        os.dup2(write_end, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        libc.ptrace(_TRACE_ME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        _filter_calls(libc)
        code = _done(work)
    finally:
        os._exit(code)


def _done(work: Callable[[], object]) -> int:
    from evalstats_plugin.errors import EvalStatsError

    try:
        work()
    except EvalStatsError as error:
        os.write(2, f"error: {error}\n".encode(errors="replace"))
        return REFUSED
    except SystemExit as done:
        sys.stderr.flush()
        return int(done.code or 0)
    except BaseException:  # noqa: BLE001 - told to the parent
        os.write(2, traceback.format_exc().encode(errors="replace"))
        return CRASHED
    return 0


def _filter_calls(libc: ctypes.CDLL) -> None:
    """Have the kernel stop this process at the calls named above, and at no others."""
    load, equal, give = 0x20, 0x15, 0x06
    numbers = sorted(_NAMES)
    code = struct.pack("HBBI", load, 0, 0, 0)
    for place, number in enumerate(numbers):
        code += struct.pack("HBBI", equal, len(numbers) - place, 0, number)
    code += struct.pack("HBBI", give, 0, 0, 0x7FFF0000) + struct.pack(
        "HBBI", give, 0, 0, 0x7FF00000
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    no_new_privileges, seccomp, with_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(
        seccomp, with_filter, ctypes.create_string_buffer(program, len(program)), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "no filter of system calls here")


@dataclass
class _Tracer:
    """What the parent does while the child works."""

    libc: ctypes.CDLL
    child: int
    root: Path
    at: int
    what: int
    outcome: Outcome = field(default_factory=Outcome)

    def follow(self) -> None:
        os.waitpid(self.child, 0)
        self.libc.ptrace(_SET_OPTIONS, self.child, None, _OPTIONS)
        self.libc.ptrace(_CONT, self.child, None, None)
        # Not -1: this process may have other children, which are not ours to wait for.
        followed = {self.child}
        pause = _SHORTEST_PAUSE
        while followed:
            heard = [found for pid in followed if (found := _heard_of(pid)) is not None]
            for pid, status in heard:
                if status is None or os.WIFEXITED(status) or os.WIFSIGNALED(status):
                    followed.discard(pid)
                    if status is not None and pid == self.child and os.WIFEXITED(status):
                        self.outcome.code = os.WEXITSTATUS(status)
                    continue
                followed |= self._go_on(pid, status)
            if not heard:
                time.sleep(pause)
            # A child that computes for long is asked ever more seldom.
            pause = _SHORTEST_PAUSE if heard else min(2 * pause, _LONGEST_PAUSE)

    def _go_on(self, pid: int, status: int) -> set[int]:
        """Let a stopped process or thread run; return those that it has just started."""
        started: set[int] = set()
        passed_on = 0
        if status >> 8 == _SECCOMP_EVENT:
            self._stopped(pid)
        elif status >> 16 in _STARTS:
            fresh = ctypes.c_ulong()
            self.libc.ptrace(_GET_EVENT, pid, None, ctypes.addressof(fresh))
            started = {int(fresh.value)}
        elif os.WSTOPSIG(status) not in (signal.SIGTRAP, signal.SIGSTOP):
            passed_on = os.WSTOPSIG(status)
        self.libc.ptrace(_CONT, pid, None, passed_on or None)
        return started

    def _stopped(self, pid: int) -> None:
        """Count the step a process is about to take; kill it, or take the step's place."""
        registers = (ctypes.c_ulong * 27)()
        self.libc.ptrace(_GET_REGS, pid, None, ctypes.addressof(registers))
        path = _path_of(pid, registers)
        if path is None or not path.startswith(str(self.root)):
            return
        self.outcome.steps.append(Step(_NAMES[registers[_ORIG_RAX]], path))
        if self.at not in (EVERY, len(self.outcome.steps)):
            return
        if self.what == KILL:
            os.kill(self.child, signal.SIGKILL)
            return
        registers[_ORIG_RAX] = 2**64 - 1
        registers[_RAX] = 2**64 - self.what
        self.libc.ptrace(_SET_REGS, pid, None, ctypes.addressof(registers))


def _heard_of(pid: int) -> tuple[int, int | None] | None:
    """Return what has become of a process or thread: its status, None where it is gone."""
    try:
        found, status = os.waitpid(pid, _WALL | os.WNOHANG)
    except ChildProcessError:
        return pid, None
    return (pid, status) if found else None


def _path_of(pid: int, registers: ctypes.Array[ctypes.c_ulong]) -> str | None:
    """Return the file that a call changes; None where it only reads, or it is no file."""
    number = registers[_ORIG_RAX]
    if number in _OPENS and not registers[_RSI if _OPENS[number] == 1 else _RDX] & _WRITES:
        return None
    if number in _BY_PATH:
        return _text(pid, registers[_RDI])
    if number in _BY_PATH_AT:
        return _text(pid, registers[_RSI])
    descriptor = registers[_RDX if number == _COPY_FILE_RANGE else _RDI] & 0xFFFFFFFF
    try:
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except OSError:
        return None


def _text(pid: int, address: int) -> str:
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        memory.seek(address)
        return memory.read(4096).partition(b"\0")[0].decode(errors="replace")
