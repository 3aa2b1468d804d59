"""Reducers of epochs: do intervals of what Inspect logs hold the truth?

Writes fixtures/validation/reducers.json. Simulations with fixed seeds, whose standard error is
stated with each row; the confidence level is 0.95. Scores of items go through the method that
`intervals` uses for them.
"""

from functools import cache

import numpy as np
import pytest
import study
from scipy import special, stats

from evalstats_plugin.scores import methods
from evalstats_plugin.stats import clustered

pytestmark = pytest.mark.validation
LEVEL, R, SAME = 0.95, 4000, 1e-9
SIZES = [(n, epochs) for n in (10, 30, 100) for epochs in (4, 8)]
# Items' chances to be answered right: even ones, strong models, and all or nothing.
ITEMS = {"Beta(2, 2)": (2.0, 2.0), "Beta(4, 1)": (4.0, 1.0), "Beta(.6, .2)": (0.6, 0.2)}


def _mode(right, epochs):
    """The more frequent answer; of a tie the one that came first, either with chance ½."""
    tie = right * 2 == epochs
    return (
        np.where(tie, np.random.default_rng(7).random(right.shape) < 0.5, right * 2 > epochs) * 1.0
    )


def _mode_of(p, epochs):
    right = np.arange(epochs + 1)[:, None]
    share = np.where(right * 2 == epochs, 0.5, right * 2 > epochs)
    return (stats.binom.pmf(right, epochs, p) * share).sum(axis=0)


REDUCERS = {
    "pass_at_2": (
        lambda right, epochs: clustered.pass_at_k(right, epochs, k=2),
        lambda p, _: 1 - (1 - p) ** 2,
    ),
    "pass_at_4": (
        lambda right, epochs: clustered.pass_at_k(right, epochs, k=4),
        lambda p, _: 1 - (1 - p) ** 4,
    ),
    "pass_k_2": (
        lambda right, epochs: clustered.pass_hat_k(right, epochs, k=2),
        lambda p, _: p**2,
    ),
    "pass_k_4": (
        lambda right, epochs: clustered.pass_hat_k(right, epochs, k=4),
        lambda p, _: p**4,
    ),
    "at_least_2": (
        lambda right, _: (right >= 2) * 1.0,
        lambda p, epochs: stats.binom.sf(1, epochs, p),
    ),
    "max": (lambda right, _: (right >= 1) * 1.0, lambda p, epochs: 1 - (1 - p) ** epochs),
    "mode": (_mode, _mode_of),
}  # fmt: skip


def _true_mean(of_one, epochs, a, b):
    """Expectation over θ ~ Beta(a, b) of a polynomial, exact: Gauss–Jacobi quadrature."""
    x, weights = special.roots_jacobi(20, b - 1, a - 1)
    return float(weights @ of_one((x + 1) / 2, epochs) / weights.sum())


def _limits(scores, once):
    """As `intervals` chooses: those of a proportion where no item has a fraction."""
    table = {method.name: method for method in methods.METHODS}
    of_counts, of_means = (
        table[methods.DEFAULTS[kind][0]].load() for kind in ("binary", "bounded")
    )
    limits = np.empty((2, len(scores)))
    counts = scores[once].sum(axis=1), np.full(once.sum(), float(scores.shape[1]))
    limits[:, once] = of_counts(*counts, confidence_level=LEVEL)
    rest = scores[~once]
    attained = (rest <= SAME).any(axis=1), (rest >= 1 - SAME).any(axis=1)
    limits[:, ~once] = of_means(rest, bounds=(0, 1), attained=attained, confidence_level=LEVEL)
    return limits


@cache
def rows():
    """One row for each population of items, size, reducer and way to choose the method."""
    found = []
    for items, (a, b) in ITEMS.items():
        for n, epochs in SIZES:
            rng = np.random.default_rng(1)
            right = rng.binomial(epochs, rng.beta(a, b, size=(R, n)))
            for reducer, (formula, of_one) in REDUCERS.items():
                scores = formula(right, epochs)
                truth = _true_mean(of_one, epochs, a, b)
                case = {"items": items, "n": n, "epochs": epochs, "reducer": reducer}
                once = np.isin(scores, (0.0, 1.0)).all(axis=1)
                limits = _limits(scores, once)
                case |= {"score": truth, "whole": float(once.mean())}
                kind = "binary" if case["whole"] > 0.5 else "bounded"
                name, _ = methods.DEFAULTS[kind]
                found.append(study.coverage_row(case, name, limits, truth, (0, 1)))
    return found


def test_the_figures_are_written():
    study.write_figures("reducers", {"coverage": rows}, digits=5)


@pytest.mark.parametrize("reducer", REDUCERS)
def test_intervals_of_reduced_epochs_hold_the_truth(reducer):
    """Between .93 and .97 on average, scores within .05 of 0 or 1 left out, which are covered more.

    Reducers that make one trial of each item (max, mode, at_least, pass at all epochs) give a
    proportion, whose Beta interval covers some scores of 10 items less: .89 for a score of ½. Rows
    of `intervals` say so (tests/scores/test_epochs.py).
    """
    own = [row for row in rows() if row["reducer"] == reducer]
    inside = [row for row in own if 0.05 <= row["score"] <= 0.95]
    fractions = [row for row in inside if row["whole"] < 0.5]

    assert len(own) == len(ITEMS) * len(SIZES)
    assert np.mean([row["coverage"] for row in inside]) == pytest.approx(0.95, abs=0.02)
    assert min(row["coverage"] for row in own) >= 0.89
    for row in fractions:
        assert abs(row["coverage"] - 0.95) <= 0.02 + 3 * row["std_error"], row
