"""Residual correlations against R, direct computation and planted pairs."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import suspects
from evalstats_plugin.irt.fit_statistics import Cells, cells_of
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
from evalstats_plugin.irt.scoring import score_models
from evalstats_plugin.irt.suspects import _blocks, local_dependence, q3

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"


@pytest.mark.needs("torch")
def test_q3_agrees_with_mirt():
    """LSAT7, 2PL at the posterior means."""
    data = json.loads((GOLDEN / "irt.json").read_text(encoding="utf-8"))["data"]["LSAT7"]
    expected = json.loads((GOLDEN / "irt_fit.json").read_text(encoding="utf-8"))["mirt_q3"]["LSAT7"]
    rows = [[int(c) for c in pattern] for pattern, n in data.items() for _ in range(n)]
    matrix = ResponseMatrix.from_array(np.array(rows, float))
    fit = fit_irt(matrix, "2pl", "mml", options=MmlOptions(nodes=61, tolerance=1e-9))
    means = score_models(fit, matrix, method="eap")

    np.testing.assert_allclose(q3(means, matrix), expected, atol=1e-6)


@pytest.mark.parametrize("item_model", ["graded", "gpcm"])
def test_q3_of_ordered_scores_is_of_what_the_expected_score_leaves(item_model):
    """Epochs of grades are averaged, right and wrong ones counted; a missing answer is left out."""
    rng = np.random.default_rng(0)
    chance = rng.random((40, 5, 1))
    grades = rng.binomial(3, chance, (40, 5, 2)) * 1.0
    grades[0, 0] = grades[1, 1, 0] = np.nan
    right = (rng.random((40, 5, 4)) < chance) * 1.0
    for scores, answers in ((grades, np.nanmean), (right, np.nansum)):
        matrix = ResponseMatrix.from_array(scores)
        fit = fit_irt(matrix, item_model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            residual = np.where(
                np.isfinite(scores).any(axis=2), answers(scores, axis=2) - fit.predict(), np.nan
            )
        found = q3(fit, matrix)
        for j, k in itertools.combinations(range(5), 2):
            both = np.isfinite(residual[:, j] + residual[:, k])
            expected = np.corrcoef(residual[both][:, [j, k]].T)[0, 1]
            assert found[j, k] == pytest.approx(expected, abs=1e-10)


def random_cells(n, m, rng):
    p = rng.uniform(0.1, 0.9, (n, m))
    trials = rng.integers(0, 3, p.shape).astype(float)
    return Cells(rng.binomial(trials.astype(int), p).astype(float), trials, p)


def test_missing_cells_leave_the_models_that_took_both(monkeypatch):
    """Pair by pair with NumPy; and blocks of any size give the same bits."""
    cells = random_cells(25, 8, np.random.default_rng(0))
    means = cells.residual / np.maximum(cells.trials, 1), cells.trials
    found = np.concatenate([part for _, part, _ in _blocks(*means)])
    monkeypatch.setattr(suspects, "_BLOCK", 24)

    again = np.concatenate([part for _, part, _ in _blocks(*means)])
    np.testing.assert_allclose(again, found, atol=1e-12)
    for j, k in itertools.combinations(range(8), 2):
        both = (cells.trials[:, j] > 0) & (cells.trials[:, k] > 0)
        x, y = (cells.residual[both, i] / cells.trials[both, i] for i in (j, k))
        assert found[j, k] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-10)
        assert found[j, k] == pytest.approx(found[k, j], abs=1e-12)


def test_the_bound_is_above_the_exact_chance_of_the_products():
    """Every outcome of two items and four models, with epochs: never below, and no idle bound."""
    p, q = np.array([0.3, 0.6, 0.8, 0.5]), np.array([0.4, 0.5, 0.9, 0.2])
    n, size = np.array([1, 2, 1, 1]), np.array([2, 1, 1, 1])
    outcomes = list(itertools.product(*(range(k + 1) for k in [*n, *size])))
    right = np.array(outcomes, float)
    chance = np.prod(stats.binom.pmf(right, [*n, *size], [*p, *q]), axis=1)
    products = ((right[:, :4] - n * p) * (right[:, 4:] - size * q)).sum(axis=1)
    for row, value in zip(right[::37], products[::37], strict=True):
        cells = Cells(*(np.stack(x, axis=1) for x in ((row[:4], row[4:]), (n, size), (p, q))))
        bound = suspects._chance_of_products(cells, np.array([0]), np.array([1]))[0]
        exact = chance[products >= value - 1e-12].sum()

        assert exact <= bound + 1e-12
        assert bound <= 12 * exact + 1e-12


@pytest.mark.needs("torch")
def test_planted_copies_are_found_and_nothing_else():
    """100 models × 150 items; items 0 and 1 are one question, so are 2 and 3."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        matrix = draw_responses(draw_truth(rng, 100, 150, "2pl"), rng)
        clean = local_dependence(cells_of(fit_irt(matrix), matrix))
        scores = matrix.scores.copy()
        scores[:, [1, 3]] = scores[:, [0, 2]]
        copied = ResponseMatrix.from_array(scores)
        found = local_dependence(cells_of(fit_irt(copied), copied))

        assert 0 == len(clean.first)
        pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
        assert pairs <= {(0, 1), (2, 3)}
        assert pairs


@pytest.mark.needs("torch")
def test_few_models_prove_nothing():
    """With five models many pairs of items have the same residuals; none is accused."""
    rng = np.random.default_rng(5)
    matrix = draw_responses(draw_truth(rng, 5, 200, "2pl"), rng)

    assert 0 == len(local_dependence(cells_of(fit_irt(matrix), matrix)).first)
