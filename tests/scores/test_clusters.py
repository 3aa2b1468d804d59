"""Items that stand or fall together widen the interval, and the row says by how much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Source, intervals
from evalstats_plugin.data.responses import as_clusters
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.stats import clustered, grid_posteriors

CLUSTERS = np.repeat(np.arange(8), 5)
RIGHT = (np.random.default_rng(0).random(40) < np.repeat([1, 0.9, 0.2, 0.8, 1, 0, 0.7, 1], 5)) * 1.0
SOURCE = Source(path=Path(), harness="test")
VALIDATION = Path(__file__).parents[2] / "fixtures" / "validation"


def _one(scores: np.ndarray, groups: np.ndarray | None = CLUSTERS, **more: object) -> ScoreInterval:
    array = np.asarray(scores, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    r = given_responses(
        model="m", task="t", metric="acc", item_ids=np.arange(len(array)), scores=array,
        clusters=groups, source=SOURCE,
    )  # fmt: skip
    return intervals([r], **more)[0]  # pyright: ignore[reportArgumentType]


def test_binary_scores_get_the_beta_binomial_posterior() -> None:
    """Side by side with what the interval would be without clusters, and the design effect."""
    right = RIGHT.reshape(8, 5).sum(axis=1)
    expected = grid_posteriors.beta_binomial(
        right, np.full(8, 5), confidence_level=0.95, prior="uniform-icc"
    )
    row, naive = _one(RIGHT), _one(RIGHT, None)

    assert ("size-betabinomial", 8, 40) == (row.method, row.n_clusters, row.n_items)
    assert (float(expected.low), float(expected.high)) == (row.low, row.high)
    assert float(clustered.cluster_moments(right, np.full(8, 5)).cr1) == pytest.approx(
        row.std_error
    )
    assert row.high - row.low > naive.high - naive.low  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    effect = (row.std_error / naive.std_error) ** 2  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert (naive.low, naive.high) == (row.naive_low, row.naive_high)
    assert effect == pytest.approx(row.design_effect)
    assert row.notes[0].startswith("items come in clusters, which the interval allows for")
    assert naive.n_clusters is None


@pytest.mark.parametrize(
    ("scores", "method"),
    [
        (np.stack([RIGHT, RIGHT[::-1]], axis=1), "logit-t-cr2"),
        (RIGHT * 0.7 + 0.1, "logit-t-cr2"),
        (RIGHT * 20 - 3, "t-cr2"),
    ],
)
def test_other_scores_get_a_clustered_t(scores: np.ndarray, method: str) -> None:
    """Epochs are averaged first."""
    row = _one(scores)

    assert (method, 8) == (row.method, row.n_clusters)
    assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_missing_scores_leave_their_cluster() -> None:
    """A cluster without any score is none."""
    scores = RIGHT.copy()
    scores[:7] = np.nan
    row = _one(scores)

    assert (33, 7, 7) == (row.n_items, row.n_missing, row.n_clusters)


def test_a_method_without_clusters_is_used_on_request_with_a_warning() -> None:
    """And one for clusters nowhere else."""
    row = _one(RIGHT, method="wilson")

    assert ("wilson", 8) == (row.method, row.n_clusters)
    assert "wilson treats clustered items as independent: perhaps too short" in row.notes
    assert "betabinomial-gamma" == _one(RIGHT, method="betabinomial-gamma", prior=(1, 1)).method
    assert "beta-hpd" == _one(RIGHT, None, method="size-betabinomial").method


def test_one_cluster_gives_a_wide_interval_and_a_note() -> None:
    """Wide, and with a note."""
    row = _one(np.ones(50), np.full(50, "passage"))

    assert row.high - row.low > 0.5  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert row.notes[0].endswith("one cluster: how clusters differ is unknown")


def test_unbounded_scores_of_one_cluster_have_no_interval() -> None:
    """There is nothing to judge the error by."""
    row = _one(RIGHT * 200, np.zeros(40))

    assert (None, None, None) == (row.low, row.high, row.std_error)
    assert "t-cr2 gives no interval for 40 such items" in row.notes


def test_design_effect_and_correlation_stand_side_by_side() -> None:
    """By analysis of variance, for scores of any kind; unknown where every cluster is one item."""
    right = RIGHT.reshape(8, 5).sum(axis=1)
    expected = clustered.anova_icc(right, right, np.full(8, 5))
    row, scaled = _one(RIGHT), _one(RIGHT * 20 - 3)

    assert float(expected) == pytest.approx(row.icc) == pytest.approx(scaled.icc)
    assert row.icc > 0.2  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert row.design_effect > 1.5  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert _one(RIGHT, np.arange(40)).icc is None
    assert _one(RIGHT, None).icc is None


def test_clusters_of_one_item_give_nearly_the_interval_without_clusters() -> None:
    """Equal tails of the same posterior, and a design effect of 1."""
    row = _one(RIGHT, np.arange(40), method="size-betabinomial")
    naive = _one(RIGHT, None, method="beta")

    assert (naive.low, naive.high) == pytest.approx((row.low, row.high), abs=1e-8)
    assert row.design_effect == pytest.approx(1)


def test_clusters_that_all_agree_have_no_design_effect() -> None:
    """Every answer right: an interval, but no spread to speak of."""
    row = _one(np.ones(40))

    assert (None, None) == (row.design_effect, row.icc)
    assert row.high == pytest.approx(1, abs=0.01)
    assert 0.5 < row.low < 0.9  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]


@pytest.mark.parametrize("method", ["t-cr2", "logit-t-cr2"])
def test_other_methods_are_used_by_name(method: str) -> None:
    row = _one(RIGHT, method=method)

    assert row.method == method
    assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_items_without_a_cluster_are_clusters_of_their_own() -> None:
    """An empty key says that an item stands alone."""
    keys = np.repeat(["p", "q", "r", ""], [12, 12, 12, 4])
    row = _one(RIGHT, keys)
    alone = _one(RIGHT, np.repeat(["p", "q", "r", "w", "x", "y", "z"], [12, 12, 12, 1, 1, 1, 1]))

    named, notes = as_clusters(["p", None, "p", None], "passage")

    assert named is not None
    assert 3 == len(set(named.tolist()))
    assert ("2 items without 'passage' are clusters of their own",) == notes
    assert 7 == row.n_clusters
    assert (alone.low, alone.high) == (row.low, row.high)


SIZES = np.repeat(np.arange(12), [40, 20, 12, 8, 6, 5, 4, 2, 1, 1, 1, 1])
FALLING = np.concatenate([np.zeros(40), np.tile([0.0, 1.0], 10), np.ones(41)])


def test_every_item_counts_alike_unless_clusters_shall() -> None:
    """The estimate is of the same kind as its interval, and the row names it."""
    items, clusters = _one(FALLING, SIZES), _one(FALLING, SIZES, estimand="clusters")

    assert items.estimate == pytest.approx(51 / 101)
    assert clusters.estimate == pytest.approx(10.5 / 12)
    assert ("items", "clusters") == (items.estimand, clusters.estimand)
    assert items.low < 51 / 101 < items.high < clusters.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_a_method_for_independent_items_is_not_used_for_a_mean_of_clusters() -> None:
    """Its limits would be those of another number than the estimate."""
    row = _one(FALLING, SIZES, estimand="clusters", method="wilson")

    assert row.method == "size-betabinomial"
    assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_limits_of_a_low_level_reach_to_the_estimate() -> None:
    """One cluster, 1 of 12 right: the prior would end the 50 % interval above it."""
    row = _one(np.repeat([1.0, 0.0], [1, 11]), np.zeros(12), confidence_level=0.5)

    assert row.low == row.estimate == 1 / 12


def test_fixed_clusters_have_a_narrower_interval_for_new_items_of_theirs() -> None:
    fixed, new = _one(FALLING, SIZES, clusters="fixed"), _one(FALLING, SIZES)

    assert "new items of these clusters" == fixed.population
    assert "new clusters like these" == new.population
    assert fixed.high - fixed.low < 0.5 * (new.high - new.low)  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_partial_credit_has_no_interval_for_fixed_clusters_and_says_so() -> None:
    row = _one(RIGHT * 0.7 + 0.1, clusters="fixed")

    assert "new clusters like these" == row.population
    assert "logit-t-cr2 is for new clusters: fixed ones need 0/1 scores" in row.notes


def test_many_clusters_get_the_clustered_t() -> None:
    """From 20 degrees of freedom, which depend on the sizes alone."""
    right = (np.random.default_rng(1).random(100) < 0.7) * 1.0

    assert "size-betabinomial" == _one(right[:80], np.repeat(np.arange(20), 4)).method
    assert "logit-t-cr2" == _one(right[:84], np.repeat(np.arange(21), 4)).method


def test_the_study_of_sizes_bears_out_the_default() -> None:
    """Of what `make validate` wrote: at the level, within its error, and narrower than CR2."""
    found = json.loads((VALIDATION / "cluster_sizes.json").read_text("utf-8"))["scores"]
    ours, t = ([row for row in found if row["method"] == m] for m in ("default", "logit_t_cr2"))

    assert 0.94 < np.mean([row["coverage"] for row in ours]) < 0.96
    assert all(
        0.92 - 3 * error <= row["coverage"]
        for row in ours
        for error in [(0.05 * 0.95 / row["runs"]) ** 0.5]
    )
    assert sum(row["width"] for row in ours) < 0.9 * sum(row["width"] for row in t)


def test_two_clusters_are_enough_to_say_how_they_differ() -> None:
    """One is not."""
    note = "all items are in one cluster: how clusters differ is unknown"
    scores = np.random.default_rng(1).integers(0, 2, 12).astype(float)

    for n, expected in ((1, True), (2, False), (3, False)):
        row = _one(scores, np.repeat(np.arange(n), 12 // n))
        assert (note in row.notes) == expected


def test_a_note_says_that_scores_go_with_the_size_of_clusters() -> None:
    """With both means, whichever was asked for."""
    expected = (
        "larger clusters score lower: 0.505 if every item counts alike, 0.875 if every cluster does"
    )

    for which in ("items", "clusters"):
        assert expected in _one(FALLING, SIZES, estimand=which).notes
    assert not any("larger clusters score" in note for note in _one(RIGHT).notes)
