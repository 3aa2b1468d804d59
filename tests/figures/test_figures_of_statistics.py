"""Figures of statistics by themselves: of drawn numbers, with and without missing ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
from figures import Run, changed

from evalstats_plugin.stats import clustered, grid_posteriors, means, metric_intervals, metrics
from evalstats_plugin.stats.pairs import paired, power
from evalstats_plugin.stats.survey import finite_population, prediction_powered, regression, strata


def _draw(seed: int, *shape: int, missing: float = 0.0) -> np.ndarray:
    """Numbers between 0 and 1; some are missing."""
    rng = np.random.default_rng(seed)
    values = rng.beta(2, 1.5, shape)
    values[rng.random(shape) < missing] = np.nan
    return values


def _bits(seed: int, *shape: int, missing: float = 0.0) -> np.ndarray:
    return np.where(np.isnan(drawn := _draw(seed, *shape, missing=missing)), np.nan, drawn > 0.6)


COSTS, RIGHT = 40 * _draw(1, 3, 30, missing=0.1) ** 2, _bits(2, 3, 30)
SIZES, SUCCESSES = np.array([[1, 4, 2, 8, 3, 5, 2, 9.0]]), np.array([[1, 3, 0, 6, 3, 2, 2, 9.0]])
PAIRS = paired.paired_counts(
    np.array([20, 0, 5, 30, 12]), np.array([3, 0, 9, 0, 1]), np.array([8, 4, 2, 0, 1]),
    np.array([9, 1, 0, 2, 40]),
)  # fmt: skip
COVARIATE = _draw(5, 40)
PART = np.where(
    np.arange(40) < np.array([[40], [25], [12]]), _draw(6, 3, 40) + COVARIATE / 2, np.nan
)
CONFUSION = np.array([[[20, 3, 1], [4, 9, 2], [0, 5, 11.0]], [[9, 0, 0], [0, 9, 0], [3, 0, 0.0]]])
LEVELS = (0.9, 0.95)


def _newly(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


RUNS: Mapping[str, Mapping[str, Run]] = {
    "means": {
        **{f"{how.__name__} {level}": partial(how, COSTS, confidence_level=level)
           for how in (means.z_interval, means.t_interval) for level in LEVELS},
        **{f"{how.__name__} {level}": lambda how=how, level=level: how(
            COSTS, confidence_level=level, rng=_newly(0), n_resamples=60)
           for how in (means.percentile_bootstrap, means.bca_bootstrap,
                       means.studentised_bootstrap) for level in LEVELS},
        "moments": partial(means.moments, COSTS), "errors": partial(means.std_error, COSTS),
        "t": partial(means.t_prob_positive, np.array([0.1, -0.2, 0.0]), np.array([0.1, 0.1, 0.0]),
                     np.array([5.0, 9.0, 3.0])),
    },
    "ratios": {
        "ratio": partial(means.ratio, COSTS, RIGHT),
        "error": partial(means.ratio_std_error, COSTS, RIGHT),
        "jackknife": partial(means.jackknife_std_error, COSTS, RIGHT),
        **{f"{how.__name__} {level}": partial(how, COSTS, RIGHT, confidence_level=level)
           for how in (means.ratio_t, means.ratio_jackknife) for level in LEVELS},
        **{f"skewed {row} {name}": partial(means.skewed_ratio, COSTS[row], right,
                                           confidence_level=0.9, weights=weights)
           for row in range(2)
           for name, right, weights in (
               ("plain", RIGHT[row], None), ("weights", RIGHT[row], 0.5 + _draw(3, 30)),
               ("none right", 0 * RIGHT[row], None),
               ("few right", 1.0 * (np.arange(30) == 4), None))},
    },
    "clusters": {
        "of values": partial(clustered.by_cluster, _draw(4, 2, 9), np.arange(9) % 4),
        "moments": partial(clustered.cluster_moments, SUCCESSES, SIZES),
        "t": partial(clustered.t_cr2, SUCCESSES, SIZES, confidence_level=0.9),
        "logit": partial(clustered.logit_t_cr2, SUCCESSES, SIZES, bounds=(0, 1),
                         confidence_level=0.9),
        "degrees": partial(clustered.satterthwaite, SIZES),
        "trend": partial(clustered.size_trend, SUCCESSES, SIZES),
        "correlation": partial(clustered.anova_icc, SUCCESSES, SUCCESSES, SIZES),
        "noise": partial(clustered.epoch_noise, _bits(7, 20, 4, missing=0.2)),
        "parts": partial(clustered.variance_parts, _bits(7, 20, 4, missing=0.2)),
        "regression": partial(clustered.clustered_regression, _draw(8, 30), np.column_stack(
            [np.ones(30), _draw(9, 30)]), np.arange(30) // 3),
        "regression of uneven": partial(clustered.clustered_regression, _bits(8, 30),
            np.column_stack([np.ones(30), _draw(9, 30), np.arange(30)]), np.arange(30) ** 2 // 90),
        **{f"{how.__name__} {k}": partial(how, np.arange(6), 5, k=k)
           for how in (clustered.pass_at_k, clustered.pass_hat_k, clustered.majority_at_k)
           for k in (1, 2, 3, 5)},
        **{f"votes {k}": partial(clustered.vote_at_k, np.array(
            [list("aab"), list("abc"), list("bbb"), list("cab")]), _bits(11, 4, 3), k=k)
           for k in (1, 2, 3)},
    },
    "crossed": {
        f"{error} {seed}": lambda error=error, seed=seed: [
            told := clustered.crossed(_draw(seed, 12, 5) + np.arange(5) * seed / 40, error),
            [told.widened(half, level, n) for half in (0.05, 0.2) for level in LEVELS
             for n in (1, 3)],
            [told.p_value(half, level, n) for half in (0.05, 0.2) for level in LEVELS
             for n in (1, 3)],
        ]
        for error in (0.0, 0.05, 0.2) for seed in (0, 1, 4)
    },
    "posteriors over grids": {
        **{f"sizes {estimand} {population}": partial(
            grid_posteriors.size_beta_binomial, SUCCESSES, SIZES, confidence_level=0.9,
            estimand=estimand, clusters=population)
           for estimand in ("items", "clusters") for population in ("random", "fixed")},
        "slope": partial(grid_posteriors.size_slope, SUCCESSES, SIZES),
        "alike": partial(grid_posteriors.size_slope, 0 * SUCCESSES, SIZES),
        "beyond": partial(grid_posteriors.size_beta_binomial, 11 * SUCCESSES, 11 * SIZES,
                          confidence_level=0.95),
    },
    "pairs of right and wrong": {
        **{f"{how.__name__} {level}": partial(how, PAIRS, confidence_level=level)
           for how in (paired.tango, paired.bonett_price, paired.newcombe, paired.wald)
           for level in LEVELS},
        **{f"dirichlet {level}": partial(paired.dirichlet, PAIRS, confidence_level=level,
                                         prior=(0.7, 0.4)) for level in LEVELS},
        "better": partial(paired.prob_better, PAIRS, prior=(0.5, 0.5)),
        "mid-p": partial(paired.mcnemar_mid_p, PAIRS),
        "dirichlet process": partial(paired.dirichlet_process_prob, _draw(12, 3, 20) - 0.5,
                                     bounds=(-1, 1), mass=2.0),
        "t": partial(paired.t_prob, _draw(12, 3, 20) - 0.5),
    },
    "power": {
        **{f"{how.__name__} {tail}": partial(how, np.array([20, 90, 400]), np.array([0.1, 0.05, 0]),
                                             np.array([0.2, 0.1, 0.3]), tail=tail)
           for how in (power.normal_power, power.t_power) for tail in (0.025, 0.05)},
        **{f"{how.__name__} {goal}": partial(how, np.array([0.1, 0.05]), np.array([0.2, 0.1]),
                                             tail=0.025, power=goal)
           for how in (power.items_needed, power.difference_needed) for goal in (0.8, 0.9)},
        "epochs": partial(power.epochs_needed, np.array([0.1, 0.02]), np.array([90, 90]),
                          between=0.05, within=0.2, tail=0.025, power=0.8),
        "paired": partial(power.paired_power, np.array([20, 90, 400]), np.array([0.3, 0.2, 0.1]),
                          np.array([0.1, 0.1, 0.05]), tail=0.025),
        "paired items": partial(power.paired_items_needed, np.array([0.3, 0.2]),
                                np.array([0.12, 0.1]), tail=0.025, power=0.8),
        "looks": partial(power.mixture_power, np.array([30.0, 60, 90]), 0.2, discordance=0.4,
                         tail=0.025),
        "looks of scores": partial(power.mixture_power, np.array([30.0, 60, 90]), 0.1,
                                   variance=0.06, tail=0.025),
        "counts": partial(power.critical_count, np.arange(30.0), tail=0.025),
    },
    "few labels": {
        f"{name} {kind}": partial(
            how, _bits(20, 3, 40, missing=0.5) if kind == "bits" else _draw(20, 3, 40, missing=0.5),
            (_draw(20, 3, 40) + _draw(21, 3, 40)) / 2, **options)
        for kind in ("bits", "shares")
        for name, how, options in (
            ("scores", prediction_powered.cross_fitted, {}),
            ("shared", prediction_powered.cross_fitted, {"shared": True}),
            ("finite", prediction_powered.cross_fitted, {"finite": True}),
            ("clusters", prediction_powered.cross_fitted, {"clusters": np.arange(40) // 3}),
            ("finite clusters", prediction_powered.cross_fitted,
             {"clusters": np.arange(40) // 3, "finite": True}),
            ("chosen", prediction_powered.cross_fitted,
             {"probabilities": 0.3 + 0.6 * _draw(22, 3, 40)}),
            ("means", prediction_powered.ppi, {"bounds": (0.0, 1.0), "confidence_level": 0.9}),
            ("no bounds", prediction_powered.ppi, {"bounds": None, "confidence_level": 0.95}),
            ("these", prediction_powered.ppi,
             {"bounds": (0.0, 1.0), "confidence_level": 0.95, "finite": True}),
            ("means of clusters", prediction_powered.ppi,
             {"bounds": (0.0, 1.0), "confidence_level": 0.95, "clusters": np.arange(40) // 3}))
    },
    "regression on all items": {
        **{f"power {k}": partial(regression.adjust_to_benchmark, PART, COVARIATE, leverage_power=k)
           for k in (1, 2)},
        **{f"t {level}": lambda level=level: regression.adjusted_t_interval(
            regression.adjust_to_benchmark(PART, COVARIATE), confidence_level=level)
           for level in LEVELS},
        **{f"bounded {unseen} {level}": lambda unseen=unseen, level=level:
           regression.adjusted_bounded_interval(
               regression.adjust_to_benchmark(PART / 2, COVARIATE), unseen_errors=unseen,
               confidence_level=level) for unseen in ("full", "damped") for level in LEVELS},
        "gain": lambda: regression.adjust_to_benchmark(PART, COVARIATE).gain,
    },
    "parts and strata": {
        "correction": partial(finite_population.finite_population_correction, np.array([5, 9]),
                              np.array([10, 9])),
        "smoothed": partial(strata.smoothed_binary, np.array([3, 0, 9]), np.array([9, 4, 9])),
        "smoothed scores": partial(strata.smoothed_scores, _draw(23, 3, 9, missing=0.2)),
        "weighted": partial(strata.weighted_mean, _draw(24, 4), np.array([1, 2, 3, 4.0])),
    },
    "labels": {
        **{how.__name__: partial(how, CONFUSION)
           for how in (metrics.mcc, metrics.balanced_accuracy,
                       metrics.macro_f1, metrics.weighted_f1, metrics.agreement)},
        **{how.__name__: partial(how, CONFUSION[:, :2, :2])
           for how in (metrics.precision, metrics.recall, metrics.f1)},
        "weighted agreement": partial(metrics.agreement, CONFUSION, metrics.quadratic_weights(
            [1, 2, 5])),
        "area": partial(metrics.auc, _bits(25, 30) > 0, np.round(_draw(26, 30), 1)),
        **{f"area's limits {level} {seed}": lambda level=level, seed=seed:
           metric_intervals.auc_newcombe(_bits(seed, 30) > 0, _draw(seed, 30) + _draw(26, 30) ** 2,
                                         confidence_level=level)
           for level in LEVELS for seed in (25, 27)},
        **{f"f1 {how.__name__} {level}": partial(how, np.array([12, 0, 9, 30]),
                                                 np.array([20, 5, 9, 40]), confidence_level=level)
           for how in (metric_intervals.wilson_f1,) for level in LEVELS},
        "f1 dirichlet": partial(metric_intervals.dirichlet_f1, np.array([12, 0, 9, 30]),
                                np.array([20, 5, 9, 40]), confidence_level=0.9, prior=0.5),
        "prior": partial(metric_intervals.prior_of_pairs, CONFUSION[0], prior=0.5),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("statistics", run, RUNS[run]) == []
