"""P_MP on models whose evidence is known: unbiased, above global, with or without parents in Q."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import Bernoulli, Normal

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import infer
from evalstats_plugin.hierarchical.engines.plates import evidence
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Scene,
    contract_plate,
    first_proposals,
    log_evidence,
)
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate, bind

CPU = torch.device("cpu")
X = np.array([1.2, -0.4, 2.0])
# Replications at a time, as members of one more plate that nothing is shared across.
TIMES = 2000
POOR = Normal(0.2, 1.5)
"""A proposal of z that knows nothing of μ."""


def replicated(proposal=POOR):
    """μ ~ N(½, 1), z ~ N(μ, .8), x ~ N(z, .6), the whole model TIMES over."""
    return Model(
        plates=[Plate("time", TIMES), Plate("task", 3, within="time")],
        latents=[
            Latent("mu", Normal(0.5, 1.0), "time", proposal=Normal(0.3, 1.2)),
            Latent("z", lambda mu: Normal(mu, 0.8), "task", proposal=proposal),
        ],
        observed=[Observed("x", lambda z: Normal(z, 0.6), "task")],
    )


def exact():
    covariance = np.ones((3, 3)) + (0.8**2 + 0.6**2) * np.eye(3)
    return stats.multivariate_normal(np.full(3, 0.5), covariance).logpdf(X)


@cache
def estimates(k, proposal=POOR, seed=0):
    """Log P_MP − log P of each replication: the derivative-free message of its plate."""
    bound = bind(replicated(proposal), {"x": np.tile(X, (TIMES, 1))}, CPU)
    generator = torch.Generator().manual_seed(seed)
    proposals = first_proposals(bound, generator)
    drawn = evidence.draw_particles(bound, proposals, k, generator)
    scene = Scene(bound, drawn, {"time": TIMES, "task": 3})
    found = by_replication(scene)
    assert float(log_evidence(scene)) == pytest.approx(float(found.sum()), rel=1e-12)
    return found.numpy() - exact()


def by_replication(scene):
    return contract_plate(scene, "time", {"time": (0, TIMES)}, {}).message.flatten()


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_evidence_is_unbiased(k):
    ratio = np.exp(estimates(k))

    assert abs(ratio.mean() - 1) < 4 * ratio.std() / TIMES**0.5


@pytest.mark.parametrize("k", [3, 10])
def test_global_is_below_massively_parallel_is_below_the_evidence(k):
    parallel = estimates(k)
    # Joint draws of everything from the same proposals.
    rng = np.random.default_rng(1)
    mu, z = rng.normal(0.3, 1.2, (k, TIMES)), rng.normal(0.2, 1.5, (3, k, TIMES))
    density = stats.norm.logpdf
    weights = (
        density(mu, 0.5, 1)
        - density(mu, 0.3, 1.2)
        + np.sum(
            density(z, mu, 0.8) + density(X[:, None, None], z, 0.6) - density(z, 0.2, 1.5), axis=0
        )
    )
    of_sets = special.logsumexp(weights, axis=0) - np.log(k) - exact()
    ratio = np.exp(of_sets)

    assert abs(ratio.mean() - 1) < 4 * ratio.std() / TIMES**0.5
    assert of_sets.mean() < parallel.mean() - 4 * parallel.std() / TIMES**0.5
    assert parallel.mean() < 0


def test_the_evidence_gets_nearer_with_particles():
    errors = [estimates(k).std() for k in (3, 10)]

    assert errors[0] > 1.5 * errors[1]


def two_steps(program):
    """Z ~ N(0, 1), y ~ N(z, ¼), x ~ N(y, ¼); the proposal of z is its exact posterior."""
    x = np.array([1.2, -0.4, 2.0])
    model = Model(
        plates=[Plate("task", 3)],
        latents=[
            Latent("z", Normal(0.0, 1.0), "task", proposal=lambda x: Normal(x / 1.5, 3**-0.5)),
            Latent("y", lambda z: Normal(z, 0.5), "task", proposal=program),
        ],
        observed=[Observed("seen", lambda y: Normal(y, 0.5), "task")],
        inputs={"x": "task"},
    )
    return model, {"x": x, "seen": x}, stats.norm(0, 1.5**0.5).logpdf(x).sum()


def test_an_exact_proposal_given_its_parent_has_the_exact_evidence():
    """Q(z) Q(y | z) is the posterior; the exact margins of both, independent, know it less well."""
    options, found = FitOptions(sets=5, draws=10, wider=0), []
    for program in (
        lambda z, x: Normal((z + x) / 2, 8**-0.5),
        lambda x: Normal(x / 1.2, (1.25 - 1.25**2 / 1.5) ** 0.5),
    ):
        model, data, evidence = two_steps(program)
        fit = infer(model, data, "mp-is", n_particles=20, options=options, rng=0)
        found.append((fit.log_evidence - evidence, {x: n.mean() for x, n in fit.ess.items()}))
    (error, ess), (other_error, other_ess) = found

    assert error == pytest.approx(0, abs=1e-12)
    assert abs(other_error) > 1e-3
    assert ess["y"] == pytest.approx(100)
    assert all(ess[name] > other_ess[name] for name in ess)


def poor_given_its_parent(mu):
    return Normal(0.5 * mu + 0.3, 1.0)


def test_the_evidence_is_unbiased_by_a_poor_proposal_given_its_parent():
    """One parent of three members, two particles each."""
    found = [estimates(2, poor_given_its_parent, seed) for seed in range(4)]
    ratio = np.exp(np.concatenate(found))

    assert abs(ratio.mean() - 1) < 4 * ratio.std() / len(ratio) ** 0.5
    with pytest.raises(DesignError, match="take 'rws', 'qem' or 'mp-is'"):
        infer(replicated(poor_given_its_parent), {"x": np.tile(X, (TIMES, 1))}, "mp-vi", rng=1)


def test_sets_of_particles_average_to_the_evidence():
    """Of one replication: a mean over sets, with its error."""
    model = Model(
        latents=[Latent("mu", Normal(0.5, 1.0), proposal=Normal(0.3, 1.2))],
        observed=[Observed("x", lambda mu: Normal(mu, 1.0))],
    )
    options = FitOptions(sets=200, draws=10, wider=0)
    fit = infer(model, {"x": 1.2}, "mp-is", n_particles=2, options=options, rng=1)
    exact = stats.norm(0.5, 2**0.5).logpdf(1.2)

    assert fit.log_evidence == pytest.approx(exact, abs=3 * fit.log_evidence_error)
    assert fit.log_evidence_error < 0.06


class Encoder(torch.nn.Module):
    """A normal proposal whose mean is a line in the data of its member."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1, dtype=torch.float64)
        self.log_sd = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return Normal(self.line(x[..., None])[..., 0], self.log_sd.exp())


def test_a_network_learns_the_posterior_of_every_member():
    """Amortised: z ~ N(0, 1), x ~ N(z, 1), whose posterior is N(x / 2, 1 / 2)."""
    torch.manual_seed(0)
    x, encoder = np.random.default_rng(0).normal(size=40) * 2**0.5, Encoder()
    model = Model(
        plates=[Plate("task", 40)],
        latents=[Latent("z", Normal(0.0, 1.0), "task", proposal=encoder)],
        observed=[Observed("seen", lambda z: Normal(z, 1.0), "task")],
        inputs={"x": "task"},
    )
    data = {"x": x, "seen": x}
    errors, options = [], FitOptions(draws=10, wider=0)
    for steps in (0, 150):
        fit = infer(model, data, "rws", steps=steps, options=options, rng=0)
        errors.append(fit.log_evidence - stats.norm(0, 2**0.5).logpdf(x).sum())

    assert float(encoder.line.weight.detach()) == pytest.approx(0.5, abs=0.05)
    assert float(encoder.log_sd.detach().exp()) == pytest.approx(0.5**0.5, abs=0.05)
    assert abs(errors[1]) < 0.005 < abs(errors[0])


def test_a_proposal_does_not_depend_on_what_is_summed():
    model = Model(
        latents=[
            Latent("kind", Bernoulli(0.3)),
            Latent("z", Normal(0.0, 1.0), proposal=lambda kind: Normal(kind, 1.0)),
        ],
        observed=[Observed("x", lambda z, kind: Normal(z + kind, 0.6))],
    )
    with pytest.raises(DesignError, match="the proposal of 'z' depends on kind"):
        infer(model, {"x": 0.5}, rng=0)
