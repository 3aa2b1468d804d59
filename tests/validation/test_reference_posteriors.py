"""The gate of reference posteriors: means within .1 sd, sds within 10 %, for each engine.

Posteriors of one number are sums over a grid; those of normal models are linear algebra; those of
eight schools are sums over a grid of the mean and the standard deviation of schools, and as
posteriordb publishes them. Writes fixtures/validation/reference_posteriors.json: for each model and
engine the error of the mean in sds, and the ratio of the sds.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from reference_posteriors import (
    GRID,
    exact,
    funnel,
    linear,
    near,
    of_one_number,
    schools,
    schools_moments,
)
from scipy import stats
from torch import distributions as td
from torch.distributions import MultivariateNormal, Normal

from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions
from evalstats_plugin.hierarchical.engines.plates.model import bind, with_sizes
from evalstats_plugin.hierarchical.engines.plates.nuts import Posterior

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "reference_posteriors.json"
NAN = float("nan")
PARTICLES = ("qem", "rws", "mp-vi", "mp-is", "iwae", "vi")
NOT_CLAIMED = {("interval", method) for method in PARTICLES}
"""No proposal has the support of a uniform distribution."""


def write(model, method, fit, name, mean, sd):
    """Keep the errors of a fit."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    found = fit.moments[name]
    known[f"{model}, {method}"] = {
        "error_of_mean": round(float(np.max(np.abs(found.mean - mean) / sd)), 3),
        "ratio_of_sd": round(float(np.max(np.abs(np.log(found.std_dev / sd)))), 3),
        "notes": len(fit.notes),
    }
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.mark.parametrize("method", ["nuts", *PARTICLES])
@pytest.mark.parametrize("name", GRID)
def test_posteriors_of_one_number(name, method):
    if (name, method) in NOT_CLAIMED:
        pytest.skip("no proposal has this support")
    model, data = of_one_number(name)
    mean, sd = exact(*GRID[name])
    options = {} if method == "nuts" else {"n_particles": 100}
    fit = infer(model, data, method, rng=0, **options)
    write(name, method, fit, "z", mean, sd)

    assert near(fit, "z", mean, sd)


@pytest.mark.parametrize("method", ["nuts", "qem", "mp-vi"])
def test_eight_schools(method):
    """Posteriordb publishes mu 4.4 (3.3) and tau 3.6 (3.2)."""
    model, data = schools()
    mu, tau = schools_moments()
    options = {} if method == "nuts" else {"n_particles": 100, "options": FitOptions(sets=100)}
    fit = infer(model, data, method, rng=0, **options)
    for name, known in (("mu", mu), ("tau", tau)):
        write(f"eight schools, {name}", method, fit, name, *known)

    assert mu[0] == pytest.approx(4.4, abs=0.1)
    assert tau[0] == pytest.approx(3.6, abs=0.1)
    right = near(fit, "mu", *mu) and near(fit, "tau", *tau)
    assert right or (method != "nuts" and fit.notes)
    if method == "nuts":
        assert fit.r_hat < 1.01
        assert min(float(x.min()) for x in fit.ess.values()) > 1000


def test_neals_funnel():
    """The log scale is N(0, 3), which other samplers do not reach."""
    fit = infer(funnel(), {}, "nuts", rng=0)
    write("funnel", "nuts", fit, "v", 0.0, 3.0)

    assert near(fit, "v", 0.0, 3.0)
    assert stats.kstest(fit.draws["v"][::4], stats.norm(0, 3).cdf).pvalue > 0.001


@pytest.mark.parametrize("method", ["qem", "mp-vi"])
def test_particles_say_on_the_funnel_that_they_miss_a_part(method):
    """In each of ten runs; of the mean of three normal numbers, in none."""
    model, data = of_one_number("mean")
    for seed in range(10):
        assert infer(funnel(), {}, method, rng=seed).notes
        assert infer(model, data, method, rng=seed).moved == {}


def test_correlations_of_an_lkj_distribution():
    """The first correlation is 2 Beta(η + (d − 2) / 2, ·) − 1."""
    model = Model(latents=[Latent("z", td.LKJCholesky(3, 2.0), shape=(3, 3))], observed=[])
    fit = infer(model, {}, "nuts", rng=0)
    correlation = fit.draws["z"][:, 1, 0]

    assert correlation.mean() == pytest.approx(0, abs=0.04)
    assert correlation.std() == pytest.approx(2 * stats.beta(2.5, 2.5).std(), rel=0.1)


def test_a_vector_with_correlated_numbers():
    covariance = np.array([[1.0, 0.95], [0.95, 1.0]])
    prior = MultivariateNormal(torch.zeros(2), torch.tensor(covariance))
    model = Model(
        plates=[Plate("task", 3)],
        latents=[Latent("z", prior, shape=(2,))],
        observed=[Observed("x", lambda z: Normal(z[0] - z[1], 0.3), "task")],
    )
    fit = infer(model, {"x": [0.3, 0.6, 0.2]}, "nuts", rng=0)
    mean, variance = linear(np.array([[1.0, -1.0]] * 3), np.array([0.3, 0.6, 0.2]), 0.3, covariance)

    write("correlated vector", "nuts", fit, "z", mean, variance**0.5)
    assert near(fit, "z", mean, variance**0.5)


def test_ragged_plates():
    """Members that a plate lacks change nothing."""
    y = [[0.4, 1.2, 0.9], [-0.7]]
    model = Model(
        plates=[Plate("task", 2), Plate("item", (3, 1), within="task")],
        latents=[Latent("mu", Normal(0.0, 1.0), "task"),
                 Latent("z", lambda mu: Normal(0 + mu, 1.0), "item")],
        observed=[Observed("y", lambda z: Normal(z, 0.5), "item")],
    )  # fmt: skip
    fit = infer(model, {"y": y}, "nuts", rng=0)
    precision = 1 + np.array([3, 1]) / 1.25
    write("ragged plates", "nuts", fit, "mu", np.array([2.5, -0.7]) / 1.25 / precision,
          precision**-0.5)  # fmt: skip

    assert near(fit, "mu", np.array([2.5, -0.7]) / 1.25 / precision, precision**-0.5)


def test_functions_that_sum_are_called_for_one_member():
    """A sum over whole arrays would add up chains."""
    model = Model(
        plates=[Plate("task", 3)],
        latents=[Latent("z", Normal(0.0, 1.0))],
        observed=[Observed("y", lambda z: Normal(z.sum(), 1.0), "task")],
    )
    fit = infer(model, {"y": [0.0, 0.5, 1.0]}, "nuts", n_particles=4, steps=300, rng=0)
    write("a sum", "nuts", fit, "z", 1.5 / 4, 0.5)

    assert near(fit, "z", 1.5 / 4, 0.5)


def test_three_crossed_plates():
    """Normal effects of models, tasks and judges, with a third of the cells."""
    rng = np.random.default_rng(0)
    sizes = 6, 5, 4
    y = rng.normal(0, 1, sizes)
    y[rng.random(sizes) < 0.67] = NAN
    names = "a", "b", "c"
    model = Model(
        plates=[Plate(p, n) for p, n in zip(("model", "task", "judge"), sizes, strict=True)],
        latents=[Latent("mu", Normal(0.0, 1.0)),
                 *(Latent(x, Normal(0.0, 0.7), p)
                   for x, p in zip(names, ("model", "task", "judge"), strict=True))],
        observed=[Observed("y", lambda mu, a, b, c: Normal(mu + a + b - c, 0.6),
                           ("model", "task", "judge"))],
    )  # fmt: skip
    fit = infer(model, {"y": y}, "nuts", rng=0)
    at = np.argwhere(~np.isnan(y))
    design = np.hstack(
        [
            np.ones((len(at), 1)),
            *(
                s * np.eye(n)[at[:, i]]
                for i, (n, s) in enumerate(zip(sizes, (1, 1, -1), strict=True))
            ),
        ]
    )
    prior = np.diag([1.0, *[0.49] * sum(sizes)])
    mean, variance = linear(design, y[~np.isnan(y)], 0.6, prior)

    write("three crossed plates", "nuts", fit, "mu", mean[0], variance[0] ** 0.5)
    assert near(fit, "mu", mean[0], variance[0] ** 0.5)
    for name, part in zip(names, np.split(np.arange(1, 16), np.cumsum(sizes)[:-1]), strict=True):
        assert near(fit, name, mean[part], variance[part] ** 0.5)
    bound = bind(with_sizes(model, {"y": y}), {"y": y}, torch.device("cpu"))
    posterior = Posterior(bound, torch.Generator().manual_seed(0))
    assert len(posterior.cells["y"][0]) == len(at)
