"""Judges who differ: found again when simulated, left alone when alike, useful on real votes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests, count_contests
from evalstats_plugin.ranking.goodness import predictive_fit
from evalstats_plugin.ranking.ratings.bradley_terry import (
    _recentred,
    count_votes,
    effects_of,
    fit_bradley_terry,
    information_at,
    point_at,
)


def votes(judges, each, seed, *, sds=(0.7, 0.5, 0.8), players=8):
    """Votes under Davidson's model, and the truth: ratings and effects."""
    rng = np.random.default_rng(seed)
    rating = rng.normal(size=players)
    rating -= rating.mean()
    a, p, t = (sd * rng.normal(size=judges) for sd in sds)
    judge = np.repeat(np.arange(judges), each)
    first = rng.integers(players, size=len(judge))
    second = (first + rng.integers(1, players, size=len(judge))) % players
    x = np.exp(a[judge]) * (rating[first] - rating[second]) + 0.3 + p[judge]
    parts = np.exp(np.stack([-x / 2, t[judge] - 0.2, x / 2], axis=1))
    above = (parts / parts.sum(axis=1, keepdims=True)).cumsum(axis=1)
    outcome = (rng.random((len(judge), 1)) > above[:, :2]).sum(axis=1) / 2
    made = Contests.of(first, second, outcome, players=players, ordered=True)
    names = tuple(f"judge {k}" for k in range(judges))
    return replace(made, judge=judge, judges=names), rating, (a, p, t)


def test_effects_and_ratings_are_recovered():
    made, rating, truth = votes(40, 200, 1)
    fit = fit_bradley_terry(made, ties="davidson", position=True, judges=True, covariance="model")

    assert fit.diagnostics["converged"]
    assert not fit.notes
    effects, sds = (fit.diagnostics[name] for name in ("judge_effects", "judge_sds"))
    for name, true in zip(("discrimination", "position", "tie"), truth, strict=True):
        assert sds[name] == pytest.approx(true.std(), abs=0.12)
        assert np.corrcoef(effects[name], true)[0, 1] > 0.8
    # On the scale of the average judge there.
    expected = np.exp(truth[0].mean()) * rating
    assert (np.abs(fit.rating - expected) < 4 * fit.std_error).all()


def test_judge_effects_improve_held_out_log_loss():
    made, _, _ = votes(40, 60, 2)
    held_out = np.arange(len(made)) % 5 == 0
    train, test = made.take(~held_out), made.take(held_out)
    settings = {"ties": "davidson", "position": True, "covariance": "model"}
    without = fit_bradley_terry(train, **settings)
    fit = fit_bradley_terry(train, judges=True, **settings)

    assert predictive_fit(fit, test).log_loss < predictive_fit(without, test).log_loss - 0.03


def test_equal_judges_have_no_effects():
    made, _, _ = votes(20, 60, 3, sds=(0, 0, 0))
    settings = {"ties": "davidson", "position": True, "covariance": "model"}
    fit = fit_bradley_terry(made, judges=True, **settings)

    assert max(fit.diagnostics["judge_sds"].values()) < 0.25
    np.testing.assert_allclose(fit.rating, fit_bradley_terry(made, **settings).rating, atol=0.1)


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_effects_of_real_raters_improve_predictions(llmfao, ties):
    """The first of five folds; all five are in fixtures/validation/ranking_bradley_terry.json."""
    fold = np.random.default_rng(0).integers(0, 5, len(llmfao))
    train, test = llmfao.take(fold != 0), llmfao.take(fold == 0)
    settings = {"ties": ties, "position": True, "covariance": "model"}
    without = fit_bradley_terry(train, **settings)
    fit = fit_bradley_terry(train, judges=True, **settings)

    assert 1.0 < predictive_fit(without, test).log_loss < 1.03
    assert predictive_fit(fit, test).log_loss < 0.93
    assert fit.diagnostics["judge_sds"]["discrimination"] > 0.4


def test_the_stored_cross_validation_supports_the_documentation():
    """Of tests/validation/test_ranking_bradley_terry.py."""
    file = Path(__file__).parents[3] / "fixtures" / "validation" / "ranking_bradley_terry.json"
    found = json.loads(file.read_text(encoding="utf-8"))["llmfao"]

    assert found[0]["log_loss"] == pytest.approx(1.0906, abs=1e-3)
    for row in found[1:]:
        loss = row["log_loss"]
        assert loss <= 0.925 if row["judges"] else 1.01 < loss < 1.02


@pytest.mark.parametrize("kind", ["sandwich", "cluster", "judge"])
def test_covariances_agree_if_the_model_is_correct(kind):
    made, _, _ = votes(30, 60, 5)
    made = replace(made, cluster=np.random.default_rng(0).integers(200, size=len(made)))
    settings = {"ties": "davidson", "position": True, "judges": True}
    errors = [fit_bradley_terry(made, covariance=k, **settings).std_error for k in ("model", kind)]

    assert np.median(errors[1] / errors[0]) == pytest.approx(1, abs=0.2)


def test_an_unknown_judge_is_an_average_one():
    made, _, _ = votes(10, 60, 7)
    fit = fit_bradley_terry(made, ties="davidson", judges=True)
    stranger = replace(made, judges=tuple(f"other {k}" for k in range(10)))
    nobody = replace(made, judge=None, judges=())

    assert (
        predictive_fit(fit, stranger).log_loss
        == predictive_fit(fit, nobody).log_loss
        > predictive_fit(fit, made).log_loss
    )


def test_one_judge_is_refused():
    made, _, _ = votes(1, 100, 0)
    with pytest.raises(DesignError, match="have one judge"):
        fit_bradley_terry(made, judges=True)


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
@pytest.mark.parametrize("prior", [None, 2.0])
def test_derivatives_of_the_likelihood_with_judges(ties, prior):
    """By finite differences; the information is the mean square of the gradient over outcomes."""
    made, _, _ = votes(4, 30, 3, players=5)
    counted = count_contests(made, ties, position=True)
    size = counted.design.size
    precision = None if prior is None else np.diag(np.r_[np.full(5, prior), np.zeros(size - 5)])
    own = count_votes(counted, precision)
    rng, sds, h = np.random.default_rng(0), np.array([0.5, 0.4, 0.6]), 1e-6
    at = 0.3 * rng.normal(size=size + 4 * len(own.effects))

    def value(parameters):
        return point_at(own, parameters, sds).value

    numeric = [(value(at + h * s) - value(at - h * s)) / 2 / h for s in np.eye(len(at))]
    found = point_at(own, at, sds)
    np.testing.assert_allclose(found.gradient, numeric, rtol=1e-5, atol=1e-5)
    information = information_at(own, found, sds)
    np.testing.assert_allclose(information, information.T, atol=1e-12)
    assert np.linalg.eigvalsh(information).min() > -1e-9
    assert {name: len(effect) for name, effect in effects_of(own, at).items()} == {
        "discrimination": 4, "position": 4, "tie": 4,
    }  # fmt: skip


def test_moving_mean_effects_to_the_common_parameters_changes_no_probability():
    made, _, _ = votes(4, 30, 3, players=5)
    own = count_votes(count_contests(made, "davidson", position=True), None)
    at = 0.3 * np.random.default_rng(1).normal(size=own.tally.design.size + 12)
    moved, flat = _recentred(own, at), np.full(3, 1e6)

    np.testing.assert_allclose(point_at(own, moved, flat).value, point_at(own, at, flat).value)
    for effect in effects_of(own, moved).values():
        assert effect.mean() == pytest.approx(0, abs=1e-12)
