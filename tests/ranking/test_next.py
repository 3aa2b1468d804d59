"""Which comparison next: what an outcome is worth, against integrals, draws and Bayes' rule."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, special

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests import outcomes
from evalstats_plugin.ranking.next import (
    RULES,
    expected_covariance,
    next_contests,
    order_information,
    thompson_duel,
)

CURVES = {"probit": special.ndtr, "logit": special.expit}
STUDY = Path(__file__).parents[2] / "fixtures" / "validation" / "ranking_acquisition.json"


def belief(n, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) / np.sqrt(n)
    covariance = root @ root.T + 0.2 * np.eye(n)
    return SimpleNamespace(rating=spread * rng.normal(size=n), covariance=covariance)


def integral(f, m, v, low=-np.inf):
    sd = np.sqrt(v)
    low = max(low, m - 12 * sd)
    density = lambda d: f(d) * np.exp(-0.5 * ((d - m) / sd) ** 2) / sd / np.sqrt(2 * np.pi)  # noqa: E731
    return integrate.quad(density, low, m + 12 * sd, points=[m], limit=500)[0]


@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.parametrize(("m", "v"), [(0.0, 1.0), (1.3, 0.4), (-2.0, 6.0), (0.2, 18.0)])
def test_closed_forms_agree_with_integrals(link, m, v):
    """The mixture for the logistic curve is right to 5e-6."""
    curve = CURVES[link]
    tolerance = 1e-9 if link == "probit" else 5e-6

    assert outcomes.prob_win(m, v, link) == pytest.approx(integral(curve, m, v), abs=tolerance)
    ahead = integral(curve, m, v, low=0.0)
    assert outcomes.prob_win_and_ahead(m, v, link) == pytest.approx(ahead, abs=tolerance)
    step = 1e-4
    slope = (integral(curve, m + step, v) - integral(curve, m - step, v)) / (2 * step)
    assert outcomes.prob_win_slope(m, v, link) == pytest.approx(slope, abs=5e-5)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_order_information_is_mutual_information_of_outcome_and_sign(link):
    m, v = 0.8, 2.5
    both = integral(CURVES[link], m, v, low=0.0)
    win, ahead = integral(CURVES[link], m, v), special.ndtr(m / np.sqrt(v))
    cells = np.array([[both, win - both], [ahead - both, 1 - win - ahead + both]])
    apart = np.outer(cells.sum(axis=1), cells.sum(axis=0))
    expected = (cells * np.log2(cells / apart)).sum()

    assert order_information(m, v, link) == pytest.approx(expected, abs=1e-4)
    assert order_information(0.0, 1e9, "probit") == pytest.approx(1, abs=1e-3)
    assert order_information(40.0, 1.0, link) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_expected_covariance_averages_over_answers(link):
    """By importance weights of draws, averaged over both answers; and not that of no answer."""
    given = belief(4)
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(given.rating, given.covariance, 400_000)
    win = CURVES[link](draws[:, 1] - draws[:, 3])
    left = win.mean() * np.cov(draws.T, aweights=win)
    left += (1 - win.mean()) * np.cov(draws.T, aweights=1 - win)
    expected = expected_covariance(given.rating, given.covariance, (1, 3), link)

    np.testing.assert_allclose(expected, left, atol=0.01)
    np.testing.assert_allclose(
        expected, expected_covariance(given.rating, given.covariance, (3, 1), link), atol=1e-12
    )
    assert np.abs(given.covariance - left).max() > 0.05


def test_thompson_duel_uses_two_draws_that_disagree():
    draws = np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])
    assert (0, 2) == thompson_duel(draws)
    # All agree: the second best of the last draw.
    assert (0, 2) == thompson_duel(draws[:2])
    first, second = thompson_duel(np.stack([draws, draws[::-1]]))
    np.testing.assert_array_equal(first, [0, 1])
    np.testing.assert_array_equal(second, [2, 2])


@pytest.mark.parametrize("rule", list(RULES))
def test_a_batch_has_different_pairs_and_repeats_with_the_seed(rule):
    given = belief(6, seed=3)
    skipped = [(0, 1), (5, 2)]
    first, second = (next_contests(given, rule, 13, rng=1, avoided=skipped) for _ in range(2))

    assert first == second
    pairs = {(one.first, one.second) for one in first}
    assert len(pairs) == 13
    assert pairs.isdisjoint({(0, 1), (2, 5)})
    assert all(0 <= one.first < one.second < 6 and 0 <= one.bits <= 1 for one in first)
    with pytest.raises(
        DesignError, match="14 pairs asked for, but 13 can still be compared: ask for 1 to 13"
    ):
        next_contests(given, rule, 14, avoided=skipped)


def test_the_pair_with_the_highest_score_is_chosen():
    given = belief(8)
    rating, covariance = given.rating, given.covariance
    i, j = np.triu_indices(8, 1)
    variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
    value = order_information(rating[i] - rating[j], variance, "logit")
    found = next_contests(given, link="logit", rng=0)[0]

    best = value.argmax()
    assert (i[best], j[best]) == (found.first, found.second)
    assert found.bits == pytest.approx(value[best])


def test_a_batch_spreads_over_players():
    """Four players that differ by a common part only: one answer tells all about each such pair."""
    group = np.kron(np.eye(2), np.ones((2, 2)))
    covariance = np.kron(np.eye(2), np.ones((2, 2))) + 1e-6 * np.eye(4)
    given = SimpleNamespace(rating=np.zeros(4), covariance=covariance)
    state = SimpleNamespace(rating=np.zeros(6), covariance=np.eye(6))
    state.covariance[:4, :4] = covariance + 0.5 * group
    chosen = next_contests(state, "order", 2, rng=0)

    assert len(next_contests(given, "order", 1, rng=0)) == 1
    # Between the groups first; then not the same again under other names.
    assert {chosen[0].first < 2, chosen[0].second >= 2} == {True}
    assert chosen[1].bits > 0.5 * chosen[0].bits


def test_the_stored_study_of_rules_agrees_with_the_documentation():
    """Numbers that README and help texts rest on; `make validate` makes them anew."""
    study = json.loads(STUDY.read_text())
    found = {(r["link"], r["sd"], r["random_share"], r["rule"]): r for r in study["rules"]}
    clear = {rule: found["probit", 3.0, 0.0, rule] for rule in (*RULES, "best", "fullrank")}

    assert all(row["runs"] >= 200 for row in study["rules"])
    assert clear["order"]["tau .9 at"] <= 120
    assert clear["thompson"]["best .9 at"] <= 70
    assert clear["best"]["best .9 at"] <= 70
    # What is beaten: `best` by `thompson`, where noise is logistic, and in the time it takes.
    logit = {rule: found["logit", 3.0, 0.0, rule] for rule in ("best", "thompson")}
    assert logit["thompson"]["best .9 at"] < logit["best"]["best .9 at"]
    assert 2 * clear["thompson"]["cpu_ms_each"] < clear["best"]["cpu_ms_each"]
    assert (clear["fullrank"]["tau .9 at"] or 281) >= 1.8 * clear["order"]["tau .9 at"]
    assert (clear["random"]["tau .9 at"] or 281) >= 1.8 * clear["order"]["tau .9 at"]
    for kind in study["calibration"]:
        assert kind["held"]["rank sets"] >= 0.92, kind
    assert study["calibration"][-1]["held"]["rank sets by single tests"] < 0.5


def test_ties_are_broken_at_random():
    given = SimpleNamespace(rating=np.zeros(5), covariance=np.eye(5))
    seen = {next_contests(given, rule, rng=k)[0][:2] for rule in ("order",) for k in range(60)}
    assert len(seen) == 10


def test_unknown_names_are_refused_with_the_closest():
    given = belief(3)
    with pytest.raises(SelectionError, match="no rule is called 'ordre'; did you mean order"):
        next_contests(given, "ordre")
    with pytest.raises(SelectionError, match="no link is called 'cauchit'"):
        next_contests(given, link="cauchit")
    with pytest.raises(DesignError, match="1 player: give two or more"):
        next_contests(SimpleNamespace(rating=np.zeros(1), covariance=np.eye(1)))


@pytest.mark.parametrize("rule", list(RULES))
def test_a_hundred_players_take_milliseconds(rule, within):
    needed = {"order": 1.3, "thompson": 2.7}
    given = belief(100)
    next_contests(given, rule, rng=0, link="logit")

    def chosen():
        for seed in range(10):
            next_contests(given, rule, rng=seed)

    within(10 * 2e-3 * needed.get(rule, 0.48), chosen)
