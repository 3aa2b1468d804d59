"""Ten thousand logs, a thousand cycles of annotate and strip, and kills at every step of writing.

``python -m benchmarks.robustness [PART...]`` runs all, or some parts, and keeps the figures; ``make
test`` runs less of each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).parent / "results" / "robustness.json"
TESTS = ROOT / "tests" / "robustness"
LOGS = ROOT / "fixtures" / "logs"
LM_EVAL = min(LOGS.glob("lm_eval/0.4.13/out_samples/*/results*.json"))
INSPECT = min(LOGS.glob("inspect_ai/0.3.285/tiny_perfect/*.eval"))

SIZES = (1_000, 10_000)
"""Logs; one of Inspect takes ten times as long as one of lm-eval: every field is checked."""
CYCLES = 1_000
ROUNDS = 50

# What these share with the tests is no part of the package.
sys.path[:0] = [str(TESTS), str(TESTS.parent / "cli")]


def many_logs(n: int) -> dict[str, float]:
    """Return CPU seconds and memory of reading and annotating so many logs in one folder."""
    from logs import megabytes, open_files, write_small_logs

    from evalstats_plugin import annotate, intervals, read

    with tempfile.TemporaryDirectory() as folder:
        write_small_logs(Path(folder) / "logs", n)
        files = open_files()
        times = [time.process_time()]
        rows = intervals(read(folder))
        times.append(time.process_time())
        annotate(folder, in_place=True)
        times.append(time.process_time())
        assert len(rows) == n
        return {
            "report_seconds": round(times[1] - times[0], 2),
            "annotate_seconds": round(times[2] - times[1], 2),
            "megabytes": round(megabytes(), 1),
            "files_left_open": open_files() - files,
        }


def many_inspect_logs(n: int) -> dict[str, float]:
    """Return CPU seconds and memory of annotating so many logs of Inspect in one folder."""
    from logs import megabytes, open_files

    from evalstats_plugin import annotate

    with tempfile.TemporaryDirectory() as folder:
        annotate(shutil.copy(INSPECT, folder), in_place=True)
        for i in range(n):
            shutil.copy(INSPECT, Path(folder) / f"2026-11-21T08-29-14-00-00_tiny_{i:05d}.eval")
        files, memory, start = open_files(), megabytes(), time.process_time()
        annotated = annotate(folder, in_place=True)
        seconds = time.process_time() - start
        assert len(annotated) == n + 1
        return {
            "annotate_seconds": round(seconds, 2),
            "milliseconds_per_log": round(1000 * seconds / n, 1),
            "megabytes_before": round(memory, 1),
            "megabytes": round(megabytes(), 1),
            "files_left_open": open_files() - files,
        }


def cycles(log: Path, n: int) -> dict[str, float]:
    """Return what becomes of a log and of memory over so many cycles of annotate and strip."""
    from logs import megabytes, open_files

    from evalstats_plugin import annotate
    from evalstats_plugin.logs.annotating import strip

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(log, folder))
        for samples in log.parent.glob("samples_*"):
            shutil.copy(samples, folder)
        before = copy.read_bytes()
        memory: list[float] = []
        start = time.process_time()
        for _ in range(n):
            annotate(copy, in_place=True)
            strip(copy, in_place=True)
            memory.append(megabytes())
        return {
            "cycles": n,
            "seconds": round(time.process_time() - start, 1),
            "original_bytes": copy.read_bytes() == before,
            "bytes_more_per_cycle": round((copy.stat().st_size - len(before)) / n, 1),
            "megabytes_after_tenth": round(memory[n // 10], 1),
            "megabytes_at_end": round(memory[-1], 1),
            "files_open": open_files(),
        }


def _script(name: str, *arguments: str | Path) -> list[Any]:
    done = subprocess.run(
        [sys.executable, TESTS / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def contended(log: Path, n: int, *tasks: str) -> dict[str, int]:
    """Count how rounds of two processes at one log ended."""
    with tempfile.TemporaryDirectory() as folder:
        (results,) = _script("contended.py", folder, log, str(n), *tasks)
    seen = Counter(f"{sorted(r['codes'])} {r['state']}" for r in results)
    assert not any(r["left"] or r["state"] == "other" for r in results)
    return dict(sorted(seen.items()))


def interrupted() -> dict[str, Any]:
    """Kill every writer at every step, and let every step find the disk full."""
    from writers import WRITERS

    errors = ["disk full", "read-only file system", "forbidden folder"]
    with tempfile.TemporaryDirectory() as folder:
        results = [
            r
            for name in WRITERS
            for r in _script("interrupted.py", folder, json.dumps([(1, errors, [name])]))
        ]
    return {
        "writers": len(results),
        "steps": sum(r["steps"] for r in results),
        "kills": sum(r["kills"] for r in results),
        "full_disks": sum(r["kills"] for r in results),
        "refused_wholly": sum(len(r["codes"]) - 1 for r in results),
        "problems": [p for r in results for p in r["problems"]],
    }


def main() -> None:
    """Run, print, and keep each part as soon as it is done."""
    parts: dict[str, Callable[[], Any]] = {
        "many_logs": lambda: {str(n): many_logs(n) for n in SIZES},
        "many_inspect_logs": lambda: {str(n): many_inspect_logs(n) for n in SIZES},
        "cycles": lambda: {
            "lm_eval": cycles(LM_EVAL, CYCLES),
            "inspect": cycles(INSPECT, CYCLES),
        },
        "two_processes": lambda: {
            f"{kind} {' and '.join(tasks)}": contended(log, ROUNDS, *tasks)
            for kind, log in (("lm_eval", LM_EVAL), ("inspect", INSPECT))
            for tasks in (("annotate", "annotate"), ("annotate", "strip"))
        },
        "interrupted": interrupted,
    }
    figures: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in sys.argv[1:] or parts:
        figures[name] = parts[name]()
        print(name, json.dumps(figures[name], indent=2), flush=True)
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
