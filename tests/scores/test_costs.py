"""Costs of models: limits by their definition and over drawn designs, and what logs hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from given_responses import given_responses
from scipy import stats

import evalstats_plugin as es
from evalstats_plugin import Responses, costs
from evalstats_plugin.cli import main
from evalstats_plugin.data.measure import COST
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores import CostRow
from evalstats_plugin.stats.means import skewed_ratio, t_interval

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
INSPECT = LOGS / "inspect_ai" / "0.3.285"


def _run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, list(map(str, arguments)))


def _hall_t(d: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> float:
    """Hall's transform of t for a mean of 0, from the numbers themselves."""
    n = weights.sum()
    mean = np.average(d, weights=weights)
    std = np.sqrt(np.average((d - mean) ** 2, weights=weights))
    skewness = np.average((d - mean) ** 3, weights=weights) / std**3
    t = np.sqrt(n - 1) * mean / std
    a = skewness / np.sqrt(n)
    return float(t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6)


@pytest.mark.parametrize("seed", range(30))
def test_limits_solve_the_equation_of_the_test(seed: int) -> None:
    """At each limit the transformed t of cost minus ratio times score is Student's quantile."""
    rng = np.random.default_rng([44, seed])
    n = int(rng.integers(15, 200))
    y = rng.lognormal(0, rng.uniform(0.1, 1.2), n)
    w = (rng.random(n) < rng.uniform(0.3, 0.95)) * 1.0
    weights = rng.choice([0.5, 1.0], n)
    level = rng.uniform(0.5, 0.97)

    low, high = skewed_ratio(y, w, confidence_level=level, weights=weights)

    t = stats.t.ppf((1 + level) / 2, weights.sum() - 1)
    assert low < np.average(y, weights=weights) / np.average(w, weights=weights) < high
    assert _hall_t(y - low * w, weights) == pytest.approx(t, rel=1e-9)
    if np.isfinite(high):
        assert _hall_t(y - high * w, weights) == pytest.approx(-t, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_limits_without_skewness_are_fiellers(seed: int) -> None:
    """Of numbers and their mirror images, by the roots of Fieller's quadratic."""
    rng = np.random.default_rng([45, seed])
    off = rng.normal(0, 1, (2, 20)) * rng.uniform(0.2, 1.0, (2, 1))
    (y, w) = np.concatenate([off, -off], axis=1) + rng.uniform(4, 9, (2, 1))

    low, high = skewed_ratio(y, w, confidence_level=0.9)

    q = stats.t.ppf(0.95, 39) ** 2 / 40
    (yy, yw), (_, ww) = np.cov(y, w)
    roots = np.roots(
        [w.mean() ** 2 - q * ww, -2 * (y.mean() * w.mean() - q * yw), y.mean() ** 2 - q * yy]
    )
    assert (low, high) == pytest.approx(tuple(sorted(roots.real)), rel=1e-9)


def test_units_of_money_and_their_order_change_nothing() -> None:
    rng = np.random.default_rng(5)
    y, w = rng.lognormal(0, 1, 50), (rng.random(50) < 0.6) * 1.0
    low, high = skewed_ratio(y, w, confidence_level=0.95)
    order = rng.permutation(50)
    for factor in (1e-9, 1000.0, 1e12):
        other = skewed_ratio(factor * y[order], w[order], confidence_level=0.95)
        assert other == pytest.approx((factor * low, factor * high), rel=1e-9)


def test_limits_end_where_nothing_is_known() -> None:
    """None without spread or a right answer, no upper limit where no answer may be right."""
    assert np.isnan(skewed_ratio([5.0, 5.0], [1.0, 1.0], confidence_level=0.9)).all()
    assert np.isnan(skewed_ratio([1.0, 2.0], [0.0, 0.0], confidence_level=0.9)).all()
    assert np.isnan(skewed_ratio([1.0], [1.0], confidence_level=0.9)).all()
    assert np.isnan(skewed_ratio([0.0, 0.0], [0.0, 1.0], confidence_level=0.9)).all()
    few = skewed_ratio([1.0, 2.0, 1.5], [0.0, 0.0, 1.0], confidence_level=0.95)
    assert few[1] == np.inf


def _responses(
    cost: np.ndarray[Any, Any], right: np.ndarray[Any, Any], **more: Any
) -> list[Responses]:
    source = es.Source(path=Path("m.json"), harness="test")
    given = {"model": "m", "task": "t", "item_ids": np.arange(len(cost)), "source": source}
    named: Any = given | more
    spent = given_responses(metric="tokens", scores=cost, higher_is_better=False, **named)
    return [
        given_responses(metric="acc", scores=right, bounds=(0.0, 1.0), **named),
        spent.measured(scale=COST),
    ]


def _only(cost: np.ndarray[Any, Any], right: np.ndarray[Any, Any], **more: Any) -> CostRow:
    (row,) = costs(_responses(cost, right, **more))
    return row


@pytest.mark.parametrize("n_designs", [20, pytest.param(60, marks=pytest.mark.validation)])
def test_coverage_over_drawn_designs(n_designs: int) -> None:
    """Sizes, shares, tails and clusters drawn at random: Student's t, the control, holds less."""
    rng = np.random.default_rng(46)
    held = np.zeros((n_designs, 3))
    for design in held:
        n = int(np.exp(rng.uniform(np.log(10), np.log(300))))
        share = rng.choice([rng.uniform(0.05, 0.95), rng.uniform(0.9, 0.995)])
        spread, shift, size = rng.uniform(0, 1.2), rng.normal(0, 0.5), rng.choice([1, 1, 1, 4])
        size = size if n > 100 else 1
        mean = (share * np.exp(shift) + 1 - share) * np.exp(spread**2 / 2)
        listed: list[Responses] = []
        on_t: list[bool] = []
        for k in range(25):
            # Cost and latent score, each half of its cluster.
            common = np.repeat(rng.normal(size=(2, -(-n // size))), size, axis=1)[:, :n]
            part = 0.5 if size > 1 else 0.0
            z = np.sqrt(part) * common + np.sqrt(1 - part) * rng.normal(size=(2, n))
            right = stats.norm.cdf(z[1]) < share
            cost = np.exp(spread * z[0] + shift * right)
            clusters = None if size == 1 else np.arange(n) // size
            listed += _responses(
                cost[:, None], right[:, None] * 1.0, clusters=clusters, model=f"m{k}"
            )
            low, high = t_interval(cost, confidence_level=0.95)
            on_t.append(bool(low <= mean <= high))
        rows = costs(listed)
        design[:] = [
            np.mean([_holds(r.low, mean, r.high) for r in rows]),
            np.mean([_holds(r.per_right_low, mean / share, r.per_right_high) for r in rows]),
            np.mean(on_t),
        ]
    per_item, per_right, student = held.mean(axis=0)
    assert per_item >= 0.93
    assert per_right >= 0.94
    assert student < per_item - 0.01


def _holds(low: float | None, value: float, high: float | None) -> bool:
    """Whether limits hold a value; where there are none, nothing is claimed."""
    return low is None or low <= value <= (np.inf if high is None else high)


def test_a_cost_without_a_score_and_a_score_without_a_cost_are_named() -> None:
    cost, right = np.array([[1.0], [2.0], [4.0], [np.nan]]), np.array([[1.0], [np.nan], [0.0], [1]])
    row = _only(cost, right)
    assert (row.n_items, row.per_item, row.per_right) == (3, pytest.approx(7 / 3), 5.0)
    assert row.notes[0] == "1 item without a logged cost: left out of it"
    assert "of the 2 items with a score" in row.notes[1]
    alone = _responses(cost, right, task="other")[:1]
    both = costs([*_responses(cost, right), *alone])
    assert both.notes == ("no cost is logged: other",)


def test_scores_that_count_no_right_answers_have_no_cost_of_one() -> None:
    spent = np.array([[1.0], [2.0], [4.0]])
    right = np.array([[1.0], [0.0], [1.0]])
    score, cost = _responses(spent, right)
    error = score.measured(higher_is_better=False)
    points = score.measured(scale=es.Scale(0, 10))
    assert _only(spent, right).per_right == 3.5
    for other in (error, points):
        (row,) = costs([other, cost])
        assert (row.per_right, row.per_right_low) == (None, None)
        assert row.low is not None
    none_right = _only(spent, 0 * right)
    assert (none_right.per_right, none_right.per_right_low) == (None, None)


def test_costs_below_zero_and_logs_without_costs_are_errors() -> None:
    spent = np.array([[1.0], [-2.0]])
    with pytest.raises(DesignError, match="tokens of m on t is below 0"):
        costs(_responses(spent, 0 * spent))
    with pytest.raises(DesignError, match="no cost is logged for each item"):
        costs(_responses(spent, 0 * spent)[:1])
    assert _only(0 * spent, np.ones((2, 1))).per_item == 0


def test_equal_costs_have_no_limits_and_the_cost_of_a_right_answer_has() -> None:
    """As of tokens where each answer is one letter; where all are right some might be wrong."""
    row = _only(np.full((20, 1), 15.0), np.ones((20, 1)))
    assert (row.per_item, row.low, row.per_right) == (15.0, None, 15.0)
    assert row.notes == ("costs that do not vary have no limits",)
    assert row.per_right_low is not None
    assert row.per_right_high is not None
    assert row.per_right_low < 15.0 < row.per_right_high


def _edited(path: Path, copy: Path, edit: Callable[[Any], None]) -> Path:
    """Write an Inspect log, with its samples changed."""
    from inspect_ai.log import read_eval_log, write_eval_log

    log = read_eval_log(str(path))
    for sample in log.samples or []:
        edit(sample)
    write_eval_log(log, str(copy))
    return copy


def test_tokens_of_inspect_add_up_to_its_own_total() -> None:
    """By the header, which counts all samples of the run."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    folder = INSPECT / "models"
    totals = {}
    for info in list_eval_logs(str(folder)):
        log = read_eval_log(info, header_only=True)
        totals[log.eval.model, log.eval.task] = log.stats.model_usage[log.eval.model].total_tokens
    tokens = {(r.model, r.task): np.nansum(r.scores) for r in es.read(folder, metric="tokens")}
    assert tokens == totals
    assert len(tokens) > 10


@pytest.mark.parametrize("suffix", [".eval", ".json"])
def test_graders_cost_nothing_of_the_model(tmp_path: Path, suffix: str) -> None:
    """Neither another model, nor the same one in the role of a grader."""
    from inspect_ai.model import ModelUsage

    def edit(sample: Any) -> None:
        model = "mockllm/gamma"
        own, graded = 10 * (sample.epoch + int(sample.id in (1, "1"))), 7
        sample.model_usage = {
            model: ModelUsage(total_tokens=own + graded, total_cost=0.002 + 0.001),
            "mockllm/other": ModelUsage(total_tokens=500, total_cost=5.0),
        }
        sample.role_usage = {"grader": ModelUsage(total_tokens=graded, total_cost=0.001)}
        sample.working_time, sample.total_time = 3.0, 60.0

    (source,) = (INSPECT / "temperature").glob("*.eval")
    path = _edited(source, tmp_path / f"log{suffix}", edit)
    by_name = {r.metric: r for r in es.read(path, costs=True)}
    assert list(by_name)[-3:] == ["usd_per_1000", "tokens", "seconds"]
    # The role is played by no model that the header names.
    assert by_name["tokens"].item_means.min() == 17
    assert by_name["usd_per_1000"].item_means == pytest.approx(3.0)
    assert (by_name["seconds"].item_means == 3.0).all()
    assert by_name["tokens"].higher_is_better is False

    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelConfig

    log = read_eval_log(str(path))
    log.eval.model_roles = {"grader": ModelConfig(model="mockllm/gamma")}
    write_eval_log(log, str(path))
    (tokens,) = es.read(path, metric="tokens")
    (usd,) = es.read(path, metric="usd_per_1000")
    assert tokens.item_means.min() == 10
    assert usd.item_means == pytest.approx(2.0)


def test_costs_are_read_if_they_are_asked_for() -> None:
    """By name or all together; other metrics that are asked for stay."""
    path = INSPECT / "set"
    metrics = [r.metric for r in es.read(path)]
    assert "tokens" not in metrics
    for asked in ({"metric": ["match", "tokens", "seconds"]}, {"metric": "match", "costs": True}):
        named: Any = asked
        assert [r.metric for r in es.read(path, **named)][:3] == ["match", "tokens", "seconds"]
    path = LOGS / "promptfoo" / "0.118.10"
    metrics = [r.metric for r in es.read(path, metric="score", costs=True)]
    assert metrics[:4] == ["score", "usd_per_1000", "latency_ms", "tokens"]


def test_the_command_shows_a_score_beside_its_costs() -> None:
    done = _run("report", INSPECT / "set", "--cost")
    assert done.exit_code == 0, done.stderr
    assert "mockllm/alpha: arith match 0.3400 [0.2206, 0.4750]" in done.stdout
    assert "tokens" in done.stdout
    shown = json.loads(_run("report", INSPECT / "set", "--cost", "--format", "json").stdout)
    assert {row["cost"] for row in shown["results"]} == {"tokens", "seconds"}
    assert _run("report", INSPECT / "set", "--cost", "--format", "markdown").exit_code == 0

    without = _run("report", LOGS / "lm_eval" / "0.4.13" / "out", "--cost")
    assert (without.exit_code, without.stdout) == (2, "")
    assert "lm-eval logs the time of a run only" in without.stderr
    for other in (("--html", "x.html"), ("--by", "x"), ("--at-k", "pass@2")):
        both = _run("report", INSPECT / "set", "--cost", *other)
        assert both.exit_code == 2
        assert f"{other[0]} and --cost" in both.stderr or f"--cost and {other[0]}" in both.stderr


def test_half_an_item_is_small_beside_clusters() -> None:
    """Beside sums of clusters a single item looked like a cluster of its own, and limits like 0."""
    right = np.random.default_rng(50).random((40, 1)) < 0.6
    equal = np.full((40, 1), 15.0)
    row = _only(equal, right * 1.0, clusters=np.repeat(np.arange(5), 8))
    assert row.per_right_low is not None
    assert row.per_right_low > 15.0


def test_notes_on_costs_say_what_is_lacking_and_what_does_not_vary() -> None:
    """Both of one cost; nothing of costs that vary.

    A cost that no item has once ended in a warning of NumPy's.
    """
    lacking = np.array([[2.0], [np.nan], [2.0], [2.0], [2.0]])
    row = _only(lacking, np.ones((5, 1)))
    assert (row.per_item, row.low, row.n_items) == (2.0, None, 4)
    assert "1 item without a logged cost: left out of it" in row.notes
    assert "costs that do not vary have no limits" in row.notes
    other = _only(np.arange(1.0, 6.0)[:, None], np.array([[1.0], [0], [np.nan], [1], [1]]))
    assert other.notes == ("cost for each right answer: of the 4 items with a score",)
    none = _only(np.full((5, 1), np.nan), np.ones((5, 1)))
    assert none.notes == ("5 items without a logged cost: left out of it",)
    assert (none.per_item, none.low, none.high) == (None, None, None)
