"""M2 and C2 against their definition over all patterns of answers, and beside mirt."""

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt import (
    MmlOptions,
    OrderedOptions,
    fit_irt,
    m2,
    q3,
    s_x2,
    simulate_responses,
)

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


def test_a_chance_that_all_items_share_is_one_parameter():
    """It took a degree of freedom for each item."""
    matrix = lsat("LSAT7")
    options = replace(PLAIN, common_asymptotes=True)
    common = fit_irt(matrix, "3pl", "mml", options=options)
    given = fit_irt(matrix, "2pl", "mml", options=PLAIN, guessing=float(common.guessing[0]))

    assert m2(common, matrix).df == m2(given, matrix).df - 1 == 4
    assert s_x2(common, matrix).df.tolist() == s_x2(given, matrix).df.tolist()


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


def ordered(item_model, n, rng):
    """Scores of four items of 2, 3, 3 and 4 levels, and one on which all models have one score."""
    theta, counts = rng.normal(size=n), (2, 3, 3, 4)
    scores = np.ones((n, 5))
    for j, k in enumerate(counts):
        logit = np.exp(0.3 * rng.normal()) * (theta[:, None] - np.linspace(-1, 1, k - 1))
        if item_model == "graded":
            scores[:, j] = (rng.random((n, 1)) < special.expit(logit)).sum(axis=1)
            continue
        odds = np.exp(np.concatenate([np.zeros((n, 1)), np.cumsum(logit, axis=1)], axis=1))
        above = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
        scores[:, j] = (rng.random((n, 1)) > above[:, :-1]).sum(axis=1)
    return ResponseMatrix.from_array(scores)


def shares_of_levels(item_model, counts, x, nodes):
    """P of the levels of each item at abilities, from a, d_1, …, of each item in turn."""
    chances, start = [], 0
    for k in counts:
        a, d = x[start], x[start + 1 : start + k]
        start += k
        if item_model == "graded":
            above = special.expit(a * nodes[:, None] + d)
            ends = np.ones((len(nodes), 1))
            chances.append(-np.diff(np.concatenate([ends, above, 0 * ends], axis=1), axis=1))
            continue
        odds = np.exp(a * nodes[:, None] * np.arange(k) + np.concatenate([[0], d]))
        chances.append(odds / odds.sum(axis=1, keepdims=True))
    return chances


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("item_model", ["graded", "gpcm"])
def test_c2_is_its_definition_over_all_patterns(item_model, seed):
    """Items of several numbers of levels, one without any; margins and derivatives by patterns."""
    matrix = ordered(item_model, 600, np.random.default_rng(seed))
    fit = fit_irt(matrix, item_model, options=OrderedOptions(prior="none", std_errors=False))
    counts = np.isfinite(fit.level).sum(axis=1)[:4]
    mean, sd = fit.ability_distribution
    start = []
    for j, k in enumerate(counts):
        a = fit.discrimination[j]
        step = a * (mean - fit.steps[j, : k - 1])
        start += [a * sd, *(step if item_model == "graded" else np.cumsum(step))]
    start = np.array(start)
    patterns = np.array(list(product(*map(range, counts))))
    of_levels = [patterns[:, j] == level for j, k in enumerate(counts) for level in range(1, k)]
    of_pairs = [patterns[:, j] * patterns[:, k] for j, k in combinations(range(4), 2)]
    margin = np.array([*of_levels, *of_pairs], dtype=float)
    nodes, weight = np.polynomial.hermite_e.hermegauss(80)

    def shares(x):
        parts = shares_of_levels(item_model, counts, x, nodes)
        chance = np.prod([part[:, patterns[:, j]] for j, part in enumerate(parts)], axis=0)
        return weight / weight.sum() @ chance

    by = np.stack(
        [
            margin @ (shares(start + s) - shares(start - s)) / 2e-5
            for s in 1e-5 * np.eye(len(start))
        ],
        axis=1,
    )
    chance = shares(start)
    spread = margin @ (np.diag(chance) - np.outer(chance, chance)) @ margin.T
    rows = matrix.scores[:, :4, 0]
    observed = np.array([(rows == pattern).all(axis=1).mean() for pattern in patterns])
    away, inverse = margin @ (observed - chance), np.linalg.inv(spread)
    middle = np.linalg.pinv(by.T @ inverse @ by)
    expected = 600 * away @ (inverse - inverse @ by @ middle @ by.T @ inverse) @ away

    found = m2(fit, matrix)
    assert observed.sum() == pytest.approx(1)
    assert found.df == len(margin) - np.linalg.matrix_rank(by, tol=1e-6)
    assert found.statistic == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("item_model", ["graded", "gpcm"])
@pytest.mark.parametrize("data", ["LSAT6", "LSAT7"])
def test_c2_of_two_levels_is_m2(data, item_model):
    matrix = lsat(data)
    plain = OrderedOptions(prior="none", std_errors=False)
    found = m2(fit_irt(matrix, item_model, options=plain), matrix)
    expected = m2(fit_irt(matrix, "2pl", "mml", options=PLAIN), matrix)

    assert found.df == expected.df == 5
    assert found.statistic == pytest.approx(expected.statistic, abs=2e-3)


def test_c2_of_science_agrees_with_mirt():
    """Of mirt's fit at its default tolerance; ours are made by tests/generate/ordered.py."""
    known = json.loads((GOLDEN / "ordered.json").read_text())
    ours, theirs = known["ours"]["graded"]["c2"], known["mirt"]["graded"]["c2"]

    assert ours["df"] == theirs["df"] == 2
    assert ours["statistic"] == pytest.approx(theirs["statistic"], rel=2e-4)
    assert ours["p_value"] == pytest.approx(theirs["p_value"], rel=2e-3)


def levels_of_two_abilities(rng, *, apart):
    """Scores of eight items of three levels, the halves of one ability or of two."""
    both = rng.normal(size=(600, 2))
    theta = np.repeat(both if apart else both[:, [0, 0]], 4, axis=1)[:, :, None]
    above = special.expit(1.5 * theta - np.array([-1.0, 1.0]))
    return ResponseMatrix.from_array((rng.random((600, 8, 1)) < above).sum(axis=2) * 1.0)


def test_c2_is_a_chi_square_where_the_model_is_true_and_large_where_not():
    plain, found = OrderedOptions(std_errors=False), {}
    for apart, seeds in ((False, range(12)), (True, range(1))):
        drawn = [levels_of_two_abilities(np.random.default_rng(x), apart=apart) for x in seeds]
        found[apart] = [m2(fit_irt(x, "graded", options=plain), x) for x in drawn]
    mean = np.mean([pair_fit.statistic for pair_fit in found[False]])

    assert found[False][0].df == 8 * 2 + 28 - 8 * 3
    assert abs(mean - 20) < 3 * np.sqrt(2 * 20 / 12)
    assert found[True][0].p_value < 1e-6
    assert found[True][0].rmsea > 0.05


def test_scores_that_were_not_fitted_are_refused():
    rng = np.random.default_rng(0)
    grades = 1.0 + rng.integers(0, 3, (40, 4))
    fit = fit_irt(ResponseMatrix.from_array(grades), "graded")
    for ask in (m2, q3):
        with pytest.raises(DesignError, match="other levels than the fit"):
            ask(fit, ResponseMatrix.from_array(grades * 2))
    twice = ResponseMatrix.from_array(np.stack([grades, grades], axis=2))
    with pytest.raises(DesignError, match="C2 needs one score of each model"):
        m2(fit_irt(twice, "graded"), twice)
