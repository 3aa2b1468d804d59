"""All pairs at once: p-values, limits and orders never contradict, nor sharpen one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from study import all_pairs

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
    return all_pairs(scores, a, b, clusters=clusters, span=span, n_draws=n_draws)


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
    rng = np.random.default_rng(0)
    scores = rng.normal([[0.0], [1.0], [0.5]], 1, (3, 20))
    alone = _pairs(scores[:2], span=np.inf)
    scores[2] = np.nan
    found = _pairs(scores, span=np.inf)

    assert np.isnan(found.difference).tolist() == [False, True, True]
    assert found.p_values[0] == alone.p_values[0]
    # Nor do they count where others are drawn: of three models it is their range.
    many = np.concatenate([rng.normal(size=(3, 300)), np.full((3, 300), np.nan)], axis=1)
    apart = np.concatenate([many, many[:1, ::-1]])
    three, four = _pairs(many[:, :300], 9999, span=np.inf), _pairs(apart, 9999, span=np.inf)
    assert four.critical(0.05) == pytest.approx(three.critical(0.05), abs=0.025)


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
    """Of eight models on 30 items, in 80 runs: .05, and three standard errors."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(80):
        item = rng.normal(size=30)
        z = 0.7 * item + 0.7 * rng.normal(size=(8, 30))
        scores = {
            "rubric": np.clip(np.round(2 + z), 0, 4) / 4,
            "right": (z > 0) * 1.0,
            "narrow": 0.5 + 0.02 * z,
        }[kind]
        wrong += bool((_pairs(scores, 499).p_values <= 0.05).any())

    assert wrong / 80 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 80)


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
        return AllPairs(Differences(x, span=1.0), units, a, b, n_draws=199).critical(0.05)

    for _ in range(150):
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


def _with_leads(board: tuple[np.ndarray, np.ndarray | None, float], n_draws: int = 199) -> AllPairs:
    scores, clusters, span = board
    return _pairs(scores, n_draws, span=span, clusters=clusters)


@settings(max_examples=25, deadline=None)
@given(boards(), st.floats(0.01, 0.5), st.sampled_from([1, -1]))
def test_all_that_is_said_follows_from_the_draws_of_each_pair(
    board: tuple[np.ndarray, np.ndarray | None, float], alpha: float, sign: int
) -> None:
    """Maxima, firsts and step-down p-values by counting, pair by pair.

    Pairs that share nothing once took the p-values from pairs that do not differ.
    """
    found = _with_leads(board)
    if found._leads is None:
        return
    n_draws, a, b = found.n_draws, found.a, found.b
    drawn = found._leads.of(np.arange(len(a))).astype(np.float64)
    n = found.n_models
    lead = np.full((n, n, n_draws), -np.inf)
    lead[b, a], lead[a, b] = -drawn, drawn
    differ = found._leads._inverse > 0
    lead[a[~differ], b[~differ]] = lead[b[~differ], a[~differ]] = -np.inf
    np.testing.assert_allclose(
        found._leads.maxima, np.sort(np.abs(drawn).max(axis=0)), rtol=1e-4, atol=1e-5
    )
    largest_of_each = lead.max(axis=1)
    np.testing.assert_allclose(found._leads.signed, largest_of_each, rtol=1e-4, atol=1e-5)

    stands = np.nan_to_num(found.deviate) * sign
    ahead = np.full((n, n), -np.inf)
    ahead[a, b], ahead[b, a] = stands, -stands
    most = ahead.max(axis=1)
    share = (1 + (found._leads.signed >= most[:, None]).sum(axis=1)) / (n_draws + 1)
    for level in (alpha, *share.tolist()):
        assert found.first(level, lower_is_better=sign < 0).tolist() == [
            bool(m <= 0 or p > level) for m, p in zip(most, share, strict=True)
        ]

    size = np.abs(np.nan_to_num(found.deviate))
    own = found.pairs.p_value
    shared = np.flatnonzero(~np.isnan(found.difference))
    order = shared[np.argsort(size[shared], kind="stable")]
    expected = np.full(len(size), np.nan)
    for rank, pair in enumerate(order):
        reached = np.abs(drawn[order[: rank + 1]]).max(axis=0) >= np.float32(size[pair])
        independent = 1 - (1 - own[pair]) ** (rank + 1)
        expected[pair] = min((1 + reached.sum()) / (n_draws + 1), independent)
    for rank in range(len(order) - 2, -1, -1):
        expected[order[rank]] = max(expected[order[rank]], expected[order[rank + 1]])
    expected = np.maximum(own, np.minimum(expected, found.p_values))
    np.testing.assert_allclose(found.step_down(), expected, rtol=1e-6, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(boards())
def test_flips_of_counts_are_flips_of_their_differences(
    board: tuple[np.ndarray, np.ndarray | None, float],
) -> None:
    """Differences turned round unit by unit, and judged again, by another hand."""
    scores, clusters, span = board
    found = _with_leads((np.nan_to_num(scores), clusters, span))
    plain, counts = found.pairs.of_one_size
    if found._leads is None or not plain.any():
        return
    pairs = np.flatnonzero(plain)
    largest = found._leads.largest_of_flips(pairs, counts)
    x, _ = found._leads._units.of_pairs(found.a, found.b, pairs)
    x = x[:, found._leads._order]
    for k in range(0, len(largest), 40):
        signs = np.sign(found._leads._weights[:, k])
        flipped = Differences(x * signs, span=np.inf).deviate
        assert largest[k] == pytest.approx(np.abs(np.nan_to_num(flipped)).max(), abs=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.25])
@pytest.mark.parametrize("n_units", [9, 150])
@pytest.mark.parametrize("size", [1, 2])
def test_draws_vary_together_as_the_pairs_do(missing: float, n_units: int, size: int) -> None:
    """Correlations of the sums over units, to which models by themselves add F²/2 each."""
    rng = np.random.default_rng(n_units + size)
    scores = rng.normal(size=(4, n_units)) + rng.normal(size=n_units)
    scores[rng.random(scores.shape) < missing] = np.nan
    clusters = rng.integers(0, n_units // size, n_units) if size > 1 else None
    found = _pairs(scores, 20_000, span=np.inf, clusters=clusters)
    a, b = found.a, found.b
    numbers = np.arange(n_units) if clusters is None else clusters
    x = scores[b] - scores[a]
    mean = np.nanmean(x, axis=1, keepdims=True)
    rest = np.stack(
        [[np.nansum((row - m)[numbers == c]) for c in np.unique(numbers)]
         for row, m in zip(x, mean, strict=True)]
    )  # fmt: skip
    own = np.eye(4)[b] - np.eye(4)[a]
    far = np.nanmedian(found.pairs.far)
    covariance = rest @ rest.T + far**2 / 2 * own @ own.T
    error = np.sqrt(np.diag(covariance))
    drawn = found._leads.of(np.arange(len(a)))

    np.testing.assert_allclose(
        drawn @ drawn.T / 20_000, covariance / error / error[:, None], atol=5 * 2**0.5 / 20_000**0.5
    )


@pytest.mark.parametrize("missing", [0.0, 0.25])
@pytest.mark.parametrize("n_units", [9, 150])
@pytest.mark.parametrize("exponent", [-400, 400])
def test_scores_may_be_of_any_size(missing: float, n_units: int, exponent: int) -> None:
    """Draws are in single precision; a power of two as factor changes no digit."""
    rng = np.random.default_rng(n_units)
    scores = rng.normal(size=(4, n_units)) + rng.normal(size=n_units)
    scores[rng.random(scores.shape) < missing] = np.nan
    plain = _pairs(scores, span=np.inf)
    scaled = _pairs(np.ldexp(scores, exponent), span=np.inf)

    assert plain.critical(0.05) == scaled.critical(0.05)
    assert plain.p_values.tolist() == scaled.p_values.tolist()


def test_a_pair_far_smaller_than_the_others_ends_no_comparison() -> None:
    """Most are, by 100 powers of ten, which single precision does not hold."""
    scores = np.random.default_rng(3).normal(size=(5, 20)) * np.array([[1e-100] * 4 + [1.0]]).T
    found = _pairs(scores, span=np.inf)

    assert np.isfinite(found.critical(0.05))
    assert (found.p_values > 0).all()


def test_p_values_are_shares_of_the_largest_and_go_on_in_the_tail() -> None:
    """Between: counted; beyond the last draws as of m independent pairs, of all at most."""
    rng = np.random.default_rng(6)
    found = _pairs(rng.normal(size=(5, 60)), 9999, span=np.inf)
    maximum, maxima = found._maximum, found._leads.maxima
    middle, upper = np.quantile(maxima, [0.5, 0.95])
    inside = np.linspace(middle, upper, 5)
    share = (1 + (maxima >= inside[:, None]).sum(axis=1)) / 10_000
    np.testing.assert_allclose(maximum.beyond(inside), np.maximum(share, 0.05), rtol=1e-12)

    def m_at(c: float, p: float) -> float:
        return min(np.log1p(-p) / np.log1p(-2 * stats.norm.sf(c)), 10)

    m = m_at(middle, 0.5), m_at(upper, 0.05)
    slope = np.log(m[1] / m[0]) / (upper - middle)
    for far in (0.1, 0.5, 1.5, 6.0):
        count = min(m[1] * np.exp(slope * far), 10)
        expected = -np.expm1(count * np.log1p(-2 * stats.norm.sf(upper + far)))
        assert maximum.beyond(np.array([upper + far]))[0] == pytest.approx(expected, rel=1e-9)
    for alpha in (0.3, 0.05, 0.01, 1e-5):
        c = found.critical(alpha)
        assert maximum.beyond(np.array([c]))[0] <= alpha < maximum.beyond(np.array([c - 1e-6]))[0]


@settings(max_examples=25, deadline=None)
@given(boards(), st.floats(0.01, 0.5))
def test_limits_of_all_are_those_of_each_pair_stretched(
    board: tuple[np.ndarray, np.ndarray | None, float], alpha: float
) -> None:
    """Counts at ρ c, others as Student's limits are, single units at c; deviates likewise."""
    found = _with_leads(board)
    span, c = board[2], found.critical(alpha)
    plain, counts = found.pairs.of_one_size
    stretch = 1.0
    differ = (counts.up + counts.down).any()
    few = found.pairs.n_units.max(initial=0) <= 100
    if found._leads is not None and few and differ and plain.sum() > 1:
        largest = found._leads.largest_of_flips(np.flatnonzero(plain), counts)
        reached = float(np.quantile(largest, 0.95, method="higher"))
        stretch = max(1.001 * reached / found.critical(0.05), 1.0)
    assert found.stretch == pytest.approx(stretch)

    alone, at_c = found.pairs.limits(1.959963984540054), found.pairs.limits(c)
    low, high = np.array(at_c)
    stand = found.pairs.deviate / stretch
    low[plain], high[plain] = counts.limits(c * stretch)
    several = (~np.isnan(found.pairs.deviate)).sum() > 1
    for p in np.flatnonzero(~plain & (found.pairs.n_units > 1) & several):
        df, x = found.pairs.n_units[p] - 1, found.difference[p]
        usual = stats.t.isf(0.025, df)
        more = stats.t.isf(stats.norm.sf(c), df) / usual
        low[p] = max(x + (alone.low[p] - x) * more, -span)
        high[p] = min(x + (alone.high[p] - x) * more, span)
        half = x - alone.low[p] if x > 0 else alone.high[p] - x
        stand[p] = 0.0
        if x != 0:
            stand[p] = np.sign(x) * stats.norm.isf(
                max(stats.t.sf(usual * abs(x) / half, df), 1e-300)
            )
    shown = found.limits(alpha)
    np.testing.assert_allclose(shown.low, low, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(shown.high, high, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.deviate, stand, rtol=1e-6, atol=1e-9)


def test_equal_sums_are_alike_whatever_their_rounding_errors() -> None:
    """Otherwise draws, and with them limits, hung on the order in which items were added up."""
    sums = np.array([[5.5, 5.7], [5.8, 5.8], [5.6, 5.8], [5.8, 5.8]])
    rounded = sums + np.array([[0.0], [9e-16], [0.0], [0.0]])

    for exact, other in zip(simultaneous._keys(sums), simultaneous._keys(rounded), strict=True):
        np.testing.assert_allclose(exact, other, atol=1e-8)
