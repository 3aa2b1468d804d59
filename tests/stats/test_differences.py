"""The distribution of a mean difference: golden values, exact ones, and what must not matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from golden_cases import kept
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.pairs.differences import (
    Counts,
    Differences,
    MeanDifferences,
    _Rows,
    distance,
    limits_of_all,
)

Z = float(stats.norm.ppf(0.975))


@pytest.mark.parametrize("case", kept("golden/paired_engine"), ids=lambda c: c["name"])
def test_golden_values(case: dict[str, object]) -> None:
    """Of a program written apart; differences of one size are exact here, and 9 % from it."""
    x = np.array([case["x"]])
    found = Differences(x, span=1.0)
    low, high = found.limits(Z)
    one_size = len(set(np.abs(x[x != 0]).tolist())) <= 1
    near, limits = (0.1, 0.005) if one_size else (1e-8, 1e-5)

    assert case["p"] == pytest.approx(found.p_value[0], rel=near)
    assert (case["low"], case["high"]) == pytest.approx((low[0], high[0]), abs=limits)


def test_p_of_right_and_wrong_is_jeffreys_posterior() -> None:
    """I_½(u + ½, d + ½), and the same for tenths as for ones."""
    up, down = np.array([12.0, 3, 1, 0, 7]), np.array([0.0, 1, 0, 0, 9])
    expected = special.betainc(down + 0.5, up + 0.5, 0.5)
    ones = Counts(up, down, 40)
    rows = [np.repeat([0.1, -0.1, 0.0], [u, d, 40 - u - d]) for u, d in zip(up, down, strict=True)]
    tenths = Differences(np.array(rows, dtype=float)[:, ::-1], span=1.0)

    assert ones.prob_higher == pytest.approx(expected)
    assert tenths.p_value == pytest.approx(ones.p_value, rel=1e-12)
    known = up + down > 0
    assert 10 * tenths.limits(Z).low[known] == pytest.approx(ones.limits(Z).low[known])


@pytest.mark.parametrize("n", [3, 12, 40])
def test_tails_are_those_of_the_exact_distribution(n: int) -> None:
    """By integration along a contour, of the Dirichlet mean with two moving atoms."""
    x = np.random.default_rng(n).exponential(size=(20, n)) - 0.5
    far = distance(x)[:, None]
    atoms = np.concatenate([x, far, -far], axis=1)
    weights = np.concatenate([np.ones_like(x), np.full((20, 2), 0.5)], axis=1)
    exact = 1 - bounded.dirichlet_cdf(atoms, weights, np.zeros(20))
    found = Differences(x).prob_higher

    assert found == pytest.approx(exact, abs={3: 0.02, 12: 0.012, 40: 0.004}[n])


def test_it_is_students_t_where_that_is_right() -> None:
    """Of normal differences: limits within 3 % of the width, p-values within a tenth."""
    x = np.random.default_rng(0).normal(0.3, 1, (200, 40))
    found, t = Differences(x), stats.ttest_1samp(x, 0, axis=1)
    interval = t.confidence_interval(0.95)
    low, high = found.limits(Z)

    assert np.mean((high - low) / (interval.high - interval.low)) == pytest.approx(1.0, abs=0.04)
    assert np.median(found.p_value / t.pvalue) == pytest.approx(1.0, abs=0.1)


def test_twelve_up_and_none_down_is_found() -> None:
    """In steps of a tenth, where bounds decided before: the sign test's p-value is .0005."""
    found = Differences(np.repeat([0.1, 0.0], [12, 28])[None], span=1.0)

    assert found.p_value[0] <= 0.001
    assert found.limits(Z).low[0] > 0.01


@pytest.mark.parametrize("n", [100, 200])
def test_rare_large_failures_are_not_found_too_often(n: int) -> None:
    """Each model fails by .4 on 1 % of the items: .16 of equal models were called different."""
    rng = np.random.default_rng(1)
    a, b = (
        0.01 * rng.normal(size=(2000, n)) - 0.4 * (rng.random((2000, n)) < 0.01) for _ in range(2)
    )

    assert np.mean(Differences(b - a, span=1.0).p_value <= 0.05) <= 0.065


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """Differences of every kind, with ties and holes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([2, 3, 5, 10, 30, 100]))
    kind = draw(st.sampled_from(["grid", "normal", "rare", "binary", "equal"]))
    x = {
        "grid": lambda: rng.integers(-3, 4, (8, n)) / 10,
        "normal": lambda: rng.normal(0.2, 1, (8, n)),
        "rare": lambda: 0.01 * rng.normal(size=(8, n)) - 1.0 * (rng.random((8, n)) < 0.1),
        "binary": lambda: rng.integers(-1, 2, (8, n)) * 1.0,
        "equal": lambda: np.full((8, n), 0.3),
    }[kind]()
    if draw(st.booleans()):
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


@settings(max_examples=40, deadline=None)
@given(rows(), st.floats(0.5, 4.0))
def test_0_is_outside_exactly_where_p_is_small(x: np.ndarray, z: float) -> None:
    """At any level; limits hold the estimate."""
    found = Differences(x, span=10.0)
    low, high = found.limits(z)
    there = ~np.isnan(found.estimate)
    near = np.abs(np.abs(found.deviate) - z) < 1e-5
    outside = (low > 0) | (high < 0)

    assert ((np.abs(found.deviate) >= z) == outside)[there & ~near].all()
    assert ((low <= found.estimate) & (found.estimate <= high))[there].all()
    assert np.isnan(low[~there]).all()


@settings(max_examples=20, deadline=None)
@given(rows(), st.sampled_from([10.0, 1e-3, 1e5]))
def test_scale_sign_and_order_do_not_matter(x: np.ndarray, scale: float) -> None:
    """Times a number, exchanged models, items in another order."""
    one = Differences(x, span=10.0)
    wide, other = Differences(scale * x, span=10 * scale), Differences(-x[:, ::-1], span=10.0)
    low, high = one.limits(Z)

    np.testing.assert_allclose(wide.p_value, one.p_value, rtol=1e-7)
    np.testing.assert_allclose(other.p_value, one.p_value, rtol=1e-7)
    np.testing.assert_allclose(wide.limits(Z).low, scale * low, rtol=1e-6, atol=1e-7 * scale)
    np.testing.assert_allclose(other.limits(Z).low, -high, rtol=1e-6, atol=1e-7)


def test_holes_and_units_of_one_item_change_nothing() -> None:
    """An item that is not there, and clusters of one item each."""
    x = np.random.default_rng(0).normal(0.2, 1, (5, 20))
    holed = np.concatenate([x, np.full((5, 3), np.nan)], axis=1)
    plain = Differences(x)
    for other in (Differences(holed), Differences(3 * x, sizes=np.full(20, 3.0))):
        np.testing.assert_allclose(other.p_value, plain.p_value, rtol=1e-8)
        np.testing.assert_allclose(other.limits(Z).low, plain.limits(Z).low, atol=1e-7)


def test_nothing_that_differs_is_as_wide_as_the_span_says() -> None:
    """And has no limits where that is unknown."""
    alike = np.zeros((1, 40))

    assert Differences(alike, span=1.0).limits(Z).high[0] == pytest.approx(0.0576, abs=1e-4)
    assert np.isnan(Differences(alike).limits(Z).high[0])
    assert Differences(alike).p_value[0] == 1.0


def test_pairs_without_items_have_no_quantiles() -> None:
    """Beside pairs that have some."""
    pairs, z = Counts([0, 3], [0, 1], [0, 20]), np.full(2, Z)
    for low, high in (pairs.quantiles(z), pairs.limits(Z), pairs.one_more(Z)):
        assert np.isnan([low, high]).tolist() == [[True, False]] * 2


@pytest.mark.parametrize("seed", range(6))
def test_quantiles_that_newtons_method_misses_are_soon_found(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same to six digits on either side, from a guess that is not far off."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.1, 0.3, (20, 150 + 50 * seed))
    x /= np.abs(x).max(axis=1, keepdims=True)
    rows, tried, own = _Rows(x, None, None, distance(x)), [0], _Rows.deviate

    def counted(some: _Rows, d: np.ndarray) -> np.ndarray:
        tried[0] += len(d)
        return own(some, d)

    monkeypatch.setattr(_Rows, "deviate", counted)
    for goal in (-Z, -3.0, 2.5):
        target = np.full(20, goal)
        assert rows.bracketed(target) == pytest.approx(rows.limit(target), abs=1e-6)
    assert tried[0] <= 6.5 * 60


def test_one_more_item_is_clopper_and_pearsons_where_only_drops_occur() -> None:
    """No more wrong claims of non-inferiority than promised."""
    down = np.arange(1.0, 9)
    found = Counts(0, down, 60).one_more(Z)
    exact = stats.beta.isf(0.025, down + 1, 60 - down)

    assert -found.low == pytest.approx(exact, abs=0.002)
    assert Counts(down, 0, 60).one_more(Z).high == pytest.approx(-found.low)
    # Also near the median, which lies beyond the mean with the one item more.
    low = Counts([2], [0], [3]).one_more(0.01).low
    drawn = np.random.default_rng(0).dirichlet([2, 1, 1], 200_000)
    assert np.mean(drawn[:, 0] - drawn[:, 1] < low) == pytest.approx(0.496, abs=0.006)
    rng = np.random.default_rng(0)
    drops = -1.0 * (rng.random((4000, 100)) < 0.05)
    claims = Differences(drops, span=1.0).one_more(Z).low > -0.05
    assert claims.mean() <= 0.025 + 2 * np.sqrt(0.025 / 4000)
    assert (Differences(drops, span=1.0).limits(Z).low > -0.05).mean() >= claims.mean()


def test_one_more_that_failed_entirely_is_wider_for_few_items() -> None:
    """What eight items cannot show is more than what eight hundred cannot."""
    rng = np.random.default_rng(0)
    for n, least in ((8, 0.05), (800, 0.0)):
        x = 0.02 * rng.normal(size=(1, n))
        plain, unseen = (
            Differences(x, span=1.0).limits(Z),
            Differences(x, span=1.0).one_more(Z, unseen=True),
        )
        assert least < plain.low[0] - unseen.low[0] < 0.6
        assert unseen.high[0] >= plain.high[0]


def test_a_pair_of_500_items_takes_ten_milliseconds(within: Callable[..., object]) -> None:
    x = np.random.default_rng(0).normal(size=(1, 500))

    within(0.01, lambda: Differences(x, span=9.0).limits(Z))


STUDY = kept("validation/paired_engine")


class TestFigures:
    """What the study of 200 randomly drawn designs found."""

    @pytest.mark.parametrize("n", [20, 50, 100, 300])
    def test_equal_models_are_called_different_as_often_as_promised(self, n: int) -> None:
        (row,) = (r for r in STUDY["sizes"] if (r["n"], r["method"]) == (n, "engine"))

        assert row["designs"] >= 200
        assert row["type_1_p99"] <= 0.065
        assert row["type_1_worst"] <= 0.07
        assert row["power_ratio_least"] >= 0.9
        assert row["power_ratio_median"] >= 0.99

    def test_controls_find_too_much_and_nothing(self) -> None:
        rows = {(r["n"], r["method"]): r for r in STUDY["sizes"]}

        assert all(rows[n, "half of t"]["type_1_mean"] > 0.2 for n in (6, 20, 300))
        assert all(rows[n, "twice t"]["type_1_mean"] < 0.01 for n in (6, 20, 300))

    def test_named_cases(self) -> None:
        rows = STUDY["named"]

        assert all(r["engine"] <= 0.065 for r in rows if "engine" in r)
        assert all(r["p"] <= 0.001 for r in rows if "p" in r)

    def test_no_adjusted_p_value_is_below_its_own(self) -> None:
        (row,) = STUDY["tables"]

        assert (2000, 0, 0) == (row["tables"], row["below_own"], row["contradictions"])

    def test_planned_power_is_reached(self) -> None:
        """Of eight kinds, 20 designs of each; most of the worst plan for more epochs."""
        kinds = [r["kind"] for r in STUDY["power"]]
        errors = np.array([abs(r["promised"] - r["reached"]) for r in STUDY["power"]])

        assert [20] * 8 == [kinds.count(kind) for kind in dict.fromkeys(kinds)]
        assert errors.mean() <= 0.01
        assert (errors > 0.03).sum() <= 8
        assert errors.max() <= 0.05

    def test_all_pairs_at_once(self) -> None:
        """Standard errors of .013."""
        assert all(r["false_finding"] <= 0.075 for r in STUDY["families"])
        assert all(r["coverage"] >= 0.92 for r in STUDY["families"])


def test_limits_of_many_tables_at_once_are_those_of_each() -> None:
    """To the bit: no table's digits depend on the others, also where the limits are far out."""
    tables = [
        Counts([0, 3, 1], [0, 11, 0], [12, 12, 60]),
        Counts([1, 0], [39, 40], 40),
        Counts([2], [5], [9], unit=0.5),
        Differences([[0.2, -0.1, 0.4, 0.0]], span=1.0),
    ]
    z = [1.96, 2.8, 2.3, 0.0005]
    kinds = (
        MeanDifferences.limits,
        MeanDifferences.one_more,
        lambda pairs, at: pairs.one_more(at, unseen=True),
    )
    for limits in kinds:
        together = limits_of_all(tables, z, limits)
        for table, at, (low, high) in zip(tables, z, together, strict=True):
            alone = limits(table, at)
            assert np.array_equal(alone.low, low, equal_nan=True)
            assert np.array_equal(alone.high, high, equal_nan=True)
