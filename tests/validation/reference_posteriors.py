"""Models whose posteriors are known: by sums over a grid, or by linear algebra."""

import numpy as np
import torch
from scipy import stats
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Cauchy,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    Uniform,
    Weibull,
)

from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate


def mixture(y, z):
    """Log density of a third of answers far from the others."""
    parts = [Normal(z, 1.0).log_prob(y) + np.log(2 / 3), Normal(z + 4, 1.0).log_prob(y) - np.log(3)]
    return torch.logaddexp(*parts)


GRID = {
    "mean": (Normal(0.0, 2.0), lambda z: Normal(z, 1.5), [1.0, 2.5, -0.3], (-8, 8)),
    "logit": (Normal(0.0, 1.5), lambda z: Bernoulli(logits=z), [1, 1, 0, 1, 1], (-8, 9)),
    "share": (Beta(2.0, 3.0), lambda z: Binomial(10, z), [3, 7, 9], (0, 1)),
    "rate": (Gamma(2.0, 0.5), lambda z: Poisson(rate=z), [4, 2, 7], (0, 20)),
    "life": (InverseGamma(5.0, 3.0), lambda z: Exponential(1 / z), [0.4, 2.2, 1.0], (0, 15)),
    "variance": (InverseGamma(3.0, 2.0), lambda z: Normal(0.0, z.sqrt()),
                 [0.4, -2.2, 1.0, 0.6, -0.1, -1.3, 0.8, 1.6, -0.7], (0, 20)),
    "scale": (HalfCauchy(1.0), lambda z: Normal(0.0, z), [0.4, -2.2, 1.0, 0.2, 1.4, 0.9], (0, 30)),
    "interval": (Uniform(0.0, 2.0), lambda z: Normal(z, 1.0), [1.9, 2.5, 1.4], (0, 2)),
    "robust": (Normal(0.0, 5.0), lambda z: StudentT(3.0, z, 1.0), [0.1, 0.5, -0.4, 9.0], (-15, 15)),
    "median": (Laplace(0.0, 2.0), lambda z: Normal(z, 1.0), [1.0, 0.2], (-8, 8)),
    "heavy": (Cauchy(0.0, 1.0), lambda z: Normal(z, 1.0), [1.0, 2.2], (-8, 10)),
    "counts": (Normal(1.0, 1.0), lambda z: NegativeBinomial(3.0, logits=z), [4, 2, 7, 0], (-6, 7)),
    "wear": (LogNormal(0.0, 0.5), lambda z: Weibull(1.5, z), [0.5, 1.2, 2.2], (0, 9)),
    "spread": (HalfNormal(2.0), lambda z: Beta(z + 0.1, z + 0.1), [0.5, 0.3, 0.6, 0.55], (0, 12)),
    "mixture": (Normal(0.0, 3.0), mixture, [0.2, -0.5, 4.4, 0.7], (-10, 10)),
    "shape": (Gamma(2.0, 1.0), lambda z: Gamma(z, 1.0), [1.0, 3.0, 2.1], (0, 12)),
}  # fmt: skip


def near(fit, name, mean, sd):
    """Whether moments are within the bars of exact ones."""
    found = fit.moments[name]
    far = np.abs(found.mean - mean) / sd
    ratio = found.std_dev / sd
    return bool((far < 0.1).all() and (ratio > 0.9).all() and (ratio < 1.1).all())


def exact(prior, density, y, ends):
    """Mean and sd of one number, by a sum over a grid."""
    z = torch.linspace(*ends, 20_003, dtype=torch.float64)[1:-1]
    log_p = prior.log_prob(z)
    for value in torch.tensor(y, dtype=torch.float64):
        log_p = log_p + (mixture(value, z) if density is mixture else density(z).log_prob(value))
    weight = torch.softmax(log_p, 0)
    mean = (weight * z).sum()
    return float(mean), float((weight * (z - mean).square()).sum().sqrt())


def of_one_number(name):
    prior, density, y, _ = GRID[name]
    return Model(
        plates=[Plate("task", len(y))],
        latents=[Latent("z", prior)],
        observed=[Observed("y", density, "task")],
    ), {"y": y}


def linear(design, y, scale, prior):
    """Posterior moments of y = design · b + noise, b ~ N(0, prior)."""
    precision = np.linalg.inv(prior) + design.T @ design / scale**2
    return np.linalg.solve(precision, design.T @ y / scale**2), np.diag(np.linalg.inv(precision))


def schools():
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    se = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    return Model(
        plates=[Plate("school", 8)], inputs={"se": "school"},
        latents=[Latent("mu", Normal(0.0, 5.0)), Latent("tau", HalfCauchy(5.0)),
                 Latent("theta", lambda mu, tau: Normal(mu, 0 + tau), "school")],
        observed=[Observed("y", lambda theta, se: Normal(theta, 0 + se), "school")],
    ), {"y": y, "se": se}  # fmt: skip


def funnel():
    """Neal's funnel: nothing is observed, and the scale of nine numbers spans e⁹."""
    return Model(
        plates=[Plate("i", 9)],
        latents=[Latent("v", Normal(0.0, 3.0)),
                 Latent("x", lambda v: Normal(0 * v, (v / 2).exp()), "i")],
        observed=[],
    )  # fmt: skip


def schools_moments():
    """Mean and sd of mu and tau, by a sum over a grid of both."""
    _, data = schools()
    mu, tau = np.linspace(-25, 35, 601)[:, None], np.exp(np.linspace(-9, 6, 1501))
    log_p = stats.norm(0, 5).logpdf(mu) + stats.halfcauchy(scale=5).logpdf(tau) + np.log(tau)
    for y, se in zip(data["y"], data["se"], strict=True):
        log_p = log_p + stats.norm(mu, np.hypot(tau, se)).logpdf(y)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()

    def moments(value):
        mean = (weight * value).sum()
        return mean, (weight * (value - mean) ** 2).sum() ** 0.5

    return moments(mu), moments(tau)
