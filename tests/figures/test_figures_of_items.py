"""Figures of items, slices, settings, parts of a benchmark and what is found wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import Run, changed, plain
from small_evaluations import KINDS, evaluation, in_groups, labelled, parts

import evalstats_plugin as es
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.scores import items
from evalstats_plugin.scores.control_variate import control_variate
from evalstats_plugin.scores.findings import find_problems

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def _items(responses: list[Responses]) -> dict[str, Any]:
    answers, _ = items.item_answers(responses)
    of_one, of_two = ([r for r in responses if r.model == m] for m in ("m0", "m1"))
    rows, counts, _ = items.items_of_two(responses, "m0", "m1")
    return {
        "answers": plain(answers), "telling": plain(items.telling_items(answers, 7)),
        "statistics": items.item_statistics([r for r in responses if r.task == answers[0].task]),
        "outcomes": items.item_outcomes(of_two, of_one),
        "pairs": [[r.item, r.outcome, r.difference, r.others] for r in rows],
        "counts": plain(counts),
    }  # fmt: skip


def _sliced(kind: Any, *, fields: bool = False, numbers: bool = False) -> list[Responses]:
    """Every item has one tag of four, or two tags of three, or a number."""
    tags: Any = np.array([f"tag{k * k % 4}" for k in range(40)])
    if fields:
        tags = np.array([f'["x{k % 3}", "y{k % 2}"]' for k in range(40)])
    if numbers:
        tags = np.array([str(k * 7 % 23) for k in range(40)])
    return parts(evaluation(kind), tags=tags, clusters=None)


def _at_settings(kind: Any = "binary", *, clusters: bool = False) -> list[Responses]:
    """Three models at four temperatures."""
    return [
        replace(r, tags=np.full(40, f"{place / 2}"),
                clusters=np.arange(40) // 4 if clusters else None,
                source=replace(r.source, when=f"2026-01-0{place + 1}",
                               path=Path(f"{r.model}{place}.json")))
        for place in range(4) for r in evaluation(kind, seed=place)
    ]  # fmt: skip


def _in_parts(kind: Any = "binary", n_models: int = 5) -> list[Responses]:
    """The first two models ran a third of the items."""
    return [
        r.of_items(np.arange(60) % 3 == k) if k < 2 else r
        for k, r in enumerate(evaluation(kind, n_models=n_models, n_items=60))
    ]


def _wrong() -> list[Responses]:
    """Cut, repeated, beyond its scale, without scores, with other settings and versions."""
    a, b, c = evaluation("binary")
    later = replace(a.source, when="2026-01-02", path=Path("later.json"))
    gone = a.scores.copy()
    gone[::5] = np.nan
    return [
        a.measured(n_cut=9), b, replace(c, settings=(("task.num_fewshot", "5"), ("dtype", "x"))),
        replace(a, source=later, item_ids=a.item_ids[:7], scores=a.scores[:7]),
        replace(b, scores=b.scores + 3 * (np.arange(40)[:, None] == 3)),
        replace(c, scores=gone, model="m3"),
        replace(c, notes=("mismatch: .5 is logged and .6 is the mean",), model="m4"),
        replace(c, provenance=replace(c.provenance, task_version="2"), model="m5"),
    ]  # fmt: skip


def _problems(responses: Iterable[Responses]) -> list[Any]:
    """What is wrong with whom, and the numbers in the words about it."""
    return [
        [f.problem, f.task, list(f.models), re.findall(r"[\d.]+", f.detail), len(f.logs)]
        for f in find_problems(responses)
    ]


RUNS: Mapping[str, Mapping[str, Run]] = {
    "items": {
        **{kind: partial(_items, list(evaluation(kind, n_models=12))) for kind in KINDS},
        "of groups": partial(_items, in_groups()),
        "all of one value": partial(_items, [
            replace(r, scores=np.ones((40, 1))) for r in evaluation("binary")]),
        "on no scale, of one value": partial(_items, [
            replace(r, scores=np.full((40, 1), 3.0)) for r in evaluation("real")]),
        "with gaps": partial(_items, [
            replace(r, scores=np.where(np.random.default_rng(k).random(r.scores.shape) < 0.4,
                                       np.nan, r.scores))
            for k, r in enumerate(evaluation("partial", n_models=5))]),
        "errors, less is better": partial(_items, list(evaluation("errors", tasks=("t0", "t1")))),
        "epochs of shares": partial(_items, [
            replace(r, scores=r.scores * np.array([1.0, 0.5, 0.25]))
            for r in evaluation("epochs", n_models=4)]),
        "of points, less is better": partial(
            _items, [r.measured(higher_is_better=False) for r in evaluation("points")]),
    },
    "slices": {
        **{f"{kind} {name}": partial(es.slices, _sliced(kind, **more), by=by, rng=0)
           for kind in ("binary", "partial", "epochs", "missing", "errors")
           for name, by, more in (("tags", "field", {}), ("two tags", "field", {"fields": True}),
                                  ("quartiles", "field:4", {"numbers": True}))},
        "the largest": partial(es.slices, _sliced("binary"), by="field", top=2, rng=0),
        "90 %": partial(es.slices, _sliced("partial"), by="field", confidence_level=0.9, rng=0),
    },
    "slices compared": {
        f"{kind} {name}": partial(es.compare_slices, _sliced(kind, **more), by=by, rng=0)
        for kind in ("binary", "partial", "points")
        for name, by, more in (("tags", "field", {}), ("two tags", "field", {"fields": True}),
                               ("thirds", "field:3", {"numbers": True}))
    },
    "settings": {
        **{f"slices {kind}": partial(es.slices, _at_settings(kind), by="temperature", rng=0)
           for kind in ("binary", "partial", "real")},
        **{f"compared {kind}": partial(es.compare_slices, _at_settings(kind), by="temperature",
                                       rng=0) for kind in ("binary", "points", "errors")},
        "clusters of other items": partial(es.compare_slices, [
            r.of_items(np.arange(40) % (3 + (r.model == "m1")) > 0)
            for r in _at_settings(clusters=True)], by="temperature", rng=0),
        "other items": partial(es.compare_slices, [
            r.of_items(np.arange(40) % (3 + (r.model == "m1")) > 0)
            for r in _at_settings("points")], by="temperature", rng=0),
        "clusters": partial(es.compare_slices, _at_settings(clusters=True), by="temperature",
                            rng=0),
        "slices of clusters": partial(es.slices, _at_settings("partial", clusters=True),
                                      by="temperature", rng=0),
    },
    "parts of a benchmark": {
        **{kind: partial(control_variate, _in_parts(kind), rng=0)
           for kind in ("binary", "partial", "points", "real", "epochs")},
        "90 %": partial(control_variate, _in_parts(), confidence_level=0.9, rng=0),
        "two models": partial(control_variate, _in_parts("partial", 3), rng=0),
        "on a scale": partial(control_variate, _in_parts("partial"), rng=0,
                              measure=Measure(scale=Scale(-1, 3))),
        "labels, and no scores": partial(control_variate, [
            *_in_parts(), *labelled("mcc"),
            *(replace(r, scores=np.nan * r.scores, model="none") for r in _in_parts()[:1])],
            rng=0),
        "clusters": partial(control_variate, _in_parts("clusters"), rng=0),
        "of groups": partial(control_variate, [
            replace(r, item_ids=r.item_ids[:12], scores=r.scores[:12]) if r.model == "m0" else r
            for r in in_groups("partial", 4)], rng=0),
    },
    "runs": {
        runs: partial(es.noise, [replace(r, model="m", source=replace(r.source, when=f"{k}"))
                                 for k, r in enumerate(evaluation(kind, n_models=4))])
        for runs, kind in (("binary", "binary"), ("partial", "partial"), ("missing", "missing"))
    },
    "problems": {
        "of drawn runs": lambda: _problems(_wrong()),
        "of logs": lambda: _problems(es.read(LOGS / "lm_eval" / "0.4.13" / "out", runs="all")),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("items", run, RUNS[run]) == []
