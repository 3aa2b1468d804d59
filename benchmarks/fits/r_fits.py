"""One job by ours or by an R package.

``python r_fits.py PROGRAM FOLDER CPU_LIMIT`` reads contests from ``data.npz`` in the folder and
writes ratings and their standard errors to ``found.npz``. R gets the contests counted (`r_fits.R`,
which keeps the time by itself).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import clock
import numpy as np

Data = Mapping[str, np.ndarray]
Estimates = tuple[np.ndarray, np.ndarray]
"""And standard errors as R gives them: of ratings less the first."""


def ratings(data: Data) -> Callable[[], Estimates]:
    """Bradley–Terry with the model's covariance, from the contests."""
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

    def run() -> Estimates:
        contests = Contests.of(
            data["first"], data["second"], data["outcome"], players=int(data["players"])
        )
        fit = fit_bradley_terry(contests, ties="half", covariance="model")
        own, with_first = np.diagonal(fit.covariance), fit.covariance[0]
        return fit.rating, np.sqrt(own + own[0] - 2 * with_first)

    return run


def counted(data: Data) -> np.ndarray:
    """Rows of first, second (from 1) and how often each of them won, a tie being half."""
    from evalstats_plugin.ranking.contests.contests import OUTCOMES, pair_table

    n = int(data["players"])
    table = pair_table(data["first"], data["second"], data["outcome"], n)
    if table is None:
        sys.exit("shares, or fewer contests than pairs: expected wins, ties and losses of many")
    ends = table.reshape(n * n, len(OUTCOMES))
    seen = np.flatnonzero(ends.any(axis=1))
    won, met = ends[seen] @ OUTCOMES, ends[seen].sum(axis=1)
    return np.column_stack([seen // n + 1, seen % n + 1, won, met - won])


def by_r(program: str, data: Data, folder: Path) -> None:
    """Run it, and pass on what it printed."""
    rscript = shutil.which("Rscript")
    if rscript is None:
        sys.exit(f"no Rscript: install Debian's r-cran-{program.lower()}")
    np.savetxt(folder / "data.csv", counted(data), fmt="%g", delimiter=",")
    script = Path(__file__).with_suffix(".R")
    done = subprocess.run(
        [rscript, script, program, folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    found = np.loadtxt(folder / "found.csv", delimiter=",", ndmin=2)
    np.savez(folder / "found.npz", estimate=found[:, 0], std_error=found[:, 1])
    print(json.dumps(json.loads(done.stdout.splitlines()[-1])))


def main(program: str, folder: str, cpu_limit: str) -> None:
    """Do it, keep what was found and print what it took."""
    clock.limit(float(cpu_limit))
    with np.load(Path(folder) / "data.npz") as file:
        data = dict(file)
    if program != "evalstats-plugin":
        by_r(program, data, Path(folder))
        return
    (estimate, std_error), taken = clock.timed(ratings(data))
    np.savez(Path(folder) / "found.npz", estimate=estimate, std_error=std_error)
    clock.tell(program, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
