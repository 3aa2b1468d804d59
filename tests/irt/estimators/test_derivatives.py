"""Gradients, information and priors of the estimators, by automatic differentiation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd.functional import hessian, jacobian
from torch.distributions import MultivariateNormal

from evalstats_plugin.irt.estimators import joint, mml
from evalstats_plugin.irt.estimators.frozen import calibration, score_held_out, weighted_auc
from evalstats_plugin.irt.estimators.grid import (
    REACH,
    SLACK,
    arrange,
    even_nodes,
    posterior,
    windows,
)
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts

RNG = np.random.default_rng(0)
N, M = 7, 5
TRIALS = torch.tensor(RNG.integers(0, 4, (N, M)), dtype=torch.float64)
RIGHT = (TRIALS * torch.tensor(RNG.random((N, M)))).round()
SLOPE = torch.tensor(RNG.uniform(0.4, 2, M))
INTERCEPT = torch.tensor(RNG.normal(size=M))
GUESS = torch.tensor(RNG.normal(-1.5, 0.3, M))
NODES = even_nodes(-7, 7, 141, SLOPE)


@pytest.mark.parametrize("n", [3, 250])
def test_windows_hold_every_posterior_and_no_node_more(n):
    """From the last node below all that a window's models reach to the first above."""
    rng = np.random.default_rng(1)
    mean, sd = torch.tensor(rng.normal(size=n)), torch.tensor(rng.uniform(0.05, 0.3, n))
    at = torch.linspace(-8, 8, 801, dtype=torch.float64)
    found = windows(mean, sd, at)
    away = REACH * sd + SLACK * (1 + mean.abs())

    assert mean[found.order].tolist() == sorted(mean.tolist())
    assert found.rank[found.order].tolist() == list(range(n))
    for rows, nodes in found.parts:
        low = float((mean - away)[found.order][rows].min())
        high = float((mean + away)[found.order][rows].max())
        assert nodes.start == max(int((at <= low).sum()) - 1, 0)
        assert nodes.stop == min(int((at < high).sum()) + 1, len(at))
        for model in found.order[rows].tolist():
            assert found.ends[model].tolist() == [nodes.start, nodes.stop - 1]
            assert found.inner[model].tolist() == [nodes.start > 0, nodes.stop < len(at)]


@pytest.mark.parametrize("guess", [None, GUESS])
def test_derivatives_of_items_are_those_of_the_marginal_likelihood(guess):
    """The gradient of the integral; for curves without asymptotes the information too."""
    answers = arrange(Counts(RIGHT, TRIALS))

    def items(free):
        return Items(*free, *(() if guess is None else (guess,)))

    def marginal(free):
        own = items(free[: 2 * M].reshape(2, M))
        p = torch.sigmoid(own.slope[:, None] * NODES.at + own.intercept[:, None])
        if guess is not None:
            lower = torch.sigmoid(guess)[:, None]
            p = lower + (1 - lower) * p
        value = RIGHT @ p.log() + (TRIALS - RIGHT) @ (1 - p).log()
        return torch.logsumexp(value + NODES.log_weight, dim=1).sum()

    def complete(free):
        p = torch.sigmoid(free[:M, None] * NODES.at + free[M:, None])
        value = RIGHT @ p.log() + (TRIALS - RIGHT) @ (1 - p).log()
        return (weights * value).sum()

    start = torch.cat([SLOPE, INTERCEPT])
    weights = posterior(answers, items(start.reshape(2, M)), NODES).weights
    found = mml.derivatives(answers, items(start.reshape(2, M)), weights, NODES)
    exact = jacobian(marginal, start).reshape(2, M).T
    torch.testing.assert_close(found.gradient[:, :2], exact, rtol=1e-5, atol=1e-6)
    if guess is None:
        curve = -hessian(complete, start).reshape(2, M, 2, M)
        own = torch.stack([curve[:, k, :, k] for k in range(M)])
        torch.testing.assert_close(found.information, own, rtol=1e-5, atol=1e-6)


def test_a_normal_prior_of_items_is_normal():
    """Its density up to a constant, its derivatives, its free parameters, and its reflection."""
    prior = mml.ItemPrior(
        torch.tensor([1.0, 0.2], dtype=torch.float64),
        torch.tensor([[0.5, 0.0], [0.3, 0.9]], dtype=torch.float64),
        estimated=False,
    )
    items = Items(SLOPE, INTERCEPT)
    normal = MultivariateNormal(prior.mean, scale_tril=prior.factor)
    values = torch.stack([SLOPE, INTERCEPT], dim=1)
    zero = mml.Derivatives(torch.zeros(M, 2).double(), torch.zeros(M, 2, 2).double())
    gain = prior.add_to(zero, items)
    free = prior.vector()

    constant = normal.log_prob(prior.mean)
    torch.testing.assert_close(prior.log_density(items), normal.log_prob(values) - constant)
    torch.testing.assert_close(gain, (normal.log_prob(values) - constant).sum())
    torch.testing.assert_close(zero.gradient, jacobian(lambda x: normal.log_prob(x).sum(), values))
    torch.testing.assert_close(zero.information, normal.precision_matrix.expand(M, 2, 2))
    torch.testing.assert_close(prior.from_vector(free).factor, prior.factor)
    assert free.tolist() == pytest.approx([1.0, 0.2, math.log(0.5), math.log(0.9), 0.3])
    mirrored = prior.reversed()
    torch.testing.assert_close(
        mirrored.log_density(Items(-SLOPE, INTERCEPT)), prior.log_density(items)
    )


def test_the_objective_of_an_estimated_prior_is_laplaces_integral():
    """Of items with a quadratic likelihood: the normal integral over them, but for 2 π."""
    prior = mml.ItemPrior(
        torch.tensor([1.0, 0.2], dtype=torch.float64),
        torch.tensor([[0.5, 0.0], [0.3, 0.9]], dtype=torch.float64),
        estimated=True,
    )
    information = torch.eye(2).double().expand(M, 2, 2) * torch.arange(1.0, M + 1)[:, None, None]
    found = mml.Derivatives(torch.zeros(M, 2).double(), information.clone())
    gain = prior.add_to(found, Items(SLOPE, INTERCEPT))
    normal = MultivariateNormal(prior.mean, scale_tril=prior.factor)
    density = normal.log_prob(torch.stack([SLOPE, INTERCEPT], dim=1)) + math.log(2 * math.pi)
    inverse = torch.linalg.inv(information + normal.precision_matrix)

    torch.testing.assert_close(gain, (density + torch.logdet(inverse) / 2).sum())


SLOPES = [("gamma", 2.0, 0.5), ("lognormal", 0.1, 0.6), ("normal", 1.0, 0.7)]


@pytest.mark.parametrize("prior", SLOPES)
def test_priors_of_slopes_are_the_named_densities(prior):
    """SciPy's, up to a constant, with their derivatives; a curvature below 0 counts as none."""
    kind, first, second = prior
    own = joint.Slopes(*prior)
    named = {
        "gamma": stats.gamma(first, scale=second),
        "lognormal": stats.lognorm(second, scale=math.exp(first)),
        "normal": stats.norm(first, second),
    }[kind]
    exact = named.logpdf(SLOPE.numpy())
    found = own.log_density(SLOPE).numpy()

    np.testing.assert_allclose(found - found[0], exact - exact[0])
    by_slope = jacobian(lambda x: own.log_density(x).sum(), SLOPE)
    torch.testing.assert_close(own.gradient(SLOPE), by_slope)
    curve = -hessian(lambda x: own.log_density(x).sum(), SLOPE).diagonal()
    torch.testing.assert_close(own.curvature(SLOPE), curve.clamp_min(0))


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
@pytest.mark.parametrize("prior", [None, *SLOPES])
def test_derivatives_of_the_joint_objective(kind, prior):
    """The gradient, and the expected information block by block."""
    penalty = joint.Penalty(0.7, 0.2, None if prior is None else joint.Slopes(*prior))
    data = joint._Data(RIGHT, TRIALS, penalty, kind)
    ability = torch.linspace(-1, 1.5, N, dtype=torch.float64)
    slope = torch.ones_like(SLOPE) if kind == "rasch" else SLOPE
    at = torch.cat([ability, slope, INTERCEPT])[None]
    state = data.state(at)
    found = joint._information(data, state)
    gradient = joint._gradient(data, state, found)
    exact = jacobian(lambda x: joint._objective(data, data.state(x)), at)[0]
    expected = Counts(TRIALS * torch.sigmoid(joint._logit(state)), TRIALS).right
    # With the answers that are expected, observed and expected information are the same.
    curve = -hessian(lambda x: joint._objective(data._replace(right=expected), data.state(x)), at)[
        0, :, 0
    ]
    places = [N + M + torch.arange(M), *([N + torch.arange(M)] if kind == "2pl" else [])]

    torch.testing.assert_close(gradient.ability, exact[:N])
    torch.testing.assert_close(gradient.intercept, exact[N + M :])
    if kind == "2pl":
        torch.testing.assert_close(gradient.slope, exact[N : N + M])
    torch.testing.assert_close(found.ability, curve[:N, :N].diagonal())
    for i, one in enumerate(places):
        torch.testing.assert_close(found.across[:, :, i], curve[:N][:, one])
        for j, other in enumerate(places):
            if (i, j) != (1, 1) or prior is None or prior[0] != "lognormal":
                torch.testing.assert_close(
                    found.items[:, i, j], curve[one, other], rtol=1e-5, atol=1e-6
                )


def test_predictions_are_scored_as_scikit_learn_does():
    """Trials as rows of their own; bins hold equally many cells and every answer once."""
    metrics = pytest.importorskip("sklearn.metrics")
    p = RNG.uniform(0.05, 0.95, (N, M)).round(1)
    test = RNG.random((N, M)) < 0.8
    there = test & (TRIALS.numpy() > 0)
    right, trials = RIGHT.numpy()[there], TRIALS.numpy()[there]
    counts = np.r_[right, trials - right]
    label = np.repeat([1, 0], len(right))
    scores = score_held_out(Counts(RIGHT, TRIALS), p, test)
    both = np.r_[p[there], p[there]]

    assert scores.auc == pytest.approx(metrics.roc_auc_score(label, both, sample_weight=counts))
    assert scores.brier == pytest.approx(
        metrics.brier_score_loss(label, both, sample_weight=counts)
    )
    assert scores.log_loss == pytest.approx(metrics.log_loss(label, both, sample_weight=counts))
    assert scores.n_cells == there.sum()
    assert np.isnan(weighted_auc(p[there], trials, 0 * trials))
    bins = calibration(Counts(RIGHT, TRIALS), p, test)
    share = np.array([trials[p[there] == x].sum() for x in np.unique(p[there])])
    assert (np.diff(bins.predicted) > 0).all()
    assert bins.n_cells.sum() == there.sum()
    weight = bins.predicted * (1 - bins.predicted) / bins.std_error**2
    if len(share) == len(bins.n_cells):
        np.testing.assert_allclose(weight, share)
        np.testing.assert_allclose(bins.observed @ share, right.sum())


def test_an_item_whose_information_overflows_stays_as_it_is():
    """A 4PL without priors of 300 models and 12 items ended in an error of NumPy."""
    gradient = torch.tensor([[0.1, 0.2], [1.0, 1.0]], dtype=torch.float64)
    information = torch.stack([torch.eye(2), torch.full((2, 2), math.inf)]).double()
    step = mml.newton_step(mml.Derivatives(gradient, information), common_slope=False)

    torch.testing.assert_close(step, torch.tensor([[0.1, 0.2], [0.0, 0.0]]).double())
