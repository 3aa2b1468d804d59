"""Ratings without a finite maximum are told from others, and none of them is certain."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

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


def test_of_ties_alone_nobody_is_first() -> None:
    """All have the same wide interval, and the same chance."""
    pairs = [(i, j) for i in range(4) for j in range(i)] * 3
    ranking = rank(Contests.of(*zip(*pairs, strict=True), [0.5] * len(pairs), players=4),
                   model="bradley-terry", rng=0)  # fmt: skip

    assert all(abs(row.prob_best - 0.25) < 0.03 for row in ranking)
    assert all(row.low < -2 and row.high > 2 for row in ranking)
