import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import (
    SimulationOptions,
    draw_models,
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
    options = SimulationOptions("information")
    run = run_sessions(bank, drawn.answers, (12,), options, rng=0)

    for k, answers in enumerate(drawn.answers):
        session = AdaptiveSession(bank, rule="information", rng=0)
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

    rows = simulate(bank, (20,), ("information", "random"), n_models=200, rng=2).rows

    best, chance = rows
    assert best.ability_rmse < 0.85 * chance.ability_rmse
    assert best.rank_correlation > chance.rank_correlation
    for row in rows:
        assert 0.92 < row.ability_coverage < 0.98
        assert 0.92 < row.score_coverage


def test_asking_more_than_was_answered_is_refused():
    bank = bank_of(20)

    with pytest.raises(DesignError, match="ask for fewer"):
        run_sessions(bank, np.full((2, 20), np.nan), (5,))


@pytest.mark.parametrize("rule", ["design", "random"])
def test_a_bank_that_tells_nothing_of_a_model_costs_no_width(rule):
    """Ten items for coins: limits are as wide as those of a simple random sample, and hold."""
    bank, n, z = bank_of(200), 10, 1.959964
    answers = (np.random.default_rng(1).random((400, len(bank))) < 0.5) * 1.0
    found = run_sessions(bank, answers, (n,), SimulationOptions(rule), rng=2).checkpoints[0].full
    truth, low, high = answers.mean(axis=1), found.low[:, 0], found.high[:, 0]
    # Wilson's interval for a share, corrected for the finite population.
    square = z**2 * (1 - n / len(bank)) / n
    share = np.random.default_rng(3).binomial(n, 0.5, 4000) / n
    wilson = 2 * np.sqrt(square * share * (1 - share) + square**2 / 4) / (1 + square)

    assert np.mean(high - low) <= 1.02 * wilson.mean()
    assert 0.92 <= np.mean((low <= truth) & (truth <= high))
