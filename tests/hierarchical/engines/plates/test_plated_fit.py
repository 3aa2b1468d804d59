"""Whole inferences: against exact posteriors, quadrature, and what must be flagged."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import Beta, Gamma, Normal

from evalstats_plugin.hierarchical.engines.plates.distributions import Normal as NormalFamily
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Proposals,
    Scene,
    draw_particles,
    first_proposals,
    joint_bound,
    joint_log_weights,
    weigh,
)
from evalstats_plugin.hierarchical.engines.plates.fit import (
    METHODS,
    STEP,
    FitOptions,
    Safeguard,
    improved,
    infer,
)
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate, bind

X = np.array([1.2, -0.4, 2.0])
FIGURES = Path(__file__).parents[4] / "fixtures" / "validation" / "hierarchical_engine.json"


def conjugate():
    return Model(
        plates=[Plate("task", 3)],
        latents=[Latent("mu", Normal(0.5, 1.0)), Latent("z", lambda mu: Normal(mu, 0.8), "task")],
        observed=[Observed("x", lambda z: Normal(z, 0.6), "task")],
    )


def exact():
    """Evidence, mean and covariance of (μ, z₁, z₂, z₃)."""
    prior = np.ones((4, 4)) + np.diag([0, 0.64, 0.64, 0.64])
    data = prior[1:, 1:] + 0.36 * np.eye(3)
    gain = prior[:, 1:] @ np.linalg.inv(data)
    mean = 0.5 + gain @ (X - 0.5)
    evidence = stats.multivariate_normal(np.full(3, 0.5), data).logpdf(X)
    return evidence, mean, prior - gain @ prior[1:]


def stacked(fit, what):
    return np.concatenate([np.atleast_1d(getattr(fit.moments[x], what)) for x in ("mu", "z")])


def test_the_conjugate_posterior_is_found():
    evidence, mean, covariance = exact()
    how = FitOptions(k=30, iterations=50, draws=4000)
    fit = infer(conjugate(), {"x": X}, options=how, rng=0)
    draws = np.column_stack([fit.draws["mu"], fit.draws["z"]])

    assert fit.log_evidence == pytest.approx(evidence, abs=0.02)
    np.testing.assert_allclose(stacked(fit, "mean"), mean, atol=0.06)
    np.testing.assert_allclose(stacked(fit, "std_dev"), np.sqrt(np.diag(covariance)), rtol=0.08)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05)
    assert fit.history[-10:].mean() > fit.history[0]
    assert min(ess.min() for ess in fit.ess.values()) > 20
    assert max(k.max() for k in fit.k_hat.values()) < 0.7


@pytest.mark.parametrize("method", [x for x in METHODS if x != "nuts"])
def test_every_method_finds_the_conjugate_posterior(method):
    evidence, mean, covariance = exact()
    how = FitOptions(sets=30, draws=100)
    fit = infer(conjugate(), {"x": X}, method, rng=0, n_particles=25, steps=25, options=how)

    assert float(fit.moments["mu"].mean) == pytest.approx(mean[0], abs=0.12)
    assert float(fit.moments["mu"].std_dev) == pytest.approx(covariance[0, 0] ** 0.5, rel=0.25)
    assert fit.log_evidence == pytest.approx(evidence, abs=0.2)


def test_moments_are_consistent():
    """Self-normalised: biased for few particles, by less and less."""
    _, mean, _ = exact()
    errors = []
    for k in (3, 30, 100):
        how = FitOptions(k=k, iterations=0, sets=1, draws=1, wider=0)
        runs = [infer(conjugate(), {"x": X}, options=how, rng=s) for s in range(15)]
        errors.append(np.abs(np.mean([stacked(r, "mean") for r in runs], 0) - mean).max())

    assert errors[0] > 2 * errors[1]
    assert errors[2] < 0.05


def test_the_fixed_point_of_qem_is_the_exact_posterior():
    """Started at the exact margins, full steps with many particles stay there."""
    _, mean, covariance = exact()
    bound = bind(conjugate(), {"x": X}, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    sd = np.sqrt(np.diag(covariance))
    shaped = [(m[s], d[s]) for m, d in [(torch.tensor(mean), torch.tensor(sd))]
              for s in (slice(0, 1), slice(1, 4))]  # fmt: skip
    families = {
        name: NormalFamily(m.reshape(-1, 1, 1), d.reshape(-1, 1, 1))
        for name, (m, d) in zip(("mu", "z"), shaped, strict=True)
    }
    proposals = Proposals(families)

    for _ in range(3):
        particles = draw_particles(bound, proposals, 1000, generator)
        scene = Scene(bound, particles, {"task": 3})
        proposals = improved(scene, weigh(scene).weights, proposals, 1.0)
    found = [proposals.families[x] for x in ("mu", "z")]

    np.testing.assert_allclose(np.concatenate([f.loc.ravel() for f in found]), mean, atol=0.05)
    np.testing.assert_allclose(np.concatenate([f.scale.ravel() for f in found]), sd, rtol=0.1)


def test_families_of_every_kind_adapt_to_conjugate_posteriors():
    """Gamma–Poisson and Beta–Binomial, from poor starts."""
    model = Model(
        latents=[
            Latent("rate", Gamma(2.0, 1.0), proposal=Gamma(1.0, 1.0)),
            Latent("p", Beta(1.0, 1.0), proposal=Beta(1.0, 3.0)),
        ],
        observed=[
            Observed("n", lambda rate, n: n * rate.log() - rate - math.lgamma(10)),
            Observed("y", lambda p, y: y * p.log() + (20 - y) * torch.log1p(-p)),
        ],
    )
    fit = infer(
        model, {"n": 9.0, "y": 15.0}, options=FitOptions(k=200, iterations=100, sets=20), rng=0
    )
    gamma, beta = (fit.proposals.families[x] for x in ("rate", "p"))

    np.testing.assert_allclose([gamma.concentration.item(), gamma.rate.item()], [11, 2], rtol=0.15)
    np.testing.assert_allclose(
        [beta.concentration1.item(), beta.concentration0.item()], [16, 6], rtol=0.15
    )
    # Evidence of each in closed form.
    expected = (
        special.gammaln(11) - special.gammaln(2) - 11 * math.log(2) - special.gammaln(10)
        + special.betaln(16, 6)
    )  # fmt: skip
    assert fit.log_evidence == pytest.approx(expected, abs=0.02)


def tasks(t=20, n=100, seed=0):
    """Right answers of one model to T tasks of N questions."""
    rng = np.random.default_rng(seed)
    return rng.binomial(n, special.expit(0.6 + 0.8 * rng.normal(size=t))).astype(float)


def logit_normal(y, n):
    def log_likelihood(a, y):
        return y * torch.nn.functional.logsigmoid(a) + (n - y) * torch.nn.functional.logsigmoid(-a)

    return Model(
        plates=[Plate("task", len(y))],
        latents=[
            Latent("mu", Normal(0.0, 1.5), group="top"),
            Latent("log_sd", Normal(-0.5, 0.7), group="top"),
            Latent("a", lambda mu, log_sd: Normal(mu, log_sd.exp()), "task",
                   proposal=Normal(0.0, 1.5)),
        ],
        observed=[Observed("y", log_likelihood, "task")],
    )  # fmt: skip


def quadrature(y, n):
    """Evidence and posterior means and sds, by a grid of (μ, log σ) × Gauss–Hermite per task."""
    m, s = np.linspace(-0.6, 1.8, 61)[:, None, None], np.linspace(-1.6, 0.8, 61)[None, :, None]
    x, w = np.polynomial.hermite_e.hermegauss(15)
    sd, a = np.exp(s), m + 0 * (s + y)
    for _ in range(20):
        p = special.expit(a)
        a = a + np.clip((y - n * p - (a - m) / sd**2) / (n * p * (1 - p) + sd**-2), -2, 2)
    width = (n * special.expit(a) * special.expit(-a) + sd**-2) ** -0.5
    at = a[..., None] + width[..., None] * x
    log_f = y[:, None] * special.log_expit(at) + (n - y[:, None]) * special.log_expit(-at)
    log_f += stats.norm.logpdf(at, m[..., None], sd[..., None])
    log_f += 0.5 * x**2 + np.log(w) + np.log(width)[..., None]
    of_task = special.logsumexp(log_f, -1)
    first = (np.exp(log_f - of_task[..., None]) * at).sum(-1)
    second = (np.exp(log_f - of_task[..., None]) * at**2).sum(-1)
    log_p = (
        of_task.sum(-1) + (stats.norm.logpdf(m, 0, 1.5) + stats.norm.logpdf(s, -0.5, 0.7))[..., 0]
    )
    share = special.softmax(log_p)
    cell = (m[1, 0, 0] - m[0, 0, 0]) * (s[0, 1, 0] - s[0, 0, 0])
    means = {"mu": (share * m[..., 0]).sum(), "log_sd": (share * s[..., 0]).sum(),
             "a": (share[..., None] * first).sum((0, 1))}  # fmt: skip
    squares = {"mu": (share * m[..., 0] ** 2).sum(), "log_sd": (share * s[..., 0] ** 2).sum(),
               "a": (share[..., None] * second).sum((0, 1))}  # fmt: skip
    sds = {x: np.sqrt(squares[x] - means[x] ** 2) for x in means}
    return special.logsumexp(log_p) + np.log(cell), means, sds


def test_twenty_tasks_of_a_hundred_questions_in_less_than_a_second(within):
    """Of which 0.25 s are needed."""
    y = tasks()
    evidence, means, sds = quadrature(y, 100)
    infer(logit_normal(y, 100), {"y": y}, options=FitOptions(iterations=1, sets=1), rng=0)
    options = FitOptions(k=30, iterations=50)
    fit = within(0.5, lambda: infer(logit_normal(y, 100), {"y": y}, options=options, rng=0))

    assert evidence == pytest.approx(-1261.2658, abs=1e-3)
    assert fit.log_evidence == pytest.approx(evidence, abs=0.05)
    for name, mean in means.items():
        assert np.max(np.abs(fit.moments[name].mean - mean) / sds[name]) < 0.15
        np.testing.assert_allclose(fit.moments[name].std_dev, sds[name], rtol=0.1)


def global_log_weights(bound, proposals, draws, generator):
    """Log P(data, z) − log Q(z) of joint draws z: ordinary importance sampling."""
    joint = joint_bound(bound)
    particles = draw_particles(joint, proposals, draws, generator)
    members = sum(math.prod(bound.shape(g.plate)) for g in bound.structure.groups.values())
    return joint_log_weights(joint, particles) + members * math.log(draws)


def log_mean(log_weights):
    """Log of the mean weight, an estimate of log P(data)."""
    return torch.logsumexp(log_weights, 0) - math.log(len(log_weights))


def test_ordinary_importance_sampling_misses_by_far():
    """10,000 draws of everything at once from the starting proposals."""
    y = tasks()
    bound = bind(logit_normal(y, 100), {"y": y}, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    weights = global_log_weights(bound, first_proposals(bound, generator), 10_000, generator)

    assert float(log_mean(weights)) < -1261.27 - 100


def test_blocks_change_no_number():
    y = tasks()
    found = [
        infer(logit_normal(y, 100), {"y": y}, rng=3,
              options=FitOptions(k=10, iterations=5, sets=3, memory=memory))
        for memory in (2**30, 2**16)
    ]  # fmt: skip

    np.testing.assert_allclose(found[1].history, found[0].history, rtol=1e-12)
    assert found[1].log_evidence == pytest.approx(found[0].log_evidence, rel=1e-12)
    np.testing.assert_allclose(found[1].moments["a"].mean, found[0].moments["a"].mean, rtol=1e-9)


def test_the_same_seed_gives_the_same_numbers():
    how = FitOptions(k=5, iterations=3, sets=2, draws=10)
    one, two, other = (infer(conjugate(), {"x": X}, options=how, rng=s) for s in (1, 1, 2))

    assert one.log_evidence == two.log_evidence != other.log_evidence
    assert np.array_equal(one.draws["z"], two.draws["z"])


def test_few_particles_of_a_crossed_model_are_effective():
    """τ of all tasks is one particle, for every model meets every task."""
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(size=(15, 1)), rng.normal(size=10)
    y = rng.binomial(100, special.expit(ability - difficulty)).astype(float)

    def log_likelihood(ability, difficulty, y):
        logit = ability - difficulty
        log_p = torch.nn.functional.logsigmoid
        return (y * log_p(logit) + (100 - y) * log_p(-logit)).sum(-1, keepdim=True)

    model = Model(
        plates=[Plate("model", 15)],
        latents=[
            Latent("difficulty", Normal(0.0, 1.0), shape=(10,)),
            Latent("ability", Normal(0.0, 1.0), "model"),
        ],
        observed=[Observed("y", log_likelihood, "model")],
    )
    fit = infer(model, {"y": y}, options=FitOptions(k=10, iterations=30), rng=0)

    assert fit.ess["difficulty"] < 10


def test_the_safeguard_halves_steps_and_returns_to_the_best():
    one, two, three = (Proposals({}) for _ in range(3))
    guard = Safeguard(0.3)
    rising = [guard.after(float(x), one) for x in range(10)]
    assert rising == [one] * 10
    assert guard.step == 0.3
    # Flat: halved where it is. Then far below: back to the best.
    for x in (9.1, 8.9, 9.0, 9.1, 8.9, 9.0, 9.1, 8.9, 9.0, 9.0):
        guard.after(x, two)
    assert guard.step < 0.3
    best = guard.best
    back = [guard.after(-50.0 - 0.1 * (i % 2), three) for i in range(20)]

    assert any(best is x for x in (one, two))
    assert any(x is best for x in back)


def test_figures_of_the_study():
    """What README and the documentation say of the engine."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    nested, ratings = figures["nested"], figures["ratings"]

    assert nested["global_10000_error"] < -100
    errors = [abs(row["error"]) for row in nested["prior_proposals"]]
    assert errors[0] > 10 * errors[-1]
    assert all(abs(row["error"]) < 0.05 for row in nested["qem"] if row["k"] == 30)
    assert all(row["cpu_seconds"] < 1 for row in nested["qem"] if row["k"] == 30)
    assert all(row["log_p_mp"] > row["first"] + 1000 for row in ratings["rows"])
    default = [row["log_p_mp"] for row in ratings["rows"] if row["step"] == STEP]
    assert len(default) == 2
    assert min(default) > 1.02 * np.mean(ratings["separate"]["step_0.1"])
    assert (
        min(row["log_p_mp"] for row in ratings["rows"]) > ratings["separate"]["step_0.3"][0] + 500
    )
