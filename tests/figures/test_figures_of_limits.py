"""Figures of limits by themselves: of counts at both ends, of partial credit, pairs and units."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from figures import Run, changed

from evalstats_plugin.stats import (
    arrays,
    bounded,
    clustered,
    grid_posteriors,
    interval,
    means,
    metric_intervals,
    metrics,
    multiplicity,
    ranks,
    reach,
    sequential,
)
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.pairs import differences, paired, power, simultaneous, unpaired
from evalstats_plugin.stats.survey import finite_population, prediction_powered, strata

LEVELS = (0.9, 0.95)
RIGHT = np.array([0, 0, 1, 0, 1, 2, 1, 5, 20, 19, 3, 500, 999, 0])
OF = np.array([0, 1, 1, 2, 2, 2, 9, 9, 20, 20, 700, 1000, 1000, 1000])
PAIRS = paired.paired_counts(
    np.array([20, 0, 5, 30, 12, 0, 0, 0, 3]), np.array([3, 0, 9, 0, 1, 7, 0, 0, 60]),
    np.array([8, 4, 2, 0, 1, 0, 5, 0, 90]), np.array([9, 1, 0, 2, 40, 0, 0, 0, 7]),
)  # fmt: skip
APART = unpaired.independent_counts(
    np.array([3, 0, 9, 5, 0, 40, 7, 12, 0, 900, 40]),
    np.array([9, 8, 9, 11, 6, 90, 7, 20, 0, 1000, 400]),
    np.array([8, 5, 0, 5, 0, 30, 5, 12, 1, 100, 90]),
    np.array([12, 5, 7, 11, 7, 41, 5, 30, 3, 1000, 100]),
)  # fmt: skip
PRIORS = ((1.0, 1.0), (0.5, 0.5), (2.0, 0.3), (0.3, 2.0))


def _newly(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _credit(seed: int, *shape: int, missing: float = 0.0) -> np.ndarray:
    """Partial credit, of which some is none, some is full, and some is missing."""
    rng = _newly(seed)
    values = np.clip(rng.normal(0.6, 0.35, shape), 0, 1)
    values[rng.random(shape) < missing] = np.nan
    return values


def _gappy(seed: int) -> np.ndarray:
    """Rows with all scores, with some, with equal ones, with one, and with none."""
    scores = np.round(_credit(seed, 6, 12, missing=0.1), 2)
    scores[1], scores[2, 1:], scores[3], scores[4] = 0.4, np.nan, np.nan, np.arange(12) % 2
    return scores


NARROW = 0.7 + 0.001 * _credit(3, 2, 9)
TINY = np.where(np.arange(500) % 5 == 0, 0.0015, 1.0)
ROWS = np.array([
    [1, -1, 0, 0, 0.5, 0.2, -0.3, 0.9], [0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, -1, 1, 0, 1],
    [np.nan, 0.2, 0.4, 0.1, np.nan, 0.3, 0.2, 0.1], [0.5, 0.5, 0, -0.5, 0, 0.5, 0.5, 0.5],
    [-0.9, -0.8, -0.9, -0.7, -0.9, -0.8, -1, -0.9],
    [np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan],
])  # fmt: skip
SIZES = np.array([1, 2, 1, 3, 1, 1, 4, 2.0])


def _differences(**options: Any) -> dict[str, Any]:
    """All that is known of pairs, with limits that allow for one item more."""
    sizes = options.get("sizes")
    pairs = differences.Differences(ROWS * (1 if sizes is None else sizes), **options)
    return _of_pairs(pairs)


def _of_pairs(pairs: differences.MeanDifferences) -> dict[str, Any]:
    z = np.linspace(0.6, 2.8, pairs.shape[0])
    unseen = {"unseen": pairs.one_more(z, unseen=True)} if np.isfinite(pairs.span) else {}
    return {
        "estimate": pairs.estimate, "deviate": pairs.deviate, "far": pairs.far,
        "units": pairs.n_units, "p": pairs.p_value, "higher": pairs.prob_higher,
        "limits": [pairs.limits(z), pairs.limits(2.5), pairs.limits(0.01), pairs.limits(6.0)],
        "one more": pairs.one_more(z), "size": pairs.of_one_size[0], **unseen,
    }  # fmt: skip


def _together(kind: str, n: int = 4, m: int = 24, seed: int = 0) -> dict[str, Any]:
    """All pairs of models: by counts or differences, all or only some items, all pairs or some."""
    rng = _newly(seed)
    scores = 1.0 * (rng.random((n, m)) < np.linspace(0.3, 0.8, n)[:, None])
    if "scores" in kind:
        scores = np.round(scores * rng.random((n, m)), 2)
    if "alike" in kind:
        scores[1] = scores[0][::-1]
    if "equal" in kind:
        scores[:] = scores[0]
    if "one wrong" in kind:
        scores[2] = 0
    a, b = np.triu_indices(n, 1)
    if "some pairs" in kind:
        a, b = a[:-1], b[:-1]
    if "missing" in kind:
        scores[rng.random((n, m)) < 0.1] = np.nan
    x = scores[b] - scores[a]
    pairs = differences.Differences(x, span=1.0)
    units = simultaneous.Units(scores, np.ones(m))
    if "missing" in kind:
        seen = 1.0 * ~np.isnan(x)
        units = units._replace(differences=lambda chosen: (np.nan_to_num(x[chosen]), seen[chosen]))
    found = simultaneous.AllPairs(pairs, units, a, b, n_draws=399)
    return {
        "stretch": found.stretch, "deviate": found.deviate, "p": found.p_values,
        "critical": [found.critical(alpha) for alpha in (0.01, 0.05, 0.3, 0.6)],
        "limits": [found.limits(0.05), found.limits(0.2)], "down": found.step_down(),
        "first": [found.first(alpha, lower_is_better=lower)
                  for alpha in (0.05, 0.3, 0.9) for lower in (False, True)],
        "procedure": len(found.procedure),
    }  # fmt: skip


UNITS = np.stack([np.abs(_credit(5, 10, 3)) * 9, np.abs(_credit(6, 10, 3)) * 9])


def _f(sums: np.ndarray) -> np.ndarray:
    return np.asarray(2 * sums[..., 0] / np.maximum(sums.sum(axis=-1) + sums[..., 0], 1e-9))


TABLE = np.array([[9, 2, 0], [3, 8, 1], [0, 0, 0.0]])


def _posterior() -> np.ndarray:
    """Draws of the difference of two models that label the same items, both ways."""
    return metric_intervals.posterior_differences(
        np.stack([np.eye(9), np.eye(9)[::-1]]), 1.0 + np.arange(9),
        (np.array([0, 1]), np.array([1, 0])), metric_intervals.prior_of_pairs(TABLE, prior=0.5),
        lambda sums: metrics.macro_f1(sums.reshape(*sums.shape[:-1], 3, 3)),
        rng=_newly(2), n_resamples=50,
    )  # fmt: skip


def _tables(metric: str) -> Interval:
    return metric_intervals.dirichlet_interval(
        np.stack([TABLE, np.diag([5.0, 2, 1]), TABLE.T]), metric=metric, prior=1.0,
        confidence_level=0.9, rng=_newly(2), n_resamples=50,
    )  # fmt: skip


def _resampled() -> dict[str, Any]:
    without = metric_intervals.leave_one_out(UNITS, _f)
    gap = _f(UNITS.sum(axis=-2))
    one = np.ones(10, dtype=np.int64)
    draws: Mapping[str, Any] = {"rng": _newly(2), "n_resamples": 50}
    return {
        "bootstrap": [metric_intervals.percentile_bootstrap(
            UNITS[0], _f, confidence_level=level, **draws) for level in LEVELS],
        "without width": metric_intervals.percentile_bootstrap(
            np.ones((5, 3)), _f, confidence_level=0.9, **draws),
        "values": metric_intervals.resampled(UNITS, one + np.arange(10) % 3, _f, **draws),
        "jackknife": [metric_intervals.jackknife_t(UNITS[:, :n], _f, confidence_level=0.9)
                      for n in (1, 2, 10)],
        "of equal": metric_intervals.jackknife_t(np.ones((5, 3)), _f, confidence_level=0.9),
        "kurtosis": metric_intervals.kurtosis(without),
        "difference": metric_intervals.jackknife_difference(
            np.array([gap[1] - gap[0], 0.0, 0.1]),
            np.stack([without[1] - without[0], 0 * without[0], 0 * without[0]]),
            confidence_level=0.9),
        "of one": metric_intervals.jackknife_difference(
            np.array([0.1, 0.0]), np.array([[0.1], [0.0]]), confidence_level=0.9),
    }  # fmt: skip


def _texts() -> dict[str, Any]:
    lengths = np.array([
        [9, 12, 7, 4, 2, 1, 9, 8, 7, 6], [12, 9, 7, 4, 0, 0, 12, 11, 10, 9],
        [9, 9, 0, 0, 0, 0, 9, 8, 7, 6], [3, 9, 2, 1, 0, 0, 3, 2, 1, 0], [0, 9] + 8 * [0],
        [4, 1, 1, 0, 0, 0, 4, 3, 2, 1], [9, 9, 9, 0, 1, 0, 9, 8, 7, 6.0],
    ])  # fmt: skip
    grams = np.array([[9, 12, 7, 8, 11, 4, 7, 10, 2], [9, 0, 0, 8, 2, 0, 0, 3, 0.0],
                      [9, 12, 0, 8, 11, 0, 7, 10, 0], 9 * [0.0]])  # fmt: skip
    edits = np.array([[3, 9], [0, 9], [2, 0], [0, 0], [12, 9.0]])
    return {
        "bleu": metrics.bleu(lengths),
        "chrf": metrics.chrf(grams),
        "ter": metrics.ter(edits),
        "weights": [metrics.quadratic_weights(x) for x in ([1, 2, 5], [3, 3], [-1, 0.5, 7, 8])],
    }


def _order() -> dict[str, Any]:
    rng = _newly(4)
    beats = np.triu(rng.random((6, 6)) < 0.5, 1)
    scores = _credit(7, 4, 15)
    gaps, errors = rng.normal(0, 0.2, 10), rng.uniform(0.02, 0.2, 10)
    gaps[2], errors[3], gaps[4] = 0.0, 0.0, np.nan
    return {
        "limits": ranks.rank_limits(beats), "groups": ranks.groups_alike(beats | beats.T) * 1,
        "letters": ranks.letters(ranks.groups_alike(beats | beats.T)),
        "names": [ranks.letter_name(k) for k in (0, 25, 26, 51, 52, 701, 702)],
        "best": [ranks.prob_best(scores[:n, :m], spread=1.0, rng=_newly(), n_draws=400)
                 for n, m in ((4, 15), (4, 2), (2, 15), (1, 3), (3, 0))],
        "alike": ranks.prob_best(0 * scores, spread=2.0, rng=_newly(), n_draws=400),
        "shrunk": [ranks.shrunk(scale * gaps, errors, n_models=5) for scale in (1, 30)],
        "errors": ranks.errors_of(gaps, np.linspace(0.01, 0.99, 10), (gaps - 0.1, gaps + 0.2), 0.9),
        "root": arrays.root_of(np.cov(scores)), "singular": arrays.root_of(np.ones((3, 3))),
        "steady": np.unique(arrays.steady(0.1 + 1e-17 * np.arange(9))),
    }  # fmt: skip


P_VALUES = np.array([[0.01, 0.04, np.nan, 0.03, 0.005, 0.04], [0.5, 0.9, 1.0, 0.2, 0.001, 0.6]])
GRID = (np.array([[3, 9, 5, 0, 7], [0, 0, 0, 0, 0], [4, 2, 0, 0, 0], [1, 80, 3, 70, 0],
                  [2, 1, 0, 0, 1]]),
        np.array([[10, 10, 10, 10, 10], [4, 9, 2, 0, 0], [4, 2, 0, 0, 0], [2, 90, 20, 100, 1],
                  [2, 1, 1, 1, 1]]))  # fmt: skip
SCORED = 1.0 * (_credit(9, 3, 30) > 0.6)

CUBE = _credit(30, 2, 3, 9, missing=0.1)
EPOCHS = 1.0 * (_credit(31, 2, 3, 8, 4) > 0.5)
IN_CLUSTERS = (np.array([[[1, 3, 0, 6, 3], [2, 0, 0, 4, 1]], [[0, 0, 2, 2, 5], [1, 1, 1, 0, 0]]]),
               np.array([[[1, 4, 2, 8, 3], [5, 2, 9, 4, 4]], [[1, 1, 2, 4, 9], [1, 1, 1, 0, 0]]]),
               )  # fmt: skip
TABLES = np.floor(12 * _credit(32, 2, 3, 3, 3))
TABLES[0, :, 2], TABLES[0, :, :, 2] = 0, 0  # a label that nobody uses

RUNS: Mapping[str, Mapping[str, Run]] = {
    "proportions": {
        **{f"{how.__name__} {level}": partial(how, RIGHT, OF, confidence_level=level)
           for how in (bounded.wald, bounded.wilson, bounded.wilson_cc, bounded.agresti_coull,
                       bounded.clopper_pearson, bounded.mid_p, bounded.jeffreys)
           for level in (0.3, *LEVELS)},
        **{f"{how.__name__} {level} {prior}": partial(how, RIGHT, OF, confidence_level=level,
                                                      prior=prior)
           for how in (bounded.beta_equal_tailed, bounded.beta_hpd)
           for level in (0.3, *LEVELS) for prior in PRIORS},
        "distribution": partial(bounded.binomial_cdf, np.array([-1, 0, 1, 4, 5, 6.0]),
                                np.array([5, 5, 5, 5, 5, 5.0]), np.array([0.2, 0.2, 0.9, 0.5, 0.5,
                                                                          0.1])),
        **{f"missing {level}": partial(interval.imbens_manski_level, np.array([0, 0.01, 0.3]),
                                       np.array([0.05, 0.02, 0.0]), confidence_level=level)
           for level in LEVELS},
    },
    "partial credit": {
        **{f"{how.__name__} {name} {level}": partial(how, scores, bounds=bounds,
                                                     confidence_level=level, **more)
           for how, more in ((bounded.dirichlet_process, {"mass": 0.7}), (bounded.gaffke, {}),
                             (bounded.logit_t, {}), (reach.mean_interval, {}), (reach.one_more, {}))
           for name, scores, bounds in (
               ("gaps", _gappy(1), (0.0, 1.0)), ("points", 1 + 9 * _gappy(2), (1.0, 10.0)),
               ("narrow", NARROW, (0.0, 1.0)), ("two", np.array([0.2, 0.9]), (-1.0, 1.0)),
               ("many", _credit(4, 2, 70), (0.0, 1.0)))
           for level in LEVELS},
    },
    "weighted means": {
        "attained": partial(reach.mean_interval, _gappy(1), bounds=(0.0, 1.0), confidence_level=0.9,
                            attained=(np.arange(6) % 2 == 0, np.arange(6) % 3 == 0)),
        "reach": partial(reach.reach_points, np.array(
            [[0.1, 0.2, 0.4, 0.4], [0.001, 0.01, 0.3, np.nan], [0, 1, 0.5, 0], [1, 1, 1, 1]])),
        **{f"distribution {a} {b}": partial(
            bounded.dirichlet_cdf, np.tile([0.0, 0.3, 0.31, 1.0], (5, 1)),
            np.tile([a, 1.0, b, 0.5], (5, 1)), np.array([0.05, 0.3, 0.305, 0.7, 0.95]))
           for a in (0.5, 40.0) for b in (0.2, 9.0, 900.0)},
    },
    "at any time": {
        **{f"counts {level}": partial(sequential.beta_mixture, np.append(RIGHT, [0.005, 2.5]),
                                      np.append(OF, [9, 9]), confidence_level=level)
           for level in LEVELS},
        **{f"{name} {level}": partial(sequential.betting_mixture, scores, bounds=bounds,
                                      confidence_level=level)
           for name, scores, bounds in (
               ("gaps", _gappy(1), (0.0, 1.0)), ("points", 1 + 9 * _gappy(2), (1.0, 10.0)),
               ("tiny", TINY, (0.0, 1.0)), ("hardly any", np.eye(1, 9) / 200, (0.0, 1.0)),
               ("none", np.zeros((2, 9)), (0.0, 2.0)),
               ("many", _credit(4, 2, 70), (-0.5, 1.0)))
           for level in LEVELS},
        "pairs": partial(sequential.paired_mixture, PAIRS, confidence_level=0.9),
        "p of pairs": partial(sequential.paired_p_value, PAIRS),
        **{f"p {mean}": partial(sequential.p_value, _gappy(1), bounds=(0.0, 1.0), mean=mean)
           for mean in (0.1, 0.5, 0.9)},
        "p of points": partial(sequential.p_value, 1 + 9 * _gappy(2), bounds=(1.0, 10.0), mean=4.0),
        "p of tiny": partial(sequential.p_value, TINY, bounds=(0.0, 1.0), mean=0.7),
    },
    "models apart": {
        **{f"{how.__name__} {level}": partial(how, APART, confidence_level=level)
           for how in (unpaired.newcombe, unpaired.miettinen_nurminen, unpaired.mn_ratio,
                       unpaired.mn_odds) for level in LEVELS},
        **{f"{how.__name__} {prior}": partial(how, APART, confidence_level=0.9, prior=prior)
           for how in (unpaired.beta_difference, unpaired.beta_ratio, unpaired.beta_odds_ratio)
           for prior in PRIORS},
        "scores": partial(unpaired.dp_difference, _gappy(1), np.array([0, 1, 2, 3, 5]),
                          np.array([4, 0, 1, 0, 2]), bounds=(-0.5, 1.0), mass=0.7,
                          confidence_level=0.9),
        "welch": lambda: [how(np.nan_to_num(_gappy(1)), 1.0 * ~np.isnan(_gappy(1)), np.array(
            [0, 1, 2, 1]), np.array([4, 5, 0, 1]), **more) for how, more in (
            (unpaired.welch, {}), (unpaired.welch_t, {"confidence_level": 0.9}),
            (unpaired.welch_prob, {}))],
        **{f"slices {name}": lambda totals=totals: unpaired.permuted_slices(
            totals, np.ones(9), np.arange(9) // np.array([[2], [3], [9], [1]]) == 0, rng=_newly())
           for name, totals in (("bits", 1.0 * (np.arange(9) % 4 == 1)), ("parts", np.arange(9.0)),
                                ("negative", -np.sqrt(np.arange(9.0))))},
    },
    "some of a benchmark": {
        **{f"{how.__name__} {prior} {level}": partial(
            how, RIGHT[1:], OF[1:], OF[1:] + np.array([0, 1, 5, 2, 9, 0, 30, 9, 1, 60, 9, 3, 40]),
            confidence_level=level, prior=prior)
           for how in (finite_population.predictive_hpd, finite_population.predictive_equal_tailed)
           for prior in PRIORS[:3] for level in (0.5, 0.9)},
        "none run": partial(finite_population.predictive_equal_tailed, [0, 0], [0, 0], [1, 4],
                            confidence_level=0.5, prior=(1, 1)),
        "shrunk": lambda: Interval(*finite_population.shrink(
            [0.5, 0.9], [[0.3, 0.7], [0.9, 1.0]], [5, 9], [9, 9])),
        "mover": partial(strata.mover, [0.5, 0.9, 0.1], Interval(
            np.array([0.3, 0.7, 0.0]), np.array([0.9, 1.0, 0.2])), [[1, 2, 3], [1, 1, 1.0]]),
        "effective": lambda: [strata.beta_effective(
            np.array(right) / 9, strata.smoothed_binary(right, [9, 9, 9]), [1, 2, 4],
            confidence_level=level) for level in LEVELS
            for right in ([1, 5, 9], [9, 9, 9], [0, 0, 0])],
        "scores": partial(strata.smoothed_scores, _gappy(1)),
    },
    "differences": {
        "plain": partial(_differences, span=1.0), "no span": _differences,
        "wide": partial(_differences, span=3.0),
        "units": partial(_differences, span=1.0, sizes=SIZES),
        "units of pairs": partial(_differences, span=2.0,
                                  sizes=np.where(np.isnan(ROWS), 0, np.tile(SIZES, (7, 1)))),
        "at least": partial(_differences, span=1.0, least_far=np.linspace(0, 1.2, 7)),
        "counts": lambda: _of_pairs(differences.Counts(
            PAIRS.only_b[:7], PAIRS.only_a[:7], PAIRS.n[:7], unit=np.linspace(0.25, 1, 7))),
        "counts of a unit": lambda: _of_pairs(differences.Counts(
            [0, 1, 2, 9, 300], [0, 0, 2, 4, 200], [3, 1, 4, 20, 900], unit=0.5, span=0.5)),
        "tables": lambda: differences.limits_of_all(
            [differences.Counts([3, 4], [1, 0], [9, 9]), differences.Differences(ROWS, span=1.0),
             differences.Counts([2], [2], [5], span=2.0), differences.Counts([5], [1], [7])],
            [1.5, 2.0, 2.5, 3.0]),
        "tables, one more": lambda: differences.limits_of_all(
            [differences.Counts([3, 4], [1, 0], [9, 9]), differences.Counts([5], [1], [7])],
            [1.5, 2.0], differences.MeanDifferences.one_more),
        "deviates": partial(differences.Counts.deviates, 5),
        "distance": partial(differences.distance, np.nan_to_num(ROWS)),
    },
    "all pairs": {
        kind: partial(_together, kind)
        for kind in ("counts", "scores", "counts, one wrong", "counts missing", "scores missing",
                     "scores, some pairs", "counts alike", "counts equal", "scores, one wrong")
    } | {
        "many units": partial(_together, "counts", m=130),
        "many units of scores": partial(_together, "scores missing", m=130),
        "two models": partial(_together, "counts", n=2),
    },
    "resampled metrics": {"all": _resampled, "texts": _texts},
    "posteriors of labels": {"two models": _posterior} | {
        metric: partial(_tables, metric) for metric in ("mcc", "macro_f1", "weighted_f1")},
    "orders": {"ranks": _order},
    "families": {
        **{how.__name__: partial(how, P_VALUES)
           for how in (multiplicity.holm, multiplicity.benjamini_hochberg)},
        "tasks": partial(multiplicity.over_tasks, list(P_VALUES)),
        "graph": partial(multiplicity.graph, P_VALUES[1], P_VALUES),
    },
    "correlated clusters": {
        f"{prior} {level}": partial(grid_posteriors.beta_binomial, *GRID, confidence_level=level,
                                    prior=prior)
        for prior in ("uniform-icc", "gamma-dispersion") for level in LEVELS
    } | {
        f"sizes {k} {estimand} {population}": partial(
            grid_posteriors.size_beta_binomial, GRID[0][k], GRID[1][k], confidence_level=0.9,
            estimand=estimand, clusters=population)
        for k in range(5) for estimand in ("items", "clusters")
        for population in ("random", "fixed")
    },
    "more power": {
        **{f"paired {name}": partial(power.paired_power, *numbers, tail=tail)
           for tail in (0.025, 0.1) for name, numbers in (
               (f"few {tail}", ([1, 2, 5, 9], 0.5, 0.3)), (f"none {tail}", ([5, 50], 0.0, 0.0)),
               (f"all {tail}", ([5, 50, 500], 1.0, 0.2)), (f"many {tail}", (9000, 0.02, 0.004)))},
        **{f"items {tail}": partial(power.paired_items_needed, [0.2, 1.0, 0.95, 0.3, 0.9],
                                    [0.1, 0.3, 0.5, 0.3, 0.12], tail=tail, power=0.8)
           for tail in (0.025, 0.05)},
        "mixture": partial(power.mixture_items_needed, 0.2, discordance=0.4, variance=0.36,
                           look_every=20, tail=0.05, power=0.7),
        "looks": lambda: [power.looks_up_to(n, every)
                          for n, every in ((5, 10), (100, 10), (9000, 7))],
        "small t": partial(power.t_power, [0, 1, 2, 3, 30], 0.5, [1, 1, 1, 0.2, 1], tail=0.05),
        "difference": lambda: power.least_difference(
            lambda d: power.normal_power(50, d, 0.3, tail=0.025), np.array([0.1, 0.5, 1.0]),
            power=0.8),
        "counts": lambda: [power.critical_count(np.arange(24.0), tail=tail)
                           for tail in (0.001, 0.1, 0.3)],
        "skewed": lambda: [means.skewed_ratio(
            [0.1, 0.4, 0.2, 3, 9, 0.3], right, confidence_level=level)
            for right in ([1, 1, 0, 1, 1, 0], [0.1, 0.4, 0.2, 3, 9, 0.3], [1, 1, 1, 1, 1, 1])
            for level in LEVELS],
        "epochs": partial(power.epochs_needed, [0.1, 0.0, np.nan], [90, 90, 9], between=[-0.1, 0.1,
                          0.1], within=[0.2, -0.1, 0.1], tail=0.025, power=0.8),
    },
    "cells in two directions": {
        **{how.__name__: partial(how, CUBE, **more) for how, more in (
            (means.moments, {}), (means.std_error, {}), (strata.smoothed_scores, {}),
            (means.z_interval, {"confidence_level": 0.9}), (means.t_interval, {
                "confidence_level": 0.9}),
            (bounded.logit_t, {"bounds": (0, 1), "confidence_level": 0.9}),
            (bounded.gaffke, {"bounds": (0, 1), "confidence_level": 0.9}),
            (reach.one_more, {"bounds": (0, 1), "confidence_level": 0.9}),
            (reach.mean_interval, {"bounds": (0, 1), "confidence_level": 0.9}),
            (sequential.betting_mixture, {"bounds": (0, 1), "confidence_level": 0.9}),
            (sequential.p_value, {"bounds": (0, 1), "mean": 0.4}),
            (multiplicity.holm, {}), (multiplicity.benjamini_hochberg, {}))},
        **{how.__name__: lambda how=how: how(CUBE, confidence_level=0.9, rng=_newly(),
                                             n_resamples=40)
           for how in (means.percentile_bootstrap, means.bca_bootstrap,
                       means.studentised_bootstrap)},
        **{how.__name__: partial(how, CUBE, 1 + CUBE[::-1], **more) for how, more in (
            (means.ratio, {}), (means.ratio_std_error, {}), (means.jackknife_std_error, {}),
            (means.ratio_t, {"confidence_level": 0.9}),
            (means.ratio_jackknife, {"confidence_level": 0.9}))},
        **{how.__name__: partial(how, *IN_CLUSTERS, **more) for how, more in (
            (clustered.cluster_moments, {}), (clustered.size_trend, {}),
            (clustered.t_cr2, {"confidence_level": 0.9}),
            (clustered.logit_t_cr2, {"confidence_level": 0.9, "bounds": (-1, 2)}),
            (grid_posteriors.beta_binomial, {"confidence_level": 0.9, "prior": "uniform-icc"}),
            (grid_posteriors.size_beta_binomial, {"confidence_level": 0.9}))},
        "satterthwaite": partial(clustered.satterthwaite, IN_CLUSTERS[1]),
        "anova_icc": partial(clustered.anova_icc, IN_CLUSTERS[0], *IN_CLUSTERS),
        "design_effect": partial(clustered.design_effect, CUBE, 0.5 * CUBE[::-1]),
        "epoch_noise": partial(clustered.epoch_noise, EPOCHS),
        "variance_parts": partial(clustered.variance_parts, EPOCHS),
        "betas": partial(unpaired.dirichlet_process_betas, CUBE, bounds=(-1, 1), mass=0.5),
        **{how.__name__: partial(how, TABLES) for how in (
            metrics.mcc, metrics.balanced_accuracy, metrics.macro_f1, metrics.weighted_f1,
            metrics.agreement)},
        **{how.__name__: partial(how, TABLES[..., :2, :2])
           for how in (metrics.precision, metrics.recall, metrics.f1)},
        "bleu": partial(metrics.bleu, np.sort(TABLES.reshape(2, 3, 9)[..., [0, *range(9)]])[
            ..., ::-1]),
        "chrf": partial(metrics.chrf, TABLES.reshape(2, 3, 9)),
        "ter": partial(metrics.ter, TABLES[..., 0, :2]),
        "weighted_mean": partial(strata.weighted_mean, np.nan_to_num(CUBE), np.arange(9.0)),
        "mover": partial(strata.mover, np.nan_to_num(CUBE), Interval(
            np.nan_to_num(CUBE) - 0.1, np.nan_to_num(CUBE) + 0.2), np.arange(9.0)),
        "predicted": partial(finite_population.predictive_hpd, *IN_CLUSTERS, 12,
                             confidence_level=0.9, prior=(1, 1)),
        "jackknife": partial(metric_intervals.jackknife_t, TABLES + 1, _f, confidence_level=0.9),
    },
    "regression": {
        f"{name} of {k}": partial(
            clustered.clustered_regression, _credit(8, n),
            np.vander(np.linspace(0, 1, n), k), np.arange(n) // per)
        for name, n, per in (("few", 4, 1), ("two clusters", 8, 4), ("three", 9, 3),
                             ("one", 5, 5), ("single items", 12, 1))
        for k in (1, 2, 3)
    },
    "labels of some": {
        f"{name} {seed}": partial(
            prediction_powered.cross_fitted if "fit" in name else prediction_powered.ppi,
            np.where(_newly(seed).random((3, 30)) < share, SCORED, np.nan),
            np.where(_newly(seed + 9).random((3, 30)) < 0.95, _credit(9, 3, 30), np.nan), **options)
        for seed in (0, 1) for name, share, options in (
            ("fit", 0.6, {"shared": True}), ("fit few", 0.15, {"shared": True}),
            ("fit few clusters", 0.3, {"shared": True, "clusters": np.arange(30) // 4}),
            ("fit all", 2.0, {}), ("fit all of these", 2.0, {"finite": True}),
            ("fit one", 0.05, {"clusters": np.arange(30) // 10}),
            ("means", 0.4, {"bounds": (-1.0, 2.0), "confidence_level": 0.9}),
            ("means of few", 0.08, {"bounds": (0.0, 1.0), "confidence_level": 0.9}),
            ("means without bounds", 0.3, {"bounds": None, "confidence_level": 0.9,
                                           "clusters": np.arange(30) // 4, "finite": True}))
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("limits", run, RUNS[run]) == []


HELD = (bounded, differences, finite_population, grid_posteriors, metric_intervals, sequential,
        simultaneous, unpaired)  # fmt: skip


@pytest.mark.parametrize("run", sorted(RUNS.keys() - {"posteriors of labels", "partial credit"}))
def test_no_figure_depends_on_how_much_is_held_at_a_time(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With blocks of a single row, in place of thousands."""
    for module in HELD:
        monkeypatch.setattr(module, "BLOCK_SIZE", 1)
    monkeypatch.setattr(unpaired, "CONTRAST_BLOCK_SIZE", 1)

    assert changed("limits", run, RUNS[run]) == []
