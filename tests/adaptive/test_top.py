"""Which of several models are the best, under one budget."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.adaptive import AdaptiveSession, ItemBank, Plan, TopK
from evalstats_plugin.adaptive.top import log_evidence_ahead
from evalstats_plugin.errors import DesignError, SelectionError


def bank_of(n_items=120, **others):
    rng = np.random.default_rng(3)
    a, b = np.exp(0.4 * rng.normal(size=n_items)), rng.normal(size=n_items)
    errors = np.tile(0.02 * np.eye(2), (n_items, 1, 1))
    return ItemBank.from_arrays(a, -a * b, item_covariance=errors, **others)


def answers_of(bank, theta, seed):
    p = special.expit(bank.discrimination * theta + bank.intercept)
    return (np.random.default_rng(seed).random(len(bank)) < p).astype(float)


def contest(abilities, k=1, seed=0, bank=None, **limits):
    """Run it on simulated answers of models with these abilities."""
    bank = bank_of() if bank is None else bank
    sessions = {f"m{i}": AdaptiveSession(bank, rng=seed + i) for i in range(len(abilities))}
    answers = {f"m{i}": answers_of(bank, t, 100 * seed + i) for i, t in enumerate(abilities)}
    top = TopK(sessions, k, rng=seed, **limits)
    while (step := top.next()) is not None:
        model, place = step
        top.record(model, place, answers[model][place])
    return top


def test_evidence_is_that_of_a_double_sum():
    """Averages over the half of the grid in this order, over the maximum of the other half."""
    rng = np.random.default_rng(0)
    n = 41
    a, b = rng.normal(size=n).cumsum(), rng.normal(size=(3, n)).cumsum(axis=1)
    prior = rng.dirichlet(np.ones(n))
    i, j = np.mgrid[:n, :n]
    expected = []
    for other in b:
        both = np.exp(a[:, None] + other)
        weight = prior[:, None] * prior
        for order, rest in ((i > j, i <= j + 1), (i < j, i >= j - 1)):
            mean = (weight * both)[order].sum() / weight[order].sum()
            expected.append(np.log(mean / both[rest].max()))

    ahead, behind = log_evidence_ahead(a, b, prior)

    np.testing.assert_allclose(ahead, expected[::2], atol=1e-9)
    np.testing.assert_allclose(behind, expected[1::2], atol=1e-9)


def test_clear_leaders_are_found_with_few_items_and_most_go_where_it_is_close():
    top = contest([-1.5, 1.6, -1.2, 1.9, -1.0], k=2)

    assert {"m1", "m3"} == set(top.best)
    assert top.stopped == "clear at a level of 0.95, whenever it stops"
    assert top.n < 250
    assert sum(top.prob_top.values()) == pytest.approx(2)
    assert top.prob_right >= 0.95


def test_equal_models_are_seldom_called_clear():
    """Any selection among them is wrong; at most 1 in 20 may be called clear."""
    found = [contest([0.3, 0.3, 0.3], seed=seed, max_items=40) for seed in range(8)]

    assert ["40 items asked"] * 8 == [top.stopped for top in found]


def test_what_no_answer_can_change_is_known():
    """Eight easy items right, eight wrong: nothing else is asked once the order cannot change."""
    bank = bank_of(n_items=9)
    sessions = {name: AdaptiveSession(bank, rng=1) for name in ("right", "wrong")}
    top = TopK(sessions, 1, rng=0)
    while (step := top.next()) is not None:
        top.record(*step, float(step[0] == "right"))

    assert ("right",) == top.best
    assert 10 <= top.n < 18


def test_a_budget_is_of_all_models_together():
    cost = 1.0 + np.arange(120) % 3
    top = contest([0.0, 0.1, 0.2], bank=bank_of(cost=cost), budget=60.0)

    assert 55 <= top.cost <= 60
    assert top.n == sum(session.n for session in top.sessions.values())


@pytest.mark.parametrize("seed", range(6))
def test_what_cannot_be_paid_for_makes_nothing_clear(seed):
    """Ten items are cheap and the budget ends with them: clear is what the evidence says."""
    bank = bank_of(cost=np.where(np.arange(120) < 10, 1.0, 1000.0))
    top = contest([2.5, 0.5, -2.0], seed=seed, bank=bank, budget=30.0)
    beliefs = {name: session.belief for name, session in top.sessions.items()}
    best = beliefs.pop(top.best[0])
    others = np.array([one.log_likelihood[0] for one in beliefs.values()])
    ahead, _ = log_evidence_ahead(best.log_likelihood[0], others, np.exp(best.log_prior))

    assert top.stopped is not None
    assert top.stopped.startswith("clear") <= bool(ahead.min() >= np.log(2 / 0.05))


@pytest.mark.parametrize(
    ("k", "more", "message"),
    [
        (2, {}, "the best 2 of 2 models need no test: choose K from 1 to 1"),
        (0, {}, "the best 0 of 2 models"),
        (1, {"confidence_level": 0.4}, "level 0.4 is not between .5 and 1"),
    ],
)
def test_what_makes_no_sense_is_refused(k, more, message):
    with pytest.raises(SelectionError, match=message):
        contest([0.0, 1.0], k=k, **more)


def test_a_budget_needs_costs():
    with pytest.raises(DesignError, match="the bank has no costs of items"):
        contest([0.0, 1.0], budget=5.0)


@pytest.mark.parametrize("goal", ["top:0", "top:²", "top:", "top:two"])
def test_the_number_of_models_is_a_number(goal):
    with pytest.raises(SelectionError, match="goal"):
        Plan(bank="bank.parquet", goal=goal)


def test_one_model_has_no_top(tmp_path: Path):
    """A live test is of one model; the refusal says where several are tested."""
    bank_of().save(tmp_path / "bank.parquet")
    plan = Plan(bank=tmp_path / "bank.parquet", goal="top:1")

    assert isinstance(plan.load(several=True), ItemBank)
    with pytest.raises(SelectionError, match="use adapt replay, or TopK in Python"):
        plan.load()
    with pytest.raises(SelectionError, match="not by stop_at"):
        Plan(bank="bank.parquet", goal="top:1", stop_at=0.3)


def test_recorded_answers_are_replayed_together(run, tmp_path: Path):
    """Rows in the order of their scores, with what each model's items and chances were."""
    rng = np.random.default_rng(1)
    b = rng.normal(size=60)
    p = special.expit(np.r_[rng.normal(size=40), 2.5, -1.0, -1.2][:, None] - b)
    right = (rng.random(p.shape) < p).astype(int)
    for folder, rows in (("known", range(40)), ("new", range(40, 43))):
        (tmp_path / folder).mkdir()
        lines = [",".join(["model", *(f"q{j}" for j in range(60))])]
        lines += [",".join([f"m{i}", *map(str, right[i])]) for i in rows]
        (tmp_path / folder / "quiz.csv").write_text("\n".join(lines))
    bank, wide = tmp_path / "bank.parquet", ("--wide", "models", "-q")
    made = run("adapt", "bank", tmp_path / "known", *wide, "-o", bank)
    assert made.returncode == 0, made.stderr
    asked = ("adapt", "replay", tmp_path / "new", *wide, "--bank", bank, "--goal")
    done = run(*asked, "top:1", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["results"]

    assert "m40" == found[0]["model"]
    assert sorted((row["full_score"] for row in found), reverse=True) == [
        row["full_score"] for row in found
    ]
    assert found[0]["prob_top"] > 0.95
    assert sum(row["prob_top"] for row in found) == pytest.approx(1)
    assert sum(row["n_items"] for row in found) < 120
    assert "P top" in run(*asked, "top:1", "--max-items", "20").stdout
    refused = run(*asked, "top:3")
    assert refused.returncode == 2
    assert "choose K from 1 to 2" in refused.stderr
    assert run(*asked, "top:1", "--every-rule").returncode == 2
