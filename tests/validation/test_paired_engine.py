"""The one engine of paired differences on randomly drawn designs.

Writes fixtures/validation/paired_engine.json, of 200 designs from `random_designs`, at six sizes.
Beside the engine: Student's t, studentised sign flips, and as controls a t that takes half of its
standard error (it must find too much) and one that takes twice (it must find nothing).
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import random_designs
import study
from scipy import stats

from evalstats_plugin.stats.clustered import t_cr2
from evalstats_plugin.stats.differences import Differences, _Rows, distance
from evalstats_plugin.stats.power import simulated_power, t_power

pytestmark = pytest.mark.validation
SIZES = (6, 10, 20, 50, 100, 300)
DESIGNS, FLIPS, LEVEL = 200, 199, 0.95
Z = float(stats.norm.ppf(0.975))


def deviates(x, at):
    """Φ⁻¹(P(M ≤ at)) by the engine, 0 where nothing differs."""
    if not at.any():
        return Differences(x, span=1.0).deviate
    scale = np.abs(x).max(axis=1)
    unit = np.where(scale > 0, scale, 1.0)
    y = x / unit[:, None]
    far = np.where(scale > 0, distance(y), 1.0)
    found = np.empty(len(x))
    step = max(80_000 // x.shape[1], 1)
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        rows = _Rows(y[part], None, None, far[part])
        found[part] = rows.deviate((at / unit)[part])
    return found


def student(x, at, factor=1.0):
    mean, error = x.mean(axis=1), x.std(axis=1, ddof=1) / np.sqrt(x.shape[1])
    half = stats.t.ppf(0.975, x.shape[1] - 1) * error * factor
    return np.abs(mean - at) > half + 1e-12


def flips(x, at):
    """Studentised sign flips: of Σx/√Σx², which flips leave alone but for the sum."""
    n = x.shape[1]
    signs = np.random.default_rng(n).choice([-1.0, 1.0], size=(n, FLIPS)).astype(np.float32)
    y = (x - at[:, None]).astype(np.float32)
    seen = np.abs(y.sum(axis=1)) * (1 - 1e-6)
    reached = (np.abs(y @ signs) >= seen[:, None]).sum(axis=1)
    return (1 + reached) / (FLIPS + 1) <= 0.05


METHODS = {
    "engine": lambda x, at: np.abs(deviates(x, at)) >= Z,
    "t": student,
    "flips": flips,
    "half of t": lambda x, at: student(x, at, 0.5),
    "twice t": lambda x, at: student(x, at, 2.0),
}


def rows_of(seed, n_null, n_other):
    """Rejections of 0 and of the truth of one design, at every size."""
    made = random_designs.design(seed)
    rng = np.random.default_rng([seed, 1])
    rows = []
    for n in SIZES:
        for truth in random_designs.TRUTHS:
            values, mean = made.population(truth, n)
            count = n_null if truth == "null" else n_other
            x = values[rng.integers(0, len(values), (count, n))]
            row = {"design": seed, "kind": made.kind, "n": n, "truth": truth, "runs": count}
            for name, reject in METHODS.items():
                part = x[:n_other] if name != "engine" else x
                at = np.full(len(part), mean)
                row[f"{name}: misses"] = float(reject(part, at).mean())
                if truth == "shift":
                    row[f"{name}: finds"] = float(reject(part, 0 * at).mean())
            if truth == "shift":
                row |= scores_of_limits(x[:200], mean)
            rows.append(row)
    return rows


def scores_of_limits(x, mean):
    """Mean interval scores of the engine and of t, and widths."""
    ours = Differences(x, span=1.0).limits(Z)
    half = stats.t.ppf(0.975, x.shape[1] - 1) * x.std(axis=1, ddof=1) / np.sqrt(x.shape[1])
    other = x.mean(axis=1) - half, x.mean(axis=1) + half
    found = {}
    for name, (low, high) in (("engine", ours), ("t", other)):
        out = np.maximum(low - mean, 0) + np.maximum(mean - high, 0)
        found[f"{name}: width"] = float((high - low).mean())
        found[f"{name}: score"] = float((high - low + 40 * out).mean())
    return found


def summary(rows):
    """Worst cases and quantiles by size, which the documentation quotes."""
    found = []
    for n in SIZES:
        some = [row for row in rows if row["n"] == n]
        for name in METHODS:
            row = {"n": n, "method": name, "designs": len({r["design"] for r in some})}
            null = np.array([r[f"{name}: misses"] for r in some if r["truth"] == "null"])
            row |= {"type_1_mean": null.mean(), "type_1_p99": np.quantile(null, 0.99),
                    "type_1_worst": null.max()}  # fmt: skip
            for truth in ("shift", "shape", "weak"):
                for rare in (False, True):
                    missed = [r[f"{name}: misses"] for r in some
                              if r["truth"] == truth and (r["kind"] == "rare") == rare]  # fmt: skip
                    key = f"coverage_{truth}" + ("_rare" if rare else "")
                    row |= {f"{key}_p1": 1 - np.quantile(missed, 0.99),
                            f"{key}_worst": 1 - max(missed)}  # fmt: skip
            if name == "engine":
                row |= power_of(some)
            found.append({k: v if isinstance(v, (str, int)) else float(v) for k, v in row.items()})
    return found


def power_of(some):
    """Power over the better of t and flips, where these find no more than 7 % of equal models."""
    valid = {(r["design"], r["truth"]): r for r in some}
    ratios = {True: [], False: []}
    scores = []
    for row in some:
        if row["truth"] != "shift":
            continue
        others = [
            row[f"{name}: finds"]
            for name in ("t", "flips")
            if max(valid[row["design"], k][f"{name}: misses"] for k in ("null", "weak")) <= 0.07
        ]
        if others and max(others) > 0.1:
            ratios[row["kind"] == "rare"].append(row["engine: finds"] / max(others))
        if row["t: score"] > 0:
            scores.append(row["engine: score"] / row["t: score"])
    return {
        "power_ratio_least": min(ratios[False]), "power_ratio_median": np.median(ratios[False]),
        "power_ratio_rare_least": min(ratios[True], default=np.nan),
        "score_ratio": np.exp(np.mean(np.log(scores))),
    }  # fmt: skip


def planned(designs=30, size=20_000, runs=4000):
    """Power that a pilot promises for its own difference, and that is reached."""
    rows = []
    for seed in range(designs):
        made = random_designs.design(seed)
        n = (10, 20, 50)[seed % 3]
        values, mean = made.population("shift", n)
        rng = np.random.default_rng([seed, 2])
        pilot = values[rng.integers(0, len(values), size)]
        x = values[rng.integers(0, len(values), (runs, n))]
        rows.append({
            "design": seed, "kind": made.kind, "n": n,
            "promised": simulated_power(pilot, n, mean, tail=0.025),
            "by_t": float(t_power(np.array([n]), mean, values.var(), tail=0.025)[0]),
            "reached": float(np.mean(np.abs(deviates(x, np.zeros(runs))) >= Z)),
        })  # fmt: skip
    return rows


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
        at = np.zeros(runs)
        found = {name: float(f(b - a, at).mean()) for name, f in METHODS.items()}
        rows.append({"case": "1 % fail by .4", "n": n, "runs": runs} | found)
    up = np.repeat([0.1, 0.0], [12, 28])[None]
    rows.append({"case": "12 up a tenth, 28 alike", "n": 40, "runs": 1,
                 "p": float(Differences(up, span=1.0).p_value[0])})  # fmt: skip
    return rows


def test_random_designs():
    n_null, n_other = 2000, 1000
    rows = [row for seed in range(DESIGNS) for row in rows_of(seed, n_null, n_other)]
    write(rows)


def write(rows):
    """Write the figures of rows by design, and of the other studies."""
    study.write_figures("paired_engine", {
        "sizes": lambda: summary(rows), "named": named_cases, "power": planned,
        "clusters": clustered, "families": families, "tables": tables,
    })  # fmt: skip


if __name__ == "__main__":
    out, n_null, n_other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows = []
    for seed in range(DESIGNS):
        rows += rows_of(seed, n_null, n_other)
        if seed % 10 == 9:
            Path(out).write_text(json.dumps(rows), encoding="utf-8")
