"""Figures of comparisons of models with gaps, of gates and plans at their boundaries, of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import Run, changed, plain
from given_responses import given_responses
from small_evaluations import evaluation, in_groups, labelled, parts

import evalstats_plugin as es
from evalstats_plugin import comparisons
from evalstats_plugin.comparisons import (
    PowerAssumptions,
    PowerDesign,
    leaderboard,
    paired,
    ranks,
    tasks,
)
from evalstats_plugin.comparisons.families import FEW_ITEMS
from evalstats_plugin.comparisons.methods import COMPARISONS, UNPAIRED
from evalstats_plugin.comparisons.planning import solver
from evalstats_plugin.data.responses import Group, Responses, Source

KINDS = ("binary", "points", "errors", "clusters")


def _with_gaps(
    responses: Sequence[Responses], share: float = 0.1, seed: int = 4
) -> list[Responses]:
    """The same, of which every model lacks other scores."""
    rng = np.random.default_rng(seed)
    return [
        replace(r, scores=np.where(rng.random((len(r.scores), 1)) < share, np.nan, r.scores))
        for r in responses
    ]


def _apart(kind: Any, n: int = 60) -> list[Responses]:
    """Three models far apart, the best in the middle, of which the first lacks four scores."""
    given = []
    for model, lead in (("low", -0.35), ("high", 0.35), ("mid", 0.0)):
        rng = np.random.default_rng(len(given))
        share = np.clip(0.5 + lead + 0.1 * rng.normal(size=n), 0.02, 0.98)
        scores = share if kind == "partial" else 1.0 * (rng.random(n) < share)
        if model == "low":
            scores[[3, 11, 12, 40]] = np.nan
        given.append(given_responses(
            model=model, item_ids=np.arange(n), scores=scores[:, None], bounds=(0.0, 1.0),
            source=Source(Path(f"{model}.json"), "test"),
            higher_is_better=None if kind == "unknown" else kind != "errors",
            clusters=np.arange(n) // 2 if kind == "clusters" else None))  # fmt: skip
    return given


def _strata(
    weighting: Any, kind: Any = "binary", *, single: bool = False, disjoint: bool = False,
    gaps: float = 0.0,
) -> list[Responses]:  # fmt: skip
    """Three models on tasks of a group; one task has one item, or shares none between two."""
    group = Group("all", 0, weighting, 3, 0.5)
    every = evaluation(kind, n_items=18, tasks=("t0", "t1", "t2"))
    told = []
    for r in every:
        kept = np.arange(len(r.item_ids)) < (1 if single and r.task == "t1" else 99)
        if disjoint and r.task == "t2":
            kept = np.arange(len(r.item_ids)) % 2 == (r.model == "m1")
        told.append(replace(r.of_items(kept), groups=(group,)))
    return _with_gaps(told, gaps) if gaps else told


def _many(n: int, kind: Any = "binary") -> list[Responses]:
    return list(evaluation(kind, n_models=n, n_items=30, tasks=("t0", "t1")))


def _in_little_memory(n: int, kind: Any, budget: int, **options: Any) -> Any:
    """A table whose pairs do not fit into what is left of memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaderboard, "budget", lambda: budget)
        return es.table(_many(n, kind), rng=0, **options)


def _table(responses: Sequence[Responses], **options: Any) -> Any:
    told = es.table(responses, rng=0, **options)
    return {
        "cells": told, "models": list(told.models), "ranked": told.is_ranked,
        "tasks": list(told.tasks), "overall": list(told.in_overall),
        "against": {m: [plain(row) for row in told.against(m)] for m in told.models[:2]},
        "pairs": [plain(each) for each in told.pairs],
    }  # fmt: skip


def _tagged(kind: Any = "binary") -> list[Responses]:
    return parts(
        evaluation(kind), tags=np.array([f"tag{k * k % 3}" for k in range(40)]), clusters=None
    )


def _without(responses: Sequence[Responses], model: str, n: int) -> list[Responses]:
    """A model lacks the first n items, or all of the first task."""
    return [r.of_items(np.arange(len(r.item_ids)) >= n) if r.model == model else r
            for r in responses]  # fmt: skip


def _as(model: str, r: Responses, **more: Any) -> Responses:
    return replace(r, model=model, source=replace(r.source, path=Path(f"{model}.json")), **more)


def _ratios(aggregation: str = "perplexity", *, clusters: bool = False) -> list[Responses]:
    rng = np.random.default_rng(7)
    return [
        given_responses(
            model=f"m{k}", metric="ppl", aggregation=aggregation, item_ids=np.arange(30),
            scores=-rng.gamma(2.0, 1.0 + 0.1 * k, (30, 1)), bounds=None, higher_is_better=False,
            weights=1.0 + np.arange(30) % 4, source=Source(Path(f"m{k}.json"), "test"),
            clusters=np.arange(30) // 3 if clusters else None)
        for k in range(3)
    ]  # fmt: skip


def _uneven_epochs(n: int = 24) -> list[Responses]:
    """Two models whose items have from one to three epochs."""
    return [
        replace(r, scores=np.where(np.arange(3) > np.arange(n)[:, None] % 3, np.nan, r.scores))
        for r in evaluation("epochs", n_models=2, n_items=n)
    ]


def _pilot(kind: Any, n: int = 24, tasks: Sequence[str] = ("t",)) -> tuple[Responses, ...]:
    return evaluation(kind, n_models=2, n_items=n, tasks=tasks)


def _near_limits(pilot: Sequence[Responses], **asked: Any) -> Any:
    """Plan where counts are exact up to 30 items, and pilots simulated up to 40."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "EXACT_UP_TO", 30)
        patch.setattr(solver, "SIMULATED_UP_TO", 40)
        return es.power(pilot, **{"difference": 0.2, **asked})


def _positive(n: int = 2) -> list[Responses]:
    """Models' labels 0 and 1, as numbers."""
    return [
        replace(r, model=f"m{k}", pairs=np.array(
            [[min(int(x), 1) for x in row] for row in r.pairs.tolist()], dtype=object))
        for k, r in enumerate([*labelled("f1"), *labelled("f1", seed=4)][:n])
    ]  # fmt: skip


def _right_and_wrong() -> list[Responses]:
    """Labels that are all right, all wrong but two, and half right."""
    gold = np.arange(40) % 2
    said = (gold, np.where(np.arange(40) < 2, gold, 1 - gold), np.arange(40) // 2 % 2)
    return [replace(r, pairs=np.array([[int(x), int(y)] for x, y in zip(gold, of, strict=True)],
                                      dtype=object))
            for r, of in zip(_positive(3), said, strict=True)]  # fmt: skip


def _small_p(method: str, design: Any) -> Any:
    """Logarithms of p-values far in the tail."""
    rows = [
        row for kind in ("binary", "partial") for n in (45, 60)
        for row in es.compare(_apart(kind, n), method=method, design=design, correction="none",
                              rng=0)
    ]  # fmt: skip
    return [row.p_value and np.log(row.p_value) for row in rows]


def _by_small_blocks(kind: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paired, "BLOCK_SIZE", 7)
        return es.compare(_apart(kind), missing="bounds", rng=0)


def _limited(module: Any, limit: str, most: int, run: Run) -> Any:
    """A run with another limit of its size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, limit, most)
        return run()


RUNS: Mapping[str, Mapping[str, Run]] = {
    **{f"whatever is missing of {kind} scores": {
        "bounds": partial(es.compare, _with_gaps(evaluation(kind)), missing="bounds", rng=0),
        "more": partial(es.compare, _with_gaps(evaluation(kind), 0.3), missing="bounds", rng=0,
                        confidence_level=0.8),
        "a baseline": partial(es.compare, _with_gaps(evaluation(kind)), baseline="m1",
                              missing="bounds", rng=0),
        "two": partial(es.compare, _with_gaps(evaluation(kind))[:2], missing="bounds", rng=0),
    } for kind in KINDS},
    "far apart, with gaps": {
        f"{kind} {missing}{' of a baseline' * bool(baseline)}": partial(
            es.compare, _apart(kind), missing=missing, baseline=baseline, rng=0)
        for kind in ("binary", "partial", "clusters", "errors", "unknown")
        for missing in ("drop", "bounds") for baseline in (None, "high")
    } | {
        "in small blocks": partial(_by_small_blocks, "binary"),
        "stepdown": partial(es.compare, _apart("binary"), correction="stepdown", rng=0),
        "bh": partial(es.compare, _apart("binary"), correction="bh", rng=0),
        "none": partial(es.compare, _apart("binary"), correction="none", missing="bounds", rng=0),
        "best": partial(es.compare, _apart("binary"), baseline="best", rng=0),
        "shrunk": partial(es.compare, _apart("partial"), probabilities="shrunk", rng=0),
        "unpaired": partial(es.compare, _apart("errors"), design="unpaired", rng=0),
        "table": partial(_table, _apart("errors")),
    },
    "strata": {
        f"{weighting} {name}": partial(es.compare, _strata(weighting, **how), rng=0, **more)
        for weighting, name, how, more in (
            ("micro", "of one item", {"single": True}, {}),
            ("macro", "shared by none", {"disjoint": True}, {}),
            ("micro", "of clusters", {"kind": "clusters", "disjoint": True}, {}),
            ("macro", "with gaps", {"gaps": 0.15}, {}),
            ("micro", "with any score in gaps", {"gaps": 0.15}, {"missing": "bounds"}),
            ("macro", "of clusters with gaps", {"kind": "clusters", "gaps": 0.3},
             {"missing": "bounds"}))
    } | {
        "of no group": partial(es.compare, [replace(r, groups=()) for r in _strata(
            "micro", gaps=0.1)], missing="bounds", rng=0),
        "not on all": partial(es.compare, [replace(r, groups=()) for r in _strata("micro")][1:],
                              rng=0),
        "of several metrics": partial(es.compare, [
            *_strata("micro"), *(r.measured(metric="own") for r in _strata("macro", "real"))],
            rng=0),
        "labels beside": partial(_table, [*evaluation(tasks=("t0", "t1")),
                                          *(r.measured(task="t2") for r in labelled("f1"))]),
    },
    "small p-values": {
        f"{method.name} {design}": partial(_small_p, method.name, design)
        for design, methods in (("paired", COMPARISONS), ("unpaired", UNPAIRED))
        for method in methods if method.family in {"paired", "real", "unpaired-real"}
    },
    "one item, or few": {
        f"{kind} {n}": partial(
            es.compare, [r.of_items(np.arange(40) < n) for r in evaluation(kind)], rng=0)
        for kind in ("binary", "partial", "real", "clusters") for n in (1, 2, 3)
    } | {
        f"a baseline on {n}": partial(es.compare, evaluation("binary", n_items=n), baseline="m0",
                                      rng=0)
        for n in (FEW_ITEMS, FEW_ITEMS + 1)
    } | {
        "in one cluster": partial(es.compare, parts(evaluation(), clusters=np.zeros(40)), rng=0),
        "the same answers": partial(es.compare, [
            _as(name, evaluation()[0]) for name in "abc"], rng=0),
        "no item in common": partial(es.compare, [
            _as("a", evaluation()[0]), _as("b", evaluation()[1], item_ids=np.arange(40) + 40),
            evaluation()[2]], rng=0),
    },
    "ratios": {
        **{f"{name}{' in clusters' * clusters}": partial(es.compare, _ratios(
            name, clusters=clusters), rng=0)
           for name in ("perplexity", "weighted_perplexity", "bits_per_byte")
           for clusters in (False, True)},
        "best": partial(es.compare, _ratios(), baseline="best", rng=0),
        "a gate": partial(es.gate, _ratios(), baseline="m0", rng=0),
        "the same": partial(es.compare, [_as(name, _ratios()[0]) for name in "ab"], rng=0),
        "labels alike": partial(es.compare, [_as(name, _positive()[0]) for name in "ab"],
                                rng=0),
        "labels": partial(es.compare, _positive(4), rng=0),
        "labels and the best": partial(es.compare, _positive(4), baseline="best", rng=0),
        "labels by the jackknife": partial(es.compare, _positive(3), method="sums-jackknife-t",
                                           rng=0),
        "labels of one item": partial(es.compare, [
            r.of_items(np.arange(40) == 1) for r in _positive(3)], rng=0),
        "texts of one item": partial(es.compare, [
            r.of_items(np.arange(40) == 1) for r in labelled("chrf")], rng=0),
        "resampled texts of one item": partial(es.compare, [
            r.of_items(np.arange(40) == 1) for r in labelled("chrf")], method="sums-percentile",
            rng=0),
        "resampled texts": partial(es.compare, labelled("chrf"), method="sums-percentile", rng=0),
        "labels far apart": partial(es.compare, _right_and_wrong(), rng=0),
        "labels of other items": partial(es.compare, [
            labelled("mcc")[0], labelled("mcc")[1].of_items(np.arange(40) % 3 > 0)], rng=0),
        "a gate of labels": partial(es.gate, _positive(), baseline="m1", rng=0),
    },
    "tables as people see them": {
        "groups": partial(_table, in_groups()),
        "errors": partial(_table, evaluation("errors", tasks=("t0", "t1"))),
        "named": partial(_table, in_groups(), columns="t1", weights="items", subtasks=None),
        "of a field": partial(_table, _tagged(), by="field"),
        "the largest": partial(_table, _tagged("partial"), by="field", top=2),
        "a task alone": partial(_table, evaluation()[:2], confidence_level=0.8),
        "one model": partial(_table, in_groups(n_models=1)),
        "a score missing": partial(_table, in_groups()[1:]),
    },
    "tables in little memory": {
        f"{n} {kind} {budget}": partial(_in_little_memory, n, kind, budget)
        for n, kind, budget in ((7, "binary", 9000), (5, "errors", 9000),
                                (3, "clusters", 1000), (4, "binary", 7200), (4, "binary", 7199))
    },
    "what takes too long": {
        f"{of} {most}": partial(
            _limited, tasks, "MOST_DIFFERENCES", most,
            partial(es.compare, evaluation(tasks=("t0", "t1")), baseline=baseline, rng=0))
        for of, baseline, pairs in (("all", None, 3), ("a baseline", "m0", 2), ("best", "best", 3))
        for most in (pairs * 87, pairs * 87 - 1)
    } | {
        f"ranks of {kind} {most}": partial(
            _limited, ranks, "MOST_STEPS", most,
            partial(_in_little_memory, 3, kind, 1000))
        for kind in ("binary", "partial") for most in (3 * 30, 3 * 30 - 1)
    } | {
        f"letters of {most}": partial(
            _limited, ranks, "MOST_LETTERED", most,
            partial(comparisons.rank_sets, evaluation(n_models=4), rng=0))
        for most in (3, 4)
    },
    "gates with gaps": {
        **{f"the candidate lacks {n}": partial(es.gate, _without(evaluation(kind), "m1", n),
                                               baseline="m0", **more, rng=0)
           for n, kind, more in ((1, "binary", {}), (9, "partial", {}), (20, "errors", {}),
                                 (2, "clusters", {"margin": 0.1}), (40, "binary", {}))},
        "the baseline lacks some": partial(es.gate, _without(evaluation(), "m0", 9),
                                           baseline="m0", rng=0),
        "of points": partial(es.gate, _with_gaps(evaluation("points")), baseline="m0",
                             margin="10%", rng=0),
        "of no scale": partial(es.gate, _without(evaluation("real"), "m2", 3), baseline="m0",
                               rng=0),
        "a field": partial(es.gate, _tagged(), baseline="m0", by="field", rng=0),
        "the largest of a field": partial(es.gate, _tagged("partial"), baseline="m1", by="field",
                                          top=2, margin=0.05, rng=0),
        "a field with gaps": partial(es.gate, _without(_tagged(), "m1", 3), baseline="m0",
                                     by="field", margin=0.9, non_inferior=True, rng=0),
        "a task less": partial(es.gate, [
            r for r in in_groups() if (r.model, r.task) != ("m1", "t3")], baseline="m0", rng=0),
        "enough": partial(es.gate, evaluation(), baseline="m0", items={"t": 40}, rng=0),
        "not enough": partial(es.gate, evaluation(), baseline="m0", items={"t": 41}, rng=0),
        "many items": partial(es.gate, evaluation(n_models=2, n_items=400),
                              baseline="m0", rng=0),
        "shown": partial(es.gate, evaluation("partial", n_items=150), baseline="m0",
                         margin=0.08, non_inferior=True, rng=0),
        "less is better": partial(es.gate, _apart("errors"), baseline="mid", margin=0.1, rng=0),
        "another scale": partial(es.gate, [evaluation()[0], _as("b", evaluation("points")[1])],
                                 baseline="m0", rng=0),
    },
    "plans at boundaries": {
        f"{kind} {n}": partial(_near_limits, _pilot(kind), n_items=n)
        for kind, sizes in (("binary", (2, 30, 31)), ("partial", (2, 40, 41)), ("real", (40, 41)))
        for n in sizes
    } | {
        f"{tasks} tasks, {n}": partial(
            _near_limits, _pilot("partial", tasks=("t0", "t1", "t2")), n_items=n,
            design=PowerDesign(tasks=tasks))
        for tasks in ("fixed", "random") for n in (13, 14)
    } | {
        f"difference of {n}": partial(_near_limits, _pilot("partial"), difference=None, n_items=n)
        for n in (9, 40, 41)
    } | {
        f"uneven epochs, {n_epochs}": partial(
            es.power, _uneven_epochs(), difference=0.15, n_items=30, n_epochs=n_epochs)
        for n_epochs in (1, 3, 5)
    } | {
        "epochs of few items": partial(es.power, _uneven_epochs(), difference=0.3, n_items=30),
        "epochs of shares": partial(
            es.power, [replace(r, scores=r.scores * np.linspace(0.2, 1, 72).reshape(24, 3))
                       for r in _pilot("epochs")], difference=0.2, n_items=30, n_epochs=6),
        "models": partial(_near_limits, _pilot("binary"), difference=0.4, n_items=60),
        "of one metric each": partial(
            _near_limits, [*_pilot("partial", tasks=("t0", "t1")),
                           *(r.measured(metric="own") for r in _pilot("real", tasks=("t0",)))],
            design=PowerDesign(tasks="fixed")),
        "of one task": partial(es.power, _pilot("partial"), difference=0.1,
                               design=PowerDesign(tasks="fixed")),
        "one model": partial(es.power, _pilot("partial")[:1], difference=0.1),
        "one model, unpaired": partial(es.power, _pilot("partial")[:1], difference=0.1,
                                       design=PowerDesign(paired=False)),
        "gaps": partial(_near_limits, _with_gaps(_pilot("partial")), n_items=30),
        "the same answers": partial(es.power, [_as(name, _pilot("partial")[0]) for name in "ab"],
                                    difference=0.1, n_items=30),
        "a margin of clusters": partial(es.power, _pilot("clusters"), difference=0.02, n_items=30,
                                        design=PowerDesign(margin=0.15)),
    },
    "what is asked of a plan": {
        f"{asked} {design}": partial(
            es.power, PowerAssumptions(between=0.2), **{"difference": 0.2, **asked},
            design=PowerDesign(**design))
        for asked, design in (
            ({"difference": 0.0}, {}), ({"difference": -0.2}, {}), ({"difference": np.inf}, {}),
            ({"power": 1.0}, {}), ({"power": 0.0}, {}), ({"power": 0.05}, {}),
            ({"power": 0.0501}, {}), ({"n_items": 2}, {}), ({"n_items": 1}, {}),
            ({"n_items": 50, "n_epochs": 0}, {}), ({"n_items": 50, "n_epochs": 1}, {}),
            ({"confidence_level": 0.5}, {}), ({"confidence_level": 1.0}, {}),
            ({"confidence_level": 0.0}, {}), ({"confidence_level": 95}, {}),
            ({"confidence_level": 100}, {}),
            *(({}, {"n_models": n}) for n in (1, 2)),
            *(({}, {"design_effect": n}) for n in (0.0, 0.5, 1.0, np.inf)),
            *(({}, {"look_every": n}) for n in (0, 1)),
            *(({}, {"look_every": 9, **more}) for more in (
                {"method": "t"}, {"tasks": "fixed"}, {"paired": False}, {"tasks": "random"})),
            *(({}, {"assurance": x}) for x in (0.4999, 0.5, 0.9, 1.0)),
            *(({}, {"costs": x}) for x in ((0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, 0.5))),
            *(({**more}, {"costs": (1.0, 0.5)}) for more in (
                {"difference": None}, {"n_items": 50}, {"n_epochs": 2})),
            *(({}, {"costs": (1.0, 0.5), **more}) for more in (
                {"look_every": 9}, {"tasks": "random"}, {"tasks": "fixed"})),
            *(({}, {"margin": x}) for x in (0.0, 0.1, 1.0, np.inf)),
            *(({"difference": x}, {"margin": 0.1}) for x in (-0.1, -0.05, -0.2)),
            *(({}, {"margin": 0.1, **more}) for more in (
                {"method": "t"}, {"look_every": 9}, {"costs": (1.0, 0.5)}, {"paired": False},
                {"design_effect": 2.0}))
        )
    },
    "ranks": {
        f"{kind} {name}": partial(comparisons.rank_sets, responses, **more, rng=0)
        for kind in ("binary", "errors", "clusters") for name, responses, more in (
            ("bh", evaluation(kind, n_models=6), {"correction": "bh", "confidence_level": 0.8}),
            ("stepdown", evaluation(kind, n_models=6), {"correction": "stepdown"}),
            ("with gaps", _with_gaps(evaluation(kind, n_models=5), 0.05), {}),
            ("with few in common", _with_gaps(evaluation(kind, n_models=5), 0.6), {}))
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("gaps", run, RUNS[run]) == []
