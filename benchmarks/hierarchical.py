"""Hierarchical models of other programs beside ours, on the same data.

``python -m benchmarks.hierarchical``; after a run that was cut, name the jobs that are left, as in
``python -m benchmarks.hierarchical shared two-level``.

The clustered example of bayes_evals weighs 10,000 draws from the prior; ours
integrates the same posterior. HiBayES fits its two-level model of groups by NUTS;
ours takes it as nested plates. 20 models crossed with 30 tasks of 100 questions, drawn from the
model with known effects, are fitted by `pool` and by NUTS of NumPyro, under the same
priors; a long run of NUTS is the posterior that both are held against. 30 models that answered the
same 100 questions of each of 20 tasks are fitted by `pool`, which lets questions
differ, by HiBayES's two-level model, in which every model on every task is a group, and by NUTS of
the crossed model with the questions summed. HiBayES is on no package index: its model and settings
are written out in `hierarchical_fits`, from its version 1.0.0.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import OURS, Job, Program, asked, digits, install, keep, run, side_by_side
from evalstats_plugin.stats.grid_posteriors import beta_binomial

REQUIREMENT = "numpyro==0.22.0"
SEED = 20261121
REPEATS = 20
CLUSTERED = ((5, 20, 5.0), (20, 50, 5.0), (20, 100, 5.0), (50, 200, 20.0))
"""Clusters, items in each, and d of the truth; θ is 0.7."""
SCALES = (0.1, 1.0)
"""Of the half-normal prior of σ_group: what HiBayES has by default, and a wide one."""
MODELS, TASKS, QUESTIONS = 20, 30, 100
EFFECTS = (0.8, 0.8, 0.4)
"""Standard deviations of models, of tasks and of cells."""
QUESTION = 0.8
"""Standard deviation of questions that all models share."""
SHARED_MODELS, SHARED_TASKS = 30, 20
ROUNDS = 2

Found = Mapping[str, np.ndarray]


def main() -> None:
    """Run all, and keep the figures of each job as it ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = [
            *(partial(clustered, folder, *shape) for shape in CLUSTERED),
            *(partial(two_level, folder, scale) for scale in SCALES),
            partial(crossed, folder),
            partial(shared, folder),
        ]
        for job in jobs:
            if rows := job():
                keep("hierarchical", rows, part=True)


def clustered(folder: Path, clusters: int, items: int, d: float) -> list[dict[str, Any]]:
    """Take `REPEATS` data sets; limits are held against those by quadrature."""
    rng = np.random.default_rng(clusters * items)
    share = rng.beta(0.7 * d, 0.3 * d, (REPEATS, clusters))
    right = rng.binomial(items, share).astype(float)
    total = np.full((REPEATS, clusters), float(items))
    np.savez(folder / "data.npz", right=right, total=total)
    limits = beta_binomial(right, total, confidence_level=0.95, prior="gamma-dispersion")

    def judge(found: Found) -> dict[str, Any]:
        away = [found["low"] - limits[0], found["high"] - limits[1]]
        told: dict[str, Any] = {
            "clusters": clusters,
            "items": items,
            "d": d,
            "data_sets": REPEATS,
            "rms_error_of_limits": [digits(float(np.sqrt((x**2).mean()))) for x in away],
            "first_right": right[0].tolist(),
            "first": {key: float(f"{values[0]:.7g}") for key, values in found.items()},
        }
        if "ess" in found:
            told["median_ess"] = digits(float(np.median(found["ess"])))
            told["least_ess"] = digits(float(found["ess"].min()))
        return told

    others = Program("bayes_evals's way, prior draws", None, ("clustered",))
    job = Job(f"clustered, {clusters} × {items}", "hierarchical_fits", folder, judge, ROUNDS)
    return side_by_side(job, [Program(OURS, None, ("clustered",)), others])


def two_level(folder: Path, scale: float) -> list[dict[str, Any]]:
    """Groups of questions under one prior of their spread."""
    rng = np.random.default_rng(SEED)
    total = np.repeat([20, 30, 40, 50, 60, 80], 2)
    chance = 1 / (1 + np.exp(-(0.4 + 0.6 * rng.standard_normal(len(total)))))
    right = rng.binomial(total, chance).astype(float)
    np.savez(folder / "data.npz", right=right, total=total.astype(float), scale=scale)
    names = ("overall", "sigma_group", "rate")

    def judge(found: Found) -> dict[str, Any]:
        posterior = {
            name: {key: _plain(found[f"{name}_{key}"]) for key in ("mean", "sd")} for name in names
        }
        return {
            "scale": scale,
            "right": right.tolist(),
            "total": total.tolist(),
            **_against(found, chance),
            "posterior": posterior,
            "ess": {name: _plain(found[f"{name}_ess"]) for name in names},
            **{key: int(found[key]) for key in ("divergences",) if key in found},
        }

    others = Program("HiBayES's way, NumPyro", REQUIREMENT, ("two-level", "2000"))
    job = Job(f"two-level, scale {scale:g}", "hierarchical_fits", folder, judge, ROUNDS)
    return side_by_side(job, [Program(OURS, None, ("two-level",)), others])


def crossed(folder: Path) -> list[dict[str, Any]]:
    """Every model on every task."""
    rng = np.random.default_rng(SEED)
    model, task, cell = (
        sd * rng.standard_normal(shape)
        for sd, shape in zip(EFFECTS, ((MODELS, 1), (1, TASKS), (MODELS, TASKS)), strict=True)
    )
    chance = 1 / (1 + np.exp(-(0.3 + model - task + cell)))
    right = rng.binomial(QUESTIONS, chance).astype(float)
    np.savez(folder / "data.npz", right=right, total=float(QUESTIONS))
    long: dict[str, np.ndarray] = {}

    def judge(found: Found) -> dict[str, Any]:
        told: dict[str, Any] = _against(found, chance)
        told |= {name: digits(float(found[name])) for name in ("least_ess", "rate_ess")}
        if "divergences" in found:
            told["divergences"] = int(found["divergences"])
        if long:
            away = (found["rate_mean"] - long["rate_mean"]) / long["rate_sd"]
            told["away_from_long_run"] = digits(float(np.sqrt(np.mean(away**2))))
            told["sd_to_long_run"] = digits(float((found["rate_sd"] / long["rate_sd"]).mean()))
        return told

    def judge_long(found: Found) -> dict[str, Any]:
        told = judge(found)
        long.update(found)
        return told

    name = f"{MODELS} models × {TASKS} tasks × {QUESTIONS} questions"
    if not asked(name):
        return []
    job = Job(name, "hierarchical_fits", folder, judge, ROUNDS)
    nuts = Program("NumPyro", REQUIREMENT, ("crossed", "1000"))
    broken = install([REQUIREMENT]).get(REQUIREMENT)
    longer = nuts._replace(arguments=("crossed", "2000"))
    exact = run(job._replace(judge=judge_long), longer, broken)
    rows = side_by_side(job, [Program(OURS, None, ("crossed",)), nuts])
    return [*rows, {"job": name, "program": "NumPyro, long run"} | exact]


def shared(folder: Path) -> list[dict[str, Any]]:
    """Every model on the same questions of every task."""
    rng = np.random.default_rng(SEED)
    shape = SHARED_MODELS, SHARED_TASKS
    model, task, cell = (
        sd * rng.standard_normal(size)
        for sd, size in zip(EFFECTS, ((shape[0], 1), (1, shape[1]), shape), strict=True)
    )
    level = (0.3 + model - task + cell)[..., None]
    hard = QUESTION * rng.standard_normal((1, SHARED_TASKS, QUESTIONS))
    answers = rng.random((*shape, QUESTIONS)) < 1 / (1 + np.exp(hard - level))
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    chance = 1 / (1 + np.exp(QUESTION * nodes - level)) @ (weights / weights.sum())
    np.savez(
        folder / "data.npz", answers=answers.astype(float), total=float(QUESTIONS), scale=SCALES[1]
    )

    def judge(found: Found) -> dict[str, Any]:
        ess = {name: digits(float(found[name])) for name in ("least_ess", "rate_ess", "mean_ess")}
        lost = {key: int(found[key]) for key in ("divergences",) if key in found}
        return {**_against(found, chance), **ess, **lost}

    names = ("HiBayES's way, NumPyro", "NumPyro")
    others = [Program(name, REQUIREMENT, ("shared", "1000")) for name in names]
    name = f"{shape[0]} models × {shape[1]} tasks × {QUESTIONS} shared questions"
    job = Job(name, "hierarchical_fits", folder, judge, ROUNDS)
    return side_by_side(job, [Program(OURS, None, ("shared",)), *others])


def _against(found: Found, chance: np.ndarray) -> dict[str, Any]:
    """Errors of rates against the true chances."""
    inside = (found["rate_low"] <= chance) & (chance <= found["rate_high"])
    error = np.sqrt(np.mean((found["rate_mean"] - chance) ** 2))
    return {"rmse": digits(float(error)), "coverage": round(float(inside.mean()), 3)}


def _plain(value: np.ndarray) -> Any:
    """Five digits of every number."""
    if value.ndim:
        return [_plain(one) for one in value]
    return float(f"{float(value):.5g}")


if __name__ == "__main__":
    main()
