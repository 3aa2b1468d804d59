"""Units of comparisons over tasks, p-values of limits, and detectable drops: by definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from evalstats_plugin import Source, compare
from evalstats_plugin.comparisons.design import latest_cells, pairings
from evalstats_plugin.comparisons.families import p_of_limits, prob_of_p
from evalstats_plugin.comparisons.paired import _end
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.comparisons.units import Strata, common_units, mean_differences
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import Interval


@given(
    st.lists(st.floats(-3.5, 3.5), min_size=1, max_size=5),
    st.floats(0.6, 0.99),
    st.sampled_from([0.0, 1.0]),
)
def test_p_values_of_normal_limits_are_those_of_the_z_test(z, level, null):
    """And at most 1 - level exactly where the limits of the level leave out the null."""
    deviate, error = np.array(z), 0.3

    def interval(asked):
        half = special.ndtri((1 + asked) / 2) * error
        return Interval(null + deviate * error - half, null + deviate * error + half)

    p = p_of_limits(interval, level, null=null)
    low, high = interval(level)
    expected = 2 * special.ndtr(-np.abs(deviate))
    far = np.abs(deviate) > 0.02

    assert p[far] == pytest.approx(expected[far], abs=2e-6)
    assert ((p <= 1 - level) == ((low > null) | (high < null))).all()
    prob = prob_of_p(expected, null + deviate * error, null)
    assert prob[far] == pytest.approx(special.ndtr(deviate)[far])
    assert prob_of_p(np.ones(1), np.full(1, null), null) == 0.5


def _tasks(*, clusters=False, lonely=False, seed=0):
    """Three models on tasks of 12 and 7 items; the last two share none of the second."""
    rng = np.random.default_rng(seed)
    scores = rng.random((3, 19)).round(2)
    if lonely:
        scores[1, 12:15], scores[2, 15:] = np.nan, np.nan
    matrix = ResponseMatrix.from_array(
        scores,
        tasks=["x"] * 12 + ["y"] * 7,
        clusters=[f"c{k // 2}" for k in range(19)] if clusters else None,
    )
    return scores, pairings(latest_cells(matrix.to_responses()), None)[0]


def _squared_error(x, labels):
    """Squared standard error of a mean of items, or of clusters of them, with Bessel's factor."""
    seen = ~np.isnan(x)
    rest = np.where(seen, x - x[seen].mean(), 0.0)
    sums = np.bincount(labels, rest)
    n = len(np.unique(labels[seen]))
    return (sums**2).sum() / seen.sum() ** 2 * n / (n - 1)


@pytest.mark.parametrize("clusters", [False, True])
def test_units_of_tasks_have_the_mean_and_error_of_the_weighted_mean(clusters):
    """The square of their spread is the weighted sum of what each task adds."""
    scores, tasks = _tasks(clusters=clusters)
    weights = np.array([0.3, 0.7])
    strata = Strata(tasks, lambda n: np.broadcast_to(weights, n.shape))
    x, there = strata.differences(slice(None))
    labels = np.arange(19) // 2 if clusters else np.arange(19)

    for k, (a, b) in enumerate(zip(tasks[0].a, tasks[0].b, strict=True)):
        d = scores[b] - scores[a]
        mean = weights @ [d[:12].mean(), d[12:].mean()]
        expected = weights**2 @ [
            _squared_error(d[part], labels[part] - labels[part].min())
            for part in (slice(12), slice(12, None))
        ]
        n = there[k].sum()
        assert strata.means()[k] == pytest.approx(mean)
        assert np.nanmean(x[k]) == pytest.approx(mean)
        assert np.nansum((x[k] - mean) ** 2) / n**2 == pytest.approx(expected)


def test_a_pair_that_shares_no_item_of_a_task_has_each_models_own_there():
    """B's residuals less a's, of which each unit has one."""
    scores, tasks = _tasks(lonely=True)
    weights = np.array([0.5, 0.5])
    strata = Strata(tasks, lambda n: np.broadcast_to(weights, n.shape))
    pairs = list(zip(tasks[0].a.tolist(), tasks[0].b.tolist(), strict=True))
    k = pairs.index((1, 2))
    x, there = strata.differences(slice(None))
    d = scores[2, :12] - scores[1, :12]
    of_a, of_b = scores[1, 15:], scores[2, 12:15]
    mean = (d.mean() + of_b.mean() - of_a.mean()) / 2
    rest = [
        (each - each.mean()) * np.sqrt(n / (n - 1)) / n
        for each, n in ((d, 12), (of_b, 3), (of_a, 4))
    ]
    expected = mean + 19 * 0.5 * np.r_[rest[0], rest[1], -rest[2]]

    assert there[k].sum() == 19
    assert strata.means()[k] == pytest.approx(mean)
    # Items are in the order of their names.
    assert np.sort(x[k][:12]) == pytest.approx(np.sort(expected[:12]))
    assert np.sort(x[k][12:]) == pytest.approx(np.sort(expected[12:]))


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("lonely", [False, True])
def test_units_of_one_task_are_its_items_or_clusters(clusters, lonely):
    """Sums and sizes; where models lack items, of the differences of each pair."""
    scores, tasks = _tasks(clusters=clusters, lonely=lonely)
    pairs = tasks[1]
    found = common_units(pairs)
    own = scores[:, 12:]
    labels = np.arange(12, 19) // 2 - 6 if clusters else np.arange(7)

    def sums(values):
        return np.bincount(labels, np.nan_to_num(values), minlength=labels.max() + 1)

    # Sums of clusters have the items' means where a model lacks them.
    filled = np.where(np.isnan(own), np.nanmean(own, axis=0), own) if clusters else own
    assert np.nan_to_num(found.sums) == pytest.approx(np.stack([sums(x) for x in filled]))
    assert found.sizes.tolist() == np.bincount(labels).tolist()
    if lonely:
        every, sizes = found.differences(np.arange(3))
        for k, (a, b) in enumerate(zip(pairs.a, pairs.b, strict=True)):
            d = own[b] - own[a]
            assert every[k] == pytest.approx(sums(d))
            assert sizes[k] == pytest.approx(sums(~np.isnan(d)))


def test_mean_differences_read_all_pairs():
    """Estimates are the differences of means of the items that both answered."""
    scores, tasks = _tasks(lonely=True)
    found = mean_differences(tasks[0])

    assert found.estimate == pytest.approx(
        [scores[b, :12].mean() - scores[a, :12].mean()
         for a, b in zip(tasks[0].a, tasks[0].b, strict=True)]
    )  # fmt: skip


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_units_of_tasks_are_what_items_add_to_the_weighted_mean(seed, clusters):
    """Pair by pair and task by task, with items, clusters and whole tasks missing."""
    rng = np.random.default_rng(seed)
    sizes = [10, 5, 5]
    scores = rng.random((4, 20)).round(2)
    scores[rng.random(scores.shape) < 0.25] = np.nan
    scores[0, 10:13], scores[1, 13:15] = np.nan, np.nan
    scores[2, :4], scores[2, 4:6] = 0.5, np.nan
    scores[3, :4] = np.nan
    labels = np.repeat([0, 1, 2], sizes)
    groups = np.arange(20) // 2 if clusters else np.arange(20)
    matrix = ResponseMatrix.from_array(
        scores, tasks=[f"t{k}" for k in labels],
        clusters=[f"c{g:02}" for g in groups] if clusters else None,
    )  # fmt: skip
    tasks = pairings(latest_cells(matrix.to_responses()), None)[0]

    def weights(n_items):
        return n_items / n_items.sum(axis=-1, keepdims=True)

    strata = Strata(tasks, weights)
    found, observed = strata.differences(slice(None))
    for p, (i, j) in enumerate(zip(tasks[0].a, tasks[0].b, strict=True)):
        parts, n_items, means = [], [], []
        for k in range(3):
            own = labels == k
            a, b, names = scores[i, own], scores[j, own], groups[own]
            if np.isnan(b - a).all():
                sides, n = [(b, 1.0), (a, -1.0)], ((~np.isnan(a)).sum() + (~np.isnan(b)).sum()) / 2
            else:
                sides, n = [(b - a, 1.0)], (~np.isnan(b - a)).sum()
            rest, seen, n_units = 0.0, False, 0
            few = False
            for x, sign in sides:
                there = ~np.isnan(x)
                d = np.where(there, x - np.nanmean(x), 0.0)
                count = np.array([there[names == c].any() for c in np.unique(names)])
                total = np.array([d[names == c].sum() for c in np.unique(names)])
                u = count.sum()
                few |= u < 2
                rest = rest + sign * total * np.sqrt(u / max(u - 1, 1)) / there.sum()
                seen, n_units = seen | count, n_units + u
            parts.append((rest, seen, 1 if few else n_units))
            n_items.append(n)
            means.append(np.nanmean(b - a) if len(sides) == 1 else np.nanmean(b) - np.nanmean(a))
        w = np.array(n_items) / sum(n_items)
        whole = w @ means
        units = sum(n for *_, n in parts)
        x = np.concatenate(
            [np.where(seen, units * wk * rest + whole, np.nan)
             for wk, (rest, seen, _) in zip(w, parts, strict=True)]
        )  # fmt: skip
        if min(n for *_, n in parts) < 2:
            x[:] = np.nan
        np.testing.assert_allclose(found[p], x, rtol=1e-9, atol=1e-12)
        assert strata.means()[p] == pytest.approx(whole)
        assert (observed[p] > 0).tolist() == np.concatenate([s for _, s, _ in parts]).tolist()


def test_a_task_of_one_item_has_the_spread_of_items_in_the_other_tasks():
    """Two units as far apart as their mean variance says, over the tasks with more items."""
    scores = np.random.default_rng(5).random((3, 12))
    matrix = ResponseMatrix.from_array(scores, tasks=["x"] * 5 + ["y"] * 6 + ["z"])
    tasks = pairings(latest_cells(matrix.to_responses()), None)[0]
    weights = np.array([0.5, 0.2, 0.3])
    strata = Strata(tasks, lambda n: np.broadcast_to(weights, n.shape))
    x, observed = strata.differences(slice(None))
    parts = [slice(5), slice(5, 11), slice(11, 12)]
    for p, (i, j) in enumerate(zip(tasks[0].a, tasks[0].b, strict=True)):
        d = scores[j] - scores[i]
        mean = weights @ [d[part].mean() for part in parts]
        error = weights[:2] ** 2 @ [d[part].var(ddof=1) / len(d[part]) for part in parts[:2]]
        single = np.mean([d[part].var(ddof=1) for part in parts[:2]])
        n = 13
        assert observed[p].sum() == n
        assert x[p].mean() == pytest.approx(mean)
        assert ((x[p] - mean) ** 2).sum() / n**2 == pytest.approx(error + weights[2] ** 2 * single)
        assert x[p, -1] + x[p, -2] == pytest.approx(2 * mean)
    alone = ResponseMatrix.from_array(scores[:, :2], tasks=["x", "y"])
    both = Strata(
        pairings(latest_cells(alone.to_responses()), None)[0],
        lambda n: n / n.sum(-1, keepdims=True),
    )
    assert np.isnan(both.differences(slice(None))[0]).all()
    assert both.means() == pytest.approx(
        (scores[tasks[0].b, :2] - scores[tasks[0].a, :2]).mean(axis=1)
    )


@pytest.mark.parametrize("missing", [None, 0, 1])
def test_common_units_of_tasks_give_the_differences_of_each_pair(missing):
    """By the models' own sums where every model has every item, else pair by pair."""
    scores = np.random.default_rng(6).random((3, 12)).round(2)
    if missing is not None:
        scores[1, 7 * missing] = np.nan
    matrix = ResponseMatrix.from_array(scores, tasks=["x"] * 5 + ["y"] * 7)
    tasks = pairings(latest_cells(matrix.to_responses()), None)[0]
    strata = Strata(tasks, lambda n: n / n.sum(axis=-1, keepdims=True))
    common = strata.common()
    x, observed = strata.differences(slice(None))
    every, sizes = common.of_pairs(tasks[0].a, tasks[0].b, np.arange(3))

    assert (common.differences is None) == (missing is None)
    np.testing.assert_allclose(every, np.nan_to_num(x), rtol=1e-12, atol=1e-15)
    assert (np.broadcast_to(sizes, observed.shape) == observed).all()


def test_errors_at_the_ends_have_half_of_the_span_on_one_item() -> None:
    """Beside the standard error, which is 0 where nothing differs."""
    scores, tasks = _tasks()
    _, mean, error = _end(tasks[0])
    d = (scores[tasks[0].b] - scores[tasks[0].a])[:, :12]

    assert mean == pytest.approx(d.mean(axis=1))
    assert error == pytest.approx(np.sqrt(d.var(axis=1, ddof=1) / 12 + (1 / 24) ** 2))


def test_a_prior_of_composites_weighs_as_much_as_answers_would() -> None:
    """Of 40 answers with few errors, one of each kind more makes the limits wider."""
    gold = np.arange(40) % 2
    responses = [
        given_responses(
            model=model, metric="f1", aggregation="f1", item_ids=np.arange(40),
            scores=np.empty((40, 0)), source=Source(Path("a.json"), "test"),
            pairs=np.stack([gold, np.where(np.arange(40) < n, 1 - gold, gold)], axis=1),
        )
        for model, n in (("a", 3), ("b", 1))
    ]  # fmt: skip
    default, half, more = (compare(responses, prior=x, rng=0)[0] for x in (None, 0.5, 3.0))

    assert default == half
    assert (more.high or 0) - (more.low or 0) > 1.2 * ((half.high or 0) - (half.low or 0))
    assert "3 on each of" in more.prior


@pytest.mark.parametrize("method", ["sums-percentile", "sums-jackknife-t"])
@pytest.mark.parametrize("in_one_cluster", [False, True])
def test_one_item_or_cluster_is_no_evidence(method: str, *, in_one_cluster: bool) -> None:
    """Its resamples all have the difference that was seen."""
    pairs = np.array([["one two three", "one two three"], ["four", "four"]], dtype=object)
    worse = np.array([["one two three", "nothing"], ["four", "five"]], dtype=object)
    n = 2 if in_one_cluster else 1
    responses = [
        given_responses(
            model=model, metric="chrf", aggregation="chrf", item_ids=np.arange(n),
            scores=np.empty((n, 0)), pairs=own[:n], source=Source(Path("a.json"), "test"),
            clusters=np.zeros(n) if in_one_cluster else None,
        )
        for model, own in (("a", pairs), ("b", worse))
    ]  # fmt: skip

    [row] = compare(responses, method=method, rng=0)

    assert row.difference is not None
    assert row.difference < -50
    assert (row.low, row.high, row.p_value, row.prob_better) == (None, None, None, None)
    assert row.verdict == "unclear"


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        ({"p_adjusted": None, "difference": 0.5}, "unclear"),
        ({"p_adjusted": 0.26, "difference": 0.5}, "unclear"),
        ({"p_adjusted": 0.25, "difference": 0.5}, "better"),
        ({"p_adjusted": 0.25, "difference": -0.5}, "worse"),
        ({"p_adjusted": 0.25, "difference": 0.5, "higher_is_better": False}, "worse"),
        ({"p_adjusted": 0.25, "difference": -0.5, "higher_is_better": False}, "better"),
        ({"p_adjusted": 0.0, "difference": 0.0}, "unclear"),
        ({"p_adjusted": 0.0, "difference": None}, "unclear"),
        ({"p_adjusted": 0.0, "difference": None, "effect": "ratio", "prob_better": 0.9}, "better"),
        ({"p_adjusted": 0.0, "difference": 0.0, "effect": "ratio", "prob_better": 0.6}, "better"),
        ({"p_adjusted": 0.0, "difference": 3.0, "effect": "ratio", "prob_better": 0.5}, "worse"),
        ({"p_adjusted": 0.0, "difference": 3.0, "effect": "ratio"}, "worse"),
    ],
)
def test_a_verdict_needs_a_small_p_value_and_a_direction(
    known: dict[str, Any], verdict: str
) -> None:
    """At a level of 75 %, up to its own p-value; of ratios the probability says which is better."""
    row = Comparison(
        **{
            "model_a": "a", "model_b": "b", "task": "t", "metric": "m", "n_items": 9, "low": None,
            "high": None, "p_value": None, "prob_better": None, "method": "", "notes": (),
            "confidence_level": 0.75, "higher_is_better": True,
        } | known
    )  # fmt: skip
    assert row.verdict == verdict
