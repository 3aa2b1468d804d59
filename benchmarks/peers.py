"""Programs side by side: the same data, the same run, in turns, each in a process of its own.

Ours runs in this environment, all others in one of their own (`.venv-bench`), on one thread. A
round runs every program once, so that what else the machine does falls on all of them; the ratio of
two programs is the median over rounds, with the least and the most. Scripts in ``fits/`` do the
work: ``python fits/NAME_fits.py PROGRAM FOLDER CPU_LIMIT ARGUMENTS…`` reads its data from the
folder, gets them into the form that the program wants, runs it once on a little, starts the clock,
and leaves what it found in ``found.npz``.

``python -m benchmarks.NAME PART…`` runs the jobs whose names hold one of these; the rows of others
stay as they were, with the day they were run.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FITS = HERE / "fits"
CONSTRAINTS = HERE.parent / "constraints.txt"
VENV = HERE.parent / ".venv-bench"
OURS = "evalstats-plugin"

CPU_LIMIT = 300
"""Seconds; a program that needs more is recorded as not finished."""
WALL_LIMIT = 4 * CPU_LIMIT
SLOW = 60.0
"""CPU seconds of a slow program, where the job does not say."""

_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "SETUPTOOLS_USE_DISTUTILS": "stdlib",  # Theano, of girth_mcmc, does not know a newer one
    "TABPFN_DISABLE_TELEMETRY": "1",  # tabpfn, of torch_measure, would report its use
}

Errors = Mapping[str, Any]
Judge = Callable[[Mapping[str, np.ndarray]], Errors]


class Program(NamedTuple):
    """A way to do a job."""

    name: str
    requirement: str | None = None
    """None for ours, and for what is in this environment."""
    arguments: tuple[str, ...] = ()
    """Of its script, such as the part of the job that it does in reasonable time."""
    share: float = 1.0
    """The part of the job it does; its time is divided by it."""


class Job(NamedTuple):
    """What every program does."""

    name: str
    """As tables show it."""
    script: str
    """In ``fits/``."""
    folder: Path
    """Where its data lie."""
    judge: Judge
    """From what was found to its errors; ``failed`` among them is a reason not to count it."""
    rounds: int = 3
    slow: float = SLOW
    """CPU seconds; a program that took more is run once only."""


def side_by_side(job: Job, programs: Sequence[Program]) -> list[dict[str, Any]]:
    """Return a row for each program, ours first among them, with ratios to ours.

    None where other jobs were asked for.
    """
    if not asked(job.name):
        return []
    broken = install(p.requirement for p in programs)
    rows: dict[str, dict[str, Any]] = {}
    seconds: dict[str, list[float]] = {p.name: [] for p in programs}
    walls: dict[str, list[float]] = {p.name: [] for p in programs}
    for turn in range(job.rounds):
        for program in programs:
            if turn and (
                "failed" in rows[program.name]
                or seconds[program.name][0] * program.share > job.slow
            ):
                continue
            found = run(job, program, broken.get(program.requirement))
            if "cpu_seconds" in found:
                seconds[program.name].append(found.pop("cpu_seconds") / program.share)
                walls[program.name].append(found.pop("wall_seconds") / program.share)
            row = {"job": job.name, "program": program.name, "share": program.share} | found
            rows.setdefault(program.name, row)
    ours = seconds[programs[0].name]
    for name, row in rows.items():
        row.update(_spread("cpu_seconds", seconds[name]) | _spread("wall_seconds", walls[name]))
        if name != programs[0].name and seconds[name]:
            # One run of a slow program stands beside each of ours.
            theirs = seconds[name] if len(seconds[name]) > 1 else seconds[name] * len(ours)
            row.update(_spread("ratio", [b / a for a, b in zip(ours, theirs, strict=False)]))
        print(json.dumps(row), flush=True)
    return list(rows.values())


def keep(name: str, rows: Sequence[Mapping[str, Any]], *, part: bool = False, **about: Any) -> None:
    """Write the figures to ``results/NAME.json``.

    Parameters
    ----------
    part
        Whether these are some of the jobs: rows of others stay as they were.
    """
    if part or len(sys.argv) > 1:
        rows = _beside_earlier(json.loads((RESULTS / f"{name}.json").read_text()), rows)
    figures = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "processor": processor(),
        **about,
        "runs": list(rows),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")


def asked(job: str) -> bool:
    """Whether a job is to be run: all are, where none was named."""
    return len(sys.argv) < 2 or any(part in job for part in sys.argv[1:])


def _beside_earlier(
    earlier: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Put rows in the place of those of the same jobs, and say of the others when they were run."""
    about = {} if earlier["date"] == date.today().isoformat() else {"date": earlier["date"]}
    fresh = {row["job"]: [r for r in rows if r["job"] == row["job"]] for row in rows}
    merged: list[Mapping[str, Any]] = []
    for row in earlier["runs"]:
        if row["job"] not in fresh:
            merged.append(about | row)
        elif fresh[row["job"]]:
            merged += fresh[row["job"]]
            fresh[row["job"]] = []
    return merged + [row for new in fresh.values() for row in new]


def install(requirements: Iterable[str | None]) -> dict[str | None, str]:
    """Install what is missing; return why a requirement could not be installed."""
    if not _python().exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        # Alone and first, so that the pinned build is there before a program asks for any torch.
        _pip("torch").check_returncode()
    broken: dict[str | None, str] = {}
    for requirement in dict.fromkeys(r for r in requirements if r):
        name, _, version = requirement.partition("==")
        there = subprocess.run(
            [_python(), "-c", f"from importlib.metadata import version; print(version({name!r}))"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if there.returncode == 0 and version in ("", there.stdout.strip()):
            continue
        done = _pip(requirement)
        if done.returncode:
            broken[requirement] = f"not installed: {_last_line(done.stderr)}"
    return broken


def run(job: Job, program: Program, broken: str | None = None) -> dict[str, Any]:
    """Return the figures and errors of one run, or why there are none."""
    if broken:
        return {"failed": broken}
    python = _python() if program.requirement else Path(sys.executable)
    command = [python, FITS / f"{job.script}.py", program.name, job.folder, str(CPU_LIMIT)]
    try:
        done = subprocess.run(
            [*command, *program.arguments], capture_output=True, text=True, check=False,
            timeout=WALL_LIMIT, env={**os.environ, **_SETTINGS},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"not finished in {WALL_LIMIT} s"}
    if done.returncode == -24:  # SIGXCPU
        return {"failed": f"not finished in {CPU_LIMIT} CPU s"}
    if done.returncode:
        return {"failed": _last_line(done.stderr) or f"exit status {done.returncode}"}
    taken: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    with np.load(job.folder / "found.npz") as found:
        return taken | dict(job.judge(dict(found)))


def processor() -> str:
    """Name of the processor, and how many of its cores there are."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), "unknown")
    return f"{name}, {os.cpu_count()} cores"


def _spread(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Median, least and most, of three digits."""
    if not values:
        return {}
    figures = (median(values), min(values), max(values))
    return {name: dict(zip(("median", "least", "most"), map(digits, figures), strict=True))}


def digits(value: float) -> float:
    """Three of them."""
    return float(f"{value:.3g}")


def _pip(requirement: str) -> subprocess.CompletedProcess[str]:
    pip = [_python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)}
    return subprocess.run(
        [*pip, requirement], env=environment, capture_output=True, text=True, check=False
    )


def _python() -> Path:
    return VENV / "bin" / "python"


def _last_line(text: str) -> str:
    """The error, without the folder where it happened."""
    return re.sub(r" \(/.*\)$", "", text.strip().rpartition("\n")[2])
