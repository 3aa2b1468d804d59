"""CPU seconds and memory of ratings with intervals clustered by prompt, up to 10 million votes.

``python -m benchmarks.votes [JOB…]``: 100 players with 1 million votes and 1,000 with 10 million:
20 votes a prompt, a sixth of them ties, by Davidson's model. Reading is of 1 million from CSV.
Every job is a process of its own on one thread; memory is the most that it held, data included,
less what it held before it had any.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.peers import asked, digits, keep
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.files import read_contests
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.stats.streams import stream

SIZES = ((100, 1_000_000), (1_000, 10_000_000))
VOTES_A_PROMPT = 20
JOB = "--job"
"""First argument of a child process."""


def main() -> None:
    """Measure all jobs; keep the figures."""
    rows: list[dict[str, Any]] = []
    jobs = (*(("fit", *size) for size in SIZES), ("read", *SIZES[0]))
    for job, players, votes in (one for one in jobs if asked(one[0])):
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.votes", JOB, job, str(players), str(votes)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        rows.append({"job": job, "players": players, "votes": votes} | json.loads(told.stdout))
        print(rows[-1], flush=True)
    keep("votes", rows, votes_a_prompt=VOTES_A_PROMPT)


def drawn(players: int, votes: int) -> tuple[Contests, np.ndarray]:
    """Votes by Davidson's model, and the true ratings, whose mean is 0."""
    rng = stream(20261126, "votes of a benchmark")
    rating = rng.standard_normal(players)
    rating -= rating.mean()
    first = rng.integers(0, players, votes)
    second = (first + rng.integers(1, players, votes)) % players
    x = rating[first] - rating[second]
    win, tie, loss = np.exp(x / 2), 0.5, np.exp(-x / 2)
    u = rng.random(votes) * (win + tie + loss)
    outcome = np.where(u < win, 1.0, np.where(u < win + tie, 0.5, 0.0))
    made = Contests.of(first, second, outcome, players=players)
    prompts = tuple(f"prompt {k}" for k in range(-(-votes // VOTES_A_PROMPT)))
    return replace(made, cluster=np.arange(votes) // VOTES_A_PROMPT, clusters=prompts), rating


def measure(job: str, players: int, votes: int) -> dict[str, float]:
    """Do one job in this process."""
    before = _held("VmHWM")
    made, rating = drawn(players, votes)
    if job == "read":
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "votes.csv"
            made.to_frame().to_csv(file, index=False)
            del made
            Path("/proc/self/clear_refs").write_text("5")
            before = _held("VmRSS")
            start = process_time()
            again = read_contests(file)
            seconds = process_time() - start
        return {
            "cpu_seconds": digits(seconds), "peak_mb": round(_held("VmHWM") - before),
            "read": len(again),
        }  # fmt: skip
    start = process_time()
    fit = fit_bradley_terry(made, covariance="cluster")
    seconds = process_time() - start
    inside = np.abs(fit.rating - rating) < 1.96 * fit.std_error
    return {
        "cpu_seconds": digits(seconds), "peak_mb": round(_held("VmHWM") - before),
        "coverage": round(float(inside.mean()), 3),
    }  # fmt: skip


def _held(name: str) -> float:
    """Megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


if __name__ == "__main__":
    if sys.argv[1:2] == [JOB]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main()
