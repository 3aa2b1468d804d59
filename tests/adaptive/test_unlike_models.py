"""Models that do not fit the bank: random items, warnings, wider intervals, longer tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import KINDS, Belief, Shares, predict, project
from evalstats_plugin.adaptive.selection import INSURANCE
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import draw_models
from evalstats_plugin.adaptive.stopping import Items, StdError
from evalstats_plugin.errors import SelectionError

RNG = np.random.default_rng(3)
BANK = ItemBank.from_arrays(RNG.uniform(0.8, 2, 150), RNG.normal(0, 1.5, 150))
FITTING = draw_models(BANK, 40, rng=4).answers
COINS = (RNG.random((40, 150)) < 0.5) * 1.0
FIRST = np.tile(np.arange(40), (40, 1))


def _belief(answers: np.ndarray) -> Belief:
    right = np.take_along_axis(answers, FIRST, axis=1)
    return Belief.prior(BANK, 40).answered(FIRST, right, np.ones_like(right))


def _run(answers: np.ndarray, *stop: object, **settings: object) -> AdaptiveSession:
    session = AdaptiveSession(BANK, stop=stop, rng=0, **settings)  # pyright: ignore[reportArgumentType]
    while session.stopped is None:
        for place in session.next().tolist():
            session.record(place, answers[place])
    return session


@pytest.mark.parametrize("name", ["arc", "livebench", "alpaca_eval"])
def test_on_real_answers_limits_hold_and_estimates_stay(name: str):
    """Of the study in tests/validation/test_adaptive_unlike.py: kinds beside the curves alone."""
    file = Path(__file__).parents[2] / "fixtures" / "validation" / f"adaptive_unlike_{name}.json"
    rows = json.loads(file.read_text("utf-8"))[name]
    of = {(r["kind"], r["how"], r["n"]): r for r in rows if r["insurance"] == INSURANCE}

    for kind, _, n in of:
        insured, alone = of[kind, "all kinds", n], of[kind, "curves alone", n]
        assert insured["held"] >= max(alone["held"], 0.88), (kind, n)
        assert insured["mae"] <= 1.05 * alone["mae"] + 0.002, (kind, n)
    for n in {n for _, _, n in of}:
        assert of["none", "all kinds", n]["held"] >= 0.95


def test_each_kind_of_answers_is_possible():
    assert all(0 <= kind.right <= 1 and 0 <= kind.wrong <= 1 for kind in KINDS)
    assert len({(kind.right, kind.wrong, kind.wider) for kind in KINDS}) == len(KINDS)


def test_the_score_of_a_model_that_fits_is_nearly_that_of_its_ability_alone():
    belief = _belief(FITTING)
    found, plain = predict(belief, Shares.of(BANK)), project(belief, Shares.of(BANK))

    assert np.abs(found.full.estimate - plain.estimate).mean() < 0.015
    assert found.fits.mean() > 0.7


def test_limits_hold_the_scores_of_models_that_toss_coins():
    belief, truth = _belief(COINS), COINS.mean(axis=1)
    found = predict(belief, Shares.of(BANK))
    _, low, high, _ = (values[:, 0] for values in found.full)

    assert np.mean((low <= truth) & (truth <= high)) > 0.9
    assert found.fits.mean() < 0.4


def test_the_variance_of_a_score_is_that_of_its_items_and_what_they_share():
    found = predict(_belief(FITTING), Shares.of(BANK))

    chance = found.variances.sum(axis=1) / 150**2
    np.testing.assert_allclose(found.full.std_error[:, 0] ** 2, chance + found.common[:, 0] ** 2)
    np.testing.assert_allclose(found.scores[:, :40], FITTING[:, :40])
    np.testing.assert_allclose(found.scores.mean(axis=1), found.full.estimate[:, 0], atol=1e-3)


def test_a_known_share_of_items_is_random_and_is_kept_with_the_answers():
    session = _run(FITTING[0], Items(40), insurance=0.2)
    lines = session.to_json().splitlines()

    assert [json.loads(line).get("random", False) for line in lines] == [
        (n + 1) % 5 == 0 for n in range(40)
    ]
    found = AdaptiveSession.resume(BANK, lines).result()
    assert (found.n_random, found.fits) == (8, session.result().fits)


def test_without_random_items_a_note_says_what_is_lost():
    notes = _run(FITTING[0], Items(10), insurance=0.0).result().notes

    assert any("insurance 0): a model that does not fit the bank may go unseen" in n for n in notes)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_is_none_is_refused(share: float):
    with pytest.raises(SelectionError, match="random items is not possible: give 0 or more"):
        AdaptiveSession(BANK, insurance=share)


def test_answers_that_do_not_fit_are_named_and_the_test_goes_on():
    plain = _run(FITTING[1], StdError(0.35))
    reversed_ = 1 - FITTING[1]
    odd = _run(reversed_, StdError(0.35))

    assert plain.result().fits > 0.5
    assert not any("do not fit" in note for note in plain.result().notes)
    assert any("the answers do not fit the bank" in note for note in odd.result().notes)
    assert odd.n > 1.5 * plain.n
    assert _run(reversed_, StdError(0.35), Items(12)).n == 12


def test_answers_that_do_not_fit_raise_an_alarm():
    """lz* of a fitting model is near 0, and low for one that tosses coins."""
    fitting = [_run(row, Items(60)).person_fit() for row in FITTING[:12]]
    coins = [_run(row, Items(60)).person_fit() for row in COINS[:12]]
    alarms = [_run(row, Items(60)).result().notes for row in COINS[:12]]

    assert 1.5 > abs(np.mean([fit.lz for fit in fitting]))
    assert -2 > np.mean([fit.lz for fit in coins])
    assert 1.2 > np.mean([fit.outfit for fit in fitting]) < np.mean([f.outfit for f in coins])
    assert 6 < sum(any("lz*" in note for note in notes) for notes in alarms)


def test_right_answers_to_items_that_are_too_hard_raise_a_leak_alarm():
    """Of the 60 hardest items a model gets only the six hardest right: they are named."""
    session = AdaptiveSession(BANK, rng=0)
    hard = np.argsort(BANK.intercept)
    for place in [*hard[-60:].tolist(), *hard[:6].tolist()]:
        session.record(place, float(place in hard[:6]))
    fit = session.person_fit()

    assert 6 == len(fit.surprising)
    assert 0.005 > fit.leak_p
    assert any("as if their answers had leaked" in note for note in session.result().notes)
