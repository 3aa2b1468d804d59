"""The sampler of crossed models against NUTS, sums over the prior, and what must not matter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines import crossed_gibbs
from evalstats_plugin.hierarchical.engines.crossed_gibbs import (
    CROSSED_MODELS,
    CrossedData,
    CrossedModel,
    draw_crossed,
)
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import convergence

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "hierarchical.json"


def crossed(right, trials, task=None, models=None, tasks=None):
    right = torch.tensor(np.asarray(right, dtype=float))
    task = np.arange(right.shape[1]) if task is None else np.asarray(task)
    count = int(task.max()) + 1
    return CrossedData(
        right=right,
        trials=torch.tensor(np.asarray(trials, dtype=float)).expand_as(right).contiguous(),
        task=torch.tensor(task),
        n_tasks=count,
        model_covariates=torch.tensor(np.zeros((len(right), 0)) if models is None else models),
        task_covariates=torch.tensor(np.zeros((count, 0)) if tasks is None else tasks),
    )


def drawn(data, structure, seed=0, **length):
    return draw_crossed(data, structure, np.random.default_rng(seed), ChainLength(**length))


def test_means_agree_with_nuts_on_30_models_and_20_tasks():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    structure = CrossedModel(priors={"default": ("lognormal", -0.5, 0.7)})
    found = drawn(
        crossed(golden["right"], golden["trials"]), structure, chains=4, draws=300, warm_up=100
    )

    ours = {"level": special.logit(found.accuracy)}
    for name, values in found.parameters.items():
        ours[f"log_{name}" if name.startswith("sd_") else name] = (
            np.log(values) if name.startswith("sd_") else values
        )
    for name, values in ours.items():
        mean, sd = (np.asarray(golden[name][key]) for key in ("mean", "sd"))
        agreement = convergence(values.reshape(*values.shape[:2], -1)[..., ::7])
        # The worst of 600 levels, by 1,200 draws that are worth some 400.
        assert np.abs((values.mean((0, 1)) - mean) / sd).max() < 0.25, name
        # At full length the study below is within .15, with R-hat < 1.02 and ESS > 300.
        assert agreement.r_hat.max() < 1.03, name
        assert agreement.ess.min() > 100, name


def test_the_study_at_full_length_and_size():
    """What tests/validation/test_hierarchical_crossed.py found."""
    study = json.loads((GOLDEN.parents[1] / "validation" / "hierarchical_crossed.json").read_text())
    reference, largest = study["reference"], study["growth"][-1]

    assert max(reference["errors_in_sd"].values()) < 0.15
    assert reference["r_hat"] < 1.02
    assert min(reference["least_ess"].values()) > 300
    assert (largest["models"], largest["tasks"]) == (100, 60)
    assert largest["r_hat"] < 1.02
    assert study["independent"]["worst_z_against_polya_gamma"] < 4


def from_the_prior(rng, size, questions):
    """Levels (S, 2, 2), difficulties (S, 2, 2) of two questions a task, and σ_τ."""
    sd = rng.gamma(2, 0.5, (4, size))
    level = rng.normal(size=(size, 1, 1)) - (sd[1] * rng.normal(size=(2, size))).T[:, None]
    level = level + (sd[0] * rng.normal(size=(2, size))).T[..., None]
    own = sd[2][:, None, None] * np.ones((1, 1, 2))
    if questions:
        own = rng.gamma(2, 0.5, (size, 1, 2))
    level = level + own * rng.normal(size=(size, 2, 2))
    return level, sd[3][:, None, None] * rng.normal(size=(size, 2, 2)), sd[1], sd[3]


@pytest.fixture(scope="module")
def two_by_two():
    """Posterior means summed over draws from the prior, weighted by their likelihood."""
    rng, size = np.random.default_rng(1), 400_000
    right, trials = np.array([[2.0, 0.0], [3.0, 1.0]]), np.array([[3.0, 2.0], [3.0, 2.0]])
    level, _, sd_task, _ = from_the_prior(rng, size, questions=False)
    p = special.expit(level)
    weight = (p**right * (1 - p) ** (trials - right)).prod((1, 2))
    plain = [np.tensordot(weight, x, 1) / weight.sum() for x in (p, sd_task)]
    answers = np.array([[[1, 0], [0, 0]], [[1, 1], [1, 0]]])
    level, question, sd_task, sd_question = from_the_prior(rng, size, questions=True)
    p = special.expit(level[..., None] - question[:, None])
    weight = np.where(answers, p, 1 - p).prod((1, 2, 3))
    by_question = [np.tensordot(weight, x, 1) / weight.sum() for x in (level, sd_task, sd_question)]
    return (right, trials, plain), (answers, by_question)


def z_scores(values, expected):
    """Of chain means, over their standard error."""
    means = values.mean(1)
    return (means.mean(0) - expected) / (means.std(0, ddof=1) / len(means) ** 0.5)


def task_z_scores(two_by_two):
    (right, trials, plain), _ = two_by_two
    found = drawn(crossed(right, trials), CROSSED_MODELS["task"], chains=300, draws=60, warm_up=30)
    return np.abs(
        [*z_scores(found.accuracy, plain[0]).ravel(),
         z_scores(found.parameters["sd_difficulty"], plain[1])]
    )  # fmt: skip


def test_posterior_of_tasks_is_that_of_a_sum_over_the_prior(two_by_two):
    assert task_z_scores(two_by_two).max() < 4


def test_a_sweep_without_the_way_back_is_caught(two_by_two, monkeypatch):
    """Negative control: Newton proposals accepted as if they were symmetric."""

    def wrong(data, at, prior, unit, generator):
        effect, answers = at
        there, tight = crossed_gibbs._proposal(data, effect, answers, prior, unit)
        found = there + crossed_gibbs.normal(effect, generator) / tight.sqrt()
        moved = crossed_gibbs.answers_at(
            data, answers.logit + unit.sign * unit.spread(found - effect)
        )
        gain = unit.total(moved.log_likelihood - answers.log_likelihood)
        gain = gain - prior[1] / 2 * (found.square() - effect.square())
        taken = crossed_gibbs.uniform(gain, generator).log() < gain
        return (
            torch.where(taken, found, effect),
            crossed_gibbs.choose(unit.spread(taken), moved, answers),
        )

    monkeypatch.setattr(crossed_gibbs, "newton_move", wrong)

    assert task_z_scores(two_by_two).max() > 6


def test_posterior_of_questions_is_that_of_a_sum_over_the_prior(two_by_two):
    _, (answers, (level, sd_task, sd_question)) = two_by_two
    data = crossed(answers.reshape(2, 4), 1.0, task=[0, 0, 1, 1])
    generator = torch.Generator().manual_seed(3)
    sampler = crossed_gibbs.CrossedGibbs(data, CROSSED_MODELS["across-task"], 200, generator)
    for _ in range(50):
        sampler.sweep()
    sampler.settle()
    kept = []
    for _ in range(60):
        sampler.sweep()
        state = sampler.state
        scales = torch.cat([state.scale_task, state.scale_question], 1).exp()
        kept.append(torch.cat([sampler.level.flatten(1), scales], 1))

    expected = np.array([*level.ravel(), sd_task, sd_question])
    assert np.abs(z_scores(torch.stack(kept, 1).numpy(), expected)).max() < 4


def test_cells_are_integrated_over_their_interaction():
    """Against a fine sum over the interaction, one draw of each chain."""
    data = crossed([[3.0, 9.0], [0.0, 4.0]], [[10.0, 9.0], [2.0, 8.0]])
    sampler = crossed_gibbs.CrossedGibbs(
        data, CROSSED_MODELS["task"], 5, torch.Generator().manual_seed(0)
    )
    for _ in range(20):
        sampler.sweep()
    from evalstats_plugin.hierarchical.engines.crossed_gibbs import cell_log_likelihood

    z = np.linspace(-9, 9, 4001)
    sd = sampler.state.scale_interaction.exp().numpy()[:, :, None, None]
    logit = sampler.mean.numpy()[..., None] + sd * z
    right, trials = data.right.numpy()[..., None], data.trials.numpy()[..., None]
    like = special.expit(logit) ** right * special.expit(-logit) ** (trials - right)
    expected = np.log((like * np.exp(-z * z / 2)).sum(-1) * (z[1] - z[0]) / np.sqrt(2 * np.pi))

    np.testing.assert_allclose(cell_log_likelihood(sampler).numpy(), expected, atol=2e-3)


@pytest.mark.parametrize("name", CROSSED_MODELS)
def test_missing_cells_and_extremes_stay_finite(name):
    right = np.array([[5.0, 0, 1, 2, 5], [4.0, 0, 1, 0, 0], [0.0, 0, 0, 3, 5]])
    trials = np.array([[5.0, 5, 1, 5, 5], [5.0, 5, 1, 0, 0], [0.0, 0, 0, 5, 5]])
    found = drawn(crossed(right, trials, task=[0, 1, 2, 3, 3]), CROSSED_MODELS[name],
                  chains=2, draws=20, warm_up=20)  # fmt: skip
    if name == "task":
        found = drawn(crossed(right, trials), CROSSED_MODELS[name], chains=2, draws=20, warm_up=20)

    assert all(np.isfinite(values).all() for values in found.parameters.values())
    assert ((found.accuracy > 0) & (found.accuracy < 1)).all()
    assert (found.predictions.log_likelihood[:, :, 2, 0] == 0).all() == (trials[2, 0] == 0)


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


def test_order_of_questions_does_not_matter_to_sums():
    """By tasks whose questions are scattered."""
    rng = np.random.default_rng(0)
    task = rng.integers(0, 3, 12)
    task[:3] = [0, 1, 2]
    right = rng.integers(0, 2, (4, 12))
    data = crossed(right, 1.0, task=task)

    expected = np.stack([right[:, task == t].sum(1) for t in range(3)], 1)
    assert np.array_equal(data.totals[0].numpy(), expected)
    assert data.sizes.tolist() == np.bincount(task).tolist()


def test_covariates_are_found():
    rng = np.random.default_rng(4)
    size, length = rng.normal(size=40), rng.normal(size=12)
    logit = 0.8 * size[:, None] - 0.6 * length + 0.3 * rng.normal(size=(40, 12))
    data = crossed(
        rng.binomial(200, special.expit(logit)), 200.0, models=size[:, None], tasks=length[:, None]
    )
    found = drawn(data, CROSSED_MODELS["task"], chains=4, draws=60, warm_up=60)

    coefficients = found.parameters["coefficients"]
    error = coefficients.std((0, 1))
    assert np.abs((coefficients.mean((0, 1)) - [0.8, 0.6]) / error).max() < 3
    assert error.max() < 0.25


def test_more_memory_than_there_is_is_refused_before_starting(monkeypatch):
    from evalstats_plugin.runtime import torch as torch_module

    monkeypatch.setattr(torch_module, "_free_memory", lambda _: 1000)

    with pytest.raises(DesignError, match="4 chains of 2 models × 2 columns need about"):
        drawn(crossed([[3.0, 5.0], [2.0, 8.0]], 10.0), CROSSED_MODELS["task"])
