"""Are equal slices called worse, and do limits of all slices hold? Writes slices.json.

Drawn designs of 20 equal slices: sizes, difficulty, kind of scores and clusters differ. Each row is
one design; a negative control judges every slice by itself.
"""

import numpy as np
import pytest
import study

import evalstats_plugin as es
from evalstats_plugin import ResponseMatrix

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
    labels = ResponseMatrix.from_array(scores, clusters=slices.astype(str), metric="acc")
    own = clusters.astype(str) if kind == "clusters" else None
    rows = es.slices(ResponseMatrix.from_array(scores, clusters=own, metric="acc"), labels, rng=rng)
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
