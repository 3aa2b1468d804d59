"""Mean of human labels with a judge's scores of many items."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats import survey

UNIT = {"bounds": (0, 1), "confidence_level": 0.95}


def drawn(n, n_judged, seed=0):
    rng = np.random.default_rng(seed)
    truth = 1.0 * (rng.uniform(size=n_judged) < 0.7)
    judged = np.where(rng.uniform(size=n_judged) < 0.85, truth, 1 - truth)
    return np.where(np.arange(n_judged) < n, truth, np.nan), judged


def tables(n):
    """Every table of n labels by judge: right and passed, right and failed, wrong and passed."""
    counts = np.array([c for c in product(range(n + 1), repeat=3) if sum(c) <= n])
    return np.column_stack([counts, n - counts.sum(axis=1)])


def as_items(counts, n_unlabelled, passed):
    """Labels and judge scores, one row per table, and so many unlabelled that the judge passed."""
    n = int(counts[0].sum())
    place = np.arange(n)
    ends = np.cumsum(counts, axis=1)
    labels = 1.0 * (place < ends[:, 1:2])
    judged = 1.0 * ((place < ends[:, :1]) | ((place >= ends[:, 1:2]) & (place < ends[:, 2:3])))
    rest = np.broadcast_to(1.0 * (np.arange(n_unlabelled) < passed), (len(counts), n_unlabelled))
    unlabelled = np.full_like(rest, np.nan)
    return np.hstack([labels, unlabelled]), np.hstack([judged, rest])


def test_it_is_ppi_plus_plus():
    """Angelopoulos, Duchi, Zrnic 2023: the mean and its power-tuned weight, written as there."""
    labels, judged = drawn(30, 500)
    y, f, rest = labels[:30], judged[:30], judged[30:]
    weight = np.cov(y, f)[0, 1] / ((1 + 30 / 470) * f.var(ddof=1))
    expected = weight * rest.mean() + (y - weight * f).mean()
    found = survey.ppi(labels, judged, **UNIT)

    assert float(found.power) == pytest.approx(weight, rel=1e-12)
    assert float(found.estimate) == pytest.approx(expected, rel=1e-12)
    assert (30, 500) == (found.n, found.population)
    assert found.gain > 1.3


@pytest.mark.parametrize("truth", [0.8, 0.95, 0.98])
def test_twenty_labels_of_a_strong_model_cover(truth):
    """Exact sums over all tables of 20 labels; the papers' normal interval falls far short.

    The judge agrees with 95 % of the labels and scored 1,000 items more, of which it passed as
    many as expected.
    """
    counts = tables(20)
    cells = [0.95 * truth, 0.05 * truth, 0.05 * (1 - truth), 0.95 * (1 - truth)]
    chance = stats.multinomial.pmf(counts, 20, cells)
    passed = round(1000 * (cells[0] + cells[2]))
    likely = chance > 1e-9
    found = survey.ppi(*as_items(counts[likely], 1000, passed), **UNIT)
    half = stats.norm.ppf(0.975) * found.std_error
    ours = (found.interval.low <= truth) & (truth <= found.interval.high)
    normal = np.abs(found.estimate - truth) <= half

    assert chance[likely].sum() > 1 - 1e-5
    assert chance[likely] @ ours >= 0.91
    assert chance[likely] @ normal < 0.8


def test_a_judge_that_says_always_the_same_changes_nothing():
    """The labels alone, and weight 0."""
    labels, judged = drawn(30, 500)
    found = survey.ppi(labels, np.ones_like(judged), **UNIT)

    assert 0.0 == float(found.power)
    assert float(labels[:30].mean()) == float(found.estimate)
    assert float(found.gain) == pytest.approx(1, rel=1e-12)


def test_labels_of_all_items_leave_nothing_to_the_judge():
    """Weight 0, the mean of the labels."""
    labels, judged = drawn(200, 200)
    found = survey.ppi(labels, judged, **UNIT)

    assert 0.0 == float(found.power)
    assert float(labels.mean()) == pytest.approx(float(found.estimate), abs=1e-12)


def test_scales_of_labels_and_judge_do_not_matter():
    """Grades from 1 to 5 and points of 100; without bounds only the interval's shape differs."""
    labels, judged = drawn(40, 300)
    one = survey.ppi(labels, judged, **UNIT)
    other = survey.ppi(1 + 4 * labels, 100 - 100 * judged, bounds=(1, 5), confidence_level=0.95)
    unbounded = survey.ppi(1 + 4 * labels, judged, bounds=None, confidence_level=0.95)

    assert float(other.estimate) == pytest.approx(1 + 4 * float(one.estimate), rel=1e-12)
    assert np.allclose(other.interval, 1 + 4 * np.array(one.interval), rtol=1e-12, atol=0)
    assert float(other.std_error) == pytest.approx(4 * float(one.std_error), rel=1e-12)
    assert float(other.power) == pytest.approx(-4 / 100 * float(one.power), rel=1e-12)
    assert float(unbounded.estimate) == pytest.approx(float(other.estimate), rel=1e-12)
    low, high = unbounded.interval
    assert float(low + high) == pytest.approx(2 * float(unbounded.estimate), rel=1e-12)


def test_labels_out_of_bounds_are_refused():
    """By name."""
    with pytest.raises(ValueError, match="labels must lie within"):
        survey.ppi([2.0] * 5, [1.0] * 5, **UNIT)
