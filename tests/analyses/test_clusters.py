"""Items that stand or fall together widen the interval, and the row says by how much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import Responses, Source, intervals
from evalstats_plugin.results import ScoreInterval
from evalstats_plugin.stats import beta_binomial, clustered

CLUSTERS = np.repeat(np.arange(8), 5)
RIGHT = (np.random.default_rng(0).random(40) < np.repeat([1, 0.9, 0.2, 0.8, 1, 0, 0.7, 1], 5)) * 1.0
SOURCE = Source(path=Path(), harness="test")


def _one(scores: np.ndarray, groups: np.ndarray | None = CLUSTERS, **more: object) -> ScoreInterval:
    array = np.asarray(scores, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    r = Responses(
        model="m", task="t", metric="acc", item_ids=np.arange(len(array)), scores=array,
        clusters=groups, source=SOURCE,
    )  # fmt: skip
    return intervals([r], **more)[0]  # pyright: ignore[reportArgumentType]


def test_binary_scores_get_the_beta_binomial_posterior() -> None:
    """Side by side with what the interval would be without clusters, and the design effect."""
    right = RIGHT.reshape(8, 5).sum(axis=1)
    expected = beta_binomial.interval(
        right, np.full(8, 5), confidence_level=0.95, prior="uniform-icc"
    )
    row, naive = _one(RIGHT), _one(RIGHT, None)

    assert ("betabinomial", 8, 40) == (row.method, row.n_clusters, row.n_items)
    assert (float(expected.low), float(expected.high)) == (row.low, row.high)
    assert float(clustered.moments(right, np.full(8, 5)).cr1) == pytest.approx(row.std_error)
    assert row.high - row.low > naive.high - naive.low  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    effect = (row.std_error / naive.std_error) ** 2  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert (naive.low, naive.high) == (row.naive_low, row.naive_high)
    assert effect == pytest.approx(row.design_effect)
    assert row.notes[0].startswith("items come in clusters, which the interval allows for")
    assert naive.n_clusters is None


@pytest.mark.parametrize(
    ("scores", "method"),
    [
        (np.stack([RIGHT, RIGHT[::-1]], axis=1), "logit-t-cr1"),
        (RIGHT * 0.7 + 0.1, "logit-t-cr1"),
        (RIGHT * 20 - 3, "t-cr1"),
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
    assert "wilson takes items that come in clusters as independent, perhaps too short" in row.notes
    assert "betabinomial-gamma" == _one(RIGHT, method="betabinomial-gamma", prior=(1, 1)).method
    assert "beta-hpd" == _one(RIGHT, None, method="betabinomial").method


def test_one_cluster_says_next_to_nothing() -> None:
    """Wide, and with a note."""
    row = _one(np.ones(50), np.full(50, "passage"))

    assert row.high - row.low > 0.5  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert row.notes[0].endswith("one cluster, which tells next to nothing of others")


def test_unbounded_scores_of_one_cluster_have_no_interval() -> None:
    """There is nothing to judge the error by."""
    row = _one(RIGHT * 20, np.zeros(40))

    assert (None, None, None) == (row.low, row.high, row.std_error)
    assert "t-cr1 gives no interval for these 40 items" in row.notes
