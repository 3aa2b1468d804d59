"""False findings and joint coverage of all pairs. Writes fixtures/validation/simultaneous.json.

Each run draws scores of N models on the same items, with true differences that are known. A run has
a false finding if any verdict has the wrong sign or is of equal models; it is covered if all true
differences are inside their intervals. The negative control looks at each pair alone.
"""

from functools import cache

import numpy as np
import pytest
import study
from scipy import special

from evalstats_plugin.stats import many
from evalstats_plugin.stats.paired import paired_counts, prob_better

pytestmark = pytest.mark.validation
ALPHA, RUNS, DRAWS, SEED = 0.05, 300, 999, 20261122


def right(rng, ability, n_items, n_epochs=1):
    """Right or wrong by a logistic model; means of epochs; and the true scores."""
    difficulty = rng.normal(0, 1.5, n_items)
    chance = special.expit(ability[:, None] - difficulty)
    truth = special.expit(ability[:, None] - rng.normal(0, 1.5, 4000)).mean(axis=1)
    return rng.binomial(n_epochs, chance) / n_epochs, truth


def narrow(rng, ability, n_items):
    """Partial credit far from the bounds, such as similarities of sentences."""
    item = rng.normal(0, 0.02, n_items)
    mean = 0.7 + 0.02 * ability[:, None] + item
    return mean + rng.normal(0, 0.02, mean.shape), 0.7 + 0.02 * ability


def rubric(rng, ability, n_items):
    """Five grades, most of them low."""
    shift = rng.normal(0, 0.5, n_items)
    cuts = special.expit(ability[:, None, None] - shift[:, None] - np.arange(1, 5))
    scores = (rng.random((len(ability), n_items, 1)) < cuts).sum(axis=2) / 4
    far = rng.normal(0, 0.5, 4000)[:, None]
    truth = special.expit(ability[:, None, None] - far - np.arange(1, 5)).sum(axis=2) / 4
    return scores, truth.mean(axis=1)


def in_clusters(rng, ability, n_clusters, size):
    """Right or wrong, with items of a cluster alike in difficulty and in who gets them right."""
    difficulty = np.repeat(rng.normal(0, 1.0, n_clusters), size)
    own = np.repeat(rng.normal(0, 0.8, (len(ability), n_clusters)), size, axis=1)
    chance = special.expit(ability[:, None] - difficulty + own)
    far = rng.normal(0, np.sqrt(1.0 + 0.8**2), 4000)
    scores = (rng.random(chance.shape) < chance) * 1.0
    return scores, special.expit(ability[:, None] - far).mean(axis=1)


EQUAL, HALF = np.zeros(10), np.repeat([0.0, 1.0], 5)
DESIGNS = {
    "0/1, 15 items, equal": lambda rng: (*right(rng, EQUAL, 15), None),
    "0/1, 30 items, equal": lambda rng: (*right(rng, EQUAL, 30), None),
    "0/1, 30 items, two tiers": lambda rng: (*right(rng, HALF, 30), None),
    "0/1, 100 items, two tiers": lambda rng: (*right(rng, HALF, 100), None),
    "0/1, 100 hard items, two tiers": lambda rng: (*right(rng, HALF - 3, 100), None),
    "4 epochs, 15 items, 19 models, equal": lambda rng: (*right(rng, np.zeros(19), 15, 4), None),
    "4 epochs, 15 items, 19 models apart": lambda rng: (
        *right(rng, np.linspace(-2, 2, 19), 15, 4), None,
    ),
    "narrow, 15 items, equal": lambda rng: (*narrow(rng, EQUAL, 15), None),
    "narrow, 30 items, two tiers": lambda rng: (*narrow(rng, HALF, 30), None),
    "rubric, 30 items, two tiers": lambda rng: (*rubric(rng, HALF, 30), None),
    "20 clusters of 5, two tiers": lambda rng: (
        *in_clusters(rng, HALF, 20, 5), np.repeat(np.arange(20), 5),
    ),
    "5 clusters of 20, equal": lambda rng: (
        *in_clusters(rng, EQUAL, 5, 20), np.repeat(np.arange(5), 20),
    ),
}  # fmt: skip


@cache
def pair_rows():
    return [row for k, name in enumerate(DESIGNS) for row in rows_of(name, SEED + k)]


def rows_of(name, seed):
    rng = np.random.default_rng(seed)
    found = {key: [] for key in ("simultaneous", "stepdown", "none")}
    widths, covered, contradictions = [], [], 0
    for _ in range(RUNS):
        scores, truth, clusters = DESIGNS[name](rng)
        a, b = np.triu_indices(len(scores), 1)
        pairs = many.ItemPairs(
            scores, a, b, clusters=clusters, bounds=(0, 1), rng=rng, n_draws=DRAWS
        )
        low, high = pairs.limits(ALPHA)
        difference = truth[b] - truth[a]
        p_values = pairs.p_values
        n_units = scores.shape[1] if clusters is None else len(np.unique(clusters))
        alone = many._t_tails(
            np.abs(plain_statistic(scores, a, b, clusters)), np.full(len(a), float(n_units))
        )
        sign = np.sign(pairs.difference)
        for key, p in (
            ("simultaneous", p_values), ("stepdown", pairs.step_down()), ("none", alone)
        ):  # fmt: skip
            claim = np.where(p <= ALPHA, sign, 0)
            wrong = (claim != 0) & (claim != np.sign(difference))
            apart = np.abs(difference) > 1e-12
            power = (claim[apart] == np.sign(difference[apart])).mean() if apart.any() else np.nan
            found[key].append((wrong.any(), power))
        covered.append(study.holds(low, high, difference).all())
        widths.append((high - low).mean())
        contradictions += int(((p_values <= ALPHA) != ((low > 0) | (high < 0))).sum())
    joint = float(np.mean(covered))
    rows = []
    for key, values in found.items():
        wrong, power = np.array(values, dtype=float).T
        rate = float(wrong.mean())
        row = {
            "design": name, "correction": key, "runs": RUNS, "false_finding": rate,
            "false_finding_se": float(np.sqrt(rate * (1 - rate) / RUNS)),
            "power": None if np.isnan(power).all() else float(power.mean()),
        }  # fmt: skip
        if key == "simultaneous":
            row |= {
                "coverage": joint, "coverage_se": float(np.sqrt(joint * (1 - joint) / RUNS)),
                "width": float(np.mean(widths)), "contradictions": contradictions,
            }  # fmt: skip
        rows.append(row)
    return rows


def plain_statistic(scores, a, b, clusters):
    """Sum of differences of units over the root of their squares."""
    units = scores
    if clusters is not None:
        units = scores @ (clusters[:, None] == np.unique(clusters)) * 1.0
    x = units[b] - units[a]
    size = np.sqrt((x**2).sum(axis=1))
    return x.sum(axis=1) / np.where(size > 0, size, np.inf)


@cache
def family_rows():
    """Two models on 20 tasks of 100 items, and the group of them."""
    rows = []
    runs, tasks, n = 2000, 20, 100
    for name, shift in (
        ("equal", np.zeros(tasks)),
        ("all 2 points apart", np.full(tasks, 0.02)),
        ("5 tasks 18 points apart", np.where(np.arange(tasks) < 5, 0.18, 0.0)),
    ):
        rng = np.random.default_rng(SEED + 100)
        found = {"graph": [], "each task": []}
        for _ in range(runs):
            a, b = rng.multinomial(
                n, np.stack([(0.2 - shift) / 2, (0.2 + shift) / 2, np.full(tasks, 0.8)], axis=1)
            ).T[:2]
            p = two_sided_p(a, b, n)
            mean, se = (b - a).sum() / n / tasks, np.sqrt((a + b).sum()) / n / tasks
            group = np.array([2 * special.ndtr(-abs(mean / se))])
            over = np.stack(many.over_tasks([np.array([x]) for x in p]))
            p_group, inside = many.graph(group, over)
            for key, p_of_group, p_of_tasks in (
                ("graph", p_group[0], inside[:, 0]), ("each task", group[0], p)
            ):  # fmt: skip
                hit = p_of_tasks <= ALPHA
                wrong = (hit & (shift == 0)).any() or (hit & (b < a) & (shift > 0)).any()
                wrong |= (p_of_group <= ALPHA) & (not shift.any() or mean < 0)
                some = (hit & (b > a))[shift > 0].mean() if shift.any() else np.nan
                found[key].append((wrong, p_of_group <= ALPHA, some))
        for key, values in found.items():
            wrong, group_found, power = np.array(values, dtype=float).mean(axis=0)
            rows.append(
                {
                    "truth": name, "family": key, "runs": runs, "false_finding": float(wrong),
                    "false_finding_se": float(np.sqrt(wrong * (1 - wrong) / runs)),
                    "group_found": float(group_found),
                    "tasks_found": None if np.isnan(power) else float(power),
                }
            )  # fmt: skip
    return rows


def two_sided_p(a, b, n):
    prob = prob_better(paired_counts(n - a - b, a, b, 0 * a), prior=(0.5, 1.0))
    return 2 * np.minimum(prob, 1 - prob)


def test_the_figures_are_written():
    study.write_figures("simultaneous", {"pairs": pair_rows, "families": family_rows})


@pytest.mark.parametrize("row", range(3 * len(DESIGNS)))
def test_false_findings_keep_the_level_and_looking_at_each_pair_alone_does_not(row):
    one = pair_rows()[row]
    error = 3 * np.sqrt(ALPHA * (1 - ALPHA) / RUNS)
    if one["correction"] != "none":
        assert one["false_finding"] <= ALPHA + error
    elif "equal" in one["design"]:
        assert one["false_finding"] > 3 * ALPHA


def test_intervals_hold_all_differences_at_once_and_never_contradict_the_verdicts():
    for one in pair_rows():
        if one["correction"] == "simultaneous":
            assert one["coverage"] >= 1 - ALPHA - 3 * np.sqrt(ALPHA * (1 - ALPHA) / RUNS)
            assert not one["contradictions"]


def test_a_group_with_its_tasks_is_one_family():
    for one in family_rows():
        if one["family"] == "graph":
            assert one["false_finding"] <= ALPHA + 3 * one["false_finding_se"]
        elif one["truth"] == "equal":
            assert one["false_finding"] > 5 * ALPHA
