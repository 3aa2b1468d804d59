"""Metrics that are not means: intervals, comparisons and what is derived from labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses
from sklearn.metrics import balanced_accuracy_score, f1_score, matthews_corrcoef

from evalstats_plugin import Responses, Source, intervals, read
from evalstats_plugin.comparisons import metrics
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.families import settle
from evalstats_plugin.comparisons.methods import (
    COMPOSITE_COMPARISON_DEFAULTS,
    COMPOSITE_COMPARISONS,
)
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.responses import Group
from evalstats_plugin.errors import DesignError, ItemConflictError, SelectionError
from evalstats_plugin.scores.cells import RATIOS, check_confidence_level
from evalstats_plugin.scores.methods import COMPOSITE_DEFAULTS, COMPOSITES
from evalstats_plugin.scores.metrics import derive, recognise, with_derived
from evalstats_plugin.scores.rows import ScoreInterval


def compare_composite(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Return the rows, corrected by their families, and the notes."""
    tables, notes = metrics.compare_composite(responses, request)
    return settle(tables, request), notes


LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
SOURCE = Source(path=Path(), harness="test")
METRICS = ("f1", "mcc", "bleu", "chrf", "ter")


def _responses(pairs: list[Any], model: str = "m", metric: str = "f1", **more: Any) -> Responses:
    array = np.empty((len(pairs), 2), dtype=object)
    for i, pair in enumerate(pairs):
        array[i] = pair
    known = {
        "item_ids": np.arange(len(pairs)), "scores": np.empty((len(pairs), 0)), "pairs": array,
        "aggregation": metric, "source": SOURCE, "task": "t",
    }  # fmt: skip
    return given_responses(model=model, metric=metric, **(known | more))


def _one(pairs: list[Any], metric: str = "f1", **more: Any) -> ScoreInterval:
    return intervals([_responses(pairs, metric=metric)], **more)[0]


def _compare(responses: list[Responses], **more: Any) -> tuple[list[Comparison], list[str]]:
    known: dict[str, Any] = {"confidence_level": 0.95, "rng": np.random.default_rng(0)}
    return compare_composite(responses, Request(**(known | more)))


def _answers(seed: int, n: int = 60, accuracy: float = 0.8) -> list[Any]:
    gold = np.random.default_rng(99).integers(0, 2, n)
    right = np.random.default_rng(seed).random(n) < accuracy
    return list(zip(gold.tolist(), np.where(right, gold, 1 - gold).tolist(), strict=True))


def test_what_the_harness_logged_comes_out_of_the_answers() -> None:
    """F1, MCC, BLEU, chrF and TER of every bundled log, to 1e-12."""
    rows = [r for r in intervals(read(LOGS)) if r.metric.partition(",")[0] in METRICS]

    assert len(rows) == 15
    for row in rows:
        assert row.estimate == pytest.approx(row.logged, rel=1e-12, abs=1e-12)
        assert not any("mismatch" in note for note in row.notes)
        if row.low is not None:
            assert row.low <= row.estimate <= row.high  # pyright: ignore[reportOperatorIssue]


def test_every_kind_has_a_default_that_serves_it() -> None:
    """In both tables, and a reason."""
    for methods, defaults in (
        (COMPOSITES, COMPOSITE_DEFAULTS),
        (COMPOSITE_COMPARISONS, COMPOSITE_COMPARISON_DEFAULTS),
    ):
        table = {m.name: m for m in methods}
        for kind, (name, why) in defaults.items():
            # Sums of a ratio are those of a corpus.
            assert table[name].serves("corpus" if kind == "ratio" else kind)
            assert why
        for method in methods:
            assert callable(method.load()) or method.question == "comparison"


def test_f1_of_35_among_50_is_the_wilson_interval_of_the_share() -> None:
    """2r/(1 + r) of Wilson's 0.5625 and 0.8090 for 35 of 50."""
    row = _one([[1, 1]] * 35 + [[0, 1]] * 10 + [[1, 0]] * 5 + [[0, 0]] * 50)

    assert (row.n_items, row.method) == (100, "wilson-f1")
    assert row.estimate == pytest.approx(70 / 85)
    assert row.low == pytest.approx(2 * 0.56248 / 1.56248, abs=1e-4)
    assert row.high == pytest.approx(2 * 0.80896 / 1.80896, abs=1e-4)


@pytest.mark.parametrize("method", ["dirichlet-f1", "dirichlet-table"])
def test_a_named_method_is_used(method: str) -> None:
    """Wherever it fits."""
    row = _one(_answers(1), method=method)

    assert method == row.method
    assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_precision_and_recall_are_proportions_of_their_own_items() -> None:
    """With the interval of any proportion."""
    labels = [_responses([[1, 1]] * 6 + [[0, 1]] * 2 + [[1, 0]] * 4 + [[0, 0]] * 8)]
    rows = [intervals(derive(labels, name))[0] for name in ("precision", "recall")]

    assert [(8, 0.75, "beta-hpd"), (10, 0.6, "beta-hpd")] == [
        (r.n_items, r.estimate, r.method) for r in rows
    ]
    # Of a whole benchmark nothing is uncertain, though the metric is of some of its items.
    whole, more = (
        intervals(derive(labels, "recall"), population=size)[0]
        for size in (len(labels[0].item_ids), 10_000)
    )
    assert (whole.low, whole.high) == (whole.estimate, whole.estimate)
    assert (more.low, more.high) == pytest.approx((rows[1].low, rows[1].high), abs=1e-3)


@pytest.mark.parametrize(
    ("pairs", "metric", "reason"),
    [
        ([[0, 0], [0, 1]], "mcc", "all items have gold label 0: mcc says nothing"),
        ([[0, 0], [0, 0]], "f1", "no item is positive or was predicted so: f1 is 0/0"),
        ([[1, 0], [0, 0]], "precision", "no item was predicted positive: precision is 0/0"),
        ([[0, 0], [0, 1]], "recall", "no item is positive: recall is 0/0"),
        ([[None, None]], "mcc", "no item has an answer to judge"),
        ([[None, None]], "macro_f1", "no item has an answer to judge"),
        ([[1, 0.2], [1, 0.7]], "roc_auc", "all items have one gold label: roc_auc says nothing"),
    ],
)
def test_what_is_0_over_0_has_no_value_and_says_why(
    pairs: list[Any], metric: str, reason: str
) -> None:
    """Rather than the 0 that harnesses log."""
    row = _one(pairs, metric)
    rows, _ = _compare([_responses(pairs, m, metric) for m in "ab"])

    assert (row.estimate, row.low, row.high) == (None, None, None)
    assert reason in row.notes
    for pair in rows:
        assert (pair.difference, pair.low, pair.high, pair.p_value) == (None, None, None, None)


@pytest.mark.parametrize(
    ("pairs", "metric", "reason"),
    [
        ([[2, 0], [0, 0]], "f1", "f1 needs the labels 0 and 1 (positive), and the items have 0, 2"),
        ([[0, 1], [2, 1]], "f1", "needs the labels 0 and 1 (positive), and the items have 0, 1, 2"),
        ([[0, i] for i in range(40)], "mcc", "40 different labels are more than the 30"),
        ([["a", 1]], "bleu", "bleu needs a reference text and an answer for each item"),
        ([[["a"], "b"], [["a", "c"], "b"]], "bleu", "the same number of references"),
        ([[3, 0.5], [1, 0.5]], "roc_auc", "roc_auc needs a gold label 0 or 1 and a number"),
        ([[{}, 0]], "mcc", "labels must be numbers or texts, not dict"),
    ],
)
def test_answers_that_the_metric_cannot_use_are_refused_by_name(
    pairs: list[Any], metric: str, reason: str
) -> None:
    """In the row's notes, with what was found."""
    row = _one(pairs, metric)

    assert (row.low, row.method) == (None, "none")
    assert reason in "; ".join(row.notes)


def test_a_label_that_is_predicted_but_never_gold_is_allowed() -> None:
    """As in the harness."""
    row = _one([["a", "a"], ["b", "c"], ["b", "b"], ["a", "c"]] * 5, "mcc")

    assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert any("fewer than 5 items of label 'c'" in note for note in row.notes)


def test_missing_answers_are_left_out_and_counted() -> None:
    """And a log that its items contradict is named."""
    r = replace(_responses([[1, 1], [0, 0], [None, None], [1, 0]]), logged=0.9)
    row = intervals([r])[0]

    assert (row.n_items, row.n_missing) == (3, 1)
    assert "1 of 4 items have no answer and are left out" in row.notes
    assert "mismatch: the log gives value 0.9, its items 0.666667" in row.notes


def test_clusters_are_units() -> None:
    """Each item three times over is no more information: the interval stays as wide."""
    once, thrice = _answers(2), [pair for pair in _answers(2) for _ in range(3)]
    clusters = np.repeat(np.arange(60).astype(str), 3)
    alone = _one(once, method="sums-jackknife-t")
    row = intervals([_responses(thrice, clusters=clusters)])[0]

    assert (row.method, row.n_clusters) == ("sums-jackknife-t", 60)
    assert (row.low, row.high) == pytest.approx((alone.low, alone.high))
    assert row.naive_low > row.low  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_the_mean_of_tasks_f1_has_an_interval_in_a_group() -> None:
    """As the harness averages them; a task without a value leaves the group without an interval."""
    group = Group(name="g", depth=0, weighting="macro", n_tasks=2, logged=0.7)
    tasks = [
        replace(_responses(_answers(i)).measured(task=f"t{i}", metric="f1"), groups=(group,))
        for i in range(2)
    ]
    rows = intervals(tasks)
    broken = intervals(
        [tasks[0], replace(_responses([[0, 0]]).measured(task="u"), groups=(group,))]
    )

    assert rows[0].estimate == pytest.approx(np.mean([r.estimate for r in rows[1:]]))
    assert rows[0].low < rows[0].estimate < rows[0].high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert rows[0].std_error is None
    assert (broken[0].low, broken[0].notes) == (None, ("a task of this group has no mean",))


@pytest.mark.parametrize("method", ["auto", "sums-percentile", "sums-jackknife-t"])
def test_a_better_model_is_found_out_and_comparisons_mirror_each_other(method: str) -> None:
    """Swapping models changes the sign only, but for random numbers."""
    good = _responses(_answers(1, accuracy=0.98), "good")
    bad = _responses(_answers(2, accuracy=0.7), "bad")
    (row,), _ = _compare([bad, good], method=method)
    (back,), _ = _compare([good, bad], method=method)
    estimates = [r.estimate or 0.0 for r in intervals([bad, good])]

    assert row.difference == pytest.approx(estimates[1] - estimates[0])
    assert 0 < row.low < row.difference < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert row.p_value < 0.05  # pyright: ignore[reportOptionalOperand]
    assert row.prob_better > 0.95  # pyright: ignore[reportOptionalOperand]
    assert back.difference == pytest.approx(-row.difference)  # pyright: ignore[reportOptionalOperand]
    assert back.high == pytest.approx(-row.low, abs=0.02)  # pyright: ignore[reportOptionalOperand]


def test_a_comparison_is_repeatable_and_does_not_depend_on_the_order_of_items() -> None:
    """Paired by id."""
    a, b = _responses(_answers(1), "a"), _responses(_answers(2), "b")
    order = np.random.default_rng(0).permutation(60)
    shuffled = replace(b, item_ids=b.item_ids[order], pairs=b.pairs[order])  # pyright: ignore[reportOptionalSubscript]

    assert _compare([a, b]) == _compare([a, shuffled])


def test_identical_models_are_not_told_apart() -> None:
    """An interval around 0 all the same."""
    (row,), _ = _compare([_responses(_answers(1), "a"), _responses(_answers(1), "b")])

    assert (row.difference, row.p_value) == (0, 1)
    assert row.low < 0 < row.high  # pyright: ignore[reportOptionalOperand]
    assert row.prob_better == pytest.approx(0.5, abs=0.02)


def test_items_of_one_model_only_are_left_out_and_counted() -> None:
    """Each pair is judged on its own items."""
    models = [_responses(_answers(i), f"m{i}") for i in range(3)]
    part = replace(
        models[2],
        **{name: getattr(models[2], name)[20:] for name in ("item_ids", "scores", "pairs")},
    )
    rows, _ = _compare([*models[:2], part])
    (alone,), _ = _compare(models[:2])

    assert [60, 40, 40] == [r.n_items for r in rows]
    assert rows[0].difference == alone.difference
    assert rows[1].notes == ("20 of 60 items lack one model's answer: left out",)


def test_ratios_are_compared_with_lower_as_better() -> None:
    """Perplexity of the bundled logs: the difference is that of the logged values."""
    ratios = [r for r in read(LOGS) if r.aggregation in RATIOS]
    rows, notes = _compare(ratios)
    logged = {(r.model, r.metric): r.logged for r in ratios}

    assert len(rows) == 12
    assert notes == []
    for row in rows:
        expected = logged[row.model_b, row.metric] - logged[row.model_a, row.metric]  # pyright: ignore[reportOptionalOperand]
        assert row.difference == pytest.approx(expected, rel=1e-9)
        assert (row.prob_better > 0.5) == (row.difference < 0)  # pyright: ignore[reportOptionalOperand]


def test_a_text_alone_has_a_perplexity_without_limits() -> None:
    """Nor with a warning of 0/0."""
    one = {"item_ids": np.arange(1), "scores": np.array([[-50.0]]), "weights": np.array([20.0])}
    models = [
        given_responses(model=m, metric="ppl", aggregation="weighted_perplexity", source=SOURCE,
                        task="t", **one)
        for m in "ab"
    ]  # fmt: skip
    (row,), _ = _compare(models)
    (alone, *_) = intervals(models)

    assert alone.estimate == pytest.approx(np.exp(50 / 20))
    assert (None, None) == (alone.low, alone.high)
    assert (0.0, None, None) == (row.difference, row.low, row.high)


@pytest.mark.parametrize("metric", ["f1", "mcc", "macro_f1"])
def test_limits_hold_the_largest_difference_too(metric: str) -> None:
    """All right against all wrong, which a prior leaves out."""
    good, bad = (
        _responses([[i % 2, (i + wrong) % 2] for i in range(20)], name, metric)
        for name, wrong in (("good", 0), ("bad", 1))
    )
    for pair in ([bad, good], [good, bad]):
        (row,), _ = _compare(pair)

        assert row.low <= row.difference <= row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        assert row.p_adjusted < 0.05  # pyright: ignore[reportOptionalOperand]


def test_the_best_model_is_compared_with_the_others() -> None:
    """Corrected for all pairs, among which it was chosen."""
    models = [_responses(_answers(i, accuracy=x), f"m{i}") for i, x in enumerate((0.7, 0.95, 0.8))]
    rows, _ = _compare(models, baseline="best")
    every, _ = _compare(models)
    p_adjusted = {frozenset((r.model_a, r.model_b)): r.p_adjusted for r in every}

    assert ["m0", "m2"] == [r.model_b for r in rows]
    for row in rows:
        assert row.model_a == "m1"
        pair = frozenset((row.model_a, row.model_b))
        assert row.p_adjusted == pytest.approx(p_adjusted[pair], abs=0.02)


def test_items_without_a_cluster_are_clusters_of_their_own() -> None:
    """Of one score and of a comparison: as if each had a name of its own."""
    unnamed = np.array([*np.repeat(["p", "q", "r"], 10), *[""] * 30])
    named = np.array([*np.repeat(["p", "q", "r"], 10), *(f"alone {i}" for i in range(30))])
    found, expected = (
        [_responses(_answers(i), f"m{i}", clusters=clusters) for i in range(2)]
        for clusters in (unnamed, named)
    )
    score, score_of_named = intervals(found)[0], intervals(expected)[0]
    (row,), (row_of_named,) = _compare(found)[0], _compare(expected)[0]

    assert score.n_clusters == 33
    assert (score.low, score.high) == pytest.approx((score_of_named.low, score_of_named.high))
    assert "items in 33 clusters" in row.notes
    assert (row.low, row.high) == pytest.approx((row_of_named.low, row_of_named.high))


def test_a_model_whose_metric_is_undefined_is_never_the_best() -> None:
    """F1 is 0/0 where nothing is positive nor predicted so."""
    nothing = [[0, 0]] * 60
    responses = [
        _responses(x, m) for x, m in ((nothing, "a"), (_answers(1), "b"), (_answers(2), "c"))
    ]
    rows, _ = _compare(responses, baseline="best")

    assert {row.model_a for row in rows} <= {"b", "c"}


def test_clusters_are_exchanged_whole() -> None:
    """Every item twice in its cluster: the p-value and interval are those of once."""
    once = [_responses(_answers(i), f"m{i}") for i in (1, 2)]
    clusters = np.repeat(np.arange(60).astype(str), 2)
    twice = [
        _responses([p for p in _answers(i) for _ in range(2)], f"m{i}", clusters=clusters)
        for i in (1, 2)
    ]
    (alone,), _ = _compare(once, method="sums-jackknife-t")
    (row,), _ = _compare(twice)

    assert row.method == "sums-jackknife-t"
    assert (row.low, row.high) == pytest.approx((alone.low, alone.high))
    assert row.p_value == pytest.approx(alone.p_value, abs=0.02)
    assert "items in 60 clusters" in row.notes


def test_what_cannot_be_compared_is_named() -> None:
    """One model, no such baseline, no item in common, areas, other questions."""
    a, b = _responses(_answers(1), "a"), _responses(_answers(2), "b")
    far = replace(b, item_ids=b.item_ids + 100)
    hashed = [
        replace(r, item_hashes=np.array([f"{r.model}{i}" for i in range(60)])) for r in (a, b)
    ]
    areas = [_responses([[0, 0.1], [1, 0.2]], m, "roc_auc") for m in "ab"]
    (row,), _ = _compare([a, far])

    assert _compare([a]) == ([], ["not compared, one model only: t f1"])
    assert _compare([a, b], baseline="c") == ([], ["not compared, c has no answers: t f1"])
    assert (row.n_items, row.low, row.p_value) == (0, None, None)
    assert "the two models share no item" in row.notes
    assert "no paired method for areas" in _compare(areas)[1][0]
    with pytest.raises(ItemConflictError):
        _compare(hashed)


def test_derived_metrics_stand_beside_what_they_are_derived_from() -> None:
    """Once per task, from the first metric that has labels, and not logged by anyone."""
    found = [r for r in read(LOGS, task="es_bin") if r.model == "models/m1"]
    rows = with_derived(found, ["precision", "balanced_accuracy"])
    derived = [r for r in rows if r.aggregation in ("precision", "balanced_accuracy")]

    assert ["precision,none", "balanced_accuracy,none"] == [r.metric for r in derived]
    assert all(r.logged is None for r in derived)
    assert len(rows) == len(found) + 2
    with pytest.raises(SelectionError, match="did you mean recall"):
        derive(found, "recal")
    with pytest.raises(SelectionError, match="no responses hold gold and predicted labels"):
        derive([*read(LOGS, task="es_gen"), _responses([["a", "b"]], metric="bleu")], "recall")


def test_only_labels_that_are_all_alike_make_a_note():
    """Of mcc, which is 0/0 then."""
    note = "the same label is predicted for every item: mcc is 0/0, set to 0"

    assert note in _one([[0, 1], [1, 1], [0, 1]], "mcc").notes
    assert note not in _one([[0, 1], [1, 1], [0, 0]], "mcc").notes
    assert _one([[0, 1], [1, 1], [0, 1]], "balanced_accuracy").notes == ()


@pytest.mark.parametrize("metric", ["mcc", "balanced_accuracy", "macro_f1", "weighted_f1"])
def test_rare_labels_are_named_where_there_are_three(metric):
    """Fewer than five items of a label; the limits of two labels do not need more."""
    of_c, enough = [["a", "a"], ["b", "b"], ["c", "b"]], [["a", "a"]] * 6 + [["b", "b"]] * 6
    rare = "fewer than 5 items of label 'c': interval too optimistic"

    assert _one(enough + of_c[2:] * 4, metric).notes == (rare,)
    assert _one(enough + of_c[2:] * 5, metric).notes == ()
    assert _one(of_c[:2], metric).notes == ()
    others = [[x, x] for x in "hgfedc"]
    assert "label 'c', 'd', 'e'" in _one(enough + others, metric).notes[0]


@pytest.mark.parametrize(
    ("metric", "note"),
    [
        ("precision", "of the 8 items that are predicted positive"),
        ("recall", "of the 10 items that are positive"),
    ],
)
def test_a_proportion_says_of_which_items(metric, note):
    pairs = [[1, 1]] * 6 + [[0, 1]] * 2 + [[1, 0]] * 4 + [[0, 0]] * 8

    assert note in intervals(derive([_responses(pairs)], metric))[0].notes


@pytest.mark.parametrize(
    ("level", "hint"),
    [
        (95.0, "write 0.95"), (1.0, "write 0.95, or another share"), (0.0, "or another share"),
        (50.0, "write 0.5$"), (100.0, "or another share"), (-1.0, "or another share"),
    ],
)  # fmt: skip
def test_a_level_in_percent_is_named_as_a_share(level, hint):
    with pytest.raises(DesignError, match=hint):
        check_confidence_level(level)


def _without(n: int, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Return a share of a total, a ratio of two random sums, and what it is without each item."""
    whole = rng.gamma(2, size=n)
    part = whole * rng.beta(4, 2, size=n)
    return part.sum() / whole.sum(), (part.sum() - part) / (whole.sum() - whole)


def _left_out(estimate: float, without: np.ndarray, **more: Any) -> ScoreInterval:
    known = {"model": "m", "metric": "own", "left_out": without, "logged": estimate,
             "logged_n": len(without), "source": SOURCE}  # fmt: skip
    return intervals([given_responses(**(known | more))])[0]


def test_limits_of_a_recomputed_metric_stay_on_its_scale() -> None:
    """Where the scale is known: Student's limit of a high share of few items is above 1."""
    given = 0.95, np.array([0.99, 0.94, 0.90])
    free, bounded = _left_out(*given), _left_out(*given, bounds=(0.0, 1.0))

    assert free.high is not None
    assert free.high > 1
    assert (bounded.low, bounded.high) == (max(free.low or 0.0, 0.0), 1.0)
    assert (bounded.estimate, bounded.n_items, bounded.method) == (0.95, 3, "jackknife")
    # By its name, unless its values show that it is another metric.
    named = {"metric": "choice/perplexity", "source": replace(SOURCE, harness="inspect_ai")}
    for least, low in ((1.01, 1.0), (0.99, pytest.approx(0.4167, abs=1e-4))):
        row = _left_out(1.1, np.array([least, 1.3, 1.02, 1.04]), aggregation="other", **named)
        assert row.low == low


@pytest.mark.parametrize(
    ("metric", "is_wrong", "end"),
    [("f1", False, 1.0), ("mcc", False, 1.0), ("mcc", True, -1.0), ("macro_f1", False, 1.0),
     ("bleu", False, 100.0), ("chrf", False, 100.0), ("ter", False, 0.0)],
)  # fmt: skip
def test_limits_of_a_metric_stay_on_its_scale(metric: str, is_wrong: bool, end: float) -> None:  # noqa: FBT001
    """Student's limit of a high F1 of few clusters, or of a high BLEU, once was above 1, or 100."""
    texts = [[f"a b c d e f g h {i}"] * 2 for i in range(8)]
    texts[2][1] = "a b c d e f g x"
    labels = [[i % 2, (i % 2 * (i > 3)) ^ is_wrong] for i in range(30)]
    pairs = texts if metric in ("bleu", "chrf", "ter") else labels
    row = intervals([_responses(pairs, metric=metric, clusters=np.arange(len(pairs)) // 2)])[0]

    assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert end == (row.low if end <= 0 else row.high)


def test_recomputed_ratios_hold_the_truth_of_many_draws() -> None:
    """1,000 draws of 40 items: between 93 and 97 % (Monte-Carlo error .7 %)."""
    rng = np.random.default_rng(36)
    held = [row.low < 4 / 6 < row.high for row in  # pyright: ignore[reportOptionalOperand]
            (_left_out(*_without(40, rng)) for _ in range(1000))]  # fmt: skip

    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_a_recomputed_metric_that_hangs_on_few_items_says_so() -> None:
    """One of forty items, without which the value is another."""
    without = np.full(40, 0.5) + np.linspace(-0.001, 0.001, 40)

    assert _left_out(0.5, without).notes == ()
    without[7] = 0.3
    assert _left_out(0.5, without).notes[-1].startswith("a few items carry much of the error")


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "macro_f1", "weighted_f1"])
def test_the_one_metric_of_labels_that_gives_the_value_is_recognised(metric: str) -> None:
    """By scikit-learn's numbers; none where two metrics agree, or no value is logged."""
    rng = np.random.default_rng(1)
    gold = rng.integers(0, 2, 40)
    predicted = np.where(rng.random(40) < 0.7, gold, 1 - gold)
    value = {
        "f1": f1_score(gold, predicted),
        "mcc": matthews_corrcoef(gold, predicted),
        "balanced_accuracy": balanced_accuracy_score(gold, predicted),
        "macro_f1": f1_score(gold, predicted, average="macro"),
        "weighted_f1": f1_score(gold, predicted, average="weighted"),
    }[metric]
    r = _responses(list(zip(gold.tolist(), predicted.tolist(), strict=True)), logged=float(value))

    assert recognise(r) == metric
    assert recognise(replace(r, logged=float(value) + 1e-3)) is None
    assert recognise(replace(r, logged=None)) is None
    assert recognise(_responses([(int(x), int(x)) for x in gold], logged=1.0)) is None
    assert recognise(_responses([(1, 1)] * 9, logged=0.5)) is None
