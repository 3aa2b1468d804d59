"""Many comparisons at once."""

import numpy as np
import pytest
from golden_cases import golden, kept
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats import multiplicity

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@golden("holm")
def test_holm_agrees_with_its_paper(case):
    """Holm (1979), by hand."""
    assert case["expected"] == pytest.approx(multiplicity.holm(case["args"]["p_values"]))


@golden("benjamini_hochberg")
def test_benjamini_hochberg_finds_what_its_paper_does(case):
    """Four of fifteen in the example of Benjamini & Hochberg (1995)."""
    adjusted = multiplicity.benjamini_hochberg(case["args"]["p_values"])

    assert case["expected"] == (adjusted <= case["args"]["level"]).sum()


@given(P_VALUES)
def test_benjamini_hochberg_agrees_with_scipy(p_values):
    """Another implementation."""
    expected = stats.false_discovery_control(p_values)

    assert expected == pytest.approx(multiplicity.benjamini_hochberg(p_values), abs=1e-12)


@given(P_VALUES)
def test_adjusted_p_values_keep_their_order_and_are_no_smaller(p_values):
    """Nor larger than Bonferroni's."""
    holm = multiplicity.holm(p_values)
    order = np.argsort(p_values)

    assert np.all(np.diff(holm[order]) >= 0)
    assert np.all(holm >= multiplicity.benjamini_hochberg(p_values) - 1e-15)
    assert np.all(np.asarray(p_values) <= holm)
    assert np.all(holm <= np.minimum(len(p_values) * np.asarray(p_values), 1))


@pytest.mark.parametrize("adjust", [multiplicity.holm, multiplicity.benjamini_hochberg])
def test_comparisons_that_were_not_made_do_not_count(adjust):
    """NaN stays, and the others are adjusted as without it; rows are families of their own."""
    alone = adjust([0.01, 0.04, 0.03])
    among = adjust([[0.01, np.nan, 0.04, 0.03], [0.5, 0.5, 0.5, 0.5]])

    assert alone == pytest.approx(among[0, [0, 2, 3]])
    assert np.isnan(among[0, 1])
    assert [0.5] * 4 == pytest.approx(among[1].tolist()) or adjust is multiplicity.holm


def test_group_and_tasks_share_alpha() -> None:
    """Values of a program written apart."""
    (case,) = kept("golden/group_and_tasks")
    tasks = np.stack(multiplicity.over_tasks([np.asarray(p) for p in case["task_p"]]))
    group, inside = multiplicity.graph(np.asarray(case["group_p"]), tasks)

    assert np.asarray(case["over_tasks"]) == pytest.approx(tasks)
    assert np.asarray(case["group"]) == pytest.approx(group)
    assert np.asarray(case["tasks"]) == pytest.approx(inside)


@pytest.mark.parametrize("adjust", [multiplicity.holm, multiplicity.benjamini_hochberg])
def test_no_adjusted_p_is_below_its_own(adjust):
    """To the last bit: 3 p / 3 may be less than p."""
    p_values = np.random.default_rng(5).random((2000, 7))

    assert (adjust(p_values) >= p_values).all()
