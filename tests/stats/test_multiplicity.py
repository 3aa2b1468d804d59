"""Many comparisons at once."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats import many

GOLDEN = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[2] / "fixtures" / "golden" / "comparisons.json").read_text("utf-8")
    )["cases"]
}
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_holm_agrees_with_its_paper():
    """Holm (1979), by hand."""
    case = GOLDEN["holm"]

    assert case["expected"] == pytest.approx(many.holm(case["args"]["p_values"]))


def test_benjamini_hochberg_finds_what_its_paper_does():
    """Four of fifteen in the example of Benjamini & Hochberg (1995)."""
    case = GOLDEN["bh95"]
    adjusted = many.benjamini_hochberg(case["args"]["p_values"])

    assert case["expected"] == (adjusted <= case["args"]["level"]).sum()


@given(P_VALUES)
def test_benjamini_hochberg_agrees_with_scipy(p_values):
    """Another implementation."""
    expected = stats.false_discovery_control(p_values)

    assert expected == pytest.approx(many.benjamini_hochberg(p_values), abs=1e-12)


@given(P_VALUES)
def test_adjusted_p_values_keep_their_order_and_are_no_smaller(p_values):
    """Nor larger than Bonferroni's."""
    holm = many.holm(p_values)
    order = np.argsort(p_values)

    assert np.all(np.diff(holm[order]) >= 0)
    assert np.all(holm >= many.benjamini_hochberg(p_values) - 1e-15)
    assert np.all(np.asarray(p_values) <= holm)
    assert np.all(holm <= np.minimum(len(p_values) * np.asarray(p_values), 1))


@pytest.mark.parametrize("adjust", [many.holm, many.benjamini_hochberg])
def test_comparisons_that_were_not_made_do_not_count(adjust):
    """NaN stays, and the others are adjusted as without it; rows are families of their own."""
    alone = adjust([0.01, 0.04, 0.03])
    among = adjust([[0.01, np.nan, 0.04, 0.03], [0.5, 0.5, 0.5, 0.5]])

    assert alone == pytest.approx(among[0, [0, 2, 3]])
    assert np.isnan(among[0, 1])
    assert [0.5] * 4 == pytest.approx(among[1].tolist()) or adjust is many.holm


def test_max_t_of_one_pair_is_its_sign_flip():
    """Nothing to adjust for; all 2^6 signs of six differences are hit often enough."""
    differences = np.array([[1.0, 2.0, -0.5, 1.5, 0.25, 3.0]])
    expected = stats.permutation_test(
        (differences[0],), np.mean, permutation_type="samples", n_resamples=np.inf
    ).pvalue

    adjusted = many.max_t_of_pairs(
        *many.against_zero(differences), rng=np.random.default_rng(0), n_flips=100_000
    )

    assert expected == pytest.approx(adjusted[0], abs=0.005)


def test_max_t_knows_that_copies_are_one_comparison():
    """Ten times the same pair need no correction at all, where Holm would multiply by ten."""
    one = np.random.default_rng(1).normal(0.5, 1, (1, 30))
    adjusted = (
        many.max_t_of_pairs(*many.against_zero(x), rng=np.random.default_rng(0), n_flips=9999)
        for x in (one, np.repeat(one, 10, axis=0))
    )

    assert next(adjusted)[0] == pytest.approx(next(adjusted), abs=1e-12)


def test_max_t_is_ordered_and_repeatable():
    """The strongest difference has the smallest p-value; missing pairs stay missing."""
    rng = np.random.default_rng(2)
    differences = rng.normal([[0.0], [0.3], [0.8], [0.1]], 1, (4, 40))
    differences[3] = np.nan
    first, second = (
        many.max_t_of_pairs(
            *many.against_zero(differences), rng=np.random.default_rng(5), n_flips=999
        )
        for _ in range(2)
    )

    assert first[2] < first[1] <= first[0]
    assert np.isnan(first[3])
    assert np.array_equal(first, second, equal_nan=True)


def test_max_t_keeps_the_family_wise_error_rate_where_nothing_corrected_does_not():
    """200 simulated evals of ten equal models: findings in few of them, uncorrected in many."""
    rng = np.random.default_rng(3)
    first, second = np.triu_indices(10, 1)
    false_findings = np.zeros(2)
    for _ in range(200):
        difficulty = rng.normal(0, 1.5, 50)
        right = (1.2 - difficulty + rng.normal(size=(10, 50)) > 0).astype(float)
        differences = right[second] - right[first]
        adjusted = many.max_t_of_pairs(*many.against_zero(differences), rng=rng, n_flips=199)
        n_b, n_a = (differences > 0).sum(axis=1), (differences < 0).sum(axis=1)
        p_values = stats.binom.cdf(np.minimum(n_a, n_b), n_a + n_b, 0.5) * 2
        false_findings += (adjusted.min() <= 0.05, p_values.min() <= 0.05)

    error, uncorrected = false_findings / 200
    assert error <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert uncorrected > 0.25
