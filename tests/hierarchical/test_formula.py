"""Formulas: their grammar, what they compile to, and fits beside those of other engines."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical.data import covariates_of, eval_counts
from evalstats_plugin.hierarchical.fitting import HierarchicalOptions, pool
from evalstats_plugin.hierarchical.formula import Terms, compiled, parse

pytestmark = pytest.mark.needs("torch")

SIZES = {"a": 4, "b": 7, "c": 5}
TASKS = [name for name, size in SIZES.items() for _ in range(size)]
COVARIATES = {
    "models": {"size": {"model_0": 1.0, "model_1": 2.0, "model_2": 4.0}},
    "tasks": {"length": {"a": 3.0, "b": 1.0, "c": 7.0}},
}
BRIEF = HierarchicalOptions(chains=2, draws=8)


def scores(kind="bernoulli"):
    rng = np.random.default_rng(3)
    p = special.expit(np.array([[1.5], [0.3], [-0.8]]) - np.repeat([0.5, 0, -1], [4, 7, 5]))
    y = (rng.random(p.shape) < p) * 1.0 if kind == "bernoulli" else rng.uniform(0.1, 0.9, p.shape)
    y[2, :4] = np.nan
    return ResponseMatrix.from_array(y, tasks=TASKS)


def made(formula, family="bernoulli", covariates=None):
    counts = eval_counts(scores(family))
    given = covariates_of(covariates, counts.models, counts.tasks)
    return compiled(formula, family, counts, given, {})


def test_terms_may_be_spaced_and_ordered_in_any_way():
    expected = Terms(("size",), (("1", "model:task"), ("task", "model"), ("1", "task:item")))

    assert parse("score~1+size + (1|task : model)+( task|model ) + (1 | item)") == expected


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("right ~ model", "is not 'score ~' and then terms"),
        ("score ~ ", "is not 'score ~' and then terms"),
        ("score ~ model * task", r"term 'model \* task' .* is not supported: there are 1, model"),
        ("score ~ 0 + model", "term '0' of the formula is not supported"),
        ("score ~ (size | task)", r"term '\(size | task\)' of the formula is not supported"),
        ("score ~ (1 + model | task)", "is not supported"),
        ("score ~ (1 | judge)", "is not supported"),
        ("score ~ (1 || task)", "is not supported"),
        ("score ~ model + (1 | item) + (1 | task:item)", "has a term twice"),
        ("score ~ size", "has 'size', which the data lack: give covariates"),
    ],
)
def test_what_is_not_supported_is_refused(formula, message):
    with pytest.raises(DesignError, match=message):
        pool(scores(), formula=formula)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"family": "beta"}, DesignError, "scores are 0 or 1, to which a beta distribution"),
        ({"family": "poisson"}, SelectionError, "no family is called 'poisson'"),
        ({"model": "task"}, DesignError, "a formula stands in place of a model"),
        ({"covariates": COVARIATES}, DesignError, "covariates 'size', 'length' are not in the"),
        (
            {
                "covariates": {
                    "models": COVARIATES["models"],
                    "tasks": {"size": COVARIATES["tasks"]["length"]},
                }
            },
            DesignError,
            "covariate 'size' is of models and of tasks",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        pool(scores(), formula="score ~ model", **arguments)


@pytest.mark.parametrize(
    ("name", "family"),
    [("intercept", "bernoulli"), ("trials", "binomial"), ("by_task", "bernoulli"),
     ("noise", "gaussian"), ("lambda", "bernoulli")],
)  # fmt: skip
def test_covariates_with_names_of_other_parts_are_refused(name, family):
    """They ended in an error of Python about parameter names."""
    given = {"models": {name: COVARIATES["models"]["size"]}}
    with pytest.raises(DesignError, match=f"'{name}' have names of other parts"):
        made(f"score ~ {name} + (1 | task)", family, given)


def test_shares_are_no_right_answers():
    with pytest.raises(DesignError, match="scores are not all right or wrong"):
        pool(scores("gaussian"), formula="score ~ model")


@pytest.mark.parametrize("family", ["bernoulli", "gaussian", "beta"])
@pytest.mark.parametrize(
    "formula",
    [
        "score ~ model",
        "score ~ (1 | task)",
        "score ~ model + task + size + length",
        "score ~ 1 + (1 | model) + (1 | task) + (1 | model:task)",
        "score ~ model + (model | task) + (task | model)",
        "score ~ size + (model | task) + (1 | task:item)",
    ],
)
def test_expected_scores_are_those_of_the_distribution_of_scores(formula, family):
    """For random values of all latents, and items of no effect."""
    import torch

    from evalstats_plugin.hierarchical.engines.plates.model import bind, with_sizes
    from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit

    found = made(formula, family, COVARIATES if "length" in formula else
                 {"models": COVARIATES["models"]} if "size" in formula else None)  # fmt: skip
    rng, s = np.random.default_rng(0), found.model.structure
    sizes = {"model": 3, "task": 3, "item": 7}
    draws = {
        name: rng.gamma(2.0, 1.0, [2, *(sizes[p] for p in s.chains[x.plate]), *x.shape])
        for name, x in s.latents.items()
    }
    if "by_task_item" in draws:
        draws["by_task_item"] *= 0
        draws["sd_by_task_item"] *= 0
    model = with_sizes(found.model, found.data)
    fit = PlatedFit(
        model=model, method="nuts", log_evidence=None, log_evidence_error=None, moments={},
        draws=draws, ess={}, k_hat={}, history=np.array([]), proposals=None,
        bound=bind(model, found.data, torch.device("cpu")),
    )  # fmt: skip
    accuracy = found.accuracy(fit)
    observed = s.observed["score"]
    for draw, i, t in itertools.product(range(2), range(3), range(3)):
        place = {"model": i, "task": t, "item": 0}
        given = {}
        for name in found.model.structure.observed["score"].density.__signature__.parameters:
            if name in draws:
                value = draws[name][draw][tuple(place[p] for p in s.chains[s.latents[name].plate])]
            else:
                plates = s.chains[s.inputs[name]]
                value = found.data[name][tuple(place[p] for p in plates)]
            given[name] = torch.as_tensor(value, dtype=torch.float64)
        density = observed.density(**given)
        mean = density.probs if family == "bernoulli" else density.mean

        assert accuracy[0, draw, i, t] == pytest.approx(float(mean), abs=1e-8)


def test_right_answers_are_summed_where_items_have_no_effect():
    found = made("score ~ model")

    assert found.data["score"].shape == (3, 3)
    assert np.nansum(found.data["score"]) == np.nansum(scores().scores)
    assert np.isnan(found.data["score"][2, 0])
    assert made("score ~ (1 | item)").data["score"].shape == (3, 3, 7)


def test_the_density_is_the_one_that_the_formula_spells_out():
    """In SciPy, up to a constant: items of unequal tasks, and answers that are missing."""
    import torch

    from evalstats_plugin.hierarchical.engines.plates.model import bind, with_sizes
    from evalstats_plugin.hierarchical.engines.plates.nuts import Posterior

    found = made("score ~ model + (1 | task) + (1 | model:task) + (1 | task:item)")
    cpu = torch.device("cpu")
    bound = bind(with_sizes(found.model, found.data), found.data, cpu)
    posterior = Posterior(bound, torch.Generator().manual_seed(0))
    rows = np.random.default_rng(0).normal(size=(4, posterior.size))
    own, _ = posterior(rows)
    y, task = scores().scores[..., 0], np.repeat(range(3), list(SIZES.values()))
    place = np.concatenate([np.arange(size) for size in SIZES.values()])
    values = {name: np.squeeze(x) for name, x in posterior.natural(rows).items()}
    expected = []
    for i in range(len(rows)):
        z = {name: x[i] for name, x in values.items()}
        item = z["by_task_item"][task, place]
        effects = {"by_task": z["by_task"], "by_model_task": z["by_model_task"],
                   "by_task_item": item}  # fmt: skip
        level = z["intercept"] + z["model"][:, None] + (z["by_task"] + z["by_model_task"])[:, task]
        log_p = stats.norm.logpdf(z["intercept"]) + stats.norm.logpdf(z["model"]).sum()
        log_p += np.nansum(stats.bernoulli.logpmf(np.nan_to_num(y), special.expit(level + item))
                           * np.where(np.isnan(y), np.nan, 1))  # fmt: skip
        for name, effect in effects.items():
            sd = z[f"sd_{name}"]
            # The volumes of the maps from log σ, and from standard effects.
            log_p += stats.gamma.logpdf(sd, 2, scale=0.5) + np.log(sd)
            log_p += stats.norm.logpdf(effect, 0, sd).sum() + effect.size * np.log(sd)
        # Items that a task lacks are standard normal.
        lacking = np.ones((3, 7), dtype=bool)
        lacking[task, place] = False
        free = z["by_task_item"][lacking] / z["sd_by_task_item"]
        expected.append(log_p - (free**2).sum() / 2)

    np.testing.assert_allclose(np.diff(own), np.diff(expected), rtol=1e-8)


@pytest.mark.usefixtures("short_warm_up")
def test_a_formula_is_fitted_and_answers_what_other_fits_do():
    formula = "score ~ model"
    fit = pool(scores(), formula=formula, rng=0, options=BRIEF)

    assert (fit.model, fit.inference, fit.posterior.accuracy.shape) == (
        formula,
        "nuts",
        (2, 8, 3, 3),
    )
    assert fit[0].score == pytest.approx(float(np.nanmax(fit.counts.scores.mean(axis=1))))
    assert {row.model_b for row in fit.contrasts(baseline="model_0")} == {"model_1", "model_2"}
    assert "intercept" in fit.plated.to_frame().to_string()
    assert fit.to_arviz().posterior["model"].shape == (2, 8, 3)
    for judged in (fit.loo, fit.check, fit.prior_sensitivity, fit.evidence):
        with pytest.raises(DesignError, match="fits of formulas are not judged this way"):
            judged()
