"""The one engine of paired differences on randomly drawn designs.

Writes fixtures/validation/paired_engine.json: errors, coverage and power of 200 designs from
`random_designs` at six sizes come from the cells of `paired_study`, which
`python tests/validation/test_paired_engine.py FILE` takes from a file where they were made before.
"""

import os
import sys

import numpy as np
import paired_study
import pytest
import random_designs
import study
from planned_designs import promised_and_reached

from evalstats_plugin.stats.clustered import t_cr2
from evalstats_plugin.stats.pairs.differences import Differences

pytestmark = pytest.mark.validation
SIZES = (6, 10, 20, 50, 100, 300)
Z = paired_study.Z


def summary(cells):
    """Worst cases and quantiles over designs by size and test, which the documentation quotes."""
    rows = []
    for n in SIZES:
        some = [cell for cell in cells.values() if cell["n"] == n and cell["passes"]]
        for name in paired_study.METHODS:
            row = {"n": n, "method": name, "designs": len(some)}
            null = [_rate(cell, "null", name) for cell in some]
            row["runs"] = min(cell["truths"]["null"][name]["runs"] for cell in some)
            row |= {"type_1_mean": np.mean(null), "type_1_p99": np.quantile(null, 0.99),
                    "type_1_worst": max(null)}  # fmt: skip
            for truth in ("shift", "shape", "weak"):
                for rare in (False, True):
                    missed = [
                        _rate(cell, truth, name) for cell in some
                        if (cell["kind"] == "rare") == rare and name in cell["truths"][truth]
                    ]  # fmt: skip
                    key = f"coverage_{truth}" + ("_rare" if rare else "")
                    if missed:
                        row |= {f"{key}_p1": 1 - np.quantile(missed, 0.99),
                                f"{key}_worst": 1 - max(missed)}  # fmt: skip
            row |= powers(some, name)
            rows.append({k: v if isinstance(v, (str, int)) else float(v) for k, v in row.items()})
    return rows


def _rate(cell, truth, name, what="misses"):
    counts = cell["truths"][truth][name]
    return counts[what] / counts["runs"]


def powers(some, name):
    """Power and interval score over those of others.

    Power is over the better of t and flips, of those that find no more than 7 % of equal models;
    interval scores are over those of t.
    """
    ratios, scores = {True: [], False: []}, []
    for cell in some:
        valid = [
            _rate(cell, "shift", other, "finds") for other in ("t", "flips")
            if max(_rate(cell, truth, other) for truth in ("null", "weak")) <= 0.07
        ]  # fmt: skip
        if valid and max(valid) > 0.1:
            ratio = _rate(cell, "shift", name, "finds") / max(valid)
            ratios[cell["kind"] == "rare"].append(ratio)
        shifted = cell["truths"]["shift"]
        # 0.2.0 has a design of 300 items for which it finds no limit.
        if np.isfinite(shifted[name].get("score", np.nan)) and shifted["t"]["score"] > 0:
            scores.append(_rate(cell, "shift", name, "score") / _rate(cell, "shift", "t", "score"))
    found = {
        "power_ratio_least": min(ratios[False]), "power_ratio_median": np.median(ratios[False])
    }  # fmt: skip
    if ratios[True]:
        found["power_ratio_rare_least"] = min(ratios[True])
    if scores:
        found["score_ratio"] = np.exp(np.mean(np.log(scores)))
    return found


def worst_cells(cells, count=10):
    """Designs with the most false findings by the engine, with those of other tests beside it."""
    every = [cell for cell in cells.values() if cell["passes"] and cell["n"] >= 20]
    every.sort(key=lambda cell: -_rate(cell, "null", "engine"))
    return [
        {"design": cell["design"], "kind": cell["kind"], "n": cell["n"],
         "runs": cell["truths"]["null"]["engine"]["runs"]}
        | {name: _rate(cell, "null", name) for name in paired_study.METHODS}
        for cell in every[:count]
    ]  # fmt: skip


def planned(designs=160):
    """Power that a large pilot promises, and that is reached, of every kind of comparison."""
    return [promised_and_reached(seed) for seed in range(designs)]


def clustered(designs=40, runs=250):
    """Coverage of clusters of unequal sizes, beside the clustered t."""
    rows = []
    for n in (5, 8, 15, 30):
        misses = {"engine": [], "t_cr2": []}
        widths = {"engine": [], "t_cr2": []}
        for seed in range(designs):
            made, rng = random_designs.design(seed), np.random.default_rng([seed, n])
            if made.rare:
                continue
            a, b = made.pair(n * runs, rng, other=float(seed % 2), clustered=True)
            size = made.cluster_size
            sizes = rng.integers(1, size + 1, (runs, n))
            x = (b - a).reshape(runs, n, size)
            totals = np.where(np.arange(size) < sizes[:, :, None], x, 0.0).sum(axis=2)
            first, second = made.pair(20_000, rng, other=float(seed % 2), clustered=True)
            truth = (second - first).mean()
            limits = {
                "engine": Differences(totals, sizes=sizes * 1.0, span=1.0).limits(Z),
                "t_cr2": t_cr2(totals, sizes, confidence_level=0.95),
            }
            for name, (low, high) in limits.items():
                misses[name].append(1 - study.holds(low, high, truth).mean())
                widths[name].append(float(np.nanmean(high - low)))
        rows += [
            {"clusters": n, "method": name, "coverage": 1 - float(np.mean(found)),
             "coverage_worst": 1 - max(found), "width": float(np.median(widths[name])),
             "designs": len(found), "runs": runs}
            for name, found in misses.items()
        ]  # fmt: skip
    return rows


FAMILIES = {
    "right": lambda _, item, own: (item + own > 0) * 1.0,
    "judge": lambda _, item, own: np.clip(np.round(5 + 2 * (item + own)), 0, 9) / 9,
    "rare": lambda rng, _, own: 0.8 + 0.02 * own - 0.4 * (rng.random(own.shape) < 0.02),
    "heavy": lambda rng, _, own: 0.5 + 0.02 * rng.standard_t(3, size=own.shape),
}


def families(runs=300, draws=999):
    """False findings among ten models, all pairs at once and each alone, and joint coverage."""
    a, b = np.triu_indices(10, 1)
    rows = []
    for k, (kind, n) in enumerate((("right", 100), ("right", 15), ("judge", 30), ("rare", 100),
                                   ("heavy", 12))):  # fmt: skip
        rng = np.random.default_rng([11, k])
        found = np.zeros(3)
        for _ in range(runs):
            item, own = rng.normal(size=n), rng.normal(size=(10, n))
            scores = FAMILIES[kind](rng, item, own)
            pairs = study.all_pairs(scores, a, b, n_draws=draws)
            low, high = pairs.limits(0.05)
            found += (
                (pairs.p_values <= 0.05).any(),
                (pairs.pairs.p_value <= 0.05).any(),
                (study.holds(low, high, 0.0).all()),
            )
        together, alone, covered = (found / runs).tolist()
        rows.append({"scores": kind, "n": n, "runs": runs, "false_finding": together,
                     "uncorrected": alone, "coverage": covered})  # fmt: skip
    return rows


def tables(count=2000):
    """Generated tables: adjusted p-values below their own, and verdicts that limits contradict."""
    rng = np.random.default_rng(12)
    below = against = pairs = 0
    for _ in range(count):
        n, m = int(rng.integers(3, 6)), int(rng.choice([5, 12, 40]))
        level = rng.integers(1, 11)
        scores = np.round(rng.random((n, m)) ** rng.uniform(0.3, 3) * level) / level
        a, b = np.triu_indices(n, 1)
        found = study.all_pairs(scores, a, b, n_draws=499)
        low, high = found.limits(0.05)
        clear = np.abs(np.abs(found.deviate) - found.critical(0.05)) > 1e-5
        below += int((found.p_values < found.pairs.p_value).sum())
        against += int((((found.p_values <= 0.05) != ((low > 0) | (high < 0))) & clear).sum())
        pairs += len(a)
    return [{"tables": count, "pairs": pairs, "below_own": below, "contradictions": against}]


def named_cases(runs=4000):
    """Designs that earlier defaults failed on."""
    rng = np.random.default_rng(7)
    rows = []
    for n in (100, 200):
        base = 0.85 + 0.05 * rng.normal(size=(runs, n))
        a, b = (
            np.clip(base + 0.01 * rng.normal(size=base.shape)
                    - 0.4 * (rng.random(base.shape) < 0.01), 0, 1)
            for _ in range(2)
        )  # fmt: skip
        x = b - a
        tests = ("engine", "t", "flips", "half of t", "twice t", "0.2.0", "formula")
        misses = {
            name: paired_study.outcomes(name, a, b, x, 0.0)["misses"].mean() for name in tests
        }
        rows.append({"case": "1 % fail by .4", "n": n, "runs": runs} | misses)
    up = np.repeat([0.1, 0.0], [12, 28])[None]
    rows.append({"case": "12 up a tenth, 28 alike", "n": 40, "runs": 1,
                 "p": float(Differences(up, span=1.0).p_value[0])})  # fmt: skip
    return rows


def write(cells):
    """Write the figures of cells, and of the other studies."""
    study.write_figures("paired_engine", {
        "sizes": lambda: summary(cells), "worst": lambda: worst_cells(cells),
        "named": named_cases, "power": planned, "clusters": clustered, "families": families,
        "tables": tables,
    })  # fmt: skip


def test_random_designs(tmp_path):
    write(paired_study.run(tmp_path / "cells.json", workers=os.cpu_count(), passes=1))


if __name__ == "__main__":
    write(paired_study.read(sys.argv[1]))
