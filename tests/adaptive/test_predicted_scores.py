"""The score of an adaptive test is the predicted one, in intervals, comparisons and runs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses
from scipy import special

from evalstats_plugin import compare, intervals
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.records import record_of, with_prediction
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import draw_models
from evalstats_plugin.adaptive.stopping import Items
from evalstats_plugin.data.responses import (
    DrawnItems,
    Responses,
    Source,
    difference_error,
    shared_correlation,
)
from evalstats_plugin.data.runs import choose_runs
from evalstats_plugin.errors import DesignError, LogError

RNG = np.random.default_rng(1)
BANK = ItemBank.from_arrays(RNG.uniform(0.8, 2, 60), RNG.normal(size=60), misfit={"": 0.02})
ANSWERS = draw_models(BANK, 4, rng=2).answers


def _plain(model: int, ids: Any, scores: Any, when: str = "1", metric: str = "acc") -> Responses:
    return given_responses(
        model=f"m{model}", task="task", metric=metric, item_ids=np.asarray(ids),
        scores=np.asarray(scores, dtype=np.float64)[:, None],
        source=Source(Path(f"log_{when}"), "lm_eval", when=when),
    )  # fmt: skip


def _complete(model: int) -> Responses:
    return _plain(model, BANK.item_ids, ANSWERS[model])


def _session(model: int, n: int, **settings: Any) -> AdaptiveSession:
    session = AdaptiveSession(BANK, stop=[Items(n)], **settings)
    while session.stopped is None:
        for place in session.next().tolist():
            session.record(place, ANSWERS[model, place])
    return session


def _record(model: int, n: int, **settings: Any) -> tuple[Responses, dict[str, Any]]:
    session = _session(model, n, **({"rng": model} | settings))
    asked = session.answers
    plain = _plain(model, [a.item for a in asked], [a.score for a in asked], "2")
    return plain, json.loads(json.dumps(record_of(session, metric="acc")))


@cache
def _tested(model: int, n: int = 20) -> Responses:
    return with_prediction(*_record(model, n))


def test_an_interval_is_that_of_the_predicted_score():
    plain, record = _record(0, 20)
    [row] = intervals([with_prediction(plain, record)])

    assert (row.estimate, row.low, row.high) == tuple(record["full_score"].values())
    assert (row.method, row.population) == ("adaptive", "all 60 items of the bank")
    mean = f"{plain.scores.mean():.3f}"
    assert row.notes[-1] == f"mean of the 20 items asked, no simple random sample of all: {mean}"


def test_another_level_scales_the_limits():
    wide, narrow = (intervals([_tested(0)], confidence_level=p).rows[0] for p in (0.95, 0.5))

    assert wide.low < narrow.low < narrow.estimate < narrow.high < wide.high
    ratio = (narrow.high - narrow.estimate) / (wide.high - wide.estimate)
    assert ratio == pytest.approx(0.6745 / 1.96, abs=1e-4)


def test_a_metric_that_the_bank_does_not_predict_has_no_score():
    plain, record = _record(0, 20)
    [row] = intervals([with_prediction(plain.measured(metric="other"), record)])

    assert (row.estimate, row.low, row.method) == (None, None, "none")


def test_a_difference_is_that_of_the_expected_scores_of_all_items():
    one, other = _tested(0), _tested(1)
    [row] = compare([one, other])

    expected = (other.predicted.scores - one.predicted.scores).mean()
    chance = (one.predicted.variances + other.predicted.variances).sum() / 60**2
    error = np.sqrt(chance + one.predicted.common**2 + other.predicted.common**2)
    assert row.difference == pytest.approx(expected)
    assert row.high - row.low == pytest.approx(2 * 1.96 * error, rel=1e-4)
    assert (row.method, row.n_items) == ("adaptive", 60)
    assert row.p_value == pytest.approx(2 * special.ndtr(-abs(expected / error)))
    assert row.prob_better == pytest.approx(special.ndtr(expected / error))


def test_on_the_same_items_drawn_the_errors_of_a_difference_cancel():
    """In Python and in `compare`; apart, the same answers have the errors of both."""
    first, second = (_session(model, 30, rule="random", rng=7) for model in (0, 1))
    logs = [with_prediction(*_record(model, 30, rule="random", rng=7)) for model in (0, 1)]
    drawn = [log.predicted.draws for log in logs]
    difference = first.difference(second)[""]
    [row] = compare(logs)

    assert [answer.item for answer in first.answers] == [answer.item for answer in second.answers]
    r = shared_correlation(*drawn)
    assert r == pytest.approx(
        drawn[0].residuals @ drawn[1].residuals
        / np.sqrt(np.prod([4 + each.residuals @ each.residuals for each in drawn]))
    )  # fmt: skip
    a, b = (session._outlook.full.std_error[0, 0] for session in (first, second))
    x, y = (
        error * each.residuals / np.sqrt(4 + each.residuals @ each.residuals)
        for error, each in zip((a, b), drawn, strict=True)
    )
    prior = sum(
        2 * error**2 / (4 + each.residuals @ each.residuals)
        for error, each in zip((a, b), drawn, strict=True)
    )
    paired = (prior + ((y - x) ** 2).sum()) * (32 / 30)
    paired *= (special.stdtrit(30, 0.975) / special.stdtrit(32, 0.975)) ** 2
    error = np.sqrt(min(paired, a**2 + b**2 - 2 * r * a * b))
    assert difference.high - difference.low == pytest.approx(2 * 1.959964 * error, rel=1e-4)
    assert (difference.low, difference.high) == pytest.approx((row.low, row.high), abs=2e-3)
    assert row.notes[-1] == f"the same 30 items drawn for both: errors correlate by {r:.2f}"
    apart = compare([logs[0], with_prediction(*_record(1, 30, rule="random", rng=8))]).rows[0]
    assert len(apart.notes) == len(row.notes) - 1
    same = first.difference(_session(0, 30, rule="random", rng=7))[""]
    assert same.estimate == 0.0
    assert same.high - same.low < 0.6 * 2 * 1.959964 * np.hypot(a, a)


@pytest.mark.parametrize("correlation", [0.0, 0.95])
@pytest.mark.parametrize("n", [4, pytest.param(10, marks=pytest.mark.validation), 40])
def test_the_error_of_a_paired_difference_holds_its_level(n: int, correlation: float):
    """Of drawn pairs of estimates; with draws of its own each, errors add up as if independent."""
    rng, held, widths = np.random.default_rng([n, int(100 * correlation)]), [], []
    items = tuple(f"task / {k}" for k in range(n))
    z = 1.959964
    pairs = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], (800, n))
    for both in pairs.transpose(0, 2, 1):
        off = both - both.mean(axis=1, keepdims=True)
        tests = [DrawnItems(items, np.full(n, 0.1), each) for each in off]
        errors = np.sqrt((4 + (off**2).sum(axis=1)) / (n + 2) / n)
        errors *= special.stdtrit(n + 2, 0.975) / z
        error = difference_error(tests[0], errors[0], tests[1], errors[1])
        r = shared_correlation(*tests)
        widths.append(error / np.sqrt((errors**2).sum() - 2 * r * errors.prod()))
        held.append(abs(both[1].mean() - both[0].mean()) <= z * error)

    separate = tests[1]._replace(items=items[::-1])
    without = difference_error(tests[0], errors[0], separate, errors[1])
    turned = difference_error(tests[1], errors[1], tests[0], errors[0])
    assert (without, turned) == (pytest.approx(np.hypot(*errors)), pytest.approx(error))
    assert np.mean(held) >= 0.93
    assert max(widths) <= 1 + 1e-12
    if correlation > 0.9 and n > 4:
        assert np.mean(widths) < 0.93


def test_draws_are_shared_as_far_as_items_and_probabilities_are_the_same():
    whole = _session(0, 20, rule="random", rng=7).shared_draws()[""]
    short = _session(1, 12, rule="random", rng=7).shared_draws()[""]
    other = whole._replace(probabilities=whole.probabilities * (1 + (np.arange(20) == 4)))

    assert (12, 20, 4) == (whole.n_shared(short), whole.n_shared(whole), whole.n_shared(other))


def test_a_difference_of_chosen_items_or_of_other_banks_is_refused():
    drawn, chosen = _session(0, 5, rng=0), _session(1, 5, rule="information")
    other = AdaptiveSession(BANK.subset(np.arange(60) < 50))
    other.record(int(other.next()[0]), 1.0)

    for second in (chosen, other):
        with pytest.raises(DesignError, match="use rule random for both"):
            drawn.difference(second)


def test_of_a_complete_run_the_score_is_known():
    tested, complete = _tested(0), _complete(1)
    [row] = compare([tested, complete])

    assert row.difference == pytest.approx(ANSWERS[1].mean() - tested.predicted.scores.mean())
    # The complete run has no error: the width is that of the predicted score's own.
    error = np.sqrt(tested.predicted.variances.sum() / 60**2 + tested.predicted.common**2)
    assert row.high - row.low == pytest.approx(2 * 1.96 * error, rel=1e-4)


def test_complete_runs_beside_an_adaptive_one_are_compared_as_without_it():
    with_it = compare([_tested(0), _complete(1), _complete(2)], correction="none")
    without = compare([_complete(1), _complete(2)], correction="none")

    [row] = [row for row in with_it if row.method != "adaptive"]
    assert (row.difference, row.low) == (without.rows[0].difference, without.rows[0].low)
    assert len(with_it) == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (None, "lacks items of the adaptive test's bank"),
        ({"estimate": None}, "another m"),
        ({"item_ids": np.array([])}, "no predictions of single items"),
        ({"item_ids": np.arange(60)}, "other items"),
    ],
)
def test_without_a_common_bank_nothing_is_compared(changed: dict[str, Any] | None, message: str):
    if changed is None:
        other = _plain(1, BANK.item_ids[:9], ANSWERS[1, :9])
    else:
        tested = _tested(1)
        other = replace(tested, predicted=replace(tested.predicted, **changed))
    with pytest.raises(DesignError, match=message):
        compare([_tested(0), other])


def test_a_complete_run_is_not_replaced_by_a_later_adaptive_one():
    complete, later = _complete(0), _tested(0)
    kept, notes = choose_runs([complete, later], "latest")

    assert kept == [complete]
    assert "the latest run is partial" in notes[0]


def test_a_test_of_all_items_is_a_complete_run():
    plain, record = _record(0, 60)

    assert with_prediction(plain, record) is plain


def test_a_damaged_record_is_named():
    plain, record = _record(0, 20)

    with pytest.raises(LogError, match="damaged record of its adaptive test"):
        with_prediction(plain, record | {"full_score": {"estimate": "x"}})
    with pytest.raises(LogError, match="damaged record of its adaptive test"):
        with_prediction(plain, record | {"draws": record["draws"] | {"items": ["a"]}})
