"""M2 against its definition over all patterns of answers."""

import json
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt import MmlOptions, fit_irt, m2, simulate_responses

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
DATA = json.loads((GOLDEN / "irt.json").read_text(encoding="utf-8"))["data"]
PLAIN = MmlOptions(prior="none", std_errors=False)


def lsat(name):
    rows = [[int(c) for c in pattern] for pattern, n in DATA[name].items() for _ in range(n)]
    return ResponseMatrix.from_array(np.array(rows, dtype=float))


@pytest.mark.parametrize(
    ("data", "item_model", "statistic", "df", "rmsea"),
    [
        # R: mirt 1.47, M2() of fits to TOL 1e-8.
        ("LSAT6", "1pl", 5.291349, 9, 0.0),
        ("LSAT6", "2pl", 4.738384, 5, 0.0),
        ("LSAT7", "1pl", 23.174486, 9, 0.039705),
        ("LSAT7", "2pl", 11.938412, 5, 0.037270),
    ],
)
def test_it_agrees_with_mirt(data, item_model, statistic, df, rmsea):
    matrix = lsat(data)
    found = m2(fit_irt(matrix, item_model, "mml", options=PLAIN), matrix)

    assert found.statistic == pytest.approx(statistic, abs=2e-3)
    assert found.df == df
    assert found.p_value == pytest.approx(stats.chi2.sf(statistic, df), abs=1e-3)
    assert found.rmsea == pytest.approx(rmsea, abs=1e-4)


@pytest.mark.parametrize("data", ["LSAT6", "LSAT7"])
@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_it_is_its_definition_over_all_patterns(item_model, data):
    """Margins as sums over the patterns of answers; derivatives by small changes."""
    matrix = lsat(data)
    fit = fit_irt(matrix, item_model, "mml", options=PLAIN)
    patterns = np.array(list(product((0, 1), repeat=5)))
    pairs = list(combinations(range(5), 2))
    margin = np.concatenate([patterns.T, [patterns[:, j] * patterns[:, k] for j, k in pairs]])
    nodes, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / weight.sum()
    mean, sd = fit.ability_distribution
    d = fit.intercept + fit.discrimination * mean
    a = fit.discrimination * sd
    start = np.concatenate([d, a[:1] if item_model == "rasch" else a])

    def shares(x):
        p = special.expit(np.outer(nodes, np.broadcast_to(x[5:], 5)) + x[:5])
        chance = np.where(patterns[:, None] == 1, p, 1 - p).prod(axis=2)
        return chance @ weight

    step = 1e-5 * np.eye(len(start))
    by = np.stack([margin @ (shares(start + s) - shares(start - s)) / 2e-5 for s in step], axis=1)
    chance = shares(start)
    spread = margin @ (np.diag(chance) - np.outer(chance, chance)) @ margin.T
    observed = np.zeros(32)
    for row in matrix.scores[:, :, 0].astype(int):
        observed[int("".join(map(str, row)), 2)] += 1 / 1000
    away = margin @ (observed - chance)
    inverse = np.linalg.inv(spread)
    middle = np.linalg.inv(by.T @ inverse @ by)
    expected = 1000 * away @ (inverse - inverse @ by @ middle @ by.T @ inverse) @ away

    found = m2(fit, matrix)
    assert found.statistic == pytest.approx(expected, rel=2e-3)
    assert found.df == 15 - len(start)
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, found.df))
    beyond = max(found.statistic - found.df, 0) / (found.df * 999)
    assert found.rmsea == pytest.approx(np.sqrt(beyond), rel=2e-3)


def test_a_wrong_model_is_told_from_a_true_one():
    """Slopes that differ fit no Rasch model."""
    rng = np.random.default_rng(0)
    logit = np.exp(rng.normal(0, 0.6, 12)) * (rng.normal(size=800)[:, None] - rng.normal(size=12))
    matrix = ResponseMatrix.from_array((rng.random((800, 12)) < special.expit(logit)) * 1.0)
    wrong, true = (m2(fit_irt(matrix, x, "mml", options=PLAIN), matrix) for x in ("rasch", "2pl"))

    assert wrong.p_value < 1e-6
    assert true.p_value > 0.01
    assert wrong.rmsea > 0.03 > true.rmsea


def test_what_it_cannot_test_is_refused():
    matrix, _ = simulate_responses(rng=0, n_models=12, n_items=10)
    with pytest.raises(DesignError, match="M2 is of estimator mml"):
        m2(fit_irt(matrix, "rasch", "mml-items"), matrix)
    many, _ = simulate_responses(rng=0, n_models=60, n_items=41)
    with pytest.raises(DesignError, match="3 to 40 items"):
        m2(fit_irt(many, "rasch", "mml"), many)
