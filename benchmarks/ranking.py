"""Programs for Bradley–Terry ratings beside ours, on the same contests of known truth.

``python -m benchmarks.ranking``. 100 players with ratings N(0, 1), met as unevenly as in an arena,
an eighth of the contests ties, which count half for each. Every fit runs in a process of its own on
one thread, ours in this environment, the others in one of their own (`.venv-bench`).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
FIGURES = HERE / "ranking.json"
FITS = HERE / "ranking_fits.py"
CONSTRAINTS = HERE.parent / "constraints.txt"
VENV = HERE.parent / ".venv-bench"

SEED = 20261121
PLAYERS = 100
SIZES = (100_000, 1_000_000)
CPU_LIMIT = 300
"""Seconds; a program that needs more is recorded as not finished."""


class Program(NamedTuple):
    """A way to fit, of a Python package."""

    name: str
    """Of the function in `ranking_fits`."""
    requirement: str | None
    """None for ours."""
    samples: int | None = None
    """Of a bootstrap, which is scaled to 1,000."""


PROGRAMS = (
    Program("evalstats-plugin", None, 1000),
    Program("choix", "choix==0.4.1"),
    Program("evalica", "evalica==0.4.2", 10),
    Program("arena-rank", "arena-rank==0.1.1"),
    Program("FastChat's way, scikit-learn", "scikit-learn", 10),
)


def main() -> None:
    """Run all, print each and keep the figures, whatever happens to the next."""
    broken = install(p.requirement for p in PROGRAMS)
    figures: dict[str, Any] = {"python": platform.python_version(), "players": PLAYERS, "runs": []}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            draw(Path(folder), size)
            ratings: dict[str, np.ndarray] = {}
            for program in PROGRAMS:
                for samples in (0, program.samples):
                    if samples is None:
                        continue
                    found = fit(program, Path(folder), samples, broken.get(program.requirement))
                    row = {"program": program.name, "contests": size, **found}
                    if "seconds" in row:
                        rating = np.load(Path(folder) / "rating.npy")
                        ratings.setdefault(program.name, rating)
                        away = rating - ratings["evalstats-plugin"]
                        row["largest_difference"] = float(f"{np.abs(away).max():.1e}")
                    if samples:
                        row["bootstrap_samples"] = samples
                        if "seconds" in row:
                            row["seconds_of_1000"] = round(row["seconds"] * 1000 / samples, 1)
                    print(json.dumps(row), flush=True)
                    figures["runs"].append(row)
                    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


def install(requirements: Iterable[str | None]) -> dict[str | None, str]:
    """Install what is missing; return why a requirement could not be installed."""
    if not _python(VENV).exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    pip = [_python(VENV), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)}
    broken: dict[str | None, str] = {}
    for requirement in dict.fromkeys(r for r in requirements if r):
        name = requirement.partition("==")[0]
        there = subprocess.run(
            [_python(VENV), "-c", f"from importlib.metadata import version; version({name!r})"],
            capture_output=True, check=False,
        )  # fmt: skip
        if there.returncode == 0:
            continue
        done = subprocess.run(
            [*pip, requirement], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            broken[requirement] = f"not installed: {done.stderr.strip().rpartition(chr(10))[2]}"
    return broken


def draw(folder: Path, size: int) -> None:
    """Draw contests; some players meet far more often than others."""
    rng = np.random.default_rng(SEED)
    rating = rng.standard_normal(PLAYERS)
    often = rng.dirichlet(np.full(PLAYERS, 2.0))
    first, second = np.triu_indices(PLAYERS, 1)
    chance = often[first] * often[second]
    pair = rng.choice(len(first), size=size, p=chance / chance.sum())
    i, j = first[pair], second[pair]
    outcome = (rng.random(size) < 1 / (1 + np.exp(rating[j] - rating[i]))).astype(float)
    outcome[rng.random(size) < 0.125] = 0.5
    np.savez(folder / "contests.npz", first=i, second=j, outcome=outcome, players=PLAYERS)


def fit(program: Program, folder: Path, samples: int, broken: str | None) -> dict[str, Any]:
    """Return the figures of one fit, or why there are none."""
    if broken:
        return {"failed": broken}
    python = _python(VENV) if program.requirement else Path(sys.executable)
    # -P: the modules beside the script are not on its path.
    command = [python, "-P", FITS, program.name, folder, str(samples), str(CPU_LIMIT)]
    settings = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **settings}
    )
    if done.returncode == -24:  # SIGXCPU
        return {"failed": f"not finished in {CPU_LIMIT} CPU s"}
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return {"failed": last or f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


if __name__ == "__main__":
    main()
