"""Many models at once: how often is anything wrong? Writes fixtures/validation/many_models.json.

Items are right or wrong by a probit model: abilities, item difficulties with standard deviation
1.5, fixed seeds. The standard error of a share is stated with each row; the level is 0.95.
"""

from functools import cache, partial

import numpy as np
import pytest
import study
from scipy import special

from evalstats_plugin.stats import multiplicity, ranks
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.pairs import paired
from evalstats_plugin.stats.pairs.differences import Differences

pytestmark = pytest.mark.validation
LEVEL, DIFFICULTY = 0.95, 1.5
DIRICHLET = partial(paired.dirichlet, prior=(0.5, 1.0))
SIZES = ((10, 30), (10, 100), (20, 200))
N_DRAWS = 999
REPEATS = 300


def one_level(n_models):
    return np.full(n_models, 1.2)


def two_tiers(n_models):
    return np.where(np.arange(n_models) < n_models // 2, 1.0, 1.8)


def spread_out(n_models):
    return np.linspace(0.5, 3.0, n_models)


def draw(rng, ability, n_items):
    difficulty = rng.normal(0, DIFFICULTY, n_items)
    noise = rng.normal(size=(len(ability), n_items))
    return (ability[:, None] - difficulty + noise > 0).astype(float)


def tables(scores, a, b):
    both = (scores @ scores.T)[a, b]
    right = scores.sum(axis=1)
    only_a, only_b = right[a] - both, right[b] - both
    return paired.paired_counts(both, only_a, only_b, scores.shape[1] - both - only_a - only_b)


def share(values):
    """Mean of what happened or not, and its standard error."""
    mean = float(np.mean(values))
    return mean, float(np.sqrt(mean * (1 - mean) / len(values)))


@cache
def findings_rows():
    """Family-wise error and power of corrections; all in one, because the simulation is dear."""
    rows = []
    for n_models, n_items in SIZES:
        for abilities in (one_level, two_tiers):
            rows += family_rows(abilities, n_models, n_items, n_repeats=REPEATS)
    return rows


def family_rows(abilities, n_models, n_items, n_repeats):
    rng = np.random.default_rng(11)
    ability, (a, b) = abilities(n_models), np.triu_indices(n_models, 1)
    truth = special.ndtr(ability / np.hypot(1, DIFFICULTY))
    counts, limits = [], []
    p_values = {"none": [], "holm": [], "simultaneous": []}
    for _ in range(n_repeats):
        scores = draw(rng, ability, n_items)
        counts.append(tables(scores, a, b))
        p = paired.mcnemar_mid_p(counts[-1])
        p_values["none"].append(p)
        p_values["holm"].append(multiplicity.holm(p))
        pairs = study.all_pairs(scores, a, b, n_draws=N_DRAWS)
        p_values["simultaneous"].append(pairs.p_values)
        limits.append(pairs.limits(1 - LEVEL))
    together = paired.PairedCounts(*np.stack(counts, axis=1))
    limits = {
        "none": DIRICHLET(together, confidence_level=LEVEL),
        # At Šidák's level.
        "holm": DIRICHLET(together, confidence_level=LEVEL ** (1 / len(a))),
        "simultaneous": np.stack(limits, axis=1),
    }
    case = {"abilities": abilities.__name__, "models": n_models, "items": n_items}
    return [
        case
        | {"correction": name}
        | family_row(truth, (a, b), together.difference, np.stack(values), limits[name])
        for name, values in p_values.items()
    ]


def rank_figures(truth, pairs, claimed, higher):
    """Whether all sets of a repeat hold the true ranks, and their mean length."""
    a, b = pairs
    beats = np.zeros((len(truth), len(truth)), dtype=bool)
    beats[b, a], beats[a, b] = claimed & higher, claimed & ~higher
    limits = ranks.rank_limits(beats)
    highest = 1 + (truth[:, None] < truth - 1e-12).sum(axis=1)
    lowest = len(truth) - (truth[:, None] > truth + 1e-12).sum(axis=1)
    held = (limits.best <= highest) & (limits.worst >= lowest)
    return held.all(), (limits.worst - limits.best + 1).mean()


def family_row(truth, pairs, differences, p_values, limits):
    true = truth[pairs[1]] - truth[pairs[0]]
    claimed = p_values <= 1 - LEVEL
    low, high = limits
    holds = (low <= true + 1e-12) & (true <= high + 1e-12)
    sets = [
        rank_figures(truth, pairs, found, difference > 0)
        for found, difference in zip(claimed, differences, strict=True)
    ]
    held, lengths = np.array(sets, dtype=float).T
    row = {}
    for name, happened in (
        ("family_wise_error", (claimed & (true == 0)).any(axis=1)),
        ("simultaneous_coverage", holds.all(axis=1)),
        ("rank_sets_coverage", held),
    ):
        row[name], row[f"{name}_se"] = share(happened)
    return row | {
        "power": float(claimed[:, true != 0].mean()) if true.any() else None,
        "width": float((high - low).mean()),
        "rank_set_length": float(lengths.mean()),
    }


@cache
def rank_rows():
    """Ranks of ten models that all differ: coverage and length of sets at once."""
    rows = []
    for n_items in (50, 200):
        rows += [
            {key: row[key] for key in RANK_KEYS}
            for row in family_rows(spread_out, 10, n_items, n_repeats=REPEATS)
        ]
    return rows


RANK_KEYS = (
    "abilities", "models", "items", "correction",
    "rank_sets_coverage", "rank_sets_coverage_se", "rank_set_length",
)  # fmt: skip

ABILITIES = {
    "normal(0.2)": lambda rng, n: rng.normal(1.2, 0.2, n),
    "normal(0.7)": lambda rng, n: rng.normal(1.2, 0.7, n),
    "t(3)": lambda rng, n: 1.2 + 0.3 * rng.standard_t(3, n),
    "two tiers": lambda rng, n: 1.2 + 0.5 * rng.integers(0, 2, n) + rng.normal(0, 0.05, n),
    "crowded top": lambda rng, n: 1.2 - 0.3 * rng.exponential(size=n),
}


def bootstrap_best(scores, rng, n_draws):
    """Share of resamples of items in which each model comes out first."""
    n_items = scores.shape[1]
    weights = rng.multinomial(n_items, np.full(n_items, 1 / n_items), size=n_draws)
    means = scores @ weights.T + 1e-9 * rng.random((len(scores), n_draws))
    return np.bincount(np.argmax(means, axis=0), minlength=len(scores)) / n_draws


BEST = {
    "prob_best": lambda s, rng: ranks.prob_best(s, spread=1.0, rng=rng, n_draws=1000),
    "bootstrap": lambda s, rng: bootstrap_best(s, rng, 1000),
}


@cache
def best_rows():
    """What is said of the likeliest model, and how often it truly is the best one."""
    rows = []
    for n_models, n_items in ((3, 50), (10, 50), (10, 200), (30, 200)):
        for name, abilities in ABILITIES.items():
            rng = np.random.default_rng(3)
            said = {method: [] for method in BEST}
            for _ in range(250):
                ability = abilities(rng, n_models)
                scores = draw(rng, ability, n_items)
                for method, function in BEST.items():
                    prob = function(scores, rng)
                    top = np.argmax(prob)
                    loss = -np.log(max(prob[np.argmax(ability)], 1 / 2000))
                    said[method].append((prob[top], top == np.argmax(ability), loss))
            case = {"models": n_models, "items": n_items, "abilities": name}
            rows += [
                case | best_row(method, np.array(values, float)) for method, values in said.items()
            ]
    return rows


def best_row(method, values):
    stated, true, loss = values.T
    right, error = share(true)
    row = {"method": method, "stated": float(stated.mean()), "true": right, "true_se": error}
    row |= {"log_loss": float(loss.mean()), "bins": []}
    for low, high in ((0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = (stated >= low) & (stated < high)
        if inside.any():
            mean, error = share(true[inside])
            row["bins"].append(
                {"stated": float(stated[inside].mean()), "true": mean, "n": int(inside.sum())}
            )
    return row


@cache
def group_rows():
    """Difference of macro means over tasks that each have few items: coverage and width."""
    return [
        row
        for n_tasks, n_items in ((3, 10), (10, 10), (30, 20), (57, 100))
        for gap in (0.0, 0.5)
        for row in group_case(n_tasks, n_items, gap, n_repeats=1000)
    ]


def group_case(n_tasks, n_items, gap, n_repeats):
    rng = np.random.default_rng(5)
    level = rng.normal(1.2, 0.5, (n_repeats, n_tasks))
    shape = (n_repeats, n_tasks, n_items)
    difficulty = rng.normal(0, DIFFICULTY, shape)
    lower, higher = (
        1.0 * (level[..., None] + shift - difficulty + rng.normal(size=shape) > 0)
        for shift in (0.0, gap)
    )
    differences = higher - lower
    means, variances = differences.mean(axis=2), differences.var(axis=2, ddof=1) / n_items
    centre = means.mean(axis=1)
    rest = (differences - means[..., None]) * np.sqrt(n_items / (n_items - 1))
    units = centre[:, None] + rest.reshape(n_repeats, -1)
    ours = Differences(units, span=1.0).limits(normal_quantile(LEVEL))
    error = 1.96 * np.sqrt(variances.sum(axis=1)) / n_tasks
    scale = np.hypot(1, DIFFICULTY)
    truth = (special.ndtr((level + gap) / scale) - special.ndtr(level / scale)).mean(axis=1)
    rows = []
    normal = centre - error, centre + error
    for method, (low, high) in {"engine": ours, "normal": normal}.items():
        coverage, std_error = share((low <= truth) & (truth <= high))
        rows.append(
            {
                "tasks": n_tasks,
                "items": n_items,
                "gap": gap,
                "method": method,
                "coverage": coverage,
                "std_error": std_error,
                "width": float(np.mean(high - low)),
            }
        )
    return rows


SECTIONS = {
    "findings": findings_rows,
    "ranks": rank_rows,
    "prob_best": best_rows,
    "group": group_rows,
}


def test_the_figures_are_written():
    study.write_figures("many_models", SECTIONS)


def chosen(correction, **more):
    return [
        row
        for row in findings_rows()
        if row["correction"] == correction and all(row[k] == v for k, v in more.items())
    ]


@pytest.mark.parametrize("correction", ["holm", "simultaneous"])
def test_hardly_any_family_has_a_false_finding(correction):
    """At most .05 and three standard errors; all models equal, and in two tiers."""
    for row in chosen(correction):
        assert row["family_wise_error"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / REPEATS)


def test_uncorrected_many_families_have_one():
    """Negative control: about half of them for ten models."""
    for row in chosen("none", abilities="one_level"):
        assert row["family_wise_error"] > 0.4


@pytest.mark.parametrize("size", SIZES)
def test_max_t_finds_more_than_holm(size):
    """Power in two tiers."""
    (holm,), (flips,) = (
        chosen(c, abilities="two_tiers", models=size[0], items=size[1])
        for c in ("holm", "simultaneous")
    )

    assert flips["power"] > holm["power"]


@pytest.mark.parametrize("correction", ["holm", "simultaneous"])
def test_adjusted_intervals_hold_all_at_once(correction):
    """With three standard errors; those of max-T are narrower."""
    for row, other in zip(chosen(correction), chosen("holm"), strict=True):
        assert row["simultaneous_coverage"] >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / REPEATS)
        assert row["width"] <= other["width"]


def test_intervals_of_single_pairs_do_not_hold_at_once():
    """Negative control."""
    assert all(row["simultaneous_coverage"] < 0.6 for row in chosen("none"))


@pytest.mark.parametrize("correction", ["holm", "simultaneous"])
def test_rank_sets_hold_all_true_ranks(correction):
    """In tiers and all different; shorter with max-T than with Holm."""
    rows = chosen(correction) + [r for r in rank_rows() if r["correction"] == correction]
    for row in rows:
        assert row["rank_sets_coverage"] >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / REPEATS)
    lengths = {
        c: [r["rank_set_length"] for r in rank_rows() if r["correction"] == c]
        for c in ("holm", "simultaneous")
    }
    assert np.all(np.array(lengths["simultaneous"]) < lengths["holm"])


def errors_of_best(method):
    """Stated less true, by case."""
    return np.array([r["stated"] - r["true"] for r in best_rows() if r["method"] == method])


def test_p_best_is_better_calibrated_than_the_bootstrap():
    """Nowhere as over-confident, less so on the whole, and a better score for every case."""
    ours, theirs = errors_of_best("prob_best"), errors_of_best("bootstrap")
    losses = {m: np.array([r["log_loss"] for r in best_rows() if r["method"] == m]) for m in BEST}

    assert ours.max() < theirs.max()
    assert np.mean(np.abs(ours)) < np.mean(np.abs(theirs))
    assert np.mean(losses["prob_best"]) < np.mean(losses["bootstrap"])


def test_group_differences_are_covered():
    """From three tasks of ten items to 57 of a hundred; the normal interval is too short."""
    rows = group_rows()
    for row in rows:
        if row["method"] == "beta-neff":
            assert 0.94 - 3 * row["std_error"] <= row["coverage"] <= 0.985
    few = [r["coverage"] for r in rows if r["method"] == "normal" and r["tasks"] == 3]
    assert min(few) < 0.93
