"""Are equal slices called worse, and do limits of all slices hold? Writes slices.json.

Drawn designs of 20 equal slices: sizes, difficulty, kind of scores and clusters differ. Each row is
one design; a negative control judges every slice by itself. Gates on slices of equal models do not
call them regressed, and limits of a table of slices hold for all its cells. Limits for values like
those of a setting hold the mean over many values.
"""

from dataclasses import replace

import numpy as np
import pytest
import study

import evalstats_plugin as es
from evalstats_plugin import ResponseMatrix
from evalstats_plugin.hierarchical import HierarchicalOptions
from evalstats_plugin.scores.slices import ALIKE

pytestmark = pytest.mark.validation
K = 20
EVALS = {"binary": 400, "clusters": 60, "graded": 200, "epochs": 60}
DESIGNS = {"binary": 8, "clusters": 3, "graded": 3, "epochs": 3}


def scores_of(kind, rng, n, clusters):
    """Scores of n models, all true means equal, and this mean."""
    mean = rng.choice([0.1, 0.5, 0.8, 0.95])
    spread = rng.uniform(1, 6)
    shape = (n, len(clusters))
    if kind == "binary":
        return (rng.random(shape) < mean) * 1.0, mean
    ability = rng.beta(mean * spread, (1 - mean) * spread, shape)
    if kind == "graded":
        return ability, mean
    if kind == "epochs":
        return (rng.random((*shape, 3)) < ability[..., None]) * 1.0, mean
    return (rng.random(shape) < ability[:, clusters]) * 1.0, mean


def tagged(scores, slices, clusters=None):
    """Responses of the models, shape (N, M) of scores, whose items are in these slices."""
    matrix = ResponseMatrix.from_array(scores, clusters=clusters, metric="acc")
    return [replace(r, tags=slices.astype(str)) for r in matrix.to_responses()]


def drawn(kind, rng):
    """Row of a drawn design."""
    n = EVALS[kind]
    sizes = rng.integers(4, rng.integers(8, 60), K)
    if kind == "clusters":
        # Whole passages of 3 to 6 questions, several in each slice.
        of_slice = np.repeat(np.arange(K), rng.integers(4, 12, K))
        clusters = np.repeat(np.arange(len(of_slice)), rng.integers(3, 7, len(of_slice)))
        slices = of_slice[clusters]
    else:
        slices = np.repeat(np.arange(K), sizes)
        clusters = np.arange(len(slices))
    scores, mean = scores_of(kind, rng, n, clusters)
    own = clusters.astype(str) if kind == "clusters" else None
    rows = es.slices(tagged(scores, slices, own), rng=rng)
    low, high, p = (
        np.array([getattr(row, name) for row in rows], dtype=float).reshape(n, K)
        for name in ("low", "high", "p_worse")
    )
    return {
        "kind": kind, "n_items": len(slices), "smallest": int(np.bincount(slices).min()),
        "mean": float(mean), "evals": n,
        "coverage": float(study.holds(low, high, mean).all(axis=1).mean()),
        "false_worst": float((p.min(axis=1) <= 0.05).mean()),
        "false_unadjusted": float((p.min(axis=1) < 1).mean()),  # Holm: K p below 1
    }  # fmt: skip


def test_slices():
    rng = study.Streams("slices")("designs")
    rows = [drawn(kind, rng) for kind, n in DESIGNS.items() for _ in range(n)]
    study.write_figures("slices", {"designs": lambda: rows})
    for kind in DESIGNS:
        own = [row for row in rows if row["kind"] == kind]
        evals = sum(row["evals"] for row in own)
        for what, least in (("coverage", 0.94), ("false_worst", None)):
            share = float(np.average([row[what] for row in own]))
            error = 3 * np.sqrt(0.05 * 0.95 / evals)  # eight are looked at
            assert share >= least - error if least else share <= 0.05 + error, (kind, what, share)
    assert np.mean([row["coverage"] for row in rows]) >= 0.94
    assert np.mean([row["false_worst"] for row in rows]) <= 0.05
    assert np.mean([row["false_unadjusted"] for row in rows]) > 0.2


def gated(rng):
    """Row of a drawn design in which a candidate is as good as its baseline."""
    n_slices = int(rng.integers(3, 16))
    slices = np.repeat(np.arange(n_slices), rng.integers(4, rng.integers(8, 60), n_slices))
    mean, spread, evals = rng.choice([0.3, 0.5, 0.8, 0.95]), rng.uniform(1, 6), 50
    regressed = covered = missed = 0
    for _ in range(evals):
        ability = rng.beta(mean * spread, (1 - mean) * spread, len(slices))
        scores = (rng.random((2, len(slices))) < ability) * 1.0
        gate = es.gate(tagged(scores, slices), baseline="model_0", by="slice")
        regressed += gate.decision == "regressed"
        alone = [es.compare(tagged(scores[:, own], slices[own]))[0] for own in
                 (slices == k for k in range(n_slices))]  # fmt: skip
        missed += any(row.verdict == "worse" for row in alone)
        cells = es.table(tagged(scores, slices), by="slice")
        low, high = (
            np.array([getattr(c, name) for c in cells if c.kind == "task"], dtype=float)
            for name in ("low", "high")
        )
        covered += bool(study.holds(low, high, mean).all())
    return {
        "n_items": len(slices), "n_slices": n_slices, "mean": float(mean), "evals": evals,
        "false_regressed": regressed / evals, "false_unadjusted": missed / evals,
        "table_coverage": covered / evals,
    }  # fmt: skip


def test_gates_and_tables_of_slices():
    rng = study.Streams("slices")("gates")
    rows = [gated(rng) for _ in range(8)]
    study.write_figures("slices_of_gates", {"designs": lambda: rows})
    error = 2 * np.sqrt(0.05 * 0.95 / sum(row["evals"] for row in rows))
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    assert mean["false_regressed"] <= 0.05 + error
    assert mean["false_unadjusted"] > mean["false_regressed"]
    assert mean["table_coverage"] >= 0.95 - error


def pooled(rng, of_fits):
    """Row of a drawn design of slices, of which some are small, that are pooled."""
    n_slices, n_models = int(rng.integers(3, 25)), int(rng.choice([1, 1, 2, 3, 5]))
    sizes = rng.integers(3, rng.integers(6, 50), n_slices)
    slices = np.repeat(np.arange(n_slices), sizes)
    level, between, hardness, apart = (
        rng.normal(0.8, 1.2), rng.uniform(0, 1.5), rng.uniform(0, 2), rng.uniform(0, 0.6)
    )  # fmt: skip
    held, alone_held, chance_held, widths = [], [], [], []
    for _ in range(3):
        ability = level + rng.uniform(0, 1) * rng.normal(0, 1, (n_models, 1))
        ability = ability + rng.normal(0, between, n_slices)
        ability = ability + (n_models > 1) * rng.normal(0, apart, (n_models, n_slices))
        nodes = hardness * NODES
        truth = (SHARES / (1 + np.exp(-ability[..., None] - nodes))).sum(axis=-1)
        items = rng.normal(0, hardness, len(slices))
        chance = 1 / (1 + np.exp(-ability[:, slices] - items))
        responses = tagged((rng.random(chance.shape) < chance) * 1.0, slices)
        fit = es.pool(responses, by="slice", rng=of_fits,
                      options=HierarchicalOptions(draws=400, warm_up=200))  # fmt: skip
        place = {(f"model_{i}", str(k)): (i, k) for i in range(n_models) for k in range(n_slices)}
        rows = [row for row in fit if row.task is not None]
        own = np.array([truth[place[row.model, row.task]] for row in rows])
        low, high = (np.array([getattr(row, name) for row in rows]) for name in ("low", "high"))
        by_place = {
            (row.model, row.slice): row
            for row in es.slices(responses, by="slice", confidence_level=0.95**n_slices)
        }
        each = [by_place[row.model, row.task] for row in rows]
        held.append(study.holds(low, high, own).mean())
        alone = np.array([[row.low, row.high] for row in each])
        alone_held.append(study.holds(*alone.T, own).mean())
        widths.append((high - low).mean() / np.diff(alone).mean())
        # Nothing between slices is believed: the mean of all items, with its own interval.
        whole = {row.model: row for row in fit if row.task is None}
        limits = np.array([[whole[row.model].low, whole[row.model].high] for row in rows])
        chance_held.append(study.holds(*limits.T, own).mean())
    return {
        "kind": "pooled", "n_models": n_models, "n_slices": n_slices, "n_items": len(slices),
        "smallest": int(sizes.min()), "between": float(between), "pooled": float(np.mean(held)),
        "exact": float(np.mean(alone_held)), "width": float(np.mean(widths)),
        "all_slices_alike": float(np.mean(chance_held)),
    }  # fmt: skip


def test_pooled_slices():
    """Limits of each slice hold; to take all slices for one, the negative control, does not."""
    streams = study.Streams("slices")
    rng, of_fits = streams("pooled"), streams("fits of pooled")
    rows = [pooled(rng, of_fits) for _ in range(200)]
    study.write_figures("slices_pooled", {"designs": lambda: rows})
    of = {
        name: np.array([row[name] for row in rows])
        for name in ("pooled", "width", "all_slices_alike", "between")
    }
    assert of["pooled"].mean() >= 0.94
    assert np.quantile(of["pooled"], 0.01) >= 0.85
    assert of["width"].mean() < 0.9
    assert of["all_slices_alike"][of["between"] > 0.7].mean() < 0.7


NODES, SHARES = np.polynomial.hermite_e.hermegauss(60)
SHARES /= SHARES.sum()


def mean_score(ability, spread):
    """Mean of a logistic score over items of variance 1 and values of a setting."""
    return float((SHARES / (1 + np.exp(-ability - NODES * np.hypot(1, spread)))).sum())


def at_values(n_items, n_values, spread, ability, rng):
    """Row of a design of two models at several values of a setting, drawn anew in each eval."""
    evals, held, apart, alike, better, at_another = 60, 0, 0, 0, [], []
    gap = mean_score(ability + 0.3, spread) - mean_score(ability, spread)
    for _ in range(evals):
        items = rng.normal(0, 1, n_items)
        runs = [
            replace(r, tags=np.full(n_items, str(value)))
            for model, own in (("a", ability), ("b", ability + 0.3))
            for value, effect in enumerate(rng.normal(0, spread, n_values))
            for r in ResponseMatrix.from_array(
                (rng.random((1, n_items)) < 1 / (1 + np.exp(-items - own - effect))) * 1.0,
                models=[model], metric="acc",
            ).to_responses()
        ]  # fmt: skip
        (score, *_) = (row for row in es.slices(runs) if row.slice == ALIKE)
        (pair,) = (row for row in es.compare_slices(runs) if row.slice == ALIKE)
        held += score.low <= mean_score(ability, spread) <= score.high
        apart += pair.low <= gap <= pair.high
        alike += pair.p_interaction <= 0.05
        assert (pair.p_adjusted <= 0.05) == (not pair.low <= 0 <= pair.high)
        new = rng.normal(0, spread, 2) + ability
        better.append(mean_score(new[1] + 0.3, 0) > mean_score(new[0], 0))
        at_another.append(pair.prob_better)
    return {
        "n_items": n_items, "n_values": n_values, "spread": spread, "ability": ability,
        "evals": evals, "coverage": held / evals, "coverage_of_difference": apart / evals,
        "called_different": alike / evals, "better_at_another_value": float(np.mean(better)),
        "probability_given": float(np.mean(at_another)),
    }  # fmt: skip


def test_values_like_these():
    rng = study.Streams("slices")("values")
    designs = [(60, 3, 0.0, 1), (200, 2, 0.3, 0), (200, 3, 0.3, 0), (200, 5, 0.3, 1),
               (100, 5, 0.1, 2), (300, 8, 0.5, 0), (40, 4, 0.5, 2)]  # fmt: skip
    rows = [at_values(*design, rng) for design in designs]
    study.write_figures("values_like_these", {"designs": lambda: rows})
    error = 2 * np.sqrt(0.05 * 0.95 / sum(row["evals"] for row in rows))
    for what in ("coverage", "coverage_of_difference"):
        assert np.mean([row[what] for row in rows]) >= 0.95 - error
        assert min(row[what] for row in rows) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 60)
    assert rows[0]["called_different"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    # Nobody is told of more certainty than there is.
    assert all(row["probability_given"] <= row["better_at_another_value"] + 0.1 for row in rows)
