"""Figures of scores that lie on disk, of matrices, and of many models at once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figures import Run, changed
from study import all_pairs

import evalstats_plugin as es
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.ranks import ranks_by_blocks, ranks_of
from evalstats_plugin.data.importing import store_table, write_store
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.data.store import tasks_of

FOLDER = tempfile.TemporaryDirectory()
KINDS = ("binary", "holes", "credit", "epochs", "clusters", "numbers", "one of two")


@cache
def matrix(kind: str, n: int = 6) -> es.ResponseMatrix:
    """Scores of n models on two tasks whose items take turns."""
    rng = np.random.default_rng(8)
    share = np.linspace(0.3, 0.8, n)[:, None, None] + rng.uniform(-0.2, 0.2, (1, 50, 1))
    scores = 1.0 * (rng.random((n, 50, 3 if kind == "epochs" else 1)) < share)
    more: dict[str, Any] = {}
    if kind in {"credit", "numbers"}:
        scores = np.round(share + 0.3 * rng.normal(size=scores.shape), 1)
    if kind == "one of two":
        scores[:, ::3] += rng.random(scores[:, ::3].shape)
    if kind == "credit":
        scores = np.clip(scores, 0, 1)
        scores[:, ::2] = np.round(scores[:, ::2])
    if kind in {"holes", "epochs", "numbers"}:
        scores[rng.random(scores.shape) < 0.15] = np.nan
    if kind == "clusters":
        more["clusters"] = [None if j % 9 == 0 else j // 4 for j in range(50)]
    return es.ResponseMatrix.from_array(scores, tasks=[("b", "a")[j % 3 > 0] for j in range(50)],
                                        metric="acc", **more)  # fmt: skip


@cache
def store(kind: str) -> es.ResponseStore:
    """The same scores on disk."""
    return write_store(Path(FOLDER.name) / f"{kind}.parquet", matrix(kind))


def _stored(how: Callable[..., Any], kind: str, **asked: Any) -> Any:
    return how(store(kind), rng=0, **asked)


def _contents(store: es.ResponseStore, rng: int) -> dict[str, Any]:
    del rng
    return {
        "models": list(store.models), "shape": list(store.shape), "all": store.matrix().scores,
        "missing": [store.missing(part) for part in store.slices(7)],
        "some": store.matrix(slice(3, 30), slice(1, 4)).scores,
        "tasks": [[task.models_at_once().__next__(), task.scores(np.array([0, 2]))]
                  for task in tasks_of(store)],
    }  # fmt: skip


def _imported(kind: str) -> Any:
    """A table of one row for each answer, turned into a store."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"model": r.model, "task": r.task, "item": str(item), "epoch": epoch, "score": score}
            for r in matrix(kind).to_responses()
            for item, scores in zip(r.item_ids.tolist(), r.scores.tolist(), strict=True)
            for epoch, score in enumerate(scores)
            if score == score  # noqa: PLR0124 - not a missing one
        ]
        pd.DataFrame(rows[::-1]).to_csv(Path(folder) / "t.csv", index=False)
        store = store_table(Path(folder) / "t.csv", Path(folder) / "s.parquet")
        return {
            **_contents(store, 0),
            "dtype": str(store.codes(slice(0, 3))[0].dtype),
        }


def _leads(n: int, missing: float, *, alike: bool) -> dict[str, Any]:
    """What holds for all pairs of n models at once."""
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(n, 40)) + np.linspace(0, 1, n)[:, None]
    scores[rng.random(scores.shape) < missing] = np.nan
    if alike:
        scores[1] = scores[0]
    together = all_pairs(scores, *np.triu_indices(n, 1), span=np.inf, n_draws=499)
    return {
        "critical": [together.critical(alpha) for alpha in (0.2, 0.05, 0.01)],
        "limits": together.limits(0.1), "p": together.p_values, "steps": together.step_down(),
        "first": together.first(0.1), "last": together.first(0.1, lower_is_better=True),
        "stretch": together.stretch, "deviate": together.deviate,
    }  # fmt: skip


def _by_blocks(kind: str, most: int) -> Any:
    request = Request(confidence_level=0.9, rng=np.random.default_rng(0))
    ranks, _ = ranks_by_blocks(matrix(kind).to_responses(), request, most_pairs=most)
    return {" ".join(place): rows for place, rows in ranks.items()}


RUNS: Mapping[str, Mapping[str, Run]] = {
    "intervals": {kind: partial(_stored, es.intervals, kind) for kind in KINDS} | {
        "a method": partial(_stored, es.intervals, "holes", method="wilson"),
        "90 %": partial(_stored, es.intervals, "credit", confidence_level=0.9),
        "bounds": partial(_stored, es.intervals, "holes", missing="bounds"),
        "on a scale": partial(_stored, es.intervals, "credit",
                              measure=Measure(metric="acc", scale=Scale(0, 2))),
    },
    "comparisons": {
        f"{kind} {name}": partial(_stored, es.compare, kind, overall=False, **asked)
        for kind in KINDS for name, asked in (
            ("all", {}), ("baseline", {"baseline": "model_3"}), ("best", {"baseline": "best"}))
    } | {
        f"{how} {kind}": partial(_stored, es.compare, kind, overall=False, baseline="model_0",
                                 method=how)
        for how, kind in (("tango", "holes"), ("newcombe", "binary"), ("paired-t", "credit"))
    } | {
        f"by {correction}": partial(_stored, es.compare, "holes", overall=False,
                                    correction=correction, confidence_level=0.9)
        for correction in ("bh", "none", "stepdown")
    },
    "matrices": {
        **{f"intervals {kind}": partial(es.intervals, matrix(kind), rng=0) for kind in KINDS},
        **{f"table {kind}": partial(es.table, matrix(kind), rng=0) for kind in KINDS},
        **{f"ranks {kind}": partial(es.comparisons.rank_sets, matrix(kind), rng=0)
           for kind in KINDS},
        "many models": partial(es.table, matrix("credit", 40), rng=0),
        "many ranks": partial(es.comparisons.rank_sets, matrix("holes", 40), rng=0),
    },
    "ranks by blocks": {
        f"{kind} {most}": partial(_by_blocks, kind, most)
        for kind in ("binary", "credit", "holes") for most in (4, 1000)
    },
    "ranks of rows": {
        kind: lambda kind=kind: ranks_of([
            row for row in es.compare(matrix(kind), overall=False, rng=0) if row.task == "a"])
        for kind in ("binary", "credit")
    },
    "leads": {
        f"{n} {missing} {alike}": partial(_leads, n, missing, alike=alike)
        for n in (3, 12) for missing in (0.0, 0.1) for alike in (False, True)
    },
    "contents": {kind: partial(_stored, _contents, kind) for kind in KINDS},
    "imported": {kind: partial(_imported, kind) for kind in KINDS},
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("stored", run, RUNS[run]) == []
