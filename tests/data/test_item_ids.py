"""Item ids are unique: one that is there twice is refused, or its answers are epochs on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.data.responses import repeated_item
from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.plugins import Plugins, new_manager

MEASURE = es.Measure(task="t", metric="acc")
TWICE = r"answers 1 and 3 of model '\w' to task 'quiz' \(acc\) are both of item 'q0' \(1 answer too"


def _made(model: str, path: Path = Path(), **more: Any) -> es.Responses:
    """Return four answers, two of them to one item."""
    return es.Responses(
        model=model,
        measure=es.Measure(task="quiz", metric="acc"),
        item_ids=np.array(["q0", "q1", "q0", "q2"]),
        scores=np.array([[1.0], [1.0], [0.0], [0.0]]),
        source=es.Source(path=path, harness="made"),
        **more,
    )


@pytest.mark.parametrize(
    "call",
    [
        es.intervals,
        es.compare,
        es.table,
        lambda made: es.gate(made, baseline="a"),
        lambda made: es.ResponseSet(tuple(made)).matrix(),
    ],
)
def test_every_analysis_refuses_an_item_that_is_there_twice(call: Callable[..., Any]) -> None:
    """So that none takes the first score and another the last."""
    with pytest.raises(DesignError, match=TWICE):
        call([_made("a"), _made("b")])


def test_values_beside_are_looked_at_too() -> None:
    single = replace(_made("a"), item_ids=np.arange(4), beside=(_made("a"),))

    with pytest.raises(DesignError, match=TWICE):
        es.intervals([single])


@pytest.fixture
def plugins() -> Plugins:
    """A plugin whose logs hold an item twice."""

    @es.hookimpl
    def evalstats_read_log(log: Any) -> list[es.Responses]:
        clusters = np.array(["x", "y", "x", "y"])
        return [_made(model, log.path, clusters=clusters) for model in ("a", "b")]

    plugin, manager = ModuleType("made"), new_manager()
    plugin.evalstats_read_log = evalstats_read_log  # type: ignore[attr-defined]
    manager.register(plugin, name="made")
    return Plugins(manager)


def test_a_log_with_an_item_twice_is_refused_by_name(plugins: Plugins, tmp_path: Path) -> None:
    """The message says where, and how to read it."""
    log = tmp_path / "some.log"
    log.write_text("any")

    with pytest.raises(LogError, match=rf"some\.log: {TWICE}.*--runs epochs"):
        es.read(log, plugins=plugins)


def test_answers_to_one_item_are_epochs_where_the_user_says_so(
    plugins: Plugins, tmp_path: Path
) -> None:
    """Report and compare then have the same data."""
    log = tmp_path / "some.log"
    log.write_text("any")
    a, b = es.read(log, plugins=plugins, runs="epochs")

    assert ["q0", "q1", "q2"] == a.item_ids.tolist()
    np.testing.assert_array_equal([[1, 0], [1, np.nan], [0, np.nan]], a.scores)
    assert ["x", "y", "y"] == (a.clusters if a.clusters is not None else np.empty(0)).tolist()
    assert any("1 answer to items that are there again: further epochs" in n for n in a.notes)
    estimates = [row.estimate for row in es.intervals([a, b], rng=0)]
    assert [0.5, 0.5] == estimates
    assert 3 == es.compare([a, b], rng=0)[0].n_items


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.arange(3), None),
        (np.array([2, 1, 0]), None),
        (np.array([2, 1, 2, 2]), (0, 2, 2)),
        (np.array(["b", "a"]), None),
        (np.array(["b", "a", "b"]), (0, 2, 1)),
        (np.array([1, "1"], dtype=object), (0, 1, 1)),
        (np.array([]), None),
    ],
)
def test_ids_are_compared_as_texts(ids: Any, expected: tuple[int, int, int] | None) -> None:
    """As the join does."""
    assert expected == repeated_item(ids) == repeated_item(ids)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": None}, "model is None, and must be a text"),
        ({"measure": "acc"}, "measure is 'acc', and must be a Measure"),
        ({"source": None}, "source is None, and must be a Source"),
        ({"scores": ["right", "wrong"]}, r"scores are \['right', 'wrong'\], and must be numbers"),
        ({"scores": [1, 0, 1]}, r"scores have shape \(3, 1\), and must have \(2, R\)"),
    ],
)
def test_responses_say_which_part_of_them_is_wrong(wrong: dict[str, Any], message: str) -> None:
    """Adapters are told what to return instead."""
    source = es.Source(path=Path(), harness="made")
    given = {"model": "m", "measure": MEASURE, "source": source} | wrong

    with pytest.raises((TypeError, ValueError), match=message):
        es.Responses(item_ids=["a", "b"], **{"scores": [1, 0], **given})  # type: ignore[arg-type]


def test_lists_are_taken_for_arrays() -> None:
    """One score an item is one epoch."""
    source = es.Source(path=Path(), harness="made")
    made = es.Responses(
        model="m", measure=MEASURE, source=source,
        item_ids=["a", "b"], scores=[1, 0], clusters=["x", "x"],  # type: ignore[arg-type]
    )  # fmt: skip

    assert (2, 1) == made.scores.shape
    assert 0.5 == es.intervals([made])[0].estimate
