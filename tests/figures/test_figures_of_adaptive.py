"""Figures of adaptive tests: each rule asks the same bank, and each scoring reads the answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from figures import Run, changed

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import SCORINGS
from evalstats_plugin.adaptive.selection import RULE_NAMES
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.stopping import Items, Reliability, ScoreWidth, StdError

STOPS = {
    "items": Items(12), "error": StdError(0.5), "reliability": Reliability(0.6),
    "width": ScoreWidth(0.3),
}  # fmt: skip


@cache
def bank(factors: int = 1, *, certain: bool = False) -> ItemBank:
    """Sixty items of two tasks, with errors of their parameters and a factor of misfit."""
    rng, n = np.random.default_rng(3), 60
    a, b = np.exp(0.4 * rng.normal(size=n)), rng.normal(size=n)
    more: dict[str, Any] = {} if certain else {
        "item_covariance": np.tile(0.02 * np.eye(2), (n, 1, 1)),
        "misfit_loadings": 0.3 * rng.normal(size=(n, factors)),
    }  # fmt: skip
    return ItemBank.from_arrays(a, -a * b, tasks=["x", "y", "y"] * (n // 3), **more)


def _test(stop: Any = STOPS["items"], *, ability: float = 0.7, factors: int = 1,
          certain: bool = False, **settings: Any) -> Run:  # fmt: skip
    def run() -> Any:
        items = bank(factors, certain=certain)
        chance = 1 / (1 + np.exp(-items.discrimination * ability - items.intercept))
        answers = 1.0 * (np.random.default_rng(5).random(len(items)) < chance)
        session = AdaptiveSession(items, stop=[stop, Items(40)], rng=1, **settings)
        asked = []
        while session.stopped is None:
            for place in session.next():
                asked.append(int(place))
                session.record(int(place), answers[place])
        return {"asked": asked, "result": session.result()}

    return run


RUNS: Mapping[str, Mapping[str, Run]] = {
    **{f"the rule {rule}": {
        "one at a time": _test(rule=rule),
        "three at a time": _test(rule=rule, batch=3, ability=-0.5),
        "by tasks": _test(rule=rule, content="tasks"),
        "known items": _test(rule=rule, certain=True, confidence_level=0.9),
    } for rule in RULE_NAMES},
    **{f"the scoring {scoring}": {
        name: _test(stop, scoring=scoring, factors=2, ability=1.5)
        for name, stop in STOPS.items()
    } for scoring in SCORINGS},
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("adaptive", run, RUNS[run]) == []
