"""What has no slices is left out, and named: beside slices of tags that some items lack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from given_responses import given_responses

from evalstats_plugin import Responses, Source, slices
from evalstats_plugin.data.measure import Scale
from evalstats_plugin.data.responses import Prediction
from evalstats_plugin.scores.slices import ALIKE, NONE


def _tagged(task: str, tags: list[str] | None, scores: np.ndarray) -> Responses:
    return given_responses(
        model="m", task=task, metric="acc", item_ids=np.arange(len(scores)), scores=scores[:, None],
        tags=None if tags is None else np.array(tags), source=Source(Path("m.json"), "test"),
    )  # fmt: skip


def test_slices_are_the_items_with_a_tag_whatever_others_lack() -> None:
    """Of drawn tags and scores; none of what is predicted, without tags, or without items."""
    rng = np.random.default_rng(3)
    scores = np.where(rng.random(60) < 0.2, np.nan, rng.integers(0, 2, 60))
    own = [[t for t in "abc" if rng.random() < 0.4] for _ in range(60)]
    texts = [str(list(tags)).replace("'", '"') for tags in own]
    predicted = replace(
        _tagged("u", ["a"] * 4, np.ones(4)), predicted=Prediction(estimate=0.5, n_in_bank=9)
    )
    rows = slices(
        [_tagged("t", texts, scores), predicted, _tagged("v", None, np.ones(3)),
         _tagged("w", [], np.empty(0))],
        by="topic",
    )  # fmt: skip

    named = {t: np.array([t in tags for tags in own]) for t in "abc"}
    expected = named | {NONE: ~np.any(list(named.values()), axis=0)}
    assert [row.slice for row in rows] == ["a", "b", "c", NONE]
    for row in rows:
        inside = scores[expected[row.slice]]
        assert row.estimate == np.nanmean(inside)
        assert (row.n_items, row.n_missing) == (np.isfinite(inside).sum(), np.isnan(inside).sum())
        assert (row.task, row.n_slices) == ("t", 4)
    n_none = int(expected[NONE].sum())
    assert rows.notes == (
        "left out by slices, no item has 'topic' or a score: u, v, w",
        f"{n_none} items of a task without 'topic': slice (none)",
        "an item belongs to each of its tags in 'topic': slices overlap",
    )


def test_limits_for_values_like_these_are_on_the_scale() -> None:
    """Of a mean loss that differs between settings; the lower one once was below 0."""
    losses = np.random.default_rng(4).exponential(size=30)
    runs = [
        _tagged("t", [name] * 30, losses * size).measured(scale=Scale(0.0))
        for name, size in (("1", 0.5), ("2", 1.0), ("3", 2.0))
    ]
    row = slices(runs, by="temperature").rows[-1]

    assert row.slice == ALIKE
    assert row.low == 0 < row.estimate < row.high
