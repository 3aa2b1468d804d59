"""Data that a model cannot have produced, cells that are missing, and blocks of members."""

import re

import arviz as az
import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions as td
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    HalfNormal,
    LogNormal,
    Normal,
    Poisson,
    Uniform,
)

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer
from evalstats_plugin.hierarchical.engines.plates import nuts
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions

NAN = float("nan")
QUICK = FitOptions(iterations=3, sets=2, draws=20, wider=2)
MU = Latent("mu", Normal(0.0, 1.0))


def fit_of(density, y, method="qem", latent=MU):
    model = Model(
        plates=[Plate("task", len(y))], latents=[latent], observed=[Observed("y", density, "task")]
    )
    # A density is recorded for as many rows as there are chains, and for a quarter: of one, once.
    many = 1 if method == "nuts" else 4
    return infer(model, {"y": y}, method, n_particles=many, steps=4, options=QUICK, rng=0)


def logits(mu):
    return torch.stack([mu, 0 * mu, 0 * mu])


IMPOSSIBLE = [
    (lambda mu: Bernoulli(logits=mu), [0, 1, 2.0], "task 2: 2 is not possible, values are 0 and 1"),
    (lambda mu: Bernoulli(logits=mu), [0.5, 1, 0], "task 0: 0.5 is not possible, values are 0"),
    (lambda mu: Poisson(mu.exp()), [0, 2.5, 1], "task 1: 2.5 is not possible, values are whole"),
    (lambda mu: Binomial(5, logits=mu), [0, 7, 2.0], "values are whole numbers from 0 to 5"),
    (lambda mu: Categorical(logits=logits(mu)), [1, 2, 3.0], "values are whole numbers from 0 to"),
    (lambda mu: LogNormal(mu, 2.0), [0.1, NAN, -1.0], "task 2: -1 is not possible, values are num"),
    (lambda mu: Beta(1 + mu.exp(), 2.0), [0.1, 1.0, 0.5], "task 1: 1 is not possible"),
]


@pytest.mark.parametrize("method", ["qem", "vi", "nuts"])
@pytest.mark.parametrize(("density", "y", "message"), IMPOSSIBLE)
def test_data_outside_the_support_are_named(density, y, message, method):
    with pytest.raises(DesignError, match=re.escape(message)) as raised:
        fit_of(density, y, method)

    assert "data 'y' of task" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("density", "y"),
    [
        (lambda mu: Bernoulli(logits=mu), [0, 1, NAN]),
        (lambda mu: Uniform(0.0, mu.exp()), [0.1, 0.2, 0.3]),
        (lambda mu: Beta(1 + 0 * mu, 1.0), [0.0, 1.0, 0.5]),
        (lambda y, mu: -(y - mu).square(), [9.5, -3.0, 0.0]),
    ],
    ids=["missing", "bounds by a latent", "an edge with a density", "a density alone"],
)
def test_possible_data_pass(density, y):
    assert np.isfinite(fit_of(density, y).log_evidence)


def test_a_function_that_fails_for_one_member_is_named():
    with pytest.raises(DesignError, match="the function of 'y' fails for one member") as raised:
        fit_of(lambda mu: Normal(mu if mu > 0 else -mu, 1.0), [1.0, 2.0])

    assert "torch.where instead of if" in str(raised.value)


OF_TORCH = {
    "Cauchy": (td.Cauchy(0.0, 1.0), ()),
    "Chi2": (td.Chi2(3.0), ()),
    "ContinuousBernoulli": (td.ContinuousBernoulli(0.3), ()),
    "Exponential": (td.Exponential(1.0), ()),
    "FisherSnedecor": (td.FisherSnedecor(3.0, 4.0), ()),
    "Gumbel": (td.Gumbel(0.0, 1.0), ()),
    "Independent": (td.Independent(Normal(torch.zeros(2), torch.ones(2)), 1), (2,)),
    "InverseGamma": (td.InverseGamma(3.0, 1.0), ()),
    "Kumaraswamy": (td.Kumaraswamy(2.0, 2.0), ()),
    "Laplace": (td.Laplace(0.0, 1.0), ()),
    "LogisticNormal": (td.LogisticNormal(torch.zeros(2), torch.ones(2)), (3,)),
    "LowRank": (
        td.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)), (2,)),
    "RelaxedBernoulli": (td.RelaxedBernoulli(torch.tensor(0.5), torch.tensor(0.5)), ()),
    "Transformed": (td.TransformedDistribution(Normal(0.0, 1.0), [td.ExpTransform()]), ()),
    "VonMises": (td.VonMises(0.0, 1.0), ()),
    "Weibull": (td.Weibull(1.0, 2.0), ()),
    "Uniform": (td.Uniform(0.0, 2.0), ()),
    "Pareto": (td.Pareto(1.0, 3.0), ()),
    "LKJCholesky": (td.LKJCholesky(3, 1.0), (3, 3)),
}  # fmt: skip
ON_THE_LINE_ONLY = {"Uniform", "Pareto", "LKJCholesky"}
"""No proposal has their support."""


@pytest.mark.parametrize("name", OF_TORCH)
def test_distributions_of_torch_are_priors(name, monkeypatch):
    monkeypatch.setattr(nuts, "_WINDOWS", (5, 5, 5, 10, 10, 10))
    prior, shape = OF_TORCH[name]
    latent = Latent("z", prior, shape=shape)
    drawn = fit_of(lambda z: Normal(z.sum(), 1.0), [0.0, 0.5, 1.0], "nuts", latent)

    assert bool(prior.support.check(torch.as_tensor(drawn.draws["z"]).float()).all())
    if name in ON_THE_LINE_ONLY:
        with pytest.raises(DesignError, match="there is no proposal for the support"):
            fit_of(lambda z: Normal(z.sum(), 1.0), [0.0], latent=latent)
    else:
        found = fit_of(lambda z: Normal(z.sum(), 1.0), [0.0, 0.5, 1.0], latent=latent)
        assert np.isfinite(found.log_evidence)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("short_warm_up")
def test_only_observed_cells_are_left_out_by_arviz():
    """Exact leave-one-out densities of a normal mean with known variance."""
    rng = np.random.default_rng(0)
    y = rng.normal(0.4, 1.0, (12, 10))
    y[rng.random(y.shape) < 0.5] = NAN
    model = Model(
        plates=[Plate("model", 12), Plate("task", 10)],
        latents=[MU],
        observed=[Observed("y", lambda mu: Normal(mu, 1.0), ("model", "task"))],
    )
    fit = infer(model, {"y": y}, "nuts", n_particles=8, steps=150, rng=0)
    seen = y[~np.isnan(y)]
    precision = len(seen)  # One of the prior, one less observation.
    mean = (seen.sum() - seen) / precision
    exact = stats.norm(mean, np.sqrt(1 + 1 / precision)).logpdf(seen)
    data = fit.to_inference_data()
    loo = az.loo(data)

    assert data["log_likelihood"]["y"].shape[-1] == len(seen) == data["observed_data"]["y"].size
    np.testing.assert_array_equal(data["observed_data"]["y"], seen)
    assert float(getattr(loo, "elpd", None) or loo["elpd_loo"]) == pytest.approx(
        exact.sum(), abs=0.1)  # fmt: skip
    assert float(loo["se"]) == pytest.approx(exact.std() * len(seen) ** 0.5, rel=0.02)
    assert np.isnan(fit.log_likelihood()["y"][:, np.isnan(y)]).all()


def plain_effects():
    return Model(
        plates=[Plate("task", 4), Plate("item", 5, within="task")],
        latents=[MU, Latent("sd", HalfNormal(1.0)),
                 Latent("u", lambda mu, sd: Normal(mu, 0.1 + sd), "task")],
        observed=[Observed("y", lambda u: Normal(u, 0.8), "item")],
    )  # fmt: skip


def effects_of_items():
    return Model(
        plates=[Plate("task", 4), Plate("item", (5, 3, 5, 2), within="task")],
        latents=[MU, Latent("u", lambda mu: Normal(mu, 1.0), "task"),
                 Latent("k", Normal(0.0, 0.5), "item")],
        observed=[Observed("y", lambda u, k: Normal(u - k, 0.8), "item")],
    )  # fmt: skip


def kinds_of_items():
    return Model(
        plates=[Plate("task", 4), Plate("item", 5, within="task")],
        latents=[Latent("share", Beta(2.0, 2.0)),
                 Latent("easy", lambda share: Bernoulli(probs=share), "item")],
        observed=[Observed("y", lambda easy: Normal(2 * easy - 1, 0.8), "item")],
    )  # fmt: skip


def no_latent_within():
    return Model(
        plates=[Plate("task", 4), Plate("item", 5, within="task")],
        latents=[MU],
        observed=[Observed("y", lambda mu: Normal(mu, 1.0), "item")],
    )


@pytest.mark.parametrize(
    ("build", "least"),
    [(plain_effects, 24_000), (effects_of_items, 9_000), (kinds_of_items, 5_000),
     (no_latent_within, 2_000)],
)  # fmt: skip
@pytest.mark.parametrize("method", ["qem", "mp-vi"])
def test_blocks_of_members_change_nothing(build, least, method):
    """The same fit with one block of all members, and with the smallest blocks there can be."""
    y = np.random.default_rng(1).normal(0.0, 1.0, (4, 5))
    y[1, 3:], y[3, 2:] = NAN, NAN
    model, fits = build(), []
    for memory in (2**28, least):
        options = FitOptions(memory=memory, sets=2, draws=20, wider=1)
        fits.append(infer(model, {"y": y}, method, n_particles=6, steps=2, options=options, rng=0))
    whole, split = fits

    assert max(split.sets[0].scene.blocks.values()) < 4
    assert split.log_evidence == pytest.approx(whole.log_evidence, rel=1e-9)
    for name, moments in whole.moments.items():
        np.testing.assert_allclose(split.moments[name].mean, moments.mean, rtol=1e-7, atol=1e-9)
