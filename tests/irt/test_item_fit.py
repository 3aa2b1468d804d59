"""Item fit against R, direct sums over outcomes, and plain correlations."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.fit_statistics import (
    Cells,
    cells_of,
    item_fit,
    item_totals,
    mean_squares,
)
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.simulate import simulate_responses
from evalstats_plugin.irt.scoring import score_models

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
R_VALUES = json.loads((GOLDEN / "irt_fit.json").read_text(encoding="utf-8"))
DATA = json.loads((GOLDEN / "irt.json").read_text(encoding="utf-8"))["data"]


def lsat(name):
    """Persons as models: each pattern as often as it occurred."""
    rows = [[int(c) for c in pattern] for pattern, n in DATA[name].items() for _ in range(n)]
    return np.array(rows, dtype=float)


def rasch_ability(totals, difficulty):
    """Maximum likelihood by Newton's method; all right and all wrong are infinite."""
    m = len(difficulty)
    at = special.logit(np.arange(1, m) / m)
    for _ in range(50):
        p = special.expit(at[:, None] - difficulty)
        at = at + (np.arange(1, m) - p.sum(axis=1)) / (p * (1 - p)).sum(axis=1)
    return np.concatenate([[-np.inf], at, [np.inf]])[totals]


@pytest.mark.parametrize("name", ["LSAT6", "LSAT7"])
def test_infit_and_outfit_agree_with_erm(name):
    """Conditional items, maximum likelihood abilities; infinite ones do not count."""
    expected = R_VALUES["erm"][name]
    scores, difficulty = lsat(name), np.array(expected["difficulty"])
    theta = rasch_ability(scores.sum(axis=1).astype(int), difficulty)
    cells = Cells(scores, np.ones_like(scores), special.expit(theta[:, None] - difficulty))
    found = mean_squares(cells)

    for field in found._fields:
        np.testing.assert_allclose(getattr(found, field), expected[field], atol=1e-4)


@pytest.mark.needs("torch")
def test_infit_and_outfit_agree_with_mirt():
    """The whole way from a fit, at posterior means."""
    matrix = ResponseMatrix.from_array(lsat("LSAT6"))
    fit = fit_irt(matrix, "rasch", "mml", options=MmlOptions(nodes=61, tolerance=1e-9))
    found = item_fit(score_models(fit, matrix, method="eap"), matrix)

    for field, expected in R_VALUES["mirt_rasch"]["LSAT6"].items():
        np.testing.assert_allclose(found[field], expected, atol=1e-4)


def outcomes(p, trials):
    """Every outcome of a column of Binomial cells, and its probability."""
    for right in itertools.product(*(range(n + 1) for n in trials)):
        yield np.array(right, float), float(np.prod(stats.binom.pmf(right, trials, p)))


@pytest.mark.parametrize("trials", [[1, 1, 1, 1, 1], [3, 1, 0, 2, 4]])
def test_mean_squares_have_the_moments_that_z_takes_from_them(trials):
    """Mean 1 and the variances behind z, by exact sums over all outcomes; a missing cell too."""
    p = np.array([0.2, 0.5, 0.7, 0.35, 0.9])
    rows = list(outcomes(p, trials))
    found = [
        mean_squares(Cells(right[:, None], np.array(trials, float)[:, None], p[:, None]))
        for right, _ in rows
    ]
    chance = np.array([c for _, c in rows])
    for kind in ("outfit", "infit"):
        value = np.array([getattr(f, kind)[0] for f in found])
        z = np.array([getattr(f, f"{kind}_z")[0] for f in found])
        mean, variance = chance @ value, chance @ (value - chance @ value) ** 2
        spread = min(np.sqrt(variance), np.sqrt(2))

        assert mean == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(z, (value ** (1 / 3) - 1) * 3 / spread + spread / 3, atol=1e-9)


def test_models_fit_as_items_do_with_rows_and_columns_exchanged():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, (6, 9))
    trials = rng.integers(0, 3, p.shape).astype(float)
    cells = Cells(rng.binomial(trials.astype(int), p).astype(float), trials, p)
    turned = Cells(*(x.T for x in cells))

    for a, b in zip(mean_squares(cells, axis=1), mean_squares(turned, axis=0), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_item_totals_are_plain_correlations():
    """Point-biserial by SciPy, rest without the item, models without the item left out."""
    rng = np.random.default_rng(1)
    scores = (rng.random((30, 7)) < 0.6).astype(float)
    scores[rng.random(scores.shape) < 0.2] = np.nan
    found = item_totals(np.nan_to_num(scores), (~np.isnan(scores)).astype(float))

    for j in range(7):
        there = ~np.isnan(scores[:, j])
        x, others = scores[there, j], np.delete(scores[there], j, axis=1)
        total = np.nanmean(scores[there], axis=1)
        assert found.item_total[j] == pytest.approx(stats.pointbiserialr(x, total)[0], abs=1e-12)
        rest = np.corrcoef(x, np.nanmean(others, axis=1))[0, 1]
        assert found.item_rest[j] == pytest.approx(rest, abs=1e-12)


def test_what_does_not_vary_has_no_correlation():
    right = np.array([[1.0, 0, 1], [1, 1, 0], [1, 1, 1]])

    assert np.isnan(item_totals(right, np.ones((3, 3))).item_rest[0])


@pytest.mark.needs("torch")
def test_noise_stands_out_and_nothing_else_does():
    """One item answered by coin: misfit; the others, drawn from the model, as expected."""
    matrix, _ = simulate_responses(rng=2, n_models=400, n_items=40, item_model="rasch")
    scores = matrix.scores.copy()
    scores[:, 0, 0] = np.random.default_rng(3).integers(0, 2, 400)
    noisy = ResponseMatrix.from_array(scores)
    fit = fit_irt(noisy, "rasch", "mml", options=MmlOptions(prior="weak", std_errors=False))
    z = item_fit(fit, noisy)["infit_z"].to_numpy()

    assert z[0] > 4
    assert np.abs(z[1:]).max() < 4


@pytest.mark.needs("torch")
def test_another_matrix_is_refused():
    matrix, _ = simulate_responses(rng=4, n_models=5, n_items=6)
    fit = fit_irt(matrix)
    fewer = ResponseMatrix.from_array(matrix.scores[:, :5])
    renamed = ResponseMatrix.from_array(matrix.scores, models=list("abcde"))

    with pytest.raises(DesignError, match=r"5 items .* 6: only one of them has task/item_5"):
        cells_of(fit, fewer)
    with pytest.raises(DesignError, match=r"5 models .* only one of them has a, b"):
        cells_of(fit, renamed)
