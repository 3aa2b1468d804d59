"""Bootstraps of ratings: against refits one by one, the sandwich, and other company."""

from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.ranking.ratings.uncertainty import bootstrap_bradley_terry, resample_counts
from evalstats_plugin.stats.streams import stream


@pytest.mark.parametrize("ties", ["half", "davidson", "rao-kupper"])
def test_bootstrap_covariance_agrees_with_the_sandwich(simulated, ties):
    _, made = simulated(6, 1500, 5, ties=0.2)
    drawn = bootstrap_bradley_terry(made, ties=ties, position=True, rng=0)
    fit = fit_bradley_terry(made, ties=ties, position=True, covariance="sandwich")

    np.testing.assert_allclose(drawn.rating, fit.rating, atol=1e-12)
    np.testing.assert_allclose(drawn.draws.mean(axis=0), fit.rating, atol=0.02)
    np.testing.assert_allclose(drawn.std_error, fit.std_error, rtol=0.12)
    for name, error in fit.parameter_std_errors.items():
        assert drawn.parameter_std_errors[name] == pytest.approx(error, rel=0.12)


@pytest.mark.parametrize("unit", ["cluster", "judge"])
def test_clusters_are_drawn_whole(llmfao, unit):
    drawn = bootstrap_bradley_terry(llmfao, unit=unit, rng=1, n_resamples=300)
    fit = fit_bradley_terry(llmfao, covariance=unit)

    assert np.median(drawn.std_error / fit.std_error) == pytest.approx(1, abs=0.07)


def test_clusters_are_resampled_by_default(llmfao):
    units = {
        unit: bootstrap_bradley_terry(llmfao, rng=1, n_resamples=20, **more).diagnostics["unit"]
        for unit, more in (("cluster", {}), ("contest", {"unit": "contest"}))
    }

    assert units == {"cluster": "cluster", "contest": "contest"}


def test_a_sample_is_the_refit_of_what_was_drawn(simulated):
    """The first sample, counted by the same numbers, fitted as contests of its own."""
    _, made = simulated(5, 300, 1, ties=0.1)
    made = replace(made, cluster=np.arange(300) // 6)
    drawn = bootstrap_bradley_terry(made, unit="cluster", n_resamples=3, rng=7)
    times = stream(7, "resampled contests").multinomial(50, np.full(50, 1 / 50), size=3)
    for draw, count in zip(drawn.draws, times, strict=True):
        again = made.take(np.repeat(np.arange(300), np.repeat(count, 6)))
        np.testing.assert_allclose(draw, fit_bradley_terry(again).rating, atol=1e-9)


@pytest.mark.parametrize("count", [[200, 60, 5, 1], [1, 2, 1]])
def test_resample_counts_are_multinomial(count):
    """Of n Bernoulli draws: covariance n (diag(p) - p p'); of 3 contests all are drawn singly."""
    count, samples = np.array(count), 20_000
    drawn = resample_counts(count, samples, np.random.default_rng(3))

    total, p = count.sum(), count / count.sum()
    assert (drawn.sum(axis=0) == total).all()
    error = np.sqrt(total * p * (1 - p) / samples)
    assert (np.abs(drawn.mean(axis=1) - count) < 4 * error).all()
    covariance = total * (np.diag(p) - np.outer(p, p))
    spread = np.sqrt(np.outer(*[np.diagonal(covariance)] * 2) + covariance**2)
    assert (np.abs(np.cov(drawn) - covariance) < 5 * spread / np.sqrt(samples)).all()


def test_samples_are_bitwise_the_same_for_any_number_of_samples(simulated):
    _, made = simulated(20, 2000, 3, ties=0.1)
    few, many = (bootstrap_bradley_terry(made, n_resamples=n, rng=4).draws for n in (50, 130))

    assert np.array_equal(few, many[:50])
    assert not np.array_equal(few, bootstrap_bradley_terry(made, n_resamples=50, rng=5).draws)


def test_samples_with_an_undefeated_player_are_finite_and_counted():
    """Player 0 loses one contest of ten, which a third of the samples lack."""
    made = Contests.of([0] * 10 + [1] * 9, [1] * 5 + [2] * 5 + [2] * 9,
                       [0] + [1] * 9 + [1, 0, 1, 0, 1, 0, 1, 0, 1])  # fmt: skip
    drawn = bootstrap_bradley_terry(made, rng=0)

    note = drawn.notes[0]
    found = int(note.split()[1])
    # The loss is missing with probability (18/19)^19 = .358; and little else can go wrong.
    assert 300 < found < 450
    assert np.isfinite(drawn.draws).all()
    assert np.abs(drawn.draws).max() < 20


def test_resampling_needs_clusters_or_judges(simulated):
    with pytest.raises(DesignError, match="have no cluster"):
        bootstrap_bradley_terry(simulated(3, 50, 0)[1], unit="cluster")


def test_a_million_battles_are_drawn_in_seconds(simulated, within_in_memory):
    """1,000 samples take about 2 s, the bound being 10: 64 of them, in 64 thousandths of it."""
    _, made = simulated(100, 1_000_000, 0, ties=0.1)
    drawn = within_in_memory(0.64, lambda: bootstrap_bradley_terry(made, n_resamples=64, rng=0))
    fit = fit_bradley_terry(made)
    assert np.median(drawn.std_error / fit.std_error) == pytest.approx(1, abs=0.06)
