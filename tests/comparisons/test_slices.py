"""Slices of tasks by a field of the items."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.comparisons import slice_differences
from evalstats_plugin.report.text import worst_slice
from evalstats_plugin.scores.slices import NONE, OTHER
from evalstats_plugin.stats.unpaired import permuted_slices

LOGS = "fixtures/logs/lm_eval/0.4.13/out"
GRADED = "fixtures/logs/inspect_ai/0.3.285/models"
Run = Callable[..., CompletedProcess[str]]


def _matrix(scores: object, labels: object) -> ResponseMatrix:
    rows = np.atleast_2d(np.asarray(scores, dtype=float))
    return ResponseMatrix.from_array(rows, clusters=np.asarray(labels), metric="acc")


def test_exact_tails_are_those_of_the_lady_tasting_tea() -> None:
    """Fisher (1935): 3 of 4 cups right has p 17 / 70; drawn permutations agree with it."""
    tea = np.array([1, 1, 1, 0, 1, 0, 0, 0.0])
    first = (np.arange(8) < 4)[None]
    exact = permuted_slices(tea, np.ones(8), first, rng=np.random.default_rng(0))
    drawn = permuted_slices(2 * tea, np.ones(8), first, rng=np.random.default_rng(0))
    assert np.allclose(exact, [[69 / 70], [17 / 70]])
    assert np.allclose(exact, drawn, atol=0.015)


def test_slices_are_intervals_of_their_items_at_sidaks_level() -> None:
    labels = np.repeat(["de", "en", "fr"], [10, 20, 30])
    scores = (np.arange(60) % 3 > 0) * 1.0
    rows = es.slices(_matrix(scores, labels), by="language")
    for row in rows:
        own = ResponseMatrix.from_array(scores[None, labels == row.slice], metric="acc")
        (alone,) = es.intervals(own, confidence_level=0.95 ** (1 / 3))
        assert (row.estimate, row.low, row.high) == (alone.estimate, alone.low, alone.high)
        assert (row.kind, row.by, row.n_items) == ("slice", "language", (labels == row.slice).sum())


def test_a_slice_that_is_worse_is_found_with_its_p() -> None:
    """Holm's p of three slices is three times the hypergeometric tail of the worst."""
    labels = np.repeat(["de", "en", "fr"], 20)
    scores = np.r_[np.zeros(15), np.ones(45)]
    rows = es.slices(_matrix(scores, labels), by="language")
    assert rows[0].p_worse == pytest.approx(3 * 15504 / 53194089192720, rel=1e-6)
    assert worst_slice(rows.rows).startswith(
        "Worst slice: de (0.2500, n = 20), significantly below the other items (95 %): one of 3 "
        "equal slices would be this low in at most"
    )


def test_equal_slices_are_seldom_called_worst() -> None:
    """Twenty equal slices of unequal size, easy and graded items: at most 5 % of evals."""
    rng = np.random.default_rng(44)
    slices = np.arange(20)[:, None] == np.repeat(np.arange(20), [*[4] * 10, *[16] * 10])
    n, evals = slices.shape[1], 400
    false = 0
    for _ in range(evals):
        scores = (rng.random(n) < rng.choice([0.5, 0.95])) * 1.0
        lower, _ = permuted_slices(scores, np.ones(n), slices, rng=rng)
        false += 20 * lower.min() <= 0.05
    assert false / evals <= 0.05


def test_an_item_belongs_to_each_of_its_tags_and_to_none_without() -> None:
    tags = ['["a", "b"]', '["a"]', "(item 2)", "[]", "b"]
    rows = es.slices(_matrix([1, 0, 1, 1, 0], tags), by="tags")
    assert {row.slice: row.n_items for row in rows} == {"a": 2, "b": 2, NONE: 2}
    assert rows.notes[-2:] == (
        "2 items of a task without 'tags': slice (none)",
        "an item belongs to each of its tags in 'tags': slices overlap",
    )


def test_too_many_slices_are_refused_unless_the_largest_are_asked_for() -> None:
    labels = [f"s{i}" for i in range(51)] + ["s0", "s0", "s1"]
    with pytest.raises(DesignError, match=r"makes 51 slices of .* \(--top 20\)"):
        es.slices(_matrix(np.arange(54) % 2, labels))
    rows = es.slices(_matrix(np.arange(54) % 2, labels), top=2)
    assert {row.slice: row.n_items for row in rows} == {"s0": 3, "s1": 2, OTHER: 49}


def test_a_difference_that_depends_on_the_slice_is_said() -> None:
    labels = np.repeat(["de", "en"], 40)
    scores = np.stack([np.r_[np.zeros(40), np.ones(40)], np.r_[np.ones(40), np.ones(40)]])
    found = es.compare_slices(_matrix(scores, labels), by="language")
    assert [(row.slice, row.verdict, row.kind) for row in found] == [
        ("de", "better", "slice"), ("en", "unclear", "slice")
    ]  # fmt: skip
    assert "significantly another one than elsewhere: model_1 - model_0 on de" in slice_differences(
        found
    )
    same = es.compare_slices(_matrix(scores[:, ::2], labels[:40][::-1]), by="x")
    assert len(same) == 1


def test_commands_show_slices_of_logs(run: Run) -> None:
    asked = (GRADED, "-t", "rubric_task", "-m", "rubric:correct", "--by", "passage", "-q")
    shown = run("report", *asked).stdout
    assert "Worst slice: p05 (0.4000, n = 5), not distinguishable" in " ".join(shown.split())
    whole = json.loads(run("report", *asked, "--format", "json").stdout)
    assert len(whole["worst_slices"]) == 4
    assert {row["slice"] for row in whole["results"]} == {f"p0{i}" for i in range(8)}
    assert "Worst slice: p05" in run("report", *asked, "--format", "markdown").stdout
    header = run("compare", LOGS, "-t", "es_mc", "-m", "acc", "--by", "template", "-q",
                 "--format", "csv").stdout.splitlines()[0]  # fmt: skip
    assert header.endswith("by,slice,p_interaction")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "nothere"), "nothere"),
        (("--by", "template", "--at-k", "pass@1"), "--by and --at-k do not go together"),
        (("--by", "doc.none"), "doc.none"),
    ],
)
def test_what_cannot_be_sliced_is_refused(run: Run, options: tuple[str, ...], said: str) -> None:
    done = run("report", LOGS, "-t", "es_mc", "-m", "acc", *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_hostile_names_reach_no_output_raw(run: Run, tmp_path: Path) -> None:
    hostile = "\x1b[31m=cmd()|<b>&_{x}"
    lines = [
        json.dumps({"model": "m", "task": "t", "item": i, "score": i % 2, "why": hostile * (i % 3)})
        for i in range(12)
    ]
    table = tmp_path / "scores.jsonl"
    table.write_text("\n".join(lines))
    for command in ("table", "csv", "markdown", "latex", "json"):
        done = run("report", str(table), "--by", "why", "-q", "--format", command)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        if command == "markdown":
            assert "<b>" not in done.stdout
        if command == "latex":
            assert "&_{" not in done.stdout
