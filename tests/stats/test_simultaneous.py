"""All pairs at once: golden values, and that p-values, limits and orders never contradict."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats import many
from evalstats_plugin.stats.many import ItemPairs, TaskPairs, WeightedPairs

GOLDEN = {
    case["name"]: case
    for case in json.loads(
        (Path(__file__).parents[2] / "fixtures/golden/simultaneous.json").read_text()
    )
}


def _pairs(scores: np.ndarray, n_draws: int = 999, **more: object) -> ItemPairs:
    a, b = np.triu_indices(len(scores), 1)
    given = {"bounds": (0.0, 1.0), "rng": np.random.default_rng(0), "n_draws": n_draws, **more}
    return ItemPairs(scores, a, b, **given)  # pyright: ignore[reportArgumentType]


class _EveryFlip:
    """All sign flips but the observed one."""

    def __init__(self, _rng: object, n_units: int, _n_draws: int, *, rotate: bool) -> None:
        self.n, self.rotated = 2**n_units - 1, rotate
        signs = (np.arange(1, 2**n_units)[None, :] >> np.arange(n_units)[:, None]) & 1
        self._signs = (2 * signs - 1).astype(np.float32)

    def of(self, sums: np.ndarray) -> np.ndarray:
        return sums.astype(np.float32) @ self._signs


@pytest.mark.parametrize("name", ["concentrated", "rubric"])
def test_all_flips_give_the_enumerated_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pseudo-items that move, and at the ends of the scale."""
    case = GOLDEN[name]
    monkeypatch.setattr(many, "_Draws", _EveryFlip)
    found = _pairs(np.asarray(case["scores"], dtype=float))
    low, high = found.limits(0.05)

    assert case["statistic"] == pytest.approx(found.statistic, rel=1e-9)
    assert case["p_values"] == pytest.approx(found.p_values)
    assert case["critical"] == pytest.approx(found.critical(0.05), rel=2e-5)
    assert case["low"] == pytest.approx(low, abs=1e-5)
    assert case["high"] == pytest.approx(high, abs=1e-5)


def test_tango_limits_at_a_simultaneous_critical_value() -> None:
    case = GOLDEN["Tango limits"]
    a, b, n = (np.array([float(case[x])]) for x in ("only_a", "only_b", "n"))
    low = many._tango_lower(a, b, n, case["c"])
    high = -many._tango_lower(b, a, n, case["c"])

    assert (case["low"], case["high"]) == pytest.approx((low[0], high[0]), abs=1e-9)


def test_two_clusters_have_students_p_value_and_no_finite_limits() -> None:
    """One model and one that is 0: rotations are exactly the t test, here with one freedom."""
    case = GOLDEN["2 clusters"]
    scores = np.stack([np.zeros(4), -np.asarray(case["differences"])])
    found = _pairs(scores, 9999, clusters=np.asarray(case["clusters"]))
    low, high = found.limits(0.05)

    assert case["p_one_pair_exact"] == pytest.approx(found.p_values[0], abs=0.015)
    assert (-1.0, 1.0) == (low[0], high[0])


def test_group_and_tasks_share_alpha() -> None:
    case = GOLDEN["group and tasks, graph 4"]
    tasks = np.stack(many.over_tasks([np.asarray(p) for p in case["task_p"]]))
    group, inside = many.graph(np.asarray(case["group_p"]), tasks)

    np.testing.assert_allclose(tasks, case["over_tasks"])
    np.testing.assert_allclose(group, case["group"])
    np.testing.assert_allclose(inside, case["tasks"])


def _step_down_of_all_signs(differences: np.ndarray) -> np.ndarray:
    """The largest statistic of every set of hypotheses that is left, under all 2^M signs."""
    values = np.nan_to_num(differences) / np.sqrt(np.nansum(differences**2, axis=1))[:, None]
    signs = np.array(list(product([-1.0, 1.0], repeat=values.shape[1]))).T
    flipped, observed = np.abs(values @ signs), np.abs(values.sum(axis=1))
    order, p_values, worst = np.argsort(-observed), np.empty(len(values)), 0.0
    for i, pair in enumerate(order):
        share = np.mean(flipped[order[i:]].max(axis=0) >= observed[pair] - 1e-9)
        p_values[pair] = worst = max(worst, share)
    return p_values


@pytest.mark.parametrize("holes", [0, 2])
def test_step_down_p_values_are_those_of_all_signs(
    holes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve items, whose 4,096 signs are listed; however few pairs are held at a time."""
    rng = np.random.default_rng(0)
    scores = rng.normal([[0], [0.5], [1.0], [2.0]], 1, (4, 12))
    if holes:
        scores[0, :holes] = scores[2, 3] = np.nan
    a, b = np.triu_indices(4, 1)
    monkeypatch.setattr(many, "_Draws", _EveryFlip)
    found = _pairs(scores, bounds=None)
    whole = found.step_down()
    monkeypatch.setattr(many, "BLOCK_SIZE", 2**13)

    exact = np.maximum(_step_down_of_all_signs(scores[b] - scores[a]), found._floor())
    assert exact == pytest.approx(whole, abs=1e-9)
    assert np.array_equal(whole, _pairs(scores, bounds=None).step_down())


def test_critical_value_of_all_pairs_is_tukeys() -> None:
    """Of six models, normal scores, many items: his studentised range."""
    scores = np.random.default_rng(3).normal(size=(6, 2000))
    tukey = stats.studentized_range.ppf(0.95, 6, 1e6) / np.sqrt(2)

    assert _pairs(scores, 9999, bounds=None).critical(0.05) == pytest.approx(tukey, rel=0.02)


def test_critical_value_of_independent_pairs_is_sidaks() -> None:
    """Ten pairs that share no model, of many items."""
    scores = np.random.default_rng(2).normal(size=(20, 400))
    a = np.arange(0, 20, 2)
    rng = np.random.default_rng(0)
    found = ItemPairs(scores, a, a + 1, bounds=None, rng=rng, n_draws=9999).critical(0.05)

    assert found == pytest.approx(stats.norm.ppf((1 + 0.95 ** (1 / 10)) / 2), rel=0.02)


def test_pairs_without_items_stay_out() -> None:
    """NaN, and the others as without them."""
    scores = np.random.default_rng(0).normal([[0.0], [1.0], [0.5]], 1, (3, 20))
    alone = _pairs(scores[:2], bounds=None)
    scores[2] = np.nan
    found = _pairs(scores, bounds=None)

    assert np.isnan(found.difference).tolist() == [False, True, True]
    assert found.p_values[0] == alone.p_values[0]


@st.composite
def boards(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, object]]:
    """Scores of every kind, with ties, constants and holes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(st.integers(2, 6)), draw(st.sampled_from([2, 3, 7, 11, 12, 20, 60, 200]))
    ability = rng.uniform(0.05, 0.95, (n, 1))
    kind = draw(st.sampled_from(["right", "epochs", "rubric", "narrow", "real", "constant"]))
    scores = {
        "right": lambda: (rng.random((n, m)) < ability) * 1.0,
        "epochs": lambda: rng.binomial(4, np.broadcast_to(ability, (n, m))) / 4,
        "rubric": lambda: np.clip(np.round(4 * rng.normal(ability, 0.3, (n, m))) / 4, 0, 1),
        "narrow": lambda: 0.5 + 0.1 * ability + rng.uniform(-0.03, 0.03, (n, m)),
        "real": lambda: 10 * ability + rng.normal(size=(n, m)),
        "constant": lambda: np.broadcast_to(np.round(ability, 1), (n, m)).copy(),
    }[kind]()
    if draw(st.booleans()):
        scores[-1] = scores[0]
    if draw(st.booleans()):
        scores[rng.random((n, m)) < 0.2] = np.nan
    more: dict[str, object] = {"bounds": None if kind == "real" else (0.0, 1.0)}
    if draw(st.booleans()):
        more["clusters"] = rng.integers(0, max(m // 3, 2), m)
    return scores, more


@settings(max_examples=50, deadline=None)
@given(boards(), st.floats(0.001, 0.5))
def test_p_value_is_at_most_alpha_exactly_where_limits_leave_out_0(
    board: tuple[np.ndarray, dict[str, object]], alpha: float
) -> None:
    scores, more = board
    found = _pairs(scores, 499, **more)
    low, high = found.limits(alpha)
    there = ~np.isnan(found.difference)
    outside = (low > 0) | (high < 0)

    assert ((found.p_values <= alpha) == outside)[there].all()
    assert (low <= found.difference)[there].all()
    assert (found.difference <= high)[there].all()
    assert np.isnan(low[~there]).all()


@settings(max_examples=40, deadline=None)
@given(boards(), st.floats(0.01, 0.3))
def test_a_model_that_no_other_may_beat_may_be_first(
    board: tuple[np.ndarray, dict[str, object]], alpha: float
) -> None:
    """One that leads all others always may; step-down finds all that single-step finds."""
    scores, more = board
    found = _pairs(scores, 499, **more)
    first = found.first(alpha)
    assert first is not None
    lead = np.zeros(len(scores))
    np.maximum.at(lead, found.a, np.nan_to_num(found.statistic))
    np.maximum.at(lead, found.b, -np.nan_to_num(found.statistic))

    assert first[lead <= 0].all()
    assert (found.step_down() <= found.p_values + 1e-12).all()


def test_exchanging_models_mirrors_everything() -> None:
    rng = np.random.default_rng(3)
    scores = np.clip(rng.normal(0.5, 0.2, (4, 40)), 0, 1)
    a, b = np.triu_indices(4, 1)
    one, other = (
        ItemPairs(scores, *pair, bounds=(0, 1), rng=np.random.default_rng(1))
        for pair in ((a, b), (b, a))
    )

    np.testing.assert_allclose(one.p_values, other.p_values)
    np.testing.assert_allclose(one.limits(0.05).low, -other.limits(0.05).high, atol=1e-12)


def test_a_copy_of_a_model_costs_nothing() -> None:
    """The same critical value: common draws know that copies are one comparison."""
    scores = (np.random.default_rng(0).random((3, 80)) < [[0.3], [0.5], [0.7]]) * 1.0
    once, twice = _pairs(scores), _pairs(scores[[0, 1, 2, 2]])

    assert once.critical(0.05) == pytest.approx(twice.critical(0.05), rel=1e-6)


def test_holes_give_what_is_known_without_them() -> None:
    """An item that no model answered changes nothing but the draws."""
    scores = (np.random.default_rng(0).random((3, 80)) < [[0.3], [0.5], [0.7]]) * 1.0
    holed = np.concatenate([scores, np.full((3, 1), np.nan)], axis=1)
    whole, part = _pairs(scores, 4999), _pairs(holed, 4999)

    np.testing.assert_allclose(whole.statistic, part.statistic)
    np.testing.assert_allclose(whole.limits(0.05).low, part.limits(0.05).low, atol=0.02)


def test_171_pairs_of_15_items_take_a_tenth_of_a_second(within: Callable[..., object]) -> None:
    scores = np.random.default_rng(0).binomial(4, 0.5, (19, 15)) / 4
    within(0.1, lambda: _pairs(scores, 1999).limits(0.05))


def test_weighted_tasks_and_random_tasks_agree_with_themselves() -> None:
    """Of p-values and limits, for fixed tasks and for tasks as a sample."""
    rng = np.random.default_rng(2)
    a, b = np.triu_indices(4, 1)
    tasks = [(rng.random((4, n)) < [[0.3], [0.4], [0.6], [0.8]]) / n for n in (30, 50, 80)]
    fixed = WeightedPairs(tasks, np.ones(3) / 3, a, b, span=1.0, rng=rng)
    means = np.stack([x.sum(axis=1) for x in tasks], axis=1)
    drawn = TaskPairs(means, a, b, rng=rng)

    np.testing.assert_allclose(fixed.difference, drawn.difference, atol=1e-12)
    for found in (fixed, drawn):
        for alpha in (0.01, 0.05, 0.2):
            low, high = found.limits(alpha)
            assert ((found.p_values <= alpha) == ((low > 0) | (high < 0))).all()
