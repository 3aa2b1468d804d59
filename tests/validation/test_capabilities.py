"""Planted capabilities: found again, and answers held out predicted, beside simpler models.

Writes fixtures/validation/capabilities.json. F = 6 features, one or two per item; a fifth of the
cells is held out. `oracle` is what the true probabilities reach. Seconds are CPU seconds.
"""

import time
from functools import partial

import numpy as np
import pytest
from scipy import special
from study import write_figures

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.hierarchical.capabilities import (
    compare_held_out,
    fit_capabilities,
    matched,
    stability,
)
from evalstats_plugin.irt.estimators.factor import fit_factor
from evalstats_plugin.irt.estimators.frozen import (
    fit_curves,
    predict_held_out,
    score_held_out,
    weighted_auc,
)
from evalstats_plugin.irt.model.curves import rotation_matrix
from evalstats_plugin.irt.model.data import counts_of
from evalstats_plugin.irt.model.masks import random_entries
from evalstats_plugin.stats.streams import stream

pytestmark = pytest.mark.validation
SIZES = ((60, 1500, 0), (60, 1500, 1), (30, 2000, 1), (200, 1000, 2))
FEATURES = 6
SPLIT = "answers held out of capabilities"
"""Stream of the cells that `compare_held_out` holds out."""


def planted(n, m, seed, n_features=FEATURES):
    """Performances N(0, .8²), capabilities N(0, 1.2²), codes Gamma(4, .25) of one or two each."""
    r = np.random.default_rng(seed)
    performance, capability = 0.8 * r.normal(size=n), 1.2 * r.normal(size=(n, n_features))
    order = r.permuted(np.tile(np.arange(n_features), (m, 1)), axis=1)
    has = (order == 0) | ((order == 1) & (r.random((m, 1)) < 0.5))
    code = np.where(has, r.gamma(4, 0.25, (m, n_features)), 0)
    logit = performance[:, None] + r.normal(size=m) + capability @ code.T
    p = special.expit(logit)
    return (r.random((n, m)) < p) * 1.0, capability, code, p


def held_out():
    rows = []
    for n, m, seed in SIZES:
        scores, _, _, p = planted(n, m, seed)
        matrix = ResponseMatrix.from_array(scores)
        split = random_entries(np.ones((n, m), bool), rng=stream(seed, SPLIT))
        right = scores[split.test]
        oracle = weighted_auc(p[split.test], right, 1 - right)
        counts = counts_of(matrix, device="cpu")
        simpler = {
            "rasch": partial(fit_curves, kind="rasch"),
            "dense": partial(
                fit_factor, n_dimensions=FEATURES, ridge="auto", rng=stream(seed, "ridges")
            ),
        }
        for name in (*simpler, "sparse"):
            start = time.process_time()
            if name == "sparse":
                found = compare_held_out(matrix, FEATURES, rng=seed, device="cpu")[1]
            else:
                predicted = predict_held_out(simpler[name], counts, split)
                found = score_held_out(counts, predicted, split.test)
            rows.append({
                "models": n, "items": m, "seed": seed, "item_model": name, "auc": found.auc,
                "log_loss": found.log_loss, "oracle_auc": oracle,
                "cpu_seconds": round(time.process_time() - start, 1),
            })  # fmt: skip
    return rows


def recovered():
    """Cosines with the planted capabilities, with their sign but of the dense model."""
    rows = []
    for n, m, seed in SIZES:
        scores, capability, code, _ = planted(n, m, seed)
        matrix = ResponseMatrix.from_array(scores)
        same = {"models": n, "items": m, "seed": seed}
        dense = fit_factor(counts_of(matrix, device="cpu"), FEATURES, 30.0)
        turned = dense.ability.numpy() @ rotation_matrix(dense.loading.numpy(), "varimax")
        for name, ability in (("dense", dense.ability.numpy()), ("dense, varimax", turned)):
            both = np.hstack([ability, -ability])
            cosine = matched(both, capability)[1]
            rows.append({**same, "fit": name, "mean_cosine": cosine.mean(),
                         "least_cosine": cosine.min()})  # fmt: skip
        for asked in (FEATURES, 2 * FEATURES):
            start = time.process_time()
            fit = fit_capabilities(matrix, asked, rng=0, device="cpu")
            spent = time.process_time() - start
            place, cosine = matched(fit.capability, capability)
            mine, truth = fit.code[:, place] > 0.25, code > 0
            rows.append({
                **same, "fit": f"l1, {asked} features", "penalty": fit.penalty,
                "used": asked - len(fit.empty), "mean_cosine": cosine.mean(),
                "least_cosine": cosine.min(), "cpu_seconds": round(spent, 1),
                "support_f1": 2 * (mine & truth).sum() / (mine.sum() + truth.sum()),
            })  # fmt: skip
            if asked == FEATURES:
                halves = stability(fit, matrix, rng=0, device="cpu")
                rows[-1] |= {"least_of_halves": halves.halves.min(), "chance": halves.chance.max()}
        rows = [{k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
                for row in rows]  # fmt: skip
    return rows


def test_planted_capabilities():
    write_figures("capabilities", {"held_out": held_out, "recovered": recovered})
