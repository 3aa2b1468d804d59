"""Partial credit: one distribution for a mean, and for a paired difference."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin.stats import bounded, means, paired, reach

FIXTURES = Path(__file__).parents[2] / "fixtures"
STUDY = json.loads((FIXTURES / "validation" / "partial_credit.json").read_text("utf-8"))
GOLDEN = json.loads((FIXTURES / "golden" / "partial_credit.json").read_text("utf-8"))
UNIT = {"bounds": (0.0, 1.0), "confidence_level": 0.95}
DP = "dirichlet_process(0.5)"


def scores_of(values):
    return np.array([[np.nan if x is None else x for x in values]], dtype=float)


def some_pairs(seed=1, shape=(40, 9)):
    """Concentrated, skewed, rubric and 0/1 scores, a few missing."""
    rng = np.random.default_rng(seed)
    a = rng.beta(*rng.choice([[200, 50], [0.5, 3], [2, 2], [20, 1]], shape[0]).T[:, :, None], shape)
    b = np.clip(a + rng.normal(0.01, 0.05, shape), 0, 1)
    a[::4], b[1::4] = np.round(4 * a[::4]) / 4, np.round(b[1::4])
    return a, np.where(rng.random(shape) < 0.1, np.nan, b)


class TestGolden:
    @pytest.mark.parametrize("case", GOLDEN["one_sample"], ids=lambda c: c["name"])
    def test_one_sample(self, case):
        found = reach.mean_interval(case["scores"], bounds=(0, 1), confidence_level=case["level"])

        np.testing.assert_allclose(found, [case["low"], case["high"]], atol=1e-9)

    @pytest.mark.parametrize("case", GOLDEN["one_sample"], ids=lambda c: c["name"])
    def test_reach_points(self, case):
        u = scores_of(case["scores"])
        low, high = reach.reach_points(u, reach.information(u))

        assert [low[0], high[0]] == pytest.approx(case["reach"], abs=1e-12)

    @pytest.mark.parametrize("case", GOLDEN["paired"], ids=lambda c: c["name"])
    def test_pairs(self, case):
        found = reach.difference(scores_of(case["a"]), scores_of(case["b"]), **UNIT)
        expected = [[case[name]] for name in ("low", "high", "p_value", "prob_better")]

        np.testing.assert_allclose(found, expected, atol=1e-9)


class TestZerosAndOnes:
    def test_one_sample_is_jeffreys(self):
        scores = np.tril(np.ones((13, 12)), -1)
        expected = bounded.jeffreys(np.arange(13), 12, confidence_level=0.95)

        np.testing.assert_allclose(reach.mean_interval(scores, **UNIT), expected, atol=1e-12)

    def test_a_pair_is_the_dirichlet_posterior(self):
        a, b = np.random.default_rng(2).integers(0, 2, (2, 60, 8)).astype(float)
        both, only_a, only_b = (a * b).sum(1), (a * (1 - b)).sum(1), (b * (1 - a)).sum(1)
        counts = paired.paired_counts(both, only_a, only_b, 8 - both - only_a - only_b)
        expected = paired.dirichlet(counts, confidence_level=0.95, prior=(0.5, 1.0))
        found = reach.difference(a, b, **UNIT)

        np.testing.assert_allclose(
            [found.low, found.high], [expected.low, expected.high], atol=1e-9
        )
        np.testing.assert_allclose(
            found.prob_better, special.betainc(only_a + 0.5, only_b + 0.5, 0.5), atol=1e-9
        )

    @pytest.mark.parametrize("gap", [1e-9, 1e-6, 1e-4])
    def test_scores_that_tend_to_them_have_limits_that_tend_to_theirs(self, gap):
        near = np.array([gap, 1 - gap, 1 - 2 * gap, 3 * gap, 1 - gap / 2, 1.0])
        found = reach.mean_interval(near, **UNIT)

        np.testing.assert_allclose(
            found, reach.mean_interval(np.round(near), **UNIT), atol=0.002 + 2 * gap
        )


class TestMean:
    def test_concentrated_scores_have_an_interval_like_student_s(self):
        scores = np.random.default_rng(3).beta(200, 50, (200, 15))
        ours, t, dp = (
            np.mean(x.high - x.low)
            for x in (
                reach.mean_interval(scores, **UNIT),
                means.t_interval(scores, confidence_level=0.95),
                bounded.dirichlet_process(scores, mass=0.5, **UNIT),
            )
        )

        assert ours == pytest.approx(t, rel=0.05)
        assert dp > 4 * t

    def test_a_bound_that_is_attained_is_the_reach_point(self):
        scores = np.random.default_rng(4).beta(200, 50, (2, 15))
        attained = np.array([True, False])
        low, high = reach.mean_interval(scores, attained=(attained, False), **UNIT)
        alone = reach.mean_interval(scores, **UNIT)
        dp = bounded.dirichlet_process(scores, mass=0.5, **UNIT)

        assert low[0] == pytest.approx(dp.low[0], abs=0.005)
        assert low[0] < alone.low[0] - 0.03
        assert [low[1], high[1]] == [alone.low[1], alone.high[1]]

    def test_bounds_scale_and_order_does_not_matter(self):
        scores = np.random.default_rng(5).beta(2, 5, (6, 11))
        unit = reach.mean_interval(scores, **UNIT)
        padded = np.concatenate([scores[:, ::-1], np.full((6, 3), np.nan)], axis=1)
        other = reach.mean_interval(1 + 9 * padded, bounds=(1, 10), confidence_level=0.95)

        np.testing.assert_allclose(other, 1 + 9 * np.stack(unit), atol=1e-9)

    def test_scores_mirror(self):
        scores = np.random.default_rng(6).beta(0.5, 3, (6, 11))
        ours, mirrored = (reach.mean_interval(x, **UNIT) for x in (scores, 1 - scores))

        np.testing.assert_allclose(mirrored.low, 1 - ours.high, atol=1e-9)

    @pytest.mark.parametrize("scores", [[0.5], [0.8] * 4, [0.0] * 3, [1.0], [0.6, 0.6 + 1e-12]])
    def test_the_width_is_never_zero(self, scores):
        low, high = reach.mean_interval(scores, **UNIT)

        assert low <= np.mean(scores) <= high
        assert high - low > 0.2

    def test_no_scores_have_no_interval(self):
        found = reach.mean_interval([[np.nan, np.nan], [0.2, 0.4]], **UNIT)

        assert [True, False] == np.isnan(found.low).tolist()
        assert (0,) == reach.mean_interval(np.zeros((0, 3)), **UNIT).low.shape

    def test_rounding_errors_make_no_distinct_scores(self):
        thirds = np.array([1 / 3, 1 - 2 / 3, 2 / 3, 1 - 1 / 3, 0.5])
        exact = np.array([1 / 3, 1 / 3, 2 / 3, 2 / 3, 0.5])

        np.testing.assert_allclose(
            reach.mean_interval(thirds, **UNIT), reach.mean_interval(exact, **UNIT), atol=1e-9
        )


class TestPairs:
    @pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99])
    def test_the_interval_excludes_0_exactly_where_p_is_below_alpha(self, level):
        a, b = some_pairs(int(1000 * level))
        found = reach.difference(a, b, bounds=(0, 1), confidence_level=level)
        excludes = (found.low > 0) | (found.high < 0)

        assert ((1 - level) > found.p_value).tolist() == excludes.tolist()
        assert 0 < excludes.sum() < len(excludes)

    def test_p_is_twice_the_smaller_tail(self):
        found = reach.difference(*some_pairs(), **UNIT)
        smaller = np.minimum(found.prob_better, 1 - found.prob_better)

        np.testing.assert_allclose(found.p_value, 2 * smaller, atol=1e-12)

    def test_exchanging_the_models_changes_the_signs(self):
        a, b = some_pairs()
        one, other = reach.difference(a, b, **UNIT), reach.difference(b, a, **UNIT)
        varied = np.nansum(b - a, axis=1) != 0

        assert one.low[varied].tolist() == (-other.high[varied]).tolist()
        assert one.p_value[varied].tolist() == other.p_value[varied].tolist()
        np.testing.assert_allclose(one.prob_better, 1 - other.prob_better, atol=1e-11)

    def test_bounds_scale_and_items_without_either_score_are_left_out(self):
        a, b = some_pairs()
        found = reach.difference(a, b, **UNIT)
        wide = reach.difference(
            1 + 9 * np.where(np.isnan(b), 0.123, a),
            1 + 9 * b,
            bounds=(1, 10),
            confidence_level=0.95,
        )

        np.testing.assert_allclose(wide.low, 9 * found.low, atol=1e-8)
        np.testing.assert_allclose(wide.prob_better, found.prob_better, atol=1e-9)

    def test_a_concentrated_difference_is_found_as_by_student_s_t(self):
        rng = np.random.default_rng(7)
        a = rng.beta(200, 50, (200, 15))
        b = np.clip(a + rng.normal(0.015, 0.02, a.shape), 0, 1)
        p_values = stats.ttest_rel(b, a, axis=1).pvalue
        by_dp = bounded.dirichlet_process(b - a, bounds=(-1, 1), mass=0.5, confidence_level=0.95)

        assert 0.6 < np.mean(p_values < 0.05)
        assert np.mean(reach.difference(a, b, **UNIT).p_value < 0.05) == pytest.approx(
            np.mean(p_values < 0.05), abs=0.1
        )
        assert np.mean(by_dp.low > 0) == 0

    def test_equal_models_are_equal(self):
        scores = np.array([[0.2, 0.5, 0.7, np.nan]])
        found = reach.difference(scores, scores, **UNIT)

        assert (0.5, 1.0) == (found.prob_better[0], found.p_value[0])
        assert -found.low[0] == found.high[0] > 0.2

    def test_no_item_in_common_has_no_interval(self):
        found = reach.difference([[np.nan, 0.3]], [[0.4, np.nan]], **UNIT)

        assert np.isnan(np.stack(found)).all()

    def test_a_baseline_without_spread_says_nothing_of_the_spread(self):
        """AlpacaEval's own baseline scores ½ throughout, the others nearly 0 or 1."""
        other = np.array([[1e-6, 2e-5, 3e-4, 1e-5, 4e-6, 2e-6]])
        found = reach.difference(np.full_like(other, 0.5), other, **UNIT)

        assert found.high[0] > -0.3
        assert found.low[0] == pytest.approx(-0.5, abs=0.35)


def rows_of(section, method, sizes=(), key="method"):
    return [
        row for row in STUDY[section] if row[key] == method and (not sizes or row["n"] in sizes)
    ]


def mean_of(section, method, what, sizes=()):
    return np.mean([row[what] for row in rows_of(section, method, sizes)])


def geometric_ratio(section, one, other, what, sizes=(), scores=None):
    pairs = zip(rows_of(section, one, sizes), rows_of(section, other, sizes), strict=True)
    logs = [np.log(a[what] / b[what]) for a, b in pairs if scores is None or a["scores"] in scores]
    return np.exp(np.mean(logs))


class TestFigures:
    """What the study found (`fixtures/validation/partial_credit.json`)."""

    @pytest.mark.parametrize("n", [5, 10, 15, 30, 100, 200])
    def test_one_sample_covers_as_it_says(self, n):
        rows = rows_of("one", "reach", [n])

        assert len(rows) >= 20
        error = np.sqrt(np.sum([row["std_error"] ** 2 for row in rows])) / len(rows)
        assert 0.945 - 2 * error <= np.mean([row["coverage"] for row in rows]) <= 0.975
        assert min(row["coverage"] + 2 * row["std_error"] for row in rows) >= 0.90

    @pytest.mark.parametrize("n", [5, 10, 15, 30, 100])
    def test_pairs_cover_as_they_say(self, n):
        rows = rows_of("pairs", "reach", [n])

        assert len(rows) >= 20
        assert 0.945 <= np.mean([row["coverage"] for row in rows]) <= (0.98 if n >= 10 else 0.995)
        assert min(row["coverage"] + 2 * row["std_error"] for row in rows) >= 0.90

    def test_student_s_t_does_not(self):
        assert mean_of("one", "t_interval", "coverage", [5, 10]) < 0.9
        assert min(r["coverage"] for r in rows_of("pairs", "t_interval", [5, 10])) < 0.5

    @pytest.mark.parametrize("n", [10, 15, 30, 100])
    def test_concentrated_scores_have_a_width_like_student_s(self, n):
        one, pairs = ["Beta(200, 50)", "Beta(60, 40)"], ["concentrated", "concentrated, far"]

        assert geometric_ratio("one", "reach", "t_interval", "width", [n], one) <= 1.15
        assert geometric_ratio("pairs", "reach", "t_interval", "width", [n], pairs) <= 1.15

    @pytest.mark.parametrize("n", [5, 10, 15, 30])
    def test_the_interval_score_is_well_below_that_of_weights_at_the_bounds(self, n):
        assert geometric_ratio("one", "reach", DP, "score", [n]) <= 0.85
        assert geometric_ratio("pairs", "reach", DP, "score", [n]) <= 0.85

    def test_other_levels_are_kept_too(self):
        for level, slack in ((0.8, 0.03), (0.9, 0.02), (0.99, 0.01)):
            rows = [row for row in STUDY["levels"] if row["level"] == level]
            assert np.mean([row["coverage"] for row in rows]) == pytest.approx(level, abs=slack)

    def test_rare_failures_are_allowed_for_where_a_row_shows_them(self):
        """And not where none does: no method that looks at one row alone can know of them."""
        one = [r for r in STUDY["failing"] if r["scores"] != "none fails"]
        pairs = [r for r in STUDY["failing_pairs"] if r["scores"] != r["other"] != "none fails"]
        for rows in (one, pairs):
            found = {
                method: min(r["coverage"] for r in rows if r["method"] == method)
                for method in ("reach", "reach, attained", DP)
            }
            assert found["reach"] < 0.7
            assert found["reach, attained"] >= 0.9
            assert found[DP] >= 0.9

    def test_a_true_difference_among_concentrated_scores_is_found(self):
        found = {
            method: row["excludes_0"]
            for method in ("reach", DP, "t_interval")
            for row in rows_of("pairs", method, [30])
            if row["scores"] == "concentrated"
        }

        assert found["reach"] > 0.9
        assert found["reach"] > found["t_interval"] - 0.05
        assert found[DP] == 0

    def test_for_zeros_and_ones_the_uniform_prior_is_kept(self):
        """Its mean coverage is the level, and from 20 to 50 items it covers more at least."""
        rows = {(r["method"], r["level"], r["n"]): r for r in STUDY["binary"]}
        for (method, level, _), row in rows.items():
            if method == "beta_hpd":
                assert row["coverage"] == pytest.approx(level, abs=3e-4)
        for n in (20, 30, 50):
            hpd, jeffreys = (rows[method, 0.95, n] for method in ("beta_hpd", "reach"))
            assert hpd["least"] > jeffreys["least"]
            assert hpd["score_strong"] < jeffreys["score_strong"]

    @pytest.mark.parametrize("of", ["one", "pair"])
    def test_samples_of_real_scores_are_covered(self, of):
        rows = [row for row in STUDY["real"] if row["of"] == of]
        for row in rows:
            if row["method"] == "reach":
                assert 0.935 <= row["coverage"] <= 0.995
        t = [row["coverage"] for row in rows if row["method"] == "t_interval" and row["n"] == 5]
        assert min(t) < 0.7
