"""Figures of adaptive tests: what is asked, where they stop, and which scores they predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import Run, changed
from given_responses import given_responses
from scipy import special

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.replaying import replay
from evalstats_plugin.adaptive.scoring import (
    Belief,
    Shares,
    State,
    abilities,
    eap,
    expected,
    laplace,
    on_grid,
    predictions,
    project,
    unasked,
)
from evalstats_plugin.adaptive.selection import (
    RULE_NAMES,
    Candidates,
    Tables,
    d_optimality,
    worth,
)
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.adaptive.stopping import (
    Clear,
    Cost,
    Information,
    Items,
    Reliability,
    ScoreWidth,
    StdError,
    log_wealth,
)
from evalstats_plugin.data.responses import Responses, Source

M = 60
BANKS: Mapping[str, Mapping[str, Any]] = {
    "plain": {}, "guessing": {"guessing": np.full(M, 0.2), "upper": np.full(M, 0.95)},
    "factors": {"factors": 2}, "two abilities": {"several": True},
    "misfit": {"misfit": {"": 0.03, "x": 0.1, "y": 0.05}},
}  # fmt: skip


def _bank(factors: int = 0, *, several: bool = False, **others: Any) -> ItemBank:
    """Items of two tasks, with errors; with a plain bank's slopes in one direction or two."""
    rng = np.random.default_rng(3)
    a, b = np.exp(0.4 * rng.normal(size=M)), rng.normal(size=M)
    if several:
        axes = np.eye(2) + 0.3
        others["axes"] = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    loadings = (
        0.3 * rng.normal(size=(M, 1 if several else factors))
        + several * (np.arange(M) % 2)[:, None]
    )
    return ItemBank.from_arrays(
        a, -a * b, tasks=["x", "y", "y"] * (M // 3), misfit_loadings=loadings,
        item_covariance=np.tile(0.02 * np.eye(2), (M, 1, 1)), **others,
    )  # fmt: skip


def _answers(bank: ItemBank, ability: float = 1.0, seed: int = 0) -> np.ndarray:
    p = special.expit(bank.discrimination * ability + bank.intercept)
    return 1.0 * (np.random.default_rng(seed).random(len(bank)) < p)


def _belief(bank: ItemBank, n: int = 12) -> Belief:
    """Two sessions, of which the second has partial credit of three trials."""
    places = np.stack([np.random.default_rng(k).permutation(M)[:n] for k in range(2)])
    right = np.stack([_answers(bank)[places[0]], np.arange(n) % 4.0])
    trials = np.stack([np.ones(n), np.full(n, 3.0)])
    return Belief.prior(bank, 2).answered(places, right, trials)


def _told(name: str, n: int) -> dict[str, Any]:
    bank = _bank(**BANKS[name])
    belief, shares = _belief(bank, n), Shares.of(bank)
    state = laplace(belief)
    full = project(belief, shares, state=state, confidence_level=0.9)
    candidates = Candidates(belief, Tables.of(bank), lambda: state)
    following = candidates.expecting(np.array([M // 2, 7]))
    moved = State(state.mean + 0.3, 2 * state.covariance)
    return {
        "eap": eap(belief), "grid": on_grid(belief) if bank.axes is None else None,
        "abilities": None if bank.axes is None else abilities(belief), "state": state, "full": full,
        "interval": belief.interval(0.9), "predictions": predictions(belief, shares, state, full),
        "curves": expected(belief, state), "spread": expected(belief, state, 0.3),
        "elsewhere": project(belief, shares, state=moved),
        "as it is": project(belief, shares, state=state),
        "from there": laplace(belief, moved), "of prior": belief.ability_prior(),
        "next": [following.state, worth(following)],
        "gained": d_optimality(belief, state), "unasked": unasked(belief),
        "of items": Shares.of(bank).of_items(np.arange(M) % 3 > 0),
    }  # fmt: skip


def _session(bank: ItemBank, **options: Any) -> dict[str, Any]:
    session = AdaptiveSession(bank, rng=1, **options)
    right = _answers(bank)
    while session.stopped is None:
        for place in session.next():
            session.record(int(place), right[place])
    return {
        "asked": [step.item for step in session.answers], "stopped": session.stopped,
        "drawn": [step.drawn for step in session.answers], "ability": session.ability,
        "std_error": session.std_error, "path": [step.ability for step in session.answers],
        "errors": [step.std_error for step in session.answers], "scores": session.full_score(),
        "expected": session.expected(), "result": session.result(),
    }  # fmt: skip


def _logged(bank: ItemBank) -> list[Responses]:
    """Two models' answers to all of the bank, the second with three epochs and holes."""
    scores = [
        _answers(bank)[:, None],
        np.stack([_answers(bank, -0.5, k) for k in range(3)], axis=1),
    ]
    scores[1][::9] = np.nan
    return [
        given_responses(
            model=f"m{k}", task=task, item_ids=bank.item_ids[at], scores=each[at],
            higher_is_better=True, bounds=(0.0, 1.0), source=Source(Path(f"m{k}.json"), "test"),
        )
        for k, each in enumerate(scores) for task in ("x", "y")
        for at in [np.flatnonzero(np.asarray(bank.tasks) == task)]
    ]  # fmt: skip


STOPS: Mapping[str, Any] = {
    "items": Items(20), "error": StdError(0.4), "reliability": Reliability(0.85),
    "width": ScoreWidth(0.2), "cost": Cost(9.0), "clear": Clear(0.5), "information": Information(5),
    "surely clear": Clear(0.2, 0.99),
}  # fmt: skip

RUNS: Mapping[str, Mapping[str, Run]] = {
    "scores": {f"{name} {n}": partial(_told, name, n) for name in BANKS for n in (1, 12, M)},
    "rules": {
        f"{rule} {batch} {name}": partial(_session, _bank(**BANKS[name]), rule=rule, batch=batch,
                                          stop=[Items(12)])
        for rule in RULE_NAMES for batch in (1, 4) for name in ("plain", "factors")
    } | {
        name: partial(_session, _bank(**BANKS[name]), stop=[Items(9)])
        for name in ("guessing", "two abilities")
    } | {
        f"{rule} in proportion": partial(_session, _bank(), rule=rule, balance=True,
                                         stop=[Items(12)]) for rule in RULE_NAMES
    },
    "stops": {
        f"{name} {rule}": partial(_session, _bank(), stop=[how, Items(30)], rule=rule)
        for name, how in STOPS.items() for rule in ("design", "information")
    },
    "replays": {
        f"{rule} {name}": partial(
            replay, _bank(**BANKS[name]), _logged(_bank(**BANKS[name])),
            replace(Plan(bank=Path("bank"), max_items=15), rule=rule))
        for rule in ("design", "information", "random") for name in ("plain", "factors")
    },
    "simulations": {
        f"{rule} {size}": partial(simulate, _bank(), [5, 15], [rule], n_models=6,
                                  misspecified=size, rng=0)
        for rule, size in (("design", 0.0), ("design", 1.0), ("information", 1.0))
    },
    "wealth": {
        f"{least}": lambda least=least: log_wealth(
            np.random.default_rng(0).uniform(-0.3, 0.6, 20), np.full(20, least))
        for least in (-0.3, -0.6, -1.0)
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("adaptive", run, RUNS[run], rel=1e-5) == []
