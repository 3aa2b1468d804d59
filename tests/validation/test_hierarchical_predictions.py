"""Coverage with questions that all models share, also where the truth is not what is assumed.

Writes fixtures/validation/hierarchical_predictions.json. Six models on five tasks of 10 to 60
questions; standard deviations .8 of models, 1 of tasks, .4 of interactions, 1.5 of questions, all
normal. Other designs: interactions .25 times Student's t of 2.2 degrees of freedom (heavy); all
standard deviations a sixth (narrow) or 2.5 times as large (wide),
where the prior of each has mean 1 and standard deviation .7; every effect .6 times as large times
Student's t of 3 (heavy everywhere); every effect from an exponential distribution less its mean
(skewed). Replications are kept in a temporary file as they end: a run that was stopped goes on.
"""

import json
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.hierarchical import HierarchicalOptions, pool

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "hierarchical_predictions.json"
DONE = Path(tempfile.gettempdir()) / "evalstats_hierarchical_predictions.jsonl"
N, T, REPLICATIONS = 6, 5, 500
MODELS, TASKS, CELLS, QUESTIONS = 0.8, 1.0, 0.4, 1.5
NORMAL, SKEWED = stats.norm(), stats.expon(-1)
DESIGNS = {
    "normal": (NORMAL, NORMAL, 1.0),
    "heavy": (NORMAL, stats.t(2.2, scale=0.25 / CELLS), 1.0),
    "narrow": (NORMAL, NORMAL, 1 / 6),
    "wide": (NORMAL, NORMAL, 2.5),
    "heavy everywhere": (stats.t(3, scale=0.6), stats.t(3, scale=0.6), 1.0),
    "skewed": (SKEWED, SKEWED, 1.0),
}
"""Distributions of effects, and of interactions, and how much larger all are."""
GRID = (np.arange(400) + 0.5) / 400


def simulated(rng, design):
    """Answers, and expected shares (N, T), of the first N models and T tasks that are drawn."""
    effects, cells, scale = DESIGNS[design]
    level = scale * (
        MODELS * effects.rvs((N + 1, 1), rng) - TASKS * effects.rvs(T + 1, rng)
        + CELLS * cells.rvs((N + 1, T + 1), rng)
    )  # fmt: skip
    task = np.repeat(np.arange(T), rng.integers(10, 61, T))
    logit = level[:N, task] - scale * QUESTIONS * effects.rvs(len(task), rng)
    scores = (rng.random(logit.shape) < special.expit(logit)).astype(float)
    hard = scale * QUESTIONS * effects.ppf(GRID)
    share = special.expit(level[:N, :T, None] - hard).mean(axis=-1)
    return ResponseMatrix.from_array(scores, tasks=[f"t{t}" for t in task]), share


def outcome(design, k):
    """Share of intervals that hold the truth, width, and squared errors, by what they are of."""
    matrix, own = simulated(np.random.default_rng([20261123, k]), design)
    options = HierarchicalOptions(draws=300, warm_up=240)
    fit = pool(matrix, "shared", rng=k, options=options)
    place = {name: i for i, name in enumerate(matrix.models)}
    seen = {(r.model, r.task): r.score for r in fit}
    found = {
        "cells": [(r.low, r.high, r.estimate, r.score, own[place[r.model], int(r.task[1:])])
                  for r in fit if r.task],
        "models": [(r.low, r.high, r.estimate, r.score, own[place[r.model]].mean())
                   for r in fit if r.task is None],
        "pairs": [(r.low, r.high, r.difference, seen[r.model_b, None] - seen[r.model_a, None],
                   own[place[r.model_b]].mean() - own[place[r.model_a]].mean())
                  for r in fit.contrasts()],
    }  # fmt: skip
    told = {}
    for what, rows in found.items():
        low, high, estimate, alone, true = np.array(rows, dtype=float).T
        held = (low <= true) & (true <= high)
        squares = np.mean((estimate - true) ** 2), np.mean((alone - true) ** 2)
        told[what] = [float(held.mean()), float(np.mean(high - low)), *map(float, squares)]
    return told


def test_intervals_hold_the_truth():
    lines = map(json.loads, DONE.read_text().splitlines()) if DONE.is_file() else ()
    known = {(design, k): found for design, k, found in lines}
    by_row = defaultdict(list)
    with DONE.open("a") as file:
        for k in range(REPLICATIONS):
            for design in DESIGNS:
                found = known.get((design, k))
                if found is None:
                    found = outcome(design, k)
                    file.write(json.dumps([design, k, found]) + "\n")
                    file.flush()
                for what, figures in found.items():
                    by_row[design, what].append(figures)
    rows = []
    for (design, what), figures in sorted(by_row.items(), key=lambda x: x[0][0]):
        held, width, square, alone = np.array(figures).T
        row = {
            "interactions": design, "intervals": what, "coverage": round(float(held.mean()), 4),
            "std_error": round(float(held.std(ddof=1) / len(held) ** 0.5), 4),
            "width": round(float(width.mean()), 4), "rmse": round(float(square.mean() ** 0.5), 4),
        }  # fmt: skip
        row["rmse_of_scores"] = round(float(alone.mean() ** 0.5), 4)
        rows.append(row)
    about = {"models": N, "tasks": T, "replications": REPLICATIONS, "level": 0.95}
    FILE.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    for row in rows:
        assert 0.95 - 0.02 - 3 * row["std_error"] <= row["coverage"], row
        assert row["rmse"] < 1.05 * row["rmse_of_scores"], row
