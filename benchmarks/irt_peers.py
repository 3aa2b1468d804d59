"""Item response programs beside ours, on the same answers of known truth.

``python -m benchmarks.irt_peers``. 2PL truth: abilities and difficulties are N(0, 1), log
discriminations N(0, 0.3²); a fifth of the answers is held out. Errors: log loss of the answers held
out, and of abilities and difficulties on the truth's scale.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks.peers import CPU_LIMIT, OURS, Job, Program, keep, side_by_side

SEED = 20261120
HELD_OUT = 0.2
SMALL = (200, 200)
"""As many items as marginal likelihood by girth takes half a minute for."""
FIRST = (200, 1000)
SIZES = (FIRST, (1000, 1000), (40, 5000))
LARGE = (4000, 5000)
"""For programs that fitted 1,000 × 1,000 in seconds: 16 million answers."""
SLOW = 10.0
"""CPU seconds; three rounds of all that takes longer would be an hour."""
FAR = 8.0
"""Difficulties beyond are set to it before they are compared: some programs give infinite ones."""

PROGRAMS: tuple[tuple[Program, tuple[tuple[int, int], ...]], ...] = (
    (Program(OURS), (SMALL, *SIZES, LARGE)),
    (Program("girth JML", "girth==0.8.0"), (SMALL, *SIZES, LARGE)),
    (Program("girth MML", "girth==0.8.0"), (SMALL,)),
    (Program("torch_measure SVI", "torch_measure==0.1.0"), SIZES),
    (Program("torch_measure JML", "torch_measure==0.1.0"), SIZES),
    (Program("torch_measure JML, rate 1", "torch_measure==0.1.0"), (*SIZES, LARGE)),
    (Program("py-irt hierarchical", "py-irt==0.7.1"), SIZES),
    (Program("py-irt default", "py-irt==0.7.1"), SIZES),
    (Program("girth_mcmc", "girth_mcmc==0.6.0"), (FIRST,)),
)
"""And the sizes that each fits."""
NOT_RUN = {"mirt": "an R package", "TAM": "an R package"}


class Answers(NamedTuple):
    """Drawn answers and what they were drawn from."""

    scores: NDArray[np.int8]
    """Shape (N, M), -1 where held out."""
    answers: NDArray[np.int8]
    """Those held out."""
    ability: NDArray[np.float64]
    difficulty: NDArray[np.float64]
    discrimination: NDArray[np.float64]


def main() -> None:
    """Fit by all at every size; keep the figures, whatever happens to the next."""
    rows: list[dict[str, Any]] = []
    truth: dict[str, Any] = {}
    for size in (SMALL, *SIZES, LARGE):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            drawn = draw(*size)
            np.savez(folder / "data.npz", scores=drawn.scores)
            job = Job(
                "2PL {:,} × {:,}".format(*size), "irt_fits", folder, partial(judge, drawn),
                slow=SLOW,
            )  # fmt: skip
            truth[job.name] = {"log_loss": log_loss(drawn, *drawn[2:])}
            rows += side_by_side(job, [p for p, sizes in PROGRAMS if size in sizes])
        keep("irt_peers", rows, cpu_limit=CPU_LIMIT, not_run=NOT_RUN, truth=truth)


def draw(n: int, m: int) -> Answers:
    """Draw answers of n models to m items."""
    rng = np.random.default_rng(SEED)
    ability, difficulty = rng.standard_normal(n), rng.standard_normal(m)
    discrimination = np.exp(0.3 * rng.standard_normal(m))
    chance = special.expit(discrimination * (ability[:, None] - difficulty))
    scores = (rng.random((n, m)) < chance).astype(np.int8)
    hidden = rng.random((n, m)) >= 1 - HELD_OUT
    answers = scores[hidden]
    scores[hidden] = -1
    return Answers(scores, answers, ability, difficulty, discrimination)


def judge(drawn: Answers, found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the errors; of a figure that is not finite, why there is none."""
    return dict(_errors(drawn, *(found[name] for name in Answers._fields[2:])))


def _errors(
    drawn: Answers,
    ability: NDArray[np.float64],
    difficulty: NDArray[np.float64],
    discrimination: NDArray[np.float64],
) -> Iterator[tuple[str, Any]]:
    estimates = {"abilities": ability, "items": difficulty * discrimination}
    lost = [
        f"{count} of {a.size} {what} are not finite"
        for what, a in estimates.items()
        if (count := int((~np.isfinite(a)).sum()))
    ]
    if np.isfinite(ability).all():
        yield "rmse_ability", rmse(ability, drawn.ability)
    if np.isfinite(estimates["items"]).all():
        yield "rmse_difficulty", rmse(difficulty.clip(-FAR, FAR), drawn.difficulty)
    if lost:
        yield "failed", ", ".join(lost)
    else:
        yield "log_loss", log_loss(drawn, ability, difficulty, discrimination)


def log_loss(
    drawn: Answers,
    ability: NDArray[np.float64],
    difficulty: NDArray[np.float64],
    discrimination: NDArray[np.float64],
) -> float:
    """Mean log loss of the answers held out."""
    logit = discrimination * (ability[:, None] - difficulty)
    signed = np.where(drawn.answers == 1, 1, -1) * logit[drawn.scores == -1]
    return round(float(-np.mean(special.log_expit(signed))), 4)


def rmse(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Error on the truth's scale: where 0 lies and how long 1 is, no program can know."""
    slope, start = np.polyfit(found, true, 1)
    return round(float(np.sqrt(np.mean((start + slope * found - true) ** 2))), 4)


if __name__ == "__main__":
    main()
