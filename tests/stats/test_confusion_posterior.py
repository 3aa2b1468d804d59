"""Intervals of what a confusion table says, against definitions and sums over all tables."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from evalstats_plugin.stats import metric_intervals, metrics
from evalstats_plugin.stats.metric_intervals import posterior_differences


def test_wilson_f1_solves_the_score_equation():
    """At its limits, r is z standard errors, those of the limit, from what was seen."""
    low, high = metric_intervals.wilson_f1(35, 50, confidence_level=0.95)
    for limit in (low, high):
        r = limit / (2 - limit)

        assert abs(r - 35 / 50) == pytest.approx(1.959963985 * np.sqrt(r * (1 - r) / 50), rel=1e-8)


@pytest.mark.parametrize("prior", [0.5, 1.0])
def test_dirichlet_f1_is_what_drawn_tables_give(prior):
    """The closed form against gamma draws of all four cells."""
    table = np.array([[40.0, 3.0], [5.0, 12.0]])
    low, high = metric_intervals.dirichlet_f1(12, 20, confidence_level=0.9, prior=prior)
    drawn = np.random.default_rng(0).standard_gamma(table + prior, size=(200_000, 2, 2))
    values = metrics.f1(drawn)

    # Three standard errors of a tail of 5 % in 200,000 draws.
    assert (values < low).mean() == pytest.approx(0.05, abs=0.0015)
    assert (values > high).mean() == pytest.approx(0.05, abs=0.0015)


def test_f1_covers_as_stated_under_its_own_prior():
    """Exact, by summing over all tables of 12 items; the Wald interval does not."""
    covered = {"dirichlet": 0.0, "wald": 0.0}
    m = np.repeat(np.arange(1, 13), np.arange(2, 14))
    tp = np.concatenate([np.arange(k + 1) for k in range(1, 13)])
    chance = stats.betabinom.pmf(m, 12, 3, 1) * stats.betabinom.pmf(tp, m, 1, 2)
    for name in covered:
        if name == "dirichlet":
            limits = metric_intervals.dirichlet_f1(tp, m, confidence_level=0.95, prior=1.0)
            low, high = (f / (2 - f) for f in limits)
        else:
            half = 1.96 * np.sqrt(tp / m * (1 - tp / m) / m)
            low, high = np.clip(tp / m - half, 0, 1), np.clip(tp / m + half, 0, 1)
        mass = np.diff(special.betainc(tp + 1, m - tp + 2, [low, high]), axis=0)[0]
        covered[name] = chance @ mass / chance.sum()

    assert covered["dirichlet"] == pytest.approx(0.95, abs=1e-9)
    assert covered["wald"] < 0.8


def test_limits_of_many_tables_are_quantiles_of_draws_in_blocks(monkeypatch):
    """Two tables of three labels at a time, whose draws come from one stream."""
    monkeypatch.setattr(metric_intervals, "BLOCK_SIZE", 2 * 50 * 9)
    tables = np.random.default_rng(1).integers(0, 9, (5, 3, 3)) * 1.0
    tables[0, 2] = 0
    found = metric_intervals.dirichlet_interval(
        tables, metric="balanced_accuracy", prior=0.6, confidence_level=0.8, n_resamples=50,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for some in ([0, 1], [2, 3], [4]):
        prior = np.where(np.eye(3), 0.3, 0.15) * (tables[some].sum(axis=2, keepdims=True) > 0)
        drawn = rng.standard_gamma(tables[some] + prior, (50, len(some), 3, 3))
        share, own = map(metrics.balanced_accuracy, (drawn, tables[some]))
        low, high = np.quantile(share, [0.1, 0.9], axis=0)
        np.testing.assert_allclose(found.low[some], np.minimum(low, own), rtol=1e-12)
        np.testing.assert_allclose(found.high[some], np.maximum(high, own), rtol=1e-12)


def test_balanced_accuracy_is_the_mean_of_two_beta_variables():
    """Drawn limits against the distribution by quadrature."""
    table = np.array([[30.0, 6.0], [2.0, 10.0]])
    (low,), (high,) = metric_intervals.dirichlet_interval(
        table[None],
        metric="balanced_accuracy",
        prior=1.0,
        confidence_level=0.95,
        rng=np.random.default_rng(1),
        n_resamples=50_000,
    )
    first, second = stats.beta(30.5, 6.5), stats.beta(10.5, 2.5)
    for limit, expected in ((low, 0.025), (high, 0.975)):
        below, _ = integrate.quad(
            lambda x, limit=limit: first.pdf(x) * second.cdf(2 * limit - x), 0, 1
        )

        assert below == pytest.approx(expected, abs=0.0025)


@pytest.mark.parametrize("metric", ["mcc", "macro_f1", "balanced_accuracy"])
def test_the_interval_holds_the_estimate_even_without_mistakes(metric):
    """It reaches 1, and still has a width; another seed moves it a little only."""
    limits = [
        metric_intervals.dirichlet_interval(
            np.diag([5.0, 7.0, 4.0])[None],
            metric=metric,
            prior=1.0,
            confidence_level=0.95,
            rng=np.random.default_rng(seed),
            n_resamples=9999,
        )
        for seed in (0, 0, 1)
    ]

    assert limits[0].high[0] == 1
    assert 0.3 < limits[0].low[0] < 0.9
    assert limits[0].low == limits[1].low
    assert limits[0].low != limits[2].low
    assert limits[0].low == pytest.approx(limits[2].low, abs=0.02)


def test_a_label_that_is_never_gold_gets_no_prior():
    """Else balanced accuracy, which leaves it out, would change."""
    seen = np.array([[8.0, 2.0, 0.0], [1.0, 9.0, 0.0], [0.0, 0.0, 0.0]])
    settings = {"metric": "balanced_accuracy", "prior": 1.0, "confidence_level": 0.95}
    low, high = metric_intervals.dirichlet_interval(
        seen[None], **settings, rng=np.random.default_rng(0), n_resamples=9999
    )
    two = metric_intervals.dirichlet_interval(
        seen[None, :2, :2], **settings, rng=np.random.default_rng(0), n_resamples=9999
    )

    assert low == pytest.approx(two.low, abs=0.03)
    assert high == pytest.approx(two.high, abs=0.03)


def test_the_prior_of_pairs_is_a_half_in_each_of_the_eight_cells():
    """For two labels: as many draws from gamma variables of all eight agree."""
    table = np.array([[[20.0, 3.0], [2.0, 5.0]], [[4.0, 2.0], [3.0, 11.0]]])
    gold, a, b = np.indices((2, 2, 2)).reshape(3, 8)
    statistics = np.stack([metrics.one_hot(gold, p, 2) for p in (a, b)])
    prior = metric_intervals.prior_of_pairs(table.sum(axis=2), prior=0.5)
    pair = (np.array([0]), np.array([1]))
    drawn = posterior_differences(
        statistics,
        table.ravel(),
        pair,
        prior,
        lambda sums: metrics.f1(sums.reshape(*sums.shape[:-1], 2, 2)),
        rng=np.random.default_rng(2),
        n_resamples=100_000,
    )[:, 0]
    direct = np.random.default_rng(3).standard_gamma(table + 0.5, size=(100_000, 2, 2, 2))
    expected = metrics.f1(direct.sum(axis=2)) - metrics.f1(direct.sum(axis=3))

    assert stats.ks_2samp(drawn, expected).pvalue > 0.001
    assert len(prior.counts) == 8
