"""Figures of comparisons, gates, tables and plans."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from figures import Run, changed
from small_evaluations import KINDS, evaluation, in_groups

import evalstats_plugin as es
from evalstats_plugin import comparisons
from evalstats_plugin.comparisons import PowerAssumptions, PowerDesign
from evalstats_plugin.comparisons.methods import COMPARISONS, UNPAIRED
from evalstats_plugin.data.responses import Responses

TASKS = ("t0", "t1", "t2", "t3")
DESIGNS: Mapping[str, PowerDesign] = {
    "plain": PowerDesign(),
    "unpaired": PowerDesign(paired=False),
    "five models": PowerDesign(n_models=5),
    "clusters": PowerDesign(design_effect=2.0),
    "miller": PowerDesign(method="miller"),
    "t": PowerDesign(method="t"),
    "looks": PowerDesign(look_every=25),
    "assured": PowerDesign(assurance=0.9),
    "costs": PowerDesign(costs=(1.0, 0.25)),
    "margin": PowerDesign(margin=0.1),
    "fixed tasks": PowerDesign(tasks="fixed"),
    "random tasks": PowerDesign(tasks="random"),
}
ASSUMED = {
    "discordance": PowerAssumptions(discordance=0.25),
    "variances": PowerAssumptions(between=0.06, within=(0.1, 0.15)),
    "no noise": PowerAssumptions(between=0.2),
}
ASKED: Mapping[str, Mapping[str, Any]] = {
    "items": {"difference": 0.12},
    "difference": {"n_items": 90},
    "power": {"difference": 0.12, "n_items": 90},
    "of epochs": {"difference": 0.12, "n_items": 60, "n_epochs": 2, "power": 0.9,
                  "confidence_level": 0.9},
}  # fmt: skip


def _lacking(kind: Any) -> list[Responses]:
    """The last model lacks a sixth of the items of each task."""
    return [
        Responses(model=r.model, measure=r.measure, source=r.source, groups=r.groups,
                  item_ids=r.item_ids[len(r.item_ids) // 6 :],
                  scores=r.scores[len(r.item_ids) // 6 :])
        if r.model == "m2" else r
        for r in in_groups(kind)
    ]  # fmt: skip


def _power(pilot: Any, design: PowerDesign) -> dict[str, Run]:
    return {
        name: partial(es.power, pilot, design=design, **asked) for name, asked in ASKED.items()
    } | {
        "curve": partial(comparisons.power_curve, pilot, difference=0.12, at=[20, 200],
                         design=design),
        "curve of differences": partial(comparisons.power_curve, pilot, at=[20, 200],
                                        design=design),
    }  # fmt: skip


RUNS: Mapping[str, Mapping[str, Run]] = {
    **{f"comparisons of {kind} scores": {
        **{f"{design}": partial(es.compare, evaluation(kind), design=design, rng=0)
           for design in ("paired", "unpaired", "sequential")},
        "baseline": partial(es.compare, evaluation(kind), baseline="m1", confidence_level=0.9,
                            rng=0),
        "best": partial(es.compare, evaluation(kind), baseline="best", rng=0),
        "shrunk": partial(es.compare, evaluation(kind), probabilities="shrunk", rng=0),
        "ranks": partial(comparisons.rank_sets, evaluation(kind), rng=0),
        "missing is wrong": partial(es.compare, evaluation(kind), missing="zero", rng=0),
        "a prior": partial(es.compare, evaluation(kind), prior=1.0, rng=0),
        "a gate": partial(es.gate, evaluation(kind), baseline="m0", rng=0),
    } for kind in KINDS if kind not in {"points", "grid", "missing"}},
    **{f"the method {method.name} of comparisons": {
        kind: partial(es.compare, evaluation(kind)[:2], method=method.name, rng=0)
        for kind in ("binary", "partial", "clusters", "saturated")
        if method.family != "resampling"
    } for method in COMPARISONS},
    **{f"the method {method.name} of other items": {
        kind: partial(es.compare, evaluation(kind)[:2], method=method.name, design="unpaired",
                      rng=0)
        for kind in ("binary", "partial")
    } for method in UNPAIRED},
    **{f"the correction {correction}": {
        **{f"{family} {kind}": partial(es.compare, in_groups(kind), correction=correction,
                                       family=family, rng=0)
           for family in ("auto", "task", "group", "run") for kind in ("binary",)},
        "lacking": partial(es.compare, _lacking("partial"), correction=correction, rng=0),
    } for correction in ("simultaneous", "stepdown", "bh", "none")},
    "across tasks": {
        **{kind: partial(es.compare, in_groups(kind), design="tasks", rng=0)
           for kind in ("binary", "points", "errors")},
        "lacking": partial(es.compare, _lacking("binary"), design="tasks", rng=0),
        "a task lacks a model": partial(es.compare, in_groups()[1:], design="tasks", rng=0),
        "without overall": partial(es.compare, in_groups(), overall=False, rng=0),
        "best": partial(es.compare, in_groups(), design="tasks", baseline="best", rng=0),
    },
    "tables": {
        **{weights: partial(es.table, in_groups(), weights=weights, rng=0)
           for weights in ("columns", "tasks", "items")},
        "all tasks": partial(es.table, in_groups("partial"), subtasks=True, rng=0),
        "lacking": partial(es.table, _lacking("binary"), rng=0),
    },
    "gates of groups": {
        "worse": partial(es.gate, in_groups(), baseline="m2", rng=0),
        "slices": partial(es.compare_slices, evaluation("clusters"), rng=0),
        "margin": partial(es.gate, in_groups(), baseline="m2", margin=0.4, non_inferior=True,
                          rng=0),
        "share": partial(es.gate, in_groups("points"), baseline="m0", margin="30%",
                         non_inferior=True, rng=0),
        "lacking": partial(es.gate, _lacking("binary"), baseline="m0", margin=0.3,
                           non_inferior=True, rng=0),
        "decisions": lambda: [
            [gate.decision, [[row.name, row.largest_drop] for row in gate]]
            for gate in (es.gate(in_groups(), baseline=name, rng=0) for name in ("m0", "m2"))],
        "items": partial(es.gate, in_groups(), baseline="m0", items={"t0": 24, "t1": 99}, rng=0),
        "epochs": partial(es.gate, in_groups("epochs", 2), baseline="m0", rng=0),
    },
    **{f"plans by {design}": {
        f"{pilot} {name}": run
        for pilot, given in ASSUMED.items()
        for name, run in _power(given, how).items()
    } for design, how in DESIGNS.items() if design not in ("margin", "assured")
      and how.tasks == "each"},
    **{f"plans from {kind} pilots": {
        f"{name} by {design}": partial(
            es.power,
            evaluation(kind, n_models=2, n_items=24, tasks=TASKS[: 3 if "tasks" in design else 1]),
            design=DESIGNS[design], **ASKED[name])
        for name, designs in asked.items() for design in designs
    } for kind, asked in (
        ("binary", {"items": ("plain", "unpaired", "assured", "costs", "margin", "fixed tasks",
                              "random tasks"),
                    "difference": ("plain", "unpaired", "assured", "margin", "fixed tasks",
                                   "random tasks"),
                    "power": ("plain", "looks", "random tasks")}),
        ("partial", {"items": ("plain", "random tasks"), "power": ("plain",)}),
        ("clusters", {"items": ("plain", "unpaired"), "difference": ("plain",)}),
        ("missing", {"items": ("plain",)}),
        ("epochs", {"items": ("t",), "of epochs": ("unpaired", "miller")}),
    )},
    "plans with other numbers of epochs": {
        f"{kind} {n_epochs}": partial(
            es.power, evaluation(kind, n_models=2, n_items=24), difference=0.12, n_items=60,
            n_epochs=n_epochs)
        for kind in ("epochs", "clusters") for n_epochs in (1, 2, 5)
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("comparisons", run, RUNS[run]) == []
