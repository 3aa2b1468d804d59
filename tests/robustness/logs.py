"""Many small logs, and what a process uses."""

from __future__ import annotations

import os
from pathlib import Path

from lm_eval_logs import write_log


def write_small_logs(folder: Path, n: int) -> None:
    """Write so many runs of lm-eval on six items, all in one folder: the hardest case."""
    write_log(folder, "model", {"task": [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]})
    inside = folder / "model"
    (results,), (samples,) = (list(inside.glob(p)) for p in ("results*", "samples*"))
    texts = results.read_text(), samples.read_text()
    for i in range(n):
        stamp = f"2026-11-{1 + i // 3600:02d}T00-{i // 60 % 60:02d}-{i % 60:02d}.000000"
        (folder / f"results_{stamp}.json").write_text(texts[0].replace('"model"', f'"model_{i}"'))
        (folder / f"samples_task_{stamp}.jsonl").write_text(texts[1])
    for path in (results, samples):
        path.unlink()
    inside.rmdir()


def open_files() -> int:
    """Count the files that this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of no folder on a disk


def megabytes() -> float:
    """Return the memory that this process has now."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if "VmRSS" in line)) / 1024
