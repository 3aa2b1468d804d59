"""The record of what a score is, and the registry of metrics."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest

from evalstats_plugin.data.measure import Measure, Scale, joint
from evalstats_plugin.data.metrics import STOCK, StockMetric, stock_metric, with_stock

FULL = Measure(
    task="t", metric="match/logic", scorer="match", key="k", filter="f", reducer="mode",
    group="logic", scale=Scale(0.0, math.inf, 0.5, "points"), higher_is_better=False,
    aggregation="f1", is_headline=True, population=100, n_cut=3,
)  # fmt: skip


def test_a_measure_survives_json() -> None:
    """Every field, an infinite limit too."""
    assert Measure.from_dict(json.loads(json.dumps(FULL.to_dict(), allow_nan=False))) == FULL
    endless = replace(FULL, scale=Scale(-math.inf, 0.0))
    assert Measure.from_dict(endless.to_dict()) == endless
    unset = {field.name for field in fields(Measure) if getattr(FULL, field.name) in ("", None)}
    assert unset == set()


@pytest.mark.parametrize(
    "changed", [{"scale_from": "guessed"}, {"metric": 1}, {"scale": {"low": 1}}, {"n_cut": "3"}]
)
def test_what_is_no_measure_is_refused(changed: dict[str, object]) -> None:
    """By the errors that readers of damaged files report."""
    with pytest.raises((TypeError, KeyError, ValueError)):
        Measure.from_dict({**FULL.to_dict(), **changed})


def test_the_joint_measure_believes_what_is_known_best() -> None:
    """What the user gave goes before the log, and that before the registry."""
    plain = Measure(task="t", metric="acc")
    given, usual = plain.on((0.0, 10.0), "given"), plain.on((0.0, 1.0), "registry")
    wide = plain.on((-1.0, 5.0), "given")

    assert joint([usual, given]).bounds == joint([given, usual]).bounds == (0.0, 10.0)
    assert joint([given, wide]).bounds == (-1.0, 10.0)
    assert joint([plain, plain]) is plain
    lower = Measure(task="t", metric="a", higher_is_better=False)
    assert joint([plain, lower]).higher_is_better is False
    first = Measure(task="t", metric="m", scale=Scale(0, 1, unit="share"), n_cut=3)
    second = replace(first, scale=Scale(0, 10, 0.5, "points"), population=50, n_cut=1)
    third = replace(first, scale=Scale(-1, 5), population=70)
    assert joint([first, second, third]) == replace(
        first, scale=Scale(-1, 10, unit="share"), population=50, n_cut=0
    )
    assert joint([first, second]).scale == joint([second, first]).scale == second.scale
    assert joint([first, first]) is first


@pytest.mark.needs("lm_eval")
def test_every_metric_that_lm_eval_registers_is_known() -> None:
    """With its direction, and its aggregation where that is no mean."""
    from lm_eval.api import metrics, registry  # noqa: F401 - registers them

    for name, higher in registry.HIGHER_IS_BETTER_REGISTRY.items():
        known = stock_metric(name, "lm_eval", "some_task")
        assert known is not None, name
        assert higher is None or known.better == ("higher" if higher else "lower"), name


@pytest.mark.parametrize(
    ("metric", "harness", "task", "bounds", "higher"),
    [
        ("acc,none", "lm_eval", "arc", (0, 1), True),
        ("rouge1_max,none", "lm_eval", "truthfulqa_gen", (0, 100), True),
        ("rougeL_diff,none", "lm_eval", "truthfulqa_gen", (-100, 100), True),
        ("bleu_acc,none", "lm_eval", "truthfulqa_gen", (0, 1), True),
        ("em,none", "lm_eval", "scrolls_quality", (0, 100), True),
        ("word_perplexity,none", "lm_eval", "wikitext", None, False),
        ("rouge1,none", "lm_eval", "any", None, None),
        ("exact_match", "helm", "mmlu", (0, 1), True),
        ("extractive_match", "lighteval", "gpqa", (0, 1), True),
        ("mc2", "lighteval", "harness|truthfulqa:mc|0", (0, 1), True),
        ("loss", "tabular", "t", None, False),
        ("a metric of one's own", "tabular", "t", None, None),
    ],
)
def test_what_the_registry_knows(
    metric: str,
    harness: str,
    task: str,
    bounds: object,
    higher: bool | None,  # noqa: FBT001
) -> None:
    """Scales of one item's score, by harness and task."""
    found = with_stock(Measure(task=task, metric=metric), harness)

    assert (found.bounds, found.higher_is_better) == (bounds, higher)
    assert all(part in ("", "registry") for part in (found.scale_from, found.direction_from))


def test_the_log_and_plugins_go_before_the_registry() -> None:
    """Their word is not changed."""
    logged = Measure(task="t", metric="acc", scale=Scale(0, 7), higher_is_better=False)
    mine = StockMetric("acc", Scale(0, 9), "lower")

    assert with_stock(logged, "lm_eval") is logged
    assert with_stock(Measure(task="t", metric="acc"), "lm_eval", (mine,)).bounds == (0, 9)


def test_a_metric_that_is_no_mean_gets_no_scale_of_items() -> None:
    """F1 of labels lies in [0, 1], its items are pairs."""
    measure = Measure(task="t", metric="f1", aggregation="f1")

    assert with_stock(measure, "lm_eval").scale is None


def test_every_line_of_the_registry_is_the_first_that_fits_something() -> None:
    """None is hidden by an earlier one."""
    for line in STOCK:
        harness, task = line.harness.replace("*", "x"), line.task.replace("*", "x")
        names = [name.replace("*", "x").replace("?", "1") for name in line.metric.split()]
        assert any(stock_metric(name, harness, task) is line for name in names), line.metric
