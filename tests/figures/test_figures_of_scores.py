"""Figures of scores with intervals, of noise, slices and metrics that are no means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
from figures import Run, changed
from small_evaluations import KINDS, evaluation, in_groups, labelled, parts

import evalstats_plugin as es
from evalstats_plugin import scores
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.scores.methods import COMPOSITES, METHODS, SEQUENTIAL

RUNS: Mapping[str, Mapping[str, Run]] = {
    **{f"intervals of {kind} scores": {
        "default": partial(es.intervals, evaluation(kind), rng=0),
        "90 %": partial(es.intervals, evaluation(kind)[:1], confidence_level=0.9, rng=0),
        "bounds of what is missing": partial(es.intervals, evaluation(kind)[:1], missing="bounds",
                                             rng=0),
        "missing is wrong": partial(es.intervals, evaluation(kind)[:1], missing="zero", rng=0),
        "a part of a benchmark": partial(es.intervals, evaluation(kind)[:1], population=100, rng=0),
        "by clusters": partial(es.intervals, evaluation(kind)[:1], estimand="clusters", rng=0),
        "fixed clusters": partial(es.intervals, evaluation(kind)[:1], clusters="fixed", rng=0),
        "a prior": partial(es.intervals, evaluation(kind)[:1], prior=(2.0, 3.0), rng=0),
        "on a scale": partial(es.intervals, evaluation(kind)[:1], rng=0,
                              measure=Measure(scale=Scale(-2, 12), higher_is_better=False)),
        "noise": partial(es.noise, evaluation(kind)),
        "parts of the variance": partial(scores.variance_parts, evaluation(kind)),
    } for kind in KINDS},
    **{f"the method {method.name} of intervals": {
        kind: partial(es.intervals, evaluation(kind)[1:2], method=method.name, rng=0)
        for kind in ("binary", "partial", "clusters", "saturated")
    } for method in (*METHODS, *SEQUENTIAL)},
    **{f"intervals of {metric}": {
        **{method.name: partial(es.intervals, labelled(metric, seed=seed)[:1], method=method.name,
                                rng=0)
           for method in COMPOSITES},
        "default": partial(es.intervals, labelled(metric, seed=seed), rng=0),
        "compared": partial(es.compare, labelled(metric, seed=seed), rng=0),
    } for metric, seed in (("f1", 3), ("f1", 4), ("mcc", 3), ("bleu", 4), ("chrf", 3), ("ter", 3),
                           ("roc_auc", 3))},
    "groups": {
        **{kind: partial(es.intervals, in_groups(kind), rng=0)
           for kind in ("binary", "partial", "epochs", "missing")},
        "a task cut": partial(
            es.intervals,
            [r.measured(n_cut=9) if r.task == "t1" else r for r in in_groups()], rng=0),
        "a task lacks a model": partial(es.intervals, in_groups()[1:], rng=0),
    },
    "slices": {
        kind: partial(es.slices, evaluation(kind), by="cluster", rng=0)
        for kind in ("clusters", "binary")
    },
    "of epochs": {
        name: partial(lambda name: es.intervals(
            scores.at_k(evaluation("epochs"), name), rng=0), name)
        for name in ("pass@1", "pass@2", "pass@3", "pass^2", "maj@3", "mean", "best@2")
    },
    "with chances": {
        "guessed": partial(es.intervals, parts(evaluation()[:2], chance=[0.25] * 40), rng=0),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("scores", run, RUNS[run]) == []
