"""Gates: decisions follow from the limits of the comparisons, and nothing unseen passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.errors import DesignError, SelectionError


def _matrix(n_better: int, n_worse: int, n_same: int) -> es.ResponseMatrix:
    """Return a baseline "old" and a "new" that wins, loses and ties so often."""
    pairs = np.repeat([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [n_better, n_worse, n_same], axis=0)
    return es.ResponseMatrix.from_array(pairs.T, models=["old", "new"])


@pytest.mark.parametrize("seed", range(20))
def test_without_a_margin_regressed_means_worse(seed: int) -> None:
    """The verdict of the same comparison, on both sides."""
    rng = np.random.default_rng(seed)
    scores = (rng.random((3, 60)) < rng.uniform(0.3, 0.9, (3, 1))).astype(float)
    matrix = es.ResponseMatrix.from_array(scores)

    found = {row.model: row for row in es.gate(matrix, baseline="model_0", rng=0)}
    pairs = es.compare(matrix, baseline="model_0", family="run", rng=0)

    for pair in pairs:
        row = found[pair.model_b]
        assert (row.difference, row.low, row.high) == (pair.difference, pair.low, pair.high)
        assert (row.decision == "regressed") == (pair.verdict == "worse")
        assert row.decision in ("pass", "regressed")


@pytest.mark.parametrize(
    ("counts", "margin", "decision"),
    [
        ((60, 20, 120), 0.02, "pass"),
        ((20, 60, 120), 0.02, "regressed"),
        ((20, 20, 20), 0.02, "inconclusive"),
        ((20, 20, 4000), 0.02, "pass"),
        ((20, 45, 4000), 0.02, "pass"),
    ],
)
def test_non_inferior_asks_for_proof_on_either_side(
    counts: tuple[int, int, int], margin: float, decision: str
) -> None:
    """A drop that is sure, but smaller than the margin, passes: the last row."""
    [row] = es.gate(_matrix(*counts), baseline="old", margin=margin, non_inferior=True)

    assert decision == row.decision
    assert row.low is not None
    assert row.high is not None
    assert (row.low > -margin) == (decision == "pass")
    assert (row.high < -margin) == (decision == "regressed")


def test_the_items_needed_decide() -> None:
    """The same data so many times over is decided; half of it is not."""
    counts = (20, 20, 160)
    [row] = es.gate(_matrix(*counts), baseline="old", margin=0.03, non_inferior=True)
    assert row.items_needed is not None
    times = row.items_needed / row.n_items

    def decision(factor: float) -> str:
        enough = [round(n * factor) for n in counts]
        matrix = _matrix(enough[0], enough[1], enough[2])
        return es.gate(matrix, baseline="old", margin=0.03, non_inferior=True).decision

    assert "inconclusive" == row.decision
    assert "inconclusive" == decision(times / 3)
    assert "pass" == decision(times)


def test_lower_scores_can_be_better() -> None:
    """A model with more of what should be low regresses."""
    matrix = _matrix(60, 10, 60)
    low = [r.measured(higher_is_better=False) for r in matrix.to_responses()]

    assert "regressed" == es.gate(low, baseline="old").decision
    assert "pass" == es.gate(low, baseline="new").decision
    assert 0 == es.gate(low, baseline="new")[0].largest_drop


def test_what_the_candidate_did_not_run_is_inconclusive() -> None:
    """A crashed task must not pass a gate."""
    first = list(_matrix(30, 30, 100).to_responses())
    second = [r.measured(task="other") for r in first if r.model == "old"]

    found = es.gate([*first, *second], baseline="old")

    assert "inconclusive" == found.decision
    missing = next(row for row in found if row.task == "other")
    assert ("the candidate has no run of it",) == missing.notes
    assert missing.low is None


def test_several_metrics_share_the_error() -> None:
    """Two metrics: each at 97.5 %."""
    first = list(_matrix(30, 30, 100).to_responses())
    second = [r.measured(metric="other") for r in first]

    assert {0.975} == {row.confidence_level for row in es.gate([*first, *second], baseline="old")}


@pytest.mark.parametrize(
    ("margin", "non_inferior", "message"),
    [
        (-0.1, False, "the margin must be 0 or more"),
        (float("nan"), False, "the margin must be 0 or more"),
        (0.0, True, "say which drop is acceptable"),
    ],
)
def test_a_margin_that_makes_no_sense(margin: float, non_inferior: bool, message: str) -> None:  # noqa: FBT001
    """Negative, not a number, or none where one is needed."""
    with pytest.raises(DesignError, match=message):
        es.gate(_matrix(1, 1, 8), baseline="old", margin=margin, non_inferior=non_inferior)


def test_an_unknown_baseline() -> None:
    """The error of `compare`."""
    with pytest.raises(SelectionError, match="no model is called 'odl'; did you mean old"):
        es.gate(_matrix(1, 1, 8), baseline="odl")


def test_logs_that_were_left_out_do_not_pass() -> None:
    """What could not be read was not seen."""
    found = es.gate(_matrix(30, 30, 100), baseline="old")

    assert "pass" == found.decision
    assert "inconclusive" == replace(found, notes=("left out: broken.json: cut",)).decision


def test_tasks_have_the_limits_that_each_has_at_its_share_of_alpha() -> None:
    """The limits of single pairs are computed for all tasks at once."""
    rng = np.random.default_rng(4)
    scores = (rng.random((2, 90)) < [[0.5], [0.8]]) * 1.0
    matrix = es.ResponseMatrix.from_array(scores, tasks=np.repeat(["p", "q", "r"], 30).tolist())
    rows = es.compare(matrix, family="run", rng=0)
    level = 0.95 ** (1 / 3)

    for k, row in enumerate(rows):
        own = es.ResponseMatrix.from_array(scores[:, 30 * k : 30 * (k + 1)])
        (alone,) = es.compare(own, confidence_level=level, rng=0)
        # By steps a little more may be found, where the limit is 0.
        if row.low != 0 and row.high != 0:
            assert (row.low, row.high) == pytest.approx((alone.low, alone.high), abs=1e-9)
