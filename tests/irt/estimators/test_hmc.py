"""Draws against Gibbs sampling and a known density, the target against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from evalstats_plugin.irt.estimators import draws
from evalstats_plugin.irt.estimators.draws import HmcOptions, LogisticTarget, Sampler, hmc
from evalstats_plugin.irt.model.data import Counts

KINDS = ("rasch", "2pl")


def counts(n, m, seed=0, *, missing=0.0, trials=1):
    rng = np.random.default_rng(seed)
    a = np.exp(0.3 * rng.standard_normal(m))
    p = special.expit(a * (rng.standard_normal((n, 1)) - rng.standard_normal(m)))
    tried = trials * (rng.random((n, m)) >= missing)
    return Counts(torch.tensor(1.0 * rng.binomial(tried, p)), torch.tensor(1.0 * tried))


def written_out(at, data, kind):
    """The joint density of data, parameters and their logarithms, term by term."""
    right, trials = data.right.numpy(), data.trials.numpy()
    n, m = right.shape
    z, e, rest = at[:n], at[n : n + m], at[n + m :]
    total = stats.norm.logpdf(z).sum() + stats.norm.logpdf(e).sum()
    theta, a = z, np.ones(m)
    if kind == "2pl":
        f, mean, log_sd, slope, log_slope = rest[:m], *rest[m:]
        a = slope + np.exp(log_slope) * f
        total += stats.norm.logpdf(f).sum() + stats.norm.logpdf(slope, 1, 1)
        total += stats.halfnorm.logpdf(np.exp(log_slope)) + log_slope
    else:
        mean, log_sd, log_tau = rest
        theta = np.exp(log_tau) * z
        total += stats.halfnorm.logpdf(np.exp(log_tau), scale=2) + log_tau
    total += stats.norm.logpdf(mean, 0, 3)
    total += stats.halfnorm.logpdf(np.exp(log_sd), scale=3) + log_sd
    p = special.expit(theta[:, None] * a + mean + np.exp(log_sd) * e)
    return total + (right * np.log(p) + (trials - right) * np.log1p(-p)).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_target_is_the_joint_density(kind):
    data = counts(4, 7, missing=0.2, trials=3)
    target = LogisticTarget(data, kind)
    at = target.start(5, torch.Generator().manual_seed(0))

    values = target.value(at).numpy() - [written_out(x, data, kind) for x in at.numpy()]

    assert np.ptp(values) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_finite_differences(kind):
    target = LogisticTarget(counts(4, 7, missing=0.2, trials=3), kind)
    at = target.start(1, torch.Generator().manual_seed(1))
    steps = 1e-5 * torch.eye(at.shape[1], dtype=torch.float64)

    expected = (target.value(at + steps) - target.value(at - steps)) / 2e-5

    assert torch.allclose(target.gradient(at)[0], expected, rtol=1e-6, atol=1e-7)


def test_reflection_keeps_the_log_density():
    target = LogisticTarget(counts(4, 7), "2pl")
    at = target.start(6, torch.Generator().manual_seed(2))
    n, m = 4, 7
    mirrored = at.clone()
    for part in (slice(0, n), slice(n + m, n + 2 * m), slice(-2, -1)):
        mirrored[:, part] *= -1

    assert torch.equal(target.oriented(mirrored), at)
    assert torch.equal(target.oriented(at), at)
    # All that tells the two apart is μ_a ~ N(1, 1): log densities differ by 2 μ_a.
    assert torch.allclose(target.value(at) - target.value(mirrored), 2 * at[:, -2])


def moments(ability):
    """Mean with its error, from chains (K, S, N) that are independent, and standard deviation."""
    means = ability.mean(1)
    return means.mean(0), means.std(0) / len(means) ** 0.5, ability.flatten(0, 1).std(0)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_those_of_gibbs_sampling(kind):
    data = counts(5, 20, seed=3, trials=2)

    found = hmc(data, kind, np.random.default_rng(0), HmcOptions(chains=40, draws=90, warm_up=120))
    other = draws.gibbs(
        data, kind, np.random.default_rng(1), draws.GibbsOptions(chains=40, draws=90, warm_up=50)
    )

    mean, error, sd = moments(found.draws.ability)
    expected, its_error, expected_sd = moments(other.ability)
    assert found.divergent == 0
    assert found.acceptance > 0.7
    assert float(((mean - expected) / torch.hypot(error, its_error)).abs().max()) < 4
    assert float(error.max()) < 0.05 * float(sd.min())
    assert torch.allclose(sd, expected_sd, rtol=0.1)
    assert found.draws.hyper.keys() == other.hyper.keys()
    for name, values in other.hyper.items():
        mean, error, sd = moments(found.draws.hyper[name])
        expected, its_error, expected_sd = moments(values)
        assert abs(mean - expected) < 4 * torch.hypot(error, its_error)
        assert sd == pytest.approx(float(expected_sd), rel=0.15)
    spread = found.draws.item_covariance.diagonal(dim1=1, dim2=2).sqrt()
    known = other.item_covariance.diagonal(dim1=1, dim2=2).sqrt()
    assert torch.allclose(spread, known, rtol=0.12, atol=1e-6)


class Normal:
    """Independent normals around 3 of very different spread."""

    sd = torch.tensor([0.01, 1.0, 30.0], dtype=torch.float64)

    def value(self, at):
        return -((at - 3) / self.sd).square().sum(1) / 2

    def gradient(self, at):
        return -(at - 3) / self.sd.square()

    def oriented(self, at):
        return at


def sampler(draws):
    generator = torch.Generator().manual_seed(0)
    start = 3 + torch.randn(64, 3, generator=generator, dtype=torch.float64)
    return Sampler(Normal(), start, generator, HmcOptions(chains=64, draws=draws, warm_up=200))


def test_normals_of_any_scale_are_drawn_after_the_warm_up():
    chains = sampler(100)
    chains.warm_up()

    draws = torch.stack([chains.draw() for _ in range(100)], 1)

    mean, error, sd = moments(draws)
    assert ((mean - 3) / error).abs().max() < 4
    assert torch.allclose(sd, Normal.sd, rtol=0.05)
    assert chains.mass.sd / Normal.sd == pytest.approx(np.ones(3), rel=0.2)
    assert not chains.divergent


def test_divergent_trajectories_are_counted_and_rejected():
    chains = sampler(1)

    # A step ten times the smallest spread, without a mass that makes up for it.
    chains.step.settled = np.log(0.1)
    before = chains.chains.at
    after = chains.draw()

    assert int(chains.divergent) == 64
    assert torch.equal(before, after)


def test_the_same_seed_draws_the_same_numbers_with_missing_cells_and_fractions_of_trials():
    whole = counts(4, 9, missing=0.2)
    data = Counts(0.7 * whole.right, 0.7 * whole.trials)
    short = HmcOptions(chains=4, draws=5, warm_up=20)

    one, two, other = (hmc(data, "2pl", np.random.default_rng(s), short) for s in (1, 1, 2))

    assert torch.equal(one.draws.ability, two.draws.ability)
    assert not torch.equal(one.draws.ability, other.draws.ability)
    assert one.draws.ability.shape == (4, 5, 4)
    assert one.draws.ability.sum(2).abs().max() < 1e-12


@pytest.mark.parametrize("found", [{"chains": 2}, {"warm_up": 5}])
def test_too_few_chains_or_too_short_a_warm_up_learn_nothing(found):
    with pytest.raises(ValueError, match="expected at least 4 and 20"):
        hmc(counts(3, 4), "rasch", np.random.default_rng(0), HmcOptions(**found))
