"""Agreement of judges, cyclic triads, and log loss of predicted outcomes."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking import goodness
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import (
    expected_scores,
    judge_agreement,
    krippendorff_alpha,
    predictive_fit,
    transitivity,
)
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.ranking.ratings.fit import RankingFit

# Krippendorff (2011), Computing Krippendorff's alpha-reliability, section E: 4 observers, 12 units.
NAN = np.nan
PUBLISHED = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
)


def test_alpha_agrees_with_published_values():
    units = np.tile(np.arange(12), (4, 1))
    there = ~np.isnan(PUBLISHED)
    found = krippendorff_alpha(PUBLISHED[there], units[there], rng=0)

    assert round(found.alpha, 3) == 0.849
    assert (11, 40) == (found.n_units, found.n_values)
    assert found.low < found.alpha < found.high


def judged(share, rng, judges=3):
    """All pairs of six players, each on four items by all judges, a share of answers by a coin."""
    i, j = np.array(list(combinations(range(6), 2))).T
    i, j, item = np.tile(i, 4), np.tile(j, 4), np.repeat(np.arange(4), 15)
    truth = rng.random(60) < 0.5
    rows = []
    for judge in range(judges):
        won = np.where(rng.random(60) < share, rng.random(60) < 0.5, truth)
        turned = rng.random(60) < 0.5
        made = Contests.of(
            np.where(turned, j, i), np.where(turned, i, j), np.where(turned, ~won, won)
        )
        rows.append((made, np.full(60, judge)))
    join = lambda name: np.concatenate([getattr(m, name) for m, _ in rows])  # noqa: E731
    made = Contests.of(join("first"), join("second"), join("outcome"), players=6)
    return replace(made, judge=np.concatenate([k for _, k in rows]), cluster=np.tile(item, judges))


def test_judges_agree_whichever_way_round_a_pair_is_shown():
    rng = np.random.default_rng(0)
    same = judge_agreement(judged(0.0, rng), rng=0)
    coins = [judge_agreement(judged(1.0, rng), rng=0) for _ in range(40)]
    half = judge_agreement(judged(0.5, rng, judges=20), rng=0)

    assert (1.0, 60, 180) == (same.alpha, same.n_units, same.n_values)
    # The standard error of one is .075: a unit of three agrees with probability ¼.
    assert abs(np.mean([one.alpha for one in coins])) <= 3 * 0.075 / np.sqrt(40)
    assert np.mean([one.low < 0 < one.high for one in coins]) > 0.85
    # Two judges both look at the pair with probability ¼.
    assert half.low < 0.25 < half.high
    assert half.high - half.low < 0.15


def test_answers_of_weight_0_neither_agree_nor_disagree():
    contests = Contests.of([0, 0, 1, 1], [1, 1, 2, 2], [1, 0, 1, 1], weight=[1, 0, 1, 1])
    judges = {"judge": np.array([0, 1, 0, 1]), "judges": ("ann", "ben")}
    found = judge_agreement(replace(contests, **judges), rng=0)

    assert (1.0, 1, 2) == (found.alpha, found.n_units, found.n_values)


def test_no_agreement_without_judges_or_shared_pairs():
    contests = Contests.of([0, 1], [1, 2], [1, 1])
    assert judge_agreement(contests) is None
    assert judge_agreement(replace(contests, judge=np.array([0, 1]))) is None


def round_robin(beats, times=1):
    i, j = np.nonzero(beats)
    return Contests.of(np.repeat(i, times), np.repeat(j, times), 1.0, players=len(beats))


def flat(n, model="bradley-terry"):
    return RankingFit(
        model=model,
        estimator="ml",
        players=tuple(f"player_{k}" for k in range(n)),
        rating=np.zeros(n),
        covariance=np.eye(n) / 10,
        diagnostics={"ties": "half"},
    )


def test_cyclic_triads_agree_with_kendall():
    """n(n-1)(2n-1)/12 - ½ Σ wins² of random tournaments; a quarter goes round by chance."""
    rng = np.random.default_rng(0)
    n = 9
    beats = np.triu(rng.random((n, n)) < 0.5, 1)
    beats = beats | np.triu(~beats, 1).T
    np.fill_diagonal(beats, val=False)
    wins = beats.sum(axis=1)
    circles = n * (n - 1) * (2 * n - 1) / 12 - (wins**2).sum() / 2
    found = transitivity(flat(n), round_robin(beats), rng=rng)

    assert (84, circles / 84) == pytest.approx((found.n_triads, found.cyclic))
    assert found.expected == pytest.approx(0.25, abs=0.02)
    assert found.p_value > 0.01


def test_rock_paper_scissors_is_not_transitive():
    """Three that beat each other in a circle, 50 times: no chance does that; a true order does."""
    beats = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=bool)
    rng = np.random.default_rng(0)
    sure = replace(flat(3), rating=np.array([2.0, 0.0, -2.0]))
    ordered = transitivity(sure, round_robin(np.triu(np.ones((3, 3)), 1), 50), rng=rng)
    round_about = transitivity(sure, round_robin(beats, 50), rng=rng)

    assert (1, 1.0, 0.0) == (round_about.n_triads, round_about.cyclic, round_about.expected)
    assert round_about.p_value <= 0.005
    assert (0.0, 1.0) == (ordered.cyclic, ordered.p_value)
    assert transitivity(flat(3), Contests.of([0], [1], [1], players=3), rng=rng).n_triads == 0


def test_log_loss_is_that_of_the_definition():
    """Two of three won at even odds cost log 2 each; a rating of log 2 is what foretells them."""
    contests = Contests.of([0, 0, 1], [1, 1, 0], [1, 1, 1])
    even = predictive_fit(flat(2), contests)
    fit = fit_bradley_terry(contests)

    assert (np.log(2), np.log(2)) == pytest.approx(even)
    expected = -(2 * np.log(2 / 3) + np.log(1 / 3)) / 3
    assert predictive_fit(fit, contests).log_loss == pytest.approx(expected)


def test_models_with_ties_predict_ties():
    rng = np.random.default_rng(0)
    i = rng.integers(0, 5, 600)
    j = (i + rng.integers(1, 5, 600)) % 5
    x = np.linspace(2, -2, 5)
    d = x[i] - x[j] + rng.logistic(size=600)
    contests = Contests.of(i, j, np.where(np.abs(d) < 0.5, 0.5, d > 0))
    fit = fit_bradley_terry(contests, ties="rao-kupper")
    found = predictive_fit(fit, contests)
    shares = np.array([contests.tied.mean(), 1 - contests.tied.mean()])

    assert found.constant == pytest.approx(
        special.entr(shares).sum() + shares[1] * np.log(2), abs=1e-9
    )
    assert found.log_loss == pytest.approx(-fit.log_likelihood / 600)
    assert found.log_loss < found.constant - 0.05


@pytest.mark.parametrize("ties", ["half", "davidson", "rao-kupper"])
def test_expected_scores_of_two_add_up_to_one(ties):
    fit = replace(flat(3), parameters={"tie": 0.4}, diagnostics={"ties": ties})
    rng = np.random.default_rng(0)
    draws = rng.normal([1.0, 0.0, -1.0], 0.3, (2000, 3))
    scores = expected_scores(fit, draws)

    np.testing.assert_allclose(scores + scores.T, 1)
    assert scores[0, 1] > 0.5
    if ties == "half":
        expected = special.expit(draws[:, 0] - draws[:, 2]).mean()
        assert scores[0, 2] == pytest.approx(expected)


def test_expected_scores_of_thurstone_with_ties():
    """½ of a tie: the mean of Φ(d - δ) and Φ(d + δ)."""
    fit = replace(flat(2, "thurstone"), parameters={"tie": 0.3}, diagnostics={})
    scores = expected_scores(fit, np.array([[0.5, 0.0]]))

    assert scores[0, 1] == pytest.approx((special.ndtr(0.2) + special.ndtr(0.8)) / 2)


def test_rounding_errors_of_probabilities_do_not_change_what_is_drawn(monkeypatch):
    """Equal players, and ties that cannot be: a hair more or less of either, as by a processor."""
    pairs = list(combinations(range(4), 2)) * 3
    contests = Contests.of(*zip(*pairs, strict=True), [1, 0, 1] * 6, players=4)
    fit = fit_bradley_terry(contests)
    even = np.tile([0.5, 0.0, 0.5], (len(contests), 1))
    found = []
    for off in (0.0, 1e-16, -1e-16):
        other = even + off * np.array([1.0, 1.0, -1.0])
        monkeypatch.setattr(goodness, "outcome_probabilities", lambda *_, p=other: p.clip(0, 1))
        found.append(transitivity(fit, contests, rng=np.random.default_rng(0)))
    assert found[0] == found[1] == found[2]
