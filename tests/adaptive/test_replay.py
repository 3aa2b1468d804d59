"""Simulated and replayed adaptive tests against what can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.calibrate import contents
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.replaying import replay
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import DesignError, SelectionError


def bank_of(m: int = 60, **others: object) -> ItemBank:
    rng = np.random.default_rng(0)
    return ItemBank.from_arrays(rng.uniform(0.8, 2, m), rng.normal(size=m), tasks="t", **others)


def answers_of(bank: ItemBank, scores: np.ndarray, model: str = "a") -> Responses:
    return given_responses(
        model=model,
        task="t",
        metric="acc",
        item_ids=bank.item_ids,
        scores=np.atleast_2d(scores.T).T,
        higher_is_better=True,
        bounds=(0.0, 1.0),
        aggregation="mean",
        source=Source(path=f"{model}.json", harness="lm_eval"),
    )


def test_asking_everything_predicts_what_is_known(tmp_path):
    """With all items asked the full score is the mean of the log, whatever the rule."""
    bank = bank_of()
    right = (np.random.default_rng(1).random((60, 1)) < 0.6).astype(float)
    plan = Plan(bank=tmp_path, max_items=60)
    for rule in ("information", "random", "design"):
        tests = replay(bank, [answers_of(bank, right)], replace(plan, rule=rule))
        (test,) = tests
        assert rule == test.rule
        assert 60 == test.n_items == len({*test.asked})
        assert right.mean() == pytest.approx(test.full_score) == pytest.approx(test.observed)
        assert test.full_score_high - test.full_score_low < 1e-9
        assert tests.accuracy is None


def test_items_without_an_answer_are_not_asked_and_epochs_count(tmp_path):
    """Twelve items have no score; the others two epochs."""
    bank = bank_of()
    scores = np.tile((np.arange(60) % 2.0)[:, None], (1, 2))
    scores[:12] = np.nan
    (test,) = replay(bank, [answers_of(bank, scores)], Plan(bank=tmp_path, max_items=60))

    assert 48 == test.n_items == test.n_observed
    assert not {f"item_{j}" for j in range(12)} & {*test.asked}
    once, _ = np.split(scores, 2, axis=1)
    (single,) = replay(bank, [answers_of(bank, once)], Plan(bank=tmp_path, max_items=60))
    assert test.std_error < 0.85 * single.std_error
    assert test.stopped == "no item left to ask"


def test_scores_outside_0_to_1_and_other_metrics_are_refused(tmp_path):
    """By name, with what to do."""
    bank = bank_of(provenance={"metrics": ["acc"]})
    plan = Plan(bank=tmp_path)
    with pytest.raises(DesignError, match="outside of 0 to 1"):
        replay(bank, [answers_of(bank, np.full((60, 1), 7.0))], plan)
    with pytest.raises(SelectionError, match="the logs hold no scores"):
        replay(bank, [], plan)
    with pytest.raises(SelectionError, match="no rule is called 'best'"):
        replay(bank, [answers_of(bank, np.ones((60, 1)))], replace(plan, rule="best"))


def test_simulations_are_repeated_by_their_seed_and_check_their_options():
    bank = bank_of()
    rows = [simulate(bank, [5, 70], ["random"], n_models=8, rng=seed) for seed in (1, 1, 2)]

    assert rows[0].to_dict() == rows[1].to_dict() != rows[2].to_dict()
    assert "no look after 70" in rows[0].notes[-1]
    with pytest.raises(SelectionError, match="no rule is called"):
        simulate(bank, [5], ["best"])
    with pytest.raises(DesignError, match="tests of 70 items are longer than the bank"):
        simulate(bank, [70], ["random"])
    for bad in ({"n_models": 3}, {"misspecified": -1.0}):
        with pytest.raises(DesignError, match="is too small: choose"):
            simulate(bank, [5], **bad)


def test_contents_of_a_bank_are_those_of_its_items():
    """The error is that of a normal prior and the items' information: 0.25 each at difficulty 0."""
    bank = ItemBank.from_arrays(np.ones(16), np.zeros(16), tasks="t", cost=np.full(16, 3.0))
    bank = bank.without(np.arange(16) >= 12, "misfit")
    (row,) = contents(bank)

    assert (16, 12, 36.0) == (row.n_items, row.n_usable, row.cost)
    assert row.std_error == pytest.approx((12 * 0.25 + 1) ** -0.5)
    assert ("item_12: misfit", "item_15: misfit") == (row.left_out[0], row.left_out[-1])
    (nothing,) = contents(bank.without(bank.usable, "drift"))
    assert nothing.std_error is None
