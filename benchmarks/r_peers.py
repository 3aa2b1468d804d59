"""An R package that Debian has beside ours: Bradley–Terry.

``python -m benchmarks.r_peers``. Rscript and Debian's r-cran-bradleyterry2 are to be there; what is
missing is recorded as not run. Contests are those of `benchmarks.ranking`, which the R package gets
counted. Errors are of the estimates against the truth, and of their standard errors against ours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import OURS, Job, Judge, Program, digits, keep, side_by_side
from benchmarks.ranking import CONTESTS, PLAYERS
from benchmarks.ranking import draw as draw_contests

SLOW = 10.0

Found = Mapping[str, np.ndarray]


def main() -> None:
    """Run all and keep the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = draw_contests(folder)
        job = Job("ratings with the model's errors", "r_fits", folder, judge(truth), slow=SLOW)
        rows = side_by_side(job, [Program(OURS), Program("BradleyTerry2")])
    keep("r_peers", rows, players=PLAYERS, contests=CONTESTS)


def judge(truth: np.ndarray) -> Judge:
    """Return a judge that remembers what ours, which runs first, found."""
    return partial(_errors, truth - truth.mean(), {})


def _errors(truth: np.ndarray, ours: dict[str, np.ndarray], found: Found) -> dict[str, Any]:
    """RMSE, and the largest distances from ours, of estimates and of standard errors."""
    estimate = found["estimate"] - found["estimate"].mean()
    now = {"estimate": estimate, "std_error": found["std_error"]}
    ours.update(ours or now)
    away = {f"{key}_from_ours": digits(_furthest(now[key], ours[key])) for key in now}
    return {"rmse": digits(float(np.sqrt(np.mean((estimate - truth) ** 2))))} | away


def _furthest(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.nanmax(np.abs(one - other)))


if __name__ == "__main__":
    main()
