"""Results of `pool` against closed forms and simulations, and its errors."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical import fitting
from evalstats_plugin.hierarchical.data import eval_counts
from evalstats_plugin.hierarchical.fit import HierarchicalFit
from evalstats_plugin.hierarchical.fitting import HierarchicalOptions, pool
from evalstats_plugin.report.hierarchical import HIERARCHICAL, shown

pytestmark = pytest.mark.needs("torch")

SHORT = HierarchicalOptions(chains=4, draws=152, warm_up=80)
BRIEF = HierarchicalOptions(chains=2, draws=15, warm_up=10)
SIZES = (40, 10, 1, 60)
COVERAGE = Path(__file__).parents[2] / "fixtures" / "validation" / "hierarchical_coverage.json"


def evals(seed=0, n=5, sizes=SIZES, epochs=1):
    """Model 0 did not run the last task, model 1 ran only the first."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat([f"t{k}" for k in range(len(sizes))], sizes)
    hard = np.repeat(np.linspace(-1, 1, len(sizes)), sizes)
    p = special.expit(np.linspace(1, -0.5, n)[:, None] - hard)
    scores = (rng.random((n, len(hard), epochs)) < p[..., None]).astype(float)
    scores[0, tasks == "t3"] = np.nan
    scores[1, tasks != "t0"] = np.nan
    return ResponseMatrix.from_array(scores, tasks=tasks.tolist())


@pytest.fixture(scope="module")
def fit():
    return pool(evals(), "task", rng=1, options=SHORT)


def cell(found, model, task):
    return next(row for row in found if (row.model, row.task) == (model, task))


def test_rows_are_those_of_every_model_on_every_task_and_over_all(fit):
    assert len(fit) == 5 * (4 + 1)
    assert fit.model == "task"
    assert fit.inference == "gibbs"
    assert "crossed" in fit.reason
    overall = [row.estimate for row in fit if row.task is None]
    assert overall == sorted(overall, reverse=True)
    for row in fit:
        assert 0 <= row.low < row.estimate < row.high <= 1
        assert (row.score is None) == (row.shrinkage is None)
    whole = cell(fit, "model_2", None)
    tasks = [cell(fit, "model_2", f"t{k}") for k in range(4)]
    assert whole.estimate == pytest.approx(np.mean([row.estimate for row in tasks]))
    assert whole.n_items == sum(SIZES)


def test_few_questions_are_pulled_further_than_many(fit):
    pulls = {k: abs(cell(fit, "model_2", f"t{k}").shrinkage) for k in (0, 2)}

    assert pulls[2] > 4 * pulls[0]


def test_tasks_that_were_not_run_are_predicted_with_a_note(fit):
    missing, run = cell(fit, "model_1", "t3"), cell(fit, "model_2", "t3")

    assert missing.score is None
    assert missing.notes == ("not run: predicted from the other models and tasks",)
    assert missing.high - missing.low > 1.5 * (run.high - run.low)
    assert "3 of 4 tasks not run" in cell(fit, "model_1", None).notes[0]


def test_shares_of_one_cell_are_exact():
    scores = evals()
    found = pool(scores, "per-task", rng=0)
    right = int(np.nansum(scores.scores[2, scores.tasks == "t0"]))
    row, beta = cell(found, "model_2", "t0"), stats.beta(1 + right, 41 - right)

    assert (row.low, row.high) == pytest.approx(beta.ppf([0.025, 0.975]).tolist(), abs=1e-12)
    assert row.estimate == pytest.approx(beta.mean())
    assert found.inference == "exact"
    assert "only the prior speaks" in cell(found, "model_1", "t3").notes[0]
    pooled = pool(scores, "beta-binomial", rng=0)
    total = int(np.nansum(scores.scores[2]))
    expected = stats.beta(1 + total, 112 - total).ppf([0.025, 0.975])
    assert [getattr(cell(pooled, "model_2", None), k) for k in ("low", "high")] == pytest.approx(
        expected.tolist(), abs=1e-12
    )


def test_loo_of_closed_forms_is_the_predictive_probability_of_each_cell():
    """Beta-Binomial probabilities, by the ratio of evidences with and without the cell."""
    scores = evals(sizes=(6, 4, 5, 3))
    found = pool(scores, "beta-binomial", rng=0).loo()
    right, trials = (
        np.array([[f(scores.scores[i, scores.tasks == f"t{k}"]) for k in range(4)]
                  for i in range(5)]) for f in (np.nansum, lambda x: (~np.isnan(x)).sum())
    )  # fmt: skip
    evidence = lambda s, n: special.betaln(1 + s, 1 + n - s)  # noqa: E731
    whole = evidence(right.sum(1), trials.sum(1))[:, None]
    without = evidence(right.sum(1)[:, None] - right, trials.sum(1)[:, None] - trials)

    assert found.elpd == pytest.approx((whole - without)[trials > 0].sum())
    assert found.n_cells == int((trials > 0).sum())


def test_pooling_predicts_left_out_cells_better_than_closed_forms(fit):
    alone = pool(evals(), "per-task", rng=0).loo()

    assert fit.loo().elpd > alone.elpd


def test_contrasts_are_those_of_the_draws(fit):
    found = fit.contrasts(baseline="model_4")
    accuracy = fit.posterior.accuracy
    difference = accuracy[:, :, 2] - accuracy[:, :, 4]
    row = next(row for row in found if row.model_b == "model_2")

    assert len(found) == 4
    assert row.difference == pytest.approx(difference.mean())
    assert row.prob_better == pytest.approx((difference.mean(2) > 0).mean())
    assert row.prob_better_on_a_task == pytest.approx((difference > 0).mean())
    assert len(fit.contrasts()) == 10
    on_task = fit.contrasts(task="t0")[0]
    assert on_task.difference == pytest.approx(
        (accuracy[:, :, 1] - accuracy[:, :, 0])[..., 0].mean()
    )
    with pytest.raises(SelectionError, match="no task is called 't9'"):
        fit.contrasts(task="t9")


def test_harder_tasks_come_first(fit):
    found = fit.difficulties()

    assert {found[0].task, found[1].task} <= {"t2", "t3"}
    assert [row.estimate for row in found] == sorted((r.estimate for r in found), reverse=True)


def test_checks_find_what_a_model_misses(fit):
    """One probability for all tasks cannot make tasks that differ so much."""
    spread = "standard deviation of tasks"
    found = {row.statistic: row.p_value for row in fit.check()}
    flat = pool(evals(n=20), "beta-binomial", rng=0).check()

    assert all(0.01 < p < 0.99 for p in found.values())
    assert next(row for row in flat if row.statistic == spread).p_value < 0.01


def test_another_prior_is_fitted_and_the_same_changes_nothing(fit):
    brief = pool(evals(), rng=3, options=BRIEF)
    same = brief.prior_sensitivity({"same": ("gamma", 2.0, 2.0)}, rng=3)
    assert max(abs(row.change) for row in same) < 1e-9

    other = fit.prior_sensitivity({"half": ("gamma", 2.0, 4.0)})
    halved = replace(SHORT, priors={"default": ("gamma", 2.0, 4.0)})
    again = pool(evals(), "task", rng=3, options=halved)
    for row in other:
        whole = cell(again, row.model, None)
        assert abs(row.estimate - whole.estimate) < 0.3 * whole.std_error
        assert row.ess > 0


def test_arviz_data_has_the_draws_with_names(fit):
    az = pytest.importorskip("arviz")
    data = fit.to_arviz()

    assert data.posterior["accuracy"].sel(model="model_2", task="t0").shape == (4, 152)
    assert float(az.rhat(data["posterior"]["intercept"].to_dataset())["intercept"]) < 1.2
    groups = {"log_likelihood", "posterior_predictive", "observed_data", "constant_data"}
    assert [name for name in groups if not data[name].data_vars] == []
    assert data["observed_data"]["right"].dims == ("model", "task")


def test_covariates_are_per_unit_of_the_covariate():
    rng = np.random.default_rng(5)
    size = rng.normal(10, 4, 30)
    p = special.expit(0.2 * (size[:, None] - 10) - np.repeat(rng.normal(size=5), 60))
    scores = ResponseMatrix.from_array(
        (rng.random(p.shape) < p).astype(float), tasks=np.repeat(list("abcde"), 60).tolist()
    )
    given = {"models": {"size": {f"model_{i}": s for i, s in enumerate(size)}}}
    short = HierarchicalOptions(draws=60, warm_up=50)
    found = pool(scores, covariates=given, rng=0, options=short).effects()[0]

    assert found.low < 0.2 < found.high
    assert found.high - found.low < 0.1
    assert found.per_sd == pytest.approx(found.estimate * size.std())


def test_epochs_are_counted_where_questions_have_effects():
    scores = evals(epochs=3)
    found = pool(scores, "across-task", rng=0, options=BRIEF)
    task = pool(scores, "task", rng=0, options=BRIEF)

    assert found.counts.question_trials.max() == 3
    assert task.counts.trials[2].tolist() == list(SIZES)
    assert "sd_question" in found.posterior.parameters
    assert any(note.startswith("too few draws") for note in found.notes)


@pytest.mark.parametrize("model", ["task", "question", "across-task", "per-task"])
@pytest.mark.parametrize("shape", [(1, (7,)), (1, (7, 1)), (3, (5,)), (2, (1, 1))], ids=str)
def test_one_model_one_task_and_all_right_give_finite_numbers(model, shape):
    n, sizes = shape
    tasks = np.repeat([f"t{k}" for k in range(len(sizes))], sizes).tolist()
    scores = ResponseMatrix.from_array(np.ones((n, sum(sizes))), tasks=tasks)
    found = pool(scores, model, rng=0, options=BRIEF)

    assert len(found) == n * (len(sizes) + 1)
    assert all(0 < row.low <= row.estimate <= row.high <= 1 for row in found)
    assert any("all right or all wrong" in note for note in found.notes)


def test_auto_chooses_the_simple_model_where_there_is_nothing_to_borrow():
    found = pool(evals(n=5, sizes=(9, 9, 9, 9)), rng=0, options=BRIEF)
    alone = pool(ResponseMatrix.from_array([[1, 0, 1]]), rng=0)

    assert found.model == "shared"
    assert alone.model == "per-task"
    assert "1 model on 1 task" in alone.reason


def one_model(shares, size=40, seed=0):
    rng = np.random.default_rng(seed)
    right = rng.random((1, len(shares) * size)) < np.repeat(shares, size)
    tasks = np.repeat([f"t{k}" for k in range(len(shares))], size).tolist()
    return ResponseMatrix.from_array(right.astype(float), tasks=tasks)


def test_auto_chooses_particles_for_nested_evals_and_gibbs_for_crossed_ones(fit):
    nested = pool(one_model([0.5, 0.6, 0.8]), rng=0, options=BRIEF)

    assert (nested.model, nested.inference) == ("task", "importance")
    assert "inference importance: nested, not crossed" in nested.reason
    assert nested.diagnostics["least_ess"] > 100
    assert nested.log_evidence_error < 0.1
    assert (fit.inference, fit.log_evidence) == ("gibbs", None)
    assert len(nested.difficulties()) == 3
    assert len(nested.loo().notes) <= 1


def test_the_evidence_favours_the_model_that_generated_the_answers():
    """Shares alike: one for all tasks; unlike: one of its own each, or from a distribution."""
    alike = pool(one_model([0.6] * 8), rng=0, options=BRIEF).evidence()
    apart = pool(one_model([0.1, 0.9] * 4), "per-task", rng=0).evidence()

    assert alike[0].model == "beta-binomial"
    assert apart[-1].model == "beta-binomial"
    assert apart[-1].probability < 1e-6
    for rows in (alike, apart):
        assert {row.model for row in rows} == {"beta-binomial", "per-task", "task"}
        assert sum(row.probability for row in rows) == pytest.approx(1)
        assert rows[0].log_bayes_factor == 0
    right = one_model([0.6] * 8).scores.sum()
    exact = next(row for row in alike if row.model == "beta-binomial")
    assert exact.log_evidence == pytest.approx(special.betaln(1 + right, 321 - right))


def test_evidence_of_a_crossed_eval_is_refused(fit):
    with pytest.raises(DesignError, match="5 models on 4 tasks: the evidence is computed for one"):
        fit.evidence()


def test_too_few_effective_particles_lead_to_gibbs_sampling(monkeypatch):
    monkeypatch.setattr(fitting, "MIN_SHARE", 2.0)
    found = pool(one_model([0.5, 0.6, 0.8]), rng=0, options=BRIEF)

    assert found.inference == "gibbs"
    assert any("particles are effective: Gibbs sampling" in note for note in found.notes)


def test_the_simple_model_is_recommended_where_pooling_has_no_benefit():
    rng = np.random.default_rng(0)
    p = np.repeat(rng.uniform(0.2, 0.8, (4, 3)), 1500, axis=1)
    tasks = np.repeat(list("abc"), 1500).tolist()
    scores = ResponseMatrix.from_array((rng.random(p.shape) < p).astype(float), tasks=tasks)
    found = pool(scores, rng=0, options=replace(SHORT, draws=300, warm_up=40))

    assert any("use model 'per-task'" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "tusk"}, SelectionError, "no model is called 'tusk'; did you mean task"),
        ({"inference": "nuts"}, SelectionError, "no inference is called 'nuts'"),
        ({"device": "gpu"}, SelectionError, "no device is called 'gpu'"),
        ({"model": "task", "inference": "exact"}, SelectionError, "choose 'gibbs' or 'auto'"),
        ({"model": "per-task", "inference": "importance"}, SelectionError, "choose 'exact' or"),
        ({"inference": "importance"}, SelectionError, "needs model 'task', and one model or one"),
        ({"model": "question", "inference": "importance"}, SelectionError, "choose 'gibbs' or"),
        ({"confidence_level": 95}, DesignError, "is not between 0 and 1"),
        ({"covariates": {"models": {"size": {"model_0": 1.0}}}}, DesignError,
         "no value for models model_1, model_2"),
        ({"covariates": {"items": {}}}, DesignError, "give those of 'models' or of 'tasks'"),
        ({"model": "per-task", "covariates": {"tasks": {"n": dict.fromkeys(
            ("t0", "t1", "t2"), 1.0) | {"t3": 2.0}}}}, DesignError, "has no covariates"),
    ],
)  # fmt: skip
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        pool(evals(), rng=0, **arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"draws": 0}, DesignError, "4 chains of 0 draws after a warm-up of 300 are too few"),
        ({"priors": {"task": ("gamma", -1.0, 2.0)}}, DesignError, "give 'gamma' 2 numbers above 0"),
        ({"priors": {"task": ("beta", 1.0, 2.0)}}, SelectionError, "no prior is called 'beta'"),
        ({"priors": {"tusk": ("gamma", 1.0, 2.0)}}, SelectionError, "no scale is called 'tusk'"),
    ],
)
def test_options_are_checked_when_they_are_made(options, error, message):
    with pytest.raises(error, match=message):
        HierarchicalOptions(**options)


def test_scores_outside_the_unit_interval_are_refused():
    with pytest.raises(DesignError, match="score 3 of model 'model_0' on item item_1"):
        pool(ResponseMatrix.from_array([[1, 3.0], [0, 1]]))
    with pytest.raises(DesignError, match="there are no scores"):
        pool(ResponseMatrix.from_array([[np.nan, np.nan]]))


def test_the_table_fits_80_columns_and_shows_what_pooling_did(fit):
    file = io.StringIO()
    HIERARCHICAL.print_table(shown(fit), file, heading="made by a test", width=80)
    text = file.getvalue()

    assert max(map(len, text.splitlines())) <= 80
    for word in ("Score", "Estimate", "Pull", "95 % interval", "R-hat at most"):
        assert word in text
    assert "| model_2 |" in HIERARCHICAL.to_markdown(shown(fit), "made by a test")


def test_results_are_plain_numbers(fit):
    assert isinstance(fit, HierarchicalFit)
    json.dumps([fit.to_dict(), fit.summary(), fit.contrasts().to_dict()], allow_nan=False)
    assert len(fit.to_frame()) == len(fit)


def test_contrasts_cover_the_truth_in_simulated_evals():
    """What tests/validation/test_hierarchical_coverage.py found."""
    study = json.loads(COVERAGE.read_text(encoding="utf-8"))
    by = {(row["intervals"], row["contrast"]): row for row in study["rows"]}

    for what in ("overall", "task"):
        assert 0.93 <= by["pooled", what]["coverage"] <= 0.97
        assert by["pooled", what]["width"] < by["per-task", what]["width"]
        assert by["pooled, limits a quarter narrower", what]["coverage"] < 0.93


def test_models_are_compared_by_what_they_predict_of_left_out_cells(fit):
    rows = {row.model: row for row in fit.compare("per-task", "beta-binomial")}

    assert next(iter(rows)) == "task"
    for name in ("per-task", "beta-binomial"):
        alone = pool(evals(), name, rng=0).loo().elpd
        assert rows[name].elpd == pytest.approx(alone)
        assert rows[name].difference == pytest.approx(alone - fit.loo().elpd)
        assert rows[name].std_error > 0
    with pytest.raises(SelectionError, match="no model is called 'taks'"):
        fit.compare("taks")


def test_models_that_count_epochs_are_not_compared_with_those_that_average():
    found = pool(evals(epochs=2), "per-task", rng=0)
    with pytest.raises(DesignError, match="do not predict the same"):
        found.compare("question")


def test_right_answers_tell_what_they_told_and_partial_credit_more():
    """Beta scores of concentration 3 vary a quarter as much as right answers."""
    rng = np.random.default_rng(0)
    p = np.array([[0.3], [0.6]])
    graded = rng.beta(3 * p, 3 * (1 - p), (2, 4000))
    for scores, dispersion in (
        (1.0 * (rng.random((2, 400)) < p), 1.0),
        (graded, 1 / 4),
        (1.0 * (rng.random((4, 2, 4000)) < graded).transpose(1, 2, 0), 1 / 4 + 3 / 4 / 4),
    ):
        counts = eval_counts(ResponseMatrix.from_array(scores))
        assert counts.dispersion == pytest.approx(dispersion, rel=0.05)
        np.testing.assert_allclose(counts.informative[1], counts.trials / counts.dispersion)
    whole = eval_counts(ResponseMatrix.from_array(np.array([[1.0, 0.0, np.nan, 1.0]])))
    assert whole.dispersion.tolist() == [1.0]


def test_limits_of_partial_credit_are_as_narrow_as_scores_are_close():
    rng = np.random.default_rng(1)
    close = 0.5 + rng.uniform(-0.1, 0.1, (1, 400))
    row = pool(ResponseMatrix.from_array(close), "per-task", rng=0).rows[0]
    normal = 2 * 1.96 * close.std(ddof=1) / 20

    assert row.high - row.low == pytest.approx(normal, rel=0.1)


@pytest.mark.parametrize("chosen", [{"by": "subject"}, {"top": 3}])
def test_counts_are_not_sliced(chosen):
    """They were pooled whole, as if nothing had been asked."""
    counts = eval_counts(ResponseMatrix.from_array(np.array([[1.0, 0.0, 1.0]])))

    with pytest.raises(DesignError, match="pass the responses, or leave both out"):
        pool(counts, **chosen)
