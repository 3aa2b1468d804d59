"""The talk, first half: massively parallel importance sampling of models on plates (alan).

A chain of three normals has a posterior in closed form: z₁ ~ N(0, 1), z₂ ~ N(z₁, 1), z₃ ~ N(z₂, 1),
x ~ N(z₃, 1), x = 2.5. The talk's data (MovieLens, 300 users) are not ours to keep: its film model
is run on films simulated from its own priors.
"""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import distributions
from torch.distributions import Bernoulli, Normal

from benchmarks.seeds.claims import Outcome, Source, holds, largest, near
from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, PlatedFit, infer, pool
from evalstats_plugin.hierarchical.engines.plates.evidence import draw_particles, joint_log_weights
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions
from evalstats_plugin.hierarchical.engines.plates.model import bind
from evalstats_plugin.hierarchical.engines.plates.results import joint_bound

TALK = "Talk on massively parallel inference and Bayesian evals"
source = Source(TALK)
RESULTS = Path(__file__).parents[1] / "results"
X = 2.5
EVIDENCE = float(stats.norm(0, 2).logpdf(X))
MEANS = (X / 4, X / 2, X * 3 / 4)
CPU = torch.device("cpu")


def chain() -> Model:
    """Return the chain, with the marginal priors as proposals."""
    marginal = [Normal(torch.zeros(1, dtype=torch.double)[0], n**0.5) for n in (1, 2, 3)]
    return Model(
        latents=[
            Latent("z1", Normal(0.0, 1.0), proposal=marginal[0]),
            Latent("z2", lambda z1: Normal(z1, 1.0), proposal=marginal[1]),
            Latent("z3", lambda z2: Normal(z2, 1.0), proposal=marginal[2]),
        ],
        observed=[Observed("x", lambda z3: Normal(z3, 1.0))],
    )


@cache
def parallel(k: int, sets: int) -> PlatedFit:
    """Fresh sets of K particles without adapting the proposals."""
    options = FitOptions(sets=sets, wider=0, draws=1000)
    return infer(chain(), {"x": X}, "mp-is", n_particles=k, options=options, rng=0)


def global_log_weights(n: int) -> np.ndarray:
    """Log weights of n joint draws of all latents, less the exact log evidence."""
    fit = parallel(10, 1000)
    bound = joint_bound(fit.bound)
    drawn = draw_particles(bound, fit.proposals, n, torch.Generator().manual_seed(0))
    # The density of each latent's particles counts their number.
    return joint_log_weights(bound, drawn).numpy() + 3 * math.log(n) - EVIDENCE


def log_mean(weights: np.ndarray) -> np.ndarray:
    """Log of the mean of exponentials, by row."""
    top = weights.max(1, keepdims=True)
    return top[:, 0] + np.log(np.exp(weights - top).mean(1))


@source.claim("global importance sampling is unbiased", fast=True)
def global_sampling() -> Outcome:
    """Mean weight of 40,000 joint draws, over the exact evidence."""
    weights = np.exp(global_log_weights(40_000))
    error = 4 * weights.std() / math.sqrt(len(weights))
    return near(weights.mean(), 1, error, digits=1)


@source.claim("global sampling needs K = O(eⁿ) particles for n latents", fast=True)
def exponential() -> Outcome:
    """Variance of a weight, for n independent units of z ~ N(0, 1), x ~ N(z, 1), x = 1.5."""
    x = 1.5
    # ∫ N(x; z, 1)² N(z; 0, 1) dz: N(x; z, 1)² = N(x; z, ½) / (2√π).
    second = stats.norm(0, 1.5**0.5).pdf(x) / (2 * math.pi**0.5)
    growth = second / stats.norm(0, 2**0.5).pdf(x) ** 2
    ours, theirs = [], []
    for n in (1, 2, 4, 6):
        model = Model(
            plates=[Plate("unit", n)],
            latents=[Latent("z", Normal(0.0, 1.0), "unit", proposal=Normal(0.0, 1.0))],
            observed=[Observed("x", lambda z: Normal(z, 1.0), "unit")],
        )
        data = {"x": np.full(n, x)}
        options = FitOptions(sets=1, wider=0)
        fit = infer(model, data, "mp-is", n_particles=100, options=options, rng=0)
        bound = joint_bound(bind(model, data, CPU))
        drawn = draw_particles(bound, fit.proposals, 200_000, torch.Generator().manual_seed(n))
        weights = np.exp(joint_log_weights(bound, drawn).numpy())
        ours.append(math.log((weights**2).mean() / weights.mean() ** 2))
        theirs.append(n * math.log(growth))
    return near(
        ours,
        theirs,
        0.1,
        digits=2,
        note="log of the mean squared weight for n = 1, 2, 4, 6: a straight line in n",
    )


@source.claim("the massively parallel estimate of P(x) is unbiased", fast=True)
def unbiased() -> Outcome:
    """1,000 sets of 10 particles of three latents."""
    ratio = np.exp(np.array([s.log_evidence for s in parallel(10, 1000).sets]) - EVIDENCE)
    error = 4 * ratio.std() / math.sqrt(len(ratio))
    return near(ratio.mean(), 1, error, digits=1)


@source.claim("E log P_global ≤ E log P_MP ≤ log P", fast=True)
def bounds() -> Outcome:
    """The same number of particles, from the same proposals."""
    parallel_mean = np.mean([s.log_evidence for s in parallel(10, 1000).sets])
    alone = log_mean(global_log_weights(40_000).reshape(-1, 10)).mean() + EVIDENCE
    ours = f"{alone:.2f} ≤ {parallel_mean:.2f} ≤ {EVIDENCE:.2f}"
    return holds("each below the next", ours, alone < parallel_mean < EVIDENCE)


@source.claim("all Kⁿ combinations are summed by tensor products", fast=True)
def combinations() -> Outcome:
    """The log evidence of one set of 10³ combinations, summed one by one with SciPy."""
    weighed = parallel(10, 1000).sets[0]
    z1, z2, z3 = (weighed.scene.particles.values[z].numpy().ravel() for z in ("z1", "z2", "z3"))
    density = stats.norm.pdf
    total = 0.0
    for a, b, c in itertools.product(z1, z2, z3):
        p = density(a) * density(b, a) * density(c, b) * density(X, c)
        q = density(a) * density(b, 0, 2**0.5) * density(c, 0, 3**0.5)
        total += p / q
    return largest(weighed.log_evidence - math.log(total / 1000), 1e-10, "a loop over 1,000")


@source.claim("a user writes P as a program of distributions and plates", fast=True)
def programs() -> Outcome:
    """The chain: the model as it is written is fitted, and its moments are right."""
    fit = infer(chain(), {"x": X}, rng=0)
    return near([float(fit.moments[z].mean) for z in ("z1", "z2", "z3")], MEANS, 0.05, digits=1)


@source.claim("Q has parameters that are optimised", fast=True)
def optimised() -> Outcome:
    """The log evidence rises to the exact one while proposals move."""
    fit = infer(chain(), {"x": X}, rng=0)
    return near(fit.log_evidence, EVIDENCE, 0.05, digits=1)


@source.claim("Q may depend on parents", fast=True)
def conditional_proposals() -> Outcome:
    """A proposal as a function of a parent, as alan allows."""
    model = Model(
        latents=[
            Latent("z1", Normal(0.0, 1.0)),
            Latent("z2", lambda z1: Normal(z1, 1.0), proposal=lambda z1: Normal(z1, 1.0)),
        ],
        observed=[Observed("x", lambda z2: Normal(z2, 1.0))],
    )
    fit = infer(model, {"x": 1.0}, rng=0)
    exact = stats.norm(0, 3**0.5).logpdf(1.0)
    return near(fit.log_evidence, exact, 0.05, note="log evidence, proposal of z₂ given z₁")


@source.claim("plates: nested, of unequal sizes, with missing data", fast=True)
def plates() -> Outcome:
    """The evidence of what is there, by a multivariate normal."""
    model = Model(
        plates=[Plate("task", 2), Plate("question", (3, 2), within="task")],
        latents=[
            Latent("mu", Normal(0.0, 1.0), "task"),
            Latent("z", lambda mu: Normal(mu, 1.0), "question"),
        ],
        observed=[Observed("y", lambda z: Normal(z, 0.5), "question")],
    )
    data = {"y": [[0.4, 1.2, 0.9], [-0.7, float("nan")]]}
    fit = infer(model, data, n_particles=60, rng=0)
    covariance = np.ones((3, 3)) + 1.25 * np.eye(3)
    exact = stats.multivariate_normal(np.zeros(3), covariance).logpdf([0.4, 1.2, 0.9])
    return near(fit.log_evidence, exact + stats.norm(0, 1.5).logpdf(-0.7), 0.05, digits=1)


@source.claim("the film model: 5 films with 10 features, rated by each of 8 users")
def films() -> Outcome:
    """Simulated from its priors; 10 particles as in the talk's figure."""
    rng = np.random.default_rng(0)
    users, n_films, d = 8, 5, 10
    features = 1.0 * (rng.random((users, n_films, d)) < 0.3)
    taste = rng.standard_normal(d) + math.exp(-1) * rng.standard_normal((users, 1, d))
    chance = 1 / (1 + np.exp(-(features * taste).sum(-1)))
    liked = 1.0 * (rng.random((users, n_films)) < chance)
    model = Model(
        plates=[Plate("user", users), Plate("film", n_films, within="user")],
        inputs={"x": "film"},
        latents=[
            Latent("mu", Normal(0.0, 1.0), shape=(d,)),
            Latent("psi", Normal(0.0, 1.0), shape=(d,)),
            Latent("z", lambda mu, psi: Normal(mu, psi.exp()), "user", shape=(d,)),
        ],
        observed=[Observed("liked", lambda z, x: Bernoulli(logits=z @ x), "film")],
    )
    data = {"liked": liked, "x": features}
    options = FitOptions(k=10, iterations=30, sets=20, wider=0, draws=100)
    fits = {
        method: infer(model, data, method, options=options, rng=0)
        for method in ("mp-is", "qem", "mp-vi")
    }
    evidence = {method: fit.log_evidence or math.nan for method, fit in fits.items()}
    least = min(float(np.min(x)) for x in fits["qem"].ess.values())
    return holds(
        "log evidence: QEM, then MP-VI, then unadapted",
        ", ".join(f"{method} {value:.1f}" for method, value in evidence.items()),
        evidence["qem"] > evidence["mp-vi"] > evidence["mp-is"],
        f"simulated, not MovieLens (no licence); QEM has {least:.0f} effective particles, and says "
        "so: vectors of 10 share theirs",
    )


@source.claim("moments by automatic differentiation of log P_MP", fast=True)
def moments() -> Outcome:
    """E[z₁ z₃] = cov + product of means."""
    fit = infer(chain(), {"x": X}, rng=0)
    ours = float(fit.moment(lambda z1, z3: z1 * z3))
    return near(ours, MEANS[0] * MEANS[2] + 1 - 3 / 4, 0.1, digits=1)


@source.claim("marginal weights and conditional samples", fast=True)
def samples() -> Outcome:
    """Covariance matrix of ancestral draws of the chain."""
    prior = np.array([[1, 1, 1], [1, 2, 2], [1, 2, 3]])
    exact = prior - np.outer(prior[2], prior[2]) / 4
    draws = np.stack([parallel(10, 1000).draws[z] for z in ("z1", "z2", "z3")])
    return near(np.cov(draws), exact, 0.15, digits=1)


def _means(method: str) -> Outcome:
    particles = None if method == "nuts" else 100
    fit = infer(chain(), {"x": X}, method, n_particles=particles, rng=0)
    ours = [float(fit.moments[z].mean) for z in ("z1", "z2", "z3")]
    return near(ours, MEANS, 0.1, digits=1)


@source.claim("QEM moves proposals to the posterior's moments", fast=True)
def qem() -> Outcome:
    """Posterior means of the chain."""
    return _means("qem")


@source.claim("MP-VI, IWAE and VI")
def variational() -> Outcome:
    """The farthest of the three from the exact means."""
    outcomes = [_means(method) for method in ("mp-vi", "iwae", "vi")]
    return outcomes[-1]._replace(agrees=all(o.agrees for o in outcomes), note="all three; VI shown")


@source.claim("HMC is often hard to beat in quality")
def no_u_turn() -> Outcome:
    """The no-U-turn sampler on the chain."""
    return _means("nuts")


@source.claim("general distributions as priors", fast=True)
def priors() -> Outcome:
    """Which of torch's distributions are taken as the prior of a latent."""
    d = distributions
    tried = {
        "Normal": d.Normal(0.0, 1.0),
        "LogNormal": d.LogNormal(0.0, 1.0),
        "HalfNormal": d.HalfNormal(1.0),
        "HalfCauchy": d.HalfCauchy(1.0),
        "Gamma": d.Gamma(2.0, 1.0),
        "InverseGamma": d.InverseGamma(2.0, 1.0),
        "Beta": d.Beta(2.0, 2.0),
        "StudentT": d.StudentT(3.0),
        "Cauchy": d.Cauchy(0.0, 1.0),
        "Laplace": d.Laplace(0.0, 1.0),
        "Gumbel": d.Gumbel(0.0, 1.0),
        "Exponential": d.Exponential(1.0),
        "Weibull": d.Weibull(1.0, 1.0),
        "Bernoulli": d.Bernoulli(0.5),
        "Uniform(0, 1)": d.Uniform(0.0, 1.0),
        "Uniform(0, 3)": d.Uniform(0.0, 3.0),
        "Poisson": d.Poisson(2.0),
        "Geometric": d.Geometric(0.5),
        "NegativeBinomial": d.NegativeBinomial(3, 0.5),
    }
    options, refused = FitOptions(iterations=3, sets=3, wider=0), list[str]()
    for name, prior in tried.items():
        model = Model(
            plates=[Plate("i", 3)],
            latents=[Latent("a", prior)],
            observed=[Observed("y", lambda a: Normal(a, 1.0), "i")],
        )
        try:
            infer(model, {"y": [1.0, 2.0, 0.5]}, options=options, rng=0)
        except DesignError:
            refused.append(name)
    return holds(
        "any distribution",
        f"{len(tried) - len(refused)} of {len(tried)}",
        not refused,
        f"refused with an error that says what to do: {', '.join(refused)}" if refused else "",
    )


@source.claim("runs on a GPU", fast=True)
def gpu() -> Outcome:
    """The stored run of ``make bench-gpu``; no GPU is needed to read it."""
    figures = json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))
    kernels = [row for row in figures["kernels"] if "log-joint" in row["kernel"]]
    return holds(
        "one device",
        f"{figures['device']}, {len(kernels)} sizes",
        kernels,
        "measured by benchmarks/gpu.py",
    )


@source.claim("a model of one's own on logs of evals", fast=True)
def own_model() -> Outcome:
    """`pool` with a model: mean of one task's chance under Beta(1, 1)."""
    import evalstats_plugin as es

    scores = (np.arange(20) < 14).astype(float)[None]
    model = Model(
        plates=[Plate("model")],
        inputs={"trials": "model"},
        latents=[Latent("p", distributions.Beta(1.0, 1.0), "model")],
        observed=[Observed("right", lambda p, trials: distributions.Binomial(trials, p), "model")],
    )
    fit = pool(es.ResponseMatrix.from_array(scores), model, rng=0)
    return near(np.ravel(fit.moments["p"].mean), 15 / 22, 0.02, digits=2)
