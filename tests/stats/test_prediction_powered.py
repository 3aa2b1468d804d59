"""Mean of human labels with a judge's scores of many items."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats.survey.prediction_powered import _part_of_differences, cross_fitted, ppi

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


def test_it_is_ppi_plus_plus_with_cross_fitting():
    """Angelopoulos, Duchi, Zrnic 2023, eq. 9 in terms of all items; each slope without the item."""
    labels, judged = drawn(30, 500)
    y, f = labels[:30], judged[:30]
    without = np.arange(30)[:, None] != np.arange(30)
    slopes = np.array([np.polyfit(f[keep], y[keep], 1)[0] for keep in without])
    rest = y - slopes * (f - judged.mean())
    found = ppi([labels], [judged], **UNIT)

    assert float(found.power[0]) == pytest.approx(slopes.mean(), rel=1e-9)
    assert float(found.estimate[0]) == pytest.approx(rest.mean(), rel=1e-9)
    assert (30, 500) == (found.n, found.population)
    explained = np.var(slopes * (f - judged.mean())) / 500
    assert float(found.of_label[0]) == pytest.approx(1 - explained / found.std_error[0] ** 2)
    assert found.gain > 1.3


def test_it_agrees_with_ppi_py_but_for_the_cross_fitting():
    """ppi-python 0.2.3, `ppi_mean_pointestimate` and `ppi_mean_ci`, on 25 labels of 60 items."""
    rng = np.random.default_rng(7)
    quality = rng.normal(size=60)
    labels = (quality > -0.3) * 1.0
    judged = (1 / (1 + np.exp(-(2 * quality + rng.normal(size=60))))).round(3)
    expected, low, high = 0.58499607, 0.42911391, 0.74087823
    known = np.where(np.arange(60) < 25, labels, np.nan)
    y, f, rest = labels[:25], judged[:25], judged[25:]
    weight = np.cov(y, f, ddof=0)[0, 1] / ((1 + 25 / 35) * judged.var(ddof=1))
    error = np.sqrt((weight * rest).var() / 35 + (y - weight * f).var() / 25)
    found = ppi([known], [judged], **UNIT)

    # The published formulas, which the study compares with ours.
    estimate = weight * rest.mean() + (y - weight * f).mean()
    half = stats.norm.ppf(0.975) * error
    assert (estimate, estimate - half, estimate + half) == pytest.approx(
        (expected, low, high), abs=1e-8
    )
    assert float(found.estimate[0]) == pytest.approx(expected, abs=0.01)
    assert found.interval.high[0] - found.interval.low[0] > high - low


def test_slopes_without_a_cluster_are_those_of_the_other_items():
    """Of the other clusters alone, and corrected for the items that are not sampled."""
    rng = np.random.default_rng(4)
    y, f = rng.normal(size=(2, 2, 24))
    clusters = np.arange(24) // 4
    y[:, 20:] = np.nan
    found = cross_fitted(y, f, clusters=clusters, finite=True)
    others = slice(4, 20)
    slope = np.polyfit(f[0, others], y[0, others], 1)[0]
    mean = np.nanmean(found.scores[0])
    own = y[0, 0] - slope * (f[0, 0] - f[0].mean())

    assert found.scores[0, 0] == pytest.approx(mean + np.sqrt(4 / 24) * (own - mean), rel=1e-9)


def test_models_that_are_compared_have_the_slope_of_their_differences():
    """Of two models, PPI's slope for the mean difference; one for both, without the item."""
    rng = np.random.default_rng(4)
    y, f = rng.normal(size=(2, 2, 24))
    y[:, 20:] = np.nan
    found = cross_fitted(y, f, shared=True, finite=True)
    x, d = (np.diff(v[:, :20], axis=0)[0] for v in (f, y))
    slopes = [np.polyfit(np.delete(x, j), np.delete(d, j), 1)[0] for j in range(20)]
    rest = d - np.array(slopes) * (x - np.diff(f.mean(axis=1)))

    assert found.slope[0] == found.slope[1] == pytest.approx(np.mean(slopes), rel=1e-9)
    assert np.nanmean(np.diff(found.scores, axis=0)) == pytest.approx(rest.mean(), rel=1e-9)


@pytest.mark.parametrize("n_both", [4, 9, 10, 20])
@pytest.mark.parametrize("shared", [True, False])
def test_scores_of_models_that_share_some_labels_by_definition(shared, n_both):
    """One slope of models' own deviations; of their differences where half the items are in both.

    The judge's part is multiplied by what differences have of it.
    """
    rng = np.random.default_rng(n_both)
    f = rng.normal(size=40) + 0.7 * rng.normal(size=(2, 40))
    y = 0.8 * f + rng.normal(size=(2, 40))
    last = (20 - n_both) // 2
    y[0, :last] = y[1, n_both + last :] = y[:, 20:] = np.nan
    seen = ~np.isnan(y)
    n, both = seen.sum(axis=1), seen.all(axis=0)
    x = f - f.mean(axis=1, keepdims=True)

    def slope(models, j):
        if shared and both.sum() >= seen.any(axis=0).sum() / 2:
            keep = both & (np.arange(40) != j)
            return np.polyfit(np.diff(f[:, keep], axis=0)[0], np.diff(y[:, keep], axis=0)[0], 1)[0]
        covariances = [np.cov(f[m, k], y[m, k]) * (k.sum() - 1)
                       for m in models for k in [seen[m] & (np.arange(40) != j)]]  # fmt: skip
        return sum(c[0, 1] for c in covariances) / sum(c[0, 0] for c in covariances)

    slopes = np.array([[slope([0, 1] if shared else [m], j) for j in range(40)] for m in (0, 1)])
    part = _part_of_differences(f, np.ones_like(seen), seen) if shared else 1.0
    explained = np.where(seen, slopes * x, np.nan)
    own = explained - np.nanmean(explained, axis=1, keepdims=True)
    share = (n / 40 * part)[:, None]
    found = cross_fitted(y, f, shared=shared)

    np.testing.assert_allclose(found.scores, y - explained + np.sqrt(share) * own, rtol=1e-9)
    np.testing.assert_allclose(found.slope, np.nanmean(np.where(seen, slopes, np.nan), axis=1))
    np.testing.assert_allclose(found.explained, share[:, 0] * np.nansum(own**2, axis=1) / n**2)


def test_one_label_is_its_own_mean():
    """Nothing is known of the judge."""
    found = cross_fitted([[0.7, np.nan, np.nan]], [[0.1, 0.9, 0.3]])
    assert (found.scores[0, 0], found.slope, found.explained) == (0.7, 0.0, 0.0)


def test_labels_of_all_items_are_left_as_they_are():
    """Whatever the judge says."""
    y, f = np.random.default_rng(4).normal(size=(2, 2, 24))

    assert np.allclose(cross_fitted(y, f).scores, y, rtol=0, atol=1e-12)


def test_probabilities_make_up_for_answers_that_were_looked_at_more_often():
    """Hájek's mean: weights of 1 / probability; the plain mean is far off."""
    rng = np.random.default_rng(2)
    truth = 1.0 * (np.arange(4000) % 4 == 0)
    chance = np.where(truth > 0, 0.4, 0.05)
    labels = np.where(rng.random(4000) < chance, truth, np.nan)
    flat = np.zeros(4000)
    weighted = ppi([labels], [flat], probabilities=[chance], **UNIT)
    plain = ppi([labels], [flat], **UNIT)

    assert abs(weighted.estimate[0] - 0.25) < 0.06 < plain.estimate[0] - 0.5
    assert weighted.interval.low[0] < 0.25 < weighted.interval.high[0]


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
    found = ppi(*as_items(counts[likely], 1000, passed), **UNIT)
    half = stats.norm.ppf(0.975) * found.std_error
    ours = (found.interval.low <= truth) & (truth <= found.interval.high)
    normal = np.abs(found.estimate - truth) <= half

    assert chance[likely].sum() > 1 - 1e-5
    assert chance[likely] @ ours >= 0.91
    assert chance[likely] @ normal < 0.8


def test_a_judge_that_says_always_the_same_changes_nothing():
    """The labels alone, and weight 0."""
    labels, judged = drawn(30, 500)
    found = ppi([labels], [np.ones_like(judged)], **UNIT)

    assert 0.0 == float(found.power[0])
    assert float(labels[:30].mean()) == float(found.estimate[0])
    assert float(found.gain[0]) == pytest.approx(1, rel=1e-12)


def test_labels_of_all_items_leave_nothing_to_the_judge():
    """Weight 0, the mean of the labels, which of these very items is certain."""
    labels, judged = drawn(200, 200)
    found = ppi([labels], [judged], **UNIT)
    certain = ppi([labels], [judged], finite=True, **UNIT)

    assert 0.0 == float(found.power[0])
    assert float(labels.mean()) == pytest.approx(float(found.estimate[0]), abs=1e-12)
    assert np.allclose(certain.interval, labels.mean(), rtol=0, atol=1e-12)


def test_models_labelled_apart_vary_by_what_the_judge_says_of_their_differences():
    """By the analysis of variance of the judge's scores, for the share of items labelled once."""
    rng = np.random.default_rng(3)
    f = rng.normal(size=(3, 30)) + 2 * rng.normal(size=30)
    seen = np.zeros((3, 30), dtype=bool)
    seen[0, :8] = seen[1, 5:12] = seen[2, 10:20] = True
    alike = np.mean([seen[:, j].sum() > 1 for j in range(20)])
    rows = f - f.mean(axis=1, keepdims=True)
    rest = rows - rows.mean(axis=0)
    of_differences = (rest**2).sum() / (2 * 29) / ((rows**2).sum() / (3 * 29))
    expected = alike + (1 - alike) * of_differences

    part = _part_of_differences(f, np.ones_like(seen), seen)
    assert part == pytest.approx(expected, rel=1e-12)
    assert 0.4 < part < 0.8
    # A judge that says the same of all has no variance to share.
    assert _part_of_differences(np.full((3, 30), 0.5), np.ones_like(seen), seen) == 1.0


def test_scales_of_labels_and_judge_do_not_matter():
    """Grades from 1 to 5 and points of 100; without bounds only the interval's shape differs."""
    labels, judged = drawn(40, 300)
    one = ppi([labels], [judged], **UNIT)
    other = ppi([1 + 4 * labels], [100 - 100 * judged], bounds=(1, 5), confidence_level=0.95)
    unbounded = ppi([1 + 4 * labels], [judged], bounds=None, confidence_level=0.95)

    assert float(other.estimate[0]) == pytest.approx(1 + 4 * float(one.estimate[0]), rel=1e-12)
    assert np.allclose(other.interval, 1 + 4 * np.array(one.interval), rtol=1e-12, atol=0)
    assert float(other.std_error[0]) == pytest.approx(4 * float(one.std_error[0]), rel=1e-12)
    assert float(other.power[0]) == pytest.approx(-4 / 100 * float(one.power[0]), rel=1e-12)
    assert float(unbounded.estimate[0]) == pytest.approx(float(other.estimate[0]), rel=1e-12)
    low, high = unbounded.interval
    assert float((low + high)[0]) == pytest.approx(2 * float(unbounded.estimate[0]), rel=1e-12)


@pytest.mark.parametrize("label", [-0.2, 1.2])
def test_labels_beyond_their_bounds_are_refused(label):
    labels, judged = drawn(20, 60)
    labels[3] = label

    with pytest.raises(ValueError, match=r"labels must lie within their bounds \(0, 1\)"):
        ppi(labels[None], judged[None], **UNIT)
    assert np.isfinite(ppi(labels[None], judged[None], bounds=None, confidence_level=0.95)[1].low)
