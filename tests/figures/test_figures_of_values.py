"""Figures of values without items: published, predicted, recomputed, derived, and in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import Run, changed, plain
from given_responses import given_responses
from small_evaluations import evaluation, in_groups, labelled, parts

import evalstats_plugin as es
from evalstats_plugin.adapters.lm_eval.groups import Tree, pooled_stderr, unweighted_stderr
from evalstats_plugin.data.responses import DrawnItems, Group, Prediction, Responses, Source
from evalstats_plugin.hookspecs import PartialScores
from evalstats_plugin.logs.withholding import as_logged, is_withheld
from evalstats_plugin.scores.epochs import curves
from evalstats_plugin.scores.metrics import DERIVED, derive, recognise

N = 24
MEANS = (0.0, 0.25, 0.5, 1.0)


def _valued(value: float | None, n: int | None, error: float | None, **more: Any) -> Responses:
    return given_responses(
        **{"model": "m", "source": Source(Path("v.json"), "test"), "bounds": (0.0, 1.0)} | more,
        item_ids=[], scores=np.empty((0, 1)), logged=value, logged_n=n, logged_std_error=error,
    )  # fmt: skip


def _error(value: float, n: int) -> float:
    """The standard error that harnesses log of n right or wrong answers."""
    return (value * (1 - value) / max(n - 1, 1)) ** 0.5


def _published() -> list[Responses]:
    """Three models of which one has counts, one a standard error and one items."""
    return [
        _valued(0.6, 80, _error(0.6, 80), model="counts", published="counts"),
        _valued(0.7, 60, 0.07, model="error", published="error"),
        _valued(0.65, None, 0.09, model="few", published="error"),
        replace(evaluation()[0], model="items"),
    ]


def _left_out(*, heavy: bool) -> list[Responses]:
    """A metric that was recomputed without each of 20 items."""
    rng = np.random.default_rng(2)
    return [
        _valued(0.6, n, None, left_out=0.6 + (0.02 if heavy else 0.001) * (
            rng.normal(size=20) ** (7 if heavy else 1)) / 20, model=f"m{n}")
        for n in (20, 35)
    ]  # fmt: skip


def _predicted(
    model: int, n: int = N, n_asked: int = 9, *, draws: int = 0, task: str = "t", **more: Any
) -> Responses:
    """An adaptive test of a bank, and whichever of its items were drawn."""
    rng = np.random.default_rng(10 + model)
    expected = np.clip(np.random.default_rng(n).uniform(0.2, 0.8, n) + 0.08 * model, 0, 1)
    asked = np.sort(np.random.default_rng(1).permutation(n)[:n_asked])
    said = 1.0 * (rng.random(n_asked) < expected[asked])
    expected[asked] = said
    gone = expected * (1 - expected)
    drawn = DrawnItems(tuple(f"{task} / {j}" for j in asked[:draws]), np.full(draws, 0.1),
                       rng.normal(size=draws))  # fmt: skip
    told = {
        "estimate": float(expected.mean()), "low": float(expected.mean()) - 0.12,
        "high": min(float(expected.mean()) + 0.15, 1.0), "n_in_bank": n,
        "item_ids": np.arange(n).astype(str), "scores": expected, "variances": gone,
        "common": 0.03 + 0.01 * model, "draws": drawn if draws else None,
    } | more  # fmt: skip
    return given_responses(
        model=f"m{model}", task=task, item_ids=asked, scores=said[:, None], bounds=(0.0, 1.0),
        source=Source(Path(f"m{model}.json"), "test"), predicted=Prediction(**told),
    )  # fmt: skip


def _complete(n: int = N) -> Responses:
    """A plain run of all items of the bank, in another order, and of two that are not in it."""
    return replace(
        evaluation(n_items=n + 2)[1], model="complete",
        item_ids=np.random.default_rng(0).permutation(n + 2),
    )  # fmt: skip


def _in_groups_of(
    weighting: Any, kind: Any = "binary", *, cut: int = 0, lacking: bool = False, logged: Any = None
) -> list[Responses]:
    """Tasks of four sizes in a group, two of them in one inside."""
    outer, inner = Group("all", 0, weighting, 4, logged, 0.05), Group("part", 1, "macro", 2)
    rng = np.random.default_rng(5)
    every = evaluation(kind, n_models=2, n_items=16, tasks=("t0", "t1", "t2", "t3"))
    told = [
        replace(r, groups=(outer, inner) if r.task in {"t0", "t1"} else (outer,)) for r in every
    ]
    if lacking:
        told = [replace(r, scores=np.where(rng.random(r.scores.shape) < 0.12, np.nan, r.scores))
                for r in told]  # fmt: skip
    return [r.measured(n_cut=cut) if cut and r.task == "t2" else r for r in told]


def _groups(how: Run) -> Any:
    return [[row.notes[-1:], row.method] for row in how() if row.kind == "group"]


def _predicted_groups(*, lacking: bool = False) -> list[Responses]:
    given = []
    for weighting in ("micro", "macro"):
        group = Group("all", 0, weighting, 2, 0.5)
        for k, task in enumerate(("t0", "t1")):
            r = _predicted(0, N + 9 * k, task=task)
            if lacking and k:
                r = replace(r, predicted=None)
            given.append(replace(r, groups=(group,), model=weighting,
                                 source=Source(Path(f"{weighting}.json"), "test")))  # fmt: skip
    return given


def _withheld(partial_scores: Iterable[tuple[Any, ...]] = (), rescored: Any = ()) -> Any:
    """What may be written of right, wrong, rounded and cut values, and of groups."""
    given = [
        replace(r, logged=logged)
        for r, logged in zip(
            in_groups(n_models=1), (0.5, None, round(9 / 38, 2), 0.123456789), strict=True)
    ]  # fmt: skip
    for k, r in enumerate(given):
        exact = float(r.scores.mean())
        given[k] = replace(
            r,
            logged=(exact, round(exact, 3), round(exact, 2), exact + 0.1)[k],
            groups=tuple(replace(g, logged=0.5) for g in r.groups),
        )
    held = [PartialScores(*each, altered=not each[-1]) for each in partial_scores]
    rows = as_logged(es.intervals(given, rng=0), held, rescored)
    return [plain(rows), [is_withheld(row) for row in rows]]


def _labels(*, binary: bool = False, logged: float | None = None) -> list[Responses]:
    """Two models' labels, with answers that are missing."""
    given = []
    for r in labelled("f1" if binary else "mcc"):
        pairs = np.array([[int(x) for x in row] for row in r.pairs.tolist()], dtype=object)
        if binary:
            pairs = np.minimum(pairs, 1)
        pairs[::11, 1] = None
        given.append(replace(r, pairs=pairs, logged=logged, clusters=np.arange(40) // 3))
    return given


def _recognised() -> Any:
    told = []
    for r in _labels(binary=True):
        every = [d for metric in DERIVED for d in derive([r], metric)]
        for d in every:
            value = es.intervals([d], rng=0)[0].estimate
            told.append([d.metric, recognise(replace(r, logged=value))])
    return [*told, recognise(replace(r, logged=0.123)), recognise(r)]


def _weighted(
    metrics: Mapping[str, tuple[float | None, ...]], sizes: tuple[int, ...] = (10, 30)
) -> Any:
    """How a group with a group inside weighs two tasks, and what it is made of."""
    names = ("g", "a", "b")
    results: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for metric, values in metrics.items():
        for name, value in zip(names, values, strict=True):
            results[name] |= {f"{metric},none": value} if value is not None else {}
    told = dict(zip("ab", ({"effective": n} for n in sizes), strict=True))
    tree = Tree({"results": results | {"alone": {}}, "n-samples": told,
                 "group_subtasks": {"g": ["h", "a"], "h": ["b"], "b": []}})  # fmt: skip
    weighting, notes = tree.weighting("g", "acc,none")
    return [weighting, plain({"notes": notes}), tree.tasks(), list(tree.leaves("g")),
            tree.n_tasks("g", "acc,none"), tree.groups_around("b"), tree.groups_around("a"),
            tree.size("b"), tree.size("alone")]  # fmt: skip


RUNS: Mapping[str, Mapping[str, Run]] = {
    "values alone": {
        f"{value} of {n} with {error}": partial(
            es.intervals,
            [_valued(value, n, None if error is None else error * _error(value, n))], rng=0)
        for value, n, error in product((*MEANS, -0.25, 1.5, 0.3), (1, 20, None), (1.0, 1.01, None))
        if n or error is None
        for n, error in ((n or 0, error if 0 <= value <= 1 else None),)
    } | {
        "of another aggregation": partial(
            es.intervals, [_valued(0.5, 20, _error(0.5, 20), aggregation="other")], rng=0),
        "without a value": partial(es.intervals, [_valued(None, 20, 0.1)], rng=0),
        "with a note": partial(
            es.intervals, [_valued(0.5, 20, _error(0.5, 20), notes=("no interval: for 9",))],
            rng=0),
        "nearly a count": partial(
            es.intervals, [_valued(0.500004, 20, _error(0.500004, 20))], rng=0),
    },
    "published values": {
        "intervals": partial(es.intervals, _published(), rng=0),
        "90 %": partial(es.intervals, _published(), confidence_level=0.9, rng=0),
        "compared": partial(es.compare, _published(), design="unpaired", rng=0),
        "a baseline": partial(es.compare, _published(), design="unpaired", baseline="error",
                              confidence_level=0.9, rng=0),
        "counts": partial(es.compare, [_published()[0], _published()[-1]], design="unpaired",
                          rng=0),
        "counts by t": partial(es.compare, [_published()[0], _published()[-1]], design="unpaired",
                               method="welch-t", rng=0),
        "equal": partial(es.compare, [
            _valued(0.5, 9, 0.1, model=name, published="error") for name in "ab"],
            design="unpaired", rng=0),
        "far": partial(es.compare, [
            _valued(value, 9, 0.4, model=name, published="error")
            for name, value in (("a", 0.05), ("b", 0.95))], design="unpaired", rng=0),
        "on no scale": partial(es.compare, [
            _valued(value, 9, 0.4, model=name, published="error", bounds=None, metric="own")
            for name, value in (("a", 5.0), ("b", 3.0))], design="unpaired", rng=0),
    },
    "left out one at a time": {
        f"{'heavy' if heavy else 'even'}": partial(es.intervals, _left_out(heavy=heavy), rng=0)
        for heavy in (False, True)
    },
    "predicted": {
        "intervals": partial(es.intervals, [_predicted(0), _predicted(2), _complete()], rng=0),
        "80 %": partial(es.intervals, [_predicted(k) for k in range(3)], confidence_level=0.8,
                        rng=0),
        "99.9 %": partial(es.intervals, [_predicted(k) for k in range(4)],
                          confidence_level=0.999, rng=0),
        "no score": partial(es.intervals, [_predicted(0, estimate=None),
                                           _predicted(1, low=None)], rng=0),
        "nothing asked": partial(es.intervals, [_predicted(0, n_asked=0)], rng=0),
        "compared": partial(es.compare, [_predicted(0), _predicted(2), _complete()], rng=0),
        "without a complete run": partial(es.compare, [_predicted(0), _predicted(1)], rng=0),
        "a baseline": partial(es.compare, [_predicted(0), _predicted(2), _complete()],
                              baseline="complete", confidence_level=0.8, rng=0),
        "drawn": partial(es.compare, [_predicted(k, draws=9 - k // 2) for k in range(3)], rng=0),
        "of other items": partial(es.compare, [_predicted(0), _predicted(1, N + 1)], rng=0),
        "of fewer items": partial(es.compare, [_predicted(0), _predicted(1), _complete(N - 3)],
                                  rng=0),
        "of another metric": partial(es.compare, [_predicted(0), _predicted(1, estimate=None)],
                                     rng=0),
        "without items": partial(es.compare, [
            _predicted(0), _predicted(1, item_ids=np.array([], dtype=str))], rng=0),
        "all known": partial(es.compare, [
            _predicted(k, variances=np.zeros(N), common=0.0, scores=np.full(N, 0.5 + 0.1 * j))
            for k, j in ((0, 0), (1, 0), (2, 1))], rng=0),
        "groups": partial(es.intervals, _predicted_groups(), rng=0),
        "groups in part": partial(es.intervals, _predicted_groups(lacking=True), rng=0),
    },
    "groups by weighting": {
        f"{weighting} of {kind}{' cut' * bool(cut)}{' lacking' * lacking}": partial(
            es.intervals, _in_groups_of(weighting, kind, cut=cut, lacking=lacking, logged=0.5),
            rng=0)
        for weighting in ("micro", "macro", "parts", "either")
        for kind, cut, lacking in (("binary", 0, False), ("points", 0, False), ("real", 0, False),
                                   ("binary", 8, False), ("partial", 0, True))
    } | {
        "a task of one item": partial(es.intervals, [
            r.of_items(np.arange(len(r.item_ids)) < 1) if r.task == "t1" else r
            for r in _in_groups_of("either", "real", logged=0.5)], rng=0),
        "all of one value": partial(es.intervals, [
            replace(r, scores=np.ones_like(r.scores)) for r in
            _in_groups_of("macro", logged=1.0)], rng=0),
        "by a method": partial(es.intervals, _in_groups_of("either", logged=0.5), method="wilson",
                               rng=0),
        "of mixed scales": partial(es.intervals, [
            *_in_groups_of("macro", "points", logged=0.5)[:4],
            *_in_groups_of("macro", "binary", logged=0.5)[4:]], rng=0),
        "which is wider": lambda: [
            [row.notes[-1].split("(")[-1], row.method]
            for kind in ("binary", "clusters") for row in
            es.intervals(_in_groups_of("either", kind, logged=0.5), rng=0)
            if row.kind == "group"],
    },
    "written as logged": {
        "whole": _withheld,
        "cut": partial(_withheld, [("t0", "acc", 20, 4), ("t2", "acc", 38, 0)]),
        "another metric cut": partial(_withheld, [("t0", "f1", 20, 4)]),
        "rescored": partial(_withheld, (), {("t3", "acc"), ("all", "acc")}),
    },
    "labels": {
        "derived": lambda: [
            [metric, plain(es.intervals(derive(_labels(binary=True), metric), rng=0))]
            for metric in DERIVED],
        "of three": lambda: [
            [metric, plain(es.intervals(derive(_labels(), metric), rng=0))]
            for metric in ("acc", "mcc") if metric in DERIVED],
        "logged otherwise": partial(es.intervals, _labels(logged=0.25), rng=0),
        "cut": partial(es.intervals, [r.measured(n_cut=4) for r in _labels(logged=0.25)], rng=0),
        "none right": partial(es.intervals, [
            replace(r, pairs=np.array([[0, 0]] * 40, dtype=object))
            for r in _labels(binary=True)], rng=0),
        "beside shares of its name": partial(es.intervals, [
            *derive(_labels(binary=True), "precision"),
            *derive([replace(r, clusters=None, model=f"alone {r.model}")
                     for r in _labels(binary=True)], "precision"),
            *(r.measured(metric="precision") for r in evaluation("partial"))], rng=0),
        "recognised": _recognised,
        "no labels": partial(derive, evaluation(), "recall"),
        "texts": partial(es.intervals, [
            replace(r, pairs=np.array([["yes", "no"]] * 40, dtype=object))
            for r in _labels(binary=True)], rng=0),
    },
    "weights of lm-eval's groups": {
        name: partial(_weighted, metrics, **more) for name, metrics, more in (
            ("micro", {"acc": (0.35, 0.5, 0.3)}, {}),
            ("macro", {"acc": (0.4, 0.5, 0.3)}, {}),
            ("neither", {"acc": (0.45, 0.5, 0.3)}, {}),
            ("open", {"acc": (1.0, 1.0, 1.0)}, {}),
            ("by another", {"acc": (1.0, 1.0, 1.0), "own": (0.9, 0.5, 0.3),
                            "acc_norm": (0.4, 0.5, 0.3), "f1": (0.35, 0.5, 0.3)}, {}),
            ("not by errors", {"acc": (1.0, 1.0, 1.0), "acc_stderr": (0.4, 0.5, 0.3)}, {}),
            ("of one size", {"acc": (0.4, 0.5, 0.3)}, {"sizes": (20, 20)}),
            ("of no sizes", {"acc": (0.4, 0.5, 0.3)}, {"sizes": (0, 20)}),
            ("without a task's value", {"acc": (0.3, None, 0.3)}, {}),
            ("without values", {"acc": (0.3, None, None)}, {}),
            ("without its value", {"acc": (None, 0.5, 0.3)}, {}))
    } | {
        "errors": lambda: [
            [pooled_stderr(errors, sizes), unweighted_stderr(errors)]
            for errors, sizes in (([0.1], [9]), ([0.1, 0.04], [9, 30]), ([0.2, 0.1, 0.05],
                                                                      [4, 11, 60]))],
    },
    "seeds": {
        how.__name__: partial(
            lambda how, **more: [how(evaluation("partial"), rng=rng, **more).seed
                                 for rng in (7, None, np.random.default_rng(1))],
            how, **({"baseline": "m0"} if how is es.gate else {}))
        for how in (es.intervals, es.compare, es.table, es.gate, es.comparisons.rank_sets)
    },
    "curves": {
        name: partial(curves, evaluation("epochs"), name)
        for name in ("pass@1..3", "pass@2..3", "pass^1..2", "maj@1..3", "pass@3..2", "pass@2..2",
                     "pass@1..4", "cons@1..2")
    } | {
        "80 %": partial(curves, evaluation("epochs"), "pass@1..3",
                        confidence_level=0.8),
        "two": partial(curves, evaluation("epochs"), "pass@1..2", "pass^2..3"),
        "of fewer epochs": partial(curves, [
            replace(r, scores=np.where(np.arange(120).reshape(40, 3) % 7 < 2, np.nan, r.scores))
            for r in evaluation("epochs")], "pass@1..3"),
        "of shares": partial(curves, evaluation("partial"), "pass@1..2"),
    },
    "costs": {
        "alike": partial(es.noise, parts(evaluation("epochs"), scores=np.ones((40, 3)))),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("values", run, RUNS[run]) == []
