"""Relations of what is fitted: item response models, ratings, pooled accuracies, adaptive tests.

A search for a fit stops where one step more would change little: its numbers agree to five digits
here, not to nine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluations import Evaluation
from relations import (
    ONE_TASK,
    Break,
    Relation,
    assert_close,
    every_other_call,
    only,
    reordered,
    rescaled,
    responses_of,
)

import evalstats_plugin as es
from evalstats_plugin.adaptive import AdaptiveSession
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt import score_models
from evalstats_plugin.ranking import Contests

SEVERAL: Mapping[str, Any] = {
    **ONE_TASK, "models": (3, 6), "items": (4, 20), "scales": ("right", "tenths"),
    "shapes": ("ordinary", "spikes", "rare failures", "alike"),
}  # fmt: skip
ONE_EPOCH: Mapping[str, Any] = {**SEVERAL, "missing": False, "epochs": 1}

NEAR = 5e-5


def _orders(e: Evaluation, *sizes: int) -> list[Any]:
    """Return orders of models, of items, and of so many others, drawn by the evaluation's seed."""
    rng = np.random.default_rng(e.seed)
    return [rng.permutation(n) for n in (len(e.models), e.tasks[0].n_items, *sizes)]


def _turned(e: Evaluation) -> Evaluation:
    """Return the evaluation with every score x replaced by 1 - x, and still more better."""
    _, scale = only(e)
    return rescaled(e, replace(scale, name="turned"), lambda x: 1 - x)


def _near(a: Any, b: Any, tolerance: float = NEAR) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Item response -----------------------------------------------------------------------------------

ITEM_MODELS = ("rasch", "2pl", "graded", "gpcm")


def _fitted(e: Evaluation, *others: Evaluation) -> list[Any]:
    """Fit an item model, drawn by the evaluation's seed, to all; nothing where it has no fit."""
    item_model = ITEM_MODELS[e.seed % len(ITEM_MODELS)]
    try:
        return [es.fit_irt(responses_of(x), item_model, device="cpu") for x in (e, *others)]
    except DesignError:
        return []


def order_changes_no_ability(e: Evaluation, _: Path) -> None:
    """Models and items in another order, models under other names, have the same abilities."""
    models, items = _orders(e)
    for a, b in combinations(_fitted(e, reordered(e, models, items)), 2):
        _near(a.ability[models], b.ability)
        _near(a.ability_std_error[models], b.ability_std_error)


def complement_mirrors_abilities(e: Evaluation, _: Path) -> None:
    """Where right and wrong change places, so do able and unable."""
    for a, b in combinations(_fitted(e, _turned(e)), 2):
        _near(a.ability, -b.ability)
        _near(a.ability_std_error, b.ability_std_error)
        if getattr(a, "ability_quantiles", None) is not None:
            _near(a.ability_quantiles, -b.ability_quantiles[:, ::-1])


def a_model_is_scored_alone_as_among_others(e: Evaluation, _: Path) -> None:
    """On fixed items no other model counts."""
    responses = responses_of(e)
    for fit in _fitted(replace(e, seed=e.seed % 2)):
        together = score_models(fit, responses, device="cpu")
        for r in responses:
            at = together.models.index(r.model)
            _near(score_models(fit, [r], device="cpu").ability[0], together.ability[at])


def ability_of_the_second_fit_moves(patch: pytest.MonkeyPatch) -> None:
    """The first model's, by a thousandth."""
    fit, calls = es.fit_irt, count()

    def broken(*args: Any, **kwargs: Any) -> Any:
        fitted = fit(*args, **kwargs)
        moved = fitted.ability + 1e-3 * (next(calls) % 2) * (np.arange(len(fitted.ability)) == 0)
        return replace(fitted, ability=moved)

    patch.setattr(es, "fit_irt", broken)


def ability_depends_on_the_number_of_models(patch: pytest.MonkeyPatch) -> None:
    """By a thousandth for each."""
    scored = score_models

    def broken(*args: Any, **kwargs: Any) -> Any:
        fit = scored(*args, **kwargs)
        return replace(fit, ability=fit.ability + 1e-3 * len(fit.models))

    patch.setitem(globals(), "score_models", broken)


# Ratings -----------------------------------------------------------------------------------------

RATING = ("mean", "std_error", "low", "high", "n_contests")


def _contests(e: Evaluation) -> tuple[Any, Any, Any]:
    """Let every two models meet on every item that both have a score on: first, second, outcome."""
    task, scale = only(e)
    rows: list[tuple[int, int, float]] = []
    for j, answers in enumerate(e.of(task, scale).transpose(1, 0, 2)):
        scores = [None if np.isnan(x).all() else float(np.nanmean(x)) for x in answers]
        pairs = combinations([i for i, score in enumerate(scores) if score is not None], 2)
        # Not every pair meets on every item.
        rows += [(a, b, 0.5 + np.sign(scores[a] - scores[b]) / 2) for a, b in list(pairs)[j % 2 :]]
    first, second, outcome = np.array(rows or np.zeros((0, 3))).T
    return first.astype(int), second.astype(int), outcome


def _ranked(e: Evaluation, first: Any, second: Any, outcome: Any, models: Any = None) -> Any:
    """Rank players in this order by Bradley and Terry's model; nothing where they have no chain."""
    order = np.arange(len(e.models)) if models is None else models
    place = np.argsort(order)
    players = [f"player {i}" for i in order]
    try:
        ranking = es.rank(Contests.of(place[first], place[second], outcome, players=players),
                          model="bradley-terry", rng=0)  # fmt: skip
    except DesignError:
        return {}
    return {row.player: row for row in ranking}


def order_changes_no_rating(e: Evaluation, _: Path) -> None:
    """Votes and players in another order, the two of each vote on the other side."""
    first, second, outcome = _contests(e)
    models, _items, votes, sides_of = _orders(e, len(first), len(first))
    other = sides_of % 2 == 0
    sides = (np.where(other, b, a)[votes]
             for a, b in ((first, second), (second, first), (outcome, 1 - outcome)))  # fmt: skip
    before, after = _ranked(e, first, second, outcome), _ranked(e, *sides, models)
    assert before.keys() == after.keys()
    for player, row in before.items():
        assert_close(row, after[player], RATING, tolerance=NEAR)
        # Of equals, all have the same chance of being first but for the draws.
        assert abs(row.prob_best - after[player].prob_best) < 0.05, (row, after[player])


def turned_votes_turn_ratings(e: Evaluation, _: Path) -> None:
    """Where every loser has won, the best is the worst, by as much and as surely."""
    first, second, outcome = _contests(e)
    before, after = (_ranked(e, first, second, y) for y in (outcome, 1 - outcome))
    for player, row in before.items():
        other = after[player]
        turned = replace(other, mean=-other.mean, low=-other.high, high=-other.low)
        assert_close(row, turned, RATING, tolerance=NEAR)


# Pooled accuracies -------------------------------------------------------------------------------

POOLED = 0.03
"""Beyond what draws of two calculations differ by."""


def _pooled(e: Evaluation) -> dict[str, Any]:
    fit = es.pool(responses_of(e), "task", rng=0, device="cpu")
    return {row.model: row for row in fit if row.task is not None}


def order_changes_no_pooled_accuracy(e: Evaluation, _: Path) -> None:
    """Nor do names, beyond the error of the draws."""
    models, items = _orders(e)
    before, after = _pooled(e), _pooled(reordered(e, models, items))
    for i, name in enumerate(e.models):
        row = after[f"renamed {i}"]
        assert_close(before[name], row, ("estimate", "low", "high"), tolerance=POOLED)


def complement_mirrors_pooled_accuracies(e: Evaluation, _: Path) -> None:
    """The share of wrong answers is pooled as that of right ones."""
    before, after = _pooled(e), _pooled(_turned(e))
    for name, row in before.items():
        other = after[name]
        turned = replace(other, estimate=1 - other.estimate, low=1 - other.high, high=1 - other.low)
        assert_close(row, turned, ("estimate", "low", "high"), tolerance=POOLED)


# Adaptive tests ----------------------------------------------------------------------------------


def order_of_answers_changes_no_test(e: Evaluation, _: Path) -> None:
    """The same answers in another order say the same; when all are in, the score is known."""
    responses = responses_of(e)
    for fit in _fitted(replace(e, seed=e.seed % 2)):
        bank = es.item_bank(fit, responses, rng=0)
        shuffled, which = _orders(e, len(bank), len(bank))[2:]
        right = (which < 0.6 * len(bank)) * 1.0
        orders = np.arange(len(bank)), shuffled
        sessions = [_answered(bank, right, order) for order in orders]
        _near(sessions[0].ability, sessions[1].ability)
        _near(sessions[0].std_error, sessions[1].std_error)
        (score,) = sessions[0].full_score().values()
        _near([score.estimate, score.low, score.high], right.mean())


def _answered(bank: Any, right: Any, order: Any) -> AdaptiveSession:
    session = es.adaptive_session(bank, rng=0)
    for place in order:
        session.record(int(place), float(right[place]))
    return session


def ability_depends_on_the_last_answer(patch: pytest.MonkeyPatch) -> None:
    """By a thousandth for each letter of its item."""
    ability: Any = AdaptiveSession.ability

    def broken(session: AdaptiveSession) -> float:
        last = session.answers[-1].item if session.answers else ""
        return ability.fget(session) + 1e-3 * len(last)

    patch.setattr(AdaptiveSession, "ability", property(broken))


def second(name: str, what: str, by: float) -> Break:
    """Return what has a public function move a field each second time that it is called."""
    return every_other_call(name, lambda row: replace(row, **{what: getattr(row, what) + by}))


FIT_RELATIONS: Mapping[str, Relation] = {
    "order changes no ability": Relation(
        order_changes_no_ability, ability_of_the_second_fit_moves, SEVERAL, examples=8
    ),
    "complement mirrors abilities": Relation(
        complement_mirrors_abilities, ability_of_the_second_fit_moves, SEVERAL, examples=8
    ),
    "a model is scored alone as among others": Relation(
        a_model_is_scored_alone_as_among_others,
        ability_depends_on_the_number_of_models,
        SEVERAL,
        examples=6,
    ),
    "order changes no rating": Relation(
        order_changes_no_rating, second("rank", "mean", 1e-3), SEVERAL, examples=12
    ),
    "turned votes turn ratings": Relation(
        turned_votes_turn_ratings, second("rank", "low", 1e-3), SEVERAL, examples=12
    ),
    "order changes no pooled accuracy": Relation(
        order_changes_no_pooled_accuracy, second("pool", "estimate", 0.1), SEVERAL, examples=4
    ),
    "complement mirrors pooled accuracies": Relation(
        complement_mirrors_pooled_accuracies, second("pool", "high", 0.1), SEVERAL, examples=4
    ),
    "order of answers changes no test": Relation(
        order_of_answers_changes_no_test, ability_depends_on_the_last_answer, ONE_EPOCH, examples=16
    ),
}
