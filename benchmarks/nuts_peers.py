"""The no-U-turn sampler beside NumPyro's: models of the Stan user's guide, as the page has them.

``python -m benchmarks.nuts_peers``. What counts is the least effective number of draws (bulk, of
ranks) of all values that both sample, for each CPU second with warm-up, tracing and compiling.
NumPyro takes its chains one after another, or in step, which compiles faster. Models with latents
of finitely many values are not for this sampler.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hierarchical import REQUIREMENT
from benchmarks.peers import OURS, Job, Program, digits, keep, side_by_side
from evalstats_plugin.runtime.chains import convergence

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from ten_models.data import CASES

NOT_OURS = ("Finite mixture", "Change point")
ROUNDS = 2


def main() -> None:
    """Run all models, and keep the figures of each as it ends."""
    with tempfile.TemporaryDirectory() as name:
        for model, (data, _) in CASES.items():
            if model not in NOT_OURS and (rows := sampled(Path(name), model, data)):
                keep("nuts_peers", rows, part=True)


def sampled(folder: Path, model: str, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row of each program, with its effective draws for each CPU second beside ours."""
    np.savez(folder / "data.npz", **data)

    def judge(draws: Mapping[str, np.ndarray]) -> dict[str, Any]:
        agreement = {name: convergence(draws[name]) for name in sorted(draws)}
        means = {name: draws[name].mean(axis=(0, 1)) for name in sorted(draws)}
        return {
            "ess": {name: digits(float(np.nanmin(a.ess))) for name, a in agreement.items()},
            "r_hat": digits(max(float(np.nanmax(a.r_hat)) for a in agreement.values())),
            "mean": {name: [digits(float(x)) for x in value] for name, value in means.items()},
        }

    programs = [Program(OURS, None, (model,))]
    programs += [Program(f"NumPyro, chains {how}", REQUIREMENT, (model,))
                 for how in ("one after another", "in step")]  # fmt: skip
    rows = side_by_side(Job(model, "nuts_fits", folder, judge, ROUNDS), programs)
    rows = [row for row in rows if "ess" in row]
    common = set.intersection(*(set(row["ess"]) for row in rows)) if rows else set[str]()
    for row in rows:
        row["least_ess"] = min(row["ess"][name] for name in common)
        row["ess_per_second"] = digits(row["least_ess"] / row["cpu_seconds"]["median"])
    return rows


if __name__ == "__main__":
    main()
