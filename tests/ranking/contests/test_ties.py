"""How contests end: derivatives, and probabilities that add up."""

import numpy as np
import pytest

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.contests.outcomes import (
    TIE_MODELS,
    Weights,
    derivatives,
    probabilities,
    tie_model,
    weights_of,
)

X = np.array([-30.0, -2.5, -0.3, 0.0, 0.7, 4.0, 40.0])
TIE = {"half": 0.0, "drop": 0.0, "davidson": -0.4, "rao-kupper": 0.8}
SEEN = Weights(np.full(7, 2.0), np.full(7, 1.5), np.full(7, 0.5))


@pytest.mark.parametrize("ties", TIE_MODELS)
def test_probabilities_are_those_of_the_log_likelihood(ties):
    p = probabilities(ties, X, np.full(7, TIE[ties]))

    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-14)
    for k in range(3):
        if ties in {"half", "drop"} and k == 1:
            continue
        one = Weights(*(np.full(7, float(k == j)) for j in range(3)))
        found = derivatives(ties, X, np.array(TIE[ties]), one).value
        np.testing.assert_allclose(np.exp(found), p[:, k], rtol=1e-12)


@pytest.mark.parametrize("ties", TIE_MODELS)
def test_derivatives_are_those_of_the_value(ties):
    tie, step, x = TIE[ties], 1e-4, X[1:-1]
    seen = Weights(*(w[1:-1] for w in SEEN))

    def value(by_x, by_tie):
        return derivatives(ties, x + by_x, np.array(tie + by_tie), seen).value

    found = derivatives(ties, x, np.array(tie), seen)
    for direction, name in (((step, 0), "by_x"), ((0, step), "by_tie")):
        back = tuple(-d for d in direction)
        slope = (value(*direction) - value(*back)) / (2 * step)
        np.testing.assert_allclose(getattr(found, name), slope, atol=1e-6)
    second = (value(step, 0) - 2 * value(0, 0) + value(-step, 0)) / step**2
    np.testing.assert_allclose(found.information_x, -second, atol=1e-5)
    second = (value(0, step) - 2 * value(0, 0) + value(0, -step)) / step**2
    np.testing.assert_allclose(found.information_tie, -second, atol=1e-5)
    corners = [s * t * value(s * step, t * step) for s in (1, -1) for t in (1, -1)]
    np.testing.assert_allclose(found.information_x_tie, -sum(corners) / (4 * step**2), atol=1e-5)


def test_a_tie_is_half_a_win_or_an_outcome_of_its_own():
    outcome, weight = np.array([1.0, 0.5, 0.0]), np.array([1.0, 2.0, 3.0])

    np.testing.assert_array_equal(weights_of("half", outcome, weight)[0], [1, 1, 0])
    np.testing.assert_array_equal(weights_of("davidson", outcome, weight)[1], [0, 2, 0])


def test_an_unknown_model_is_refused_with_the_closest():
    with pytest.raises(SelectionError, match="did you mean davidson"):
        tie_model("davidsen", np.ones(1))


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [([1, 0, 0.5], "davidson"), ([1, 0, 0], "half"), ([1, 0.25, 0.5], "half"), ([0.5], "davidson")],
)
def test_ties_are_modelled_by_default_where_there_are_any(outcomes, expected):
    assert expected == tie_model(None, np.array(outcomes, dtype=float))
