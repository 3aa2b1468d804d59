"""Reading samples, against a plain ``json.loads`` loop over the same lines in the same run.

And many logs, in one process and in two.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import many_logs
from benchmarks.fits.growth_data import sample

SIZE = 200_000_000
REPEATS = 3

_NAIVE = """
import json, sys
scores = {}
with open(sys.argv[1], encoding="utf-8") as file:
    for line in file:
        sample = json.loads(line)
        scores[sample["doc_id"], sample["filter"]] = (sample["exact_match"], sample["doc_hash"])
"""
_OURS = """
import sys
from pathlib import Path
from evalstats_plugin.adapters.lm_eval.samples import read_samples
read_samples(Path(sys.argv[1]), ["none"])
"""
_NOTHING = {"naive": "import json", "ours": _OURS.rsplit("read_samples(", 1)[0]}
# CPU seconds and peak memory of a process, told by itself at its end.
_TELL = """
import time
# Not ru_maxrss: a child inherits its parent's.
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(time.process_time(), int(peak) / 1024)
"""


def write_samples(path: Path, size: int) -> int:
    """Write samples like those of five-shot multiple choice, ``size`` bytes; return how many."""
    context = "Question: which of these is a prime number?\nAnswer: 7\n\n" * 58
    written = count = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            line = json.dumps(sample(count, context, "exact_match"), ensure_ascii=False) + "\n"
            file.write(line)
            written += len(line)
            count += 1
    return count


def run(size: int = SIZE) -> dict[str, Any]:
    """Return seconds, memory and their ratios; those of many logs under a name of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples_bench_2026-01-01T00-00-00.jsonl"
        items = write_samples(path, size)
        # Alternating, so that whatever else the machine does falls on both.
        taken = [(_measure(_NAIVE, path), _measure(_OURS, path)) for _ in range(REPEATS)]
        start = {name: _measure(code, path) for name, code in _NOTHING.items()}
    naive = [median(t[0][i] for t in taken) for i in (0, 1)]
    ours = [median(t[1][i] for t in taken) for i in (0, 1)]
    return {
        "megabytes": round(size / 1e6),
        "items": items,
        "json_loop_seconds": round(naive[0] - start["naive"][0], 3),
        "our_seconds": round(ours[0] - start["ours"][0], 3),
        "time_ratio": round((ours[0] - start["ours"][0]) / (naive[0] - start["naive"][0]), 3),
        "time_ratio_with_start_up": round(ours[0] / naive[0], 3),
        "json_loop_peak_mb": round(naive[1], 1),
        "our_peak_mb": round(ours[1], 1),
        "memory_ratio": round((ours[1] - start["ours"][1]) / (naive[1] - start["naive"][1]), 3),
        "memory_ratio_with_start_up": round(ours[1] / naive[1], 3),
        "many_logs": many_logs.run(),
    }


def _measure(code: str, path: Path) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", code + _TELL, path], capture_output=True, text=True, check=True
    )
    seconds, megabytes = done.stdout.split()
    return float(seconds), float(megabytes)
