"""Ratings without a finite maximum are told from others, and none of them is certain."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, permutations

import numpy as np
import pytest
from scipy import optimize, special

from evalstats_plugin import rank
from evalstats_plugin.ranking import Contests, fit_bradley_terry


def _drawn(seed: int) -> Contests:
    """Few contests of three to five players, connected, of whom some are much better."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    strength = rng.normal(0, 3, n)
    pairs = [(k, int(rng.integers(k))) for k in range(1, n)]
    pairs += [tuple(rng.choice(n, 2, replace=False)) for _ in range(int(rng.integers(0, 12)))]
    rows = []
    for i, j in pairs * 2:
        weights = np.exp(np.array([strength[j] - strength[i], 0.5, strength[i] - strength[j]]))
        rows.append((i, j, rng.choice([0.0, 0.5, 1.0], p=weights / weights.sum())))
    first, second, outcome = zip(*rows, strict=True)
    return Contests.of(first, second, outcome, players=n)


def _grows_without_end(contests: Contests) -> bool:
    """Whether some direction of ratings and log ν lowers the chance of no outcome seen.

    P(win), P(tie), P(loss) are in proportion to exp(x / 2), ν, exp(-x / 2). By linear programming:
    the most by which all that happened can gain on what might have.
    """
    n = len(contests.players)
    gains = []
    for i, j, y in zip(contests.first, contests.second, contests.outcome, strict=True):
        exponents = np.zeros((3, n + 1))
        exponents[0, [i, j]], exponents[1, n], exponents[2, [i, j]] = (0.5, -0.5), 1, (-0.5, 0.5)
        happened = {1.0: 0, 0.5: 1, 0.0: 2}[float(y)]
        gains += [exponents[happened] - exponents[k] for k in range(3) if k != happened]
    found = optimize.linprog(
        -np.sum(gains, axis=0), A_ub=-np.array(gains), b_ub=np.zeros(len(gains)),
        bounds=[(-1, 1)] * (n + 1),
    )  # fmt: skip
    return -found.fun > 1e-9


@pytest.mark.parametrize("records", [50, pytest.param(150, marks=pytest.mark.validation)])
def test_ratings_get_a_prior_exactly_where_they_have_no_maximum(records: int) -> None:
    """As linear programming says of drawn records with ties and wins."""
    without = 0
    for seed in range(records):
        contests = _drawn(seed)
        if contests.tied.all() or not contests.tied.any():
            continue
        fit = fit_bradley_terry(contests)
        assert (fit.estimator == "laplace") == _grows_without_end(contests), seed
        without += fit.estimator == "laplace"
        assert np.linalg.eigvalsh(fit.covariance).min() > -1e-9, seed
        assert np.abs(fit.rating).max() < 20, seed
    assert records / 5 < without < records * 4 / 5


@pytest.mark.parametrize("n_wins", [5, 12, 40])
def test_who_never_lost_but_was_tied_is_better_by_no_certain_amount(n_wins: int) -> None:
    contests = Contests.of([0] * n_wins * 2, [1] * n_wins * 2, [1, 0.5] * n_wins, players="ab")
    ranking = rank(contests, model="bradley-terry", rng=0)

    assert ranking[0].player == "a"
    assert (ranking[0].low < 1, ranking[0].high > 4) == (True, True)
    assert any("no finite maximum likelihood" in note for note in ranking.notes)


@pytest.mark.parametrize(
    ("rows", "estimator"),
    [
        ([(0, 1, 1), (1, 2, 1), (2, 0, 0.5), (3, 1, 0.5)], "ml"),
        ([(0, 1, 1), (1, 2, 0.5), (2, 0, 0.5), (3, 1, 0.5)], "laplace"),
        # Of two wins and two ties in a row, and a win past them.
        ([(0, 1, 1), (1, 2, 1), (0, 1, 0.5), (1, 2, 0.5), (0, 2, 1), (3, 1, 0.5)], "laplace"),
    ],
)
def test_cycles_of_more_wins_than_ties_have_a_maximum_whoever_is_listed_first(
    rows: list[tuple[int, int, float]], estimator: str
) -> None:
    first, second, outcome = np.array(rows).T
    for names in islice(permutations(range(4)), 0, None, 2):
        i, j = (np.array(names)[side.astype(int)] for side in (first, second))
        for votes in ((i, j, outcome), (j, i, 1 - outcome)):
            assert fit_bradley_terry(Contests.of(*votes, weight=0.5)).estimator == estimator, names


def test_who_was_only_tied_with_a_better_one_is_as_uncertain_beside_an_undefeated_player() -> None:
    """Then the error of their difference was .6 instead of 1.4: of scores that do not vary."""
    votes = [1] * 5 + [1, 0.5] * 12
    contests = Contests.of([0] * 5 + [1] * 24, [1] * 5 + [2] * 24, votes, players=3)
    fits = [fit_bradley_terry(contests, covariance=kind) for kind in ("auto", "model")]

    np.testing.assert_array_equal(fits[0].covariance, fits[1].covariance)
    assert fits[0].diagnostics["covariance"] == "model"
    assert len(fits[0].notes) == 1


def test_a_prior_of_ones_own_holds_what_grows_without_end() -> None:
    """Wins one way and ties: the prior that is given is used, and no note speaks of another."""
    contests = Contests.of([0] * 8, [1] * 8, [1, 0.5] * 4, players="ab")
    fit = fit_bradley_terry(contests, prior_sd=2.0)

    def loss(x: np.ndarray) -> float:
        total = np.logaddexp(np.logaddexp(x[0], -x[0]), x[1])
        return float(8 * total - 4 * x[0] - 4 * x[1] + 2 * x[0] ** 2 / 2 / 4)

    # Ratings are x and -x: the exponents of a win and a loss.
    found = optimize.minimize(loss, np.zeros(2), tol=1e-12).x
    assert fit.rating == pytest.approx([found[0], -found[0]], abs=1e-5)
    assert fit.parameters["tie"] == pytest.approx(found[1], abs=1e-5)
    assert fit.notes == ()
    assert fit.diagnostics["covariance"] == "model"


def test_of_ties_alone_nobody_is_first() -> None:
    """All have the same wide interval, and the same chance."""
    pairs = [(i, j) for i in range(4) for j in range(i)] * 3
    ranking = rank(Contests.of(*zip(*pairs, strict=True), [0.5] * len(pairs), players=4),
                   model="bradley-terry", rng=0)  # fmt: skip

    assert all(abs(row.prob_best - 0.25) < 0.03 for row in ranking)
    assert all(row.low < -2 and row.high > 2 for row in ranking)


ALWAYS_FIRST = Contests.of([0, 1] * 10, [1, 0] * 10, 1, players="ab", ordered=True)
"""Twenty answers of a judge who favours whoever is shown first: they say nothing of a and b."""


def test_a_judge_who_always_favours_the_first_says_nothing_of_the_players() -> None:
    """Their ratings were 0 ± 0.12, and the advantage of the first 32 ± 0.24 logits."""
    ranking = rank(ALWAYS_FIRST, model="bradley-terry", rng=0)
    position = ranking.fit.parameters["position"]
    expected = optimize.brentq(lambda x: 20 * special.expit(-x) - x / 25, 0, 10)

    assert position == pytest.approx(expected, abs=1e-6)
    assert ranking.fit.parameter_std_errors["position"] > 2
    assert ranking[0].high > 2
    assert any("wins and losses are separated by position" in note for note in ranking.notes)


@pytest.mark.parametrize("second", [0.5, 1])
@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_an_advantage_of_the_first_that_grows_with_the_share_of_ties_has_a_prior(
    ties, second
) -> None:
    """The first wins or is tied: limits were NaN. It always wins: no fit was possible."""
    votes = {"outcome": np.tile([1, 1, second, second], 5), "weight": np.tile([700, 500.0], 10)}
    fit = fit_bradley_terry(replace(ALWAYS_FIRST, **votes), ties=ties, position=True)

    assert np.isfinite([*fit.parameters.values(), *fit.parameter_std_errors.values()]).all()
    assert 1 < fit.parameters["position"] < 20
    separated = "wins and losses are separated by position and the ratings"
    assert any(separated in note for note in fit.notes)


def test_an_advantage_of_the_first_that_one_answer_contradicts_is_estimated_still() -> None:
    """It was left out without a word, as if places and players could not be told apart."""
    outcome = ALWAYS_FIRST.outcome.copy()
    outcome[-1] = 0
    contests = replace(ALWAYS_FIRST, outcome=outcome)
    fit = rank(contests, model="bradley-terry", rng=0).fit
    sign, prior = 1 - 2 * contests.first, 25

    def loss(x: np.ndarray) -> float:
        ahead = (x[0] * sign + x[1]) * (2 * outcome - 1)
        return float(np.logaddexp(0, -ahead).sum() + x[1] ** 2 / 2 / prior)

    found = optimize.minimize(loss, np.zeros(2), tol=1e-12).x

    assert fit.rating[0] - fit.rating[1] == pytest.approx(found[0], abs=1e-4)
    assert fit.parameters["position"] == pytest.approx(found[1], abs=1e-4)


def test_a_style_that_decides_every_vote_has_a_finite_effect() -> None:
    rng = np.random.default_rng(4)
    first = rng.integers(0, 3, 60)
    second, longer = (first + rng.integers(1, 3, 60)) % 3, rng.normal(0, 100, 60)
    contests = Contests.of(first, second, longer > 0, players=3)
    contests = replace(contests, features=longer[:, None], feature_names=("length",))
    fit = fit_bradley_terry(contests, features=("length",))

    assert "wins and losses are separated by length" in fit.notes[0]
    assert 0 < 100 * fit.parameters["length"] < 30
    assert fit.parameter_std_errors["length"] > fit.parameters["length"] / 5
    assert fit.std_error.min() > 0.5


def test_effects_get_a_prior_exactly_where_they_have_no_maximum() -> None:
    """As linear programming says of few answers in both orders, whose players are all connected."""
    pairs = np.array([(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)] * 2)
    rows = np.eye(3)[pairs[:, 0]] - np.eye(3)[pairs[:, 1]]
    without, number = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        won = rng.random(12) < special.expit(1.5 + rng.normal(0, 0.5, 3)[pairs] @ [1, -1])
        contests = Contests.of(*pairs.T, 1.0 * won, players=3, ordered=True)
        if contests.strong_components().any():
            continue
        gains = np.where(won, 1, -1)[:, None] * np.column_stack([rows, np.ones(12)])
        found = optimize.linprog(
            -gains.sum(axis=0), A_ub=-gains, b_ub=np.zeros(12), bounds=[(-1, 1)] * 4
        )
        fit = fit_bradley_terry(contests, position=True)
        assert (fit.estimator == "laplace") == (-found.fun > 1e-9), seed
        without, number = without + (fit.estimator == "laplace"), number + 1
    assert number / 5 < without < number * 4 / 5
