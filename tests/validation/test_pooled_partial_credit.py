"""Partial credit and epochs in pool: coverage, and width beside that with the true dispersion.

Writes fixtures/validation/pooled_partial_credit.json: for each of 20 drawn designs (models, tasks,
items, spread of scores; Beta scores, eighths, four epochs) the coverage of 95 % limits of each
score, and their width beside that of limits that know the dispersion; also of limits that take a
score for a share of one right answer, as a control.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.hierarchical.data import eval_counts
from evalstats_plugin.hierarchical.engines.posterior import shares

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "pooled_partial_credit.json"
DESIGNS, REPLICATIONS = 20, 600
STEPS = {"beta": np.inf, "eighths": 8, "epochs": 4}


def limits(right, trials):
    found = shares(right, trials, pooled=False)
    return found.quantile(0.025), found.quantile(0.975)


def drawn(kind, p, concentration, rng):
    """Scores of items with Beta probabilities, (models, items, epochs)."""
    x = rng.beta(p * concentration, (1 - p) * concentration)
    if kind == "epochs":
        return 1.0 * (rng.random((*x.shape, 4)) < x[..., None])
    return (rng.binomial(8, x) / 8 if kind == "eighths" else x)[..., None]


def design(number):
    """Coverage and relative widths in one design."""
    rng = np.random.default_rng([42, number])
    models, tasks = rng.integers(1, 6), rng.integers(1, 7)
    items, concentration = rng.integers(15, 80, tasks), rng.uniform(0.5, 8)
    kind = str(rng.choice(list(STEPS)))
    share = special.expit(rng.normal(0.3, 0.6, (models, 1)) + rng.normal(0, 0.8, tasks))
    within = 1 / (concentration + 1)
    dispersion = within + (1 - within) / STEPS[kind]
    place = np.repeat(np.arange(tasks), items)
    covered, width, cautious = [], [], []
    for _ in range(REPLICATIONS):
        scores = drawn(kind, share[:, place], concentration, rng)
        counts = eval_counts(ResponseMatrix.from_array(scores, tasks=[f"t{t}" for t in place]))
        low, high = limits(*counts.informative)
        covered.append(float(((low <= share) & (share <= high)).mean()))
        known, plain = (limits(counts.right / x, counts.trials / x) for x in (dispersion, 1.0))
        width.append((high - low).sum() / (known[1] - known[0]).sum())
        cautious.append((plain[1] - plain[0]).sum() / (known[1] - known[0]).sum())
    return {
        "kind": kind,
        "models": int(models),
        "items": items.tolist(),
        "dispersion": round(float(dispersion), 3),
        "coverage": round(float(np.mean(covered)), 4),
        "error": round(float(np.std(covered)) / REPLICATIONS**0.5, 4),
        "width": round(float(np.mean(width)), 3),
        "width_of_shares": round(float(np.mean(cautious)), 3),
    }


def test_limits_cover_and_are_as_narrow_as_with_the_true_dispersion():
    rows = [design(i) for i in range(DESIGNS)]
    FILE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    coverage = np.array([r["coverage"] for r in rows])

    assert coverage.min() > 0.93
    assert coverage.max() < 0.97
    assert all(0.9 < r["width"] < 1.1 for r in rows)
    # The control: what a share of one right answer costs.
    assert np.mean([r["width_of_shares"] for r in rows]) > 1.4
