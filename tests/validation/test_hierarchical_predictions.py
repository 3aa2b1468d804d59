"""Coverage with questions that all models share: cells, models, pairs, new tasks and new models.

Writes fixtures/validation/hierarchical_predictions.json. Six models on five tasks of 10 to 60
questions; standard deviations .8 of models, 1 of tasks, 1.5 of questions. Interactions are normal
(.4) or heavy-tailed (.25 times Student's t of 2.2 degrees of freedom), and fitted as normal, or by
Student's t of 4.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.hierarchical import HierarchicalOptions, fit_hierarchical

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "hierarchical_predictions.json"
N, T, REPLICATIONS = 6, 5, 60
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
FITS = {"normal": None, "t(4)": 4.0}


def simulated(rng, heavy):
    """Answers, and expected shares with those of a further model and task (N + 1, T + 1)."""
    noise = 0.25 * rng.standard_t(2.2, (N + 1, T + 1)) if heavy else (
        0.4 * rng.standard_normal((N + 1, T + 1)))  # fmt: skip
    level = 0.8 * rng.standard_normal((N + 1, 1)) - rng.standard_normal(T + 1) + noise
    sizes = rng.integers(10, 61, T)
    task = np.repeat(np.arange(T), sizes)
    logit = level[:N, task] - 1.5 * rng.standard_normal(len(task))
    scores = (rng.random(logit.shape) < special.expit(logit)).astype(float)
    share = special.expit(level[..., None] - 1.5 * NODES) @ (WEIGHTS / WEIGHTS.sum())
    return ResponseMatrix.from_array(scores, tasks=[f"t{t}" for t in task]), share


def outcomes(rng, heavy, tails, seed):
    """Whether intervals hold the truth, and widths, by what they are of."""
    matrix, truth = simulated(rng, heavy)
    options = HierarchicalOptions(draws=300, warm_up=240, tails=tails)
    fit = fit_hierarchical(matrix, "shared", rng=seed, options=options)
    place = {name: i for i, name in enumerate(matrix.models)}
    own = truth[:N, :T]
    pairs = [(r, own[place[r.model_b]].mean() - own[place[r.model_a]].mean())
             for r in fit.contrasts()]  # fmt: skip
    found = {
        "cells": [(r, own[place[r.model], int(r.task[1:])]) for r in fit if r.task],
        "models": [(r, own[place[r.model]].mean()) for r in fit if r.task is None],
        "pairs": pairs,
        "new task": list(zip(fit.predict("task", rng=seed), truth[:N, T], strict=True)),
        "new model": [(r, truth[N, int(r.task[1:])]) for r in fit.predict("model", rng=seed)
                      if r.task],
    }  # fmt: skip
    return {
        name: (
            np.mean([row.low <= true <= row.high for row, true in rows]),
            np.mean([row.high - row.low for row, _ in rows]),
        )
        for name, rows in found.items()
    }


def test_intervals_hold_the_truth_on_old_and_new_tasks_and_models():
    rows = []
    for truth in ("normal", "heavy"):
        for name, tails in FITS.items():
            rng = np.random.default_rng(20261123)
            seen = [outcomes(rng, truth == "heavy", tails, i) for i in range(REPLICATIONS)]
            for what in seen[0]:
                held, width = np.array([one[what] for one in seen]).T
                rows.append({
                    "interactions": truth, "fitted": name, "intervals": what,
                    "coverage": round(float(held.mean()), 4),
                    "std_error": round(float(held.std(ddof=1) / len(held) ** 0.5), 4),
                    "width": round(float(width.mean()), 4),
                })  # fmt: skip
    about = {"models": N, "tasks": T, "replications": REPLICATIONS, "level": 0.95}
    FILE.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    for row in rows:
        assert 0.95 - 0.02 - 3 * row["std_error"] <= row["coverage"], row
