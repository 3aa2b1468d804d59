"""Do intervals of a difference hold the truth as often as they say? Writes paired.json.

Of two models on the same items, and on items of their own. Exact sums over all outcomes wherever
they can be listed; otherwise simulations with fixed seeds, whose standard error is stated with each
row. The confidence level is 0.95.
"""

from functools import cache, partial

import beaten
import numpy as np
import pytest
import study
from scipy import special, stats

from evalstats_plugin.stats import bounded, means
from evalstats_plugin.stats.pairs import paired, unpaired
from evalstats_plugin.stats.pairs.paired import paired_counts

pytestmark = pytest.mark.validation
LEVEL = {"confidence_level": 0.95}
PAIRED = {
    "dirichlet": partial(paired.dirichlet, prior=(0.5, 1.0)),
    "tango": paired.tango,
    "newcombe": paired.newcombe,
    "bonett_price": paired.bonett_price,
    "agresti_min": beaten.agresti_min,
    "wald": paired.wald,
}
BOUNDS = {10: 0.0275, 20: 0.021, 50: 0.0115, 100: 0.0070}
DIFFERENCES = {
    "newcombe": unpaired.newcombe,
    "miettinen_nurminen": unpaired.miettinen_nurminen,
    "beta(0.5)": partial(unpaired.beta_difference, prior=(0.5, 0.5)),
    "beta(1)": partial(unpaired.beta_difference, prior=(1, 1)),
    "wald": beaten.unpaired_wald,
}
RATIOS = {
    "mn_ratio": unpaired.mn_ratio,
    "beta_ratio(0.5)": partial(unpaired.beta_ratio, prior=(0.5, 0.5)),
    "beta_ratio(1)": partial(unpaired.beta_ratio, prior=(1, 1)),
    "katz": beaten.katz,
}
ODDS = {
    "mn_odds": unpaired.mn_odds,
    "beta_odds(0.5)": partial(unpaired.beta_odds_ratio, prior=(0.5, 0.5)),
    "beta_odds(1)": partial(unpaired.beta_odds_ratio, prior=(1, 1)),
}
SIZES = [(10, 10), (20, 20), (50, 50), (10, 30), (20, 100)]


# Each compared with itself, and with the next.
SAME_AND_NEXT = [
    (name, other)
    for i, name in enumerate(study.BOUNDED_SCORES)
    for other in (name, list(study.BOUNDED_SCORES)[(i + 1) % len(study.BOUNDED_SCORES)])
]


def exact_row(case, method, interval, truth, chance):
    """Coverage of every truth by a sum over all outcomes; `chance` has shape (outcomes, truths)."""
    low, high = (limit[:, None] for limit in interval[:2])
    coverage = (chance * study.holds(low, high, truth)).sum(axis=0)
    row = case | {
        "method": method,
        "coverage": float(coverage.mean()),
        "least": float(coverage.min()),
        "mean_error": float(np.abs(coverage - 0.95).mean()),
    }
    if np.all(truth >= 0) and np.any(truth > 1):
        # Ratios have no mean width: some limits are infinite.
        return row
    width = np.clip(high, -1, 1) - np.clip(low, -1, 1)
    return row | {"width": float((chance * width).sum(axis=0).mean())}


@cache
def paired_rows():
    """Exact. Six rates of discordance, from no difference to the largest."""
    rows = []
    for n in BOUNDS:
        only_a, only_b = (x.ravel() for x in np.indices((n + 1, n + 1)))
        possible = only_a + only_b <= n
        only_a, only_b = only_a[possible], only_b[possible]
        counts = paired_counts(0, only_a, only_b, n - only_a - only_b)
        differ, share = np.meshgrid([0.05, 0.1, 0.2, 0.3, 0.4, 0.5], np.linspace(0, 1, 11))
        differ, truth = differ.ravel(), (differ * share).ravel()
        cells = np.stack([(differ - truth) / 2, (differ + truth) / 2, 1 - differ])
        chance = multinomial(np.stack([counts.only_a, counts.only_b, counts.neither]), cells)
        rows += [
            exact_row({"n": n}, name, method(counts, **LEVEL), truth, chance)
            for name, method in PAIRED.items()
        ]
    return rows


def multinomial(counts, cells):
    """Probability of each outcome (cells, outcomes) for each truth (cells, truths)."""
    ways = special.gammaln(counts.sum(axis=0) + 1) - special.gammaln(counts + 1).sum(axis=0)
    logs = special.xlogy(counts[:, :, None], cells[:, None, :]).sum(axis=0)
    return np.exp(ways[:, None] + logs)


@cache
def paired_scores_rows():
    """Partial credit: 60% of the items have the same score of both models."""
    rows = []
    for name, other in SAME_AND_NEXT:
        for n, n_samples in ((5, 1500), (10, 1500), (20, 1500), (50, 1000), (200, 200)):
            rng = np.random.default_rng(n)
            one = study.BOUNDED_SCORES[name][0](rng, (n_samples, n))
            fresh = study.BOUNDED_SCORES[other][0](rng, (n_samples, n))
            differences = np.where(rng.uniform(size=one.shape) < 0.6, 0.0, fresh - one)
            truth = 0.4 * (study.BOUNDED_SCORES[other][1] - study.BOUNDED_SCORES[name][1])
            case = {"scores": name, "other": other, "n": n}
            methods = {
                "dirichlet_process(0.5)": bounded.dirichlet_process(
                    differences, bounds=(-1, 1), mass=0.5, **LEVEL
                ),
                "t_interval": means.t_interval(differences, **LEVEL),
                "z_interval": means.z_interval(differences, **LEVEL),
            }
            rows += [study.coverage_row(case, key, found, truth) for key, found in methods.items()]
    return rows


@cache
def unpaired_rows():
    """Exact. 361 pairs of scores from 0.05 to 0.95."""
    rows = []
    a, b = (x.ravel() for x in np.meshgrid(*[np.linspace(0.05, 0.95, 19)] * 2))
    truths = ((DIFFERENCES, b - a), (RATIOS, b / a), (ODDS, b / (1 - b) / a * (1 - a)))
    for n_a, n_b in SIZES:
        right_a, right_b = (x.ravel() for x in np.indices((n_a + 1, n_b + 1)))
        chance = stats.binom.pmf(right_a[:, None], n_a, a)
        chance = chance * stats.binom.pmf(right_b[:, None], n_b, b)
        counts = unpaired.independent_counts(right_a, n_a, right_b, n_b)
        case = {"n_a": n_a, "n_b": n_b}
        for methods, truth in truths:
            rows += [
                exact_row(case, name, method(counts, **LEVEL), truth, chance)
                for name, method in methods.items()
            ]
    return rows


@cache
def unpaired_scores_rows():
    """Partial credit; for equal distributions also how often p ≤ 0.05."""
    rows = []
    for n_a, n_b in [(5, 5), (10, 10), (20, 20), (50, 50), (10, 30)]:
        for name, other in SAME_AND_NEXT:
            rng, n_pairs = np.random.default_rng(5), 800
            scores = np.full((2 * n_pairs, max(n_a, n_b)), np.nan)
            scores[:n_pairs, :n_a] = study.BOUNDED_SCORES[name][0](rng, (n_pairs, n_a))
            scores[n_pairs:, :n_b] = study.BOUNDED_SCORES[other][0](rng, (n_pairs, n_b))
            pairs = np.arange(n_pairs), np.arange(n_pairs) + n_pairs
            unit = {"bounds": (0.0, 1.0), "mass": 0.5}
            sums = np.nan_to_num(scores), 1.0 * ~np.isnan(scores)
            posterior = unpaired.dp_difference(scores, *pairs, **unit, **LEVEL)
            found = {
                "dp_difference": (posterior, posterior.prob_better),
                "mover_dp": (beaten.mover_dp(scores, *pairs, **unit, **LEVEL), None),
                "welch_t": (
                    unpaired.welch_t(*sums, *pairs, **LEVEL),
                    unpaired.welch_prob(*sums, *pairs),
                ),
            }
            truth = study.BOUNDED_SCORES[other][1] - study.BOUNDED_SCORES[name][1]
            case = {"scores": name, "other": other, "n_a": n_a, "n_b": n_b}
            for method, (interval, prob) in found.items():
                row = study.coverage_row(case, method, interval, truth)
                if name == other and prob is not None:
                    p_values = unpaired.two_sided(prob)
                    row["rejected"] = float((p_values <= 0.05).mean())
                rows.append(row)
    return rows


SECTIONS = {
    "paired": paired_rows,
    "paired_scores": paired_scores_rows,
    "unpaired": unpaired_rows,
    "unpaired_scores": unpaired_scores_rows,
}


def test_the_figures_are_written():
    study.write_figures("paired", SECTIONS)


def of(section, method):
    rows = [one for one in SECTIONS[section]() if one["method"] == method]
    assert rows
    return rows


def mean_coverage(section, method):
    return float(np.mean([one["coverage"] for one in of(section, method)]))


def safely_least(section, method):
    """Least coverage, three standard errors of what is simulated added."""
    return min(one["coverage"] + 3 * one["std_error"] for one in of(section, method))


@pytest.mark.parametrize(("n", "most"), BOUNDS.items())
def test_the_paired_default_is_closest_to_its_level(n, most):
    """Mean distance from 95 %: within what was promised, and below all others'."""
    errors = {one["method"]: one["mean_error"] for one in paired_rows() if one["n"] == n}

    assert errors["dirichlet"] <= most
    assert "dirichlet" == min(errors, key=errors.__getitem__)


def test_tango_hardly_ever_covers_less_than_it_says():
    """And the Wald interval, the negative control, does by far."""
    assert min(one["least"] for one in of("paired", "tango")) >= 0.929
    assert max(one["least"] for one in of("paired", "wald")) < 0.9


def test_the_dirichlet_process_covers_differences_of_partial_credit():
    """At worst, and on average, which for 20 items and fewer is too much; Student's t does not."""
    assert 0.945 <= mean_coverage("paired_scores", "dirichlet_process(0.5)") <= 0.985
    assert safely_least("paired_scores", "dirichlet_process(0.5)") >= 0.90
    for control in ("t_interval", "z_interval"):
        assert mean_coverage("paired_scores", control) < 0.925
        assert safely_least("paired_scores", control) < 0.5


def test_unpaired_defaults_cover():
    """Newcombe's reaches the level on average for all sizes; scores' intervals are the safest."""
    for one in of("unpaired", "newcombe"):
        assert 0.95 <= one["coverage"] <= 0.953
        assert one["least"] >= 0.908
    for name in ("miettinen_nurminen", "mn_ratio", "mn_odds"):
        assert mean_coverage("unpaired", name) >= 0.95
        assert min(one["least"] for one in of("unpaired", name)) >= 0.913
    for name in ("beta_ratio(1)", "beta_odds(1)"):
        assert 0.95 <= mean_coverage("unpaired", name) <= 0.962


def test_unpaired_controls_fall_short():
    """Wald's and Katz's, and the uniform prior's posterior of the difference at its worst."""
    assert mean_coverage("unpaired", "wald") < 0.93
    assert mean_coverage("unpaired", "katz") < 0.93
    assert min(one["least"] for one in of("unpaired", "beta(1)")) < 0.8


def test_two_dirichlet_processes_cover_the_difference_of_means():
    """On average and at worst, better than MOVER, and shorter; Welch's t does not."""
    posterior, mover = of("unpaired_scores", "dp_difference"), of("unpaired_scores", "mover_dp")

    assert 0.95 <= mean_coverage("unpaired_scores", "dp_difference") <= 0.975
    assert safely_least("unpaired_scores", "dp_difference") >= 0.92
    assert sum(one["width"] for one in posterior) < 0.97 * sum(one["width"] for one in mover)
    assert mean_coverage("unpaired_scores", "welch_t") < 0.9
    # Of one distribution, p ≤ 0.05 hardly more often than that, which Welch's for unequal n is.
    rejected = {
        name: [one["rejected"] for one in of("unpaired_scores", name) if "rejected" in one]
        for name in ("dp_difference", "welch_t")
    }
    assert max(rejected["dp_difference"]) <= 0.08
    assert np.mean(rejected["dp_difference"]) <= 0.05
    assert max(rejected["welch_t"]) > 0.09
