"""Gates: decisions follow from the limits of the comparisons, and nothing unseen passes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import evalstats_plugin as es
from evalstats_plugin.comparisons import gating
from evalstats_plugin.comparisons.families import Each
from evalstats_plugin.comparisons.gating import _gains
from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED, with_prior
from evalstats_plugin.data.measure import Scale
from evalstats_plugin.data.responses import Group, Prediction, Responses
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.stats.pairs.differences import Differences


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


@pytest.mark.parametrize("seed", range(3))
def test_a_candidate_whose_limit_is_beyond_the_margin_does_not_pass(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few items with partial credit, where one more like the worst would say less."""
    monkeypatch.setattr(gating, "MOST_SIMULATED_ROWS", 0)
    rng = np.random.default_rng(seed)
    scores = 0.5 + 0.03 * rng.normal(0, 1, (3, 5)) + [[0.05], [0.0], [0.01]]
    decide = partial(
        es.gate, es.ResponseMatrix.from_array(scores), baseline="model_0", confidence_level=0.8
    )
    least = min(row.low or 0.0 for row in decide())
    assert "inconclusive" == decide(margin=-0.999 * least, non_inferior=True).decision


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_points_that_are_all_0_or_1_are_no_right_answers(score: float) -> None:
    """On a scale of 0 to 100 a margin of 5 is 5 points, not five times all of the scale."""
    both = [_on(model, np.full(40, score), scale=Scale(0, 100)) for model in ("old", "new")]
    both[1] = replace(both[1], scores=np.where(np.arange(40) < 4, 1 - score, score)[:, None])
    (row,) = es.gate(both, baseline="old", margin=5.0, rng=0)

    assert ("pass", 5.0) == (row.decision, row.margin)
    assert 5 < (row.detectable or 0) < 6


def test_an_adaptive_candidate_lacks_no_item_that_it_was_not_asked() -> None:
    """Its score of the whole bank is predicted; that of a plain candidate is not."""
    ids = np.array([f"i{j}" for j in range(60)])
    old = replace(_on("old", np.repeat([1.0, 0.0], 30)), item_ids=ids)
    bank = Prediction(
        estimate=0.9, n_in_bank=60, item_ids=ids, scores=np.full(60, 0.9),
        variances=np.full(60, 0.02),
    )  # fmt: skip
    few = replace(_on("new", np.ones(12)), item_ids=ids[:12])
    [row] = es.gate([old, replace(few, predicted=bank)], baseline="old", rng=0)
    [plain] = es.gate([old, few], baseline="old", rng=0)
    [back] = es.gate([replace(few, predicted=bank), old], baseline="new", margin=0.9, rng=0)

    assert ("pass", 0, 60) == (row.decision, row.n_lacking, row.n_items)
    assert row.difference == pytest.approx(0.4)
    assert ("inconclusive", 48) == (plain.decision, plain.n_lacking)
    assert ("pass", 0) == (back.decision, back.n_lacking)


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
    rows = es.compare(matrix, family="run", overall=False, rng=0)
    level = 0.95 ** (1 / 3)

    for k, row in enumerate(rows):
        own = es.ResponseMatrix.from_array(scores[:, 30 * k : 30 * (k + 1)])
        (alone,) = es.compare(own, confidence_level=level, rng=0)
        # By steps a little more may be found, where the limit is 0.
        if row.low != 0 and row.high != 0:
            assert (row.low, row.high) == pytest.approx((alone.low, alone.high), abs=1e-9)


def _on(model: str, scores: np.ndarray, **more: object) -> Responses:
    """Return 0/1 scores of a model on one task."""
    [found] = es.ResponseMatrix.from_array(np.atleast_2d(scores), models=[model]).to_responses()
    of = {n: more.pop(n) for n in ("task", "higher_is_better", "scale") if n in more}
    return replace(found.measured(**{"task": "t", "metric": "acc", **of}), **more)


OLD = np.repeat([1.0, 0.0], [90, 10])
NEW = np.where(np.arange(100) % 2 < 1, OLD, 0.0)
"""Right half as often."""


def test_a_candidate_without_the_items_it_gets_wrong_does_not_pass() -> None:
    """Whether they are not in its log, or have no score; nor with three items."""
    for kept in (NEW == 1, np.arange(100) < 3):
        short = _on("new", NEW[kept])
        short = replace(short, item_ids=_on("old", OLD).item_ids[kept])
        for new in (short, _on("new", np.where(kept, NEW, np.nan))):
            [row] = es.gate([_on("old", OLD), new], baseline="old", rng=0)

            assert ("inconclusive", int((~kept).sum())) == (row.decision, row.n_lacking)
            assert "would not pass if they were the worst possible: run them" in row.notes[-1]


def test_a_group_does_not_pass_where_a_task_lacks_items() -> None:
    """Its mean over the items that are there says nothing of the others."""
    both = Group("both", 0, "macro", 2, logged=0.5)
    old, same = (
        [replace(_on(model, OLD, task=task), groups=(both,)) for task in ("t", "u")]
        for model in ("old", "new")
    )
    gone = (np.arange(100) < 10)[:, None]
    same[0] = replace(same[0], scores=np.where(gone, np.nan, same[0].scores))

    rows = {row.task: row for row in es.gate([*old, *same], baseline="old", rng=0)}

    assert {"t": 10, "u": 0, "both": 0} == {task: row.n_lacking for task, row in rows.items()}
    assert rows["u"].decision == "pass"
    assert rows["both"].decision == "inconclusive"
    assert "no score of some items of the baseline" in rows["both"].notes[-1]


def test_a_few_items_that_change_nothing_may_be_lacking() -> None:
    """A candidate that is better passes without two items, and one that regressed stays so."""
    gone = np.arange(100) < 2
    better, worse = (_on("new", np.where(gone, np.nan, x)) for x in (np.ones(100), NEW))

    [passed] = es.gate([_on("old", OLD), better], baseline="old", rng=0)
    [failed] = es.gate([_on("old", OLD), worse], baseline="old", rng=0)

    assert ("pass", 2) == (passed.decision, passed.n_lacking)
    assert "regressed" == failed.decision


def test_items_that_must_be_compared() -> None:
    """With fewer, an equal candidate does not pass."""
    two = [_on("old", OLD), _on("new", OLD)]

    assert "pass" == es.gate(two, baseline="old", items={"t": 100}, rng=0).decision
    [row] = es.gate(two, baseline="old", items={"t": 101}, rng=0)
    assert ("inconclusive", "100 items of the 101 that must be compared") == (
        row.decision, row.notes[-1],
    )  # fmt: skip
    with pytest.raises(SelectionError, match="no task that is decided on is called 'tt'; did you"):
        es.gate(two, baseline="old", items={"tt": 101}, rng=0)


def test_limits_of_two_items_are_too_far_out_to_say_how_many_decide() -> None:
    """Of sixty candidates at once no tail is left; nothing is decided, and nothing raised."""
    scores = np.random.default_rng(0).normal(0.0, 1.0, (61, 2))
    matrix = es.ResponseMatrix.from_array(scores, models=[f"m{i}" for i in range(61)])
    rows = es.gate(matrix, baseline="m0", margin=0.1, non_inferior=True, rng=0)

    assert {"inconclusive"} == {row.decision for row in rows}
    assert {None} == {row.items_needed for row in rows}


def test_the_terms_are_the_baselines() -> None:
    """Clusters, groups and ranges that a candidate's log claims change no limit."""
    old = _on("old", OLD, groups=(Group("all", 0, "micro", 1, logged=0.5),))
    plain = es.gate([old, _on("new", NEW)], baseline="old", rng=0)
    claimed = _on("new", NEW, clusters=np.repeat("all", 100), scale=Scale(0, 1000))

    found = es.gate([old, claimed], baseline="old", rng=0)

    assert {"t", "all"} == {row.task for row in plain}
    assert [(r.task, r.low, r.high) for r in plain] == [(r.task, r.low, r.high) for r in found]


@pytest.mark.parametrize(
    ("changes", "factor", "message"),
    [
        ({"higher_is_better": False}, 1, "lower scores are better, in that of old higher ones"),
        ({}, 100, "the scores of new, 0 to 100, leave the range 0 to 1 of old"),
        ({}, -1, "the scores of new, -1 to -0, leave the range"),
    ],
)
def test_a_candidate_on_another_scale_is_refused(
    changes: dict[str, bool], factor: float, message: str
) -> None:
    """What would turn a drop into a gain."""
    with pytest.raises(DesignError, match=message):
        es.gate([_on("old", OLD), _on("new", factor * NEW, **changes)], baseline="old")


def test_margins_are_shares_of_each_range() -> None:
    """2 % of 0 to 1 and of 0 to 100; of an unknown range there is no share."""
    rng = np.random.default_rng(2)
    both = [
        _on(model, rng.random(60) * top, task=f"t{top}", scale=Scale(0, top))
        for model in ("old", "new")
        for top in (1.0, 100.0)
    ]
    found = es.gate(both, baseline="old", margin="2%", rng=0)

    assert {("t1.0", 0.02), ("t100.0", 2.0)} == {(row.task, row.margin) for row in found}
    assert (0.0, 100.0) == max(row.score_range for row in found)
    with pytest.raises(DesignError, match="a margin of 2 is as much as the range 0 to 1 of"):
        es.gate(both, baseline="old", margin=2)
    unknown = [
        replace(r.measured(scale=None), scores=r.scores * 9) for r in both if r.task == "t1.0"
    ]
    with pytest.raises(DesignError, match=r"have no known range.*--bounds acc=0,100"):
        es.gate(unknown, baseline="old", margin="2%")
    of_both = Group("both", 0, "macro", 2, logged=0.5)
    grouped = [replace(r, groups=(of_both,)) for r in both]
    with pytest.raises(DesignError, match="tasks of both have different ranges"):
        es.gate(grouped, baseline="old", margin="2%")
    (row,) = (r for r in es.gate(grouped, baseline="old", margin=0.02) if r.kind == "group")
    assert (row.margin, row.score_range) == (0.02, None)
    elsewhere = [r if r.task == "t1.0" else replace(r, groups=()) for r in grouped]
    other = [replace(r.measured(task="u"), groups=(of_both,)) for r in both if r.task == "t1.0"]
    found = es.gate([*elsewhere, *other], baseline="old", margin="2%")
    (row,) = (r for r in found if r.kind == "group")
    assert (row.margin, row.score_range) == (0.02, (0.0, 1.0))


def test_the_drop_that_is_detected_follows_from_margin_and_tests() -> None:
    """About where the exact sum of McNemar's test has that power; a margin, or two tasks, add."""
    from evalstats_plugin.stats.pairs.power import paired_power

    scores = np.repeat([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [10, 10, 180], axis=0)
    old, new = (_on(model, scores[:, i]) for i, model in enumerate(("old", "new")))
    two = [r for task in "ab" for r in (old.measured(task=task), new.measured(task=task))]

    (alone,) = es.gate([old, new], baseline="old", rng=0)
    (again,) = es.gate([old, new], baseline="old", margin=0.01, rng=0)
    of_two = es.gate(two, baseline="old", rng=0)

    assert alone.detectable is not None
    share = paired_power(200, 0.1 + alone.detectable, alone.detectable, tail=0.025)
    assert 0.8 == pytest.approx(float(share), abs=0.01)
    assert again.detectable == pytest.approx(alone.detectable + 0.01, abs=0.005)
    assert all((row.detectable or 0) > alone.detectable for row in of_two)
    assert es.gate([_on("old", OLD[:2]), _on("new", OLD[:2])], baseline="old")[0].detectable is None


@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_the_drop_that_is_detected_of_many_items_is_that_of_normal_sums(margin: float) -> None:
    """The mean power over the posterior of the share gained, at three nodes of its own."""
    n, share = 20_000, 0.05
    scores = np.repeat([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [500, 500, 19_000], axis=0)
    both = [_on(model, scores[:, i]) for i, model in enumerate(("old", "new"))]
    (row,) = es.gate(both, baseline="old", margin=margin, rng=0)
    assert row.detectable is not None
    gained = stats.beta(n * share / 2 + 0.5, n * (1 - share / 2) + 0.5)
    lost, nodes = row.detectable, gained.ppf(stats.norm.cdf([-np.sqrt(3), 0, np.sqrt(3)]))
    error = np.sqrt((2 * nodes + lost - lost**2) / n)
    power = stats.norm.cdf((lost - margin) / error - stats.norm.ppf(0.975))

    assert [1, 4, 1] @ power / 6 == pytest.approx(0.8, abs=2e-3)


@pytest.mark.parametrize("n_designs", [24, pytest.param(100, marks=pytest.mark.validation)])
@pytest.mark.parametrize(("kind", "margin"), [("0/1", 0.0), ("0/1", 0.02), ("partial", 0.0)])
def test_drops_that_are_said_to_be_detected_are_in_four_of_five_gates(
    kind: str, margin: float, n_designs: int
) -> None:
    """Of drawn designs, whose gate does not know how much the two models differ anyway."""
    rng = np.random.default_rng([35, len(kind), int(100 * margin)])
    detected = [_share_detected(kind, margin, rng) for _ in range(n_designs)]

    assert 0.8 == pytest.approx(np.nanmean(detected), abs=0.03)


def _share_detected(kind: str, margin: float, rng: np.random.Generator) -> float:
    """Gate two equal models: how often is the drop called regressed that it says it would detect?

    NaN where it says none: nothing differed.
    """
    n, share = int(np.exp(rng.uniform(3.4, 6.5))), rng.choice([0.03, 0.06, 0.1, 0.2])
    again = rng.random((201, n)) < 2 * share
    old = rng.integers(0, 2, (201, n)) if kind == "0/1" else rng.beta(2, 3, (201, n))
    new = np.where(again, 1 - old if kind == "0/1" else rng.beta(2, 3, (201, n)), old)
    first = es.ResponseMatrix.from_array(np.stack([old[0], new[0]]).astype(float))
    (row,) = es.gate(first, baseline="model_0", margin=margin, rng=0)
    drop = row.detectable
    if drop is None:
        return math.nan
    later = (new - old)[1:]
    if kind == "0/1":
        # Of the items with equal scores some are lost, as if both had been right.
        later = np.where((later == 0) & (rng.random((200, n)) < drop / (1 - 2 * share)), -1, later)
        drop = 0.0
    pairs = Differences(later - drop, span=1.0)
    if margin:
        return float(np.mean(pairs.limits(1.959963985).high < -margin))
    return float(np.mean((pairs.estimate < 0) & (pairs.p_value <= 0.05)))


@given(
    st.sampled_from(["difference", "ratio", "odds ratio"]),
    st.floats(0.1, 3),
    st.floats(0, 2),
)
def test_a_gain_of_fewer_errors_mirrors_that_of_more_right_answers(measure, low, width):
    """Limits of what is gained lie around 0, a ratio's around 1; without both there are none."""
    up = SimpleNamespace(effect=measure, higher_is_better=True)
    down = SimpleNamespace(effect=measure, higher_is_better=False)
    high, null = low + width, float(measure != "difference")

    assert _gains(up, low, high) == (low - null, high - null)
    assert _gains(down, low, high) == (null - high, null - low)
    assert _gains(up, None, high) is _gains(up, low, None) is None


@pytest.mark.parametrize(("family", "alike"), [(PAIRED, 2), (UNPAIRED, 1)])
def test_a_priors_weight_is_that_of_each_outcome(family, alike):
    """Of a pair the two outcomes that are alike count together."""
    with_cells = [method for method in family if isinstance(method.prior, tuple)]

    assert with_cells
    for method in with_cells:
        assert with_prior(method, 0.7).prior == (0.7, alike * 0.7)


def test_every_pair_by_itself_is_one_pair_or_bonferronis():
    p = np.array([0.01, np.nan, 0.3])

    assert Each(p, lambda _: None).procedure == "Bonferroni"
    assert Each(p[:2], lambda _: None).procedure == "one pair"
    np.testing.assert_allclose(Each(p, lambda _: None).p_values, [0.02, np.nan, 0.6])
