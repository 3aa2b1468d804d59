"""Do intervals of contrasts between models hold the truth, and are they worth the pooling?

Writes fixtures/validation/hierarchical_coverage.json. Simulated evals with fixed seeds: 8 models on
6 tasks of 10 to 60 questions, effects drawn anew each time from σ_λ = .4, σ_τ = .8, σ_μ = .25.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines import posterior
from evalstats_plugin.hierarchical.engines.crossed import CROSSED_MODELS, fit_crossed
from evalstats_plugin.runtime import ChainLength

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "hierarchical_coverage.json"
SIZES = np.array([10, 15, 20, 30, 40, 60])
N, REPLICATIONS = 8, 500
A, B = np.triu_indices(N, 1)


def simulated(rng):
    level = 0.3 + 0.4 * rng.normal(size=(N, 1)) - 0.8 * rng.normal(size=len(SIZES))
    p = special.expit(level + 0.25 * rng.normal(size=(N, len(SIZES))))
    return p, rng.binomial(SIZES, p).astype(float), np.tile(1.0 * SIZES, (N, 1))


def pooled(right, trials, rng):
    t = right.shape[1]
    data = Counts(right, trials, np.arange(t), np.zeros((N, 0)), np.zeros((t, 0)))
    length = ChainLength(chains=4, draws=160, warm_up=240)
    return fit_crossed(data, CROSSED_MODELS["task"], rng, length).accuracy


def apart(right, trials, rng):
    shares = posterior.shares(right, trials, pooled=False)
    return posterior.draw(shares, right, trials, (4, 500), rng).accuracy


def limits(draws, narrowed=1.0):
    flat = draws.reshape(-1, *draws.shape[2:])
    low, high = np.quantile(flat, [0.025, 0.975], axis=0)
    middle = flat.mean(0)
    return middle + narrowed * (low - middle), middle + narrowed * (high - middle)


def outcome(draws, truth, narrowed=1.0):
    """Whether each contrast is held, and how wide; over all tasks and on each."""
    found = {}
    difference, true = draws[:, :, B] - draws[:, :, A], truth[B] - truth[A]
    for what, of, actual in (
        ("overall", difference.mean(3), true.mean(1)), ("task", difference, true)
    ):  # fmt: skip
        low, high = limits(of, narrowed)
        found[what] = ((low <= actual) & (actual <= high)).mean(), (high - low).mean()
    return found


def test_contrasts_are_covered_and_narrower_than_without_pooling():
    """Control: the same limits, a quarter narrower, fall out of the band."""
    rng = np.random.default_rng(8)
    seen = {}
    for _ in range(REPLICATIONS):
        truth, right, trials = simulated(rng)
        draws = pooled(right, trials, rng)
        cases = {"pooled": (draws, 1.0), "pooled, limits a quarter narrower": (draws, 0.75)}
        cases["per-task"] = apart(right, trials, rng), 1.0
        for name, (values, narrowed) in cases.items():
            for what, pair in outcome(values, truth, narrowed).items():
                seen.setdefault((name, what), []).append(pair)
    rows = []
    for (name, what), pairs in seen.items():
        coverage, width = np.array(pairs).T
        rows.append(
            {"intervals": name, "contrast": what, "coverage": float(coverage.mean())}
            | {"std_error": float(coverage.std(ddof=1) / len(coverage) ** 0.5)}
            | {"width": float(width.mean())}
        )
    about = {"models": N, "sizes": SIZES.tolist(), "replications": REPLICATIONS, "level": 0.95}
    FILE.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    by = {(row["intervals"], row["contrast"]): row for row in rows}
    for what in ("overall", "task"):
        assert 0.93 <= by["pooled", what]["coverage"] <= 0.97
        assert by["pooled", what]["width"] < by["per-task", what]["width"]
        assert by["pooled, limits a quarter narrower", what]["coverage"] < 0.93
