"""Items integrated out where answers are extreme, partial or guessed: AlpacaEval and hard sets."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import MmlItemsOptions, fit_irt
from evalstats_plugin.irt.estimators.item_population import Population, points
from evalstats_plugin.irt.estimators.items_integrated import evaluate
from evalstats_plugin.irt.model.data import Counts

FIXTURES = Path(__file__).parents[3] / "fixtures"
DATA = FIXTURES / "data" / "alpaca_eval" / "preferences.parquet"


def alpaca(seed, *, partial):
    """Ten models of AlpacaEval with a fifth of the cells hidden: all scores, and those shown."""
    every = pd.read_parquet(DATA).drop(columns="item").to_numpy(float).T
    rng = np.random.default_rng(seed)
    scores = every[rng.choice(58, 10, replace=False)]
    shown = ~((rng.random(scores.shape) < 0.2) | np.isnan(scores))
    return scores if partial else np.where(np.isnan(scores), np.nan, scores > 0.5), shown


def small(kind):
    """Five models on eight items: right or wrong, partial or guessed; NaN is missing."""
    j, i = np.arange(5)[:, None], np.arange(8)
    right = (((7 * j + 3 * i + j * i * i) % 10) < 4 + (j % 3)).astype(float)
    scores = (3 * right + ((2 * j + i) % 4) / 2) / 5 if kind == "partial" else right
    scores[2, 3] = np.nan
    guess = torch.where(torch.arange(8) < 4, 0.25, 0.0).double() if kind == "guessed" else None
    seen = torch.tensor(~np.isnan(scores)).double()
    return Counts(torch.tensor(np.nan_to_num(scores)), seen, guess=guess)


ABILITY = torch.tensor([-1.0, -0.3, 0.1, 0.5, 0.7]).double()


def population(*, spread=-0.9, explained=0.05):
    """Population of items: mean difficulty .2, its spread e^.1, and log discriminations."""
    values = [0.2, 0.1, 0.0, explained / np.exp(0.1), spread]
    return Population("2pl", torch.tensor(values, dtype=torch.float64))


def evaluated(counts, items, **how):
    grid = points(items, ABILITY, counts.trials.amax(1), coarseness=0.85)
    return evaluate(counts, ABILITY, items, grid, **how)


@pytest.mark.parametrize(
    ("kind", "dispersion", "expected"),
    [
        ("right", 1.0, -29.730044485),
        ("guessed", 1.0, -30.050696136),
        ("partial", 0.4, -73.299900972),
    ],
)
def test_log_likelihood_is_that_of_gauss_hermite_sums_of_120_by_120_points(
    kind, dispersion, expected
):
    found = evaluated(small(kind).tempered(dispersion), population())

    assert float(found.log_likelihood) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("kind", ["right", "guessed", "partial"])
def test_gradient_and_information_are_derivatives_of_the_objective(kind):
    counts, items = small(kind), population()
    grid = points(items, ABILITY, counts.trials.amax(1), coarseness=0.85)
    start = torch.cat([ABILITY, items.values])

    def at(values):
        return evaluate(counts, values[:5], Population("2pl", values[5:]), grid)

    here, step = at(start), 1e-5 * torch.eye(10).double()
    both = [(at(start + move), at(start - move)) for move in step]
    slope = torch.stack([(up.objective - down.objective) / 2e-5 for up, down in both])
    bend = torch.stack([(down.gradient - up.gradient) / 2e-5 for up, down in both])

    # All but m_2, which is fixed.
    free = [k for k in range(10) if k != 7]
    information = (here.complete - here.missing)[free][:, free]
    torch.testing.assert_close(here.gradient[free], slope[free], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(information, bend[free][:, free], atol=1e-5, rtol=1e-5)


def test_points_follow_a_narrow_ridge_of_difficulty_and_discrimination():
    """Lines too far apart for it once raised the log-likelihood by 1."""
    counts, items = small("right"), population(spread=np.log(0.02), explained=0.08)
    x = np.linspace(-7.5, 7.5, 401)
    u, r = (v.ravel() for v in np.meshgrid(x, np.linspace(-6, 6, 25)))
    b, a = 0.2 + np.exp(0.1) * u, np.exp(0.08 * u + 0.02 * r)
    logit = a * (ABILITY.numpy()[:, None] - b)
    log_mass = -(u**2 + r**2) / 2
    right, trials = counts.right.numpy(), counts.trials.numpy()
    score = right.T @ logit - trials.T @ np.logaddexp(0, logit) + log_mass
    expected = (special.logsumexp(score, axis=1) - special.logsumexp(log_mass)).sum()

    assert float(evaluated(counts, items).log_likelihood) == pytest.approx(expected, abs=1e-4)


def test_a_population_that_narrows_between_its_points_cannot_gain_likelihood():
    """Its density at the middle point once grew without bound: log-likelihoods of +31,184.9."""
    counts, laid = small("right"), population()
    grid = points(laid, ABILITY, counts.trials.amax(1), coarseness=0.85)
    narrow = [
        float(evaluate(counts, ABILITY, population(spread=s), grid).log_likelihood)
        for s in (-3, -10, -43)
    ]

    assert max(narrow) < 0
    assert narrow[1] == pytest.approx(narrow[2], abs=0.01)


@pytest.mark.parametrize(("seed", "expected"), [(4, -1499.084), (13, -1528.081), (9, -1536.587)])
def test_bimodal_difficulties_converge(seed, expected):
    """Log-likelihoods from another implementation; these once ended at -1246, -672 and -1532."""
    rng = np.random.default_rng(100000 + seed)
    theta = np.where(rng.random(10) < 0.5, -1.2, 1.2) + rng.normal(0, 0.3, 10)
    b = np.where(rng.random(300) < 0.6, -2, 1.5) + rng.normal(0, 0.5, 300)
    right = rng.random((10, 300)) < special.expit(theta[:, None] - b)
    facts = fit_irt(ResponseMatrix.from_array(right.astype(float)), "2pl").diagnostics

    assert facts["converged"]
    assert facts["log_likelihood"] == pytest.approx(expected, abs=0.01)


def test_dispersion_of_alpaca_eval_is_that_of_another_implementation():
    scores, shown = alpaca(902, partial=True)
    fit = fit_irt(ResponseMatrix.from_array(np.where(shown, scores, np.nan)), "2pl")
    above_rasch = fit.diagnostics["log_likelihood"] - fit.diagnostics["rasch_log_likelihood"]

    assert fit.diagnostics["converged"]
    assert fit.diagnostics["log_likelihood"] < 0
    assert fit.hyperparameters["dispersion"] == pytest.approx(0.547, abs=0.002)
    assert above_rasch == pytest.approx(2352.17 - 2344.92, abs=0.1)


def test_difficulties_all_alike_are_not_called_converged():
    scores, shown = alpaca(2004, partial=True)
    fit = fit_irt(
        ResponseMatrix.from_array(np.where(shown, scores, np.nan)),
        options=MmlItemsOptions(max_steps=20),
    )

    assert not fit.diagnostics["converged"]
    assert fit.diagnostics["log_likelihood"] < 0
    assert any("difficulties are all alike" in note for note in fit.notes)


@pytest.mark.parametrize(("partial", "expected"), [(False, 0.2351), (True, 0.2382)])
def test_held_out_answers_of_alpaca_eval_are_predicted(partial, expected):
    scores, shown = alpaca(2001, partial=partial)
    fit = fit_irt(ResponseMatrix.from_array(np.where(shown, scores, np.nan)), "2pl")
    hidden = ~shown & ~np.isnan(scores)
    p, y = fit.predict()[hidden], scores[hidden].astype(float)

    assert -(special.xlogy(y, p) + special.xlog1py(1 - y, -p)).mean() == pytest.approx(
        expected, abs=5e-4
    )


def test_the_page_says_where_intervals_do_not_hold_on_drawn_designs():
    """Figures of tests/validation/test_coverage_irt_drawn.py: those of 2PL items are too short."""
    rows = json.loads((FIXTURES / "validation" / "irt_drawn.json").read_text())["rows"]
    page = (FIXTURES.parent / "docs" / "explanation" / "coverage.md").read_text()
    missed = [row for row in rows if row["first_percentile"] < row["noise"] - 0.015]

    assert sum(row["designs"] for row in rows if row["quantity"] == "abilities") == 400
    assert {row["item_model"] for row in missed} == {"2pl"}
    least = {q: min(row["mean"] for row in rows if row["quantity"] == q)
             for q in ("abilities", "differences", "difficulties", "discriminations")}  # fmt: skip
    assert min(least["abilities"], least["differences"]) >= 0.94
    assert least["discriminations"] < 0.9
    assert "errors of discriminations, and with few models" in page
    assert "are too small" in page


def test_intervals_of_the_study_hold_the_abilities():
    """Figures of tests/validation/test_coverage_irt_designs.py: seven designs × 5, 10, 40 models.

    Designs where the model is wrong lose at most .03.
    """
    rows = json.loads((FIXTURES / "validation" / "irt_designs.json").read_text())["designs"]
    wide = {5: (0.92, 0.98)}
    wrong = ("two abilities", "two groups of items", "skewed difficulties")

    assert len(rows) == 24
    assert all(0.92 <= row["coverage"] <= 0.97 for row in rows if row["design"] in wrong)
    for row in (row for row in rows if row["design"] not in wrong):
        low, high = wide.get(row["models"], (0.93, 0.97))
        assert row["replications"] >= 200
        assert low <= row["coverage"] <= high, row
        assert abs(row["slope"] - 1) <= 0.02 + 2 * row["slope_std_error"], row
