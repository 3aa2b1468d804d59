"""Partial credit: one distribution for the mean of one model's scores."""

import numpy as np
import pytest
from golden_cases import kept

from evalstats_plugin.stats import bounded, means, reach

STUDY, GOLDEN = kept("validation/partial_credit"), kept("golden/partial_credit")
UNIT = {"bounds": (0.0, 1.0), "confidence_level": 0.95}
DP = "dirichlet_process(0.5)"


def scores_of(values):
    return np.array([[np.nan if x is None else x for x in values]], dtype=float)


class TestGolden:
    @pytest.mark.parametrize("case", GOLDEN["one_sample"], ids=lambda c: c["name"])
    def test_one_sample(self, case):
        found = reach.mean_interval(case["scores"], bounds=(0, 1), confidence_level=case["level"])

        np.testing.assert_allclose(found, [case["low"], case["high"]], atol=1e-9)

    @pytest.mark.parametrize("case", GOLDEN["one_sample"], ids=lambda c: c["name"])
    def test_reach_points(self, case):
        u = scores_of(case["scores"])
        low, high = reach.reach_points(u)

        assert [low[0], high[0]] == pytest.approx(case["reach"], abs=1e-12)


class TestZerosAndOnes:
    def test_one_sample_is_jeffreys(self):
        scores = np.tril(np.ones((13, 12)), -1)
        expected = bounded.jeffreys(np.arange(13), 12, confidence_level=0.95)

        np.testing.assert_allclose(reach.mean_interval(scores, **UNIT), expected, atol=1e-12)

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

    def test_student_s_t_does_not(self):
        assert mean_of("one", "t_interval", "coverage", [5, 10]) < 0.9

    @pytest.mark.parametrize("n", [10, 15, 30, 100])
    def test_concentrated_scores_have_a_width_like_student_s(self, n):
        one = ["Beta(200, 50)", "Beta(60, 40)"]

        assert geometric_ratio("one", "reach", "t_interval", "width", [n], one) <= 1.15

    @pytest.mark.parametrize("n", [5, 10, 15, 30])
    def test_the_interval_score_is_well_below_that_of_weights_at_the_bounds(self, n):
        assert geometric_ratio("one", "reach", DP, "score", [n]) <= 0.85

    def test_other_levels_are_kept_too(self):
        for level, slack in ((0.8, 0.03), (0.9, 0.02), (0.99, 0.01)):
            rows = [row for row in STUDY["levels"] if row["level"] == level]
            assert np.mean([row["coverage"] for row in rows]) == pytest.approx(level, abs=slack)

    def test_rare_failures_are_allowed_for_where_a_row_shows_them(self):
        """And not where none does: no method that looks at one row alone can know of them."""
        one = [r for r in STUDY["failing"] if r["scores"] != "none fails"]
        found = {
            method: min(r["coverage"] for r in one if r["method"] == method)
            for method in ("reach", "reach, attained", DP)
        }
        assert found["reach"] < 0.7
        assert found["reach, attained"] >= 0.9
        assert found[DP] >= 0.9

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

    def test_samples_of_real_scores_are_covered(self):
        rows = [row for row in STUDY["real"] if row["of"] == "one"]
        for row in rows:
            if row["method"] == "reach":
                assert 0.935 <= row["coverage"] <= 0.995
        t = [row["coverage"] for row in rows if row["method"] == "t_interval" and row["n"] == 5]
        assert min(t) < 0.7


def test_one_more_item_allows_for_failures_that_none_of_few_is():
    """97 % concentrated, 3 % far below: the limits of what was seen hold a third of the time."""
    rng = np.random.default_rng(0)
    failed = rng.random((200, 15)) < 0.03
    scores = np.where(failed, rng.beta(3, 7, failed.shape), rng.beta(190, 10, failed.shape))
    truth = 0.97 * 0.95 + 0.03 * 0.3
    seen, more = reach.mean_interval(scores, **UNIT), reach.one_more(scores, **UNIT)

    assert np.mean((seen.low <= truth) & (truth <= seen.high)) < 0.6
    assert np.mean((more.low <= truth) & (truth <= more.high)) > 0.95
    wide = reach.one_more(1 + 9 * scores[:20], bounds=(1, 10), confidence_level=0.95)
    np.testing.assert_allclose(wide.low, 1 + 9 * more.low[:20])
