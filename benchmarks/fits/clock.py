"""Times one piece of work in a process of its own, and prints what it took as JSON.

The scripts beside it import this in the environment of the program they run, so that it needs
nothing but NumPy.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

Result = TypeVar("Result")
QUICK = 0.2
"""Seconds of the processor: what takes less is done again until it took so long."""


def limit(cpu_seconds: float) -> None:
    """Have this process end with SIGXCPU when it has used so many seconds, and leave no core."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds) + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def timed(run: Callable[[], Result]) -> tuple[Result, dict[str, Any]]:
    """Return what `run` returns, and the medians of its CPU and wall seconds."""
    cpu, wall = list[float](), list[float]()
    while True:
        began, clock = cpu_seconds(), perf_counter()
        result = run()
        cpu.append(cpu_seconds() - began)
        wall.append(perf_counter() - clock)
        if sum(cpu) >= QUICK or len(cpu) >= 50:
            return result, {"cpu_seconds": median(cpu), "wall_seconds": median(wall)}


def cpu_seconds() -> float:
    """User and system time, with that of children that ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def tell(distribution: str, taken: dict[str, Any], **about: Any) -> None:
    """Print the figures of a run as the last line of standard output."""
    # Not ru_maxrss: a child inherits its parent's.
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    found = {"version": metadata.version(distribution), "peak_mb": round(int(peak) / 1024)}
    print(json.dumps(found | taken | about), flush=True)
