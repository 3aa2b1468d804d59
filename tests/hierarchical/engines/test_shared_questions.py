"""Questions that all models share: likelihood against integrals, draws against another sampler."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special, stats

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import HierarchicalOptions, pool
from evalstats_plugin.hierarchical.data import eval_counts
from evalstats_plugin.hierarchical.engines.plates.fit import METHODS
from evalstats_plugin.hierarchical.engines.shared_questions import (
    Likelihood,
    answered_alike,
    blocks_of,
    fit_shared,
)
from evalstats_plugin.runtime import ChainLength


def matrix(n=5, sizes=(12, 30, 20), seed=0, question_sd=1.5, missing=0.0):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(sizes)), sizes)
    level = 0.8 * rng.standard_normal((n, 1)) - rng.standard_normal(len(sizes))
    level = level + 0.4 * rng.standard_normal(level.shape)
    logit = level[:, task] - question_sd * rng.standard_normal(len(task))
    scores = 1.0 * (rng.random(logit.shape) < special.expit(logit))
    scores[rng.random(scores.shape) < missing] = np.nan
    return ResponseMatrix.from_array(scores, tasks=[f"t{k}" for k in task])


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_likelihood_is_the_integral_over_each_question(missing):
    counts = eval_counts(matrix(3, (4, 6), missing=missing))
    likelihood = Likelihood(blocks_of(counts)[0])
    level = np.random.default_rng(1).standard_normal((1, 3, 2))
    found = likelihood(level, np.log([1.3]))[0]
    expected = np.zeros(2)
    for i, t in enumerate(counts.task):
        seen, y = counts.question_trials[:, i] > 0, counts.question_right[:, i]

        def density(kappa, seen=seen, y=y, t=t):
            p = special.expit(level[0, :, t] - kappa)
            return np.prod(np.where(y > 0, p, 1 - p)[seen]) * stats.norm.pdf(kappa, scale=1.3)

        expected[t] += np.log(integrate.quad(density, -12, 12, epsabs=1e-12)[0])

    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_derivatives_are_those_of_differences():
    counts = eval_counts(matrix(3, (4, 6), missing=0.2))
    likelihood = Likelihood(blocks_of(counts)[0])
    level, log_sd = np.random.default_rng(1).standard_normal((3, 2)), np.log(1.3)
    slope, curve, _ = likelihood.derivatives(level, log_sd)
    step = np.zeros_like(level)
    step[1, 0] = 1e-5
    near = [level + step, level - step]
    up, down = (likelihood(x[None], np.array([log_sd]))[0, 0] for x in near)
    slopes = [likelihood.derivatives(x, log_sd)[0][:, 0] for x in near]

    assert slope[1, 0] == pytest.approx((up - down) / 2e-5, rel=1e-6)
    np.testing.assert_allclose(-curve[0, 1], (slopes[0] - slopes[1]) / 2e-5, rtol=1e-6)


@pytest.mark.needs("torch")
def test_draws_agree_with_a_sampler_that_keeps_every_question():
    """Written separately; there each task has its own σ_μ, hence one task with little else."""
    from evalstats_plugin.hierarchical.engines.crossed_gibbs import CrossedModel, fit_model

    counts = eval_counts(matrix(5, (20,), missing=0.1))
    one = fit_shared(counts, {}, np.random.default_rng(0), ChainLength(draws=400, warm_up=200))
    columns = counts.columns({"models": _nothing(5), "tasks": _nothing(1)}, by_question=True)
    length = ChainLength(chains=12, draws=90, warm_up=50)
    two = fit_model(columns, CrossedModel(questions=True), np.random.default_rng(1), length, "cpu")
    a, b = (x.accuracy.reshape(-1, 5) for x in (one, two))

    np.testing.assert_allclose((a.mean(0) - b.mean(0)) / b.std(0), 0, atol=0.25)
    np.testing.assert_allclose(a.std(0) / b.std(0), 1, atol=0.15)


def _nothing(n):
    from evalstats_plugin.hierarchical.data import Standardised

    return Standardised(names=(), values=np.zeros((n, 0)), sd=np.zeros(0))


OPTIONS = HierarchicalOptions(draws=600, warm_up=200)


def test_differences_are_no_wider_than_paired_ones():
    scores = matrix(6, (40, 40, 40, 40), seed=2)
    fit = pool(scores, rng=0, options=OPTIONS)
    rows = list(fit.contrasts())
    own = np.mean([row.high - row.low for row in rows])
    y = scores.scores[:, :, 0]
    of_model = {name: y[i] for i, name in enumerate(scores.models)}
    paired = [
        2 * 1.96 * np.std(of_model[r.model_a] - of_model[r.model_b], ddof=4) / 160**0.5
        for r in rows
    ]

    assert fit.model == "shared"
    assert own < 1.02 * np.mean(paired)


def test_partial_credit_epochs_and_one_model_have_no_shared_questions():
    half = matrix().scores * 0.5
    twice = np.repeat(matrix().scores, 2, axis=2)
    found = [
        answered_alike(eval_counts(x))
        for x in (matrix(), ResponseMatrix.from_array(half), ResponseMatrix.from_array(twice),
                  matrix(1))
    ]  # fmt: skip

    assert found == [True, False, False, False]
    with pytest.raises(DesignError, match="model 'shared' needs right or wrong answers"):
        pool(matrix(1), "shared")


def test_heavy_tails_of_many_degrees_of_freedom_are_normal():
    """Two samplers: of variances of each cell, and of closed forms."""
    counts = eval_counts(matrix(5, (20, 20, 20)))
    length = ChainLength(draws=500, warm_up=240)
    plain = fit_shared(counts, {}, np.random.default_rng(0), length)
    mixed = fit_shared(counts, {}, np.random.default_rng(1), length, tails=500.0)
    for name in ("sd_interaction", "sd_difficulty", "intercept", "performance"):
        a, b = (np.concatenate(x.parameters[name]) for x in (plain, mixed))
        np.testing.assert_allclose((a.mean(0) - b.mean(0)) / a.std(0), 0, atol=0.2)
    a, b = (x.accuracy.reshape(-1, 15) for x in (plain, mixed))
    np.testing.assert_allclose(a.std(0) / b.std(0), 1, atol=0.15)


def test_heavy_tails_leave_other_models_where_one_is_an_outlier():
    """One model fails one of four tasks: with normal interactions all others borrow less."""
    rng = np.random.default_rng(4)
    p = np.full((6, 4), 0.7)
    p[0, 0] = 0.02
    scores = (rng.random((6, 240)) < np.repeat(p, 60, axis=1)).astype(float)
    data = ResponseMatrix.from_array(scores, tasks=np.repeat(list("abcd"), 60).tolist())
    width = {}
    for tails in (None, 4.0):
        options = HierarchicalOptions(draws=300, tails=tails)
        fit = pool(data, "shared", rng=0, options=options)
        width[tails] = np.mean([r.high - r.low for r in fit if r.task and r.model != "model_0"])

    assert width[4.0] < 0.95 * width[None]
    with pytest.raises(DesignError, match="model 'task' has normal interactions only"):
        pool(data, "task", options=HierarchicalOptions(tails=4.0))
    with pytest.raises(DesignError, match="1 degrees of freedom of interactions are out of range"):
        HierarchicalOptions(tails=1.0)


def test_intervals_hold_the_truth_in_the_study():
    """By tests/validation/test_hierarchical_predictions.py."""
    folder = Path(__file__).parents[3] / "fixtures" / "validation"
    study = json.loads((folder / "hierarchical_predictions.json").read_text(encoding="utf-8"))
    found = {(r["interactions"], r["fitted"], r["intervals"]): r["coverage"] for r in study["rows"]}

    for what in ("cells", "models", "pairs", "new task", "new model"):
        assert found["normal", "normal", what] > 0.93, what
        assert found["heavy", "t(4)", what] > 0.93, what


def test_ranks_of_true_values_are_uniform_in_the_study():
    """Simulation-based calibration, by tests/validation/test_hierarchical_calibration.py."""
    folder = Path(__file__).parents[3] / "fixtures" / "validation"
    study = json.loads((folder / "hierarchical_calibration.json").read_text(encoding="utf-8"))

    wrong = study.pop("nuts without the volume of its maps")["quantities"]
    assert set(study) == {"shared questions", "gibbs", *METHODS}
    assert wrong["sd"]["p_value"] < 0.002
    assert all(x["p_value"] > 0.002 for e in study.values() for x in e["quantities"].values())
