"""Answers item by item, and which items look wrong."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy.stats import pearsonr
from scipy.stats import t as t_distribution

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.data.responses import Source
from evalstats_plugin.scores.items import (
    AGAINST_REST,
    ALL_RIGHT,
    ALL_SAME,
    ALL_WRONG,
    against_rest,
    item_answers,
    item_outcomes,
    item_statistics,
    items_of_two,
    rest_correlations,
    telling_items,
)


def _simulated(n: int, m: int, seed: int) -> np.ndarray:
    """Answers of a Rasch model: on every item abler models do better."""
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(size=(n, 1)), rng.normal(size=m)
    return (rng.random((n, m)) < 1 / (1 + np.exp(difficulty - ability))).astype(float)


def _answers(scores: np.ndarray, **changed: object):
    responses = ResponseMatrix.from_array(scores).to_responses()
    found, notes = item_answers([r.measured(**changed) for r in responses])
    assert notes == []
    return found[0]


def test_the_correlation_is_pearsons_with_the_mean_of_the_other_items() -> None:
    """SciPy's, item by item, over the models that have a score of the item."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(9, 6))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    found = rest_correlations(scores)
    for j in range(6):
        there = ~np.isnan(scores[:, j])
        rest = np.nanmean(np.delete(scores, j, axis=1), axis=1)

        assert found[j] == pytest.approx(pearsonr(scores[there, j], rest[there]).statistic)


def test_no_correlation_where_nothing_varies() -> None:
    """Neither of the item, nor of a task of one item; rounding does not make it vary."""
    scores = np.array([[0.1, 1, 0.3], [0.1, 0, 0.3], [0.1, 1, 0.3]])

    assert np.isnan(rest_correlations(scores)).tolist() == [True, True, True]
    assert np.isnan(rest_correlations(np.array([[1.0], [0.0]]))).all()


def test_a_wrong_key_is_found_and_right_ones_are_not() -> None:
    """Item 7 is scored the wrong way round; of the others at most one in 20 is flagged."""
    scores = _simulated(40, 200, seed=2)
    scores[:, 7] = scores.sum(axis=1) < np.median(scores.sum(axis=1))
    found = _answers(scores)
    flagged = [i for i, flag in zip(found.item_ids, found.flags, strict=True) if flag]

    assert "item_7" in flagged
    assert len(flagged) <= 10


def test_chance_flags_one_item_in_twenty() -> None:
    """Answers that have nothing to do with ability, beside the models' means on a real task."""
    rng = np.random.default_rng(3)
    means = _simulated(30, 100, seed=4).mean(axis=1)
    scores = rng.integers(0, 2, (30, 4000)) * 1.0
    correlation = np.corrcoef(means, scores.T)[0, 1:]

    # Three standard errors; half of the correlations are below 0.
    assert np.mean(against_rest(scores, correlation)) == pytest.approx(0.05, abs=0.0105)
    assert np.mean(correlation < 0) > 0.4


def test_few_models_flag_no_item_as_against_the_rest() -> None:
    """Of three, the worst alone is right on an item once in three times by chance."""
    scores = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]) * 1.0
    found = _answers(scores)

    assert found.rest_correlation[3] < -0.9
    assert AGAINST_REST not in found.flags


def test_items_that_tell_no_models_apart_are_flagged() -> None:
    """All right or all wrong by the better end of the scale; all the same where it has none."""
    scores = np.array([[1, 0, 1], [1, 0, 0]]) * 1.0

    assert _answers(scores).flags == (ALL_RIGHT, ALL_WRONG, "")
    assert _answers(scores, higher_is_better=False).flags == (ALL_WRONG, ALL_RIGHT, "")
    assert _answers(scores * 3 + 2).flags == (ALL_RIGHT, ALL_SAME, "")
    assert _answers(scores * 300).flags == (ALL_SAME, ALL_SAME, "")
    assert _answers(scores[:1]).flags == ("", "", "")


def test_models_come_best_first_and_epochs_are_averaged() -> None:
    """A model's mean is over the items that it has a score of; of errors the least is best."""
    scores = np.array([[[0, 1], [0, 0]], [[1, 1], [np.nan, np.nan]]]) * 1.0
    found = _answers(scores)
    [of_errors], _ = item_answers(ResponseMatrix.from_array(scores, metric="rmse").to_responses())

    assert of_errors.higher_is_better is False
    assert of_errors.models == ("model_0", "model_1")
    assert found.models == ("model_1", "model_0")
    assert found.means.tolist() == [1.0, 0.25]
    np.testing.assert_array_equal(found.scores, [[1.0, np.nan], [0.5, 0.0]])
    assert found.n_models.tolist() == [2, 1]
    assert found.item_means.tolist() == [0.75, 0.0]


def test_one_id_of_two_questions_is_left_out_and_noted() -> None:
    """Two models must not be set side by side on different questions."""
    responses = [
        given_responses(
            model=model, task="t", metric="acc", item_ids=np.arange(2), scores=np.ones((2, 1)),
            item_hashes=np.array(["a", last]), source=Source(Path(f"{model}.json"), "test"),
        )
        for model, last in (("m", "b"), ("n", "c"))
    ]  # fmt: skip
    [found], notes = item_answers(responses)

    assert found.item_ids == ("0",)
    assert notes == ["t: 1 item dropped, not the same question"]


def _two(scores: list[list[float]], **changed: object) -> list[tuple[str, str, float | None]]:
    """Set model_0 and model_1 side by side; further rows are other models."""
    responses = ResponseMatrix.from_array(np.array(scores)).to_responses()
    listed = [r.measured(**changed) for r in responses]
    return [(x.item, x.outcome, x.others) for x in items_of_two(listed, "model_0", "model_1")[0]]


def test_items_on_which_the_others_agree_come_first_among_equals() -> None:
    """There one of the two stands alone; items on which the two are alike come last."""
    found = _two([[1, 1, 0, 0, 1], [0, 0, 1, 0, 1], [1, 1, 0, 1, 1], [0, 1, 0, 1, 1]])

    assert found == [
        ("item_1", "lost", 1.0), ("item_2", "won", 0.0), ("item_0", "lost", 0.5),
        ("item_3", "neither", 1.0), ("item_4", "both right", 1.0),
    ]  # fmt: skip


def test_the_largest_difference_of_partial_scores_comes_first() -> None:
    """The words are others, and turn round where lower is better; missing scores are left out."""
    scores = [[0.5, 0.2, 1.0, np.nan], [0.4, 0.9, 1.0, 0.5]]

    assert _two(scores) == [
        ("item_1", "better", None), ("item_0", "worse", None), ("item_2", "same", None)
    ]  # fmt: skip
    assert [word for _, word, _ in _two(scores, higher_is_better=False)] == [
        "worse", "better", "same"
    ]  # fmt: skip


def test_right_is_the_least_error_where_lower_is_better() -> None:
    """0 of an error rate."""
    assert _two([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]], higher_is_better=False) == [
        ("item_2", "lost", None), ("item_0", "both right", None), ("item_1", "neither", None)
    ]  # fmt: skip


def test_texts_are_read_of_flagged_items_first() -> None:
    """Wrong keys, then items that nobody gets right, then those that go least with the others."""
    scores = _simulated(30, 10, seed=2)
    scores[:, 7] = 0
    scores[:, 4] = (scores.sum(axis=1) < np.median(scores.sum(axis=1))).astype(float)
    answers = _answers(scores)
    flags = dict(zip(answers.item_ids, answers.flags, strict=True))
    [wrong_key] = [item for item, flag in flags.items() if flag == AGAINST_REST]
    [nobody] = [item for item, flag in flags.items() if flag == ALL_WRONG]
    rest = dict(zip(answers.item_ids, answers.rest_correlation.tolist(), strict=True))
    others = sorted((r, item) for item, r in rest.items() if item not in (wrong_key, nobody))

    listed = telling_items([answers], most=5)[answers.task]

    assert listed == [wrong_key, nobody, *(item for _, item in others[:3])]


def test_against_the_rest_is_a_one_sided_t_test_of_enough_models() -> None:
    """SciPy's test, and the number of ways to choose the models above the mean of an item."""
    rng = np.random.default_rng(7)
    for n in (3, 4, 6, 7, 8, 20):
        scores = ((rng.random((2, n, 300)) < rng.random(300)) * [[[1.0]], [[2.0]]]).sum(axis=0)
        scores[rng.random(scores.shape) < 0.1] = np.nan
        correlation = rng.uniform(-1, 1, 300)
        correlation[:5] = np.nan
        expected = []
        for j in range(300):
            own = scores[~np.isnan(scores[:, j]), j]
            size = len(own)
            above = int((own > own.mean()).sum()) if size else 0
            ways = comb(size, above)
            r = correlation[j]
            if np.isnan(r) or ways < 20 or size < 3:
                expected.append(False)
                continue
            t = r * np.sqrt((size - 2) / (1 - r**2))
            expected.append(t_distribution.cdf(t, size - 2) <= 0.05)
        assert against_rest(scores, correlation).tolist() == expected


def _response(model: str, metric: str, scores: np.ndarray, ids: object = None, **more: object):
    rows = np.atleast_2d(np.asarray(scores, dtype=float).T).T
    return given_responses(
        model=model, task="t", metric=metric, scores=rows,
        item_ids=np.arange(len(rows)) if ids is None else np.array(ids),
        source=Source(Path(f"{model}.json"), "test"), **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bounds", "last", "flags"),
    [((0.0, 5.0), 5, (ALL_WRONG, ALL_SAME, ALL_RIGHT)), ((0.0, 1.0), 0, (ALL_WRONG, ALL_RIGHT, "")),
     (None, 0, (ALL_WRONG, ALL_RIGHT, "")), (None, 500, (ALL_SAME, ALL_SAME, ALL_SAME))],
)  # fmt: skip
def test_ends_of_a_scale_are_the_given_ones(
    bounds: tuple[float, float] | None, last: int, flags: tuple[str, ...]
) -> None:
    """All right is the best score there is; without bounds, of zeros and ones alone."""
    other = last or 1
    responses = [
        _response(m, "x", np.array([0, 1, x]), bounds=bounds)
        for m, x in (("m", last), ("n", other))
    ]
    [found], _ = item_answers(responses)

    assert found.flags == flags


def test_statistics_of_items_by_hand() -> None:
    """Means over models of means over epochs, answers, full marks and z; of drawn tables."""
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 3, (6, 3)) / 2, rng.integers(0, 3, (5, 1)) / 2
    a[2, 1] = a[3] = np.nan
    b[0] = np.nan
    ids = ["q4", "q1", "q0", "q9", "q2"]
    responses = [
        _response("m", "acc", a, [f"q{i}" for i in range(6)], bounds=(0.0, 1.0)),
        _response("n", "acc", b, ids, bounds=(0.0, 1.0)),
    ]
    found = item_statistics(responses)
    of_a = dict(zip([f"q{i}" for i in range(6)], a, strict=True))
    of_b = dict(zip(ids, b, strict=True))
    expected: dict[str, dict[str, float]] = {}
    for item in dict.fromkeys([*of_a, *of_b]):
        rows = [x[item] for x in (of_a, of_b) if item in x and not np.isnan(x[item]).all()]
        if not rows:
            continue
        every = np.concatenate([x[~np.isnan(x)] for x in rows])
        expected[item] = {
            "evalstats_p": float(np.mean([np.nanmean(x) for x in rows])),
            "evalstats_n": len(every),
            "evalstats_right": float(np.mean(every >= 1)),
        }
    p = np.array([each["evalstats_p"] for each in expected.values()])
    for each in expected.values():
        each["evalstats_z"] = (each["evalstats_p"] - p.mean()) / p.std()

    assert list(found) == list(expected)
    assert found == {item: pytest.approx(each) for item, each in expected.items()}
    # Right answers say nothing beyond the mean of zeros and ones, and are unknown without bounds.
    plain = item_statistics([_response("m", "acc", np.array([1, 0]), bounds=(0.0, 1.0))])
    assert set(plain["0"]) == {"evalstats_p", "evalstats_n", "evalstats_z"}
    unknown = item_statistics([_response("m", "x", np.array([1, 0.5]))])
    assert "evalstats_right" not in unknown["0"]
    two = item_statistics([*responses[:1], _response("m", "f1", np.array([0.5, 0.5]))])
    assert two["q0"].keys() == {f"evalstats_acc_{s}" for s in ("p", "n", "right", "z")}
    assert two["0"] == {"evalstats_f1_p": 0.5, "evalstats_f1_n": 1}


@pytest.mark.parametrize("sign", [1, -1])
def test_outcomes_against_a_baseline_by_hand(sign: int) -> None:
    """Of items that both answered; turned round where lower is better."""
    higher = sign > 0
    mine = [
        _response("m", "acc", np.array([[1, 1], [0, 1], [0, 0], [np.nan, np.nan], [1, 1]]),
                  list("abcde"), higher_is_better=higher),
        _response("m", "f1", np.array([0.2, 0.3]), ["a", "b"], higher_is_better=higher),
        _response("m", "other", np.array([0.2]), ["a"]),
    ]  # fmt: skip
    theirs = [
        _response("n", "acc", np.array([1, 1, 1e-13, 1]), ["a", "b", "c", "d"],
                  higher_is_better=higher),
        _response("n", "f1", np.array([0.3, 0.2]), ["b", "a"], higher_is_better=higher),
    ]  # fmt: skip
    found = item_outcomes(mine, theirs)
    lost = "lost" if higher else "won"

    assert found == {
        "a": {"evalstats_acc_against": "tied", "evalstats_f1_against": "tied"},
        "b": {"evalstats_acc_against": lost, "evalstats_f1_against": "tied"},
        "c": {"evalstats_acc_against": "tied"},
    }
    assert item_outcomes(mine[:1], theirs)["b"] == {"evalstats_against": lost}
    assert item_outcomes(mine, mine) == {}


@pytest.mark.parametrize("seed", range(5))
def test_items_of_two_in_their_order_by_hand(seed: int) -> None:
    """Largest differences first, then those on which others agree; counts, means and logs."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, (6, 12)) / 4
    scores[rng.random(scores.shape) < 0.1] = np.nan
    scores[0, 0] = 1e-14 + scores[1, 0]
    responses = [
        _response(m, "acc", x, bounds=(0.0, 1.0)) for m, x in zip("bawxyz", scores, strict=True)
    ]
    rows, [counts], notes = items_of_two(responses, "a", "b")
    a, b = scores[1], scores[0]
    both = np.flatnonzero(~np.isnan(a + b))
    d = np.where(np.abs(b - a) < 1e-12, 0.0, b - a)
    others = scores[2:]
    with np.errstate(invalid="ignore"):
        n = (~np.isnan(others)).sum(axis=0)
        mean = np.divide(np.nansum(others, axis=0), n, where=n > 0, out=np.full(12, np.nan))
        spread = np.sqrt(np.nansum((others - mean) ** 2, axis=0) / np.maximum(n, 1))
    largest = np.abs(d[both]).max()
    order = sorted(both.tolist(), key=lambda i: (-abs(d[i]) / largest, spread[i], i))

    assert notes == []
    assert [row.item for row in rows] == [str(i) for i in order]
    for row, i in zip(rows, order, strict=True):
        assert (row.score_a, row.score_b, row.difference) == (a[i], b[i], d[i])
        assert row.outcome == ("better" if d[i] > 0 else "worse" if d[i] < 0 else "same")
        assert row.others == (None if np.isnan(mean[i]) else pytest.approx(mean[i]))
        assert (row.log_a, row.log_b) == ("a.json", "b.json")
    assert counts.n_items == len(both)
    assert counts.difference == pytest.approx(b[both].mean() - a[both].mean())
    assert dict(counts.outcomes) == {
        "better": (d[both] > 0).sum(), "worse": (d[both] < 0).sum(), "same": (d[both] == 0).sum()
    }  # fmt: skip


def test_flags_without_a_correlation_come_before_those_with_one() -> None:
    """Of one flag, and of several tasks; as many as asked for."""
    scores = np.array([[1, 0, 0, 1, 1], [1, 0, 0, 0, 1], [0, 0, 0, 0, 1]]) * 1.0
    answers = _answers(scores)
    rest = answers.rest_correlation

    assert np.isnan(rest[[1, 2, 4]]).all()
    first = sorted((0, 3), key=lambda j: rest[j])
    assert telling_items([answers], most=9)[answers.task] == [
        "item_1",
        "item_2",
        *(f"item_{j}" for j in first),
    ]
    assert telling_items([answers], most=1)[answers.task] == ["item_1"]
    assert telling_items([answers], most=0) == {}


def test_the_latest_run_of_a_model_and_bounds_that_all_share_count() -> None:
    """An older run is replaced, in whatever order they come; other bounds are no common ends."""
    old, new = (
        replace(_response("m", "acc", x, bounds=(0.0, 1.0)), source=Source(Path(w), "test", when=w))
        for x, w in ((np.array([1, 0]), "2024"), (np.array([1, 1]), "2025"))
    )
    other = _response("n", "acc", np.array([1, 1]), bounds=(0.0, 1.0))
    for listed in ([old, new, other], [new, old, other]):
        [found], _ = item_answers(listed)
        assert found.flags == (ALL_RIGHT, ALL_RIGHT)
    wider = _response("k", "acc", np.array([1, 1]), bounds=(0.0, 5.0))
    [found], _ = item_answers([new, wider])
    assert found.flags == (ALL_RIGHT, ALL_RIGHT)
    halves = [
        _response(m, "x", np.array([0.5, 0.5]), bounds=(0.0, x)) for m, x in (("n", 0.5), ("k", 5))
    ]
    [found], _ = item_answers(halves)
    assert found.flags == (ALL_SAME, ALL_SAME)


def test_correlations_do_not_depend_on_the_unit() -> None:
    scores = np.random.default_rng(3).normal(size=(6, 5))

    assert rest_correlations(1e-20 * scores) == pytest.approx(rest_correlations(scores))
    assert rest_correlations(1e20 * scores) == pytest.approx(rest_correlations(scores))
