import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import anchor_points, anchor_scores
from evalstats_plugin.adaptive.selection import SympsonHetter
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import (
    Options,
    draw_models,
    exposure_control,
    run_sessions,
    simulate,
)
from evalstats_plugin.errors import DesignError


def bank_of(n_items=150):
    rng = np.random.default_rng(0)
    a, b = np.exp(0.4 * rng.normal(size=n_items)), rng.normal(size=n_items)
    covariance = np.tile(0.03 * np.eye(2), (n_items, 1, 1))
    return ItemBank.from_arrays(a, -a * b, item_covariance=covariance)


def test_many_sessions_at_once_are_as_one_after_the_other():
    bank = bank_of()
    drawn = draw_models(bank, 5, rng=1)
    options = Options("posterior-information")
    run = run_sessions(bank, drawn.answers, (12,), options, rng=0)

    for k, answers in enumerate(drawn.answers):
        session = AdaptiveSession(bank, rule="posterior-information", rng=0)
        while session.n < 12:
            place = int(session.next()[0])
            session.record(place, answers[place])
        found = run.checkpoints[0]
        np.testing.assert_allclose(session.ability, found.scored.ability[k], atol=1e-9)
        np.testing.assert_allclose(
            session.full_score()[""].estimate, found.full.estimate[k, 0], atol=1e-4
        )


def test_information_needs_fewer_items_than_chance_and_intervals_hold():
    bank = bank_of()

    rows = simulate(bank, (20,), ("posterior-information", "random"), n_models=200, rng=2).rows

    best, chance = rows
    assert best.ability_rmse < 0.85 * chance.ability_rmse
    assert best.rank_correlation > chance.rank_correlation
    for row in rows:
        assert 0.92 < row.ability_coverage < 0.98
        assert 0.92 < row.score_coverage


def test_exposure_control_keeps_shares_below_the_limit():
    bank, most = bank_of(40), 0.4
    control = exposure_control(bank, 7, most=most, options=Options("kl"), n_models=200, rng=0)
    # Of items as the bank has them: where they differ by their errors, so do the shares.
    answers = draw_models(bank, 400, misspecified=0.0, rng=3).answers
    free, held = (
        np.bincount(run_sessions(bank, answers, (7,), options, rng=0).places.ravel()) / 400
        for options in (Options("kl"), Options("kl", exposure=control))
    )

    assert free.max() > 0.9
    # What is left is chance: of the 200 models of each round, and of the 400 here.
    assert held.max() < most + 0.05
    assert np.sort(held)[-7:].mean() > 0.8 * most


def test_an_item_that_is_refused_is_refused_for_the_whole_test():
    bank = bank_of(60)
    session = AdaptiveSession(bank, rule="kl", exposure=SympsonHetter(np.full(60, 0.5)), rng=0)

    first = session.next(60)

    refused = ~session._eligible[0]
    assert 20 < refused.sum() < 40
    assert refused[first[-refused.sum() :]].all()


def test_a_share_that_leaves_too_few_items_is_refused():
    with pytest.raises(DesignError, match="shown to 17% of models or more, above the limit"):
        exposure_control(bank_of(60), 10, most=0.1)


def test_asking_more_than_was_answered_is_refused():
    bank = bank_of(20)

    with pytest.raises(DesignError, match="ask for fewer"):
        run_sessions(bank, np.full((2, 20), np.nan), (5,))


def test_anchors_of_clear_clusters_stand_for_them():
    rng = np.random.default_rng(0)
    d = np.repeat([-4.0, 0.0, 4.0], [10, 30, 60]) + 0.01 * rng.normal(size=100)
    bank = ItemBank.from_arrays(np.ones(100), d)

    anchors = anchor_points(bank, 3, rng=0)

    own = np.sort(np.round(d[anchors.places] / 4).astype(int))
    assert [-1, 0, 1] == own.tolist()
    order = np.argsort(d[anchors.places])
    np.testing.assert_allclose([0.1, 0.3, 0.6], anchors.weights[order])
    answers = (d > -2).astype(float)[None]
    np.testing.assert_allclose(0.9, anchor_scores(bank, anchors, answers)[0][0])
