"""Clusters of unequal size: do intervals hold the share of right answers over all items?

Writes fixtures/validation/cluster_sizes.json. Sizes as of passages and repositories, 5 to 200
clusters, intra-cluster correlations of 0 to .6, and scores that go with the size of a cluster or do
not. The truth is the mean over items of many such clusters, Σ m p / Σ m.
"""

from functools import cache, partial

import numpy as np
import pytest
import study
from scipy import special

from evalstats_plugin.stats import clustered, grid_posteriors

pytestmark = pytest.mark.validation
LEVEL = 0.95
SEED = 20261122
SWE = (231, 75, 44, 34, 32, 22, 22, 19, 10, 8, 2, 1)
"""Problems of each repository of SWE-bench Verified."""
# Runs of designs of few clusters, which the posterior takes 50 ms for, and of many.
N_FEW, N_MANY = 120, 2000
EFFECTS = {
    "none": lambda x: 0 * x,
    "falls": lambda x: -x,
    "largest quarter lower": lambda x: -1.5 * (x > 0.8),
    "middle sizes best": lambda x: -0.6 * x**2,
}
"""Logit of a cluster's share by the log of its size, less 1.5."""
DESIGNS = (
    ("log-normal", 5, "none", 0.2), ("log-normal", 5, "falls", 0.1),
    ("log-normal", 8, "none", 0.6), ("log-normal", 8, "falls", 0.2),
    ("log-normal", 12, "none", 0.0), ("log-normal", 12, "middle sizes best", 0.1),
    ("log-normal", 20, "none", 0.2), ("log-normal", 20, "none", 0.6),
    ("log-normal", 20, "falls", 0.1), ("log-normal", 20, "largest quarter lower", 0.1),
    ("log-normal", 20, "middle sizes best", 0.1), ("log-normal", 30, "middle sizes best", 0.1),
    ("log-normal", 50, "none", 0.2), ("log-normal", 50, "falls", 0.1),
    ("log-normal", 50, "middle sizes best", 0.1), ("log-normal", 200, "none", 0.0),
    ("log-normal", 200, "falls", 0.1), ("log-normal", 200, "middle sizes best", 0.1),
    ("log-normal", 200, "none", 0.6),
    ("SWE-bench", 12, "none", 0.0), ("SWE-bench", 12, "none", 0.2), ("SWE-bench", 12, "falls", 0.2),
    ("SWE-bench", 12, "largest quarter lower", 0.1),
    ("passages", 5, "none", 0.2), ("passages", 10, "falls", 0.1), ("passages", 20, "none", 0.2),
    ("passages", 20, "falls", 0.1), ("passages", 20, "middle sizes best", 0.1),
    ("passages", 50, "falls", 0.1), ("passages", 50, "middle sizes best", 0.2),
    ("passages", 200, "none", 0.05), ("passages", 200, "largest quarter lower", 0.1),
)  # fmt: skip


def sizes_of(rng, kind, shape):
    if kind == "log-normal":
        return np.clip(np.round(np.exp(rng.normal(1.5, 0.8, shape))), 1, 60)
    if kind == "passages":
        return np.maximum(1.0, rng.negative_binomial(3, 3 / 25, shape))
    return np.broadcast_to(np.array(SWE, dtype=float), shape).copy()


def rates_of(rng, sizes, effect, correlation):
    """Share of right answers of each cluster: .7 at the typical size, but for the effect."""
    mean = special.expit(special.logit(0.7) + EFFECTS[effect](np.log(sizes) - 1.5))
    if not correlation:
        return mean
    both = 1 / correlation - 1
    return rng.beta(np.maximum(mean * both, 1e-9), np.maximum((1 - mean) * both, 1e-9))


def drawn(design, n):
    """Right answers and sizes, shape (n, T), and the share of right answers of all such items."""
    kind, n_clusters, effect, correlation = design
    rng = np.random.default_rng([SEED, DESIGNS.index(design)])
    sizes = sizes_of(rng, kind, (n, n_clusters))
    right = rng.binomial(sizes.astype(int), rates_of(rng, sizes, effect, correlation)) * 1.0
    shape = (400_000 // n_clusters, n_clusters)
    many = sizes_of(rng, kind, shape)
    truth = (many * rates_of(rng, many, effect, correlation)).sum() / many.sum()
    return right, sizes, truth


def freedom_of(design):
    return float(np.median(clustered.satterthwaite(drawn(design, 200)[1])))


logit_t_cr2 = partial(clustered.logit_t_cr2, bounds=(0, 1), confidence_level=LEVEL)


def default(right, sizes):
    """As `scores.intervals` chooses, by the sizes alone."""
    many = clustered.satterthwaite(sizes) >= grid_posteriors.FEW_FREEDOM
    found = np.array(logit_t_cr2(right, sizes))
    found[:, ~many] = grid_posteriors.size_beta_binomial(
        right[~many], sizes[~many], confidence_level=LEVEL
    )
    return found


def mean_over_clusters(right, sizes):
    """What was the default: the posterior of the mean over clusters, items weighing nothing."""
    return grid_posteriors.beta_binomial(right, sizes, confidence_level=LEVEL, prior="uniform-icc")


METHODS = {
    "default": default,
    "logit_t_cr2": logit_t_cr2,
    "t_cr2": partial(clustered.t_cr2, confidence_level=LEVEL),
    "mean_over_clusters": mean_over_clusters,
}


@cache
def size_rows():
    rows = []
    for design in DESIGNS:
        freedom = freedom_of(design)
        n = N_MANY if freedom >= grid_posteriors.FEW_FREEDOM * 1.4 else N_FEW
        right, sizes, truth = drawn(design, n)
        names = ("sizes", "clusters", "effect", "icc")
        case = dict(zip(names, design, strict=True)) | {"df": round(freedom, 1), "runs": n}
        # The posterior over clusters, for comparison only, on as many as it takes.
        rows += [
            study.coverage_row(case, name, method(right[:m], sizes[:m]), truth, (0, 1))
            for name, method in METHODS.items()
            for m in (N_FEW if name == "mean_over_clusters" else n,)
        ]
    return rows


def test_the_figures_are_written():
    study.write_figures("cluster_sizes", {"scores": size_rows})


def of(method):
    return [one for one in size_rows() if one["method"] == method]


def test_the_default_covers_whatever_sizes_tell_of_scores():
    """Within three standard errors of .92 to .98."""
    for one in of("default"):
        slack = 3 * np.sqrt(0.05 * 0.95 / one["runs"])

        assert 0.92 - slack <= one["coverage"] <= 0.98 + slack, one


def test_the_default_is_no_wider_than_a_quarter_more_than_cr2():
    """But where items of a cluster are independent, which few clusters cannot show."""
    for one, other in zip(of("default"), of("logit_t_cr2"), strict=True):
        assert one["width"] <= (1.25 if one["icc"] else 1.7) * other["width"], one


def test_the_mean_over_clusters_is_another_quantity():
    """Negative control: it misses the share over items where scores go with sizes."""
    assert min(one["coverage"] for one in of("mean_over_clusters")) < 0.7
