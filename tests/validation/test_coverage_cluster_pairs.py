"""Clusters of unequal size: two models, and scores with partial credit.

Writes fixtures/validation/cluster_pairs.json. Sizes as in `test_coverage_cluster_sizes`. The truth
is the mean over the items of many such clusters.
"""

from functools import cache

import numpy as np
import pytest
import study
from scipy import special
from test_coverage_cluster_sizes import sizes_of

from evalstats_plugin.stats import clustered
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.pairs.differences import Differences

pytestmark = pytest.mark.validation
LEVEL = 0.95
SEED = 20261126
# Runs of the posterior over clusters, which takes 20 ms and is for comparison, and of the others.
N_FEW, N_MANY = 100, 1500
AT_LEVEL = {"confidence_level": LEVEL}
# Sizes, clusters, how far b is ahead on the logit scale, how this changes with log size, standard
# deviation among clusters of the lead and of the difficulty, share of items answered alike.
PAIRS = (
    ("log-normal", 5, 0.5, 0.0, 0.4, 0.7, 0.0), ("log-normal", 8, 0.5, -0.7, 0.4, 0.7, 0.0),
    ("log-normal", 8, 0.0, 0.0, 0.0, 0.7, 0.7), ("log-normal", 20, 0.0, 0.0, 0.0, 0.7, 0.0),
    ("log-normal", 20, 0.5, -0.7, 0.4, 0.7, 0.0), ("log-normal", 20, 0.5, 0.0, 0.4, 0.7, 0.8),
    ("log-normal", 50, 0.5, 0.0, 0.0, 0.7, 0.9), ("log-normal", 50, 0.5, -0.7, 0.4, 0.7, 0.0),
    ("log-normal", 5, 0.0, 0.0, 0.0, 0.7, 0.8), ("log-normal", 12, 0.8, -0.5, 0.4, 0.7, 0.8),
    ("passages", 5, 0.5, 0.0, 0.4, 0.7, 0.9), ("passages", 50, 0.0, 0.5, 0.4, 0.7, 0.8),
    ("log-normal", 200, 0.5, -0.7, 0.4, 0.7, 0.0), ("log-normal", 200, 0.5, 0.0, 0.0, 0.7, 0.98),
    ("SWE-bench", 12, 0.5, 0.0, 0.4, 0.7, 0.0), ("SWE-bench", 12, 0.0, 0.0, 0.0, 0.7, 0.8),
    ("passages", 10, 0.5, 0.5, 0.8, 0.7, 0.0), ("passages", 20, 0.5, 0.5, 0.8, 0.7, 0.0),
)  # fmt: skip
# Sizes, clusters, change of the logit with log size, standard deviation among clusters, and how
# concentrated the scores of a cluster are: a + b of their Beta distribution.
PARTIAL = (
    ("log-normal", 5, 0.0, 0.8, 1.0), ("log-normal", 8, 0.0, 0.8, 1.0),
    ("log-normal", 8, -1.0, 0.8, 4.0), ("log-normal", 12, 0.0, 0.0, 50.0),
    ("log-normal", 20, -1.0, 0.5, 1.0), ("log-normal", 20, 0.0, 0.8, 50.0),
    ("log-normal", 50, -1.0, 0.8, 4.0), ("log-normal", 200, -1.0, 0.5, 1.0),
    ("SWE-bench", 12, 0.0, 0.8, 1.0), ("SWE-bench", 12, -0.5, 0.8, 50.0),
    ("passages", 5, 0.0, 0.8, 4.0), ("passages", 10, -1.0, 0.5, 1.0),
    ("passages", 20, -1.0, 0.8, 4.0), ("passages", 50, 0.0, 0.5, 1.0),
)  # fmt: skip


def pairs_drawn(rng, design, n_runs, n_clusters):
    """Items that only a, and only b, gets right, and sizes, shape (n_runs, n_clusters)."""
    kind, _, lead, slope, spread, difficulty, alike = design
    sizes = sizes_of(rng, kind, (n_runs, n_clusters))
    hard = rng.normal(0.85, difficulty, sizes.shape)
    ahead = lead + slope * (np.log(sizes) - 1.5) + rng.normal(0, spread, sizes.shape)
    of = np.repeat(np.arange(sizes.size), sizes.ravel().astype(int))
    eta = hard.ravel()[of] + rng.normal(0, 1, len(of))
    u = rng.random((2, len(of)))
    u[1] = np.where(rng.random(len(of)) < alike, u[0], u[1])
    a = u[0] < special.expit(eta)
    b = u[1] < special.expit(eta + ahead.ravel()[of])
    only_a, only_b = (
        np.bincount(of, x, minlength=sizes.size).reshape(sizes.shape) for x in (a & ~b, b & ~a)
    )
    return only_a, only_b, sizes


def partial_drawn(rng, design, n_runs, n_clusters):
    """Totals, sums of squares and sizes of scores in quarters, or finer if concentrated."""
    kind, _, slope, spread, both = design
    sizes = sizes_of(rng, kind, (n_runs, n_clusters))
    eta = 0.85 + slope * (np.log(sizes) - 1.5) + rng.normal(0, spread, sizes.shape)
    of = np.repeat(np.arange(sizes.size), sizes.ravel().astype(int))
    mean = special.expit(eta.ravel()[of])
    score = rng.beta(mean * both, (1 - mean) * both)
    score = np.round(score * 4) / 4 if both < 10 else score
    totals, squares = (
        np.bincount(of, x, minlength=sizes.size).reshape(sizes.shape) for x in (score, score**2)
    )
    return totals, squares, sizes


def engine(only_a, only_b, sizes):
    pairs = Differences(only_b - only_a, sizes=sizes * 1.0, span=1.0)
    return pairs.limits(normal_quantile(AT_LEVEL["confidence_level"]))


def logit_t_cr2(only_a, only_b, sizes):
    return clustered.logit_t_cr2(only_b - only_a, sizes, bounds=(-1, 1), **AT_LEVEL)


def t_cr2(only_a, only_b, sizes):
    return clustered.t_cr2(only_b - only_a, sizes, **AT_LEVEL)


PAIR_METHODS = {
    "engine": engine,
    "logit_t_cr2": logit_t_cr2,
    "t_cr2": t_cr2,
}


def truth_of(design, drawn, index):
    """Mean over the items of 60,000 clusters."""
    totals = np.zeros(2)
    for part in range(10):
        rng = np.random.default_rng([SEED, index, 1 + part])
        first, second, sizes = drawn(rng, design, 6000 // design[1], design[1])
        totals += ((second - first) if drawn is pairs_drawn else first).sum(), sizes.sum()
    return totals[0] / totals[1]


@cache
def pair_rows():
    rows = []
    for index, design in enumerate(PAIRS):
        data = pairs_drawn(np.random.default_rng([SEED, index]), design, N_MANY, design[1])
        truth = truth_of(design, pairs_drawn, index)
        names = ("sizes", "clusters", "lead", "slope", "lead_sd", "sd", "alike")
        case = dict(zip(names, design, strict=True))
        for name, method in PAIR_METHODS.items():
            n = N_FEW if name == "engine" else N_MANY
            limits = method(*(x[:n] for x in data))
            rows.append(study.coverage_row(case | {"runs": n}, name, limits, truth, (-1, 1)))
    return rows


@cache
def partial_rows():
    rows = []
    for index, design in enumerate(PARTIAL):
        rng = np.random.default_rng([SEED, 100 + index])
        totals, _, sizes = partial_drawn(rng, design, N_MANY, design[1])
        truth = truth_of(design, partial_drawn, 100 + index)
        names = ("sizes", "clusters", "slope", "sd", "concentration")
        case = dict(zip(names, design, strict=True)) | {"runs": N_MANY}
        found = {
            "logit_t_cr2": clustered.logit_t_cr2(totals, sizes, bounds=(0, 1), **AT_LEVEL),
            "t_cr2": clustered.t_cr2(totals, sizes, **AT_LEVEL),
        }
        rows += [
            study.coverage_row(case, name, limits, truth, (0, 1)) for name, limits in found.items()
        ]
    return rows


def test_the_figures_are_written():
    study.write_figures("cluster_pairs", {"pairs": pair_rows, "partial_credit": partial_rows})


def of(rows, method):
    return [one for one in rows if one["method"] == method]


def test_pairs_are_covered_whatever_sizes_tell_of_the_lead():
    """More often only where few items tell the models apart."""
    for one in of(pair_rows(), "logit_t_cr2"):
        assert 0.92 <= one["coverage"] <= (1 if one["alike"] else 0.985), one


def test_the_engine_is_another_quantity():
    """Negative control: it misses the lead over items where this goes with sizes."""
    assert min(one["coverage"] for one in of(pair_rows(), "engine")) < 0.9


def test_partial_credit_is_covered_by_clustered_t_on_the_logit_scale():
    """Better than by the t alone; both fall short where few clusters' scores go with sizes."""
    found = [
        np.array([one["coverage"] for one in of(partial_rows(), name)])
        for name in ("logit_t_cr2", "t_cr2")
    ]

    assert found[0].mean() >= 0.93
    assert found[0].min() >= max(found[1].min(), 0.88)
