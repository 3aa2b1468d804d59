"""Models that users write: exact sums, missing and ragged data, crossed plates, errors."""

import re

import arviz as az
import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Dirichlet,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LogNormal,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
)

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical import (
    HierarchicalOptions,
    Latent,
    Model,
    Observed,
    Plate,
    infer,
    pool,
)
from evalstats_plugin.hierarchical.data import data_of_plates, eval_counts
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions

NAN = float("nan")
QUICK = FitOptions(iterations=10, sets=8, draws=100, wider=2)


def test_discrete_latents_are_summed_exactly():
    """A mixture with a missing answer, against a grid of its one number."""
    y = np.array([-2.2, -1.7, 1.9, NAN, 2.4, 0.1])
    model = Model(
        plates=[Plate("question", 6)],
        latents=[
            Latent("share", Beta(2.0, 2.0)),
            Latent("easy", lambda share: Bernoulli(probs=share), "question"),
        ],
        observed=[Observed("y", lambda easy: Normal(4 * easy - 2, 0.8), "question")],
    )
    fit = infer(model, {"y": y}, n_particles=60, options=QUICK, rng=0)
    p = (np.arange(4000) + 0.5) / 4000
    parts = np.stack([(1 - p) * stats.norm(-2, 0.8).pdf(y[:, None]),
                      p * stats.norm(2, 0.8).pdf(y[:, None])])  # fmt: skip
    parts[:, 3] = np.stack([1 - p, p])
    log_p = np.log(parts.sum(0)).sum(0) + stats.beta(2, 2).logpdf(p)
    weight = special.softmax(log_p)
    of_members = (parts / parts.sum(0)) @ weight

    assert fit.log_evidence == pytest.approx(special.logsumexp(log_p) - np.log(4000), abs=0.01)
    np.testing.assert_allclose(fit.probability("easy"), of_members.T, atol=0.01)
    np.testing.assert_allclose(fit.draws["easy"].mean(0), of_members[1], atol=0.15)


def test_categories_with_a_vector_of_rates_are_summed_exactly():
    """Dirichlet, Categorical and indexing by a latent."""
    counts = [0.0, 9.0, 1.0, 10.0, 8.0]
    rates = torch.tensor([1.0, 9.0])
    model = Model(
        plates=[Plate("task", 5)],
        latents=[
            Latent("share", Dirichlet(torch.ones(2)), shape=(2,)),
            Latent("kind", lambda share: Categorical(probs=share), "task"),
        ],
        observed=[Observed("n", lambda kind: Poisson(rates[kind]), "task")],
    )
    fit = infer(model, {"n": counts}, n_particles=60, options=QUICK, rng=0)
    p = (np.arange(4000) + 0.5) / 4000
    near = stats.poisson(np.array([1.0, 9.0])[:, None]).pmf(counts)
    total = np.log(near[0][:, None] * p + near[1][:, None] * (1 - p)).sum(0)

    assert fit.log_evidence == pytest.approx(special.logsumexp(total) - np.log(4000), abs=0.02)


PRIORS = [
    (Normal(0.2, 1.0), stats.norm(0.2, 1.0)),
    (LogNormal(0.2, 0.6), stats.lognorm(0.6, scale=np.exp(0.2))),
    (HalfNormal(1.5), stats.halfnorm(scale=1.5)),
    (HalfCauchy(1.0), stats.halfcauchy(scale=1.0)),
    (Gamma(2.0, 1.5), stats.gamma(2.0, scale=1 / 1.5)),
    (Beta(2.0, 3.0), stats.beta(2.0, 3.0)),
    (StudentT(4.0, 0.0, 1.0), stats.t(4)),
]


@pytest.mark.parametrize(("prior", "known"), PRIORS, ids=lambda x: type(x).__name__)
def test_priors_of_torch_need_no_proposal(prior, known):
    """Evidence and posterior mean against a sum over quantiles of the prior."""
    model = Model(latents=[Latent("z", prior)], observed=[Observed("x", lambda z: Normal(z, 0.7))])
    fit = infer(model, {"x": 0.8}, n_particles=100, options=QUICK, rng=0)
    z = known.ppf((np.arange(20_000) + 0.5) / 20_000)
    like = stats.norm(z, 0.7).pdf(0.8)

    assert fit.log_evidence == pytest.approx(np.log(like.mean()), abs=0.04)
    assert float(fit.moments["z"].mean) == pytest.approx(like @ z / like.sum(), abs=0.06)


def test_a_multivariate_normal_prior_and_proposal():
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])
    prior = MultivariateNormal(torch.zeros(2), torch.tensor(covariance))
    model = Model(
        latents=[Latent("z", prior, shape=(2,))],
        observed=[Observed("x", lambda z: MultivariateNormal(z, 0.5 * torch.eye(2)))],
    )
    x = np.array([1.0, -0.5])
    fit = infer(model, {"x": x}, n_particles=100, rng=0)
    total = covariance + 0.5 * np.eye(2)

    expected = stats.multivariate_normal(np.zeros(2), total).logpdf(x)
    assert fit.log_evidence == pytest.approx(expected, abs=0.03)
    np.testing.assert_allclose(
        fit.moments["z"].mean, covariance @ np.linalg.solve(total, x), atol=0.06
    )


def questions(sizes, y):
    return Model(
        plates=[Plate("task", 2), Plate("question", sizes, within="task")],
        latents=[
            Latent("mu", Normal(0.0, 1.0), "task"),
            Latent("z", lambda mu: Normal(mu, 1.0), "question"),
        ],
        observed=[Observed("y", lambda z: Normal(z, 0.5), "question")],
    ), {"y": y}


@pytest.mark.parametrize("sizes", [(3, 1), 3])
def test_ragged_plates_and_missing_data_leave_the_evidence_of_what_is_there(sizes):
    ragged = [[0.4, 1.2, 0.9], [-0.7]] if sizes == (3, 1) else [[0.4, 1.2, 0.9], [-0.7, NAN, NAN]]
    fit = infer(*questions(sizes, ragged), n_particles=60, rng=0)
    cov = np.ones((3, 3)) + 1.25 * np.eye(3)
    expected = stats.multivariate_normal(np.zeros(3), cov).logpdf([0.4, 1.2, 0.9])

    expected += stats.norm(0, 1.5).logpdf(-0.7)
    assert fit.log_evidence == pytest.approx(expected, abs=0.05)
    assert fit.draws["z"].shape == (1000, 2, 3)


@pytest.mark.usefixtures("short_warm_up")
def test_lines_of_ragged_groups_with_missing_answers_are_sampled():
    """Each group has a vector of effects; groups differ in size, and an answer is missing."""
    x, y = [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0]], [[0.1, NAN, 2.2, 2.9], [NAN, 0.4]]
    model = Model(
        plates=[Plate("task", 2), Plate("question", (4, 2), within="task")],
        inputs={"x": "question"},
        latents=[
            Latent("line", MultivariateNormal(torch.zeros(2), torch.eye(2)), "task", shape=(2,))
        ],
        observed=[Observed("y", lambda line, x: Normal(line[0] + line[1] * x, 0.5), "question")],
    )
    model.check({"x": x, "y": y}, rng=0)
    fit = infer(model, {"x": x, "y": y}, "nuts", n_particles=8, steps=100, rng=0)

    for task, mean in enumerate(np.asarray(fit.moments["line"].mean)):
        seen = ~np.isnan(y[task])
        design = np.column_stack([np.ones(seen.sum()), np.array(x[task])[seen]])
        precision = np.eye(2) + design.T @ design / 0.25
        expected = np.linalg.solve(precision, design.T @ np.array(y[task])[seen] / 0.25)
        np.testing.assert_allclose(mean, expected, atol=0.06)


def crossed():
    return Model(
        plates=[Plate("model", 3), Plate("task", 2)],
        latents=[
            Latent("ability", Normal(0.0, 1.0), "model"),
            Latent("difficulty", Normal(0.0, 1.0), "task"),
        ],
        observed=[
            Observed("y", lambda ability, difficulty: Normal(ability - difficulty, 0.5),
                     ("model", "task")),
        ],
    )  # fmt: skip


@pytest.mark.usefixtures("short_warm_up")
def test_crossed_plates_are_refused_by_particles_and_drawn_by_nuts():
    y = np.array([[1.0, 0.2], [NAN, -0.4], [1.5, 0.9]])
    with pytest.raises(DesignError, match=r"'model' and 'task' are crossed.*method 'nuts'"):
        infer(crossed(), {"y": y})
    fit = infer(crossed(), {"y": y}, "nuts", n_particles=4, steps=60, rng=0)
    design = np.array([[*np.eye(3)[n], *-np.eye(2)[t]] for n in range(3) for t in range(2)])
    seen = ~np.isnan(y.ravel())
    precision = np.eye(5) + design[seen].T @ design[seen] / 0.25
    mean = np.linalg.solve(precision, design[seen].T @ y.ravel()[seen] / 0.25)
    found = np.r_[fit.moments["ability"].mean, fit.moments["difficulty"].mean]

    np.testing.assert_allclose(found, mean, atol=0.15)
    assert fit.r_hat < 1.2


def test_predictions_extend_a_plate_with_members_from_the_prior():
    model = Model(
        plates=[Plate("task", 2)],
        inputs={"trials": "task"},
        latents=[Latent("mu", Normal(2.0, 0.1)), Latent("z", lambda mu: Normal(mu, 0.2), "task")],
        observed=[Observed("y", lambda z, trials: Binomial(trials, logits=z), "task")],
    )
    fit = infer(model, {"y": [9.0, 8.0], "trials": [10.0, 10.0]}, options=QUICK, rng=0)
    drawn = fit.predictive({"task": 4}, {"trials": [10.0, 10.0, 10.0, 100.0]}, rng=0)["y"]

    assert drawn.shape == (100, 4)
    assert drawn[:, 3].mean() == pytest.approx(100 * special.expit(2), abs=3)


@pytest.mark.filterwarnings("ignore")
def test_arviz_reads_a_fit_and_leaves_one_out():
    y = np.random.default_rng(0).normal(0.5, 1.5, 20)
    model = Model(
        plates=[Plate("task", 20)],
        latents=[Latent("mu", Normal(0.0, 1.0)), Latent("s", HalfNormal(2.0))],
        observed=[Observed("y", lambda mu, s: Normal(loc=mu, scale=s), "task")],
    )
    fit = infer(model, {"y": y}, rng=0)
    data = fit.to_inference_data()

    loo = az.loo(data)
    assert float(getattr(loo, "elpd", None) or loo["elpd_loo"]) == pytest.approx(-37, abs=4)
    assert list(az.summary(data, kind="stats").index) == ["mu", "s"]
    assert data["posterior_predictive"]["y"].dims == ("chain", "draw", "task")
    assert list(fit.to_frame()["latent"]) == ["mu", "s"]


MU, Z = Latent("mu", Normal(0.0, 1.0)), Latent("z", lambda mu: Normal(mu, 1.0), "task")
TASK, X = Plate("task", 3), Observed("x", lambda z: Normal(z, 1.0), "task")
BROKEN = [
    (lambda: Model(plates=[TASK], latents=[Z], observed=[X]), "'z' depends on 'mu', which does"),
    (lambda: Model(latents=[MU], observed=[Observed("x", lambda mu: Normal(mu, 1.0), "week")]),
     "'x' is on plate 'week', which does not exist: there are none"),
    (lambda: Model(plates=[TASK], latents=[MU, Z],
                   observed=[Observed("x", lambda z: Normal(z, 1.0))]),
     "'x' depends on 'z' of plate 'task', which is not around it"),
    (lambda: Model(latents=[MU, MU], observed=[]), "two parts of the model are named 'mu'"),
    (lambda: Model(latents=[Latent("a", lambda b: Normal(b, 1.0)),
                            Latent("b", lambda a: Normal(a, 1.0))], observed=[]),
     "depend on each other in a circle"),
    (lambda: Model(plates=[Plate("question", 3, within="task"), TASK], latents=[], observed=[]),
     "list outer plates first"),
    (lambda: infer(Model(plates=[TASK], latents=[MU, Z], observed=[X]), {"x": [1.0, 2.0]}),
     "data 'x' have shape (2,), but their plates are task 3"),
    (lambda: infer(Model(plates=[TASK], latents=[MU, Z], observed=[X]), {}),
     "there are no data 'x'"),
    (lambda: infer(Model(latents=[Latent("n", Poisson(3.0))],
                         observed=[Observed("x", lambda n: Normal(n, 1.0))]), {"x": 1.0}),
     "latent 'n': there is no proposal for the support of Poisson"),
    (lambda: infer(Model(latents=[MU], observed=[Observed("x", lambda mu: Normal(mu, -1.0))]),
                   {"x": 1.0}),
     "the log density of x is no number"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), BROKEN)
def test_mistakes_are_named_in_one_line(build, message):
    with pytest.raises(DesignError, match=re.escape(message)) as raised:
        build()

    assert "\n" not in str(raised.value)


def test_a_method_that_does_not_exist_is_named():
    with pytest.raises(SelectionError, match="method"):
        infer(Model(latents=[MU], observed=[]), {}, "gibbs")


@pytest.mark.usefixtures("short_warm_up")
def test_logs_are_fitted_by_a_model_of_ones_own():
    """Beta posteriors are known; crossed plates are drawn by Markov chains; names are kept."""
    rng = np.random.default_rng(0)
    scores = (rng.random((3, 20)) < [[0.8], [0.6], [0.3]]).astype(float)
    scores[2, :5] = NAN
    shares = Model(
        plates=[Plate("model")],
        inputs={"trials": "model"},
        latents=[Latent("share", Beta(1.0, 1.0), "model")],
        observed=[Observed("right", lambda share, trials: Binomial(trials, share), "model")],
    )
    matrix = ResponseMatrix.from_array(scores, models=["a", "b", "c"])
    fit = pool(matrix, shares, rng=0)
    right, trials = np.nansum(scores, axis=1), (~np.isnan(scores)).sum(axis=1)

    assert fit.method == "qem"
    assert fit.to_frame()["model"].tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(fit.moments["share"].mean, (1 + right) / (2 + trials), atol=0.02)
    both = Model(
        plates=[Plate("model"), Plate("task")],
        inputs={"trials": ("model", "task")},
        latents=[Latent("ability", Normal(0.0, 1.0), "model"),
                 Latent("ease", Normal(0.0, 1.0), "task")],
        observed=[Observed("right", lambda ability, ease, trials: Binomial(
            trials, logits=ability + ease), ("model", "task"))],
    )  # fmt: skip
    short = HierarchicalOptions(chains=2, draws=8)
    tasks = ResponseMatrix.from_array(scores, tasks=["x", "y"] * 10)
    crossed_fit = pool(tasks, both, options=short, rng=0)
    assert crossed_fit.method == "nuts"
    assert crossed_fit.draws["ease"].shape == (16, 2)
    assert crossed_fit.to_frame()["task"].dropna().tolist() == ["x", "y"]


def test_covariates_of_logs_are_inputs_of_a_model_of_ones_own():
    counts = eval_counts(ResponseMatrix.from_array([[1.0], [0.0]], models=["a", "b"]))
    given = {"models": {"size": {"b": 2.0, "a": 7.0}}}

    found = data_of_plates(counts, {"size": ("model",)}, set(), given)["size"]
    np.testing.assert_array_equal(found, [7.0, 2.0])


def test_items_of_logs_lie_within_their_tasks():
    scores = np.array([[1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, NAN, 1.0]])
    matrix = ResponseMatrix.from_array(scores, tasks=["b", "a", "a", "b", "a"])
    counts = eval_counts(matrix)
    on = {"right": ("task", "item", "model")}
    found = data_of_plates(counts, on, {"right"}, None)["right"]

    expected = [[[1, 1], [1, NAN], [NAN, NAN]], [[0, 1], [1, 0], [0, 1]]]
    np.testing.assert_array_equal(found, expected)
    whole = data_of_plates(counts, {"right": ("model", "task")}, {"right"}, None)["right"]
    np.testing.assert_array_equal(whole, [[2, 1], [1, 2]])


PLAIN = [Latent("mu", Normal(0.0, 1.0))]
UNFIT = [
    (Model(plates=[Plate("task")], latents=PLAIN,
           observed=[Observed("right", lambda mu: Bernoulli(logits=mu), "task")]),
     "data 'right' are on task, but there are 2 models: add the plate 'model' to them"),
    (Model(plates=[Plate("model")], inputs={"size": "model"}, latents=PLAIN,
           observed=[Observed("right", lambda mu, size: Bernoulli(logits=mu + size), "model")]),
     "logs have no data 'size': they have 'right' and 'trials'; give values of each model or "
     "task by covariates={'models': {'size': …}}"),
    (Model(plates=[Plate("group")], latents=[Latent("mu", Normal(0.0, 1.0), "group")],
           observed=[]), "plate 'group' has no size, and no data are on it"),
]  # fmt: skip


@pytest.mark.parametrize(("own", "message"), UNFIT)
def test_a_model_that_does_not_fit_logs_is_refused(own, message):
    matrix = ResponseMatrix.from_array([[1.0], [0.0]])
    with pytest.raises(DesignError, match=re.escape(message)):
        pool(matrix, own)
