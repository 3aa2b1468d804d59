"""Crossed models: likelihoods against integrals, draws against sums over the prior and NUTS."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special, stats

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import HierarchicalOptions, pool
from evalstats_plugin.hierarchical.data import Counts, eval_counts
from evalstats_plugin.hierarchical.engines.crossed import (
    CROSSED_MODELS,
    CrossedGibbs,
    CrossedModel,
    answered_alike,
    fit_crossed,
)
from evalstats_plugin.hierarchical.engines.level_likelihoods import (
    CellLikelihood,
    QuestionLikelihood,
    Surrogate,
)
from evalstats_plugin.hierarchical.engines.plates.fit import METHODS
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import convergence

FIXTURES = Path(__file__).parents[3] / "fixtures"


def matrix(n=5, sizes=(12, 30, 20), seed=0, question_sd=1.5, missing=0.0):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(sizes)), sizes)
    level = 0.8 * rng.standard_normal((n, 1)) - rng.standard_normal(len(sizes))
    level = level + 0.4 * rng.standard_normal(level.shape)
    logit = level[:, task] - question_sd * rng.standard_normal(len(task))
    scores = 1.0 * (rng.random(logit.shape) < special.expit(logit))
    scores[rng.random(scores.shape) < missing] = np.nan
    return ResponseMatrix.from_array(scores, tasks=[f"t{k}" for k in task])


def crossed(right, trials, task=None, models=None, tasks=None):
    """Counts of models in columns, which are tasks, or questions of these tasks."""
    right = np.asarray(right, dtype=float)
    task = np.arange(right.shape[1]) if task is None else np.asarray(task)
    count = int(task.max()) + 1
    return Counts(
        right,
        np.broadcast_to(np.asarray(trials, dtype=float), right.shape).copy(),
        task,
        np.zeros((len(right), 0)) if models is None else models,
        np.zeros((count, 0)) if tasks is None else tasks,
    )


def drawn(data, structure, seed=0, **length):
    return fit_crossed(data, structure, np.random.default_rng(seed), ChainLength(**length))


def answers(kind, seed=0):
    """Three models' answers to four and six questions of two tasks."""
    rng = np.random.default_rng(seed)
    trials = rng.integers(0, 4, (3, 10)) if kind == "epochs" else np.ones((3, 10))
    right = rng.binomial(trials.astype(int), 0.6) * 1.0
    if kind == "partial":
        right = rng.random((3, 10))
    if kind == "missing":
        trials[rng.random((3, 10)) < 0.3] = 0.0
    return crossed(np.where(trials > 0, right, 0.0), trials, task=[0] * 4 + [1] * 6)


KINDS = ("binary", "missing", "epochs", "partial")


@pytest.mark.parametrize("dense", [True, False], ids=["polynomial", "sums of logs"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_the_integral_over_each_question(kind, dense):
    counts = answers(kind)
    likelihood = QuestionLikelihood(counts)
    likelihood.dense &= dense
    level = np.random.default_rng(1).standard_normal((2, 3, 2))
    expected, kappa = np.zeros((2, 2)), np.linspace(-12, 12, 1201)
    for k, sd in enumerate((1.3, 0.7)):
        for i, t in enumerate(counts.task):
            n, y, logit = counts.trials[:, i], counts.right[:, i], level[k, :, t] - kappa[:, None]
            density = np.exp((y * logit - n * np.logaddexp(0, logit)).sum(axis=1))
            density *= stats.norm.pdf(kappa, scale=sd)
            expected[k, t] += np.log(integrate.trapezoid(density, kappa))

    np.testing.assert_allclose(likelihood(level, np.log([1.3, 0.7]))[:, 0], expected, atol=2e-4)


@pytest.mark.parametrize("block", [2**22, 1], ids=["together", "task by task"])
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_those_of_differences(kind, block, monkeypatch):
    from evalstats_plugin.hierarchical.engines import level_likelihoods

    monkeypatch.setattr(level_likelihoods, "_BLOCK", block)
    likelihood = QuestionLikelihood(answers(kind))
    level, log_sd = np.random.default_rng(1).standard_normal((3, 2)), np.log(1.3)
    slope, curve, _ = likelihood.derivatives(level, log_sd)
    step = np.zeros_like(level)
    step[1, 0] = 1e-5
    near = [level + step, level - step]
    up, down = (likelihood(x[None], np.array([log_sd]))[0, 0, 0] for x in near)
    slopes = [likelihood.derivatives(x, log_sd)[0][:, 0] for x in near]

    assert slope[1, 0] == pytest.approx((up - down) / 2e-5, rel=1e-6)
    np.testing.assert_allclose(-curve[0, 1], (slopes[0] - slopes[1]) / 2e-5, rtol=1e-6)


def test_derivatives_of_cells_are_those_of_differences():
    likelihood = CellLikelihood(crossed([[2.0, 3.5], [0.0, 7.0]], [[5.0, 6.0], [0.0, 7.0]]))
    level = np.array([[0.4, -0.3], [1.0, 2.0]])
    slope, curve, _ = likelihood.derivatives(level, -np.inf)
    up, down = (likelihood((level + x)[None], np.zeros(1))[0] for x in (1e-5, -1e-5))
    slopes = [likelihood.derivatives(level + x, -np.inf)[0] for x in (1e-5, -1e-5)]

    np.testing.assert_allclose(slope, (up - down) / 2e-5, atol=1e-8)
    np.testing.assert_allclose(-curve.T, (slopes[0] - slopes[1]) / 2e-5, atol=1e-8)


def test_difficulties_of_questions_are_drawn_from_their_posterior():
    counts = answers("epochs")
    likelihood = QuestionLikelihood(counts)
    level, rng = np.random.default_rng(1).standard_normal((3, 2)), np.random.default_rng(2)
    draws = np.array([likelihood.draw_questions(level, 0.3, rng) for _ in range(4000)])
    at = np.linspace(-9, 9, 4001)[:, None, None]
    logit = level[:, counts.task] - at
    log_p = (counts.right * logit - counts.trials * np.logaddexp(0, logit)).sum(1)
    weight = np.exp(log_p - at[:, 0] ** 2 / 2 / np.exp(0.6))
    mean = (weight * at[:, 0]).sum(0) / weight.sum(0)

    assert np.abs((draws.mean(0) - mean) / (draws.std(0) / 4000**0.5)).max() < 4


def test_means_agree_with_nuts_on_30_models_and_20_tasks():
    golden = json.loads((FIXTURES / "golden" / "hierarchical.json").read_text(encoding="utf-8"))
    structure = CrossedModel(priors={"default": ("lognormal", -0.5, 0.7)})
    posterior = drawn(crossed(golden["right"], golden["trials"]), structure, draws=1500)

    ours = {"level": special.logit(posterior.accuracy)}
    for name, values in posterior.parameters.items():
        ours[f"log_{name}" if name.startswith("sd_") else name] = (
            np.log(values) if name.startswith("sd_") else values
        )
    for name, values in ours.items():
        mean, sd = (np.asarray(golden[name][key]) for key in ("mean", "sd"))
        agreement = convergence(values.reshape(*values.shape[:2], -1)[..., ::7])
        assert np.abs((values.mean((0, 1)) - mean) / sd).max() < 0.15, name
        assert agreement.r_hat.max() < 1.02, name
        assert agreement.ess.min() > 300, name


def test_the_study_at_full_length_and_size():
    """What tests/validation/test_hierarchical_crossed.py found."""
    study = json.loads((FIXTURES / "validation" / "hierarchical_crossed.json").read_text())
    reference, largest = study["reference"], study["growth"][-1]

    assert max(reference["errors_in_sd"].values()) < 0.15
    assert reference["r_hat"] < 1.02
    assert min(reference["least_ess"].values()) > 300
    assert (largest["models"], largest["tasks"]) == (100, 60)
    assert largest["r_hat"] < 1.02
    assert study["independent"]["worst_z_against_polya_gamma"] < 4


def from_the_prior(rng, size, own, questions):
    """Levels (S, 2, 2), difficulties (S, 2, 2) of two questions a task, σ_τ and σ_κ."""
    sd = rng.gamma(2, 0.5, (4, size))
    level = rng.normal(size=(size, 1, 1)) - (sd[1] * rng.normal(size=(2, size))).T[:, None]
    level = level + (sd[0] * rng.normal(size=(2, size))).T[..., None]
    interaction = rng.gamma(2, 0.5, (size, 1, 2)) if own else sd[2][:, None, None]
    level = level + interaction * rng.normal(size=(size, 2, 2))
    question = sd[3][:, None, None] * rng.normal(size=(size, 2, 2)) * questions
    return level, question, sd[1], sd[3]


ANSWERS = {
    "task": (np.array([[2.0, 0.0], [3.0, 1.0]]), np.array([[3.0, 2.0], [3.0, 2.0]])),
    "shared": (np.array([[1.0, 0, 0, 0], [1, 1, 1, 0]]), np.ones((2, 4))),
    "across-task": (np.array([[2.0, 0, 0.3, 0], [1, 1, 0.8, 0]]), np.array([[2.0, 1, 1, 0]] * 2)),
}
"""Right answers and trials of two models: on two tasks, or on two questions of each."""


def z_scores(name):
    """Of chain means over their standard error, against sums over draws from the prior."""
    right, trials = ANSWERS[name]
    structure = CROSSED_MODELS[name]
    rng = np.random.default_rng(1)
    level, question, *sds = from_the_prior(
        rng, 200_000, structure.own_interactions, structure.questions
    )
    logit = level[..., None] - question[:, None]
    size = (2, 2, 2 if structure.questions else 1)
    n, y = trials.reshape(size), right.reshape(size)
    logit = logit[..., : size[2]]
    weight = np.exp((y * logit - n * np.log1p(np.exp(logit))).sum((1, 2, 3)))
    task = np.repeat([0, 1], size[2])
    found = drawn(crossed(right, trials, task=task), structure, chains=150, draws=80, warm_up=80)
    watched = {"sd_difficulty": sds[0]}
    if structure.questions:
        watched["sd_question"] = sds[1]
    else:
        watched["accuracy"] = special.expit(level)
    scores = []
    for what, values in watched.items():
        expected = np.tensordot(weight, values, 1) / weight.sum()
        ours = found.accuracy if what == "accuracy" else found.parameters[what]
        means = ours.mean(1)
        error = means.std(0, ddof=1) / len(means) ** 0.5
        scores += np.abs((means.mean(0) - expected) / error).ravel().tolist()
    return np.array(scores)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_posterior_is_that_of_a_sum_over_the_prior(name):
    assert z_scores(name).max() < 4


def test_a_sweep_that_trusts_its_approximation_is_caught(monkeypatch):
    """Negative control: proposals accepted as if the normal approximation were the likelihood."""
    monkeypatch.setattr(CellLikelihood, "__call__", lambda *x: 0 * x[1])
    monkeypatch.setattr(Surrogate, "gain", lambda *x: 0 * x[1])

    assert z_scores("task").max() > 6


@pytest.mark.parametrize("name", CROSSED_MODELS)
def test_without_answers_draws_are_those_of_the_prior(name):
    """Means of squares of effects, and of standard deviations, with covariates of both kinds."""
    structure, rng = CROSSED_MODELS[name], np.random.default_rng(5)
    models, tasks = np.array([[-1.2], [0.0], [1.2]]), np.array([[-1.0, 0.5], [1.0, 0.5]])
    data = crossed(np.zeros((3, 2)), 0.0, models=models, tasks=tasks)
    sampler = CrossedGibbs(data, structure, 400, 30, rng)
    kept = []
    for k in range(-30, 50):
        sampler.sweep(sampler, k)
        if k < 0:
            continue
        model = sampler.model - sampler.of_models.fitted
        task = sampler.task - sampler.of_tasks.fitted
        sds = [np.exp(x).mean(1) for x in sampler.log_sd[1:3]]
        sds += [np.exp(sampler.log_sd[0])[:, 0]] * structure.across_tasks
        sds += [np.exp(sampler.log_sd[3])[:, 0]] * structure.questions
        effects = [sampler.intercept, model[:, 0], task[:, 1], sampler.level[:, 0, 1]]
        effects += [*sampler.of_models.coefficients.T, *sampler.of_tasks.coefficients.T]
        kept.append([*sds, *(np.abs(x) for x in effects)])
    means = np.mean(kept, axis=0)
    size = 200_000
    sd = rng.gamma(2, 0.5, (3, size))
    model, task = (s * rng.normal(size=size) for s in sd[:2])
    model = model * structure.across_tasks
    b, *beta = rng.normal(size=(4, size))
    level = b + model - task + sd[2] * rng.normal(size=size)
    level += models[0, 0] * beta[0] - tasks[1] @ np.array(beta[1:])
    expected = [1.0] * (2 + structure.across_tasks + structure.questions)
    expected += [np.abs(x).mean() for x in (b, model, task, level, *beta)]
    error = means.std(axis=1, ddof=1) / 400**0.5

    assert np.abs((means.mean(axis=1) - expected) / np.hypot(error, 3e-3)).max() < 4


def test_standard_deviations_of_interactions_are_drawn_given_these():
    """Of two models, so that their number matters; against a sum over a grid of log σ."""
    sampler = CrossedGibbs(
        crossed(np.zeros((2, 2)), 0.0), CROSSED_MODELS["question"], 4000, 20,
        np.random.default_rng(3),
    )  # fmt: skip
    interaction = np.array([[0.2, 1.5], [-0.4, -0.9]])
    sampler.level = sampler.mean + interaction
    for _ in range(40):
        sampler._own_interactions()
    x = np.linspace(-9, 4, 4001)[:, None]
    log_p = 2 * x - 2 * np.exp(x) - 2 * x - (interaction**2).sum(axis=0) / 2 * np.exp(-2 * x)
    weight = np.exp(log_p - log_p.max(axis=0))
    mean = (weight * x).sum(axis=0) / weight.sum(axis=0)
    sd = ((weight * (x - mean) ** 2).sum(axis=0) / weight.sum(axis=0)) ** 0.5
    found = sampler.log_sd[2]

    assert (np.abs(found.mean(axis=0) - mean) < 4 * sd / 4000**0.5).all()
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.06)


@pytest.mark.parametrize("name", CROSSED_MODELS)
def test_missing_cells_and_extremes_stay_finite(name):
    right = np.array([[5.0, 0, 1, 2, 5], [4.0, 0, 1, 0, 0], [0.0, 0, 0, 3, 5]])
    trials = np.array([[5.0, 5, 1, 5, 5], [5.0, 5, 1, 0, 0], [0.0, 0, 0, 5, 5]])
    task = [0, 1, 2, 3, 4 if name == "task" else 3]
    found = drawn(crossed(right, trials, task=task), CROSSED_MODELS[name], chains=2, draws=20,
                  warm_up=20)  # fmt: skip

    assert all(np.isfinite(values).all() for values in found.parameters.values())
    assert ((found.accuracy > 0) & (found.accuracy < 1)).all()
    likely = found.predictions.log_likelihood
    assert np.isfinite(likely).all()
    assert (likely[:, :, 2, :3] == 0).all()
    assert (likely[:, :, 2, 3] != 0).all()


def test_cells_are_integrated_over_their_interaction():
    """Against a fine sum over the interaction, at one draw of each chain."""
    from evalstats_plugin.hierarchical.engines.crossed import _predicted, _State

    data = crossed([[3.0, 9.0], [0.0, 4.0]], [[10.0, 9.0], [2.0, 8.0]])
    rng = np.random.default_rng(0)
    sampler = CrossedGibbs(data, CROSSED_MODELS["task"], 5, 20, rng)
    for k in range(-20, 0):
        sampler.sweep(sampler, k)
    state = _State(sampler.level, sampler.mean, sampler.log_sd)
    found, _ = _predicted(sampler.likelihood, state, data, rng)
    z = np.linspace(-60, 60, 40_001)
    sd = np.exp(sampler.log_sd[2])[:, :, None, None]
    logit = sampler.mean[..., None] + sd * z
    right, trials = data.right[..., None], data.trials[..., None]
    like = np.exp(right * logit - trials * np.logaddexp(0, logit))
    expected = np.log((like * stats.norm.pdf(z)).sum(-1) * (z[1] - z[0]))

    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_one_model_on_one_task():
    found = drawn(crossed([[7.0]], 10.0), CROSSED_MODELS["task"], chains=2, draws=50, warm_up=20)

    assert 0.3 < found.accuracy.mean() < 0.95


def test_the_same_seed_draws_the_same_numbers():
    data = crossed([[3.0, 5.0], [2.0, 8.0]], 10.0)
    one, two, other = (
        drawn(data, CROSSED_MODELS["task"], seed, chains=2, draws=6, warm_up=3)
        for seed in (1, 1, 2)
    )

    assert np.array_equal(one.accuracy, two.accuracy)
    assert np.array_equal(one.predictions.replicated, two.predictions.replicated)
    assert not np.array_equal(one.accuracy, other.accuracy)


def test_order_of_questions_does_not_matter():
    """By tasks whose questions are scattered."""
    rng = np.random.default_rng(0)
    task = rng.integers(0, 3, 12)
    task[:3] = [0, 1, 2]
    right, order = rng.integers(0, 2, (4, 12)) * 1.0, rng.permutation(12)
    one, two = (
        drawn(crossed(right[:, x], 1.0, task=task[x]), CROSSED_MODELS["shared"], chains=1, draws=8,
              warm_up=3) for x in (np.arange(12), order)
    )  # fmt: skip

    np.testing.assert_allclose(one.accuracy, two.accuracy)


@pytest.mark.parametrize("name", ["task", "question", "across-task"])
def test_covariates_are_found(name):
    rng = np.random.default_rng(4)
    size, length = rng.normal(size=40), rng.normal(size=12)
    logit = 0.8 * size[:, None] - 0.6 * length + 0.3 * rng.normal(size=(40, 12))
    right = rng.binomial(200, special.expit(logit)) * 1.0
    trials = np.full((40, 12), 200.0)
    task = np.arange(12)
    if name != "task":
        task, trials = np.repeat(task, 4), np.ones((40, 48))
        hard = 0.5 * rng.normal(size=48)
        right = 1.0 * (rng.random((40, 48)) < special.expit(logit[:, task] - hard))
    data = crossed(right, trials, task=task, models=size[:, None], tasks=length[:, None])
    found = drawn(data, CROSSED_MODELS[name], chains=2, draws=120, warm_up=100)

    coefficients = found.parameters["coefficients"]
    error = coefficients.std((0, 1))
    assert np.abs((coefficients.mean((0, 1)) - [0.8, 0.6]) / error).max() < 3
    assert error.max() < 0.4


def test_more_memory_than_there_is_is_refused_before_starting(monkeypatch):
    monkeypatch.setenv("EVALSTATS_MEMORY", "100 KB")

    with pytest.raises(DesignError, match="4 chains of 2 models × 2 columns"):
        drawn(crossed([[3.0, 5.0], [2.0, 8.0]], 10.0), CROSSED_MODELS["task"])


OPTIONS = HierarchicalOptions(draws=300, warm_up=100)


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


def test_intervals_hold_the_truth_in_the_study():
    """By tests/validation/test_hierarchical_predictions.py."""
    folder = FIXTURES / "validation"
    study = json.loads((folder / "hierarchical_predictions.json").read_text(encoding="utf-8"))
    found = {(r["interactions"], r["intervals"]): r["coverage"] for r in study["rows"]}

    for what in ("cells", "models", "pairs"):
        assert found["normal", what] > 0.93, what
        assert found["heavy", what] > 0.93, what


def test_ranks_of_true_values_are_uniform_in_the_study():
    """Simulation-based calibration, by tests/validation/test_hierarchical_calibration.py."""
    folder = FIXTURES / "validation"
    study = json.loads((folder / "hierarchical_calibration.json").read_text(encoding="utf-8"))

    wrong = study.pop("nuts without the volume of its maps")["quantities"]
    assert set(study) == {"shared questions", "gibbs", *METHODS}
    assert wrong["sd"]["p_value"] < 0.002
    assert all(x["p_value"] > 0.002 for e in study.values() for x in e["quantities"].values())
