"""Posterior of ratings: against sums over a grid, calibration, and a sampler that is broken."""

import json
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests.contests import Contests, count_contests
from evalstats_plugin.ranking.contests.outcomes import Weights
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.ranking.ratings.likelihood import Prior, Sample, _information, _point
from evalstats_plugin.ranking.ratings.uncertainty import (
    POSITION_SD,
    TIE_SD,
    _prior,
    bradley_terry_posterior,
)
from evalstats_plugin.runtime import ChainLength

SMALL = Contests.of([0, 0, 1, 0, 2, 1], [1, 1, 2, 2, 1, 0], [1, 1, 1, 0.5, 1, 0])
MEAN = np.array([0.5, 0.0, -0.3])
COVARIANCE = np.array([[1.5, 0.4, 0.0], [0.4, 1.0, -0.2], [0.0, -0.2, 0.8]])
FIXTURES = Path(__file__).parents[3] / "fixtures"
STUDY = json.loads(
    (FIXTURES / "validation" / "ranking_bradley_terry.json").read_text(encoding="utf-8")
)


def summed_over_a_grid(made, mean, covariance):
    """Evidence, mean and covariance of three ratings, to about 8 digits."""
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(node, node, node, indexing="ij")).reshape(3, -1)
    w = np.prod(np.stack(np.meshgrid(weight, weight, weight, indexing="ij")), axis=0).ravel()
    rating = mean[:, None] + np.linalg.cholesky(covariance) @ z
    x = rating[made.first] - rating[made.second]
    likelihood = np.exp((made.outcome[:, None] * x - np.logaddexp(0, x)).sum(axis=0))
    p = w * likelihood
    evidence = p.sum() / w.sum()
    p = p / p.sum()
    centre = rating @ p
    away = rating - centre[:, None]
    return np.log(evidence), centre, (away * p) @ away.T


def test_draws_have_the_moments_of_the_posterior():
    _, mean, covariance = summed_over_a_grid(SMALL, MEAN, COVARIANCE)
    fit = bradley_terry_posterior(
        SMALL, prior_mean=MEAN, prior_covariance=COVARIANCE, ties="half", rng=0
    )

    assert fit.diagnostics["ess"] > 2000
    assert fit.draws.shape == (4000, 3)
    error = np.sqrt(np.diagonal(covariance) / fit.diagnostics["ess"])
    assert (np.abs(fit.rating - mean) < 4 * error).all()
    np.testing.assert_allclose(fit.covariance, covariance, atol=0.15)


def test_laplace_is_close_with_few_contests_and_closer_with_many():
    def furthest(made):
        evidence, mean, covariance = summed_over_a_grid(made, MEAN, COVARIANCE)
        fit = bradley_terry_posterior(
            made, prior_mean=MEAN, prior_covariance=COVARIANCE, estimator="laplace", ties="half"
        )
        away = np.abs(fit.rating - mean) / np.sqrt(np.diagonal(covariance))
        return away.max(), abs(fit.diagnostics["log_evidence"] - evidence)

    few, many = furthest(SMALL), furthest(SMALL.take(np.tile(np.arange(6), 10)))
    assert few[0] < 0.1
    assert few[1] < 0.1
    assert many[0] < few[0]


def test_the_stored_calibration_study_holds():
    """Of tests/validation/test_ranking_bradley_terry.py: even ranks, and a control that fails."""
    rows = {row["sampler"]: row for row in STUDY["calibration"]}

    assert rows["hmc"]["p_value"] > 1e-3
    assert rows["hmc"]["std_dev"] == pytest.approx(12**-0.5, abs=0.02)
    assert rows["hmc, contests counted four times"]["p_value"] < 1e-6


def test_position_and_davidson_ties_are_close_to_maximum_likelihood_with_much_data(simulated):
    _, made = simulated(4, 4000, 2, ties=0.2, position=0.4)
    fit = bradley_terry_posterior(made, ties="davidson", estimator="laplace")
    plain = fit_bradley_terry(made, ties="davidson", position=True, covariance="model")

    np.testing.assert_allclose(fit.rating - fit.rating.mean(), plain.rating, atol=0.01)
    for name, error in plain.parameter_std_errors.items():
        assert fit.parameters[name] == pytest.approx(plain.parameters[name], abs=0.01)
        assert fit.parameter_std_errors[name] == pytest.approx(error, rel=0.01)
    drawn = bradley_terry_posterior(made, ties="davidson", rng=1)
    assert drawn.estimator == "hmc"
    assert drawn.parameters["tie"] == pytest.approx(fit.parameters["tie"], abs=0.01)
    half = bradley_terry_posterior(made, estimator="hmc", rng=1)
    ml = fit_bradley_terry(made, position=True, covariance="model")
    error = ml.parameter_std_errors["position"]
    assert half.parameters["position"] == pytest.approx(ml.parameters["position"], abs=0.3 * error)
    assert half.parameter_std_errors["position"] == pytest.approx(error, rel=0.15)


def test_disconnected_groups_have_the_prior_of_their_difference():
    made = Contests.of([0, 2], [1, 3], [1, 1])
    fit = bradley_terry_posterior(made, estimator="laplace", prior_covariance=2.0)

    assert fit.covariance[0, 2] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(fit.rating[:2], fit.rating[2:], atol=1e-12)
    alone = bradley_terry_posterior(
        Contests.of([0], [1], [1], players=3), prior_mean=[0, 0, 4], estimator="laplace"
    )
    assert (alone.rating[2], alone.std_error[2]) == pytest.approx((4, 1))


def test_identical_seeds_draw_identical_numbers():
    short = ChainLength(chains=4, draws=50, warm_up=20)
    a, b, c = (
        bradley_terry_posterior(SMALL, estimator="hmc", length=short, rng=k).draws
        for k in (1, 1, 2)
    )

    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"ties": "rao-kupper"}, SelectionError, "no posterior with ties 'rao-kupper'"),
        (
            {"prior_covariance": -np.eye(3)},
            DesignError,
            "not finite, symmetric and positive definite",
        ),
        (
            {"prior_covariance": [1.0, 0.0, 1.0]},
            DesignError,
            "not finite, symmetric and positive definite",
        ),
        ({"prior_mean": [1.0, 2.0]}, DesignError, r"give a number or shape \(3,\) each"),
    ],
)
def test_wrong_settings_are_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        bradley_terry_posterior(SMALL, **keywords)


def test_a_weight_counts_as_so_many_contests():
    made = Contests.of([0, 1], [1, 0], [1, 1], weight=[2.5, 1.0])
    twice = Contests.of([0, 0, 1], [1, 1, 0], [1, 1, 1], weight=[1.5, 1.0, 1.0])
    fits = [bradley_terry_posterior(x, rng=1) for x in (made, twice)]

    np.testing.assert_allclose(fits[0].rating, fits[1].rating, atol=1e-9)


def test_the_prior_of_each_parameter_is_its_own(simulated):
    """A position and a tie have the precisions that are named after them."""
    _, made = simulated(4, 80, 2, ties=0.3, position=0.4)
    counted = count_contests(made, "davidson", position=True)
    prior = _prior(counted, 0.5, 4.0)
    names = counted.design.names

    assert prior.mean.tolist() == [0.5] * 4 + [0.0] * len(names)
    assert np.diag(prior.precision)[:4].tolist() == [0.25] * 4
    assert dict(zip(names, np.diag(prior.precision)[4:], strict=True)) == {
        "position": POSITION_SD**-2, "tie": TIE_SD**-2,
    }  # fmt: skip


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper", "half"])
def test_the_gradient_and_information_of_the_posterior_are_derivatives(simulated, ties):
    """Of its value, by finite differences: contests, prior, and half a contest between equals."""
    _, made = simulated(4, 80, 2, ties=0.3, position=0.4)
    design = count_contests(made, ties, position=True).design
    rng = np.random.default_rng(0)
    at = 0.3 * rng.normal(size=(design.size, 1))
    weights = Weights(*rng.uniform(1, 5, (3, *design.ahead(at).shape)))
    root = rng.normal(size=(design.size, design.size))
    prior = Prior(rng.normal(size=design.size), root @ root.T)
    even = None if ties == "half" else np.ones(1)
    sample = Sample(weights, prior, None, even)

    def gradient(parameters):
        return _point(design, sample, parameters).gradient[:, 0]

    def value(parameters):
        return float(_point(design, sample, parameters).value[0])

    point, h = _point(design, sample, at), 1e-5
    steps = h * np.eye(design.size)[:, :, None]
    numeric = [(value(at + step) - value(at - step)) / (2 * h) for step in steps]
    curve = [(gradient(at - step) - gradient(at + step)) / (2 * h) for step in steps]
    np.testing.assert_allclose(point.gradient[:, 0], numeric, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        _information(design, sample, at, point)[0], curve, rtol=1e-5, atol=1e-5
    )
