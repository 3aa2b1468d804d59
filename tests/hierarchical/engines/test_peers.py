"""Examples of other programs: their posteriors, ours, and both integrated by brute force.

`python -m benchmarks.hierarchical` wrote what the others found: bayes_evals's way of weighing
draws from the prior for clusters of questions [BAI25]_, and HiBayES's two-level model of groups
(mu, z ~ N(0, 1), sigma ~ half-N(.5), sigma_group ~ half-N(scale), effect of a group
N(mu + sigma z, sigma_group²), right ~ Binomial(total, logit = effect)) by NumPyro's NUTS.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from clustered_means import posterior_means
from scipy import special
from torch.distributions import Gamma, Normal

from evalstats_plugin import ResponseMatrix, pool
from evalstats_plugin.hierarchical import HierarchicalOptions
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate
from evalstats_plugin.runtime.chains import convergence
from evalstats_plugin.stats.grid_posteriors import beta_binomial

FILE = Path(__file__).parents[3] / "benchmarks" / "results" / "hierarchical.json"
RUNS = json.loads(FILE.read_text(encoding="utf-8"))["runs"]
OURS, NUTS, PRIOR_DRAWS = (
    "evalstats-plugin",
    "HiBayES's way, NumPyro",
    "bayes_evals's way, prior draws",
)


def of(kind, program):
    """Runs of a program whose jobs begin so."""
    return [r for r in RUNS if r["program"] == program and r["job"].startswith(kind)]


def log_likelihood(right, size, theta, d):
    """Beta-Binomial of all clusters at θ and d, which broadcast."""
    a, b = (d * theta)[..., None], (d * (1 - theta))[..., None]
    return (special.betaln(a + right, b + size - right) - special.betaln(a, b)).sum(-1)


@pytest.mark.parametrize("row", of("clustered", OURS), ids=lambda row: row["job"])
def test_the_clustered_posterior_is_that_of_a_fine_grid(row):
    """θ ~ U(0, 1) and d ~ Gamma(1, 1), the latter on a logarithmic grid."""
    right, size = np.array(row["first_right"]), float(row["items"])
    low, high = beta_binomial(right, size, confidence_level=0.95, prior="gamma-dispersion")
    mean, icc = posterior_means(right, size, prior="gamma-dispersion")
    theta, d = (np.arange(500) + 0.5) / 500, np.geomspace(0.05, 60, 240)
    log_p = log_likelihood(right, size, theta[:, None], d) + np.log(d) - d
    p = special.softmax(log_p)
    limits = np.interp([0.025, 0.975], p.sum(1).cumsum(), theta + 0.001)

    np.testing.assert_allclose([low, high], limits, atol=1e-3)
    assert mean == pytest.approx(theta @ p.sum(1), abs=1e-4)
    assert icc == pytest.approx((p / (1 + d)).sum(), abs=1e-3)
    told = [row["first"][key] for key in ("mean", "low", "high")]
    np.testing.assert_allclose([mean, low, high], told, atol=1e-4)


def test_ten_thousand_prior_draws_agree_where_they_do_not_degenerate():
    """Negative control: under another prior of the correlation the same draws do not agree."""
    row = of("clustered", OURS)[0]
    right, size = np.array(row["first_right"]), float(row["items"])
    r = np.random.default_rng(1)
    theta, d = r.uniform(size=10_000), r.gamma(1.0, 1.0, 10_000)
    weight = special.softmax(log_likelihood(right, size, theta, d))
    ess = 1 / (weight**2).sum()

    def z(prior):
        found = posterior_means(right, size, prior=prior)
        values = np.array([theta, 1 / (1 + d)])
        drawn = values @ weight
        error = np.sqrt((weight**2 * (values - drawn[:, None]) ** 2).sum(1))
        return np.abs((drawn - [found.mean, found.icc]) / error)

    assert ess > 1000
    assert z("gamma-dispersion").max() < 4
    assert z("uniform-icc").max() > 6


def test_prior_draws_degenerate_where_quadrature_does_not():
    """Effective draws of 10,000, and by how much the limits are off, as the data grow."""
    ours, rows = of("clustered", OURS), of("clustered", PRIOR_DRAWS)
    ess = [row["median_ess"] for row in rows]

    assert ess == sorted(ess, reverse=True)
    assert ess[0] > 500
    assert rows[-1]["least_ess"] < 2
    assert max(rows[0]["rms_error_of_limits"]) < 0.01
    assert min(rows[-1]["rms_error_of_limits"]) > 0.02
    assert all(max(row["rms_error_of_limits"]) == 0 for row in ours)
    assert all(row["ratio"]["median"] > 1 for row in rows)


def exact_two_level(right, total, scale):
    """Means and sds of mu + sigma z, sigma_group and the groups' rates, by quadrature.

    sigma is integrated out of the prior of m = mu + sigma z first: N(0, 1 + sigma²).
    """
    x, weight = np.polynomial.legendre.leggauss(60)
    sigma = 1.25 * (x + 1)
    width = np.sqrt(1 + sigma**2)
    m = np.linspace(-2, 2.5, 91)
    prior = (weight * np.exp(-2 * sigma**2 - m[:, None] ** 2 / (2 * width**2)) / width).sum(1)
    spread = min(6 * scale, 2.5) * (x + 1) / 2
    prior = prior[:, None] * weight * np.exp(-0.5 * (spread / scale) ** 2)
    z, gauss = np.polynomial.hermite_e.hermegauss(41)
    logit = m[:, None, None] + spread[:, None] * z
    n, k = total[:, None, None, None], right[:, None, None, None]
    terms = k * logit - n * np.logaddexp(0, logit) + np.log(gauss)
    group = special.logsumexp(terms, axis=3)
    posterior = special.softmax(group.sum(0) + np.log(prior))
    given = np.exp(terms - group[..., None])
    rate = [(given * special.expit(logit) ** power).sum(3) for power in (1, 2)]

    def told(first, second):
        mean = (first * posterior).sum((-2, -1))
        return {"mean": mean, "sd": np.sqrt((second * posterior).sum((-2, -1)) - mean**2)}

    return {
        "overall": told(m[:, None], m[:, None] ** 2),
        "sigma_group": told(spread, spread**2),
        "rate": told(*rate),
    }


@pytest.fixture(
    scope="module",
    params=list(zip(of("two-level", OURS), of("two-level", NUTS), strict=True)),
    ids=lambda pair: pair[0]["job"],
)
def two_level(request):
    row = request.param[0]
    right, total = (np.array(row[k], dtype=float) for k in ("right", "total"))
    return request.param, right, total, exact_two_level(right, total, row["scale"])


def worst_z(found, exact, ess):
    """Of the means, in standard errors of as many independent draws."""
    return max(
        float(np.abs((np.array(found[k]["mean"]) - v["mean"]) / v["sd"]).max() * np.sqrt(ess[k]))
        for k, v in exact.items()
    )


def test_nuts_of_the_two_level_model_agrees_with_quadrature(two_level):
    """Negative control: with another scale of sigma_group it does not."""
    (_, nuts), right, total, exact = two_level
    other = exact_two_level(right, total, nuts["scale"] / 2)

    assert worst_z(nuts["posterior"], exact, nuts["ess"]) < 4
    assert worst_z(nuts["posterior"], other, nuts["ess"]) > 6
    assert nuts["ratio"]["median"] > 3


def test_qem_of_the_two_level_model_agrees_with_quadrature(two_level):
    (row, _), right, total, exact = two_level
    scale = row["scale"]

    def half(scale):
        return torch.distributions.HalfNormal(torch.tensor(scale, dtype=torch.float64))

    model = Model(
        plates=[Plate("group", len(right))],
        inputs={"total": "group"},
        latents=[
            Latent("mu", Normal(0.0, 1.0), group="overall"),
            Latent("sigma", half(0.5), group="overall", proposal=Gamma(2.0, 4.0)),
            Latent("z", Normal(0.0, 1.0), group="overall"),
            Latent("sigma_group", half(scale), group="overall", proposal=Gamma(2.0, 2 / scale)),
            Latent(
                "effect",
                lambda mu, sigma, z, sigma_group: Normal(mu + sigma * z, sigma_group),
                plate="group",
                proposal=Normal(0.0, 1.0),
            ),
        ],
        observed=[
            Observed(
                "right",
                lambda effect, total: torch.distributions.Binomial(total, logits=effect),
                plate="group",
            )
        ],
    )
    options = FitOptions(k=60, iterations=40, sets=40, draws=2000, wider=0)
    fit = infer(model, {"right": right, "total": total}, options=options, device="cpu", rng=1)
    draws = {
        "overall": fit.draws["mu"] + fit.draws["sigma"] * fit.draws["z"],
        "sigma_group": fit.draws["sigma_group"],
        "rate": special.expit(fit.draws["effect"]),
    }
    found = {k: {"mean": v.mean(0), "sd": v.std(0)} for k, v in draws.items()}
    # Draws come from the weighted particles: neither can tell more than the other.
    ess = {
        "overall": min(2000, float(fit.ess["overall"])),
        "sigma_group": min(2000, float(fit.ess["overall"])),
        "rate": min(2000, float(fit.ess["effect"].min())),
    }

    assert min(ess.values()) > 50
    assert worst_z(found, exact, ess) < 4.5
    assert worst_z(row["posterior"], exact, {**row["ess"], "rate": 100}) < 4.5


def test_gibbs_of_the_crossed_model_holds_the_two_level_model(two_level):
    """Groups as models of one task, task and interaction held at 0.

    Draws under b ~ N(0, 1) are weighed by the prior of mu + sigma z, which is a little wider.
    """
    (row, _), right, total, exact = two_level
    nothing = ("lognormal", -9.0, 0.01)
    priors = {"default": nothing, "model": ("half-normal", row["scale"])}
    place = np.arange(total.max())
    scores = np.where(place < total[:, None], place < right[:, None], np.nan)
    options = HierarchicalOptions(priors=priors, chains=8, draws=400, warm_up=200)
    matrix = ResponseMatrix.from_array(scores)
    found = pool(matrix, "task", "gibbs", rng=0, options=options, device="cpu").posterior
    b = found.parameters["intercept"]
    x, weight = np.polynomial.legendre.leggauss(60)
    width = np.sqrt(1 + (1.25 * (x + 1)) ** 2)
    prior = weight * np.exp(-2 * (1.25 * (x + 1)) ** 2)
    wide = (prior * np.exp(-0.5 * (b[..., None] / width) ** 2) / width).sum(-1)
    share = wide / np.exp(-0.5 * b**2)
    share /= share.sum()
    draws = {
        "overall": b,
        "sigma_group": found.parameters["sd_performance"],
        "rate": found.accuracy[..., 0],
    }
    means = {k: {"mean": np.tensordot(share, v, 2)} for k, v in draws.items()}
    ess = {k: float(convergence(v).ess.min()) for k, v in draws.items()}

    assert 1 / (share**2).sum() > 0.99 * share.size
    if row["job"].endswith("scale 1") and min(ess.values()) <= 50:
        pytest.xfail(
            "Gibbs draws freeze where groups hardly differ: waits for a sampler one can trust"
        )
    assert min(ess.values()) > 50
    assert worst_z(means, exact, ess) < 4.5


def test_nuts_and_gibbs_find_the_same_posterior_of_models_crossed_with_tasks():
    """Cells of 20 models and 30 tasks, against a run of NUTS twice as long, and the truth."""
    kind = "20 models"
    (ours,), (nuts,), (long,) = (of(kind, x) for x in (OURS, "NumPyro", "NumPyro, long run"))

    for row in (ours, nuts):
        assert row["away_from_long_run"] < 0.05
        assert row["sd_to_long_run"] == pytest.approx(1, abs=0.02)
        assert row["rmse"] == pytest.approx(long["rmse"], rel=0.01)
        assert 0.93 < row["coverage"] < 0.97
    per_draw = nuts["ratio"]["median"] * ours["least_ess"] / nuts["least_ess"]
    assert per_draw > 10
