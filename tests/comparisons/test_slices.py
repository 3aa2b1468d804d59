"""Slices of tasks by a field of the items."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import stats

import evalstats_plugin as es
from evalstats_plugin import ResponseMatrix
from evalstats_plugin.cli import main
from evalstats_plugin.data.responses import Responses, with_epochs
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.report.comparisons import rankings_over_values, slice_differences
from evalstats_plugin.report.gating import sentence
from evalstats_plugin.report.text import slice_sentences, worst_slice
from evalstats_plugin.scores.slices import ALIKE, NONE, OTHER, answers_at_values, at_all_values
from evalstats_plugin.stats.clustered import crossed
from evalstats_plugin.stats.pairs.unpaired import permuted_slices

LOGS = "fixtures/logs/lm_eval/0.4.13/out"
EEE = "fixtures/logs/every_eval_ever/0.3.0/exported/data/reading"
GRADED = "fixtures/logs/inspect_ai/0.3.285/models"


def _run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, list(map(str, arguments)))


def _matrix(scores: object, labels: object) -> ResponseMatrix:
    rows = np.atleast_2d(np.asarray(scores, dtype=float))
    return ResponseMatrix.from_array(rows, clusters=np.asarray(labels), metric="acc")


def _tagged(scores: object, tags: object) -> list[Responses]:
    rows = np.atleast_2d(np.asarray(scores, dtype=float))
    matrix = ResponseMatrix.from_array(rows, models=["old", "new"][: len(rows)], metric="acc")
    return [replace(r, tags=np.asarray(tags)) for r in matrix.to_responses()]


def test_exact_tails_are_those_of_the_lady_tasting_tea() -> None:
    """Fisher (1935): 3 of 4 cups right has p 17 / 70; drawn permutations agree with it."""
    tea = np.array([1, 1, 1, 0, 1, 0, 0, 0.0])
    first = (np.arange(8) < 4)[None]
    exact = permuted_slices(tea, np.ones(8), first, rng=np.random.default_rng(0))
    drawn = permuted_slices(2 * tea, np.ones(8), first, rng=np.random.default_rng(0))
    assert np.allclose(exact, [[69 / 70], [17 / 70]])
    assert np.allclose(exact, drawn, atol=0.015)


@pytest.mark.parametrize(("n", "n_draws"), [(8, 9999), (2000, 2**22 // 2000)])
def test_p_values_are_shares_of_the_draws_and_what_is_seen(n: int, n_draws: int) -> None:
    """Of many units there are fewer draws, so that they take no longer."""
    rng = np.random.default_rng(3)
    lower, _ = permuted_slices(rng.random(n), np.ones(n), (np.arange(n) % 2 == 0)[None], rng=rng)
    count = lower[0] * (n_draws + 1)
    assert 1 <= count == pytest.approx(round(count), abs=1e-6)


def test_slices_are_intervals_of_their_items_at_sidaks_level() -> None:
    labels = np.repeat(["de", "en", "fr"], [10, 20, 30])
    scores = (np.arange(60) % 3 > 0) * 1.0
    rows = es.slices(_matrix(scores, labels), by="language")
    for row in rows:
        own = ResponseMatrix.from_array(scores[None, labels == row.slice], metric="acc")
        (alone,) = es.intervals(own, confidence_level=0.95 ** (1 / 3), method="clopper-pearson")
        assert (row.estimate, row.low, row.high) == (alone.estimate, alone.low, alone.high)
        assert (row.kind, row.by, row.n_items) == ("slice", "language", (labels == row.slice).sum())
    (tagged,) = _tagged(scores, labels)
    clustered = es.slices([replace(tagged, clusters=np.arange(60) // 2)], by="language")
    assert {row.method for row in clustered} == {"size-betabinomial"}


def test_a_slice_that_is_worse_is_found_with_its_p() -> None:
    """Holm's p of three slices is three times the hypergeometric tail of the worst."""
    labels = np.repeat(["de", "en", "fr"], 20)
    scores = np.r_[np.zeros(15), np.ones(45)]
    rows = es.slices(_matrix(scores, labels), by="language")
    assert rows[0].p_worse == pytest.approx(3 * 15504 / 53194089192720, rel=1e-6)
    assert worst_slice(rows.rows).startswith(
        "Worst slice: de (0.2500, n = 20), significantly below the other items (95 %): one of 3 "
        "equal slices would be this low in at most 0.01 of 100 evals"
    )


def test_tasks_of_one_slice_each_have_one_sentence() -> None:
    """Eighteen lines said of eighteen tasks that there was nothing to compare."""
    matrix = ResponseMatrix.from_array(
        [[1, 0, 1] * 3], models=["m"], tasks=["ta", "tb", "tc"] * 3, metric="acc"
    )
    tasks = [replace(r, tags=np.repeat(r.task, 3)) for r in matrix.to_responses()]
    [said] = slice_sentences(es.slices(tasks, by="language").rows)

    assert said.startswith("m: ta acc, m: tb acc, m: tc acc. One slice: nothing")


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


def test_a_level_that_is_none_is_refused_as_it_was_given() -> None:
    with pytest.raises(DesignError, match=r"1\.5"):
        es.slices(_matrix([1, 0] * 8, ["a", "b"] * 8), confidence_level=1.5)


def test_too_many_slices_are_refused_unless_the_largest_are_asked_for() -> None:
    labels = [f"s{i}" for i in range(51)] + ["s0", "s0", "s1"]
    with pytest.raises(DesignError, match=r"makes 51 slices of .* \(--top 20\)"):
        es.slices(_matrix(np.arange(54) % 2, labels))
    rows = es.slices(_matrix(np.arange(54) % 2, labels), top=2)
    assert {row.slice: row.n_items for row in rows} == {"s0": 3, "s1": 2, OTHER: 49}


@pytest.mark.parametrize(
    ("log", "task", "field", "first"),
    [
        (GRADED, "reading", "level", "0"),
        (LOGS, "es_mc", "template", "t0"),
        (EEE, "reading", "cluster", "p00"),
    ],
)
def test_one_reading_gives_slices_and_keeps_clusters(
    log: str, task: str, field: str, first: str
) -> None:
    read = es.read(log, task=task, by=field)
    for before, r in zip(es.read(log, task=task), read, strict=True):
        clusters = [
            None if each.clusters is None else each.clusters.tolist() for each in (before, r)
        ]
        assert clusters[0] == clusters[1]
        assert r.tags is not None
        assert r.tags[0] == first


def test_items_that_are_there_again_keep_their_tags() -> None:
    r = replace(_tagged([1, 0, 1], ["a", "b", "a"])[0], item_ids=np.array([7, 8, 7]))
    stacked = with_epochs(r)
    assert stacked.tags is not None
    assert stacked.tags.tolist() == ["a", "b"]
    assert stacked.scores.shape == (2, 2)


def test_numbers_are_cut_at_the_quantiles_of_the_tasks_items() -> None:
    """Eight values, one of them three times: equal numbers are in one slice, in their order."""
    lengths = ["9", "10", "10", "10", "80", "300", "1000.5", "2000"]
    rows = es.slices(_tagged([[1, 0, 1, 1, 0, 1, 0, 1]], lengths), by="length:4")
    assert [(row.slice, row.n_items) for row in rows] == [
        ("1 of 4: 9 to 10", 4), ("3 of 4: 80 to 300", 2), ("4 of 4: 1000.5 to 2000", 2)
    ]  # fmt: skip
    six = es.slices(_tagged(np.ones((1, 6)), list("123456")), by="length:4")
    assert [row.slice[8:] for row in six] == ["1 to 2", "3 to 3", "4 to 5", "6 to 6"]
    one, other = _tagged(np.ones((2, 4)), ["1", "2", "3", "(item 3)"])
    other = other.of_items(np.array([2, 3]))
    found = es.slices([one, other], by="length:3")
    assert {(r.model, r.slice): r.n_items for r in found}["new", "3 of 3: 3 to 3"] == 1
    assert {row.slice for row in found} >= {NONE}


@pytest.mark.parametrize("values", [["1", "2", "de"], ["1", "2", "nan"], ["1", "2", "1_0"]])
def test_what_is_no_number_has_no_quantiles(values: list[str]) -> None:
    with pytest.raises(DesignError, match=r"no numbers, so it has no quantiles: --by length takes"):
        es.slices(_tagged([1, 0, 1], values), by="length:4")
    with pytest.raises(DesignError, match="length:1 asks for 1 slices: give 2 to 50"):
        es.slices(_tagged([1, 0, 1], values), by="length:1")


def test_a_gate_decides_on_every_slice_of_the_baselines_items() -> None:
    """A drop on one slice alone, which all items together hide; the candidate's tags do nothing."""
    tags = np.repeat(["de", "en", "fr"], 40)
    scores = np.ones((2, 120))
    scores[1, 80:] = 0
    scores[0, :40] = 0
    old, new = _tagged(scores, tags)
    assert es.gate([old, new], baseline="old").decision == "pass"
    for candidate in (new, replace(new, tags=tags[::-1]), replace(new, tags=None)):
        result = es.gate([old, candidate], baseline="old", by="language")
        assert [(row.slice, row.decision) for row in result] == [
            ("fr", "regressed"), ("", "pass"), ("de", "pass"), ("en", "pass")
        ]  # fmt: skip
    said = sentence(result)
    assert said.startswith("REGRESSED: new shows a drop against old in 1 of 4 comparisons")
    assert "language fr acc -1.0000 [-1.0000, " in said
    # All tasks and slices are one family, whose limits are wider than those of a slice alone.
    (alone,) = es.gate([r.of_items(tags == "en") for r in (old, new)], baseline="old")
    (en,) = (row for row in result if row.slice == "en")
    assert en.low is not None
    assert alone.low is not None
    assert en.low < alone.low


def test_a_slice_that_the_candidate_did_not_run_does_not_pass() -> None:
    old, new = _tagged(np.ones((2, 60)), np.repeat(["de", "en"], 30))
    rows = es.gate([old, new.of_items(np.arange(30))], baseline="old", by="language")
    assert {row.slice: row.decision for row in rows} == {
        "": "inconclusive", "de": "pass", "en": "inconclusive"
    }  # fmt: skip
    lacking = es.gate([old, new.of_items(np.arange(58))], baseline="old", by="language")
    assert {row.slice: row.n_lacking for row in lacking} == {"": 2, "de": 0, "en": 2}
    with pytest.raises(DesignError, match="no item has the field"):
        es.gate([replace(old, tags=None), replace(new, tags=None)], baseline="old", by="language")


def test_a_protocol_pins_the_slices(tmp_path: Path) -> None:
    table, protocol = tmp_path / "scores.csv", tmp_path / "gate.toml"
    rows = [f"{m},{i},{i % 3 > 0:d},{'de' if i < 9 else 'en'}" for m in "ab" for i in range(20)]
    table.write_text("\n".join(["model,item,score,lang", *rows]))
    protocol.write_text('baseline = "a"\nby = "lang"\n')
    asked = ("gate", table, "--protocol", protocol, "--format", "json")
    decided = json.loads(_run(*asked).stdout)
    assert [row["slice"] for row in decided["results"]] == ["", "de", "en"]
    assert decided["evalstats"]["by"] == "lang"
    other = _run(*asked, "--by", "model")
    assert other.exit_code == 2
    assert "--by contradicts the protocol" in other.stderr


def test_a_table_of_slices_has_limits_of_all_its_cells() -> None:
    tags = np.repeat(["de", "en", "fr"], 20)
    right = np.random.default_rng(3).random((2, 60)) < 0.7
    table = es.table(_tagged(right, tags), by="language", weights="items")
    assert table.tasks == ("overall", "de", "en", "fr")
    level = 0.95 ** (1 / 6)
    for i, model in enumerate(("old", "new")):
        overall = table.by_column["overall", "overall"][model].estimate
        assert overall is not None
        assert abs(overall - right[i].mean()) < 1e-9
        own = ResponseMatrix.from_array(right[i : i + 1, :20] * 1.0, metric="acc")
        (alone,) = es.intervals(own, confidence_level=level, method="clopper-pearson")
        cell = table.by_column["task", "de"][model]
        assert (cell.low, cell.high, cell.confidence_level) == (alone.low, alone.high, 0.95)


@pytest.mark.parametrize("seed", range(6))
def test_limits_hold_together_whatever_the_sizes_and_the_score(seed: int) -> None:
    """Summed over all outcomes of drawn sizes: the default method, the control, falls short."""
    rng = np.random.default_rng([49, seed])
    sizes = rng.integers(4, int(rng.integers(8, 40)), int(rng.integers(3, 13)))
    tags = np.repeat([f"s{j:02}" for j in range(len(sizes))], sizes)
    place = np.concatenate([np.arange(n) for n in sizes])
    # Model k is right on the first k items of each slice.
    right = (place < np.arange(sizes.max() + 1)[:, None]) * 1.0
    listed = [replace(r, tags=tags) for r in ResponseMatrix.from_array(right).to_responses()]
    scores = np.linspace(0.02, 0.98, 97)
    least = {}
    for name, rows in (
        ("exact", es.slices(listed, by="tag")),
        ("default", es.slices(listed, by="tag", intervals=_default)),
    ):
        limits = np.array([(r.low, r.high) for r in rows]).reshape(len(right), len(sizes), 2)
        held = np.ones(len(scores))
        for j, n in enumerate(sizes):
            low, high = limits[: n + 1, j].T[..., None]
            chance = stats.binom.pmf(np.arange(n + 1)[:, None], n, scores)
            held *= (chance * ((low <= scores) & (scores <= high))).sum(axis=0)
        least[name] = held.min()
    assert least["exact"] >= 0.95
    assert least["default"] < 0.95


def _default(parts: Any, *, confidence_level: float, **_: str) -> Any:
    """Return intervals by the default method, whatever is preferred."""
    return es.intervals(parts, confidence_level=confidence_level)


def test_a_method_that_was_asked_for_stays() -> None:
    logs = (GRADED, "-t", "rubric_task", "-m", "rubric:correct", "--by", "passage")
    for more, method in (((), "clopper-pearson"), (("--method", "wilson"), "wilson")):
        shown = json.loads(_run("report", *logs, *more, "--format", "json").stdout)
        assert {row["method"] for row in shown["results"]} == {method}


def test_slices_that_overlap_have_no_overall_score() -> None:
    tags = ['["a", "b"]', '["a"]', "b", "b"]
    assert "overall" not in es.table(_tagged(np.eye(2, 4), tags), by="tags").tasks
    across = [replace(r, clusters=np.array([0, 1, 1, 2]))
              for r in _tagged(np.eye(2, 4), ["a", "a", "b", "b"])]  # fmt: skip
    table = es.table(across, by="tags")
    assert "overall" not in table.tasks
    assert "no overall score: slices have items in common" in table.notes


def _at_temperatures(effects: dict[str, list[float]], n_items: int = 200) -> list[Responses]:
    """Runs of each model at as many temperatures, which change its share of right answers."""
    rng = np.random.default_rng(8)
    rank = rng.permutation(n_items) / n_items
    return [
        replace(r, model=model, tags=np.full(n_items, f"{value}"))
        for model, shares in effects.items()
        for value, share in zip((10, 2, 0.5), shares, strict=True)
        for r in _tagged(rank < share, np.full(n_items, ""))
    ]


def test_values_of_a_setting_are_slices_with_a_row_for_values_like_these() -> None:
    """Each value's run has its own limits; the row's are MOVER's: both half-widths squared."""
    runs = _at_temperatures({"m": [0.5, 0.6, 0.7]})
    rows = es.slices(runs, by="temperature")
    assert [row.slice for row in rows] == ["0.5", "2", "10", ALIKE]
    assert {row.n_slices for row in rows} == {3}
    assert {row.p_worse for row in rows} == {None}
    alike = rows[-1]
    (fixed,) = es.intervals([at_all_values(runs)])
    assert (fixed.low, fixed.high, fixed.estimate) != (None, None, None)
    half = 4.302652729911275 * 0.1 / 3**0.5  # t with 2 degrees of freedom, 0.1 their deviation
    assert alike.estimate == pytest.approx(0.6)
    assert alike.low == pytest.approx(0.6 - np.hypot(0.6 - (fixed.low or 0), half))
    assert alike.high == pytest.approx(0.6 + np.hypot((fixed.high or 0) - 0.6, half))
    assert alike.std_between is not None
    assert 0.09 < alike.std_between < 0.1
    assert alike.p_alike is not None
    assert alike.p_alike < 1e-6
    assert worst_slice(rows.rows).startswith("Over 3 values of temperature: 0.6000 [")
    same = es.slices(_at_temperatures({"m": [0.5, 0.5, 0.5]}), by="temperature")[-1]
    assert (same.std_between, same.p_alike) == (0, 1)


def test_rounding_errors_are_no_variance_between_values() -> None:
    scores = np.random.default_rng(1).random(50)
    same = crossed(np.stack([scores, (scores + 1e3) - 1e3, (scores + 3e2) - 3e2], axis=1), 0.04)
    assert (same.std_between, same.error, same.p_alike) == (0, 0, 1)


def test_a_ranking_that_depends_on_the_prompt_is_less_certain() -> None:
    steady = {"a": [0.5, 0.5, 0.5], "b": [0.6, 0.6, 0.6], "c": [0.8, 0.8, 0.8]}
    varying = {"a": [0.5, 0.5, 0.5], "b": [0.4, 0.6, 0.8], "c": [0.8, 0.8, 0.8]}
    verdicts: list[list[str]] = []
    probs: list[float] = []
    for effects in (steady, varying):
        rows = es.compare_slices(_at_temperatures(effects), by="temperature")
        alike = [row for row in rows if row.slice == ALIKE]
        assert [row.slice for row in rows if row.model_b == "c" and row.model_a == "a"] == [
            "0.5", "2", "10", ALIKE
        ]  # fmt: skip
        for row in alike:
            assert row.low is not None
            assert row.high is not None
            assert row.p_adjusted is not None
            assert (row.p_adjusted <= 0.05) == (not row.low <= 0 <= row.high)
        assert {row.p_interaction for row in rows if row not in alike} == {None}
        verdicts.append([row.verdict for row in alike])
        (said,) = rankings_over_values(rows)
        assert "ranking c > b > a holds at another value of temperature with" in said
        probs.append(float(said.split()[-1].rstrip(".")))
    assert verdicts == [["better"] * 3, ["unclear", "better", "unclear"]]
    errors = [r.measured(higher_is_better=False) for r in _at_temperatures(steady)]
    (said,) = rankings_over_values(es.compare_slices(errors, by="temperature"))
    assert "ranking a > b > c holds at another value of temperature" in said
    assert said.endswith(f"at least {probs[0]:g}.")
    assert probs[0] > 0.95
    assert probs[1] < 0.7


def test_items_in_clusters_are_drawn_as_clusters_at_every_value() -> None:
    """Four copies of each item in a cluster are no more than the item."""
    runs = _at_temperatures({"m": [0.5, 0.55, 0.6]}, n_items=40)
    copies = [
        replace(r, item_ids=np.arange(160), scores=np.repeat(r.scores, 4, axis=0),
                tags=np.repeat(r.tags, 4), clusters=np.repeat(np.arange(40), 4))
        for r in runs if r.tags is not None
    ]  # fmt: skip
    rows = [
        sorted(np.round(answers_at_values(at_all_values(own), 3), 9).tolist())
        for own in (copies, runs)
    ]
    assert rows[0] == rows[1]
    some = [runs[0].of_items(np.arange(30)), runs[1].of_items(np.arange(10, 40)[::-1])]
    together = at_all_values(some)
    expected = np.hstack([runs[0].scores[10:30], runs[1].scores[10:30]])
    assert sorted(answers_at_values(together, 2).tolist()) == sorted(expected.tolist())
    assert np.array_equal(answers_at_values(together, 2, together), np.zeros((20, 2)))


def test_tables_and_gates_say_what_they_make_of_values() -> None:
    runs = _at_temperatures({"old": [0.5, 0.6, 0.7], "new": [0.5, 0.6, 0.7]})
    table = es.table(runs, by="temperature")
    assert table.tasks == ("0.5", "2", "10")
    with pytest.raises(DesignError, match="a gate decides on one run of each model"):
        es.gate(runs, baseline="old", by="temperature")


def test_settings_of_logs_are_read_as_values_and_not_as_models(tmp_path: Path) -> None:
    """Runs at two numbers of examples, of lm-eval; and a table in which an item has two values."""
    stamp = "2026-11-21T07-07-09.284154"
    for shots, when in enumerate((stamp, "2026-11-22T07-07-09.284154")):
        folder = tmp_path / "logs" / "models__m0"
        folder.mkdir(parents=True, exist_ok=True)
        log = json.loads(Path(f"{LOGS}/models__m0/results_{stamp}.json").read_text())
        for name in ("results", "configs", "n-shot", "versions", "higher_is_better", "n-samples"):
            log[name] = {"es_bin": log[name]["es_bin"]}
        log["n-shot"] = {"es_bin": shots}
        (folder / f"results_{when}.json").write_text(json.dumps(log))
        samples = Path(f"{LOGS}/models__m0/samples_es_bin_{stamp}.jsonl").read_text()
        (folder / f"samples_es_bin_{when}.jsonl").write_text(samples)
    assert len({r.model for r in es.read(tmp_path / "logs")}) == 2
    read = es.read(tmp_path / "logs", by="num_fewshot", metric="acc")
    assert [(r.model, r.tags is not None and r.tags[0]) for r in read] == [
        ("models/m0", "0"), ("models/m0", "1")
    ]  # fmt: skip
    with pytest.raises(SelectionError, match=r"no run has such a setting.*num_fewshot"):
        es.read(tmp_path / "logs", by="prompt")
    table = tmp_path / "scores.csv"
    rows = [f"{m},{i},{(i + k) % 3 > 0:d},p{k}" for m in "ab" for i in range(30) for k in range(3)]
    table.write_text("\n".join(["model,item,score,prompt", *rows]))
    done = _run("compare", table, "--by", "prompt", "-q")
    assert "the ranking " in done.stdout
    holds = " holds at another value of prompt with probability 0.5."
    assert holds in " ".join(done.stdout.split())
    shown = json.loads(_run("report", table, "--by", "prompt", "--format", "json").stdout)
    assert shown["worst_slices"][0]["sentence"].startswith("Over 3 values of prompt: 0.6667 [")


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


def test_commands_show_slices_of_logs() -> None:
    asked = (GRADED, "-t", "rubric_task", "-m", "rubric:correct", "--by", "passage", "-q")
    shown = _run("report", *asked).stdout
    assert "Worst slice: p05 (0.4000, n = 5), not distinguishable" in " ".join(shown.split())
    whole = json.loads(_run("report", *asked, "--format", "json").stdout)
    assert len(whole["worst_slices"]) == 4
    assert {row["slice"] for row in whole["results"]} == {f"p0{i}" for i in range(8)}
    assert "Worst slice: p05" in _run("report", *asked, "--format", "markdown").stdout
    shown = _run("table", *asked, "--weights", "items").stdout
    assert "Overall: mean of 8 slices (40 items), each item counting the same." in shown
    assert _run("table", *asked, "--subtasks").exit_code == 2
    header = _run("compare", LOGS, "-t", "es_mc", "-m", "acc", "--by", "template", "-q",
                 "--format", "csv").stdout.splitlines()[0]  # fmt: skip
    assert header.endswith("by,slice,p_interaction,std_between")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "nothere"), "nothere"),
        (("--by", "template", "--at-k", "pass@1"), "--by and --at-k do not go together"),
        (("--by", "doc.none"), "doc.none"),
    ],
)
def test_what_cannot_be_sliced_is_refused(options: tuple[str, ...], said: str) -> None:
    done = _run("report", LOGS, "-t", "es_mc", "-m", "acc", *options)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_hostile_names_reach_no_output_raw(tmp_path: Path) -> None:
    hostile = "\x1b[31m=cmd()|<b>&_{x}"
    lines = [
        json.dumps({"model": "m", "task": "t", "item": i, "score": i % 2, "why": hostile * (i % 3)})
        for i in range(12)
    ]
    table = tmp_path / "scores.jsonl"
    table.write_text("\n".join(lines))
    for command in ("table", "csv", "markdown", "latex", "json"):
        done = _run("report", table, "--by", "why", "-q", "--format", command)
        assert done.exit_code == 0, done.stderr
        assert "\x1b" not in done.stdout
        if command == "markdown":
            assert "<b>" not in done.stdout
        if command == "latex":
            assert "&_{" not in done.stdout
    both = tmp_path / "both.jsonl"
    both.write_text("\n".join([*lines, *(line.replace('"m"', '"n"') for line in lines)]))
    for form in ("table", "csv", "markdown", "json"):
        asked = ("--by", "why", "-q", "--format", form, "--junit", tmp_path / f"{form}.xml")
        done = _run("gate", both, "--baseline", "m", *asked)
        assert done.exit_code == 0, done.stderr
        assert "\x1b" not in done.stdout + (tmp_path / f"{form}.xml").read_text()
        assert form != "markdown" or "<b>" not in done.stdout


@pytest.mark.parametrize("clustered", [False, True])
def test_differences_at_values_are_those_of_items_that_both_answered(clustered: bool) -> None:  # noqa: FBT001
    """Of clusters the sums, around the mean over items."""
    rng = np.random.default_rng(2)
    names = np.repeat(["x", "y", "z", "w"], [3, 5, 4, 8])

    def together(ids: np.ndarray, scores: np.ndarray) -> Responses:
        runs = _at_temperatures({"m": [0.5, 0.6, 0.7]}, n_items=len(ids))
        return replace(
            at_all_values(runs),
            item_ids=ids,
            scores=scores,
            clusters=names[ids] if clustered else None,
        )

    a, b = rng.random((20, 3)), rng.random((18, 3))
    a[2, 1] = np.nan
    of_a, of_b = rng.permutation(20), rng.permutation(20)[:18]
    found = answers_at_values(together(of_b, b), 3, together(of_a, a))
    place = {int(i): k for k, i in enumerate(of_a)}
    rows = [(names[i], b[k] - a[place[int(i)]]) for k, i in enumerate(of_b)]
    rows = [(name, x) for name, x in rows if not np.isnan(x).any()]
    values = np.array([x for _, x in rows])
    if clustered:
        mean = values.mean()
        kinds = sorted({name for name, _ in rows})
        sums = [sum(x - mean for name, x in rows if name == kind) for kind in kinds]
        values = mean + np.array(sums) * len(kinds) / len(rows)

    for rows_of in (found, values):
        rows_of[:] = rows_of[np.argsort(rows_of[:, 0])]
    np.testing.assert_allclose(found, values, rtol=1e-12)
    assert found.mean() == pytest.approx(np.mean([x for _, x in rows]))
