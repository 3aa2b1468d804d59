"""All pairs at once: p-values, limits and orders never contradict, nor sharpen one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.pairs import simultaneous
from evalstats_plugin.stats.pairs.differences import Differences
from evalstats_plugin.stats.pairs.simultaneous import AllPairs, Units


def _pairs(
    scores: np.ndarray,
    n_draws: int = 999,
    *,
    span: float = 1.0,
    clusters: np.ndarray | None = None,
    pairs: tuple[np.ndarray, np.ndarray] | None = None,
) -> AllPairs:
    """Every two models of scores, shape (N, M)."""
    a, b = np.triu_indices(len(scores), 1) if pairs is None else pairs
    numbers = np.arange(scores.shape[1]) if clusters is None else clusters

    def rows(which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = scores[b[which]] - scores[a[which]]
        seen = ~np.isnan(x)
        return by_cluster(np.where(seen, x, 0.0), numbers), by_cluster(seen * 1.0, numbers)

    x, sizes = rows(np.arange(len(a)))
    alone = Differences(x, sizes=None if (sizes == 1).all() else sizes, span=span)
    sums = by_cluster(np.nan_to_num(scores), numbers)
    whole = by_cluster(np.ones(scores.shape[1]), numbers)
    units = Units(sums, whole, rows if np.isnan(scores).any() else None)
    return AllPairs(alone, units, a, b, n_draws=n_draws)


def test_critical_value_of_all_pairs_is_tukeys() -> None:
    """Of six models, normal scores, many items: his studentised range."""
    scores = np.random.default_rng(3).normal(size=(6, 2000))
    tukey = stats.studentized_range.ppf(0.95, 6, 1e6) / np.sqrt(2)

    assert _pairs(scores, 9999, span=np.inf).critical(0.05) == pytest.approx(tukey, rel=0.02)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
def test_critical_value_of_independent_pairs_is_sidaks(alpha: float) -> None:
    """Ten pairs that share no model, of many items; in the far tail as well."""
    scores = np.random.default_rng(2).normal(size=(20, 400))
    a = np.arange(0, 20, 2)
    found = _pairs(scores, 9999, span=np.inf, pairs=(a, a + 1)).critical(alpha)

    assert found == pytest.approx(stats.norm.isf((1 - (1 - alpha) ** (1 / 10)) / 2), rel=0.02)


def test_digits_do_not_depend_on_what_was_compared_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws that are kept and continued are those that each table would get by itself."""
    rng = np.random.default_rng(8)
    tables = [rng.random((n, m)) for n, m in ((3, 20), (4, 90), (6, 31), (3, 201))]

    def p_values(table: np.ndarray) -> np.ndarray:
        return _pairs(table, 999).p_values

    alone = []
    for table in tables:
        monkeypatch.setattr(simultaneous, "_DRAWN", {})
        alone.append(p_values(table))
    monkeypatch.setattr(simultaneous, "_DRAWN", {})
    together = [p_values(table) for table in tables]

    for before, after in zip(alone, together, strict=True):
        assert np.array_equal(before, after)


def test_one_pair_needs_no_draws() -> None:
    scores = np.random.default_rng(0).normal(size=(2, 30))
    found = _pairs(scores)

    assert "one pair" == found.procedure
    assert found.p_values.tolist() == found.pairs.p_value.tolist()
    assert found.critical(0.05) == pytest.approx(1.959964)


def test_pairs_without_items_stay_out() -> None:
    """NaN, and the others as without them."""
    scores = np.random.default_rng(0).normal([[0.0], [1.0], [0.5]], 1, (3, 20))
    alone = _pairs(scores[:2], span=np.inf)
    scores[2] = np.nan
    found = _pairs(scores, span=np.inf)

    assert np.isnan(found.difference).tolist() == [False, True, True]
    assert found.p_values[0] == alone.p_values[0]


@st.composite
def boards(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray | None, float]:
    """Scores of every kind, with ties, constants and holes; clusters; and the span."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(st.integers(2, 6)), draw(st.sampled_from([2, 3, 7, 12, 20, 60, 200]))
    ability = rng.uniform(0.05, 0.95, (n, 1))
    kind = draw(st.sampled_from(["right", "epochs", "rubric", "narrow", "real", "constant"]))
    scores = {
        "right": lambda: (rng.random((n, m)) < ability) * 1.0,
        "epochs": lambda: rng.binomial(4, np.broadcast_to(ability, (n, m))) / 4,
        "rubric": lambda: np.clip(np.round(4 * rng.normal(ability, 0.3, (n, m))) / 4, 0, 1),
        "narrow": lambda: 0.5 + 0.1 * ability + rng.uniform(-0.03, 0.03, (n, m)),
        "real": lambda: 10 * ability + rng.normal(size=(n, m)),
        "constant": lambda: np.broadcast_to(np.round(ability, 1), (n, m)).copy(),
    }[kind]()
    if draw(st.booleans()):
        scores[-1] = scores[0]
    if draw(st.booleans()):
        scores[rng.random((n, m)) < 0.2] = np.nan
    clusters = rng.integers(0, max(m // 3, 2), m) if draw(st.booleans()) else None
    return scores, clusters, 99.0 if kind == "real" else 1.0


@settings(max_examples=40, deadline=None)
@given(boards(), st.floats(0.001, 0.5))
def test_verdicts_limits_and_orders_never_contradict(
    board: tuple[np.ndarray, np.ndarray | None, float], alpha: float
) -> None:
    """No p-value below its own; one that leads all others may be first; step-down finds more."""
    scores, clusters, span = board
    found = _pairs(scores, 499, span=span, clusters=clusters)
    low, high = found.limits(alpha)
    there = ~np.isnan(found.difference)
    clear = np.abs(np.abs(found.deviate) - found.critical(alpha)) > 1e-5
    outside = (low > 0) | (high < 0)

    assert ((found.p_values <= alpha) == outside)[there & clear].all()
    assert (found.p_values >= found.pairs.p_value)[there].all()
    assert (found.step_down() <= found.p_values + 1e-12)[there].all()
    assert (found.step_down() >= found.pairs.p_value)[there].all()
    assert ((low <= found.difference) & (found.difference <= high))[there].all()
    first = found.first(alpha)
    if first is not None:
        lead = np.zeros(len(scores))
        np.maximum.at(lead, found.a, np.nan_to_num(found.deviate))
        np.maximum.at(lead, found.b, -np.nan_to_num(found.deviate))
        assert first[lead <= 0].all()


@pytest.mark.parametrize("seed", range(5))
def test_one_model_more_never_makes_a_pair_clearer(seed: int) -> None:
    """But for the error of the draws, which the procedure names."""
    rng = np.random.default_rng(seed)
    scores = np.clip(np.round(rng.normal(0.5, 0.3, (5, 40)), 1), 0, 1)
    few, more = _pairs(scores[:4], 1999), _pairs(scores, 1999)
    place = {(i, j): k for k, (i, j) in enumerate(zip(more.a, more.b, strict=True))}
    same = [place[i, j] for i, j in zip(few.a, few.b, strict=True)]

    assert "p = .05 ± 0.0049 (1,999 draws)" in more.procedure
    error = 3 * np.sqrt(few.p_values * (1 - few.p_values) / 1999) + 0.002
    assert (more.p_values[same] >= few.p_values - 2 * error).all()


def test_a_copy_of_a_model_costs_next_to_nothing() -> None:
    """Common draws know that copies are nearly one comparison."""
    scores = (np.random.default_rng(0).random((3, 200)) < [[0.3], [0.5], [0.7]]) * 1.0
    once, twice = _pairs(scores, 4999), _pairs(scores[[0, 1, 2, 2]], 4999)

    assert once.critical(0.05) <= twice.critical(0.05) + 0.05
    assert twice.critical(0.05) < once.critical(0.05) + 0.15


@pytest.mark.parametrize("kind", ["rubric", "right", "narrow"])
def test_equal_models_are_called_different_as_often_as_promised(kind: str) -> None:
    """Of eight models on 30 items, in 150 runs: .05, and three standard errors."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(150):
        item = rng.normal(size=30)
        z = 0.7 * item + 0.7 * rng.normal(size=(8, 30))
        scores = {
            "rubric": np.clip(np.round(2 + z), 0, 4) / 4,
            "right": (z > 0) * 1.0,
            "narrow": 0.5 + 0.02 * z,
        }[kind]
        wrong += bool((_pairs(scores, 499).p_values <= 0.05).any())

    assert wrong / 150 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


def test_models_that_never_differ_have_limits_as_wide_as_pairs_of_their_number() -> None:
    """Draws of differences that are all 0 say nothing: of three pairs, Šidák's."""
    pairs = _pairs(np.tile((np.arange(10) % 3 > 0) * 1.0, (3, 1)), 499)

    assert pairs.critical(0.05) == pytest.approx(stats.norm.isf((1 - 0.95 ** (1 / 3)) / 2))
    assert (pairs.p_values == 1).all()
    low, high = pairs.limits(0.05)
    alone = pairs.pairs.limits(1.959964)
    assert (low < alone.low).all()
    assert (high > alone.high).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_order_changes_nothing_also_where_models_are_each_others_in_another_order(missing: float):
    """Few models and units, on few values: many tables have symmetries."""
    rng = np.random.default_rng(5)
    a, b = np.triu_indices(3, 1)

    def critical(scores: np.ndarray) -> float:
        x = scores[b] - scores[a]
        sizes = (~np.isnan(x)) * 1.0

        def of_pairs(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.nan_to_num(x[pairs]), sizes[pairs]

        units = Units(scores, np.ones(9), of_pairs if np.isnan(scores).any() else None)
        return AllPairs(Differences(x, span=1.0), units, a, b, n_draws=499).critical(0.05)

    for _ in range(300):
        scores = np.round(rng.random((3, 9)) * rng.integers(1, 4)) / 3
        scores[rng.random(scores.shape) < missing] = np.nan
        other = scores[rng.permutation(3)][:, rng.permutation(9)]
        if (np.isnan(scores).all(axis=0)).any():
            continue
        assert critical(scores) == pytest.approx(critical(other), abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_drawn_as_weights_of_units_would_give_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the root of their covariance, of models or, where scores are missing, of pairs."""
    rng = np.random.default_rng(seed)
    n_models, n_units = int(rng.integers(3, 9)), int(rng.integers(110, 300))
    easy = rng.random(n_units)
    scores = (rng.random((n_models, n_units)) < easy) * rng.choice([0.5, 1.0], n_units)
    if seed % 2:
        scores[rng.random(scores.shape) < 0.2] = np.nan
    by_root = _pairs(scores, 19_999)
    monkeypatch.setattr(simultaneous, "MOST_ROWS", 0)
    by_weights = _pairs(scores, 19_999)
    assert not np.array_equal(by_root.p_values, by_weights.p_values)
    for alpha in (0.05, 0.5):
        assert by_root.critical(alpha) == pytest.approx(by_weights.critical(alpha), abs=0.05)
    p = by_weights.p_values
    error = np.sqrt(2 * p * (1 - p) / 19_999)
    assert np.all(np.abs(by_root.p_values - p) <= 5 * error + 1e-3)
